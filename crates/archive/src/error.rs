//! Every way a call can fail.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// A moment, in milliseconds since the Unix epoch, as people read it.
pub(crate) fn told(millis: u64) -> impl std::fmt::Display {
    // What is past the year 9999 cannot be told so.
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis.min(253_402_300_799_999)))
}

/// An error of an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be read, or written. Of a view of a backup, that is about the backup's
    /// objects.
    #[error(transparent)]
    Store(#[from] brooklet::Error),
    /// An address leads to no bucket, or what it needs is missing.
    #[error("{address}: {why}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// The bucket refused a request, or did not answer, again and again.
    #[error("{doing} failed: {cause}")]
    Bucket {
        /// What was being done.
        doing: String,
        /// What it said.
        cause: object_store::Error,
    },
    /// Another host, or another copy of the store, writes to this archive.
    #[error(
        "the archive is owned by {owner}, which wrote backup {number}: stop that first and take the archive over, or choose \
         another place"
    )]
    Owned {
        /// Who.
        owner: String,
        /// Its backup.
        number: u64,
    },
    /// The archive is of another store.
    #[error("the archive is of store {archive:032x}, and this is store {store:032x}: choose another place")]
    OtherStore {
        /// The store that the archive is of.
        archive: u128,
        /// The one at hand.
        store: u128,
    },
    /// Commits were not shipped, and cannot be any more: they are in no object behind the last
    /// backup.
    #[error(
        "what was committed after {} is not in the archive yet: {why}; back the store up: no moment between the two will be \
         restored",
        told(*since_ms)
    )]
    Lost {
        /// The last moment that is known, in milliseconds since the Unix epoch, by the store's
        /// clock.
        since_ms: u64,
        /// Why.
        why: brooklet::Lost,
    },
    /// A moment lies where the archive knows nothing of the store: its commits were not shipped, or
    /// not all of them.
    #[error(
        "the archive does not know the store between {} and {}, as commits of that time were not shipped, or some were lost: \
         restore it as of the one moment or before, or as of the other or after",
        told(*from_ms),
        told(*to_ms)
    )]
    Hole {
        /// The last moment before that is known, in milliseconds since the Unix epoch, by the
        /// store's clock.
        from_ms: u64,
        /// The first moment that is known again: that of the next backup.
        to_ms: u64,
    },
    /// An [`Archiver`](crate::Archiver) cannot keep its schedule.
    #[error("the schedule cannot be kept: {0}")]
    Schedule(&'static str),
    /// The bucket tells of no backup, though there are some.
    #[error("the list of backups in {bucket} is out of date: try again later")]
    OutOfDate {
        /// The bucket.
        bucket: String,
    },
    /// There is no such backup.
    #[error("{0}")]
    NoBackup(String),
    /// An object that a backup needs is not there.
    #[error("{object} is missing: what lies in it is lost; other logs, and other backups, may do without it")]
    Missing {
        /// Its name.
        object: String,
    },
    /// An object is not what was written.
    #[error("{object} is damaged: {what}; other logs, and other backups, may do without it")]
    Damaged {
        /// Its name.
        object: String,
        /// What is wrong.
        what: String,
    },
    /// A later version wrote the archive.
    #[error("{object} has format {found}; this version reads up to {known}: upgrade Brooklet")]
    NewerFormat {
        /// The object.
        object: String,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The note that tells whose the archive is cannot be read, or written.
    #[error("{}: {cause}", path.display())]
    Note {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// There can be no cache for what was offloaded.
    #[error("a cache in {}: {cause}", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// Whoever watched gave it up. What was in the archive before is as it was.
    #[error("{what} was given up")]
    Cancelled {
        /// What was going on.
        what: &'static str,
    },
}
