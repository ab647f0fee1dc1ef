//! The manifest: which runs there are. Written anew with every change, pointed at by the superblock.
//!
//! ```text
//! 0  8 magic "BRKMANIF"   8  4 version, 1 to 3   12  4 number of runs
//! then per run, newest first, 112 bytes, little endian:
//!    0 8 number   8 8 level   16 8 offset on the volume   24 8 length of the codex   32 8 bytes of its extent
//!   40 8 checksum of the codex's footer   48 8 logs   56 8 entries
//!   64 8 tombstones: logs that it says are gone   72 8 empties: logs that it says are there, and holds no entry of
//!   80 8 dead: entries that newer runs are known to have made irrelevant; never more than there are
//!   88 8 ageing: entries of its logs under limits of age, older runs' included
//!   96 8 when the first of them becomes too old, in milliseconds since the Unix epoch   104 8 when the last does
//! then 8 XXH3-64 of all before
//! ```
//!
//! Version 1 had the first 64 bytes of each run, version 2 the first 88. What version 1 did not tell is taken for what it can
//! be at worst: none of the entries dead, and every log such as may not be forgotten. Up to version 2 no log had limits.

use brooklet_wal::checksum;

use crate::terms::Ageing;

const MAGIC: [u8; 8] = *b"BRKMANIF";
const VERSION: u32 = 3;
/// Words of a run, in each version.
const WORDS: [usize; 3] = [8, 11, 14];

/// What the manifest says of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunMeta {
    pub id: u64,
    pub level: u64,
    pub offset: u64,
    pub len: u64,
    pub extent: u64,
    pub footer_sum: u64,
    pub logs: u64,
    pub entries: u64,
    /// Logs that it says are gone.
    pub tombstones: u64,
    /// Logs that it says are there, and holds no entry of.
    pub empties: u64,
    /// Entries that newer runs are known to have made irrelevant.
    pub dead: u64,
    /// Entries of its logs under limits of age, and when the first and the last of them become too old.
    pub ageing: u64,
    pub ages_from: u64,
    pub ages_to: u64,
}

impl RunMeta {
    pub fn words(&self) -> [u64; 14] {
        let Self { id, level, offset, len, extent, footer_sum, logs, entries, .. } = *self;
        let Self { tombstones, empties, dead, ageing, ages_from, ages_to, .. } = *self;
        let counts = [tombstones, empties, dead, ageing, ages_from, ages_to];
        let mut words = [id, level, offset, len, extent, footer_sum, logs, entries, 0, 0, 0, 0, 0, 0];
        words[8..].copy_from_slice(&counts);
        words
    }

    pub fn of_words(words: &[u64; 14]) -> Self {
        let [id, level, offset, len, extent, footer_sum, logs, entries, counts @ ..] = *words;
        let [tombstones, empties, dead, ageing, ages_from, ages_to] = counts;
        let run = Self { id, level, offset, len, extent, footer_sum, logs, entries, ..Self::default() };
        Self { tombstones, empties, dead, ageing, ages_from, ages_to, ..run }
    }

    /// When entries of its logs become too old.
    pub fn ageing(&self) -> Option<Ageing> {
        let Self { ageing: entries, ages_from: from, ages_to: to, .. } = *self;
        (entries > 0).then_some(Ageing { entries, from, to })
    }
}

pub(crate) fn encode(runs: &[RunMeta]) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 + runs.len() * WORDS[2] * 8);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(&(runs.len() as u32).to_le_bytes());
    for word in runs.iter().flat_map(RunMeta::words) {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let sum = checksum(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Reads a manifest whose checksum, as the superblock gives it, is `sum`.
pub(crate) fn decode(bytes: &[u8], sum: u64) -> Result<Vec<RunMeta>, &'static str> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    if bytes.len() < 24 || bytes[..8] != MAGIC {
        return Err("the magic bytes are missing");
    }
    let end = bytes.len() - 8;
    if word(end) != sum || checksum(&bytes[..end]) != sum {
        return Err("the checksum is not the one the superblock names");
    }
    let count = u32::from_le_bytes(bytes[12..16].try_into().expect("four bytes")) as usize;
    let words = (word(8) as u32).checked_sub(1).and_then(|version| WORDS.get(version as usize));
    let Some(&words) = words.filter(|&words| end == 16 + count * words * 8) else {
        return Err("the version or the length is wrong");
    };
    let run = |i: usize| {
        let mut run = [0; 14];
        for (field, value) in run[..words].iter_mut().enumerate() {
            *value = word(16 + (i * words + field) * 8);
        }
        let run = RunMeta::of_words(&run);
        if words == WORDS[0] { RunMeta { empties: run.logs, ..run } } else { run }
    };
    Ok((0..count).map(run).collect())
}

/// The checksum by which the superblock names an encoded manifest.
pub(crate) fn sum_of(encoded: &[u8]) -> u64 {
    u64::from_le_bytes(encoded[encoded.len() - 8..].try_into().expect("eight bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_survives_the_round_trip_and_no_flipped_bit() {
        let run = RunMeta {
            id: 1,
            level: 2,
            offset: 3,
            len: 4,
            extent: 5,
            footer_sum: 6,
            logs: 7,
            entries: 8,
            tombstones: 9,
            empties: 10,
            dead: 11,
            ageing: 12,
            ages_from: 13,
            ages_to: 14,
        };
        let runs = vec![run, RunMeta { id: 15, ..run }];
        let mut bytes = encode(&runs);
        let sum = sum_of(&bytes);
        assert_eq!(decode(&bytes, sum), Ok(runs));
        assert!(decode(&bytes, sum ^ 1).is_err());
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&bytes, sum).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in 0..bytes.len() {
            assert!(decode(&bytes[..cut], sum).is_err());
        }
    }

    #[test]
    fn version_1_is_taken_at_its_worst() {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[1, 0, 0, 0, 1, 0, 0, 0]);
        (1..=8u64).for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        let run = decode(&bytes, sum).unwrap()[0];
        assert_eq!((run.logs, run.entries), (7, 8));
        assert_eq!((run.tombstones, run.empties, run.dead), (0, 7, 0));
    }
}
