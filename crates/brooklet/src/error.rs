//! Every way a call can fail. A message says what happened, where, and what to do; a kind says how
//! to react.

use std::fmt;
use std::io;
use std::sync::Arc;

use brooklet_io::Volume;
use brooklet_wal::WalError;

/// How the owner of a lock is named that is this very process.
pub(crate) const HERE: &str = "this process has it open already";

/// An error of the store.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A key is empty or over 1,024 bytes.
    #[error("a key of {len} bytes is not allowed: use 1 to {} bytes", crate::limits::MAX_KEY)]
    InvalidKey {
        /// Its length in bytes.
        len: usize,
    },
    /// A payload is over the limit that the store was opened with.
    #[error(
        "a payload of {len} bytes is over the limit of {limit}: split it, or open the store with a larger `max_payload`"
    )]
    PayloadTooLarge {
        /// Its length in bytes.
        len: usize,
        /// The most allowed.
        limit: usize,
    },
    /// A commit does not fit in one block of the ring.
    #[error(
        "a commit of {len} bytes is over the limit of {limit}: split it, or create the store with a larger ring"
    )]
    CommitTooLarge {
        /// Its encoded length in bytes.
        len: usize,
        /// The most allowed.
        limit: usize,
    },
    /// A commit holds no operation.
    #[error("the commit holds no operation: there is nothing to acknowledge")]
    EmptyCommit,
    /// An option makes no sense.
    #[error("{0}")]
    InvalidOptions(String),
    /// A limit of a retention makes no sense.
    #[error("{0}")]
    InvalidRetention(String),
    /// A space, or what is asked of one, makes no sense.
    #[error("{0}")]
    InvalidSpace(String),
    /// There is no such space.
    #[error("there is no space {name}: create it, or list those that there are")]
    UnknownSpace {
        /// Its name.
        name: String,
    },
    /// A commit would take a space beyond a quota. It had no effect.
    #[error(
        "space {space} may have {limit} {what} and no more: trim or delete logs of it, or configure it with a larger quota"
    )]
    QuotaReached {
        /// The space.
        space: String,
        /// What is limited: logs, or bytes.
        what: &'static str,
        /// The most allowed.
        limit: u64,
    },
    /// The logs of a space have all the memory that it was given. Nothing of the commit was done.
    #[error(
        "space {space} has its {limit} bytes of memory full: trim or delete logs of it, give it more, or let it drop the oldest"
    )]
    MemoryFull {
        /// The space.
        space: String,
        /// The bytes that it was given.
        limit: u64,
    },
    /// A commit is on logs of a space that is kept in memory, and on others: it could not be done
    /// whole or not at all. Nothing of it was done.
    #[error(
        "a commit on logs of space {space}, which is kept in memory, and on others: commit to them apart"
    )]
    MixedSpaces {
        /// The space that is kept in memory.
        space: String,
    },
    /// What was asked for needs stable media, and the space is kept in memory.
    #[error("space {space} is kept in memory only: dump it, or configure it with another class")]
    InMemory {
        /// The space.
        space: String,
    },
    /// The log does not exist, or was deleted.
    #[error("there is no log {key}: append to it to create it")]
    UnknownLog {
        /// Its key.
        key: KeyText,
    },
    /// A sequence number lies outside the log.
    #[error(
        "{asked} is outside log {key}, which holds entries {first} to {next} (exclusive): ask for its bounds first"
    )]
    OutOfRange {
        /// The log.
        key: KeyText,
        /// The number asked for.
        asked: u64,
        /// The log's first entry.
        first: u64,
        /// One past its last entry.
        next: u64,
    },
    /// An expectation did not hold; nothing of the commit was done.
    #[error("log {key} was expected to {expected}, but {found}: read it again, then retry the commit")]
    Conflict {
        /// The log.
        key: KeyText,
        /// What was expected.
        expected: Expected,
        /// What was found.
        found: Found,
    },
    /// An import holds a log that the store has. Nothing was imported.
    #[error(
        "log {key} is there already, and goes on at {next}; nothing was imported: skip such logs, or delete them first"
    )]
    LogExists {
        /// Its key.
        key: KeyText,
        /// The next number of the log that is there.
        next: u64,
    },
    /// What is to be imported makes no sense. Nothing was imported.
    #[error("{0}; nothing was imported")]
    InvalidImport(String),
    /// Whoever watched a long call gave it up. It had no effect.
    #[error("{what} was given up, and had no effect")]
    Cancelled {
        /// What was going on.
        what: &'static str,
    },
    /// Another process, or another handle of this one, has the store open.
    #[error("{}", locked(name, holder))]
    Locked {
        /// The store.
        name: String,
        /// Who holds it, as far as known.
        holder: String,
    },
    /// There is something else at that place.
    #[error("{name} is not a Brooklet store: {why}")]
    NotAStore {
        /// The place.
        name: String,
        /// How one can tell.
        why: String,
    },
    /// Creating found something there already.
    #[error("{name} exists already: {advice}")]
    Exists {
        /// The place.
        name: String,
        /// What to do.
        advice: &'static str,
    },
    /// The store's ring lies on a volume of its own, and none was named.
    #[error("the ring of {name} lies on a volume of its own: name that, by `Options::ring_at` or --ring")]
    RingNeeded {
        /// The store.
        name: String,
    },
    /// Some of the store was offloaded, and it was not told where to.
    #[error(
        "{parts} parts of {name} were offloaded: name the archive that keeps them, by `Options::offload_reader` or --archive"
    )]
    PartsNeeded {
        /// The store.
        name: String,
        /// How many parts.
        parts: usize,
    },
    /// The volume that was named for the ring does not hold the ring of this store, or not as it
    /// was when the store was last open for writing.
    #[error("{ring} is not the ring of {store}: {why}")]
    WrongRing {
        /// The volume that was named.
        ring: String,
        /// The store.
        store: String,
        /// How one can tell, and what to do.
        why: String,
    },
    /// A volume has become smaller than it was when the store was made.
    #[error(
        "{name} had {needed} bytes for the store, and now has {size}: give it its size back, and open the store again"
    )]
    Shrunk {
        /// The volume.
        name: String,
        /// Bytes that the store was given.
        needed: u64,
        /// Bytes that are there.
        size: u64,
    },
    /// The store was made with another capacity than is asked for.
    #[error(
        "{name} was made with {}, not with one of {asked}: ask for that, or for none, or copy its logs to a new store",
        capacity(*found)
    )]
    OtherCapacity {
        /// The store.
        name: String,
        /// The capacity that was asked for, in bytes.
        asked: u64,
        /// The capacity that the store has, in bytes; 0: no limit.
        found: u64,
    },
    /// Formatting found something that it might destroy.
    #[error(
        "{name} is not blank: it bears {found}; choose another, or overwrite it by force if nobody needs that"
    )]
    NotBlank {
        /// The place.
        name: String,
        /// What was found, and where.
        found: String,
    },
    /// The store was written by a later version.
    #[error("{name} has format {found}; this version reads up to {known}: upgrade Brooklet")]
    NewerFormat {
        /// The store.
        name: String,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// Bytes do not read back as they were written.
    #[error("damage in {place}: {what}; read what is undamaged, restore the rest from a copy")]
    Damaged {
        /// The zone, run, log or address.
        place: String,
        /// What is wrong.
        what: String,
    },
    /// The device, the file system or a limit leaves no room. The call had no effect; reads go on.
    #[error("no room left for {what}: {why}; free space on the device, or trim and delete logs")]
    Full {
        /// What needed room.
        what: &'static str,
        /// What the system said.
        why: String,
    },
    /// The store was opened read-only.
    #[error("the store is open read-only: open it for writing")]
    ReadOnly,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The store was opened by a process of which this one is a fork. Nothing was done: memory and
    /// locks of the copy are as they were at the fork, and what it would write, the parent writes.
    #[error(
        "the store was opened by another process, of which this one is a fork: open it here, once it is closed there"
    )]
    Forked,
    /// The call would wait, in a waker, on the thread that must go on for the wait to end. Nothing
    /// was done.
    #[error("a waker may not wait for the store: do that in the task that it wakes, or in a callback")]
    WouldWait,
    /// A write or flush failed earlier; nothing is acknowledged any more, reads go on. Whether an
    /// unacknowledged commit took effect is unknown until the store is opened again.
    #[error("the store stopped writing: {why}; mend the device, then open the store again")]
    Stopped {
        /// The failure.
        why: String,
    },
    /// The operating system refused something.
    #[error("{doing} failed: {cause}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        cause: Arc<io::Error>,
    },
}

/// How to react to an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call is wrong: change it.
    Invalid,
    /// The log or range is not there.
    NotFound,
    /// Another commit came first: look again and retry.
    Conflict,
    /// Whoever watched gave it up.
    Cancelled,
    /// The store cannot be opened as asked.
    CannotOpen,
    /// Bytes are damaged: restore.
    Damaged,
    /// No room: free some and retry.
    Full,
    /// The store no longer takes writes: reopen it.
    Stopped,
    /// The operating system refused.
    Io,
}

impl Error {
    /// How to react.
    pub fn kind(&self) -> ErrorKind {
        use Error::*;
        match self {
            InvalidKey { .. }
            | PayloadTooLarge { .. }
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
            OtherCapacity { .. } | NotBlank { .. } => ErrorKind::CannotOpen,
            Damaged { .. } => ErrorKind::Damaged,
            Full { .. } | QuotaReached { .. } | MemoryFull { .. } => ErrorKind::Full,
            ReadOnly | Closed | Forked | Stopped { .. } => ErrorKind::Stopped,
            Io { .. } => ErrorKind::Io,
        }
    }

    /// Where the store is to be, something is.
    pub(crate) fn exists(name: String) -> Error {
        Error::Exists { name, advice: "open it, or choose another name" }
    }

    /// Where the ring of a store is to be, something is, and no store.
    pub(crate) fn ring_exists(name: String) -> Error {
        let advice = "if that is the ring of another store, name another place for this one's; if it is left over \
                      from a creation that was cut short, remove it";
        Error::Exists { name, advice }
    }

    /// `ring` is another ring, or none.
    pub(crate) fn wrong_ring(ring: &str, store: &str, why: String) -> Error {
        let why = format!("{why}; name the volume that {store} was made with, if any");
        Error::WrongRing { ring: ring.into(), store: store.into(), why }
    }

    pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let doing = doing.into();
        move |source| Error::Io { doing, cause: Arc::new(source) }
    }

    pub(crate) fn damaged(place: impl Into<String>, what: impl Into<String>) -> Error {
        Error::Damaged { place: place.into(), what: what.into() }
    }
}

/// A capacity for messages.
fn capacity(bytes: u64) -> String {
    if bytes == 0 {
        "no capacity, to grow as it needs".into()
    } else {
        format!("a capacity of {bytes} bytes")
    }
}

/// Whether an I/O error means that there is no room, which is refused cleanly and never poisons.
pub(crate) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | FileTooLarge | QuotaExceeded)
}

/// Says who has a store open, and what to do about it.
fn locked(name: &str, holder: &str) -> String {
    if holder.starts_with(HERE) {
        return format!("{name} cannot be opened again, {holder}: use that handle, or close it first");
    }
    format!("{name} is open elsewhere ({holder}): close it there, or open it read-only once it is closed")
}

/// A failure that tells already what was done and where.
#[derive(Debug, thiserror::Error)]
#[error("{doing} failed: {cause}")]
struct Described {
    doing: String,
    cause: io::Error,
}

/// Adds to a failure what was done and where: a store may have two volumes, and the system's words
/// name neither.
pub(crate) fn described(doing: &str, volume: &dyn Volume) -> impl FnOnce(io::Error) -> io::Error {
    let doing = format!("{doing} {}", volume.info().name);
    move |cause| io::Error::new(cause.kind(), Described { doing, cause })
}

impl From<WalError> for Error {
    fn from(error: WalError) -> Self {
        match error {
            WalError::TooLarge { len, limit } => Error::CommitTooLarge { len, limit },
            WalError::Full { used, size } => Error::Full {
                what: "the commit in the ring",
                why: format!("{used} of {size} bytes are in use"),
            },
            WalError::Busy => Error::Full { what: "the commit", why: "too much waits to be written".into() },
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
            WalError::Io(cause) => Error::Io { doing: "reading the ring".into(), cause },
        }
    }
}

/// A key for messages: printable bytes as they are, others escaped.
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

/// What a commit expected of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// The next entry to get this number.
    Next(u64),
    /// The log not to exist.
    Absent,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Expected::Next(next) => write!(f, "go on at {next}"),
            Expected::Absent => write!(f, "not exist"),
        }
    }
}

/// What a commit found instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The log goes on at this number.
    Next(u64),
    /// The log does not exist.
    Absent,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Found::Next(next) => write!(f, "it goes on at {next}"),
            Found::Absent => write!(f, "it does not exist"),
        }
    }
}

#[cfg(test)]
mod tests;
