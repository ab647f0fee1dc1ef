//! The manifest: the list of runs, their tables, and the running merge. Every change writes a new
//! manifest, and the superblock points at it.
//!
//! ```text
//! 0  8 magic "BRKMANIF"   8  4 version, 1 to 4   12  4 number of runs
//! then per run, newest first; little endian, 8 bytes each, here and below:
//!    number, level, logs, entries,
//!    tombstones: logs that it says are gone, empties: logs that it says are there, and holds no entry of,
//!    dead: entries that newer runs are known to have made irrelevant; never more than there are,
//!    ageing: entries of its logs under limits of age, older runs' included,
//!    when the first of them becomes too old, in milliseconds since the Unix epoch, when the last does,
//!    number of tables
//!    then per table, in the order of keys:
//!       offset on the volume, length of the codex, bytes of its extent, checksum of the codex's footer,
//!       (offset and extent are 0 where it lies elsewhere, and is known by the other two)
//!       length of a key, and that key: its first codex key; if that is a head, maybe a shorter one between it and the last
//!       of the table before
//! then number of runs that are being merged; 0 where no merge goes on, and then no more of it:
//!    number of the run that is being made of them; they follow it above
//!    1 where the last of them was the oldest of all when the merge began, 0 where it was not
//!    length of a log's key, and that key: the merged run has all logs before it, and the others count only from it on
//! then 8 XXH3-64 of all before
//! ```
//!
//! A run that is being merged is recorded with the counts from before the merge, and with only
//! those tables that are still needed.
//!
//! A manifest has version 4 exactly if some tables are offloaded. A reader that knows only version
//! 3 can read all other manifests.
//!
//! Versions 1 and 2 had no tables: after a run's number and level, they had offset, length, extent
//! and checksum of the run's only codex, and then logs, entries, tombstones, empties and dead. The
//! first key of that codex counts as the smallest possible key. Version 1 had only logs and
//! entries. For the missing numbers, a reader assumes the worst case: no entry is dead, and no log
//! may be forgotten. Up to version 2, no log had limits.

use std::fmt;
use std::ops::Range;

use brooklet_wal::checksum;

use crate::model::retention_state::Ageing;

const MAGIC: [u8; 8] = *b"BRKMANIF";
/// The version of a manifest with all tables in the store, and of a manifest with offloaded tables.
const VERSION: [u32; 2] = [3, 4];

/// More levels than any store has: with 12 runs, this level would take 20 thousand million
/// checkpoints.
pub(crate) const MAX_LEVEL: u64 = 32;

/// A run as recorded in the manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunMeta {
    pub id: u64,
    pub level: u64,
    pub logs: u64,
    pub entries: u64,
    /// Number of logs that the run records as deleted.
    pub tombstones: u64,
    /// Number of logs that the run records as existing, but without an entry in the run.
    pub empties: u64,
    /// Number of entries that newer runs are known to have made irrelevant.
    pub dead: u64,
    /// Number of entries of the run's logs under limits of age, and the times at which the first
    /// and the last of them become too old.
    pub ageing: u64,
    pub ages_from: u64,
    pub ages_to: u64,
}

/// Number of 8-byte words of a run.
const WORDS: usize = 10;

impl RunMeta {
    fn words(&self) -> [u64; WORDS] {
        let Self { id, level, logs, entries, tombstones, empties, dead, ageing, ages_from, ages_to } = *self;
        [id, level, logs, entries, tombstones, empties, dead, ageing, ages_from, ages_to]
    }

    fn of_words(words: [u64; WORDS]) -> Self {
        let [id, level, logs, entries, tombstones, empties, dead, ageing, ages_from, ages_to] = words;
        Self { id, level, logs, entries, tombstones, empties, dead, ageing, ages_from, ages_to }
    }

    /// Returns when entries of the run's logs become too old.
    pub fn ageing(&self) -> Option<Ageing> {
        let Self { ageing: entries, ages_from: from, ages_to: to, .. } = *self;
        (entries > 0).then_some(Ageing { entries, from, to })
    }

    /// Returns the same run with these ages.
    pub fn with_ageing(self, ageing: Option<Ageing>) -> Self {
        let Ageing { entries, from, to } = ageing.unwrap_or_default();
        Self { ageing: entries, ages_from: from, ages_to: to, ..self }
    }
}

/// A table of a run as recorded in the manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableMeta {
    pub offset: u64,
    pub len: u64,
    pub extent: u64,
    pub footer_sum: u64,
    /// The table's first codex key, or any key between the last key of the table before and that
    /// key.
    pub first: Vec<u8>,
}

impl TableMeta {
    /// Returns the same table as offloaded.
    pub fn gone(&self) -> Self {
        Self { offset: 0, extent: 0, ..self.clone() }
    }

    /// Returns whether the table is offloaded.
    pub fn is_offloaded(&self) -> bool {
        self.extent == 0
    }
}

/// A run and its tables, in the order of their keys.
pub(crate) type Chain = (RunMeta, Vec<TableMeta>);

/// A merge that has published a part of its result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merging {
    /// The number of the run that the merge makes.
    pub into: u64,
    /// Number of runs that it merges: the runs that follow run `into`.
    pub inputs: usize,
    /// Whether the last of them was the oldest run when the merge began. If so, a log that does not
    /// exist needs no tombstone, and no entry is missing. The value is the same for the whole
    /// merge, even if all older runs have died meanwhile.
    pub bottom: bool,
    /// The log from which on the merged runs count; run `into` has all logs before it.
    pub from: Vec<u8>,
}

/// The decoded content of a manifest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Newest first.
    pub runs: Vec<Chain>,
    pub merging: Option<Merging>,
}

impl Manifest {
    /// Returns the places of the runs that are being merged; empty if the run that they follow does
    /// not exist.
    pub fn merged(&self) -> Range<usize> {
        let at = |merging: &Merging| self.runs.iter().position(|(run, _)| run.id == merging.into);
        let place = self.merging.as_ref().and_then(|merging| Some((at(merging)? + 1, merging.inputs)));
        place.map_or(0..0, |(start, inputs)| start..start.saturating_add(inputs))
    }

    /// Returns whether some tables are offloaded.
    fn is_apart(&self) -> bool {
        self.runs.iter().flat_map(|(_, tables)| tables).any(TableMeta::is_offloaded)
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION[usize::from(self.is_apart())].to_le_bytes());
        out.extend_from_slice(&(self.runs.len() as u32).to_le_bytes());
        for (run, tables) in &self.runs {
            put(&mut out, &run.words());
            put(&mut out, &[tables.len() as u64]);
            for TableMeta { offset, len, extent, footer_sum, first } in tables {
                put(&mut out, &[*offset, *len, *extent, *footer_sum, first.len() as u64]);
                out.extend_from_slice(first);
            }
        }
        put(&mut out, &[self.merging.as_ref().map_or(0, |merging| merging.inputs as u64)]);
        if let Some(Merging { into, bottom, from, .. }) = &self.merging {
            put(&mut out, &[*into, u64::from(*bottom), from.len() as u64]);
            out.extend_from_slice(from);
        }
        let sum = checksum(&out);
        put(&mut out, &[sum]);
        out
    }

    /// Decodes a manifest. `sum` is the checksum that the superblock names.
    pub fn decode(bytes: &[u8], sum: u64) -> Result<Self, &'static str> {
        if bytes.len() < 24 || bytes[..8] != MAGIC {
            return Err("the magic bytes are missing");
        }
        let (body, end) = bytes.split_at(bytes.len() - 8);
        if end != sum.to_le_bytes() || checksum(body) != sum {
            return Err("the checksum differs from the recorded checksum");
        }
        let half = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().expect("four bytes"));
        let (version, count) = (half(8), half(12));
        let mut rest = Rest(&body[16..]);
        let decoded = match version {
            1 | 2 => rest.old(version, count),
            3 | 4 => rest.whole(count).filter(|found| found.is_apart() == (version == 4)),
            _ => None,
        };
        decoded.filter(|_| rest.0.is_empty()).ok_or("the version or the length is wrong")
    }
}

fn put(out: &mut Vec<u8>, words: &[u64]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// The rest to be decoded. Its methods return `None` if the rest ends too early.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn words<const N: usize>(&mut self) -> Option<[u64; N]> {
        let (taken, rest) = self.0.split_at_checked(N * 8)?;
        self.0 = rest;
        let word = |i: usize| u64::from_le_bytes(taken[i * 8..i * 8 + 8].try_into().expect("eight bytes"));
        Some(std::array::from_fn(word))
    }

    fn key(&mut self, len: u64) -> Option<Vec<u8>> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken.to_vec())
    }

    fn whole(&mut self, count: u32) -> Option<Manifest> {
        let mut runs = Vec::new();
        for _ in 0..count {
            let run = RunMeta::of_words(self.words()?);
            let [parts] = self.words()?;
            let mut tables = Vec::new();
            for _ in 0..parts {
                let [offset, len, extent, footer_sum, first] = self.words()?;
                tables.push(TableMeta { offset, len, extent, footer_sum, first: self.key(first)? });
            }
            runs.push((run, tables));
        }
        let [inputs] = self.words()?;
        let merging = if inputs == 0 {
            None
        } else {
            let [into, bottom, from] = self.words()?;
            let bottom = [false, true].into_iter().find(|it| u64::from(*it) == bottom)?;
            Some(Merging { into, inputs: usize::try_from(inputs).ok()?, bottom, from: self.key(from)? })
        };
        Some(Manifest { runs, merging })
    }

    fn old(&mut self, version: u32, count: u32) -> Option<Manifest> {
        let mut runs = Vec::new();
        for _ in 0..count {
            let [id, level, offset, len, extent, footer_sum, logs, entries] = self.words()?;
            let [tombstones, empties, dead] = if version == 1 { [0, logs, 0] } else { self.words()? };
            let table = TableMeta { offset, len, extent, footer_sum, first: Vec::new() };
            let run = RunMeta { id, level, logs, entries, tombstones, empties, dead, ..RunMeta::default() };
            runs.push((run, vec![table]));
        }
        Some(Manifest { runs, merging: None })
    }
}

/// Returns the checksum by which the superblock names an encoded manifest.
pub(crate) fn sum_of(encoded: &[u8]) -> u64 {
    u64::from_le_bytes(encoded[encoded.len() - 8..].try_into().expect("eight bytes"))
}

/// The name of a part. Two parts of a store with the same name are equal byte by byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartName {
    /// The checksum of the part's footer. The checksum covers the whole part.
    pub footer_sum: u64,
    /// The length of the part, in bytes.
    pub len: u64,
}

impl PartName {
    pub(crate) fn of(meta: &TableMeta) -> Self {
        Self { footer_sum: meta.footer_sum, len: meta.len }
    }
}

/// Writes `<checksum, 16 digits of base 16>-<length>`.
impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{}", self.footer_sum, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunMeta = RunMeta {
        id: 1,
        level: 2,
        logs: 7,
        entries: 8,
        tombstones: 9,
        empties: 10,
        dead: 11,
        ageing: 12,
        ages_from: 13,
        ages_to: 14,
    };

    fn table(offset: u64, first: &[u8]) -> TableMeta {
        TableMeta { offset, len: 4, extent: 5, footer_sum: 6, first: first.to_vec() }
    }

    #[test]
    fn a_manifest_survives_the_round_trip_and_no_flipped_bit() {
        let runs = vec![
            (RUN, vec![table(3, b"a"), table(8, b"b\0\x01\0")]),
            (RunMeta { id: 12, ..RUN }, vec![]),
            (RunMeta { id: 13, ..RUN }, vec![table(20, b"")]),
        ];
        let merging = Some(Merging { into: 1, inputs: 2, bottom: true, from: b"c".to_vec() });
        let mut apart = runs.clone();
        apart[2].1[0] = table(20, b"").gone();
        for (manifest, version) in [
            (Manifest::default(), 3),
            (Manifest { runs: runs.clone(), merging: None }, 3),
            (Manifest { runs, merging: merging.clone() }, 3),
            (Manifest { runs: apart, merging }, 4),
        ] {
            let mut bytes = manifest.encode();
            assert_eq!(bytes[8], version);
            let sum = sum_of(&bytes);
            assert_eq!(Manifest::decode(&bytes, sum), Ok(manifest));
            assert!(Manifest::decode(&bytes, sum ^ 1).is_err());
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(Manifest::decode(&bytes, sum).is_err(), "bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            for cut in 0..bytes.len() {
                assert!(Manifest::decode(&bytes[..cut], sum).is_err());
            }
        }
    }

    /// Impossible lengths and numbers with a correct checksum.
    #[test]
    fn a_forged_manifest_is_refused() {
        let sound = Manifest {
            runs: vec![(RUN, vec![table(3, b"a")])],
            merging: Some(Merging { into: 1, inputs: 2, bottom: false, from: b"c".to_vec() }),
        };
        let sound = sound.encode();
        let mut newer = sound[..sound.len() - 8].to_vec();
        newer[8] = 4;
        let sum = checksum(&newer);
        put(&mut newer, &[sum]);
        assert!(Manifest::decode(&newer, sum).is_err(), "version 4 says that something lies elsewhere");
        for at in [12, 16 + 80, 16 + 88 + 32, sound.len() - 17] {
            for word in [u64::MAX, 1 << 40, 200] {
                let mut bytes = sound[..sound.len() - 8].to_vec();
                let len = 8.min(if at == 12 { 4 } else { 8 });
                bytes[at..at + len].copy_from_slice(&word.to_le_bytes()[..len]);
                let sum = checksum(&bytes);
                put(&mut bytes, &[sum]);
                if bytes != sound && at != 12 || word != 1 << 40 {
                    assert!(Manifest::decode(&bytes, sum).is_err(), "{word} at {at}");
                }
            }
        }
    }

    fn of_version(version: u8, words: u64) -> RunMeta {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[version, 0, 0, 0, 1, 0, 0, 0]);
        (1..=words).for_each(|word| put(&mut bytes, &[word]));
        let sum = checksum(&bytes);
        put(&mut bytes, &[sum]);
        let manifest = Manifest::decode(&bytes, sum).unwrap();
        assert!(manifest.merging.is_none() && manifest.runs.len() == 1);
        let (run, tables) = &manifest.runs[0];
        let table = TableMeta { offset: 3, len: 4, extent: 5, footer_sum: 6, first: Vec::new() };
        assert_eq!(tables[..], [table]);
        *run
    }

    #[test]
    fn version_1_is_taken_at_its_worst() {
        let RunMeta { logs, entries, tombstones, empties, dead, .. } = of_version(1, 8);
        assert_eq!((logs, entries, tombstones, empties, dead), (7, 8, 0, 7, 0));
    }

    #[test]
    fn a_run_of_version_2_is_a_chain_of_one() {
        assert_eq!(of_version(2, 11), RUN.with_ageing(None));
    }
}
