//! The label of a ring with its own volume. The label names the store to which the ring belongs,
//! and the moment of the ring.
//!
//! ```text
//! in COPIES slots (see `slot.rs` of brooklet-wal) of magic "BRKRING\0" and version 1
//!  16  16 identity of the store
//!  32  16 identity of the ring
//!  48   8 ring_size
//!  56   8 created, nanoseconds since the Unix epoch
//!  64   8 epoch that the last opening for writing started
//!  72   8 mark of that opening, as the superblock has it
//! ```
//!
//! `format/superblock.rs` describes the place of the ring after the label. Copies are written one
//! after another, each durable before the next. Of the undamaged copies, the copy with the newest
//! epoch counts. When a store is created, the label is written after the ring and before the first
//! superblock, so a store that opens has a label.
//!
//! Every opening for writing writes a new mark to both volumes. A volume that was restored from an
//! older copy, or used with a copy of the other volume, is therefore refused. Each step is durable
//! before the next:
//!
//! 1. damaged or older copies of the label are replaced by the label that counts;
//! 2. the superblock gets the new mark, and the label's mark as the previous mark;
//! 3. the copies of the label get the new mark;
//! 4. the superblock gets the new mark as the previous mark, too. Only then is anything appended.
//!
//! A label with either mark of the superblock is of its moment. A crash during step 3 leaves an
//! undamaged copy with one of the two marks, even if an earlier opening was interrupted: step 1
//! gives all copies the same mark, and step 2 records it in the superblock.
//!
//! The mark cannot detect a copy of one volume that was taken and restored within one opening. The
//! superblock then names blocks (before its trim point, or known to be acknowledged) whose absence
//! counts as damage. Entries that were acknowledged after the last superblock are lost without a
//! trace if the ring's copy ends before them.

use brooklet_io::{Persist, Volume};
use brooklet_wal::slot::{self, Fields, Slot, SlotContent};

use crate::error::Error;
use crate::format::superblock::{COPIES, RING_OFFSET, Superblock};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    store: u128,
    ring: u128,
    ring_size: u64,
    created: u64,
    epoch: u64,
    mark: u64,
}

/// The label as found on the volume.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    label: Label,
    /// Copies that differ from the label: damaged, or of an older opening.
    pub stale: Vec<usize>,
}

impl Found {
    /// Returns the mark of the label.
    pub fn mark(&self) -> u64 {
        self.label.mark
    }

    /// Rewrites every copy that differs from the label.
    pub fn repair(&self, volume: &dyn Volume) -> std::io::Result<()> {
        slot::write(volume, self.stale.iter().copied(), &self.label, Persist::Durable)
    }
}

impl Label {
    /// Returns the label of a store's ring, if the ring has its own volume.
    pub fn of(superblock: &Superblock) -> Option<Self> {
        let Superblock { id, ring, ring_size, created, epoch, mark, .. } = *superblock;
        Some(Self { store: id, ring: ring?, ring_size, created, epoch, mark })
    }

    /// Writes every copy, each durable before the next.
    pub fn write(&self, volume: &dyn Volume) -> std::io::Result<()> {
        slot::write(volume, 0..COPIES, self, Persist::Durable)
    }

    /// Returns whether the other label is of the same ring, at any moment.
    fn is_akin(&self, other: &Self) -> bool {
        let ring = |label: &Self| (label.store, label.ring, label.ring_size, label.created);
        ring(self) == ring(other)
    }

    /// Finds this ring on `volume`, undamaged and of the moment of the store at `store`: with this
    /// label's mark, or with `mark_before`.
    pub fn find(&self, mark_before: u64, volume: &dyn Volume, store: &str) -> Result<Found, Error> {
        let name = volume.info().name;
        let size = volume.size().map_err(Error::io(format!("measuring {name}")))?;
        let wrong = |why| Error::wrong_ring(&name, store, why);
        if size < RING_OFFSET {
            return Err(wrong(format!("it has {size} bytes, too few for a ring")));
        }
        let slots = slot::read_copies::<Self>(volume, COPIES)
            .map_err(Error::io(format!("reading the label of {name}")))?;
        let known = Self::FORMAT;
        let newest =
            slot::choose(&slots).map_err(|found| Error::NewerFormat { name: name.clone(), found, known })?;
        let label = match newest.map(|(_, label)| label) {
            Some(label) if label.is_akin(self) => label,
            Some(label) if label.store != self.store => {
                return Err(wrong(format!("it is the ring of another store, {:032x}", label.store)));
            }
            Some(_) => return Err(wrong("it was created for this store at another time".into())),
            None if slots.iter().any(|slot| matches!(slot, Slot::Damaged(_))) => {
                let what = format!("none of its {COPIES} copies in {name} is undamaged");
                return Err(Error::damaged("the label of the ring", what));
            }
            None => return Err(wrong("it does not start with the label of a ring".into())),
        };
        if label.mark != self.mark && label.mark != mark_before {
            return Err(self.of_another_moment(&label, name, store));
        }
        let needed = RING_OFFSET + self.ring_size;
        if size < needed {
            return Err(Error::Shrunk { name, needed, size });
        }
        let stale = (0..COPIES).filter(|&copy| slots[copy] != Slot::Valid(label)).collect();
        Ok(Found { label, stale })
    }

    fn of_another_moment(&self, found: &Self, ring: String, store: &str) -> Error {
        let why = format!(
            "the ring and the data are of different times (the ring is of opening {}, the data of opening {}): one of them \
             was restored from a copy, or used with a copy of the other; restore both from the same backup",
            found.epoch, self.epoch
        );
        Error::WrongRing { ring, store: store.into(), why }
    }
}

impl SlotContent for Label {
    const MAGIC: [u8; 8] = *b"BRKRING\0";
    const FORMAT: u32 = 1;

    fn rank(&self) -> u64 {
        self.epoch
    }

    fn put(&self, fields: &mut Fields) {
        fields.put_id(16, self.store);
        fields.put_id(32, self.ring);
        fields.put(48, &[self.ring_size, self.created, self.epoch, self.mark]);
    }

    fn take(fields: &Fields, _: u32) -> Result<Self, &'static str> {
        let [ring_size, created, epoch, mark] = [48, 56, 64, 72].map(|at| fields.word(at));
        Ok(Self { store: fields.id(16), ring: fields.id(32), ring_size, created, epoch, mark })
    }
}

#[cfg(test)]
mod tests {
    use brooklet_io::{MemVolume, SECTOR};

    use super::*;

    const LABEL: Label =
        Label { store: 1 << 90, ring: 2 << 90, ring_size: 1 << 20, created: 7, epoch: 9, mark: 3 << 60 };
    /// The label before an opening that marks both volumes.
    const BEFORE: Label = Label { epoch: 7, mark: 5 << 60, ..LABEL };

    #[test]
    fn a_label_survives_the_round_trip() {
        assert_eq!(Label::decode(&LABEL.encode()), Slot::Valid(LABEL));
    }

    fn found(copies: [&[u8]; COPIES], size: u64) -> Result<Vec<usize>, String> {
        let mut image = vec![0; size as usize];
        for (slot, copy) in image.chunks_mut(SECTOR).zip(copies) {
            slot[..copy.len()].copy_from_slice(copy);
        }
        let found = LABEL.find(BEFORE.mark, &MemVolume::from_image(image, 1), "store");
        found.map(|found| found.stale).map_err(|error| error.to_string())
    }

    #[test]
    fn one_whole_copy_is_enough_and_each_way_to_be_wrong_is_told() {
        const SIZE: u64 = RING_OFFSET + LABEL.ring_size;
        let good = LABEL.encode();
        let mut bad = good;
        bad[20] ^= 1;
        assert_eq!(found([&good; COPIES], SIZE), Ok(vec![]));
        assert_eq!(found([&bad, &[], &good], SIZE), Ok(vec![0, 1]));
        let before = BEFORE.encode();
        assert_eq!(found([&before; COPIES], SIZE), Ok(vec![]));
        assert_eq!(found([&good, &before, &before], SIZE), Ok(vec![1, 2]));
        assert_eq!(found([&bad, &before, &before], SIZE), Ok(vec![0]));
        let past = Label { epoch: 6, mark: 1, ..LABEL }.encode();
        let later = Label { epoch: 10, mark: 1, ..LABEL }.encode();
        let branch = Label { mark: 1, ..LABEL }.encode();
        let foreign = Label { store: 5, ..LABEL }.encode();
        let older = Label { ring: 5, ..LABEL }.encode();
        let mut newer = good;
        newer[8] = 9;
        slot::seal(&mut newer);
        for (copies, size, words) in [
            ([&bad[..], &bad, &[]], SIZE, "none of its 3 copies"),
            ([&foreign; COPIES], SIZE, "the ring of another store, 00000000000000000000000000000005"),
            ([&older; COPIES], SIZE, "created for this store at another time"),
            ([&past; COPIES], SIZE, "the ring is of opening 6, the data of opening 9"),
            ([&later, &good, &before], SIZE, "of different times (the ring is of opening 10"),
            ([&branch; COPIES], SIZE, "restore both from the same backup"),
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
