//! The layout of a log's piece in a run: codex entries, one *head* and as many *chunks* as its
//! entries need.
//!
//! ```text
//! codex key   = escaped log key, 0x00 0x01, part            (0x00 in the log key is written 0x00 0xff)
//! part        = 0x00                                          the head
//!             | 0x01, number of the chunk's first entry (8 bytes, big endian)
//! head value  = flags (1 byte: 1 the log exists, 2 it has terms), first, next, base (varints), [terms],
//!               chunk: the first entries
//! chunk       = number of its first entry, count, length of each payload (varints), payloads
//! ```
//!
//! The escaping keeps the order of log keys. It also keeps all parts of a log together, with the
//! head first. A small log is one codex entry. To read entry n of a large log, a reader seeks the
//! last part at or before n. The entries of a piece are consecutive and start at
//! `max(first, base)`; the last chunk ends at `next`. Terms (since format 4 of the store; see
//! `model/retention_state.rs`) belong to the bounds: the terms of the newest piece count.

use std::ops::Range;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_wal::{put_varint, take_varint};
use bytes::Bytes;

use crate::format::manifest::RunMeta;
use crate::limits::MAX_KEY;
use crate::model::retention_state::{Ageing, RetentionState};
use crate::model::{Bounds, Piece};

/// Maximum bytes of a chunk with several entries: the payloads, plus one byte for each entry.
pub(crate) const CHUNK: usize = 16 << 10;

const END: [u8; 2] = [0, 1];

/// Appends the escaped log key without its terminator. The codex keys of all logs whose keys have
/// this prefix start with these bytes.
pub(crate) fn escape(key: &[u8], out: &mut Vec<u8>) {
    if !key.contains(&0) {
        return out.extend_from_slice(key);
    }
    for &byte in key {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
}

/// Returns the codex key of a log's head.
pub(crate) fn head_key(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 11);
    escape(key, &mut out);
    out.extend_from_slice(&END);
    out.push(0);
    out
}

/// Returns the codex key of the chunk that starts at `seq`.
pub(crate) fn chunk_key(key: &[u8], seq: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len() + 11);
    put_chunk_key(key, seq, &mut out);
    out
}

/// Appends the codex key of the chunk that starts at `seq`.
pub(crate) fn put_chunk_key(key: &[u8], seq: u64, out: &mut Vec<u8>) {
    escape(key, out);
    out.extend_from_slice(&END);
    out.push(1);
    out.extend_from_slice(&seq.to_be_bytes());
}

/// Returns a key that sorts after every part of the log.
pub(crate) fn key_after(key: &[u8]) -> Vec<u8> {
    let mut out = head_key(key);
    *out.last_mut().expect("a head key ends in its part") = 2;
    out
}

/// Splits a codex key into the log key and, for a chunk, its first number. Returns `None` if the
/// key is not valid.
pub(crate) fn split_key(codex_key: &[u8]) -> Option<(Vec<u8>, Option<u64>)> {
    let (key, part) = unescape(codex_key);
    if key.len() > MAX_KEY {
        return None;
    }
    match part? {
        [0] => Some((key, None)),
        [1, seq @ ..] => Some((key, Some(u64::from_be_bytes(seq.try_into().ok()?)))),
        _ => None,
    }
}

/// Returns the log key at the beginning of a codex key, and the rest after the terminator. The rest
/// is `None` if the terminator is missing.
pub(crate) fn unescape(codex_key: &[u8]) -> (Vec<u8>, Option<&[u8]>) {
    let mut key = Vec::with_capacity(codex_key.len());
    let mut bytes = codex_key;
    while let Some(zero) = bytes.iter().position(|byte| *byte == 0) {
        key.extend_from_slice(&bytes[..zero]);
        bytes = match bytes[zero + 1..].split_first() {
            Some((0xff, rest)) => {
                key.push(0);
                rest
            }
            Some((1, rest)) => return (key, Some(rest)),
            _ => return (key, None),
        };
    }
    key.extend_from_slice(bytes);
    (key, None)
}

/// A decoded chunk: some consecutive entries.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub base: u64,
    ends: Vec<u32>,
    payloads: Bytes,
}

impl Chunk {
    /// Decodes a chunk. Returns `None` if the bytes are not a chunk.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let mut rest = &bytes[..];
        let base = take_varint(&mut rest)?;
        let count = take_varint(&mut rest)?;
        if count > rest.len() as u64 || base.checked_add(count).is_none() {
            return None;
        }
        let mut ends = Vec::with_capacity(count as usize);
        let mut end = 0u64;
        for _ in 0..count {
            end = end.checked_add(take_varint(&mut rest)?)?;
            ends.push(u32::try_from(end).ok()?);
        }
        (rest.len() as u64 == end).then(|| Self { base, ends, payloads: bytes.slice_ref(rest) })
    }

    /// Returns the numbers of its entries.
    pub fn range(&self) -> Range<u64> {
        self.base..self.base + self.ends.len() as u64
    }

    /// Returns the payload of entry `seq`, which must be in range.
    pub fn payload(&self, seq: u64) -> Bytes {
        self.payloads.slice(self.place(seq))
    }

    /// Returns the payload of entry `seq`, borrowed. The entry must be in range.
    pub fn payload_bytes(&self, seq: u64) -> &[u8] {
        &self.payloads[self.place(seq)]
    }

    /// Returns the payloads of entries `seqs`, in order. The entries must be in range.
    pub fn payloads(&self, seqs: Range<u64>) -> impl Iterator<Item = &[u8]> + Clone {
        seqs.map(|seq| self.payload_bytes(seq))
    }

    /// Returns the bytes of the payloads of entries `seqs`, which must be in range.
    pub fn len_of(&self, seqs: Range<u64>) -> usize {
        if seqs.is_empty() { 0 } else { self.place(seqs.end - 1).end - self.place(seqs.start).start }
    }

    fn place(&self, seq: u64) -> Range<usize> {
        let i = (seq - self.base) as usize;
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        start as usize..self.ends[i] as usize
    }
}

/// A decoded head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub piece: Piece,
    pub terms: Option<Arc<RetentionState>>,
    pub chunk: Chunk,
}

impl Head {
    /// Decodes a head. Returns `None` if the bytes are not a head.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let mut rest = &bytes[..];
        let (piece, terms) = head_piece(&mut rest)?;
        let chunk = Chunk::decode(&bytes.slice_ref(rest))?;
        let held = piece.held();
        let fits = chunk.range().is_empty() && held.is_empty()
            || chunk.base == held.start && chunk.range().end <= held.end;
        fits.then_some(Self { piece, terms, chunk })
    }
}

/// Takes the piece and the log's terms from the front of a head; the chunk remains in `rest`.
/// Returns `None` if the bytes are not a head.
pub(crate) fn head_piece(rest: &mut &[u8]) -> Option<(Piece, Option<Arc<RetentionState>>)> {
    let (&flags, after) = rest.split_first()?;
    *rest = after;
    let (first, next) = (take_varint(rest)?, take_varint(rest)?);
    let base = take_varint(rest)?;
    let bounds = (flags & 1 != 0).then_some(Bounds { first, next });
    let terms = if flags & 2 != 0 { Some(RetentionState::decode(rest)?.into()) } else { None };
    let fits = if bounds.is_some() {
        first <= next && base <= next
    } else {
        [first, next, base] == [0; 3] && terms.is_none()
    };
    fits.then_some((Piece { bounds, base }, terms))
}

/// Appends the beginning of a head: the piece and the log's terms. The chunk follows.
fn put_head(value: &mut Vec<u8>, piece: Piece, terms: Option<&RetentionState>) {
    let bounds = piece.bounds.unwrap_or_default();
    value.push(u8::from(piece.bounds.is_some()) | terms.map_or(0, |_| 2));
    for number in [bounds.first, bounds.next, piece.base] {
        put_varint(&mut |b| value.extend_from_slice(b), number);
    }
    if let Some(terms) = terms {
        terms.encode(&mut |b| value.extend_from_slice(b));
    }
}

/// Appends the beginning of a chunk: its first number and the lengths of its payloads, in bytes.
fn put_lens(value: &mut Vec<u8>, base: u64, lens: &[u32]) {
    put_varint(&mut |b| value.extend_from_slice(b), base);
    put_varint(&mut |b| value.extend_from_slice(b), lens.len() as u64);
    for &len in lens {
        put_varint(&mut |b| value.extend_from_slice(b), len.into());
    }
}

/// Appends a head that holds all entries of a log, which have `payloads`.
pub(crate) fn put_whole_log<'p>(
    value: &mut Vec<u8>,
    bounds: Bounds,
    terms: Option<&RetentionState>,
    payloads: impl Iterator<Item = &'p [u8]> + Clone,
) {
    put_head(value, Piece { bounds: Some(bounds), base: bounds.first }, terms);
    let lens: Vec<u32> = payloads.clone().map(|payload| payload.len() as u32).collect();
    put_lens(value, bounds.first, &lens);
    payloads.for_each(|payload| value.extend_from_slice(payload));
}

/// Returns the head of a log that moves to another store, where no totals include the log yet.
pub(crate) fn head_carried_over(head: &[u8]) -> Option<Vec<u8>> {
    let mut rest = head;
    let (piece, terms) = head_piece(&mut rest)?;
    let mut value = Vec::with_capacity(head.len());
    put_head(&mut value, piece, terms.and_then(|terms| terms.carried_over()).as_ref());
    value.extend_from_slice(rest);
    Some(value)
}

/// A receiver of codex entries in order.
pub(crate) trait Out {
    type Error;
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error>;
    /// Announces the log of the next head.
    fn log(&mut self, key: &[u8]);
}

/// A writer of pieces, log after log in key order.
pub(crate) struct PieceWriter<O> {
    out: O,
    key: Vec<u8>,
    piece: Piece,
    terms: Option<Arc<RetentionState>>,
    wrote_head: bool,
    chunk_base: u64,
    lens: Vec<u32>,
    payloads: Vec<u8>,
    value: Vec<u8>,
    pub logs: u64,
    pub entries: u64,
    /// Number of logs that are recorded as deleted.
    pub tombstones: u64,
    /// Number of logs that are recorded as existing, but without an entry.
    pub empties: u64,
    /// The times at which the entries of all these logs become too old.
    pub ageing: Option<Ageing>,
}

impl<O: Out> PieceWriter<O> {
    pub fn new(out: O) -> Self {
        Self {
            out,
            key: Vec::new(),
            piece: Piece { bounds: None, base: 0 },
            terms: None,
            wrote_head: false,
            chunk_base: 0,
            lens: Vec::new(),
            payloads: Vec::new(),
            value: Vec::new(),
            logs: 0,
            entries: 0,
            tombstones: 0,
            empties: 0,
            ageing: None,
        }
    }

    /// Starts the piece of the next log; all its entries follow, then [`end`](Self::end).
    pub fn begin(&mut self, key: &[u8], piece: Piece, terms: Option<Arc<RetentionState>>) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.piece = piece;
        self.terms = terms.filter(|_| piece.bounds.is_some() && !bug("retention-stays-in-memory"));
        let ageing = self.terms.as_ref().and_then(|terms| terms.ageing(piece.bounds?, 0));
        self.ageing = Ageing::sum(self.ageing, ageing);
        self.wrote_head = false;
        self.chunk_base = piece.held().start;
        self.out.log(key);
        self.logs += 1;
        self.tombstones += u64::from(piece.bounds.is_none());
        self.empties += u64::from(piece.bounds.is_some() && piece.held().is_empty());
    }

    /// Returns the manifest's record of the run of all these logs.
    pub fn meta(&self, id: u64, level: u64) -> RunMeta {
        let Self { logs, entries, tombstones, empties, .. } = *self;
        let meta = RunMeta { id, level, logs, entries, tombstones, empties, ..RunMeta::default() };
        meta.with_ageing(self.ageing)
    }

    /// Returns the key of the current log.
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Adds the next entry of the log.
    pub fn entry(&mut self, payload: &[u8]) -> Result<(), O::Error> {
        // A length takes at least one byte.
        let len = self.payloads.len() + self.lens.len() + payload.len() + 1;
        if !self.lens.is_empty() && len > CHUNK {
            self.flush()?;
        }
        self.lens.push(payload.len() as u32);
        self.payloads.extend_from_slice(payload);
        self.entries += 1;
        Ok(())
    }

    /// Ends the log's piece.
    pub fn end(&mut self) -> Result<(), O::Error> {
        if !self.wrote_head || !self.lens.is_empty() {
            self.flush()?;
        }
        assert!(
            self.chunk_base == self.piece.held().end,
            "a piece of entries up to {} got them up to {}",
            self.piece.held().end,
            self.chunk_base
        );
        Ok(())
    }

    fn flush(&mut self) -> Result<(), O::Error> {
        self.value.clear();
        let value = &mut self.value;
        let codex_key = if self.wrote_head {
            chunk_key(&self.key, self.chunk_base)
        } else {
            put_head(value, self.piece, self.terms.as_deref());
            head_key(&self.key)
        };
        put_lens(value, self.chunk_base, &self.lens);
        value.extend_from_slice(&self.payloads);
        self.chunk_base += self.lens.len() as u64;
        self.lens.clear();
        self.payloads.clear();
        self.wrote_head = true;
        self.out.put(&codex_key, &self.value)
    }

    /// Returns the receiver.
    pub fn out(&mut self) -> &mut O {
        &mut self.out
    }

    #[cfg(any(test, fuzzing))]
    pub fn into_inner(self) -> O {
        self.out
    }
}

/// A receiver that collects the entries in memory.
#[cfg(any(test, fuzzing))]
#[derive(Default)]
pub(crate) struct Collected(pub Vec<(Vec<u8>, Bytes)>);

#[cfg(any(test, fuzzing))]
impl Out for Collected {
    type Error = std::convert::Infallible;

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Self::Error> {
        self.0.push((key.to_vec(), Bytes::copy_from_slice(value)));
        Ok(())
    }

    fn log(&mut self, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_keys_keep_the_order_of_log_keys() {
        let mut keys: Vec<&[u8]> =
            vec![b"", b"a", b"a\0", b"a\0\0", b"a\0\x01", b"a\x01", b"aa", b"b", b"\0", b"\xff"];
        keys.sort();
        let mut last = Vec::new();
        for key in keys {
            for part in [head_key(key), chunk_key(key, 0), chunk_key(key, 300), key_after(key)] {
                assert!(last < part, "{key:?}");
                last = part;
            }
            assert_eq!(split_key(&head_key(key)), Some((key.to_vec(), None)));
            assert_eq!(split_key(&chunk_key(key, 300)), Some((key.to_vec(), Some(300))));
        }
        assert_eq!(split_key(b"a"), None);
        assert_eq!(split_key(b"a\0\x02\0"), None);
    }

    #[test]
    fn a_large_piece_is_a_head_and_chunks() {
        let piece = Piece { bounds: Some(Bounds { first: 3, next: 53 }), base: 10 };
        let mut writer = PieceWriter::new(Collected::default());
        let mut terms = None;
        crate::model::retention_state::apply(&mut terms, crate::model::Effect::Entries(100), piece.bounds, 0);
        writer.begin(b"log", piece, terms.clone());
        for seq in piece.held() {
            writer.entry(&vec![seq as u8; 1000]).unwrap();
        }
        writer.end().unwrap();
        writer.begin(b"none", Piece { bounds: None, base: 0 }, None);
        writer.end().unwrap();
        let kept = writer.into_inner().0;
        assert_eq!(kept.len(), 4, "16 entries to a chunk, and a tombstone");
        let head = Head::decode(&kept[0].1).expect("a head");
        assert_eq!((head.piece, head.terms), (piece, terms));
        let mut chunks = vec![head.chunk];
        chunks.extend(kept[1..3].iter().map(|(_, value)| Chunk::decode(value).expect("a chunk")));
        let mut next = 10;
        for chunk in chunks {
            for seq in chunk.range() {
                assert_eq!((seq, &chunk.payload(seq)[..]), (next, &vec![next as u8; 1000][..]));
                next += 1;
            }
        }
        assert_eq!(next, 53);
        let tombstone = Head::decode(&kept[3].1).expect("a head");
        assert_eq!((tombstone.piece.bounds, tombstone.chunk.range().is_empty()), (None, true));
    }

    #[test]
    fn malformed_values_are_refused() {
        for bytes in [
            &[][..],
            &[1, 5, 3, 0, 0, 0],
            &[1, 0, 1, 0, 0, 1, 5, b'x'],
            &[1, 0, 1, 0, 0, 200, 1],
            &[1, 0, 1, 0, 7, 1, 0],
            // A log that does not exist, but has an entry or a next number.
            &[0, 0, 1, 0, 0, 1, 1, b'x'],
            // Terms of a log that does not exist, and missing terms.
            &[2, 0, 0, 0, 1, 1, 0, 0],
            &[3, 0, 0, 0, 0, 0, 0],
            &[0, 0, 1, 0, 0, 0],
        ] {
            assert!(Head::decode(&Bytes::copy_from_slice(bytes)).is_none(), "{bytes:?}");
        }
    }
}
