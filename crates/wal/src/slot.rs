//! A slot: 512 bytes that identify their content and show whether they are whole. The metadata of a
//! volume is stored in several slots, at the starts of its first sectors: the superblock of a
//! store, the label of a ring on its own volume, the label of a log.
//!
//! ```text
//! slot, little endian
//!   0   8 magic, which identifies the content of the slot
//!   8   4 format version, from 1 on     12   4 zero
//!  16 488 content, then zeros: see `format/superblock.rs` and `format/ring_label.rs` (brooklet), `log/label.rs`
//! 504   8 XXH3-64 of bytes 0..504
//! ```
//!
//! The rest of the sector is zero. A slot fits in 512 bytes, the unit that a device is least likely
//! to tear. The whole slot with the greatest rank counts, but a slot of a newer format forbids the
//! volume, whatever the other slots hold.

use std::io;

use brooklet_io::seeded::bug;
use brooklet_io::tether::is_gone;
use brooklet_io::{AlignedBuf, Persist, SECTOR, Volume, read_exact_at, read_medium_exact_at, write_all_at};

use crate::format::checksum;
use crate::ring::Cursor;

/// Bytes of a slot.
pub const LEN: usize = 512;
const SUM: usize = LEN - 8;

/// A content that is kept in slots.
pub trait SlotContent: Copy {
    /// First bytes of a slot that holds this content.
    const MAGIC: [u8; 8];
    /// Newest known format version.
    const FORMAT: u32;

    /// Returns the format version in which the content is written.
    fn version(&self) -> u32 {
        Self::FORMAT
    }

    /// Returns the rank; it grows with each content that replaces another.
    fn rank(&self) -> u64;

    /// Writes the content into the bytes 16..504 of a slot.
    fn put(&self, fields: &mut Fields);

    /// Reads the content from a whole slot of a version from 1 to [`FORMAT`](Self::FORMAT);
    /// otherwise returns its flaw.
    fn take(fields: &Fields, version: u32) -> Result<Self, &'static str>;

    /// Returns the slot that holds the content.
    fn encode(&self) -> [u8; LEN] {
        let mut slot = Fields([0; LEN]);
        slot.0[..8].copy_from_slice(&Self::MAGIC);
        slot.0[8..12].copy_from_slice(&self.version().to_le_bytes());
        self.put(&mut slot);
        seal(&mut slot.0);
        slot.0
    }

    /// Returns the content of the slot at the start of `bytes`.
    fn decode(bytes: &[u8]) -> Slot<Self> {
        let Some(bytes) = bytes.first_chunk::<LEN>() else { return Slot::NoMagic };
        if bytes.iter().all(|&byte| byte == 0) {
            return Slot::Blank;
        }
        if bytes[..8] != Self::MAGIC {
            return Slot::NoMagic;
        }
        let fields = Fields(*bytes);
        if checksum(&bytes[..SUM]) != fields.word(SUM) {
            return Slot::Damaged("the checksum does not match");
        }
        match fields.word(8) as u32 {
            0 => Slot::Damaged("the version is invalid"),
            version if version > Self::FORMAT => Slot::Newer(version),
            version => Self::take(&fields, version).map_or_else(Slot::Damaged, Slot::Valid),
        }
    }
}

/// The contents of a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Slot<T> {
    /// The expected content.
    Valid(T),
    /// Zeros.
    Blank,
    /// Unknown bytes.
    NoMagic,
    /// The expected content in a format that only a newer version of this program knows.
    Newer(u32),
    /// The expected content, but damaged.
    Damaged(&'static str),
}

impl<T> Slot<T> {
    /// Returns the flaw of the slot, if any.
    pub fn flaw(&self) -> Option<&'static str> {
        match self {
            Slot::Valid(_) | Slot::Newer(_) => None,
            Slot::Blank | Slot::NoMagic => Some("the magic bytes are missing"),
            Slot::Damaged(why) => Some(why),
        }
    }
}

/// A slot's fields, by their offsets in the slot.
pub struct Fields([u8; LEN]);

impl Fields {
    /// Writes numbers of 8 bytes, one after the other.
    pub fn put(&mut self, at: usize, words: &[u64]) {
        let out = &mut self.0[at..SUM][..8 * words.len()];
        for (out, word) in out.chunks_exact_mut(8).zip(words) {
            out.copy_from_slice(&word.to_le_bytes());
        }
    }

    /// Writes an identity of 16 bytes.
    pub fn put_id(&mut self, at: usize, id: u128) {
        self.put(at, &[id as u64, (id >> 64) as u64]);
    }

    /// Writes a cursor of 32 bytes: position, seq, lsn, chain.
    pub fn put_cursor(&mut self, at: usize, cursor: Cursor) {
        self.put(at, &[cursor.position, cursor.seq, cursor.lsn, cursor.chain]);
    }

    /// Reads a number of 8 bytes.
    pub fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    /// Reads an identity.
    pub fn id(&self, at: usize) -> u128 {
        u128::from(self.word(at)) | u128::from(self.word(at + 8)) << 64
    }

    /// Reads a cursor.
    pub fn cursor(&self, at: usize) -> Cursor {
        let [position, seq, lsn, chain] = [0, 8, 16, 24].map(|field| self.word(at + field));
        Cursor { position, seq, lsn, chain }
    }
}

/// Writes the checksum after the bytes of a slot.
pub fn seal(slot: &mut [u8]) {
    let sum = checksum(&slot[..SUM]);
    slot[SUM..LEN].copy_from_slice(&sum.to_le_bytes());
}

/// Writes `what` into slots of a volume, one durable write after the other.
pub fn write<T: SlotContent>(
    volume: &dyn Volume,
    mut slots: impl Iterator<Item = usize>,
    what: &T,
    persist: Persist,
) -> io::Result<()> {
    let mut buf = AlignedBuf::zeroed(SECTOR);
    buf[..LEN].copy_from_slice(&what.encode());
    slots.try_for_each(|slot| write_all_at(volume, (slot * SECTOR) as u64, &buf, persist))
}

/// Reads the first `count` slots of a volume, from the medium if the volume can do that. Flush the
/// volume before: no program acted on a slot that is in a cache but not on the medium.
///
/// Each slot has its own read: a read that returns earlier bytes must not hide the newest slot.
pub fn read<T: SlotContent>(volume: &dyn Volume, count: usize) -> io::Result<Vec<Slot<T>>> {
    let (slots, failure) = read_each(volume, count);
    failure.map_or(Ok(slots), Err)
}

/// Reads slots like [`read`], if each change writes the same content to all of them. A slot that
/// the device does not read then counts as damaged.
///
/// # Errors
/// The error of the device, if no slot is whole.
pub fn read_copies<T: SlotContent>(volume: &dyn Volume, count: usize) -> io::Result<Vec<Slot<T>>> {
    let (slots, failure) = read_each(volume, count);
    let is_known = slots.iter().any(|slot| matches!(slot, Slot::Valid(_) | Slot::Newer(_)));
    failure.filter(|_| !is_known).map_or(Ok(slots), Err)
}

/// Reads slots, each alone, and returns the first error.
fn read_each<T: SlotContent>(volume: &dyn Volume, count: usize) -> (Vec<Slot<T>>, Option<io::Error>) {
    let mut buf = AlignedBuf::zeroed(count * SECTOR);
    let at_once = if bug("slots-are-read-at-once") { count.max(1) } else { 1 };
    let (mut slots, mut failure) = (Vec::with_capacity(count), None);
    for (piece, at) in buf.chunks_mut(at_once * SECTOR).zip((0..).step_by(at_once * SECTOR)) {
        let is_read = read_medium_exact_at(volume, at, piece);
        let done = if is_read { Ok(()) } else { read_exact_at(volume, at, piece) };
        match done {
            Ok(()) => slots.extend(piece.chunks(SECTOR).map(T::decode)),
            Err(error) => {
                slots.extend(piece.chunks(SECTOR).map(|_| Slot::Damaged("the device does not read it")));
                failure = failure.or_else(|| Some(located(error, volume, at)));
            }
        }
    }
    (slots, failure)
}

/// Adds the place to the error of a read.
fn located(error: io::Error, volume: &dyn Volume, offset: u64) -> io::Error {
    if is_gone(&error) {
        return error;
    }
    let name = volume.info().name;
    io::Error::new(error.kind(), format!("{error} (the sector at offset {offset} of {name})"))
}

/// Returns the newest content, and the number of a slot that holds it; `None` if no slot is whole.
///
/// # Errors
/// The version of a slot with a newer format.
pub fn choose<T: SlotContent>(slots: &[Slot<T>]) -> Result<Option<(usize, T)>, u32> {
    let newer =
        slots.iter().find_map(|slot| if let Slot::Newer(version) = slot { Some(*version) } else { None });
    if let Some(version) = newer {
        return Err(version);
    }
    let valid = slots.iter().enumerate().filter_map(|(at, slot)| match slot {
        Slot::Valid(what) => Some((at, *what)),
        _ => None,
    });
    Ok(valid.max_by_key(|(_, what)| what.rank()))
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Thing {
        id: u128,
        cursor: Cursor,
        rank: u64,
    }

    const CURSOR: Cursor = Cursor { position: 1 << 50, seq: 2 << 50, lsn: 3 << 50, chain: 4 << 50 };
    const THING: Thing = Thing { id: 5 << 70 | 6, cursor: CURSOR, rank: 7 };

    impl SlotContent for Thing {
        const MAGIC: [u8; 8] = *b"A THING.";
        const FORMAT: u32 = 3;

        fn rank(&self) -> u64 {
            self.rank
        }

        fn put(&self, fields: &mut Fields) {
            fields.put_id(16, self.id);
            fields.put_cursor(32, self.cursor);
            fields.put(496, &[self.rank]);
        }

        fn take(fields: &Fields, _: u32) -> Result<Self, &'static str> {
            Ok(Self { id: fields.id(16), cursor: fields.cursor(32), rank: fields.word(496) })
        }
    }

    #[test]
    fn a_slot_survives_the_round_trip_and_no_flipped_bit() {
        let mut bytes = THING.encode();
        assert_eq!(Thing::decode(&bytes), Slot::Valid(THING));
        for bit in 0..LEN * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let expected =
                if bit < 64 { Slot::NoMagic } else { Slot::Damaged("the checksum does not match") };
            assert_eq!(Thing::decode(&bytes), expected, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(Thing::decode(&[0; LEN]), Slot::Blank);
        assert_eq!(Thing::decode(&bytes[..LEN - 1]), Slot::NoMagic);
    }

    /// A slot of zeros but for the magic bytes and the checksum is of no version.
    #[test]
    fn versions_that_are_newer_or_never_were_are_told_apart() {
        let mut bytes = THING.encode();
        for (version, expected) in [
            (0, Slot::Damaged("the version is invalid")),
            (1, Slot::Valid(THING)),
            (3, Slot::Valid(THING)),
            (4, Slot::Newer(4)),
        ] {
            bytes[8] = version;
            seal(&mut bytes);
            assert_eq!(Thing::decode(&bytes), expected);
        }
    }

    #[test]
    fn the_slot_of_the_greatest_rank_counts_unless_one_is_newer() {
        let volume = MemVolume::from_image(vec![9; 3 * SECTOR], 1);
        let read = || read::<Thing>(&volume, 3).unwrap();
        assert_eq!((read(), choose(&read())), (vec![Slot::NoMagic; 3], Ok(None)));
        write(&volume, 0..2, &THING, Persist::Durable).unwrap();
        let next = Thing { rank: 8, ..THING };
        write(&volume, [0].into_iter(), &next, Persist::Durable).unwrap();
        let slots = read();
        assert_eq!(slots, [Slot::Valid(next), Slot::Valid(THING), Slot::NoMagic]);
        assert_eq!(choose(&slots), Ok(Some((0, next))));
        assert!(volume.image()[LEN..SECTOR].iter().all(|&byte| byte == 0), "the rest of the sector is zero");
        assert_eq!(choose(&[&slots[..], &[Slot::Newer(9)]].concat()), Err(9));
    }
}
