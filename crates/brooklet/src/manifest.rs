//! The manifest: which runs there are. Written anew with every change, pointed at by the superblock.
//!
//! ```text
//! 0  8 magic "BRKMANIF"   8  4 version, 1   12  4 number of runs
//! then per run, newest first, 64 bytes, little endian:
//!    0 8 number   8 8 level   16 8 offset on the volume   24 8 length of the codex   32 8 bytes of its extent
//!   40 8 checksum of the codex's footer   48 8 logs   56 8 entries
//! then 8 XXH3-64 of all before
//! ```

use brooklet_wal::checksum;

const MAGIC: [u8; 8] = *b"BRKMANIF";
const RUN: usize = 64;

/// What the manifest says of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunMeta {
    pub id: u64,
    pub level: u64,
    pub offset: u64,
    pub len: u64,
    pub extent: u64,
    pub footer_sum: u64,
    pub logs: u64,
    pub entries: u64,
}

pub(crate) fn encode(runs: &[RunMeta]) -> Vec<u8> {
    let mut out = Vec::with_capacity(24 + runs.len() * RUN);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&1u32.to_le_bytes());
    out.extend_from_slice(&(runs.len() as u32).to_le_bytes());
    for r in runs {
        for word in [r.id, r.level, r.offset, r.len, r.extent, r.footer_sum, r.logs, r.entries] {
            out.extend_from_slice(&word.to_le_bytes());
        }
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
    if word(8) as u32 != 1 || end != 16 + count * RUN {
        return Err("the version or the length is wrong");
    }
    let run = |i: usize| {
        let at = |field: usize| word(16 + i * RUN + 8 * field);
        RunMeta {
            id: at(0),
            level: at(1),
            offset: at(2),
            len: at(3),
            extent: at(4),
            footer_sum: at(5),
            logs: at(6),
            entries: at(7),
        }
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
        let run =
            RunMeta { id: 1, level: 2, offset: 3, len: 4, extent: 5, footer_sum: 6, logs: 7, entries: 8 };
        let runs = vec![run, RunMeta { id: 9, ..run }];
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
}
