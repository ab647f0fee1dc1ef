//! The errors of this crate.

use std::fmt;

/// An error of a call. The call had no effect, unless the store
/// [stopped](brooklet::Error::Stopped).
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] brooklet::Error),
    /// The bytes are not an update of yrs in lib0 v1 encoding. Nothing was written.
    #[error(
        "the bytes are not an update of yrs in lib0 v1 encoding: {why}; push the bytes that `encode_update_v1` or an observer of `observe_update_v1` returns"
    )]
    InvalidUpdate {
        /// Defect of the bytes.
        why: String,
    },
    /// The name of the document is too long for a key of the store.
    #[error("a document name of {len} bytes: use at most {limit} bytes with this prefix")]
    NameTooLong {
        /// Length of the name in bytes.
        len: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// The name of the document and the key of its metadata are too long for a key of the store.
    #[error(
        "a document name and a metadata key of {len} bytes together: use at most {limit} bytes with this prefix"
    )]
    MetaKeyTooLong {
        /// Length of the name and the key together, in bytes.
        len: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// An entry of a document, or of its metadata, is not as this crate writes it, or yrs cannot
    /// apply the entry.
    #[error(
        "entry {seq} of document {document} is damaged: {what}; read the other updates by `updates`, or restore the document from a copy"
    )]
    Damaged {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Number of the entry in its log.
        seq: u64,
        /// Description of the defect.
        what: String,
    },
    /// The merged state lacks parts of the updates: a fault of yrs. The document keeps all of its
    /// updates.
    #[error(
        "the merged state of document {document} lacks parts of its updates, so all updates were kept: go on without a flush of this document, and report the fault"
    )]
    Incomplete {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
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
    pub(crate) fn damaged(name: &[u8], seq: u64, what: impl Into<String>) -> Self {
        Self::Damaged { document: text(name), seq, what: what.into() }
    }

    pub(crate) fn incomplete(name: &[u8]) -> Self {
        Self::Incomplete { document: text(name) }
    }
}

fn text(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}
