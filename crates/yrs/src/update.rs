//! Updates: decoding of bytes that may be anything, and the sets of ids that updates hold.

use std::panic::catch_unwind;

use yrs::encoding::read::{Cursor, Read};
use yrs::updates::decoder::{Decode, DecoderV1};
use yrs::{ID, IdSet, Update};

/// Least number of bytes that a client has in an update: number of blocks, id, clock.
const CLIENT: u64 = 3;

/// Decodes an update in lib0 v1 encoding. Returns the defect if the bytes are anything else, also
/// if bytes follow the update.
pub(crate) fn decode(bytes: &[u8]) -> Result<Update, String> {
    // yrs reserves memory for as many clients as the bytes name.
    let clients: u64 = Cursor::new(bytes).read_var::<u32>().map_err(|error| error.to_string())?.into();
    if clients.saturating_mul(CLIENT) > bytes.len() as u64 {
        return Err(format!("{} bytes cannot hold {clients} clients", bytes.len()));
    }
    // yrs panics at some invalid bytes, for example at a client id of more than 53 bits.
    catch_unwind(|| {
        let mut decoder = DecoderV1::new(Cursor::new(bytes));
        let update = Update::decode(&mut decoder).map_err(|error| error.to_string())?;
        match decoder.read_u8() {
            Ok(_) => Err("bytes follow its end".into()),
            Err(_) => Ok(update),
        }
    })
    .unwrap_or_else(|_| Err("yrs panicked while it decoded the bytes".into()))
}

/// The ids that updates insert and delete.
#[derive(Default)]
pub(crate) struct Ids {
    inserted: IdSet,
    deleted: IdSet,
}

impl Ids {
    /// Adds the ids of an update.
    pub fn add(&mut self, update: &Update) {
        insert(&mut self.inserted, &update.insertions(true));
        insert(&mut self.deleted, update.delete_set());
    }

    /// Returns whether `other` has all of these ids.
    pub fn are_in(&self, other: &Self) -> bool {
        self.inserted.diff(&other.inserted).is_empty() && self.deleted.diff(&other.deleted).is_empty()
    }
}

/// Adds ids to a set, in time that depends on the added ids rather than on the set.
fn insert(set: &mut IdSet, added: &IdSet) {
    for (client, ranges) in added.iter() {
        for range in ranges {
            set.insert(ID::new(*client, range.start), range.end - range.start);
        }
    }
}
