//! What can go wrong.

use crate::limits::{MAX_ID, MAX_NAME, MAX_TAG, MAX_TAGS};

/// An error of a call. It had no effect, unless the store [stopped](brooklet::Error::Stopped).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store fails.
    #[error(transparent)]
    Store(#[from] brooklet::Error),
    /// The name is empty or too long, or has other characters than letters, digits, dots, hyphens
    /// and underscores.
    #[error(
        "\"{0}\" is no name for tagged records: use 1 to {MAX_NAME} letters, digits, dots, hyphens and underscores"
    )]
    InvalidName(String),
    /// An id of so many bytes: empty, or too long.
    #[error("an id of {len} bytes: use 1 to {MAX_ID}")]
    InvalidId {
        /// Its bytes.
        len: usize,
    },
    /// A tag of so many bytes: empty, or too long.
    #[error("a tag of {len} bytes: use 1 to {MAX_TAG}")]
    InvalidTag {
        /// Its bytes.
        len: usize,
    },
    /// More tags on a record than there may be.
    #[error("a record with {0} tags: use {MAX_TAGS} at most, or several records")]
    TooManyTags(usize),
    /// A query that asks for nothing: neither all, nor any, nor a prefix.
    #[error(
        "the query names no tag that a record must bear: name one, by `all`, `any` or `prefix`, or ask for `every` record"
    )]
    EmptyQuery,
    /// What a log holds makes no sense.
    #[error("log {log} does not hold what it should: {what}; restore it from a copy")]
    Damaged {
        /// The log.
        log: String,
        /// What is wrong.
        what: &'static str,
    },
}

/// What a call gives.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn damaged(log: &[u8], what: &'static str) -> Self {
        Self::Damaged { log: log.escape_ascii().to_string(), what }
    }
}
