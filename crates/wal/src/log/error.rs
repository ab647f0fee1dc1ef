//! The errors of a log, and their remedies.

use std::fmt;
use std::io;

use super::Lsn;
use crate::error::WalError;

/// An error of a [`Log`](crate::Log).
#[derive(Clone)]
#[non_exhaustive]
pub enum LogError {
    /// An error of the ring: see [`WalError`].
    Wal(WalError),
    /// Options or a size that no log can have; nothing was done.
    Invalid {
        /// Description of the flaw, and the valid values.
        what: String,
    },
    /// The volume for a new log is not blank; nothing was written.
    NotBlank {
        /// Name of the volume.
        name: String,
    },
    /// The volume holds no log.
    NotALog {
        /// Name of the volume.
        name: String,
        /// The reason.
        why: String,
    },
    /// A newer version wrote the log. Use that version, or a newer one.
    NewerFormat {
        /// Name of the volume.
        name: String,
        /// Format of the log.
        found: u32,
        /// Newest format that this version knows.
        known: u32,
    },
    /// No slot of the label is whole. The records may be whole; restore the first 64 KiB from a
    /// copy.
    DamagedLabel {
        /// Name of the volume.
        name: String,
        /// The flaw of each slot.
        why: String,
    },
    /// The volume is smaller than the log on it: it was cut short, or copied in part. Nothing was
    /// written.
    CutShort {
        /// Name of the volume.
        name: String,
        /// Size of the volume, in bytes.
        size: u64,
        /// Size that the log needs, in bytes.
        needed: u64,
    },
    /// The log on the volume is not the one that the options name.
    Foreign {
        /// Name of the volume.
        name: String,
        /// Identity of the log on the volume, or of the blocks in its ring.
        found: u128,
        /// Identity of the expected log.
        expected: u128,
    },
    /// The LSN is past the end of the log; nothing was trimmed or read.
    PastEnd {
        /// The requested LSN.
        lsn: Lsn,
        /// LSN of the next record.
        end: Lsn,
    },
    /// The records were trimmed, before or during the read. Continue at `first`.
    Trimmed {
        /// LSN of the next record to read.
        lsn: Lsn,
        /// LSN of the first kept record.
        first: Lsn,
    },
    /// The ring cannot be resized before a trim; nothing has changed.
    NoRoom {
        /// The requested size, in bytes.
        size: u64,
        /// Bytes that such a ring would have for new records.
        free: u64,
    },
    /// Records from before an earlier resize prevent another; nothing has changed.
    Settling {
        /// LSN of the first record behind the last resize.
        until: Lsn,
    },
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use LogError::*;
        match self {
            Wal(it) => it.fmt(f),
            Invalid { what } => f.write_str(what),
            NotBlank { name } => write!(
                f,
                "{name} is not blank: open the log that it holds, or create with `overwrite` to discard its data"
            ),
            NotALog { name, why } => write!(f, "{name} holds no log: {why}"),
            NewerFormat { name, found, known } => write!(
                f,
                "the log in {name} has format {found}, and this version reads formats up to {known}"
            ),
            DamagedLabel { name, why } => write!(
                f,
                "the label of the log in {name} is damaged ({why}): restore the first 64 KiB from a copy"
            ),
            CutShort { name, size, needed } => {
                write!(f, "{name} has {size} bytes, and its log needs {needed} bytes: restore its size")
            }
            Foreign { name, found, expected } => {
                write!(f, "{name} holds log {found:032x}, not log {expected:032x}: name the right volume")
            }
            PastEnd { lsn, end } => write!(f, "LSN {lsn} is past the end of the log, {end}"),
            Trimmed { lsn, first } => {
                write!(f, "the records from LSN {lsn} on were trimmed: the log starts at LSN {first}")
            }
            NoRoom { size, free } => write!(
                f,
                "a ring of {size} bytes would have {free} bytes for new records, too few for the largest record: trim the log, \
                 then try again"
            ),
            Settling { until } => write!(
                f,
                "records from before the last resize block a new resize: trim the log to LSN {until}, then try again"
            ),
        }
    }
}

impl std::error::Error for LogError {}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<WalError> for LogError {
    fn from(error: WalError) -> Self {
        LogError::Wal(error)
    }
}

impl From<io::Error> for LogError {
    fn from(error: io::Error) -> Self {
        LogError::Wal(error.into())
    }
}
