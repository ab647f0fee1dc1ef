//! The causes of errors, and their form in openraft.

use openraft::{AnyError, ErrorSubject, ErrorVerb, NodeId, StorageError, StorageIOError};

/// The cause of an error of a group. [`StorageError`] carries its message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Cause {
    /// The store refused a call, or failed.
    #[error("Raft group \"{group}\": {error}")]
    Store {
        /// Name of the group.
        group: String,
        /// Error of the store.
        error: brooklet::Error,
    },
    /// Another handle wrote to the group.
    #[error(
        "Raft group \"{group}\": another handle wrote to its logs ({error}); open each group once, and write to its logs through that handle only"
    )]
    OtherWriter {
        /// Name of the group.
        group: String,
        /// Error of the store.
        error: brooklet::Error,
    },
    /// The logs of the group contradict each other, or do not decode.
    #[error(
        "Raft group \"{group}\" is damaged: {what}; restore the store from a copy, or remove the group and add this host to it as a new node"
    )]
    Damaged {
        /// Name of the group.
        group: String,
        /// The defect.
        what: String,
    },
    /// The group was written by a later version of this crate.
    #[error(
        "Raft group \"{group}\": {place} has format {found}, and this version reads format {known}: upgrade brooklet-openraft"
    )]
    NewerFormat {
        /// Name of the group.
        group: String,
        /// Place of the data.
        place: String,
        /// Format of the data.
        found: u8,
        /// Newest format that this version reads.
        known: u8,
    },
    /// The call would break the rules of a Raft log. It had no effect.
    #[error("Raft group \"{group}\": {what}; the call had no effect, and its caller is at fault")]
    Refused {
        /// Name of the group.
        group: String,
        /// Broken rule.
        what: String,
    },
}

impl Cause {
    /// Returns the error of openraft for a cause that occurred at `verb` of `subject`.
    pub fn at<N: NodeId>(self, subject: ErrorSubject<N>, verb: ErrorVerb) -> StorageError<N> {
        StorageIOError::new(subject, verb, AnyError::new(&self)).into()
    }
}
