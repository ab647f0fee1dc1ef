//! The errors of a codex, and their remedies.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The result of a codex operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation failed. The message states the failure, the place and the remedy.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed. A builder writes nothing more after this error: discard its file.
    #[error("codex I/O failed: {0}")]
    Io(io::Error),

    /// The file does not hold the data that was written. Restore it, or read around the damage; a
    /// retry does not help.
    #[error("codex damaged at byte {offset}: {what}; restore the file from a good copy")]
    Damaged {
        /// Offset of the damaged block's first byte in the file.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
    },

    /// A later release wrote the file.
    #[error(
        "codex format version {version} is newer than {}, the newest version that this release reads; use a newer release",
        crate::limits::VERSION
    )]
    Newer {
        /// The format version in the file.
        version: u32,
    },

    /// The file does not end like a codex: it is another kind of file, or was cut short.
    #[error("not a codex: the file does not end in a codex footer; check the path and the length")]
    NotACodex,

    /// The key given to a builder is not greater than the key before. The builder continues without
    /// the entry.
    #[error("key of entry {entry} is not greater than the key before it; add keys in order, each key once")]
    OutOfOrder {
        /// Number of entries that the builder had taken before.
        entry: u64,
    },

    /// A key, a value or the metadata given to a builder exceeds a limit of the format. The builder
    /// continues without it.
    #[error("{what} of {len} bytes is over the limit of {max} bytes; split it")]
    TooLarge {
        /// Kind of the input: the key, the value, or the metadata.
        what: &'static str,
        /// Length of the input, in bytes.
        len: usize,
        /// Limit of the format, in bytes.
        max: usize,
    },

    /// A key was given twice to a builder that refuses duplicates. The builder builds nothing.
    #[error(
        "key \"{}\" was added twice; add each key once, or configure whether the first or the last entry counts",
        .key[..key.len().min(64)].escape_ascii()
    )]
    Duplicate {
        /// The key.
        key: Vec<u8>,
    },

    /// A file with the name of the new file exists. The existing file is unchanged.
    #[error("{} exists already; choose another name, or allow its replacement", .path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },

    /// The caller's function returned `Break`. Nothing is left of the unfinished file.
    #[error("cancelled; nothing was left behind")]
    Cancelled,

    /// A cursor was moved after an earlier error had lost its position. Seek first.
    #[error("the cursor lost its position in an earlier error; seek before the next move")]
    Lost,
}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) fn damaged<T>(offset: u64, what: &'static str) -> Result<T> {
    Err(Error::Damaged { offset, what })
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}

#[cfg(test)]
mod tests;
