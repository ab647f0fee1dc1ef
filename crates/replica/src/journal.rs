//! The journal: the storage of a log, as far as the protocol knows it.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;

use crate::claim::Claim;
use crate::error::Error;
use crate::map::Map;
use crate::place::{Epoch, Place};
use crate::record::Record;

/// Bytes that a link takes in a second at least, beside what else it takes.
const SLOWEST: u64 = 256 << 10;

/// Returns the time that a request may take for its bytes.
pub(crate) fn time_for(bytes: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1000) / SLOWEST)
}

/// The name of an object of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The claim of an epoch.
    Claim(Epoch),
    /// The record of a number.
    Record(u64),
    /// An object of the log.
    Log(Place),
    /// The map of a number; see [`Map`].
    Map(u64),
    /// An object of a [probe](crate::Probe): a random number, and the number of its race.
    Probe(u128, u32),
}

/// The result of creating an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// The object was created.
    Done,
    /// The object was not created: one exists, or another request for the name was under way.
    /// Services report both alike. The caller must look whose object exists.
    Exists,
}

/// Storage of write-once objects. Of several creations of one name exactly one succeeds, and a read
/// that begins after it returns the object. Nothing more is asked: no lists, no clocks, no locks.
pub trait Journal: Send + Sync + 'static {
    /// Creates an object, unless one of this name exists. After an error the object may exist, and
    /// may be created later.
    fn create(&self, key: Key, data: Bytes) -> impl Future<Output = Result<Created, Error>> + Send;

    /// Reads an object, or returns `None` if it does not exist.
    fn read(&self, key: Key) -> impl Future<Output = Result<Option<Bytes>, Error>> + Send;

    /// Removes an object; a missing object is no error.
    fn remove(&self, key: Key) -> impl Future<Output = Result<(), Error>> + Send;

    /// Waits until an object may exist that was missing, and no longer than `most`. By default
    /// waits as long as that: few services report a new object by themselves.
    fn wait(&self, _key: Key, most: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(most)
    }

    /// Finds the newest object of a series whose numbers have no gaps, by reads of single names.
    /// `name` maps numbers to names; `known` is a number that exists, or the one before the first
    /// possible one. Returns the object and its number, or `None` if there is none after `known`.
    ///
    /// The result was the newest at some moment of the call: the name after it was free then, and
    /// objects of a series are never removed.
    fn newest(
        &self,
        name: impl Fn(u64) -> Key + Send,
        known: u64,
    ) -> impl Future<Output = Result<Option<(u64, Bytes)>, Error>> + Send {
        async move {
            let (mut low, mut found, mut step, mut high) = (known, None, 1, None);
            loop {
                let next = match high {
                    None => low + step,
                    Some(high) if high - low > 1 => low + (high - low) / 2,
                    Some(_) => return Ok(found),
                };
                match self.read(name(next)).await? {
                    Some(data) => {
                        (low, found) = (next, Some((next, data)));
                        step *= 2;
                    }
                    None => high = Some(next),
                }
            }
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(epoch) => f.write_str(&Claim::name(*epoch)),
            Self::Record(number) => f.write_str(&Record::name(*number)),
            Self::Log(place) => place.fmt(f),
            Self::Map(number) => f.write_str(&Map::name(*number)),
            Self::Probe(drawn, number) => write!(f, "probe/{drawn:032x}/{number}"),
        }
    }
}
