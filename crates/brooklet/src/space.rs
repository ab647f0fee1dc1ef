//! Spaces: named groups of logs, each with its own storage class, quotas and retention.

use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use crate::commit::{Action, Durability, Gives, Op};
use crate::error::Error;
use crate::model::Bounds;
use crate::read::Entries;
use crate::retain::Retention;
use crate::runs::Run;
use crate::scan::{LogInfo, Logs, RunLogs};
use crate::spaces::{Spaces, TABLE};
use crate::store::Store;
use crate::ticket::Ticket;

/// Longest name of a space, in bytes.
pub(crate) const MAX_NAME: usize = 64;
/// The most spaces that a store has: all of them are committed with each change of one.
pub(crate) const MAX_SPACES: usize = 256;
/// What stands between the name of a space and the rest of a log's key.
pub(crate) const SEPARATOR: u8 = b'/';
/// The longest bound of what is deferred.
const LONGEST: Duration = Duration::from_secs(3600);
/// The largest quota; nothing can have counted more.
const MOST: u64 = 1 << 62;
/// Logs that are given their limits with one commit.
const AT_ONCE: usize = 64;

/// When commits on the logs of a space are acknowledged, and what those survive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// Once they are on stable media: they survive a power cut.
    #[default]
    Durable,
    /// At once, and they are on stable media within this time, as [`Durability::Deferred`] says: a kill or a power cut may
    /// lose the last ones, of a stretch of time no longer than that. From 1 ms to an hour, in whole milliseconds.
    Deferred(Duration),
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
    /// What each of its logs keeps, unless [another limit](Store::retain) is set on it.
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

    /// Limits the bytes of all payloads. A commit that would make them more is refused with [`Error::QuotaReached`]; what
    /// trims and deletes is not.
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
    /// Logs that it has; `None` where it has no quota, and so they are not counted.
    pub logs: Option<u64>,
    /// Bytes of payloads that they hold.
    pub bytes: Option<u64>,
    /// Entries that were appended.
    pub appended: u64,
    /// Bytes of their payloads.
    pub appended_bytes: u64,
    /// Reads of logs.
    pub reads: u64,
    /// Commits that a quota refused.
    pub refused: u64,
}

/// A named group of logs: all those whose keys begin with its name and `/`.
///
/// What is done by way of it is the same as what is done by way of the store, with the whole [key](Self::key).
///
/// ```
/// # fn main() -> Result<(), brooklet::Error> {
/// # let store = brooklet::Store::in_memory(1)?;
/// use brooklet::{Class, SpaceConfig};
/// use std::time::Duration;
///
/// let soon = Class::Deferred(Duration::from_millis(20));
/// let games = store.create_space("games", SpaceConfig::new().class(soon).max_logs(2))?;
/// games.append("7", "e4")?.wait()?; // acknowledged at once
/// games.append("8", "d4")?.wait()?;
/// assert!(games.append("9", "c4").is_err()); // a log too many
/// assert_eq!(store.bounds("games/7")?.next, 1);
///
/// games.configure(SpaceConfig::new())?; // durable by now, and from now on
/// games.append("9", "c4")?.wait()?;
/// assert_eq!(games.scan("")?.count(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Space {
    store: Store,
    name: String,
}

impl Store {
    /// Makes a space. Logs that are there and whose keys begin with its name and `/` belong to it; with a quota or a
    /// retention, the call takes as long as it takes to count them, or to give them those limits.
    ///
    /// # Errors
    /// [`Error::InvalidSpace`], also where there is one of that name.
    pub fn create_space(&self, name: &str, config: SpaceConfig) -> Result<Space, Error> {
        self.change_space(name, config, true)
    }

    /// The space of this name.
    ///
    /// # Errors
    /// [`Error::UnknownSpace`].
    pub fn space(&self, name: &str) -> Result<Space, Error> {
        match self.inner().front().spaces.find(name.as_bytes()) {
            Some(_) => Ok(Space { store: self.clone(), name: name.into() }),
            None => Err(Error::UnknownSpace { name: name.into() }),
        }
    }

    /// All spaces, by name.
    pub fn spaces(&self) -> Vec<SpaceInfo> {
        self.inner().front().spaces.infos()
    }

    /// Removes a space. Its logs stay, are durable when the call returns, and keep what they kept.
    ///
    /// # Errors
    /// [`Error::UnknownSpace`].
    pub fn remove_space(&self, name: &str) -> Result<(), Error> {
        let _alone = self.inner().configuring.lock().expect("no panics");
        let (table, _) = self.inner().front().spaces.with(name, None)?;
        self.commit_table(&table)
    }

    fn change_space(&self, name: &str, config: SpaceConfig, is_new: bool) -> Result<Space, Error> {
        config.check(name)?;
        let inner = self.inner();
        let _alone = inner.configuring.lock().expect("no panics");
        let (old, was_counted) = {
            let front = inner.front();
            let known = front.spaces.find(name.as_bytes()).map(|at| front.spaces.get(at));
            known.map_or((SpaceConfig::default(), false), |space| (space.config, space.counted))
        };
        match self.space(name) {
            Ok(_) if is_new => {
                return Err(Error::InvalidSpace(format!(
                    "there is a space {name} already: configure that one"
                )));
            }
            Err(error) if !is_new => return Err(error),
            _ => {}
        }
        let with = |counted| {
            let (table, _) = inner.front().spaces.with(name, Some((config, counted)))?;
            self.commit_table(&table)
        };
        // What is new is given its limits as it is made from here on; what is there, below.
        let counts = config.has_quota() && !was_counted;
        with(config.has_quota() && was_counted)?;
        let space = Space { store: self.clone(), name: name.into() };
        let changed = config.retention != old.retention;
        if counts || changed {
            space.enroll(if changed { Gives::All } else { Gives::None })?;
        }
        if counts {
            with(true)?;
        }
        Ok(space)
    }

    /// Adopts an import, whose logs then count in their spaces, and keep what those give to logs without a limit.
    pub(crate) fn adopt_into_spaces(
        &self,
        import: &Arc<Run>,
        adopt: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _alone = self.inner().configuring.lock().expect("no panics");
        let mut entered = Vec::new();
        for space in self.spaces() {
            let (name, config) = (space.name, space.config);
            let space = Space { store: self.clone(), name };
            let prefix = space.key("");
            let logs = RunLogs::new(import, &prefix)?;
            let enters = logs.current.is_some_and(|(key, _)| key.starts_with(&prefix));
            if enters && (config.has_quota() || config.retention.is_limited()) {
                entered.push((space, config));
            }
        }
        let tell = |counted| {
            let mut table = self.inner().front().spaces.clone();
            for (space, config) in entered.iter().filter(|(_, config)| config.has_quota()) {
                table = table.with(&space.name, Some((*config, counted)))?.0;
            }
            self.commit_table(&table)
        };
        if entered.is_empty() {
            return adopt();
        }
        // Until they are enrolled, nobody knows what the spaces hold.
        tell(false)?;
        let adopted = adopt();
        for (space, _) in &entered {
            space.enroll(Gives::Unlimited)?;
        }
        tell(true)?;
        adopted
    }

    /// Makes the table of spaces the store's, and everything durable that was committed before.
    fn commit_table(&self, table: &Spaces) -> Result<(), Error> {
        let table = table.encode();
        let op = Op { key: TABLE, action: Action::Snapshot(&table) };
        self.inner().board_checked(&[op], Some(Durability::Durable), true)?;
        self.inner().flush()
    }
}

impl Space {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole key of a log, for [`Commit`](crate::Commit)s and calls of the [`Store`].
    pub fn key(&self, key: impl AsRef<[u8]>) -> Vec<u8> {
        [self.name.as_bytes(), &[SEPARATOR], key.as_ref()].concat()
    }

    /// What it is, and what was done in it.
    ///
    /// # Errors
    /// [`Error::UnknownSpace`] where it was removed.
    pub fn info(&self) -> Result<SpaceInfo, Error> {
        let found = self.store.spaces().into_iter().find(|space| space.name == self.name);
        found.ok_or_else(|| Error::UnknownSpace { name: self.name.clone() })
    }

    /// Changes what it asks of its logs, while they are in use. When the call returns, everything that was committed before
    /// it is durable, whatever the class.
    ///
    /// A quota counts all logs of the space, and another retention is given to all of them, also where one of them had limits
    /// of its own: that takes time, beside which commits go on. Where it is cut short, call it again. A quota that is below
    /// what there is drops nothing: it lets nothing in.
    ///
    /// # Errors
    /// [`Error::InvalidSpace`], [`Error::UnknownSpace`].
    pub fn configure(&self, config: SpaceConfig) -> Result<(), Error> {
        self.store.change_space(&self.name, config, false).map(drop)
    }

    /// Has all logs count that do not yet.
    fn enroll(&self, gives: Gives) -> Result<(), Error> {
        let mut logs = self.store.scan(self.key(""))?.peekable();
        let mut last = None;
        while logs.peek().is_some() {
            let some: Vec<LogInfo> = logs.by_ref().take(AT_ONCE).collect::<Result<_, _>>()?;
            let ops: Vec<Op<'_>> =
                some.iter().map(|log| Op { key: &log.key, action: Action::Enroll(gives) }).collect();
            match self.store.write(&ops, None, true) {
                Ok(ticket) => last = Some(ticket),
                // All of them are as they should be, or gone.
                Err(Error::EmptyCommit) => {}
                Err(error) => return Err(error),
            }
        }
        last.map_or(Ok(()), |ticket| ticket.wait_durable())
    }

    /// [`Store::append`].
    pub fn append(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.store.append(self.key(key), payload)
    }

    /// [`Store::append_with`]: acknowledged as the space says, or as `durability` does if that promises more.
    pub fn append_with(
        &self,
        key: impl AsRef<[u8]>,
        payload: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Ticket, Error> {
        self.store.append_with(self.key(key), payload, durability)
    }

    /// [`Store::append_many`].
    pub fn append_many<P: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<Ticket, Error> {
        self.store.append_many(self.key(key), payloads)
    }

    /// [`Store::snapshot`].
    pub fn snapshot(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.store.snapshot(self.key(key), payload)
    }

    /// [`Store::trim`].
    pub fn trim(&self, key: impl AsRef<[u8]>, before: u64) -> Result<Ticket, Error> {
        self.store.trim(self.key(key), before)
    }

    /// [`Store::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.store.delete(self.key(key))
    }

    /// [`Store::read`].
    pub fn read(&self, key: impl AsRef<[u8]>, range: impl RangeBounds<u64>) -> Result<Entries, Error> {
        self.store.read(self.key(key), range)
    }

    /// [`Store::bounds`].
    pub fn bounds(&self, key: impl AsRef<[u8]>) -> Result<Bounds, Error> {
        self.store.bounds(self.key(key))
    }

    /// The logs whose keys, without the space's name, start with `prefix`; they are listed without it.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Result<Logs, Error> {
        Ok(self.store.scan(self.key(prefix))?.without(self.name.len() + 1))
    }
}
