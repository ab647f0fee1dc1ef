//! The configuration of a space, and the report on a space.

use std::time::Duration;

use crate::error::Error;
use crate::model::retention::Retention;
use crate::model::retention_rule::RetentionRule;

/// Maximum length of a space's name, in bytes.
pub(crate) const MAX_NAME: usize = 64;
/// Maximum number of spaces of a store.
pub(crate) const MAX_SPACES: usize = 100_000;
/// The byte between the name of a space and the rest of a log's key.
pub(crate) const SEPARATOR: u8 = b'/';
/// The longest bound of a deferred commit, one hour.
const LONGEST: Duration = Duration::from_secs(3600);
/// Minimum and maximum memory of a space, in bytes.
const LEAST_MEMORY: u64 = 64 << 10;
const MOST_MEMORY: u64 = 1 << 46;
/// The shortest and the longest time from one dump to the next.
const SHORTEST: Duration = Duration::from_millis(100);
const DAY: Duration = Duration::from_secs(86_400);
/// The largest quota. No count can be larger.
const MOST: u64 = 1 << 62;
/// The storage class of a space: the moment when the store acknowledges commits on its logs, and
/// the failures that these commits survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// The store acknowledges commits once they are on stable media. They survive a power cut.
    #[default]
    Durable,
    /// The store acknowledges commits at once and writes them to stable media within this time, as
    /// [`Durability::Deferred`](crate::Durability::Deferred) says. A kill or a power cut may lose
    /// the last commits, from a stretch of time no longer than this time. From 1 ms to an hour, in
    /// whole milliseconds.
    Deferred(Duration),
    /// The store acknowledges commits at once and keeps them in memory only, until the space is
    /// [dumped](crate::Space::dump): when the store is closed, and at the configured interval. The
    /// commits are cheap because they do not go through the ring. A kill or a power cut leaves the
    /// logs as in the last dump.
    ///
    /// A commit on such logs holds operations on logs of this space only. The store refuses a
    /// commit that sets its own [`Durability`](crate::Durability). [Views](crate::View), exports
    /// and archives contain the last dump.
    Memory(MemoryConfig),
}

impl Class {
    /// Returns the memory configuration, if the space is kept in memory.
    pub fn memory(&self) -> Option<MemoryConfig> {
        if let Self::Memory(config) = self { Some(*config) } else { None }
    }
}

/// The configuration of a space that is kept in memory.
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
    /// Most bytes of memory of the logs, including all overhead besides their payloads.
    pub bytes: u64,
    /// The behavior when the logs have used all of these bytes.
    pub when_full: WhenFull,
    /// The time from the start of one dump to the start of the next, while the store is open.
    /// `None`: only a clean stop dumps the space, and [`Space::dump`](crate::Space::dump).
    pub dump_every: Option<Duration>,
}

/// The behavior when the logs of a space have used all memory of the space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhenFull {
    /// The store refuses commits that need more memory with [`Error::MemoryFull`].
    #[default]
    Refuse,
    /// The store drops whole logs, as if they were deleted. The least recently written logs are
    /// dropped first.
    DropOldest,
}

impl MemoryConfig {
    /// Creates a configuration with `bytes` bytes of memory: at least 64 KiB, at most 2^46 bytes.
    /// The store refuses commits that need more memory, and dumps the space at a clean stop.
    pub fn new(bytes: u64) -> Self {
        Self { bytes, when_full: WhenFull::default(), dump_every: None }
    }

    /// Sets the behavior when memory is full.
    pub fn when_full(mut self, when_full: WhenFull) -> Self {
        self.when_full = when_full;
        self
    }

    /// Sets the time from the start of one dump to the start of the next: from 100 ms to a day, in
    /// whole milliseconds. The store skips a dump if nothing has changed.
    pub fn dump_every(mut self, every: Duration) -> Self {
        self.dump_every = Some(every);
        self
    }

    fn check(&self, name: &str) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::InvalidSpace(why));
        if !(LEAST_MEMORY..=MOST_MEMORY).contains(&self.bytes) {
            let bytes = self.bytes;
            return wrong(format!("{bytes} bytes of memory for space {name}: use 64 KiB to 2^46 bytes"));
        }
        let lawful = |every: &Duration| {
            (SHORTEST..=DAY).contains(every) && every.subsec_nanos().is_multiple_of(1_000_000)
        };
        match self.dump_every.filter(|every| !lawful(every)) {
            Some(every) => wrong(format!(
                "a dump every {every:?} for space {name}: use whole milliseconds, from 100 ms to 1 day"
            )),
            None => Ok(()),
        }
    }
}

/// The configuration of a space: its storage class, its quotas, and the retention of its logs.
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceConfig {
    /// Storage class.
    pub class: Class,
    /// Most logs of the space, at most 2^62; `None`: no limit.
    pub max_logs: Option<u64>,
    /// Most bytes of payloads in all logs of the space, at most 2^62; `None`: no limit.
    pub max_bytes: Option<u64>,
    /// Retention of each log that no rule matches, unless
    /// [another limit](crate::Store::set_retention) is set on the log.
    pub retention: Retention,
    /// Retention of the logs whose keys match a pattern. The first rule that matches counts. At
    /// most 32 rules, each with another pattern.
    pub rules: Vec<RetentionRule>,
}

impl SpaceConfig {
    /// Creates the default configuration: durable, without quotas, and each log keeps all entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the storage class.
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Limits the number of logs. The store refuses an append that would create one more with
    /// [`Error::QuotaReached`].
    pub fn max_logs(mut self, most: u64) -> Self {
        self.max_logs = Some(most);
        self
    }

    /// Limits the bytes of all payloads. The store refuses a commit that would exceed the limit
    /// with [`Error::QuotaReached`]; the store does not refuse trims and deletions.
    pub fn max_bytes(mut self, most: u64) -> Self {
        self.max_bytes = Some(most);
        self
    }

    /// Sets the retention of each log that no rule matches.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.retention = retention;
        self
    }

    /// Adds a rule after the other rules: the retention of each log whose key matches `pattern`
    /// and no rule before. The pattern applies to the key without the name of the space and the
    /// slash. A `*` matches any number of bytes, also slashes.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// use brooklet::{Retention, SpaceConfig};
    /// use std::time::Duration;
    ///
    /// let config = SpaceConfig::new()
    ///     .retention_for("audit/*", Retention::new()) // keeps all entries
    ///     .retention_for("*/presence", Retention::new().entries(1))
    ///     .retention(Retention::new().age(Duration::from_secs(30 * 24 * 3600)));
    /// let tenant = store.create_space("tenant", config)?;
    /// tenant.append_many("7/presence", ["here", "away"])?.wait()?;
    /// assert_eq!(tenant.bounds("7/presence")?.first, 1);
    /// tenant.append("7/edits", "a word")?.wait()?;
    /// assert!(tenant.retention("7/edits")?.age.is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn retention_for(mut self, pattern: impl AsRef<[u8]>, retention: Retention) -> Self {
        self.rules.push(RetentionRule { pattern: pattern.as_ref().into(), retention });
        self
    }

    /// Returns the retention that the space sets on a log. `key` omits the name of the space.
    pub(crate) fn retention_of(&self, key: &[u8]) -> Retention {
        let rule = self.rules.iter().find(|rule| rule.matches(key));
        rule.map_or(self.retention, |rule| rule.retention)
    }

    /// Returns whether the space may set limits on a log.
    pub(crate) fn limits_logs(&self) -> bool {
        self.retention.is_limited() || self.rules.iter().any(|rule| rule.retention.is_limited())
    }

    /// Returns whether the space sets the same retention on each log as `other` does.
    pub(crate) fn retains_like(&self, other: &Self) -> bool {
        self.retention == other.retention && self.rules == other.rules
    }

    /// Returns whether the store counts the logs of the space.
    pub(crate) fn has_quota(&self) -> bool {
        self.max_logs.is_some() || self.max_bytes.is_some()
    }

    /// Returns an error if the name or the configuration is invalid.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::InvalidSpace(why));
        let lawful = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(lawful) {
            let name = name.escape_debug();
            return wrong(format!(
                "\"{name}\" is not a valid name of a space: use 1 to {MAX_NAME} letters, digits, dots, hyphens and underscores"
            ));
        }
        if let Class::Deferred(bound) = self.class
            && (bound.is_zero() || bound > LONGEST || !bound.subsec_nanos().is_multiple_of(1_000_000))
        {
            return wrong(format!(
                "a bound of {bound:?} for space {name}: use whole milliseconds, from 1 ms to 1 hour"
            ));
        }
        if let Class::Memory(memory) = self.class {
            memory.check(name)?;
        }
        if let Some(most) = self.max_logs.into_iter().chain(self.max_bytes).find(|most| *most > MOST) {
            return wrong(format!("a quota of {most} for space {name}: use at most 2^62, or none"));
        }
        RetentionRule::check_all(&self.rules, name)?;
        self.retention.check()
    }
}

/// The configuration of a space, and its activity since the store was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpaceInfo {
    /// Name of the space.
    pub name: String,
    /// Configuration of the space.
    pub config: SpaceConfig,
    /// Number of logs. `None` if the space has no quota and is not kept in memory: the store then
    /// does not count the logs.
    pub logs: Option<u64>,
    /// Bytes of payloads in these logs.
    pub bytes: Option<u64>,
    /// Number of entries that were appended.
    pub appended: u64,
    /// Bytes of payloads that were appended.
    pub appended_bytes: u64,
    /// Number of reads of logs.
    pub reads: u64,
    /// Number of commits that were refused because of a quota or of full memory.
    pub refused: u64,
    /// Memory use, if the space is kept in memory.
    pub memory: Option<MemoryInfo>,
}

/// The memory use of a space that is kept in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Bytes of memory that the logs take.
    pub used: u64,
    /// Whether all logs of the space are in memory. If some logs did not fit, or could not be read
    /// when the store was opened, the store loads each of them with the first commit that needs its
    /// entries.
    pub complete: bool,
    /// Whether the space has changed since the last dump.
    pub changed: bool,
    /// Number of dumps since the store was opened.
    pub dumps: u64,
    /// Number of logs that were dropped since the store was opened because memory was full.
    pub dropped: u64,
}
