//! The errors of this crate.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

/// Returns a time, given in milliseconds since the Unix epoch, as text for people.
pub(crate) fn told(millis: u64) -> impl fmt::Display {
    // The text cannot show years after 9999.
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(millis.min(253_402_300_799_999)))
}

/// An error of an archive.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store could not be read or written. From a view of a backup: the backup's objects could
    /// not be read.
    #[error(transparent)]
    Store(#[from] brooklet::Error),
    /// An address names no bucket, or a setting that it needs is missing.
    #[error("{address}: {why}")]
    Address {
        /// The address.
        address: String,
        /// The reason, and the remedy.
        why: String,
    },
    /// The bucket refused a request or did not answer, also after retries.
    #[error("{doing} failed: {cause}")]
    Bucket {
        /// The request.
        doing: String,
        /// The error of the object store.
        cause: object_store::Error,
    },
    /// Another host, or another copy of the store, writes to this archive.
    #[error(
        "the archive is owned by {owner}, which wrote backup {number}: stop the owner, then take over the archive, or choose \
         another place"
    )]
    Owned {
        /// Name of the other host.
        owner: String,
        /// Number of its backup.
        number: u64,
    },
    /// The archive belongs to another store.
    #[error("the archive is of store {archive:032x}, and this is store {store:032x}: choose another place")]
    OtherStore {
        /// Id of the archive's store.
        archive: u128,
        /// Id of the store in the call.
        store: u128,
    },
    /// Commits were not shipped, and cannot be shipped any more: no object behind the last backup
    /// has them.
    #[error(
        "commits after {} are not in the archive yet: {why}; back up the store: no moment between this time and the backup \
         can be restored",
        told(*since_ms)
    )]
    Lost {
        /// The last known moment, in milliseconds since the Unix epoch, by the store's clock.
        since_ms: u64,
        /// The reason.
        why: brooklet::Lost,
    },
    /// The archive does not know the store at this moment: not all commits of that time were
    /// shipped.
    #[error(
        "the archive cannot restore the store between {} and {}, because commits of that time were not shipped or were lost: \
         restore it as of the first time or before, or as of the second time or after",
        told(*from_ms),
        told(*to_ms)
    )]
    Hole {
        /// The last known moment before the hole, in milliseconds since the Unix epoch, by the
        /// store's clock.
        from_ms: u64,
        /// The first known moment after the hole, that of the next backup; in milliseconds since
        /// the Unix epoch, by the store's clock.
        to_ms: u64,
    },
    /// An [`Archiver`](crate::Archiver) cannot keep its schedule.
    #[error("the schedule cannot be kept: {0}")]
    Schedule(&'static str),
    /// The thread of an [`Archiver`](crate::Archiver) cannot start, or has panicked.
    #[error("no more backups are taken: {0}")]
    Ended(io::Error),
    /// The bucket's list has no backups, although the archive has had some.
    #[error("the list of backups in {bucket} is out of date: try again later")]
    OutOfDate {
        /// Name of the bucket.
        bucket: String,
    },
    /// The backup does not exist. The text says which one.
    #[error("{0}")]
    NoBackup(String),
    /// An object that a backup needs is missing.
    #[error(
        "{object} is missing, and its data is lost; other logs and other backups may not need this object"
    )]
    Missing {
        /// Name of the object.
        object: String,
    },
    /// An object is not as it was written.
    #[error("{object} is damaged: {what}; other logs and other backups may not need this object")]
    Damaged {
        /// Name of the object.
        object: String,
        /// The defect.
        what: String,
    },
    /// A later version of Brooklet wrote the archive.
    #[error("{object} has format {found}; this version reads up to {known}: upgrade Brooklet")]
    NewerFormat {
        /// Name of the object.
        object: String,
        /// Format version of the object.
        found: u32,
        /// The newest format version that this version reads.
        known: u32,
    },
    /// The note of this host's backups cannot be read or written.
    #[error("{}: {cause}", path.display())]
    Note {
        /// Path of the note.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The cache for offloaded data cannot be created.
    #[error("a cache in {}: {cause}", path.display())]
    Cache {
        /// The directory.
        path: PathBuf,
        /// The error of the system.
        cause: io::Error,
    },
    /// The `progress` callback ended the call. The archive's earlier contents are unchanged.
    #[error("{what} was cancelled")]
    Cancelled {
        /// The call that ended.
        what: &'static str,
    },
}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
