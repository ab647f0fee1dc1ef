//! The messages of errors: each states the failure, its place and the remedy.

use std::fmt;

use super::{Described, Error, HERE, ReplacedData};

impl fmt::Display for Error {
    #[expect(clippy::too_many_lines, reason = "a message for each error")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Error::*;
        match self {
            InvalidKey { len } => write!(
                f,
                "a key of {len} bytes is not allowed: use 1 to {} bytes",
                crate::limits::MAX_KEY
            ),
            PayloadTooLarge { len, limit } => write!(
                f,
                "a payload of {len} bytes is over the limit of {limit} bytes: split it, or open the store with a larger `max_payload`"
            ),
            CommitTooLarge { len, limit } => write!(
                f,
                "a commit of {len} bytes is over the limit of {limit} bytes: split it, or create the store with a larger ring"
            ),
            EmptyCommit => f.write_str("the commit holds no operation: add at least one"),
            InvalidOptions(it) | InvalidRetention(it) | InvalidSpace(it) => f.write_str(it),
            UnknownSpace { name } => write!(
                f,
                "there is no space {name}: create it, or list the spaces that exist"
            ),
            QuotaReached { space, what, limit } => write!(
                f,
                "the commit would exceed the quota of space {space}, {limit} {what}: trim or delete logs of the space, or configure a larger quota"
            ),
            MemoryFull { space, limit } => write!(
                f,
                "the memory of space {space}, {limit} bytes, is full: trim or delete logs of the space, configure more memory, or let the space drop its oldest logs"
            ),
            MixedSpaces { space } => write!(
                f,
                "the commit has operations on logs of space {space}, which is kept in memory, and on other logs: commit to each space separately"
            ),
            InMemory { space } => write!(
                f,
                "space {space} is kept in memory only: dump it, or configure it with another class"
            ),
            UnknownLog { key } => write!(f, "there is no log {key}: append to it to create it"),
            OutOfRange { key, asked, first, next } => write!(
                f,
                "entry {asked} is outside log {key}, which holds entries {first} to {next} (exclusive): read the bounds of the log first"
            ),
            NumberTooLarge { key, asked } => write!(
                f,
                "log {key} cannot begin at entry {asked}: use a number of at most 2^62"
            ),
            Conflict { key, expected, found } => write!(
                f,
                "log {key} was expected to {expected}, but {found}: read the log again, then retry the commit"
            ),
            LogExists { key, next } => write!(
                f,
                "log {key} exists already, and its next entry is {next}; nothing was imported: skip existing logs, or delete them first"
            ),
            InvalidImport(it) => write!(f, "{it}; nothing was imported"),
            Cancelled { what } => write!(f, "{what} was cancelled, and had no effect"),
            Locked { name, holder } => f.write_str(&locked(name, holder)),
            NotAStore { name, why } => write!(f, "{name} is not a Brooklet store: {why}"),
            Exists { name, advice } => write!(f, "{name} exists already: {advice}"),
            RingNeeded { name } => write!(
                f,
                "the ring of {name} is on a separate volume: name that volume by `Options::ring_at` or --ring"
            ),
            PartsNeeded { name, parts } => write!(
                f,
                "{parts} parts of {name} were offloaded: name the archive that keeps these parts, by `Options::offload_reader` or --archive"
            ),
            WrongRing { ring, store, why } => write!(f, "{ring} is not the ring of {store}: {why}"),
            Shrunk { name, needed, size } => write!(
                f,
                "{name} had {needed} bytes for the store, and now has {size} bytes: restore its size, then open the store again"
            ),
            OtherCapacity { name, asked, found } => write!(
                f,
                "{name} was created with {}, and the options request {asked} bytes: request the store's capacity or none, or copy the logs to a new store",
                capacity(*found)
            ),
            NotBlank { name, found } => write!(
                f,
                "{name} is not blank: it holds {found}; choose another place, or overwrite this one by force if nobody needs its data"
            ),
            NewerFormat { name, found, known } => write!(
                f,
                "{name} has format {found}; this version reads up to {known}: upgrade Brooklet"
            ),
            FeatureNeeded { place, feature } => write!(
                f,
                "{place} needs the feature `{feature}`, which this build of Brooklet lacks: open the store with a build that has it; after a checkpoint there, this build opens the store"
            ),
            Replaced { doing } => write!(
                f,
                "{doing} came too late: the process that writes the store has replaced the data; open the store again, and read on"
            ),
            Damaged { place, what } => write!(
                f,
                "damage in {place}: {what}; read the undamaged data, and restore the rest from a copy"
            ),
            Full { what, why } => write!(
                f,
                "no room left for {what}: {why}; free space on the device, or trim and delete logs"
            ),
            Busy { why } => write!(
                f,
                "the commit would have to wait: {why}; retry later, or use a call that waits"
            ),
            ReadOnly => f.write_str("the store is open read-only: open it for writing"),
            Closed => f.write_str("the store is closed"),
            Forked => f.write_str(
                "the store was opened by another process, of which this one is a fork: close it there, then open it here",
            ),
            WouldWait => f.write_str(
                "a waker must not wait for the store: wait in the task that the waker wakes, or in a callback",
            ),
            Stopped { why } => write!(
                f,
                "the store stopped writing: {why}; repair the device, then open the store again"
            ),
            MirrorRefused { why } => write!(
                f,
                "the second copy of the log does not continue this store: {why}"
            ),
            MirrorEnded { why } => write!(
                f,
                "the second copy of the log has ended: {why}; close the store, then open it again"
            ),
            Io { doing, cause } => write!(f, "{doing} failed: {cause}"),
        }
    }
}

impl std::error::Error for Error {}

/// Returns the text of a capacity in messages.
fn capacity(bytes: u64) -> String {
    if bytes == 0 { "no capacity limit".into() } else { format!("a capacity of {bytes} bytes") }
}

/// Returns the message for a locked store: the holder and the remedy.
fn locked(name: &str, holder: &str) -> String {
    if holder.starts_with(HERE) {
        return format!("{name} cannot be opened again, {holder}: use the open handle, or close it first");
    }
    format!("{name} is in use elsewhere ({holder}): end that use, then try again")
}

impl fmt::Display for ReplacedData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process that writes the store has replaced the data")
    }
}

impl std::error::Error for ReplacedData {}

impl fmt::Display for Described {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.doing, self.cause)
    }
}

impl std::error::Error for Described {}
