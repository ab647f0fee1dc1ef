//! The label of a ring that has a volume of its own: whose ring it is.
//!
//! ```text
//! COPIES slots of one sector, at the start of the volume; slot, little endian
//!   0   8 magic "BRKRING\0"     8   4 format version, 1     12   4 zero
//!  16  16 identity of the store
//!  32  16 identity of the ring
//!  48   8 ring_size
//!  56   8 created, nanoseconds since the Unix epoch
//! 504   8 XXH3-64 of bytes 0..504
//! ```
//!
//! Written once, when the store is made: copy after copy, each durable before the next, after the ring and before the
//! first superblock. So a store that opens has its label whole, and one whole copy is enough. Where the ring lies behind
//! it is told in `superblock.rs`.

use brooklet_io::{AlignedBuf, Persist, SECTOR, Volume, read_exact_at, write_all_at};
use brooklet_wal::checksum;

use crate::error::Error;
use crate::superblock::{COPIES, RING_OFFSET, Superblock};

const FORMAT: u32 = 1;
const MAGIC: [u8; 8] = *b"BRKRING\0";
const SUM: usize = 504;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    store: u128,
    ring: u128,
    ring_size: u64,
    created: u64,
}

/// What a slot holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Slot {
    Valid(Label),
    Newer(u32),
    Damaged,
    Absent,
}

impl Label {
    /// The label of a store's ring, if that has a volume of its own.
    pub fn of(superblock: &Superblock) -> Option<Self> {
        let Superblock { id, ring, ring_size, created, .. } = *superblock;
        Some(Self { store: id, ring: ring?, ring_size, created })
    }

    fn encode(&self) -> [u8; 512] {
        let mut out = [0; 512];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &FORMAT.to_le_bytes());
        put(16, &self.store.to_le_bytes());
        put(32, &self.ring.to_le_bytes());
        put(48, &self.ring_size.to_le_bytes());
        put(56, &self.created.to_le_bytes());
        let sum = checksum(&out[..SUM]);
        out[SUM..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Slot {
        if bytes[..8] != MAGIC {
            return Slot::Absent;
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let long = |at: usize| u128::from_le_bytes(bytes[at..at + 16].try_into().expect("sixteen bytes"));
        if checksum(&bytes[..SUM]) != word(SUM) {
            return Slot::Damaged;
        }
        match word(8) as u32 {
            FORMAT => {}
            0 => return Slot::Damaged,
            version => return Slot::Newer(version),
        }
        Slot::Valid(Label { store: long(16), ring: long(32), ring_size: word(48), created: word(56) })
    }

    /// Writes every copy, each durable before the next.
    pub fn write(&self, volume: &dyn Volume) -> std::io::Result<()> {
        let mut buf = AlignedBuf::zeroed(SECTOR);
        buf[..512].copy_from_slice(&self.encode());
        (0..COPIES).try_for_each(|copy| write_all_at(volume, (copy * SECTOR) as u64, &buf, Persist::Durable))
    }

    /// Makes sure that `volume` holds this ring, whole, of the store at `store`. Gives the copies that are damaged.
    pub fn find(&self, volume: &dyn Volume, store: &str) -> Result<Vec<usize>, Error> {
        let name = volume.info().name;
        let size = volume.size().map_err(Error::io(format!("measuring {name}")))?;
        let wrong = |why: String| Error::WrongRing { ring: name.clone(), store: store.into(), why };
        if size < RING_OFFSET {
            return Err(wrong(format!("it has {size} bytes, too few for a ring")));
        }
        let mut buf = AlignedBuf::zeroed(COPIES * SECTOR);
        read_exact_at(volume, 0, &mut buf).map_err(Error::io(format!("reading the label of {name}")))?;
        let slots: [Slot; COPIES] = std::array::from_fn(|i| Self::decode(&buf[i * SECTOR..][..512]));
        if let Some(found) = slots.iter().find_map(|s| if let Slot::Newer(v) = s { Some(*v) } else { None }) {
            return Err(Error::NewerFormat { name, found, known: FORMAT });
        }
        let valid = slots.iter().find_map(|s| if let Slot::Valid(label) = s { Some(*label) } else { None });
        match valid {
            Some(label) if label == *self => {}
            Some(label) if label.store != self.store => {
                return Err(wrong(format!("it is the ring of another store, {:032x}", label.store)));
            }
            Some(_) => return Err(wrong("it was made for that store at another time".into())),
            None if slots.contains(&Slot::Damaged) => {
                let what = format!("none of its {COPIES} copies in {name} is whole");
                return Err(Error::damaged("the label of the ring", what));
            }
            None => return Err(wrong("it does not start with the label of a ring".into())),
        }
        let needed = RING_OFFSET + self.ring_size;
        if size < needed {
            return Err(Error::Shrunk { name, needed, size });
        }
        Ok((0..COPIES).filter(|&copy| slots[copy] != Slot::Valid(*self)).collect())
    }
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;

    const LABEL: Label = Label { store: 1 << 90, ring: 2 << 90, ring_size: 1 << 20, created: 7 };

    #[test]
    fn a_label_survives_the_round_trip_and_no_flipped_bit() {
        let mut bytes = LABEL.encode();
        assert_eq!(Label::decode(&bytes), Slot::Valid(LABEL));
        for bit in 0..512 * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 64 { Slot::Absent } else { Slot::Damaged };
            assert_eq!(Label::decode(&bytes), expected, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    fn found(copies: [&[u8]; COPIES], size: u64) -> Result<Vec<usize>, String> {
        let mut image = vec![0; size as usize];
        for (slot, copy) in image.chunks_mut(SECTOR).zip(copies) {
            slot[..copy.len()].copy_from_slice(copy);
        }
        LABEL.find(&MemVolume::from_image(image, 1), "store").map_err(|error| error.to_string())
    }

    #[test]
    fn one_whole_copy_is_enough_and_each_way_to_be_wrong_is_told() {
        const SIZE: u64 = RING_OFFSET + LABEL.ring_size;
        let good = LABEL.encode();
        let mut bad = good;
        bad[20] ^= 1;
        assert_eq!(found([&good; COPIES], SIZE), Ok(vec![]));
        assert_eq!(found([&bad, &[], &good], SIZE), Ok(vec![0, 1]));
        let foreign = Label { store: 5, ..LABEL }.encode();
        let older = Label { ring: 5, ..LABEL }.encode();
        let mut newer = good;
        newer[8] = 9;
        let sum = checksum(&newer[..SUM]);
        newer[SUM..].copy_from_slice(&sum.to_le_bytes());
        for (copies, size, words) in [
            ([&bad[..], &bad, &[]], SIZE, "none of its 3 copies"),
            ([&foreign; COPIES], SIZE, "the ring of another store, 00000000000000000000000000000005"),
            ([&older; COPIES], SIZE, "made for that store at another time"),
            ([&newer; COPIES], SIZE, "has format 9"),
            ([&[]; COPIES], SIZE, "does not start with the label"),
            ([&[]; COPIES], RING_OFFSET - 4096, "too few for a ring"),
            ([&good; COPIES], SIZE - 4096, "had 1114112 bytes"),
        ] {
            let error = found(copies, size).unwrap_err();
            assert!(error.contains(words), "{error:?} does not hold {words:?}");
        }
    }
}
