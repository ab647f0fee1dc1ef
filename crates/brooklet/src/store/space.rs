//! Spaces: named groups of logs, each with its own storage class, quotas and retention.

use std::ops::RangeBounds;
use std::sync::Arc;

use crate::engine::memory_dump::DumpReport;
use crate::error::Error;
use crate::model::Bounds;
use crate::model::commit::{Action, Durability, EnrollScope, Op};
use crate::model::space_config::SEPARATOR;
use crate::model::space_config::{Class, SpaceConfig, SpaceInfo};
use crate::read::Entries;
use crate::read::scan::{LogInfo, Logs, RunLogs};
use crate::run::Run;
use crate::state::spaces::{Spaces, TABLE};
use crate::store::Store;
use crate::store::ticket::Ticket;
use crate::sync::held;

/// Logs that are given their limits with one commit.
const AT_ONCE: usize = 64;

/// A named group of logs: all those whose keys begin with its name and `/`.
///
/// What is done by way of it is the same as what is done by way of the store, with the whole
/// [key](Self::key).
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
    /// Makes a space. Logs that are there and whose keys begin with its name and `/` belong to it;
    /// with a quota or a retention, the call takes as long as it takes to count them, or to give
    /// them those limits.
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
        match self.inner().sound_state()?.spaces.find(name.as_bytes()) {
            Some(_) => Ok(Space { store: self.clone(), name: name.into() }),
            None => Err(Error::UnknownSpace { name: name.into() }),
        }
    }

    /// All spaces, by name.
    pub fn spaces(&self) -> Vec<SpaceInfo> {
        self.inner().spaces()
    }

    /// Removes a space. Its logs stay, are durable when the call returns, and keep what they kept.
    ///
    /// # Errors
    /// [`Error::UnknownSpace`].
    pub fn remove_space(&self, name: &str) -> Result<(), Error> {
        self.inner().may_wait()?;
        let _hush = self.inner().hush();
        let _alone = held(&self.inner().configuring);
        self.inner().state().spaces.with(name, None)?;
        let commit = || {
            let (table, _) = self.inner().state().spaces.with(name, None)?;
            self.commit_table(&table)
        };
        match self.inner().memory_spaces.find(name.as_bytes()) {
            Some(memory_space) => self.shared().move_out_of_memory(&memory_space, commit),
            None => commit(),
        }
    }

    fn change_space(&self, name: &str, config: SpaceConfig, is_new: bool) -> Result<Space, Error> {
        config.check(name)?;
        let inner = self.inner();
        inner.may_wait()?;
        let _hush = inner.hush();
        let _alone = held(&inner.configuring);
        let (old, was_counted) = {
            let state = inner.state();
            let known = state.spaces.find(name.as_bytes()).map(|at| state.spaces.get(at));
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
            let (table, _) = inner.state().spaces.with(name, Some((config, counted)))?;
            self.commit_table(&table)
        };
        let space = Space { store: self.clone(), name: name.into() };
        let memory_space = inner.memory_spaces.find(name.as_bytes());
        let was_counted = was_counted && memory_space.is_none();
        let changed = config.retention != old.retention;
        match (config.class, memory_space) {
            (Class::Memory(memory), Some(memory_space)) => {
                with(false)?;
                memory_space.configure(config, memory);
                if changed {
                    memory_space.logs().retain_all(config.retention, &|| inner.now());
                }
                self.shared().see_to_dumps()?;
                return Ok(space);
            }
            (Class::Memory(memory), None) => {
                self.shared().move_into_memory(name, config, memory, || with(false)).or_else(|error| {
                    // It stays what it was, with all that came meanwhile.
                    self.leave_memory_again(name, is_new, old).and(Err(error))
                })?;
                if changed && let Some(memory_space) = inner.memory_spaces.find(name.as_bytes()) {
                    memory_space.logs().retain_all(config.retention, &|| inner.now());
                }
                return Ok(space);
            }
            // What is new is given its limits as it is made from here on; what is there, below.
            (_, Some(memory_space)) => self.shared().move_out_of_memory(&memory_space, || with(false))?,
            (_, None) => with(config.has_quota() && was_counted)?,
        }
        let counts = config.has_quota() && !was_counted;
        if counts || changed {
            space.enroll(if changed { EnrollScope::All } else { EnrollScope::None })?;
        }
        if counts {
            with(true)?;
        }
        Ok(space)
    }

    /// Has a space that could not be brought into memory be what it was.
    fn leave_memory_again(&self, name: &str, is_new: bool, old: SpaceConfig) -> Result<(), Error> {
        let Some(memory_space) = self.inner().memory_spaces.find(name.as_bytes()) else { return Ok(()) };
        self.shared().move_out_of_memory(&memory_space, || {
            let was = (!is_new).then_some((old, false));
            let (table, _) = self.inner().state().spaces.with(name, was)?;
            self.commit_table(&table)
        })
    }

    /// Ingests an import, whose logs then count in their spaces, and keep what those give to logs
    /// without a limit.
    pub(crate) fn ingest_into_spaces(
        &self,
        import: &Arc<Run>,
        ingest: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let _hush = self.inner().hush();
        let _alone = held(&self.inner().configuring);
        let mut entered = Vec::new();
        for space in self.spaces() {
            let (name, config) = (space.name, space.config);
            let space = Space { store: self.clone(), name };
            let prefix = space.key("");
            let logs = RunLogs::new(import, &prefix)?;
            let enters = logs.current.is_some_and(|(key, _)| key.starts_with(&prefix));
            if enters && config.class.memory().is_some() {
                return Err(Error::InMemory { space: space.name });
            }
            if enters && (config.has_quota() || config.retention.is_limited()) {
                entered.push((space, config));
            }
        }
        let tell = |counted| {
            let mut table = self.inner().state().spaces.clone();
            for (space, config) in entered.iter().filter(|(_, config)| config.has_quota()) {
                table = table.with(&space.name, Some((*config, counted)))?.0;
            }
            self.commit_table(&table)
        };
        if entered.is_empty() {
            return ingest();
        }
        // Until they are enrolled, nobody knows what the spaces hold.
        tell(false)?;
        let ingested = ingest();
        for (space, _) in &entered {
            space.enroll(EnrollScope::Unlimited)?;
        }
        tell(true)?;
        ingested
    }

    /// Makes the table of spaces the store's, and everything durable that was committed before.
    fn commit_table(&self, table: &Spaces) -> Result<(), Error> {
        let table = table.encode();
        let op = Op { key: TABLE, action: Action::Snapshot(&table) };
        self.inner().append(&[op], Some(Durability::Durable), true)?;
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
        self.store.inner().here()?;
        let found = self.store.spaces().into_iter().find(|space| space.name == self.name);
        found.ok_or_else(|| Error::UnknownSpace { name: self.name.clone() })
    }

    /// Changes what it asks of its logs, while they are in use. When the call returns, everything
    /// that was committed before it is durable, whatever the class.
    ///
    /// A quota counts all logs of the space, and another retention is given to all of them, also
    /// where one of them had limits of its own: that takes time, beside which commits go on. Where
    /// it is cut short, call it again. A quota that is below what there is drops nothing: it lets
    /// nothing in.
    ///
    /// # Errors
    /// [`Error::InvalidSpace`], [`Error::UnknownSpace`].
    pub fn configure(&self, config: SpaceConfig) -> Result<(), Error> {
        self.store.change_space(&self.name, config, false).map(drop)
    }

    /// Has all logs count that do not yet.
    fn enroll(&self, gives: EnrollScope) -> Result<(), Error> {
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

    /// Makes durable what its logs are by now, of a space that is kept in memory: all of them, each
    /// commit whole or not at all, written in one piece past the ring. Commits and reads go on.
    /// Happens by itself when the store is closed, and [as often as the space
    /// says](crate::MemoryConfig::dump_every).
    ///
    /// Where nothing has changed since the last dump, it writes nothing. After an error the last
    /// one counts, as before.
    ///
    /// # Errors
    /// [`Error::InvalidSpace`] where the space is not kept in memory; [`Error::Full`] where there
    /// is no room; [`Error::Stopped`].
    pub fn dump(&self) -> Result<DumpReport, Error> {
        let Some(memory_space) = self.store.inner().memory_spaces.find(self.name.as_bytes()) else {
            let class = self.info()?.config.class;
            let why =
                format!("space {} is not kept in memory, but {class:?}: there is nothing to dump", self.name);
            return Err(Error::InvalidSpace(why));
        };
        self.store.shared().dump(&memory_space)
    }

    /// [`Store::append`].
    pub fn append(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.store.append(self.key(key), payload)
    }

    /// [`Store::append_with`]: acknowledged as the space says, or as `durability` does if that
    /// promises more.
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

    /// The logs whose keys, without the space's name, start with `prefix`; they are listed without
    /// it.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Result<Logs, Error> {
        Ok(self.store.scan(self.key(prefix))?.without(self.name.len() + 1))
    }

    /// [`Store::scan_from`], of logs of the space; keys are without its name.
    pub fn scan_from(&self, prefix: impl AsRef<[u8]>, from: impl AsRef<[u8]>) -> Result<Logs, Error> {
        let logs = self.store.scan_from(self.key(prefix), self.key(from))?;
        Ok(logs.without(self.name.len() + 1))
    }
}
