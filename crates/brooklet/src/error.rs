//! The errors of all calls. A message states the failure, its place and the remedy. The kind of an
//! error determines the reaction.

use std::fmt;
use std::io;
use std::sync::Arc;

use brooklet_io::Volume;
use brooklet_wal::WalError;

/// The name of a lock's owner if the owner is this process itself.
pub(crate) const HERE: &str = "this process has it open already";

/// An error of the store.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// A key is empty or over 1,024 bytes.
    InvalidKey {
        /// Length in bytes.
        len: usize,
    },
    /// A payload is over the limit that the store was opened with.
    PayloadTooLarge {
        /// Length in bytes.
        len: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// A commit does not fit in one block of the ring.
    CommitTooLarge {
        /// Encoded length in bytes.
        len: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// A commit holds no operation.
    EmptyCommit,
    /// An option is invalid.
    InvalidOptions(String),
    /// A limit of a retention is invalid.
    InvalidRetention(String),
    /// The name or the configuration of a space, or a call on the space, is invalid.
    InvalidSpace(String),
    /// The space does not exist.
    UnknownSpace {
        /// Its name.
        name: String,
    },
    /// A commit would exceed a quota of a space. The commit had no effect.
    QuotaReached {
        /// The space.
        space: String,
        /// The limited quantity: logs, or bytes.
        what: &'static str,
        /// Limit, in logs or bytes.
        limit: u64,
    },
    /// The memory of a space has no room for the commit. The commit had no effect.
    MemoryFull {
        /// The space.
        space: String,
        /// Bytes of memory of the space.
        limit: u64,
    },
    /// A commit has operations on logs of a space that is kept in memory, and on other logs. The
    /// store cannot apply such a commit all or none. The commit had no effect.
    MixedSpaces {
        /// The space that is kept in memory.
        space: String,
    },
    /// The call needs stable media, and the space is kept in memory.
    InMemory {
        /// The space.
        space: String,
    },
    /// The log does not exist, or was deleted.
    UnknownLog {
        /// Key of the log.
        key: KeyText,
    },
    /// A sequence number is outside of the log.
    OutOfRange {
        /// The log.
        key: KeyText,
        /// Number that the call requested.
        asked: u64,
        /// Number of the first entry.
        first: u64,
        /// Number of the last entry plus one.
        next: u64,
    },
    /// A log cannot begin at this number.
    NumberTooLarge {
        /// The log.
        key: KeyText,
        /// Number that the call requested.
        asked: u64,
    },
    /// An expectation did not hold. The commit had no effect.
    Conflict {
        /// The log.
        key: KeyText,
        /// Expected state.
        expected: Expected,
        /// Actual state.
        found: Found,
    },
    /// An import contains a log that the store has. Nothing was imported.
    LogExists {
        /// Key of the log.
        key: KeyText,
        /// Next number of the log in the store.
        next: u64,
    },
    /// The input of an import is invalid. Nothing was imported.
    InvalidImport(String),
    /// The progress function of a long call ended the call. The call had no effect.
    Cancelled {
        /// The call that was ended.
        what: &'static str,
    },
    /// Another process, or another handle of this one, has the store open.
    Locked {
        /// The store.
        name: String,
        /// Holder of the lock, as far as known.
        holder: String,
    },
    /// The place holds something other than a store.
    NotAStore {
        /// The place.
        name: String,
        /// Evidence.
        why: String,
    },
    /// The place of a new store holds something already.
    Exists {
        /// The place.
        name: String,
        /// Remedy.
        advice: &'static str,
    },
    /// The store's ring is on a separate volume, and the call named none.
    RingNeeded {
        /// The store.
        name: String,
    },
    /// Parts of the store were offloaded, and the options set no function that opens them.
    PartsNeeded {
        /// The store.
        name: String,
        /// Number of offloaded parts.
        parts: usize,
    },
    /// The volume that was named for the ring does not hold the ring of this store, or holds it in
    /// another state than when the store was last open for writing.
    WrongRing {
        /// The volume that was named.
        ring: String,
        /// The store.
        store: String,
        /// Evidence and remedy.
        why: String,
    },
    /// A volume is smaller than when the store was created.
    Shrunk {
        /// The volume.
        name: String,
        /// Bytes of the volume that the store uses.
        needed: u64,
        /// Bytes of the volume now.
        size: u64,
    },
    /// The store has another capacity than the requested one.
    OtherCapacity {
        /// The store.
        name: String,
        /// Requested capacity, in bytes.
        asked: u64,
        /// Capacity of the store, in bytes; 0: no limit.
        found: u64,
    },
    /// The place to format holds data that formatting might destroy.
    NotBlank {
        /// The place.
        name: String,
        /// The data that was found, and its place.
        found: String,
    },
    /// A later version wrote the store.
    NewerFormat {
        /// The store.
        name: String,
        /// Format of the store.
        found: u32,
        /// Newest format that this version reads.
        known: u32,
    },
    /// A build with another feature wrote data that this build cannot read. Nothing was changed.
    FeatureNeeded {
        /// The place of the data.
        place: String,
        /// Name of the feature.
        feature: &'static str,
    },
    /// The process that has the store open for writing replaced data that this reader [beside
    /// it](crate::Options::beside_writer) has not read yet.
    Replaced {
        /// Description of the failed read.
        doing: String,
    },
    /// Data does not read back as it was written.
    Damaged {
        /// Zone, run, log or address of the damage.
        place: String,
        /// Description of the damage.
        what: String,
    },
    /// The device, the file system or a limit leaves no room. The call had no effect. Reads still
    /// work.
    Full {
        /// The operation that needed room.
        what: &'static str,
        /// Cause.
        why: String,
    },
    /// [`Store::try_commit`](crate::Store::try_commit) would have to wait: for room, for an earlier
    /// commit to become durable, or for a dump or a move of a space in memory. In a store without
    /// threads, and in a waker, no commit waits for such a dump or move. The call had no effect.
    Busy {
        /// Cause.
        why: String,
    },
    /// The store was opened read-only.
    ReadOnly,
    /// The store was closed.
    Closed,
    /// Another process, of which this one is a fork, opened the store. The call had no effect:
    /// memory and locks of the child are copies from the moment of the fork, and the parent writes
    /// the store.
    Forked,
    /// The call would wait in a waker, on the thread that must continue for the wait to end. The
    /// call had no effect.
    WouldWait,
    /// A write or flush failed earlier. The store acknowledges no more commits; reads still work.
    /// The outcome of an unacknowledged commit is unknown until the store is opened again.
    Stopped {
        /// Description of the failure.
        why: String,
    },
    /// The [mirror](crate::Options::mirror) of the store does not continue with the log that was
    /// found here. The store keeps all of its entries.
    MirrorRefused {
        /// The reason.
        why: String,
    },
    /// The [mirror](crate::Options::mirror) of the store has ended: for example, another host has
    /// taken the store over. The store acknowledges no more commits; reads still work. The outcome
    /// of an unacknowledged commit is unknown until the store is opened again.
    MirrorEnded {
        /// The reason.
        why: String,
    },
    /// The operating system refused an operation.
    Io {
        /// The operation.
        doing: String,
        /// Error of the operating system.
        cause: Arc<io::Error>,
    },
}

/// Prints the message: a `main` that returns an error prints it in this way.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The kind of an [`Error`]: how to react to the error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call is wrong: change it.
    Invalid,
    /// The log, the space or the range does not exist.
    NotFound,
    /// Another commit was first: read the log again and retry.
    Conflict,
    /// The progress function ended the call.
    Cancelled,
    /// The store cannot be opened with these arguments.
    CannotOpen,
    /// Data is damaged: restore it.
    Damaged,
    /// No room on the volume, in the memory of a space or in a quota: free some room and retry.
    Full,
    /// The call would have to wait: retry later. Or a reader beside a writer needs replaced data:
    /// open it again.
    Busy,
    /// The store does not accept writes, or not any more: after a failed write, after a close, in a
    /// store that is open read-only, or in a forked process. Open it again, for writing.
    Stopped,
    /// The operating system refused an operation.
    Io,
}

impl Error {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        use Error::*;
        match self {
            InvalidKey { .. }
            | PayloadTooLarge { .. }
            | NumberTooLarge { .. }
            | CommitTooLarge { .. }
            | EmptyCommit
            | InvalidOptions(_)
            | InvalidRetention(_)
            | InvalidSpace(_)
            | MixedSpaces { .. }
            | InMemory { .. }
            | InvalidImport(_)
            | WouldWait => ErrorKind::Invalid,
            UnknownLog { .. } | UnknownSpace { .. } | OutOfRange { .. } => ErrorKind::NotFound,
            Conflict { .. } | LogExists { .. } => ErrorKind::Conflict,
            Cancelled { .. } => ErrorKind::Cancelled,
            Locked { .. } | NotAStore { .. } | Exists { .. } | NewerFormat { .. } => ErrorKind::CannotOpen,
            RingNeeded { .. }
            | PartsNeeded { .. }
            | WrongRing { .. }
            | Shrunk { .. }
            | MirrorRefused { .. } => ErrorKind::CannotOpen,
            OtherCapacity { .. } | NotBlank { .. } | FeatureNeeded { .. } => ErrorKind::CannotOpen,
            Damaged { .. } => ErrorKind::Damaged,
            Full { .. } | QuotaReached { .. } | MemoryFull { .. } => ErrorKind::Full,
            Busy { .. } | Replaced { .. } => ErrorKind::Busy,
            ReadOnly | Closed | Forked | Stopped { .. } | MirrorEnded { .. } => ErrorKind::Stopped,
            Io { .. } => ErrorKind::Io,
        }
    }

    /// Returns the error for a new store whose place holds something already.
    pub(crate) fn exists(name: String) -> Error {
        Error::Exists { name, advice: "open it, or choose another name" }
    }

    /// Returns the error for a new ring whose place holds something that is not a store.
    pub(crate) fn ring_exists(name: String) -> Error {
        let advice = "if it is the ring of another store, choose another place; if it remains from an interrupted \
                      creation, remove it";
        Error::Exists { name, advice }
    }

    /// Returns the error for a `ring` that is not the ring of this store.
    pub(crate) fn wrong_ring(ring: &str, store: &str, why: String) -> Error {
        let why = format!("{why}; name the ring volume that {store} was created with, if any");
        Error::WrongRing { ring: ring.into(), store: store.into(), why }
    }

    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| match source.get_ref() {
            Some(cause) if cause.is::<ReplacedData>() => Error::Replaced { doing },
            _ => Error::Io { doing, cause: Arc::new(source) },
        }
    }

    pub(crate) fn damaged(place: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Damaged { place: place.into(), what: what.into() }
    }
}

/// The cause of a failed read [beside a writer](crate::Options::beside_writer), which has replaced
/// the data.
#[derive(Debug)]
pub(crate) struct ReplacedData;

/// Returns whether an I/O error means that no room is left. Such a write is refused and does not
/// stop the store.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | FileTooLarge | QuotaExceeded)
}

/// A failure whose message states the operation and the volume.
#[derive(Debug)]
struct Described {
    doing: String,
    cause: io::Error,
}

/// Adds the operation and the volume to a failure: a store may have two volumes, and the system's
/// message names neither.
pub(crate) fn described(doing: &str, volume: &dyn Volume) -> impl FnOnce(io::Error) -> io::Error {
    let doing = format!("{doing} {}", volume.info().name);
    move |cause| io::Error::new(cause.kind(), Described { doing, cause })
}

impl From<WalError> for Error {
    fn from(error: WalError) -> Self {
        match error {
            WalError::TooLarge { len, limit } => Error::CommitTooLarge { len, limit },
            WalError::Full { used, size } => {
                Error::Busy { why: format!("{used} of {size} bytes of the ring are in use") }
            }
            WalError::Busy => Error::Busy { why: "too many blocks wait to be written".into() },
            WalError::Stopped(why) if why.get_ref().is_some_and(|why| why.is::<Described>()) => {
                Error::Stopped { why: why.to_string() }
            }
            WalError::Stopped(why) => Error::Stopped { why: format!("writing the ring failed: {why}") },
            WalError::MirrorEnded { why } => Error::MirrorEnded { why: why.to_string() },
            WalError::Closed => Error::Closed,
            WalError::Forked => Error::Forked,
            WalError::WouldWait => Error::WouldWait,
            WalError::Damaged { seq, position, lsn, what } => {
                Error::damaged(format!("the ring, block {seq} at position {position} (LSN {lsn})"), what)
            }
            WalError::NoCodec { seq, position } => Error::FeatureNeeded {
                place: format!("block {seq} of the ring, at position {position}"),
                feature: "zstd",
            },
            WalError::Io(cause) => Error::Io { doing: "reading the ring".into(), cause },
        }
    }
}

/// A key in messages: printable bytes as they are, other bytes escaped.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyText(pub Vec<u8>);

impl KeyText {
    pub(crate) fn of(key: &[u8]) -> Self {
        Self(key.to_vec())
    }
}

impl fmt::Display for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Debug for KeyText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The state of a log that a commit expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The next entry gets this number.
    Next(u64),
    /// The log does not exist.
    Absent,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Next(next) => write!(f, "have next entry {next}"),
            Expected::Absent => write!(f, "not exist"),
        }
    }
}

/// The state of a log that a commit found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The next entry of the log gets this number.
    Next(u64),
    /// The log does not exist.
    Absent,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Next(next) => write!(f, "its next entry is {next}"),
            Found::Absent => write!(f, "it does not exist"),
        }
    }
}

mod message;
#[cfg(test)]
mod tests;
