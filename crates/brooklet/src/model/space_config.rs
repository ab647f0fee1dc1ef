//! What is asked of a space, and what is told of it.

use std::time::Duration;

use crate::error::Error;
use crate::model::retention::Retention;

/// Longest name of a space, in bytes.
pub(crate) const MAX_NAME: usize = 64;
/// The most spaces that a store has: all of them are committed with each change of one.
pub(crate) const MAX_SPACES: usize = 256;
/// What stands between the name of a space and the rest of a log's key.
pub(crate) const SEPARATOR: u8 = b'/';
/// The longest bound of what is deferred.
const LONGEST: Duration = Duration::from_secs(3600);
/// Bytes of memory of a space.
const LEAST_MEMORY: u64 = 64 << 10;
const MOST_MEMORY: u64 = 1 << 46;
/// Time from one dump to the next.
const SHORTEST: Duration = Duration::from_millis(100);
const DAY: Duration = Duration::from_secs(86_400);
/// The largest quota; nothing can have counted more.
const MOST: u64 = 1 << 62;
/// When commits on the logs of a space are acknowledged, and what those survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// Once they are on stable media: they survive a power cut.
    #[default]
    Durable,
    /// At once, and they are on stable media within this time, as
    /// [`Durability::Deferred`](crate::Durability::Deferred) says: a kill or a power cut may lose
    /// the last ones, of a stretch of time no longer than that. From 1 ms to an hour, in whole
    /// milliseconds.
    Deferred(Duration),
    /// At once, and they are in memory only, until the space is [dumped](crate::Space::dump): when
    /// the store is closed, and as often as is asked for. They do not go through the ring, which is
    /// what makes them cheap. A kill or a power cut leaves the logs as the last dump has them.
    ///
    /// Commits are on logs of the space alone, and none that asks for another
    /// [`Durability`](crate::Durability) is let in. [Views](crate::View), exports and archives see
    /// what the last dump has.
    Memory(MemoryConfig),
}

impl Class {
    /// How the space is kept in memory, if it is.
    pub fn memory(&self) -> Option<MemoryConfig> {
        if let Self::Memory(config) = self { Some(*config) } else { None }
    }
}

/// How a space is kept in memory.
///
/// ```
/// use brooklet::{Class, MemoryConfig, SpaceConfig, WhenFull};
/// use std::time::Duration;
///
/// let memory = MemoryConfig::new(64 << 20).when_full(WhenFull::DropOldest).dump_every(Duration::from_secs(60));
/// let sessions = SpaceConfig::new().class(Class::Memory(memory));
/// assert_eq!(sessions.class.memory().unwrap().bytes, 64 << 20);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryConfig {
    /// Bytes of memory that its logs may take, with all that they cost besides their payloads.
    pub bytes: u64,
    /// What happens when they are taken.
    pub when_full: WhenFull,
    /// How long after one dump the next is begun, while the store is open. None: only a clean stop
    /// dumps, and [`Space::dump`](crate::Space::dump).
    pub dump_every: Option<Duration>,
}

/// What happens when the logs of a space have all the memory that it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// What needs more is refused with [`Error::MemoryFull`].
    #[default]
    Refuse,
    /// Whole logs go, as if they were deleted: those first that were written to least lately.
    DropOldest,
}

impl MemoryConfig {
    /// Refuses what needs more than so many bytes of memory, and is dumped at a clean stop. At
    /// least 64 KiB, at most 2^46.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, when_full: WhenFull::default(), dump_every: None }
    }

    /// Sets what happens when memory is full.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Dumps the space so long after the last dump was begun, if anything changed: from 100 ms to a
    /// day, in whole milliseconds.
    pub fn dump_every(mut self, every: Duration) -> Self {
        self.dump_every = Some(every);
        self
    }

    fn check(&self, name: &str) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::InvalidSpace(why));
        if !(LEAST_MEMORY..=MOST_MEMORY).contains(&self.bytes) {
            let bytes = self.bytes;
            return wrong(format!(
                "{bytes} bytes of memory for space {name}: use at least 64 KiB, at most 2^46"
            ));
        }
        let lawful = |every: &Duration| {
            (SHORTEST..=DAY).contains(every) && every.subsec_nanos().is_multiple_of(1_000_000)
        };
        match self.dump_every.filter(|every| !lawful(every)) {
            Some(every) => wrong(format!(
                "a dump every {every:?} for space {name}: use whole milliseconds, from a tenth of a second to a day"
            )),
            None => Ok(()),
        }
    }
}

/// What a space asks of its logs.
///
/// ```
/// use brooklet::{Class, Retention, SpaceConfig};
/// use std::time::Duration;
///
/// let games = SpaceConfig::new()
///     .class(Class::Deferred(Duration::from_millis(20)))
///     .max_logs(100_000)
///     .max_bytes(1 << 30)
///     .retention(Retention::new().entries(1000));
/// assert_eq!(games.max_logs, Some(100_000));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceConfig {
    /// When commits are acknowledged.
    pub class: Class,
    /// The most logs that the space may have. At most 2^62.
    pub max_logs: Option<u64>,
    /// The most bytes of payloads that its logs may hold together. At most 2^62.
    pub max_bytes: Option<u64>,
    /// What each of its logs keeps, unless [another limit](crate::Store::set_retention) is set on
    /// it.
    pub retention: Retention,
}

impl SpaceConfig {
    /// Durable, without quotas, and everything is kept.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets when commits are acknowledged.
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Limits the logs. An append that would make one more is refused with [`Error::QuotaReached`].
    pub fn max_logs(mut self, most: u64) -> Self {
        self.max_logs = Some(most);
        self
    }

    /// Limits the bytes of all payloads. A commit that would make them more is refused with
    /// [`Error::QuotaReached`]; what trims and deletes is not.
    pub fn max_bytes(mut self, most: u64) -> Self {
        self.max_bytes = Some(most);
        self
    }

    /// Sets what each log keeps.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Whether its logs are counted.
    pub(crate) fn has_quota(&self) -> bool {
        self.max_logs.is_some() || self.max_bytes.is_some()
    }

    /// Refuses what makes no sense.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::InvalidSpace(why));
        let lawful = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(lawful) {
            let name = name.escape_debug();
            return wrong(format!(
                "\"{name}\" is no name for a space: use 1 to {MAX_NAME} letters, digits, dots, hyphens and underscores"
            ));
        }
        if let Class::Deferred(bound) = self.class
            && (bound.is_zero() || bound > LONGEST || !bound.subsec_nanos().is_multiple_of(1_000_000))
        {
            return wrong(format!(
                "a bound of {bound:?} for space {name}: use whole milliseconds, from one to an hour"
            ));
        }
        if let Class::Memory(memory) = self.class {
            memory.check(name)?;
        }
        if let Some(most) = self.max_logs.into_iter().chain(self.max_bytes).find(|most| *most > MOST) {
            return wrong(format!("a quota of {most} for space {name}: use at most 2^62, or none"));
        }
        self.retention.check()
    }
}

/// What a space is, and what was done in it since the store was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceInfo {
    /// Its name.
    pub name: String,
    /// What it asks of its logs.
    pub config: SpaceConfig,
    /// Logs that it has; `None` where it has no quota and is not kept in memory, and so they are
    /// not counted.
    pub logs: Option<u64>,
    /// Bytes of payloads that they hold.
    pub bytes: Option<u64>,
    /// Entries that were appended.
    pub appended: u64,
    /// Bytes of their payloads.
    pub appended_bytes: u64,
    /// Reads of logs.
    pub reads: u64,
    /// Commits that a quota refused, or memory that is full.
    pub refused: u64,
    /// What it has in memory, where it is kept there.
    pub memory: Option<MemoryInfo>,
}

/// What a space that is kept in memory has there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Bytes of memory that its logs take.
    pub used: u64,
    /// Whether all of its logs are there. Where they did not fit, or could not be read as the store
    /// was opened, the others are brought as commits come to them.
    pub complete: bool,
    /// Whether something has changed since the last dump.
    pub changed: bool,
    /// Dumps since the store was opened.
    pub dumps: u64,
    /// Logs that were dropped since then, as memory was full.
    pub dropped: u64,
}
