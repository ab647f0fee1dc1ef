//! Spaces: named groups of logs, each with its own storage class, quotas and retention.

use std::collections::BTreeSet;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;

use crate::engine::append::Patience;
use crate::engine::beside::Cut;
use crate::engine::memory_dump::DumpReport;
use crate::error::Error;
use crate::memory_space::MemorySpace;
use crate::model::Bounds;
use crate::model::commit::{Action, Commit, Durability, EnrollScope, Op};
use crate::model::retention::Retention;
use crate::model::space_config::SEPARATOR;
use crate::model::space_config::{Class, SpaceConfig, SpaceInfo};
use crate::read::scan::{Logs, RunLogs};
use crate::read::{Entries, Entry};
use crate::run::Run;
use crate::state::spaces::{Changes, TABLE};
use crate::store::Store;
use crate::store::committing::{Appending, Committing};
use crate::store::tail::Tail;
use crate::store::ticket::Ticket;
use crate::store::wait_for::WaitingFor;
use crate::store::watch::Watch;
use crate::sync::held;

/// A named group of logs: all logs whose keys begin with the name of the space and `/`.
///
/// A call on a space has the same effect as the call on the store with the whole [key](Self::key).
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
    pub(super) store: Store,
    name: String,
}

impl Store {
    /// Creates a space. Existing logs belong to the space if their keys begin with its name and
    /// `/`. With a quota or a retention, the call also counts these logs, or sets the limits on
    /// them, and takes the time for this work.
    ///
    /// # Errors
    /// [`Error::InvalidSpace`], also if a space of this name exists. After an error in the work on
    /// existing logs, the space exists: [configure](Space::configure) it.
    pub fn create_space(&self, name: &str, config: SpaceConfig) -> Result<Space, Error> {
        self.change_space(name, config, true)
    }

    /// Returns the space of this name.
    ///
    /// # Errors
    /// [`Error::UnknownSpace`], or the error of [`spaces_error`](Self::spaces_error) in its place.
    pub fn space(&self, name: &str) -> Result<Space, Error> {
        let state = self.inner().sound_state()?;
        match state.spaces.find(name.as_bytes()) {
            Some(_) => Ok(Space { store: self.clone(), name: name.into() }),
            None => Err(state.spaces.unread().unwrap_or_else(|| Error::UnknownSpace { name: name.into() })),
        }
    }

    /// Lists all spaces, by name. If there is a [`spaces_error`](Self::spaces_error), the list may
    /// lack some.
    pub fn spaces(&self) -> Vec<SpaceInfo> {
        self.inner().spaces(usize::MAX)
    }

    /// Returns the error that kept the store from reading which spaces it has. Only a store that is
    /// open for reading can have this error: it shows all readable logs even so.
    pub fn spaces_error(&self) -> Option<Error> {
        self.inner().state().spaces.unread()
    }

    /// Removes a space. Its logs remain and keep their retention. When the call returns, they are
    /// durable.
    ///
    /// # Errors
    /// [`Error::UnknownSpace`].
    pub fn remove_space(&self, name: &str) -> Result<(), Error> {
        self.inner().may_wait()?;
        let _hush = self.inner().hush();
        let mut cut_short = held(&self.inner().configuring);
        self.inner().state().spaces.without(name)?;
        let commit = || {
            let changes = self.inner().state().spaces.without(name)?;
            self.commit_changes(&changes)
        };
        let removed = match self.inner().memory_spaces.find(name.as_bytes()) {
            Some(memory_space) => self.shared().move_out_of_memory(&memory_space, commit),
            None => commit(),
        };
        removed.map(|()| _ = cut_short.remove(name))
    }

    fn change_space(&self, name: &str, config: SpaceConfig, is_new: bool) -> Result<Space, Error> {
        config.check(name)?;
        let inner = self.inner();
        if config.class.memory().is_some() && inner.mirrored {
            let why = "a store that has a mirror, or had one, keeps no space in memory: choose another class";
            return Err(Error::InvalidSpace(why.into()));
        }
        inner.may_wait()?;
        let _hush = inner.hush();
        let mut cut_short = held(&inner.configuring);
        let (old, was_counted) = {
            let state = inner.state();
            let known = state.spaces.find(name.as_bytes()).map(|at| state.spaces.get(at));
            known.map_or_else(Default::default, |space| (space.config.clone(), space.counted))
        };
        match self.space(name) {
            Ok(_) if is_new => {
                return Err(Error::InvalidSpace(format!(
                    "space {name} exists already: configure it, or choose another name"
                )));
            }
            Ok(_) if config.rules == old.rules || config.rules.is_empty() => {}
            Ok(_) => inner.state().check_room_in_table("other rules of a space")?,
            Err(error) if !is_new => return Err(error),
            Err(_) => inner.state().check_room_in_table("one more space")?,
        }
        let with = |counted| {
            let changes = inner.state().spaces.put([(name, config.clone(), counted)])?;
            self.commit_changes(&changes)
        };
        let space = Space { store: self.clone(), name: name.into() };
        let memory_space = inner.memory_spaces.find(name.as_bytes());
        let was_counted = was_counted && memory_space.is_none();
        let changed = !config.retains_like(&old) || cut_short.contains(name);
        match (config.class, memory_space) {
            (Class::Memory(memory), Some(memory_space)) => {
                with(false)?;
                memory_space.configure(config.clone(), memory);
                let retained =
                    if changed { self.retain_in_memory(&mut cut_short, &memory_space) } else { Ok(()) };
                self.shared().see_to_dumps()?;
                return retained.map(|()| space);
            }
            (Class::Memory(memory), None) => {
                self.shared().move_into_memory(name, config.clone(), memory, || with(false)).or_else(
                    |error| {
                        // The space keeps its old class, with all commits that arrived meanwhile.
                        self.leave_memory_again(name, is_new, old).and(Err(error))
                    },
                )?;
                if changed && let Some(memory_space) = inner.memory_spaces.find(name.as_bytes()) {
                    self.retain_in_memory(&mut cut_short, &memory_space)?;
                }
                return Ok(space);
            }
            // New logs get their limits at creation from here on; existing logs get them below.
            (_, Some(memory_space)) => self.shared().move_out_of_memory(&memory_space, || with(false))?,
            (_, None) => with(config.has_quota() && was_counted)?,
        }
        let counts = config.has_quota() && !was_counted;
        if changed {
            self.retain(&mut cut_short, &space, &config, old, !counts)?;
        } else if counts {
            space.enroll(EnrollScope::None)?;
        }
        let counted = if counts { with(true) } else { Ok(()) };
        counted.map(|()| space)
    }

    /// Sets the new retention of a space in memory on its logs, and dumps them. After a kill, the
    /// table of spaces has this retention, and the logs are those of the last dump. Without room
    /// for the dump, the retention holds all the same: it may free memory. After another error, the
    /// space is `cut_short`: the next call dumps it.
    fn retain_in_memory(&self, cut_short: &mut BTreeSet<String>, space: &MemorySpace) -> Result<(), Error> {
        let inner = self.shared();
        cut_short.insert(space.name.clone());
        space.retain_all(&|| inner.now());
        match inner.dump(space) {
            Err(error @ Error::Full { .. }) => {
                tracing::warn!(space = space.name, %error, "no dump of a space has its new retention");
            }
            dumped => _ = dumped?,
        }
        cut_short.remove(&space.name);
        Ok(())
    }

    /// Sets the new retention of a space on all logs; `counted`: all logs are counted already. If
    /// an error ends this early, the space gets its old retention again, and is `cut_short`: so the
    /// next call sets its retention on all logs, be it the new one or the old one.
    fn retain(
        &self,
        cut_short: &mut BTreeSet<String>,
        space: &Space,
        new: &SpaceConfig,
        old: SpaceConfig,
        counted: bool,
    ) -> Result<(), Error> {
        cut_short.remove(&space.name);
        let Err(error) = space.enroll(EnrollScope::All) else { return Ok(()) };
        // Another call would meet damage again, and new logs are to get the limits.
        if !matches!(error, Error::Damaged { .. } | Error::NewerFormat { .. }) {
            cut_short.insert(space.name.clone());
            let config = SpaceConfig { retention: old.retention, rules: old.rules, ..new.clone() };
            let counted = counted && config.has_quota();
            let changes = self.inner().state().spaces.put([(&*space.name, config, counted)])?;
            self.commit_changes(&changes)?;
        }
        Err(error)
    }

    /// Restores the old configuration of a space that could not be moved into memory.
    fn leave_memory_again(&self, name: &str, is_new: bool, old: SpaceConfig) -> Result<(), Error> {
        let Some(memory_space) = self.inner().memory_spaces.find(name.as_bytes()) else { return Ok(()) };
        self.shared().move_out_of_memory(&memory_space, || {
            let changes = match is_new {
                true => self.inner().state().spaces.without(name)?,
                false => self.inner().state().spaces.put([(name, old.clone(), false)])?,
            };
            self.commit_changes(&changes)
        })?;
        // The space counts anew since it left memory.
        if is_new || !old.has_quota() || bug("left-memory-counts-nothing") {
            return Ok(());
        }
        Space { store: self.clone(), name: name.into() }.enroll(EnrollScope::None)?;
        let changes = self.inner().state().spaces.put([(name, old, true)])?;
        self.commit_changes(&changes)
    }

    /// Ingests an import. The imported logs then count in their spaces, and logs without a limit
    /// get the retention of their spaces. Returns whether they do: an error of that work does not
    /// undo the import.
    pub(crate) fn ingest_into_spaces(
        &self,
        import: &Arc<Run>,
        ingest: impl FnOnce() -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let _hush = self.inner().hush();
        let _alone = held(&self.inner().configuring);
        if self.inner().mirrored {
            let why = "a store that has a mirror, or had one, takes no import, which its log does not hold: append the entries, or import into a copy of the store";
            return Err(Error::InvalidImport(why.into()));
        }
        let mut entered = Vec::new();
        let spaces: Vec<_> = self.inner().state().spaces.configs().collect();
        for (name, config) in spaces {
            let space = Space { store: self.clone(), name };
            let prefix = space.key("");
            let logs = RunLogs::new(import, &prefix)?;
            let enters = logs.current.is_some_and(|(key, _)| key.starts_with(&prefix));
            if enters && config.class.memory().is_some() {
                return Err(Error::InMemory { space: space.name });
            }
            if enters && (config.has_quota() || config.limits_logs()) {
                entered.push((space, config));
            }
        }
        let tell = |counted| {
            let counting = entered.iter().filter(|(_, config)| config.has_quota());
            let counting = counting.map(|(space, config)| (&*space.name, config.clone(), counted));
            let changes = self.inner().state().spaces.put(counting)?;
            self.commit_changes(&changes)
        };
        if entered.is_empty() {
            return ingest().map(|()| true);
        }
        // Until these logs are enrolled, the totals of the spaces are unknown.
        tell(false)?;
        let ingested = ingest();
        let enrolled = entered.iter().try_for_each(|(space, _)| space.enroll(EnrollScope::Unlimited));
        let enrolled = enrolled.and_then(|()| tell(true));
        if let Err(error) = &enrolled {
            tracing::warn!(%error, "the spaces of an import do not count its logs; configure the spaces again");
        }
        ingested.map(|()| enrolled.is_ok())
    }

    /// Commits changes of the spaces, and makes all earlier commits durable.
    fn commit_changes(&self, changes: &Changes) -> Result<(), Error> {
        let changes = changes.encode();
        let op = Op { key: TABLE, action: Action::Snapshot(&changes) };
        self.inner().append(&[op], Some(Durability::Durable), Patience::Room, None)?;
        self.inner().flush()
    }
}

impl Space {
    /// Returns the name of the space.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the whole key of a log, for [`Commit`]s and calls of the [`Store`].
    pub fn key(&self, key: impl AsRef<[u8]>) -> Vec<u8> {
        [self.name.as_bytes(), &[SEPARATOR], key.as_ref()].concat()
    }

    /// Returns the configuration of the space, and its activity since the store was opened.
    ///
    /// # Errors
    /// [`Error::UnknownSpace`] if the space was removed.
    pub fn info(&self) -> Result<SpaceInfo, Error> {
        self.store.inner().here()?;
        self.store
            .inner()
            .space_info(&self.name)
            .ok_or_else(|| Error::UnknownSpace { name: self.name.clone() })
    }

    /// Changes the configuration of the space, while its logs are in use. When the call returns,
    /// all earlier commits are durable, whatever the class. If the space stays in memory, they are
    /// so only after a changed retention, for which the store dumps the space if there is room.
    ///
    /// For a quota, the call counts all logs of the space. A changed retention is set on all logs
    /// of the space, and replaces the limits of logs that had their own. This work takes time;
    /// commits continue meanwhile. If an error ends the call early, call it again, or call it with
    /// the old retention: the space has its old retention until then, and some logs may have the
    /// new one, unless data is damaged. If the process ends meanwhile, configure another retention
    /// first. A quota below the current content drops nothing: the store refuses new content.
    ///
    /// # Errors
    /// [`Error::InvalidSpace`], [`Error::UnknownSpace`].
    pub fn configure(&self, config: SpaceConfig) -> Result<(), Error> {
        self.store.change_space(&self.name, config, false).map(drop)
    }

    /// Makes the logs of a space durable that is kept in memory: all logs, and each commit whole or
    /// not at all. The store writes the dump in one piece, and does not use the ring for it.
    /// Commits and reads continue. The store also dumps the space when the store is closed, and at
    /// [the configured interval](crate::MemoryConfig::dump_every).
    ///
    /// If nothing has changed since the last dump, the call writes nothing. After an error, the
    /// last dump remains valid.
    ///
    /// # Errors
    /// [`Error::InvalidSpace`] if the space is not kept in memory; [`Error::Full`] if no room is
    /// left; [`Error::Stopped`].
    pub fn dump(&self) -> Result<DumpReport, Error> {
        let Some(memory_space) = self.store.inner().memory_spaces.find(self.name.as_bytes()) else {
            let class = self.info()?.config.class;
            let why =
                format!("space {} has class {class:?}: dump only spaces that are kept in memory", self.name);
            return Err(Error::InvalidSpace(why));
        };
        self.store.shared().dump(&memory_space)
    }

    /// Appends an entry, like [`Store::append`].
    pub fn append(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.store.append(self.key(key), payload)
    }

    /// Appends an entry, like [`Store::append_with`]. The write is acknowledged as the space says,
    /// or as `durability` says if `durability` promises more.
    pub fn append_with(
        &self,
        key: impl AsRef<[u8]>,
        payload: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Ticket, Error> {
        self.store.append_with(self.key(key), payload, durability)
    }

    /// Commits operations, like [`Store::commit`]. The keys of `commit` are keys of logs of this
    /// space, without its name.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// use brooklet::{Commit, SpaceConfig};
    /// let games = store.create_space("games", SpaceConfig::new())?;
    /// let mut commit = Commit::new();
    /// commit.append("7", "e4").append("feed", "7: e4");
    /// games.commit(&commit)?.wait()?;
    /// assert_eq!(store.bounds("games/7")?.next, 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn commit(&self, commit: &Commit) -> Result<Ticket, Error> {
        self.store.commit(&commit.below(&self.key("")))
    }

    /// Prepares a long commit on logs of the space; see [`Store::prepare`].
    ///
    /// # Errors
    /// The errors of [`Store::prepare`].
    pub fn prepare(&self, commit: &mut Commit) -> Result<(), Error> {
        commit.set_rehearsal(self.store.rehearse(&commit.below(&self.key("")))?);
        Ok(())
    }

    /// Commits operations, like [`Store::try_commit`], with keys as in [`commit`](Self::commit).
    pub fn try_commit(&self, commit: &Commit) -> Result<Ticket, Error> {
        self.store.try_commit(&commit.below(&self.key("")))
    }

    /// Commits operations in a task, like [`Store::commit_async`], with keys as in
    /// [`commit`](Self::commit).
    pub fn commit_async(&self, commit: Commit) -> Committing {
        self.store.commit_async(commit.below(&self.key("")))
    }

    /// Appends an entry in a task, like [`Store::append_async`].
    pub fn append_async(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Appending {
        self.store.append_async(self.key(key), payload)
    }

    /// Appends several entries, like [`Store::append_many`].
    pub fn append_many<P: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<Ticket, Error> {
        self.store.append_many(self.key(key), payloads)
    }

    /// Appends an entry and drops all entries before it, like [`Store::snapshot`].
    pub fn snapshot(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.store.snapshot(self.key(key), payload)
    }

    /// Appends an entry and drops all entries before it, like [`Store::snapshot_with`].
    pub fn snapshot_with(
        &self,
        key: impl AsRef<[u8]>,
        payload: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Ticket, Error> {
        self.store.snapshot_with(self.key(key), payload, durability)
    }

    /// Drops entries, like [`Store::trim`].
    pub fn trim(&self, key: impl AsRef<[u8]>, before: u64) -> Result<Ticket, Error> {
        self.store.trim(self.key(key), before)
    }

    /// Drops all entries except the last `n`, like [`Store::keep_last`].
    pub fn keep_last(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Ticket, Error> {
        self.store.keep_last(self.key(key), n)
    }

    /// Makes a log begin at number `first`, like [`Store::begin_at`].
    pub fn begin_at(&self, key: impl AsRef<[u8]>, first: u64) -> Result<Ticket, Error> {
        self.store.begin_at(self.key(key), first)
    }

    /// Drops the entries from number `from` on, like [`Store::truncate`].
    pub fn truncate(&self, key: impl AsRef<[u8]>, from: u64) -> Result<Ticket, Error> {
        self.store.truncate(self.key(key), from)
    }

    /// Sets the retention of a log, like [`Store::set_retention`].
    pub fn set_retention(&self, key: impl AsRef<[u8]>, retention: Retention) -> Result<Ticket, Error> {
        self.store.set_retention(self.key(key), retention)
    }

    /// Deletes a log, like [`Store::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.store.delete(self.key(key))
    }

    /// Reads entries, like [`Store::read`].
    pub fn read(&self, key: impl AsRef<[u8]>, range: impl RangeBounds<u64>) -> Result<Entries, Error> {
        self.store.read(self.key(key), range)
    }

    /// Reads the entries of a range that the log has, like [`Store::read_available`].
    pub fn read_available(
        &self,
        key: impl AsRef<[u8]>,
        range: impl RangeBounds<u64>,
    ) -> Result<Entries, Error> {
        self.store.read_available(self.key(key), range)
    }

    /// Reads all entries of several logs, like [`Store::read_many`].
    pub fn read_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Entries>, Error> {
        self.store.read_many(keys.into_iter().map(|key| self.key(key)))
    }

    /// Returns the first entry of a log, like [`Store::first`].
    pub fn first(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>, Error> {
        self.store.first(self.key(key))
    }

    /// Returns the last entry of a log, like [`Store::last`].
    pub fn last(&self, key: impl AsRef<[u8]>) -> Result<Option<Entry>, Error> {
        self.store.last(self.key(key))
    }

    /// Returns the log's first and next numbers, like [`Store::bounds`].
    pub fn bounds(&self, key: impl AsRef<[u8]>) -> Result<Bounds, Error> {
        self.store.bounds(self.key(key))
    }

    /// Returns the log's first and next numbers, like [`Store::get_bounds`].
    pub fn get_bounds(&self, key: impl AsRef<[u8]>) -> Result<Option<Bounds>, Error> {
        self.store.get_bounds(self.key(key))
    }

    /// Returns the bounds of several logs, like [`Store::bounds_many`].
    pub fn bounds_many<K: AsRef<[u8]>>(
        &self,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<Bounds>>, Error> {
        self.store.bounds_many(keys.into_iter().map(|key| self.key(key)))
    }

    /// Returns whether the log exists, like [`Store::exists`].
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.store.exists(self.key(key))
    }

    /// Returns the retention of the log, like [`Store::retention`].
    pub fn retention(&self, key: impl AsRef<[u8]>) -> Result<Retention, Error> {
        self.store.retention(self.key(key))
    }

    /// Follows a log, like [`Store::tail`].
    pub fn tail(&self, key: impl AsRef<[u8]>, from: u64) -> Result<Tail, Error> {
        self.store.tail(self.key(key), from)
    }

    /// Reads entries that may not be durable yet, like [`Store::read_appended`].
    pub fn read_appended(
        &self,
        key: impl AsRef<[u8]>,
        range: impl RangeBounds<u64>,
    ) -> Result<Entries, Error> {
        self.store.read_appended(self.key(key), range)
    }

    /// Returns the log's first and next numbers after all accepted commits, like
    /// [`Store::bounds_appended`].
    pub fn bounds_appended(&self, key: impl AsRef<[u8]>) -> Result<Option<Bounds>, Error> {
        self.store.bounds_appended(self.key(key))
    }

    /// Waits until a log has reached a number, like [`Store::wait_for`].
    pub fn wait_for(&self, key: impl AsRef<[u8]>, next: u64, timeout: Duration) -> Result<bool, Error> {
        self.store.wait_for(self.key(key), next, timeout)
    }

    /// Waits in a task until a log has reached a number, like [`Store::wait_for_async`].
    pub fn wait_for_async(&self, key: impl AsRef<[u8]>, next: u64) -> WaitingFor {
        self.store.wait_for_async(self.key(key), next)
    }

    /// Returns which entries a log lost at its end, like [`Store::cut_since`]. Of `earlier`, only
    /// the moment counts at which its store was opened.
    pub fn cut_since(&self, earlier: &Self, key: impl AsRef<[u8]>) -> Result<Cut, Error> {
        self.store.cut_since(&earlier.store, self.key(key))
    }

    /// Watches the logs whose keys, without the space's name, start with `prefix`, like
    /// [`Store::watch`]. The returned keys omit the name.
    pub fn watch(&self, prefix: impl AsRef<[u8]>) -> Result<Watch, Error> {
        self.store.watch_below(&self.key(prefix), self.name.len() + 1)
    }

    /// Lists the logs whose keys, without the space's name, start with `prefix`. The listed keys
    /// omit the name.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Result<Logs, Error> {
        Ok(self.store.scan(self.key(prefix))?.without(self.name.len() + 1))
    }

    /// Lists logs of the space, like [`Store::scan_from`]. The listed keys omit the name of the
    /// space.
    pub fn scan_from(&self, prefix: impl AsRef<[u8]>, from: impl AsRef<[u8]>) -> Result<Logs, Error> {
        let logs = self.store.scan_from(self.key(prefix), self.key(from))?;
        Ok(logs.without(self.name.len() + 1))
    }
}

#[cfg(test)]
mod tests;
