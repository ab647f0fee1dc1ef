//! A record: a point of the log up to which a durable backup has everything.
//!
//! ```text
//! record (little endian), `records/<number, 20 digits>`
//!    0  8  "BRKLOGRC"
//!    8  4  version: 1
//!   12  4  0
//!   16 16  id of the store
//!   32  8  number of the record; each has the next one, and the first has 0
//!   40 16  number that was drawn for the claim of the writer
//!   56 16  place of the next object behind the point: epoch (8), number (8); the epoch is the writer's
//!   72  8  end of the blocks before the point, in the store's log
//!   80  8  checksum of the last object before the point, or 0
//!   88  8  number of the backup
//!   96 16  place up to which the log was trimmed when the record was made: epoch (8), number (8)
//!  112  4  count of ends, then each: epoch (8), number of its fence (8), by ascending epochs, from the epoch of the
//!          trimmed place to the one before the record's own
//!   then 8 XXH3-64 of all before
//! ```
//!
//! Records are never removed: the newest is found by its number, without a list.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::fields::{Defect, Reading, Writing};
use crate::place::{Drawn, Epoch, Mark, Place, StoreId};

const MAGIC: &[u8; 8] = b"BRKLOGRC";
/// Most ends in a record.
const ENDS: usize = 1 << 20;

/// A point of the log that is covered by a backup.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Record {
    /// Number of the record.
    pub number: u64,
    /// The number drawn for the writer's claim.
    pub drawn: Drawn,
    /// The point. Its epoch is the writer's.
    pub mark: Mark,
    /// Number of the backup that has everything before the point.
    pub backup: u64,
    /// The place up to which the log was trimmed when the record was made.
    pub trimmed: Place,
    /// Numbers of the fences that end the epochs from `trimmed` to the one before the point.
    pub ends: BTreeMap<Epoch, u64>,
}

impl Record {
    /// Returns the name of a record's object.
    pub fn name(number: u64) -> String {
        format!("records/{number:020}")
    }

    /// Returns the record as bytes.
    pub fn encode(&self, store: StoreId) -> Bytes {
        let Mark { place, lsn, chain } = self.mark;
        let fields = Writing::begin(MAGIC, [0; 4], store).number(self.number).drawn(self.drawn).place(place);
        let fields = fields.number(lsn).number(chain).number(self.backup).place(self.trimmed);
        let ends = self.ends.iter().map(|(epoch, number)| Place { epoch: *epoch, number: *number });
        ends.fold(fields.count(self.ends.len()), Writing::place).end().into()
    }

    /// Reads the record of a number.
    ///
    /// # Errors
    /// A [`Defect`] if the bytes are not whole, or not of this store and number.
    pub fn decode(store: StoreId, number: u64, data: &[u8]) -> Result<Self, Defect> {
        let (mut fields, _) = Reading::begin(data, MAGIC, store)?;
        if fields.number()? != number {
            return Err("it is another record".into());
        }
        let drawn = fields.drawn()?;
        let mark = Mark { place: fields.place()?, lsn: fields.number()?, chain: fields.number()? };
        let (backup, trimmed, count) = (fields.number()?, fields.place()?, fields.count()?);
        if trimmed > mark.place || count > ENDS {
            return Err("its places are not in order".into());
        }
        let mut ends = BTreeMap::new();
        for _ in 0..count {
            let end = fields.place()?;
            ends.insert(end.epoch, end.number);
        }
        fields.end()?;
        let wanted = trimmed.epoch.0..mark.place.epoch.0;
        if ends.len() != count || !ends.keys().map(|epoch| epoch.0).eq(wanted) {
            return Err("it lacks the end of an epoch".into());
        }
        Ok(Self { number, drawn, mark, backup, trimmed, ends })
    }
}
