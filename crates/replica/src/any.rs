//! A journal of either kind, by its address.

use std::fmt;
use std::time::Duration;

use brooklet_archive::Bucket;
use bytes::Bytes;

use crate::bucket::BucketJournal;
use crate::cutter::Cuts;
use crate::error::Error;
#[cfg(feature = "jetstream")]
use crate::jetstream::JetStream;
use crate::journal::{Created, Journal, Key};

/// The journal that an address names.
#[derive(Clone, Debug)]
pub enum AnyJournal {
    /// A journal in a bucket.
    Bucket(BucketJournal),
    /// A journal in NATS JetStream.
    #[cfg(feature = "jetstream")]
    JetStream(JetStream),
}

/// Calls the journal of each kind.
macro_rules! each {
    ($journal:expr, $it:ident => $call:expr) => {
        match $journal {
            AnyJournal::Bucket($it) => $call,
            #[cfg(feature = "jetstream")]
            AnyJournal::JetStream($it) => $call,
        }
    };
}

impl AnyJournal {
    /// Opens the journal that an address names: one of [`Bucket::open`], or one of
    /// `JetStream::open`.
    ///
    /// # Errors
    /// [`Error::Archive`]; those of `JetStream::open`.
    pub fn open(address: &str) -> Result<Self, Error> {
        #[cfg(feature = "jetstream")]
        if JetStream::is_address(address) {
            return Ok(Self::JetStream(JetStream::open(address)?));
        }
        Ok(Self::Bucket(BucketJournal::new(&Bucket::open(address)?)))
    }

    /// Returns the cuts that suit the journal.
    pub fn cuts(&self) -> Cuts {
        match self {
            Self::Bucket(_) => Cuts::default(),
            #[cfg(feature = "jetstream")]
            Self::JetStream(_) => JetStream::cuts(),
        }
    }
}

impl Journal for AnyJournal {
    async fn create(&self, key: Key, data: Bytes) -> Result<Created, Error> {
        each!(self, it => it.create(key, data).await)
    }

    async fn read(&self, key: Key) -> Result<Option<Bytes>, Error> {
        each!(self, it => it.read(key).await)
    }

    async fn remove(&self, key: Key) -> Result<(), Error> {
        each!(self, it => it.remove(key).await)
    }

    async fn wait(&self, key: Key, most: Duration) {
        each!(self, it => it.wait(key, most).await)
    }
}

impl fmt::Display for AnyJournal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        each!(self, it => it.fmt(f))
    }
}
