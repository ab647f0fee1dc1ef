//! The logs of documents, and the format of their entries. This is the only description of both.
//!
//! ```text
//! <prefix>d<name>                  the updates of a document. An entry is one byte and an update of yrs in lib0 v1 encoding:
//!                                  1 the merged state of all entries before a number, which the same commit dropped;
//!                                    behind the state, the commit repeats the updates that are not part of it
//!                                  2 an update
//! <prefix>m<length><name><key>     one value of metadata: the last entry is the value. The length is that of the name,
//!                                  in 2 bytes, big endian
//! <prefix>c<part>                  the next number of this log is the number of clears of the documents of a part; it has an
//!                                  empty entry, or none. The part is '0' and the 32-bit FNV-1a hash of the name, modulo 64
//! ```
//!
//! A name is the rest of its key, so that names may hold any bytes, do not collide, and are listed
//! in their own order. A clear deletes the logs of its document, and is counted. The count of
//! clears keeps a flush from merging what a clear removed. There are 64 counts, so that clears of
//! many documents seldom delay the flush of another.
//!
//! The log of a document begins at the count of clears times 2^24. So the numbers of a name never
//! come again, and two numbers with other bits above the lower 24 may be of two documents. A clear
//! first raises the count to the numbers that its document has used up. Numbers stay below 2^53,
//! which JavaScript can represent, for 2^29 clears of a part. Earlier versions began each log at
//! 0, or at the count times 2^32. So no log begins at another multiple of 2^32: the commit that
//! would make such a log raises the count by one.

use brooklet::{Bytes, Entry, MAX_KEY, MAX_SEQ};
use yrs::Update;

use crate::error::{Error, Result};
use crate::update::decode;

const UPDATES: u8 = b'd';
const META: u8 = b'm';
const CLEARS: u8 = b'c';

/// Number of parts of the documents that have a count of clears each.
const PARTS: u32 = 64;

const STATE: u8 = 1;
const UPDATE: u8 = 2;

/// Bits of a number that count the updates since the document was created. A document of more
/// updates uses numbers of later counts.
const UPDATE_BITS: u32 = 24;

/// The numbers of so many counts lie between two first numbers of an earlier version.
const EARLIER: u64 = 1 << (32 - UPDATE_BITS);

/// More updates than a store can have that reads do not show yet.
const UNSEEN: u64 = 1 << 20;

/// The keys of all logs below a prefix.
#[derive(Clone, Debug)]
pub(crate) struct Keys(Box<[u8]>);

impl Keys {
    pub fn new(prefix: &[u8]) -> Self {
        Self(prefix.into())
    }

    /// Returns the key of the updates of a document.
    pub fn updates(&self, name: &[u8]) -> Result<Vec<u8>> {
        let limit = self.room(1);
        if name.len() > limit {
            return Err(Error::NameTooLong { len: name.len(), limit });
        }
        Ok([&self.0[..], &[UPDATES], name].concat())
    }

    /// Returns the prefix of the keys of the updates of all documents.
    pub fn all_updates(&self) -> Vec<u8> {
        [&self.0[..], &[UPDATES]].concat()
    }

    /// Returns the key of a value of metadata.
    pub fn meta(&self, name: &[u8], key: &[u8]) -> Result<Vec<u8>> {
        let (len, limit) = (name.len() + key.len(), self.room(3));
        if len > limit {
            return Err(Error::MetaKeyTooLong { len, limit });
        }
        let name_len = u16::try_from(name.len()).expect("a key of the store is shorter");
        Ok([&self.0[..], &[META], &name_len.to_be_bytes(), name, key].concat())
    }

    /// Returns the key of the log whose next number is the number of clears, for the part of the
    /// documents that has this name.
    pub fn clears(&self, name: &[u8]) -> Vec<u8> {
        let hash = name
            .iter()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        [&self.0[..], &[CLEARS, b'0' + (hash % PARTS) as u8]].concat()
    }

    /// Returns the bytes that a key has room for besides the prefix and `others` bytes.
    fn room(&self, others: usize) -> usize {
        MAX_KEY.saturating_sub(self.0.len() + others)
    }
}

/// Returns the count of clears with which a document is created after so many clears: an earlier
/// version may have used the first numbers of the others.
pub(crate) fn count_to_begin_with(clears: u64) -> u64 {
    clears + u64::from(clears > 0 && clears.is_multiple_of(EARLIER))
}

/// Returns the number of the first update of a document that is created with this count of clears.
pub(crate) fn first_number(clears: u64) -> u64 {
    clears.min(MAX_SEQ >> UPDATE_BITS) << UPDATE_BITS
}

/// Returns the count of clears whose numbers a document has used up, whose next number is `next`.
pub(crate) fn clears_used_up(next: u64) -> u64 {
    next.saturating_add(UNSEEN) >> UPDATE_BITS
}

/// Returns the first number that the document may have that has an update with the number `seq`.
pub(crate) fn first_of(seq: u64) -> u64 {
    seq >> UPDATE_BITS << UPDATE_BITS
}

/// Returns the entry of an update.
pub(crate) fn update_entry(update: &[u8]) -> Vec<u8> {
    [&[UPDATE], update].concat()
}

/// Returns the entry of a merged state.
pub(crate) fn state_entry(state: &[u8]) -> Vec<u8> {
    [&[STATE], state].concat()
}

/// The bytes of an entry of a document.
pub(crate) enum Payload {
    State(Bytes),
    Update(Bytes),
}

/// Returns the update or the state that an entry of a document holds.
pub(crate) fn payload(name: &[u8], entry: &Entry) -> Result<Payload> {
    match entry.payload.first() {
        Some(&STATE) => Ok(Payload::State(entry.payload.slice(1..))),
        Some(&UPDATE) => Ok(Payload::Update(entry.payload.slice(1..))),
        Some(kind) => Err(Error::damaged(
            name,
            entry.seq,
            format!("its kind is {kind}, which this version does not know"),
        )),
        None => Err(Error::damaged(name, entry.seq, "it is empty")),
    }
}

/// A decoded entry of a document.
pub(crate) struct Decoded {
    pub seq: u64,
    pub is_state: bool,
    pub bytes: Bytes,
    pub update: Update,
}

/// Decodes an entry of a document.
pub(crate) fn decode_entry(name: &[u8], entry: &Entry) -> Result<Decoded> {
    let (is_state, bytes) = match payload(name, entry)? {
        Payload::State(bytes) => (true, bytes),
        Payload::Update(bytes) => (false, bytes),
    };
    let update = decode(&bytes).map_err(|why| Error::damaged(name, entry.seq, why))?;
    Ok(Decoded { seq: entry.seq, is_state, bytes, update })
}
