//! The errors of a codex, and their remedies.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// The result of a codex operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why an operation failed. The message states the failure, the place and the remedy.
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed. A builder writes nothing more after this error: discard its file.
    Io(io::Error),

    /// The file does not hold the data that was written. Restore it, or read around the damage; a
    /// retry does not help.
    Damaged {
        /// Offset of the damaged block's first byte in the file.
        offset: u64,
        /// Description of the damage.
        what: &'static str,
    },

    /// A later release wrote the file.
    Newer {
        /// The format version in the file.
        version: u32,
    },

    /// The file does not end like a codex: it is another kind of file, or was cut short.
    NotACodex,

    /// The key given to a builder is not greater than the key before. The builder continues without
    /// the entry.
    OutOfOrder {
        /// Number of entries that the builder had taken before.
        entry: u64,
    },

    /// A key, a value or the metadata given to a builder exceeds a limit of the format. The builder
    /// continues without it. Or the filter of the whole file exceeds a limit: the builder then
    /// builds nothing.
    TooLarge {
        /// Kind of the input: the key, the value, the metadata, or the file.
        what: &'static str,
        /// Length of the input, or of the directory of the filter, in bytes.
        len: usize,
        /// Limit of the format, in bytes.
        max: usize,
    },

    /// A key was given twice to a builder that refuses duplicates. The builder builds nothing.
    Duplicate {
        /// The key.
        key: Vec<u8>,
    },

    /// A file with the name of the new file exists. The existing file is unchanged.
    Exists {
        /// The name.
        path: PathBuf,
    },

    /// The caller's function returned `Break`. Nothing is left of the unfinished file.
    Cancelled,

    /// A cursor was moved after an earlier error had lost its position. Seek first.
    Lost,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Error::*;
        match self {
            Io(it) => write!(f, "codex I/O failed: {it}"),
            Damaged { offset, what } => {
                write!(f, "codex damaged at byte {offset}: {what}; restore the file from a good copy")
            }
            Newer { version } => write!(
                f,
                "codex format version {version} is newer than {}, the newest version that this release reads; use a newer release",
                crate::limits::VERSION
            ),
            NotACodex => f.write_str(
                "not a codex: the file does not end in a codex footer; check the path and the length",
            ),
            OutOfOrder { entry } => write!(
                f,
                "key of entry {entry} is not greater than the key before it; add keys in order, each key once"
            ),
            TooLarge { what, len, max } => {
                write!(f, "{what} of {len} bytes is over the limit of {max} bytes; split it")
            }
            Duplicate { key } => write!(
                f,
                "key \"{}\" was added twice; add each key once, or configure whether the first or the last entry counts",
                key[..key.len().min(64)].escape_ascii()
            ),
            Exists { path } => {
                write!(f, "{} exists already; choose another name, or allow its replacement", path.display())
            }
            Cancelled => f.write_str("cancelled; nothing was left behind"),
            Lost => {
                f.write_str("the cursor lost its position in an earlier error; seek before the next move")
            }
        }
    }
}

impl std::error::Error for Error {}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

pub(crate) fn damaged<T>(offset: u64, what: &'static str) -> Result<T> {
    Err(Error::Damaged { offset, what })
}

pub(crate) fn check_len(what: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max { Err(Error::TooLarge { what, len, max }) } else { Ok(()) }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}

#[cfg(test)]
mod tests;
