//! What can go wrong with a log, each kind telling the caller what to do.

use std::io;

use super::Lsn;
use crate::error::WalError;

/// An error of a [`Log`](crate::Log).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// What the ring says: see [`WalError`].
    #[error(transparent)]
    Wal(#[from] WalError),
    /// Options or a size that no log can have; nothing was done.
    #[error("{what}")]
    Invalid {
        /// What is wrong, and what would be right.
        what: String,
    },
    /// A log was to be created where there is something already; nothing was written.
    #[error(
        "{name} is not blank: open the log that is there, or create with `overwrite` to lose what it holds"
    )]
    NotBlank {
        /// The volume.
        name: String,
    },
    /// The volume holds no log.
    #[error("{name} holds no log: {why}")]
    NotALog {
        /// The volume.
        name: String,
        /// What it holds instead.
        why: String,
    },
    /// The log was written by a newer version. Use that, or a newer one.
    #[error("the log in {name} has format {found}, and this version knows formats up to {known}")]
    NewerFormat {
        /// The volume.
        name: String,
        /// The log's format.
        found: u32,
        /// The newest format this version knows.
        known: u32,
    },
    /// No slot of the label is whole. The records may be; restore the first 64 KiB from a copy.
    #[error("the label of the log in {name} is damaged ({why}): restore the first 64 KiB from a copy")]
    DamagedLabel {
        /// The volume.
        name: String,
        /// What is wrong with each slot.
        why: String,
    },
    /// The volume is smaller than the log on it: it was cut short, or copied in part. Nothing was
    /// written.
    #[error("{name} has {size} bytes, and its log needs {needed}: bring it back to that size")]
    CutShort {
        /// The volume.
        name: String,
        /// Its bytes.
        size: u64,
        /// Bytes the log needs.
        needed: u64,
    },
    /// It is another log than the one that the options name.
    #[error("{name} holds log {found:032x}, not log {expected:032x}: is it the right volume?")]
    Foreign {
        /// The volume.
        name: String,
        /// Identity of the log that is there, or of the blocks in its ring.
        found: u128,
        /// Identity of the log that should be there.
        expected: u128,
    },
    /// No record of the log has come this far; nothing was trimmed or read.
    #[error("LSN {lsn} is past the end of the log, {end}")]
    PastEnd {
        /// The LSN asked for.
        lsn: Lsn,
        /// LSN of the next record.
        end: Lsn,
    },
    /// The records were trimmed, before or while they were read. Go on at `first`.
    #[error("the records from LSN {lsn} on were trimmed: the log starts at LSN {first}")]
    Trimmed {
        /// The LSN to be read next.
        lsn: Lsn,
        /// LSN of the first record that is kept.
        first: Lsn,
    },
    /// The ring cannot be resized before something is trimmed; nothing has changed.
    #[error(
        "a ring of {size} bytes would have {free} bytes for new records, too few for the largest: trim the log, \
         then try again"
    )]
    NoRoom {
        /// The size asked for.
        size: u64,
        /// Bytes it would have for new records.
        free: u64,
    },
    /// Records from before an earlier resize are in the way of another; nothing has changed.
    #[error(
        "records from before the last resize are in the way: trim the log to LSN {until}, then try again"
    )]
    Settling {
        /// LSN of the first record behind the last resize.
        until: Lsn,
    },
}

impl From<io::Error> for LogError {
    fn from(error: io::Error) -> Self {
        LogError::Wal(error.into())
    }
}
