//! The errors of all calls. A message states the failure, its place and the remedy. A kind says how
//! to react.

use std::fmt;

use crate::refusal::Refusal;

/// An error of a call. The call had no effect, unless the store
/// [stopped](brooklet::Error::Stopped).
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] brooklet::Error),
    /// A name, a request or an option is invalid.
    #[error("{0}")]
    Invalid(String),
    /// The document does not exist, or was deleted.
    #[error("there is no document {document}: create it first")]
    NotFound {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
    },
    /// The document exists already. Nothing was written.
    #[error("document {document} exists already, at version {head}: patch it, or choose another name")]
    Exists {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Version of the document now.
        head: u64,
    },
    /// The document is at another version than the call expected. Nothing was written.
    #[error(
        "document {document} is at version {head}, and version {expected} was expected: fetch the changes since then, and send the patch again"
    )]
    Conflict {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Version that the call expected.
        expected: u64,
        /// Version of the document now.
        head: u64,
    },
    /// The request id belongs to an earlier request with other content. Nothing was written.
    #[error(
        "the request id was used for other content, which made version {version} of document {document}: take a new id for each request"
    )]
    RequestReused {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Version that the first request with this id made.
        version: u64,
    },
    /// A request for several documents happened before, and one of them no longer remembers it, or
    /// was made again since then. Nothing was written.
    #[error(
        "the request happened before: it made version {version} of document {document}; document {forgot} no longer remembers it: get the documents, and do not send the request again"
    )]
    RequestForgotten {
        /// Name of a document that remembers the request, with bytes that are not printable
        /// escaped.
        document: String,
        /// Version that the request made of it.
        version: u64,
        /// Name of a document that does not remember the request.
        forgot: String,
    },
    /// The model refuses a change or a state. Nothing was written.
    #[error("document {document}: {refusal}")]
    Refused {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// The reason.
        refusal: Refusal,
    },
    /// The document has not reached this version yet.
    #[error("document {document} is at version {head}, before version {asked}: ask for an earlier version")]
    NoSuchVersion {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Version that the call asked for.
        asked: u64,
        /// Version of the document now.
        head: u64,
    },
    /// The history of the document begins after this version.
    #[error(
        "the history of document {document} begins at version {oldest}, and version {asked} is older: get the whole document, or keep more history by `Options::history`"
    )]
    HistoryGone {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Version that the call asked for.
        asked: u64,
        /// Oldest version that can be reached.
        oldest: u64,
    },
    /// The model cannot undo these updates.
    #[error(
        "the model {model} cannot undo these updates of document {document}: make a change that leads to the older state"
    )]
    NoUndo {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Name of the model.
        model: String,
    },
    /// A snapshot was written by another model, or by a later version of the model.
    #[error(
        "document {document} is of model {found} version {found_version}, and was opened as {model} version {version}: open it with its own model"
    )]
    OtherModel {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Model of the document.
        found: String,
        /// Version of the model of the document.
        found_version: u32,
        /// Model that it was opened with.
        model: String,
        /// Version of the model that it was opened with.
        version: u32,
    },
    /// The model panicked. The document stays at the state that is in the store. Other documents go
    /// on.
    #[error(
        "the model panicked at document {document}: {what}; correct the model, the document is as it was in the store"
    )]
    ModelPanicked {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Message of the panic.
        what: String,
    },
    /// An entry of a document is not as this crate writes it, or its model cannot apply it.
    #[error("entry {seq} of document {document} is damaged: {what}; restore the document from a copy")]
    Damaged {
        /// Name of the document, with bytes that are not printable escaped.
        document: String,
        /// Number of the entry in its log.
        seq: u64,
        /// Description of the defect.
        what: String,
    },
}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of a call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an [`Error`]: how to react to the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call is wrong: change it.
    Invalid,
    /// The document does not exist.
    NotFound,
    /// The document exists already.
    Exists,
    /// Another patch was first: fetch the changes, and try again.
    Conflict,
    /// The request id was used for other content: take a new one.
    RequestReused,
    /// The request for several documents happened before, and not all of them remember it: get the
    /// documents, and do not send the request again, under no id.
    RequestForgotten,
    /// The model refuses the change; see [`Refusal::kind`].
    Refused,
    /// The version is in the future of the document, or before its history.
    OutOfHistory,
    /// The document is of another model.
    OtherModel,
    /// The model panicked.
    ModelPanicked,
    /// Data is damaged: restore it.
    Damaged,
    /// The store failed; see [`brooklet::Error::kind`].
    Store,
}

impl Error {
    /// Returns the kind of the error.
    ///
    /// ```
    /// use brooklet_documents::{Documents, ErrorKind, Json, Options};
    ///
    /// # fn main() -> Result<(), brooklet_documents::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// let documents = Documents::open(&store, Json::new(), Options::new("docs/"))?;
    /// let error = documents.history("none").map(drop).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Store(_) => ErrorKind::Store,
            Self::Invalid(_) | Self::NoUndo { .. } => ErrorKind::Invalid,
            Self::NotFound { .. } => ErrorKind::NotFound,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Conflict { .. } => ErrorKind::Conflict,
            Self::RequestReused { .. } => ErrorKind::RequestReused,
            Self::RequestForgotten { .. } => ErrorKind::RequestForgotten,
            Self::Refused { .. } => ErrorKind::Refused,
            Self::NoSuchVersion { .. } | Self::HistoryGone { .. } => ErrorKind::OutOfHistory,
            Self::OtherModel { .. } => ErrorKind::OtherModel,
            Self::ModelPanicked { .. } => ErrorKind::ModelPanicked,
            Self::Damaged { .. } => ErrorKind::Damaged,
        }
    }

    /// Returns whether the document cannot be read because it is damaged, in an entry or in the
    /// store: [`restore`](crate::Documents::restore) or [`discard`](crate::Documents::discard) it.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Damaged { .. } => true,
            Self::Store(error) => error.kind() == brooklet::ErrorKind::Damaged,
            _ => false,
        }
    }

    pub(crate) fn not_found(name: &[u8]) -> Self {
        Self::NotFound { document: text(name) }
    }

    pub(crate) fn refused(name: &[u8], refusal: Refusal) -> Self {
        Self::Refused { document: text(name), refusal }
    }

    pub(crate) fn damaged(name: &[u8], seq: u64, what: impl Into<String>) -> Self {
        Self::Damaged { document: text(name), seq, what: what.into() }
    }
}

/// Returns the name of a document for messages.
pub(crate) fn text(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}
