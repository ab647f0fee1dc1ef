//! The superblock and the map of the file: the only place that computes a zone's offset.
//!
//! ```text
//! offset            zone
//!      0            superblock: COPIES slots of one sector; the rest is spare, but for the last sector: a note that
//!                   names who has the store open (text, no promise attached)
//! 64 KiB            ring, `ring_size` bytes
//! 64 KiB + ring     heap, to the end of the volume
//!
//! slot, little endian
//!   0   8 magic "BROOKLET"      8   4 format version, 1     12   4 zero
//!  16  16 identity of the store
//!  32   8 generation: 1 more than the superblock before
//!  40   8 ring_size
//!  48   8 epoch: 1 more at every opening for writing
//!  56  32 trim point of the ring: position, seq, lsn, chain
//!  88   8 acked: every block up to this number is durable
//!  96   8 flags: 1 closed cleanly, `acked` is the last block
//! 104   8 manifest offset      112   8 manifest length      120   8 manifest checksum (all zero: no run)
//! 128   8 next run number
//! 136   8 created, nanoseconds since the Unix epoch
//! 504   8 XXH3-64 of bytes 0..504
//! ```
//!
//! All copies are written at every change, one after another, each durable before the next. So either all hold the
//! newest generation, or the crash came in between and the older one still stands, because nothing it refers to is
//! reused before the last copy is written. A slot fits in 512 bytes, which the device tears last.

use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Persist, SECTOR, Volume, read_exact_at, write_all_at};
use brooklet_wal::{Cursor, checksum};

use crate::error::Error;

/// Newest format this version reads and writes.
pub(crate) const FORMAT: u32 = 1;
/// Copies of the superblock.
pub(crate) const COPIES: usize = 3;
/// Bytes of the superblock zone.
pub(crate) const RING_OFFSET: u64 = 64 << 10;
/// Largest ring, in bytes.
pub(crate) const MAX_RING: u64 = 1 << 40;
/// Where the note of the holder is.
pub(crate) const NOTE_OFFSET: u64 = RING_OFFSET - SECTOR as u64;

const MAGIC: [u8; 8] = *b"BROOKLET";
const SUM: usize = 504;

/// Where a checksummed thing lies on the volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    pub offset: u64,
    pub len: u64,
    pub sum: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superblock {
    pub id: u128,
    pub generation: u64,
    pub ring_size: u64,
    pub epoch: u64,
    pub trim: Cursor,
    pub acked: u64,
    pub clean: bool,
    pub manifest: Place,
    pub next_run: u64,
    pub created: u64,
}

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Valid(Superblock),
    Newer(u32),
    Damaged(&'static str),
}

impl Superblock {
    /// Where the heap starts.
    pub fn heap_offset(&self) -> u64 {
        RING_OFFSET + self.ring_size
    }

    pub fn encode(&self) -> [u8; 512] {
        let mut out = [0; 512];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &FORMAT.to_le_bytes());
        put(16, &self.id.to_le_bytes());
        let trim = self.trim;
        let words = [
            self.generation,
            self.ring_size,
            self.epoch,
            trim.position,
            trim.seq,
            trim.lsn,
            trim.chain,
            self.acked,
            u64::from(self.clean),
            self.manifest.offset,
            self.manifest.len,
            self.manifest.sum,
            self.next_run,
            self.created,
        ];
        for (i, word) in words.iter().enumerate() {
            put(32 + 8 * i, &word.to_le_bytes());
        }
        let sum = checksum(&out[..SUM]);
        out[SUM..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8]) -> Slot {
        if bytes.len() < 512 || bytes[..8] != MAGIC {
            return Slot::Damaged("the magic bytes are missing");
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if checksum(&bytes[..SUM]) != word(SUM) {
            return Slot::Damaged("the checksum does not hold");
        }
        let version = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        match version {
            FORMAT => {}
            version if version > FORMAT => return Slot::Newer(version),
            _ => return Slot::Damaged("the version never was"),
        }
        let trim = Cursor { position: word(56), seq: word(64), lsn: word(72), chain: word(80) };
        Slot::Valid(Superblock {
            id: u128::from_le_bytes(bytes[16..32].try_into().expect("sixteen bytes")),
            generation: word(32),
            ring_size: word(40),
            epoch: word(48),
            trim,
            acked: word(88),
            clean: word(96) & 1 != 0,
            manifest: Place { offset: word(104), len: word(112), sum: word(120) },
            next_run: word(128),
            created: word(136),
        })
    }

    /// Writes every copy, each durable before the next.
    pub fn write(&self, volume: &dyn Volume) -> std::io::Result<()> {
        let mut buf = AlignedBuf::zeroed(SECTOR);
        buf[..512].copy_from_slice(&self.encode());
        for copy in 0..COPIES {
            let persist = if bug("superblock-is-cached") { Persist::Cached } else { Persist::Durable };
            write_all_at(volume, (copy * SECTOR) as u64, &buf, persist)?;
        }
        Ok(())
    }

    /// Reads every slot.
    pub fn read_slots(volume: &dyn Volume) -> std::io::Result<[Slot; COPIES]> {
        let mut buf = AlignedBuf::zeroed(COPIES * SECTOR);
        read_exact_at(volume, 0, &mut buf)?;
        Ok(std::array::from_fn(|i| Self::decode(&buf[i * SECTOR..])))
    }

    /// Picks the newest valid copy.
    pub fn choose(slots: &[Slot], name: &str, size: u64) -> Result<Superblock, Error> {
        let newer = slots.iter().find_map(|s| if let Slot::Newer(v) = s { Some(*v) } else { None });
        if let Some(found) = newer {
            return Err(Error::NewerFormat { name: name.into(), found, known: FORMAT });
        }
        let valid = slots.iter().filter_map(|s| if let Slot::Valid(s) = s { Some(*s) } else { None });
        let newest =
            |s: &Superblock| if bug("oldest-superblock-counts") { !s.generation } else { s.generation };
        let Some(best) = valid.max_by_key(newest) else {
            let blank = slots.iter().all(|s| *s == Slot::Damaged("the magic bytes are missing"));
            return Err(if blank {
                Error::NotAStore { name: name.into(), why: "it does not start with a superblock".into() }
            } else {
                Error::damaged("the superblock", format!("none of its {COPIES} copies in {name} is whole"))
            });
        };
        let min = brooklet_wal::MIN_RING;
        if best.ring_size < min
            || best.ring_size > MAX_RING
            || best.ring_size % SECTOR as u64 != 0
            || best.heap_offset() > size
        {
            return Err(Error::damaged(
                "the superblock",
                format!(
                    "the ring of {} bytes does not fit in the {size} bytes of {name}: it was cut short",
                    best.ring_size
                ),
            ));
        }
        let Superblock { trim, acked, epoch, generation, next_run, .. } = best;
        // Every number below counts something that happened; none can have come near this.
        let sane = [trim.position, trim.seq, trim.lsn, acked, epoch, generation, next_run]
            .iter()
            .all(|n| *n < 1 << 62);
        if !sane || trim.seq == 0 || acked + 1 < trim.seq || trim.position % SECTOR as u64 != 0 {
            return Err(Error::damaged("the superblock", "its numbers make no sense"));
        }
        Ok(best)
    }
}

/// Leaves a note of who has the store open; purely a courtesy to whoever finds it locked.
pub(crate) fn write_note(volume: &dyn Volume, note: &str) -> std::io::Result<()> {
    let mut buf = AlignedBuf::zeroed(SECTOR);
    let len = note.len().min(SECTOR);
    buf[..len].copy_from_slice(&note.as_bytes()[..len]);
    write_all_at(volume, NOTE_OFFSET, &buf, Persist::Cached)
}

/// Reads such a note from the raw bytes of its sector.
pub(crate) fn read_note(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).ok()?;
    (!text.is_empty() && text.chars().all(|c| !c.is_control())).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            id: 77,
            generation: 5,
            ring_size: 1 << 20,
            epoch: 3,
            trim: Cursor { position: 4096, seq: 9, lsn: 100, chain: 8 },
            acked: 12,
            clean: true,
            manifest: Place { offset: 1 << 21, len: 200, sum: 9 },
            next_run: 4,
            created: 1,
        }
    }

    #[test]
    fn a_slot_survives_the_round_trip_and_no_flipped_bit() {
        let mut bytes = sample().encode();
        assert_eq!(Superblock::decode(&bytes), Slot::Valid(sample()));
        for bit in 0..512 * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Superblock::decode(&bytes), Slot::Damaged(_)), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    /// A slot of zeros but for the magic bytes and the checksum was read as a superblock.
    #[test]
    fn a_version_that_never_was_is_damage() {
        let mut bytes = sample().encode();
        for (version, expected) in [(0, Slot::Damaged("the version never was")), (2, Slot::Newer(2))] {
            bytes[8] = version;
            let sum = checksum(&bytes[..SUM]);
            bytes[SUM..].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(Superblock::decode(&bytes), expected);
        }
    }

    #[test]
    fn the_newest_whole_copy_counts_and_a_newer_format_is_named() {
        let old = Superblock { generation: 4, ..sample() };
        let slots = [Slot::Damaged("x"), Slot::Valid(old), Slot::Valid(sample())];
        assert_eq!(Superblock::choose(&slots, "f", 1 << 22).unwrap().generation, 5);
        let slots = [Slot::Newer(9), Slot::Valid(old), Slot::Valid(old)];
        assert!(matches!(Superblock::choose(&slots, "f", 1 << 22), Err(Error::NewerFormat { found: 9, .. })));
        let blank = [const { Slot::Damaged("the magic bytes are missing") }; COPIES];
        assert!(matches!(Superblock::choose(&blank, "f", 1 << 22), Err(Error::NotAStore { .. })));
        assert!(matches!(Superblock::choose(&slots[1..], "f", 1 << 16), Err(Error::Damaged { .. })));
    }
}
