//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;

/// The result of a codex operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an operation failed. The message says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed. A builder writes nothing more after this: discard its file.
    #[error("codex I/O failed: {0}")]
    Io(io::Error),

    /// The file does not hold what was written. Restore it, or read around it; trying again does
    /// not help.
    #[error("codex damaged at byte {offset}: {what}; restore the file from a good copy")]
    Damaged {
        /// Where in the file: the first byte of the block concerned.
        offset: u64,
        /// What was found there.
        what: &'static str,
    },

    /// The file was written by a later release.
    #[error(
        "codex format version {version} is newer than {}, the last one known here; use a newer release",
        crate::limits::VERSION
    )]
    Newer {
        /// The format version in the file.
        version: u32,
    },

    /// The file does not end like a codex: it is something else, or was cut short.
    #[error("not a codex: the file does not end in a codex footer; check the path, and the length given")]
    NotACodex,

    /// A key was given to a builder that is not greater than the one before. The builder goes on
    /// without it.
    #[error("key of entry {entry} is not greater than the key before it; give keys sorted, each once")]
    OutOfOrder {
        /// How many entries the builder had taken before.
        entry: u64,
    },

    /// Something given to a builder is over a limit of the format. The builder goes on without it.
    #[error("{what} of {len} bytes is over the limit of {max}; split it")]
    TooLarge {
        /// Which thing: the key, the value, the metadata.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The most the format takes, in bytes.
        max: usize,
    },

    /// A key was given a second time to a builder that is to refuse that. Nothing is built.
    #[error(
        "key \"{}\" was given twice; give each once, or say that the first or the last counts",
        .key[..key.len().min(64)].escape_ascii()
    )]
    Duplicate {
        /// The key.
        key: Vec<u8>,
    },

    /// There is a file under the name that the new one is to have. It is left as it is.
    #[error("{} is there already; choose another name, or say that it may be replaced", .path.display())]
    Exists {
        /// The name.
        path: PathBuf,
    },

    /// Whoever was told of the progress said that it is to stop. Nothing is left of what was built.
    #[error("cancelled; nothing was left behind")]
    Cancelled,

    /// A cursor was moved from a place that it lost in an earlier error. Seek first.
    #[error("the cursor lost its place in an earlier error; seek before moving on")]
    Lost,
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
