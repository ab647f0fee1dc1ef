//! The protocol, as state machines without clock, thread or I/O.
//!
//! A machine asks by [`Request`]s, and is answered by [`Reply`]s, in any order and any number of
//! times. Time comes as readings of a monotonic clock. So a test plays every order of events, and
//! the check in `tests/it/model.rs` plays all of them for small histories.
//!
//! - [`Takeover`]: claims the next epoch, ends all epochs before it, and finds all of their blocks.
//! - [`Owner`]: appends objects, with several requests in flight, until it is fenced.
//! - [`Recorder`]: records which blocks a backup has, and trims them.
//! - [`Follower`]: reads what an owner appends, and notices an owner that is silent.

pub(crate) mod follower;
pub(crate) mod owner;
pub(crate) mod recorder;
pub(crate) mod takeover;

use crate::claim::Claim;
use crate::object::Object;
use crate::place::{Epoch, Place};
use crate::record::Record;

/// A request of a machine to the journal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request<P> {
    /// Find the newest claim. Claims have all numbers from the first epoch on.
    NewestClaim,
    /// Create a claim, unless one of its epoch exists.
    Claim(Claim),
    /// Read the claim of an epoch.
    ReadClaim(Epoch),
    /// Find the newest record, from this known one on. Records have all numbers from 0 on.
    NewestRecord(Option<u64>),
    /// Create a record, unless one of its number exists.
    Record(Record),
    /// Read the record of a number.
    ReadRecord(u64),
    /// Create an object of the log, unless one exists at its place.
    Create(Object<P>),
    /// Read the object at a place.
    Read(Place),
    /// Remove the object at a place.
    Remove(Place),
}

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply<P> {
    /// The object was created, or removed.
    Done,
    /// The object was not created. One may exist, or the service was busy with another request.
    Exists,
    /// The request failed, or nobody answered in time. It may have had its effect, and may have it
    /// later.
    Unknown,
    /// The claim, if there is one.
    Claim(Option<Claim>),
    /// The record, if there is one.
    Record(Option<Record>),
    /// The object, if there is one.
    Object(Option<Object<P>>),
}
