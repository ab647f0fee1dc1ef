//! The errors of this crate.

use std::fmt;
use std::sync::Arc;

use crate::claim::Claim;
use crate::fields::{Defect, VERSION};
use crate::place::{Epoch, StoreId};
use crate::refusal::Refusal;

/// An error of replication.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The bucket cannot be opened.
    #[error(transparent)]
    Archive(#[from] brooklet_archive::Error),
    /// The bucket refused a request. The request may have had its effect.
    #[error("{doing} failed: {cause}")]
    Bucket {
        /// The request.
        doing: String,
        /// The error of the object store.
        cause: brooklet_archive::object_store::Error,
    },
    /// The bucket did not answer in time. The request may have had its effect, and may have it
    /// later.
    #[error("{doing} had no answer for {seconds} seconds")]
    NoAnswer {
        /// The request.
        doing: String,
        /// The time that was waited, in seconds.
        seconds: u64,
    },
    /// The servers of JetStream refused a request, or cannot be reached. The request may have had
    /// its effect.
    #[error("{doing} failed: {why}")]
    Servers {
        /// The request.
        doing: String,
        /// The answer of the servers, or of the library.
        why: String,
    },
    /// A stream of JetStream cannot keep a log.
    #[error("{stream} cannot keep a log: {why}")]
    Stream {
        /// The address of the stream.
        stream: String,
        /// The reason.
        why: String,
    },
    /// An address of JetStream is malformed.
    #[error("{address} is no address of a log: {why}; it looks like nats://HOST:PORT,HOST:PORT/STREAM")]
    Address {
        /// The address, without a password.
        address: String,
        /// The defect.
        why: String,
    },
    /// The bucket lets several creators of one object win, or does not create objects
    /// conditionally. Two owners could write at once.
    #[error(
        "{bucket} cannot keep a log: {why}; use a service whose conditional creates are atomic (docs/replication.md lists \
         known ones)"
    )]
    NotAtomic {
        /// Name of the bucket.
        bucket: String,
        /// The observation.
        why: String,
    },
    /// The bucket refuses to read an object that does not exist, instead of reporting that. So
    /// nobody finds the end of a log.
    #[error(
        "{why}: the object does not exist, and the bucket must say so; on Amazon S3, allow s3:ListBucket on the bucket, too"
    )]
    NoList {
        /// The refused request.
        why: String,
    },
    /// The place in the bucket belongs to another store.
    #[error(
        "{object} is of store {:032x}, and this is store {:032x}: choose another place, or move the file of this store aside",
        found.0,
        store.0
    )]
    OtherStore {
        /// Name of the object.
        object: String,
        /// The store of the object.
        found: StoreId,
        /// The store of the call.
        store: StoreId,
    },
    /// An object is not as it was written.
    #[error("{object} is damaged: {what}; restore the store from a backup")]
    Damaged {
        /// Name of the object.
        object: String,
        /// The defect.
        what: &'static str,
    },
    /// A later version of Brooklet wrote the object.
    #[error("{object} has format {found}; this version reads up to {known}: upgrade Brooklet")]
    NewerFormat {
        /// Name of the object.
        object: String,
        /// Format version of the object.
        found: u32,
        /// The newest format version that this version reads.
        known: u32,
    },
    /// Another host claimed the store at the same moment.
    #[error("{} took the store over at the same moment, as epoch {}: try again only if it is gone", owner(claim), claim.writer.epoch)]
    Outbid {
        /// The claim of the other host.
        claim: Claim,
    },
    /// A later owner has written meanwhile.
    #[error("the owner of epoch {owner} has taken the store over meanwhile: try again only if it is gone")]
    TooLate {
        /// The epoch of that owner.
        owner: Epoch,
    },
    /// Another owner has taken the store over.
    #[error("the owner of epoch {by} has taken the store over: open the store again to take it back")]
    Fenced {
        /// The epoch of that owner.
        by: Epoch,
    },
    /// This owner has left the store to another host.
    #[error("the log was handed over to {to:?}: open the store there, or again here to take it back")]
    HandedOver {
        /// The other host, as the call named it.
        to: String,
    },
    /// The local file has acknowledged entries that another history of the store has replaced. The
    /// file keeps all of its entries: open it without the log to read and export them.
    #[error(
        "the store and its log have diverged behind position {from} (the file ends at {end}): the file keeps its entries; open it read-only and without the log, export what the log lacks, and begin anew from the log"
    )]
    Diverged {
        /// The last common position; 0 if none is known.
        from: u64,
        /// The end of the local file.
        end: u64,
    },
    /// The log has blocks that the local file lacks: another host has owned the store since.
    #[error(
        "the file of the store ends at position {end}, and its log at {log}: another host has owned the store since; begin anew from the log"
    )]
    Behind {
        /// The end of the local file.
        end: u64,
        /// The end of the log.
        log: u64,
    },
    /// The local file ends before the log begins: it is so old that the log was trimmed past it. So
    /// nobody can see whether the log has all of the file.
    #[error(
        "the file of the store ends at position {end}, and its log begins at {begin}: the log does not show any more whether it has all of the file; keep the file, and begin anew from the log"
    )]
    Outdated {
        /// The end of the local file.
        end: u64,
        /// The begin of the log.
        begin: u64,
    },
    /// The store has entries that neither its log nor a recorded backup has.
    #[error(
        "the store has entries that its log lacks, from before the log began, or from an opening without the log: only a new store, or one that has taken no checkpoint yet, can begin a log"
    )]
    NeedsBackup,
    /// The place keeps no log.
    #[error("the place keeps no log of a store: name the place of the log, or open a store with it")]
    NoLog,
    /// A backup has parts that are damaged in the store. The log keeps its blocks, which may be the
    /// only sound copy.
    #[error(
        "backup {number} has {parts} damaged parts, so the log still begins behind an earlier one: `brooklet check` names the damage; begin anew from the log"
    )]
    DamagedBackup {
        /// Number of the backup.
        number: u64,
        /// Number of its damaged parts.
        parts: usize,
    },
    /// The bucket has lost parts of a backup. The log keeps its blocks.
    #[error(
        "backup {number} lacks {objects} of its objects, the first is {first}: a rule of the bucket, or a person, removed them; \
         the log still begins behind an earlier backup; end the rule, and back the store up to an empty place"
    )]
    LostBackup {
        /// Number of the backup.
        number: u64,
        /// Number of the missing objects.
        objects: usize,
        /// Name of the first one.
        first: String,
    },
    /// The map of a cluster cannot be changed so.
    #[error("{0}")]
    Map(Refusal),
    /// The caller ended the shipping.
    #[error("the shipping was given up: open the store again to continue")]
    GivenUp,
    /// The store refused.
    #[error(transparent)]
    Store(brooklet::Error),
    /// The task that makes the requests has ended without a reason: it panicked, or its runtime was
    /// shut down.
    #[error("the task of the log has panicked, or its runtime was shut down: open the store again")]
    TaskEnded,
    /// The shipping has ended for this reason.
    #[error("nothing more is appended to the log: {0}")]
    Ended(Arc<Error>),
    /// The thread that makes the requests cannot start.
    #[error("the thread of the log cannot start: {0}")]
    Thread(std::io::Error),
}

fn owner(claim: &Claim) -> &str {
    if claim.owner.is_empty() { "another host" } else { &claim.owner }
}

impl Error {
    /// Returns whether the same request may succeed later.
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Bucket { .. } | Self::Servers { .. } | Self::NoAnswer { .. })
    }

    /// Returns the error of an object that cannot be decoded.
    pub(crate) fn of(defect: Defect, object: String, store: StoreId) -> Self {
        match defect {
            Defect::Version(found) => Self::NewerFormat { object, found, known: VERSION },
            Defect::OtherStore(found) => Self::OtherStore { object, found, store },
            Defect::Damaged(what) => Self::Damaged { object, what },
        }
    }
}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
