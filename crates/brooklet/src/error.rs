//! The errors of all calls. A message states the failure, its place and the remedy. A kind says how
//! to react.

use std::fmt;
use std::io;
use std::sync::Arc;

use brooklet_io::Volume;
use brooklet_wal::WalError;

/// The name of a lock's owner if the owner is this process itself.
pub(crate) const HERE: &str = "this process has it open already";

/// An error of the store.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key is empty or over 1,024 bytes.
    #[error("a key of {len} bytes is not allowed: use 1 to {} bytes", crate::limits::MAX_KEY)]
    InvalidKey {
        /// Length in bytes.
        len: usize,
    },
    /// A payload is over the limit that the store was opened with.
    #[error(
        "a payload of {len} bytes is over the limit of {limit} bytes: split it, or open the store with a larger `max_payload`"
    )]
    PayloadTooLarge {
        /// Length in bytes.
        len: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// A commit does not fit in one block of the ring.
    #[error(
        "a commit of {len} bytes is over the limit of {limit} bytes: split it, or create the store with a larger ring"
    )]
    CommitTooLarge {
        /// Encoded length in bytes.
        len: usize,
        /// Limit in bytes.
        limit: usize,
    },
    /// A commit holds no operation.
    #[error("the commit holds no operation: add at least one")]
    EmptyCommit,
    /// An option is invalid.
    #[error("{0}")]
    InvalidOptions(String),
    /// A limit of a retention is invalid.
    #[error("{0}")]
    InvalidRetention(String),
    /// The name or the configuration of a space, or a call on the space, is invalid.
    #[error("{0}")]
    InvalidSpace(String),
    /// The space does not exist.
    #[error("there is no space {name}: create it, or list the spaces that exist")]
    UnknownSpace {
        /// Its name.
        name: String,
    },
    /// A commit would exceed a quota of a space. The commit had no effect.
    #[error(
        "the commit would exceed the quota of space {space}, {limit} {what}: trim or delete logs of the space, or configure a larger quota"
    )]
    QuotaReached {
        /// The space.
        space: String,
        /// The limited quantity: logs, or bytes.
        what: &'static str,
        /// Limit, in logs or bytes.
        limit: u64,
    },
    /// The memory of a space has no room for the commit. The commit had no effect.
    #[error(
        "the memory of space {space}, {limit} bytes, is full: trim or delete logs of the space, configure more memory, or let the space drop its oldest logs"
    )]
    MemoryFull {
        /// The space.
        space: String,
        /// Bytes of memory of the space.
        limit: u64,
    },
    /// A commit has operations on logs of a space that is kept in memory, and on other logs. The
    /// store cannot apply such a commit all or none. The commit had no effect.
    #[error(
        "the commit has operations on logs of space {space}, which is kept in memory, and on other logs: commit to each space separately"
    )]
    MixedSpaces {
        /// The space that is kept in memory.
        space: String,
    },
    /// The call needs stable media, and the space is kept in memory.
    #[error("space {space} is kept in memory only: dump it, or configure it with another class")]
    InMemory {
        /// The space.
        space: String,
    },
    /// The log does not exist, or was deleted.
    #[error("there is no log {key}: append to it to create it")]
    UnknownLog {
        /// Key of the log.
        key: KeyText,
    },
    /// A sequence number is outside of the log.
    #[error(
        "entry {asked} is outside log {key}, which holds entries {first} to {next} (exclusive): read the bounds of the log first"
    )]
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
    #[error("log {key} cannot begin at entry {asked}: use a number of at most 2^62")]
    NumberTooLarge {
        /// The log.
        key: KeyText,
        /// Number that the call requested.
        asked: u64,
    },
    /// An expectation did not hold. The commit had no effect.
    #[error("log {key} was expected to {expected}, but {found}: read the log again, then retry the commit")]
    Conflict {
        /// The log.
        key: KeyText,
        /// Expected state.
        expected: Expected,
        /// Actual state.
        found: Found,
    },
    /// An import contains a log that the store has. Nothing was imported.
    #[error(
        "log {key} exists already, and its next entry is {next}; nothing was imported: skip existing logs, or delete them first"
    )]
    LogExists {
        /// Key of the log.
        key: KeyText,
        /// Next number of the log in the store.
        next: u64,
    },
    /// The input of an import is invalid. Nothing was imported.
    #[error("{0}; nothing was imported")]
    InvalidImport(String),
    /// The progress function of a long call ended the call. The call had no effect.
    #[error("{what} was cancelled, and had no effect")]
    Cancelled {
        /// The call that was ended.
        what: &'static str,
    },
    /// Another process, or another handle of this one, has the store open.
    #[error("{}", locked(name, holder))]
    Locked {
        /// The store.
        name: String,
        /// Holder of the lock, as far as known.
        holder: String,
    },
    /// The place holds something other than a store.
    #[error("{name} is not a Brooklet store: {why}")]
    NotAStore {
        /// The place.
        name: String,
        /// Evidence.
        why: String,
    },
    /// The place of a new store holds something already.
    #[error("{name} exists already: {advice}")]
    Exists {
        /// The place.
        name: String,
        /// Remedy.
        advice: &'static str,
    },
    /// The store's ring is on a separate volume, and the call named none.
    #[error("the ring of {name} is on a separate volume: name that volume by `Options::ring_at` or --ring")]
    RingNeeded {
        /// The store.
        name: String,
    },
    /// Parts of the store were offloaded, and the options set no function that opens them.
    #[error(
        "{parts} parts of {name} were offloaded: name the archive that keeps these parts, by `Options::offload_reader` or --archive"
    )]
    PartsNeeded {
        /// The store.
        name: String,
        /// Number of offloaded parts.
        parts: usize,
    },
    /// The volume that was named for the ring does not hold the ring of this store, or holds it in
    /// another state than when the store was last open for writing.
    #[error("{ring} is not the ring of {store}: {why}")]
    WrongRing {
        /// The volume that was named.
        ring: String,
        /// The store.
        store: String,
        /// Evidence and remedy.
        why: String,
    },
    /// A volume is smaller than when the store was created.
    #[error(
        "{name} had {needed} bytes for the store, and now has {size} bytes: restore its size, then open the store again"
    )]
    Shrunk {
        /// The volume.
        name: String,
        /// Bytes of the volume that the store was given.
        needed: u64,
        /// Bytes of the volume now.
        size: u64,
    },
    /// The store has another capacity than the requested one.
    #[error(
        "{name} was created with {}, and the options request {asked} bytes: request the store's capacity or none, or copy the logs to a new store",
        capacity(*found)
    )]
    OtherCapacity {
        /// The store.
        name: String,
        /// Requested capacity, in bytes.
        asked: u64,
        /// Capacity of the store, in bytes; 0: no limit.
        found: u64,
    },
    /// The place to format holds data that formatting might destroy.
    #[error(
        "{name} is not blank: it holds {found}; choose another place, or overwrite this one by force if nobody needs its data"
    )]
    NotBlank {
        /// The place.
        name: String,
        /// The data that was found, and its place.
        found: String,
    },
    /// A later version wrote the store.
    #[error("{name} has format {found}; this version reads up to {known}: upgrade Brooklet")]
    NewerFormat {
        /// The store.
        name: String,
        /// Format of the store.
        found: u32,
        /// Newest format that this version reads.
        known: u32,
    },
    /// A build with another feature wrote data that this build cannot read. Nothing was changed.
    #[error(
        "{place} needs the feature `{feature}`, which this build of Brooklet lacks: open the store with a build that has it; after a checkpoint there, this build opens the store"
    )]
    FeatureNeeded {
        /// The place of the data.
        place: String,
        /// Name of the feature.
        feature: &'static str,
    },
    /// The process that has the store open for writing replaced data that this reader [beside
    /// it](crate::Options::beside_writer) has not read yet.
    #[error(
        "{doing} came too late: the process that writes the store has replaced the data; open the store again, and read on"
    )]
    Replaced {
        /// Description of the failed read.
        doing: String,
    },
    /// Data does not read back as it was written.
    #[error("damage in {place}: {what}; read the undamaged data, and restore the rest from a copy")]
    Damaged {
        /// Zone, run, log or address of the damage.
        place: String,
        /// Description of the damage.
        what: String,
    },
    /// The device, the file system or a limit leaves no room. The call had no effect. Reads still
    /// work.
    #[error("no room left for {what}: {why}; free space on the device, or trim and delete logs")]
    Full {
        /// The operation that needed room.
        what: &'static str,
        /// Cause.
        why: String,
    },
    /// [`Store::try_commit`](crate::Store::try_commit) would have to wait: for room, or for an
    /// earlier commit to become durable. The call had no effect.
    #[error("the commit would have to wait: {why}; retry later, or use a call that waits")]
    Busy {
        /// Cause.
        why: String,
    },
    /// The store was opened read-only.
    #[error("the store is open read-only: open it for writing")]
    ReadOnly,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// Another process, of which this one is a fork, opened the store. The call had no effect:
    /// memory and locks of the child are copies from the moment of the fork, and the parent writes
    /// the store.
    #[error(
        "the store was opened by another process, of which this one is a fork: close it there, then open it here"
    )]
    Forked,
    /// The call would wait in a waker, on the thread that must continue for the wait to end. The
    /// call had no effect.
    #[error("a waker must not wait for the store: wait in the task that the waker wakes, or in a callback")]
    WouldWait,
    /// A write or flush failed earlier. The store acknowledges no more commits; reads still work.
    /// The outcome of an unacknowledged commit is unknown until the store is opened again.
    #[error("the store stopped writing: {why}; repair the device, then open the store again")]
    Stopped {
        /// Description of the failure.
        why: String,
    },
    /// The operating system refused an operation.
    #[error("{doing} failed: {cause}")]
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
    /// The log or the range does not exist.
    NotFound,
    /// Another commit was first: read the log again and retry.
    Conflict,
    /// The progress function ended the call.
    Cancelled,
    /// The store cannot be opened with these arguments.
    CannotOpen,
    /// Data is damaged: restore it.
    Damaged,
    /// No room: free some room and retry.
    Full,
    /// The call would have to wait: retry later.
    Busy,
    /// The store does not accept writes any more: reopen it.
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
            RingNeeded { .. } | PartsNeeded { .. } | WrongRing { .. } | Shrunk { .. } => {
                ErrorKind::CannotOpen
            }
            OtherCapacity { .. } | NotBlank { .. } | FeatureNeeded { .. } => ErrorKind::CannotOpen,
            Damaged { .. } => ErrorKind::Damaged,
            Full { .. } | QuotaReached { .. } | MemoryFull { .. } => ErrorKind::Full,
            Busy { .. } | Replaced { .. } => ErrorKind::Busy,
            ReadOnly | Closed | Forked | Stopped { .. } => ErrorKind::Stopped,
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
#[derive(Debug, thiserror::Error)]
#[error("the process that writes the store has replaced the data")]
pub(crate) struct ReplacedData;

/// Returns the text of a capacity in messages.
fn capacity(bytes: u64) -> String {
    if bytes == 0 { "no capacity limit".into() } else { format!("a capacity of {bytes} bytes") }
}

/// Returns whether an I/O error means that no room is left. Such a write is refused and does not
/// stop the store.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | FileTooLarge | QuotaExceeded)
}

/// Returns the message for a locked store: the holder and the remedy.
fn locked(name: &str, holder: &str) -> String {
    if holder.starts_with(HERE) {
        return format!("{name} cannot be opened again, {holder}: use the open handle, or close it first");
    }
    format!("{name} is in use elsewhere ({holder}): end that use, then try again")
}

/// A failure whose message states the operation and the volume.
#[derive(Debug, thiserror::Error)]
#[error("{doing} failed: {cause}")]
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

#[cfg(test)]
mod tests;
