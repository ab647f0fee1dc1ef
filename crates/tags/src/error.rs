//! The errors of this crate.

use crate::limits::{MAX_ID, MAX_NAME, MAX_TAG, MAX_TAGS};
use std::fmt;

/// An error of a call. The call had no effect, unless the store
/// [stopped](brooklet::Error::Stopped).
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] brooklet::Error),
    /// The name is empty or too long, or has characters other than letters, digits, dots, hyphens
    /// and underscores.
    #[error(
        "\"{0}\" is not a valid name of tagged records: use 1 to {MAX_NAME} letters, digits, dots, hyphens and underscores"
    )]
    InvalidName(String),
    /// The id is empty or too long.
    #[error("an id of {len} bytes: use 1 to {MAX_ID} bytes")]
    InvalidId {
        /// Length of the id in bytes.
        len: usize,
    },
    /// The tag is empty or too long.
    #[error("a tag of {len} bytes: use 1 to {MAX_TAG} bytes")]
    InvalidTag {
        /// Length of the tag in bytes.
        len: usize,
    },
    /// The record has more than [`MAX_TAGS`](crate::MAX_TAGS) tags; the value is their number.
    #[error("a record with {0} tags: use at most {MAX_TAGS} tags, or several records")]
    TooManyTags(usize),
    /// The query names no tag: it has no `all`, `any`, `prefix` or `every`.
    #[error(
        "the query names no tag that a record must have: name one by `all`, `any` or `prefix`, or select `every` record"
    )]
    EmptyQuery,
    /// A log of the tagged records has invalid contents.
    #[error("log {log} is damaged: {what}; restore it from a copy")]
    Damaged {
        /// Key of the log.
        log: String,
        /// The defect.
        what: &'static str,
    },
}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of a call.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn damaged(log: &[u8], what: &'static str) -> Self {
        Self::Damaged { log: log.escape_ascii().to_string(), what }
    }
}
