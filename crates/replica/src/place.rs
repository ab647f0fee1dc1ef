//! The names of stores, owners and objects.

use std::fmt;

/// The id of a store; a bucket's place holds the log of one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub u128);

/// The number of a claim. Each opening of a store for writing claims the next epoch; the first
/// epoch is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

/// A random number that an owner draws for its claim. It distinguishes the objects of two processes
/// that believe to have the same epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Drawn(pub u128);

/// The identity of an owner of a store's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer {
    /// The store.
    pub store: StoreId,
    /// The claimed epoch.
    pub epoch: Epoch,
    /// The number drawn for the claim.
    pub drawn: Drawn,
}

/// The place of an object in the log: places are ordered by epoch, then by number.
///
/// ```
/// use brooklet_replica::{Epoch, Place};
/// let place = Place { epoch: Epoch(2), number: 7 };
/// assert!(place < Place { epoch: Epoch(3), number: 0 });
/// assert_eq!(place.to_string(), "log/00000000000000000002/00000000000000000007");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The epoch of the owner whose blocks are there.
    pub epoch: Epoch,
    /// The number within the epoch; each epoch begins with 0.
    pub number: u64,
}

impl Epoch {
    /// The first epoch of a store.
    pub const FIRST: Self = Self(1);

    /// Returns the epoch after this one.
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl Place {
    /// Returns the first place of an epoch.
    pub fn first_of(epoch: Epoch) -> Self {
        Self { epoch, number: 0 }
    }

    /// Returns the place after this one in the same epoch.
    pub fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }
}

/// A point in the log: all objects before `place` are before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mark {
    /// The place of the next object.
    pub place: Place,
    /// End of the blocks before the point, in the store's log.
    pub lsn: u64,
    /// Checksum of the last object before the point; 0 if there is none.
    pub chain: u64,
}

impl Mark {
    /// The beginning of the log.
    pub const BEGIN: Self = Self { place: Place { epoch: Epoch::FIRST, number: 0 }, lsn: 0, chain: 0 };
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Prints the name of the object.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "log/{:020}/{:020}", self.epoch.0, self.number)
    }
}
