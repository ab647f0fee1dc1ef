//! The private parts that the fuzz targets use: the formats, from both sides.

use std::sync::Arc;

use brooklet_wal::slot::SlotContent;
use bytes::Bytes;

use crate::error::Error;
use crate::format::commit_record;
use crate::format::manifest::{self, Manifest, Merging, RunMeta, TableMeta};
use crate::format::run_entry::{self, Chunk, Collected, Head, PieceWriter};
use crate::format::superblock::{self, Slot, Superblock};
use crate::model::retention_state::{RetentionState, State};
use crate::model::{Bounds, Effect, Piece};

/// Copies of the superblock.
pub const COPIES: usize = superblock::COPIES;
/// Where the ring starts.
pub const RING_OFFSET: u64 = superblock::RING_OFFSET;

/// The content of a slot of the superblock.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A superblock; its bytes as they would be written now.
    Valid([u8; 512]),
    /// A superblock of this later format.
    Newer(u32),
    /// Something else.
    Damaged,
}

/// The superblock that counts, as far as others build on it.
#[derive(Debug)]
pub struct Chosen {
    /// Number of the superblock.
    pub generation: u64,
    /// Bytes of the ring.
    pub ring_size: u64,
    /// Where the heap starts.
    pub heap_offset: u64,
    /// Bytes of the volume that the store may use; 0: no limit.
    pub capacity: u64,
    /// Whether the ring is on a volume of its own.
    pub ring_apart: bool,
    /// Where the ring is read from: position and number.
    pub trim: (u64, u64),
    /// The last block known to be durable.
    pub acked: u64,
    /// Offset, length and checksum of the manifest.
    pub manifest: (u64, u64, u64),
}

fn found(slot: &Slot) -> Found {
    match slot {
        Slot::Valid(superblock) => Found::Valid(superblock.encode()),
        Slot::Newer(version) => Found::Newer(*version),
        Slot::Blank | Slot::NoMagic | Slot::Damaged(_) => Found::Damaged,
    }
}

/// Decodes a slot of the superblock.
pub fn slot(bytes: &[u8]) -> Found {
    found(&Superblock::decode(bytes))
}

/// Picks the superblock of a volume of `size` bytes from its slots.
pub fn choose(slots: &[&[u8]], size: u64) -> Result<Chosen, Error> {
    let slots: Vec<Slot> = slots.iter().map(|bytes| Superblock::decode(bytes)).collect();
    let chosen = Superblock::choose(&slots, "fuzz", size, false)?;
    Ok(Chosen {
        generation: chosen.generation,
        ring_size: chosen.ring_size,
        heap_offset: chosen.heap_offset(),
        capacity: chosen.capacity,
        ring_apart: chosen.ring.is_some(),
        trim: (chosen.trim.position, chosen.trim.seq),
        acked: chosen.acked,
        manifest: (chosen.manifest.offset, chosen.manifest.len, chosen.manifest.sum),
    })
}

/// Reads the note of who has a store open.
pub fn note(bytes: &[u8]) -> Option<String> {
    superblock::read_note(bytes)
}

/// The content of a manifest, as far as others build on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    manifest: Manifest,
    /// Of each table of each run: offset, length and checksum of the footer.
    pub tables: Vec<[u64; 3]>,
}

/// Returns manifests to begin with: of no run, of some that are being merged, and of an offloaded
/// one.
pub fn sample_manifests() -> Vec<Listed> {
    let table = |offset, first: &[u8]| TableMeta {
        offset,
        len: 200,
        extent: 4096,
        footer_sum: 9,
        first: first.to_vec(),
    };
    let run = |id, ageing| RunMeta { id, logs: 7, entries: 6, dead: 5, ageing, ..RunMeta::default() };
    let runs = vec![
        (run(4, 0), vec![table(1 << 20, b"a"), table(2 << 20, b"b")]),
        (run(3, 2), vec![table(3 << 20, b"c")]),
        (run(1, 0), vec![]),
    ];
    let merging = Some(Merging { into: 4, inputs: 2, bottom: true, from: b"bc".to_vec() });
    let listed = |manifest| Listed { manifest, tables: Vec::new() };
    let apart = vec![(run(1, 0), vec![table(0, b"a").gone(), table(0, b"b").gone()])];
    vec![
        listed(Manifest::default()),
        listed(Manifest { runs, merging }),
        listed(Manifest { runs: apart, merging: None }),
    ]
}

/// Decodes a manifest.
pub fn decode_manifest(bytes: &[u8], sum: u64) -> Result<Listed, &'static str> {
    let manifest = Manifest::decode(bytes, sum)?;
    let tables = manifest.runs.iter().flat_map(|(_, tables)| tables);
    let tables = tables.map(|s| [s.offset, s.len, s.footer_sum]).collect();
    Ok(Listed { manifest, tables })
}

/// Encodes a manifest, and returns its checksum, too.
pub fn encode_manifest(listed: &Listed) -> (Vec<u8>, u64) {
    let bytes = listed.manifest.encode();
    let sum = manifest::sum_of(&bytes);
    (bytes, sum)
}

/// What an effect of a record does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// Adds the entry of this number.
    Append(u64),
    /// Drops the entries before this one.
    Trim(u64),
    /// Drops this entry and all after it.
    Truncate(u64),
    /// Drops the log.
    Delete,
    /// Limits the entries, or lifts that.
    Entries(u64),
    /// Limits the bytes, or lifts that.
    Bytes(u64),
    /// Limits the age, or lifts that.
    Age(u64),
    /// Tells the time of the entries to come.
    Mark(u64),
    /// Tells the bytes of all payloads.
    Held(u64),
    /// Has it count in the totals of a space.
    Count(u64),
    /// Gives the next entry of an empty log this number.
    Begin(u64),
}

/// An effect of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The log.
    pub key: Vec<u8>,
    /// What happens to it.
    pub does: Does,
    /// The log's bounds before, if the record has them.
    pub before: Option<Bounds>,
    /// The log's encoded terms before, if the record has them.
    pub terms: Option<Vec<u8>>,
    /// An append's payload.
    pub payload: Vec<u8>,
}

/// Decodes a whole record.
pub fn decode_record(bytes: &[u8]) -> Option<Vec<Change>> {
    let (mut rest, mut key, mut changes) = (bytes, None, Vec::new());
    while !rest.is_empty() {
        let entry = commit_record::decode(&mut rest, key)?;
        key = Some(entry.key);
        let does = match entry.effect {
            Effect::Append(n) => Does::Append(n),
            Effect::Trim(n) => Does::Trim(n),
            Effect::Truncate(n) => Does::Truncate(n),
            Effect::Delete => Does::Delete,
            Effect::Entries(n) => Does::Entries(n),
            Effect::Bytes(n) => Does::Bytes(n),
            Effect::Age(n) => Does::Age(n),
            Effect::Mark(n) => Does::Mark(n),
            Effect::Held(n) => Does::Held(n),
            Effect::Count(n) => Does::Count(n),
            Effect::Begin(n) => Does::Begin(n),
        };
        changes.push(Change {
            key: entry.key.to_vec(),
            does,
            before: entry.before.bounds,
            terms: entry.before.terms.map(|terms| {
                let mut bytes = Vec::new();
                terms.encode(&mut |b| bytes.extend_from_slice(b));
                bytes
            }),
            payload: entry.payload.to_vec(),
        });
    }
    Some(changes)
}

/// Encodes a record, and returns the most bytes that appending would have reserved for it.
pub fn encode_record(changes: &[Change]) -> (Vec<u8>, usize) {
    let (mut bytes, mut bound, mut previous) = (Vec::new(), 0, None);
    for change in changes {
        let effect = match change.does {
            Does::Append(n) => Effect::Append(n),
            Does::Trim(n) => Effect::Trim(n),
            Does::Truncate(n) => Effect::Truncate(n),
            Does::Delete => Effect::Delete,
            Does::Entries(n) => Effect::Entries(n),
            Does::Bytes(n) => Effect::Bytes(n),
            Does::Age(n) => Effect::Age(n),
            Does::Mark(n) => Effect::Mark(n),
            Does::Held(n) => Effect::Held(n),
            Does::Count(n) => Effect::Count(n),
            Does::Begin(n) => Effect::Begin(n),
        };
        let same = previous == Some(&change.key);
        let (key, payload) = (&change.key[..], &change.payload[..]);
        bound += commit_record::bound(if same { &[] } else { key }, payload);
        let terms =
            change.terms.as_ref().and_then(|terms| RetentionState::decode(&mut &terms[..])).map(Arc::new);
        bound += terms.as_ref().map_or(0, |terms| terms.bound());
        let before = State { bounds: change.before, terms };
        let entry = commit_record::Entry { key, effect, before, payload };
        commit_record::encode(&mut |b| bytes.extend_from_slice(b), &entry, same);
        previous = Some(&change.key);
    }
    (bytes, bound)
}

/// A chunk of a log in a run: the number of its first entry, and the payloads.
pub type Entries = (u64, Vec<Bytes>);

fn entries(chunk: &Chunk) -> Entries {
    (chunk.base, chunk.range().map(|seq| chunk.payload(seq)).collect())
}

/// Decodes a chunk.
pub fn decode_chunk(bytes: &Bytes) -> Option<Entries> {
    Chunk::decode(bytes).map(|chunk| entries(&chunk))
}

/// Decodes a head: the log's bounds and the piece's base, and the first chunk.
pub fn decode_head(bytes: &Bytes) -> Option<(Option<Bounds>, u64, Entries)> {
    Head::decode(bytes).map(|head| (head.piece.bounds, head.piece.base, entries(&head.chunk)))
}

/// Splits a codex key of a run into the log's key and a chunk's first number.
pub fn split_key(key: &[u8]) -> Option<(Vec<u8>, Option<u64>)> {
    run_entry::split_key(key)
}

/// The codex key of a log's head, or of the chunk from `seq` on.
pub fn part_key(key: &[u8], seq: Option<u64>) -> Vec<u8> {
    seq.map_or_else(|| run_entry::head_key(key), |seq| run_entry::chunk_key(key, seq))
}

/// The codex entries of a log whose piece holds `payloads`, up to the end of its bounds.
pub fn write_piece(
    key: &[u8],
    bounds: Option<Bounds>,
    base: u64,
    payloads: &[Vec<u8>],
) -> Vec<(Vec<u8>, Bytes)> {
    let mut writer = PieceWriter::new(Collected::default());
    writer.begin(key, Piece { bounds, base }, None);
    for payload in payloads {
        let Ok(()) = writer.entry(payload);
    }
    let Ok(()) = writer.end();
    writer.into_inner().0
}
