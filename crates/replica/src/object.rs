//! An object of the log: blocks of a store, or a word of an owner.
//!
//! ```text
//! object (little endian), `log/<epoch, 20 digits>/<number, 20 digits>`
//!    0  8  "BRKREPLO"
//!    8  4  version: 1
//!   12  1  kind: 0 blocks, 1 fence, 2 beat, 3 handover
//!   13  3  0
//!   16 16  id of the store
//!   32  8  epoch
//!   40  8  number
//!   48  8  epoch of the writer: of a fence a later one, otherwise the same
//!   56 16  number that was drawn for the claim of the writer
//!   72  8  the blocks' begin in the store's log
//!   80  8  the blocks' end in the store's log
//!   88  8  checksum of the previous object, 0 of the first object of a store, and of a fence
//!   96  8  bytes of payload
//!  104  8  XXH3-64 of the payload
//!  112  8  XXH3-64 of all before: the checksum of the object
//!  120  …  payload
//! ```
//!
//! A *fence* ends its epoch: objects behind it count for nothing. A *beat* shows that an idle owner
//! lives. A *handover* is the last object of an owner that has left the store to another host; its
//! payload names that host.

use std::fmt;
use std::hash::Hash;

use bytes::Bytes;
use twox_hash::XxHash3_64;

use crate::fields::{Defect, Reading, Writing};
use crate::place::{Drawn, Epoch, Place, StoreId, Writer};

const MAGIC: &[u8; 8] = b"BRKREPLO";
/// Bytes before the payload.
pub(crate) const HEAD: usize = 120;

/// The contents of an object. Bytes, except in a check of the protocol, which needs small states.
pub trait Payload: Clone + Eq + Hash + fmt::Debug {
    /// Returns the payload of fences and beats.
    fn empty() -> Self;
    /// Returns the number of bytes.
    fn len(&self) -> u64;
    /// Returns whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Returns the checksum.
    fn sum(&self) -> u64;
}

impl Payload for Bytes {
    fn empty() -> Self {
        Self::new()
    }

    fn len(&self) -> u64 {
        Self::len(self) as u64
    }

    fn sum(&self) -> u64 {
        XxHash3_64::oneshot(self)
    }
}

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Blocks of the store.
    Blocks,
    /// The end of an epoch, by the owner of a later one.
    Fence,
    /// A sign of life of an idle owner.
    Beat,
    /// The last object of an owner that left the store to the host in the payload.
    Handover,
}

/// An object of the log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object<P> {
    /// Its place.
    pub place: Place,
    /// The epoch of the writer.
    pub by: Epoch,
    /// The number drawn for the writer's claim.
    pub drawn: Drawn,
    /// Kind of the object.
    pub kind: Kind,
    /// Begin of the blocks in the store's log.
    pub begin: u64,
    /// End of the blocks in the store's log.
    pub end: u64,
    /// Checksum of the previous object.
    pub previous: u64,
    /// The payload.
    pub payload: P,
}

impl<P: Payload> Object<P> {
    /// Returns the fence that `writer` puts at a place of an earlier epoch.
    pub fn fence(writer: &Writer, place: Place) -> Self {
        let (by, drawn) = (writer.epoch, writer.drawn);
        let payload = P::empty();
        Self { place, by, drawn, kind: Kind::Fence, begin: 0, end: 0, previous: 0, payload }
    }

    /// Returns whether the object is a fence.
    pub fn is_fence(&self) -> bool {
        self.kind == Kind::Fence
    }

    /// Returns the encoded head.
    pub fn head(&self, store: StoreId) -> Vec<u8> {
        Writing::begin(MAGIC, [self.kind as u8, 0, 0, 0], store)
            .place(self.place)
            .number(self.by.0)
            .drawn(self.drawn)
            .number(self.begin)
            .number(self.end)
            .number(self.previous)
            .number(self.payload.len())
            .number(self.payload.sum())
            .end()
    }

    /// Returns the checksum of the object, which the next object repeats.
    pub fn sum(&self, store: StoreId) -> u64 {
        let head = self.head(store);
        u64::from_le_bytes(*head.last_chunk().expect("a head ends with its checksum"))
    }
}

impl Object<Bytes> {
    /// Returns the object as bytes.
    pub fn encode(&self, store: StoreId) -> Bytes {
        let mut data = self.head(store);
        data.extend_from_slice(&self.payload);
        data.into()
    }

    /// Reads the object at a place of a store's log.
    ///
    /// # Errors
    /// A [`Defect`] if the bytes are not whole, or not of this place.
    pub fn decode(store: StoreId, place: Place, data: &Bytes) -> Result<Self, Defect> {
        // A later version may have a longer head. Its version is told first.
        let head = data.get(..HEAD).unwrap_or(data);
        let (mut fields, small) = Reading::begin(head, MAGIC, store)?;
        let kind = match small {
            [0, 0, 0, 0] => Kind::Blocks,
            [1, 0, 0, 0] => Kind::Fence,
            [2, 0, 0, 0] => Kind::Beat,
            [3, 0, 0, 0] => Kind::Handover,
            _ => return Err("its kind is unknown".into()),
        };
        if fields.place()? != place {
            return Err("it is the object of another place".into());
        }
        let (by, drawn) = (Epoch(fields.number()?), fields.drawn()?);
        if (by > place.epoch) != (kind == Kind::Fence) || by < place.epoch {
            return Err("its writer is not an owner of its epoch".into());
        }
        let (begin, end, previous) = (fields.number()?, fields.number()?, fields.number()?);
        if begin > end {
            return Err("it ends before it begins".into());
        }
        let (len, sum) = (fields.number()?, fields.number()?);
        fields.end()?;
        let payload = data.slice(HEAD..);
        if Payload::len(&payload) != len || payload.sum() != sum {
            return Err("the checksum of its payload does not match".into());
        }
        Ok(Self { place, by, drawn, kind, begin, end, previous, payload })
    }
}
