//! Memory spaces: the logs of a space that is kept in memory. A memory space is a state machine
//! under one lock; `engine/memory.rs` drives it.
//!
//! A memory space is a layer above the store's runs, like a memtable: its logs count, and all other
//! logs are looked up in the runs. It is a memtable without a ring below. Logs enter it as a whole,
//! and from time to time it is written to a run as a whole, while all other work continues
//! (`memory_space/dump.rs`). So a space enters memory log by log as its logs are used, and leaves
//! memory with one dump. Opening a store finds the state of the last dump.
//!
//! Invariants:
//! 1. A log in memory is there as a whole; no run counts for it.
//! 2. A log that is not in memory and was deleted since the last dump is in `tombstones`, if runs
//!    may know it.
//! 3. Once a memory space is `complete`, a log that is neither in memory nor in `tombstones` does
//!    not exist.
//! 4. A commit takes effect as a whole or not at all, also in a dump: a dump writes each log as of
//!    one moment.

pub mod commit;
pub mod dump;
pub mod log;
pub mod retention;
pub mod slots;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use brooklet_io::seeded::bug;

use crate::error::Error;
use crate::memory_space::dump::{Cut, SLOTS};
use crate::memory_space::log::Frozen;
use crate::memory_space::log::Log;
use crate::memory_space::slots::{COST, Place, Places, Slot};
use crate::model::Bounds;
use crate::model::commit::Op;
use crate::model::key::Key;
use crate::model::retention::Retention;
use crate::model::retention_state::{RetentionState, State};
use crate::model::space_config::{MemoryConfig, SEPARATOR, SpaceConfig};
use crate::model::space_config::{MemoryInfo, SpaceInfo};
use crate::read::scan::Listed;
use crate::sync::{Mutex, MutexGuard};

/// The logs of one space.
pub(crate) struct MemorySpace {
    pub name: String,
    prefix: Vec<u8>,
    logs: Mutex<Logs>,
    /// Held while the space moves between classes: writers wait for it.
    pub moving: Mutex<()>,
    /// Held during a dump of the space, and by a commit whose look-ups dumps made void again and
    /// again.
    pub dumping: Mutex<()>,
}

/// The phase of a memory space, which determines whether it accepts commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The space is being moved: commits wait.
    Moving,
    Open,
    /// The space was moved, and this is no longer a memory space of the store.
    Moved,
    /// The store was closed.
    Closed,
}

pub(crate) struct Logs {
    prefix: Vec<u8>,
    pub config: MemoryConfig,
    pub space: SpaceConfig,
    pub phase: Phase,
    /// Whether a log that is neither in memory nor in `tombstones` does not exist.
    pub complete: bool,
    /// Whether runs hold all commits from before the space was in memory, and no memtable holds any
    /// of them.
    pub settled: bool,
    /// Whether unreadable logs in the runs are left alone, because they are the logs of a dump.
    pub sets_aside: bool,
    /// Runs that no longer count after a dump of a complete memory space.
    pub supersedes: Vec<u64>,
    /// The time when the last dump began, by the monotonic clock.
    pub dumped_at: Duration,
    places: Places,
    tombstones: BTreeSet<Vec<u8>>,
    /// Logs that no run has, while a commit goes on that looked them up.
    absent: BTreeSet<Vec<u8>>,
    /// Logs that only the runs have, while a commit goes on that needs nothing of them but these
    /// bounds. The generation is that of the look-up.
    below: BTreeMap<Vec<u8>, (Bounds, u32)>,
    /// Memory of the logs, and their payloads, both in bytes.
    memory: usize,
    bytes: u64,
    /// Number of started dumps, from 1. A log that was created in an earlier generation may be in
    /// runs.
    generation: u32,
    /// Whether a log has changed since the last successful dump began.
    changed: bool,
    /// Logs that were dropped because memory was full, until their readers are notified.
    pub dropped: Vec<Box<[u8]>>,
    cut: Option<Cut>,
    /// Number of logs with a limit of age.
    aged: usize,
    /// The slot of the next log whose entries may be too old.
    to_expire: Slot,
    /// While all logs get another retention: the logs that may have changed their slots meanwhile.
    moved: Option<BTreeSet<Vec<u8>>>,
    pub counts: Counts,
}

/// Counters since the store was opened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub appended: u64,
    pub appended_bytes: u64,
    pub reads: u64,
    pub refused: u64,
    /// Number of logs that were dropped because memory was full.
    pub dropped: u64,
    pub dumps: u64,
}

/// The result of a look-up in a memory space.
pub(crate) enum Lookup<T> {
    Here(T),
    /// The log does not exist.
    Gone,
    /// The state in runs and memtables counts.
    Below,
}

/// The reason why a commit did not take effect.
pub(crate) enum Rejected {
    Error(Error),
    /// The space is being moved, or was.
    Phase(Phase),
    /// The states of some logs must be loaded from the runs first: the indexes of their operations,
    /// and the generation of the check.
    Below(Vec<usize>, u32),
}

impl From<Error> for Rejected {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl MemorySpace {
    pub fn new(name: &str, space: SpaceConfig, config: MemoryConfig, phase: Phase, seed: u64) -> Self {
        let prefix = [name.as_bytes(), &[SEPARATOR]].concat();
        let logs = Logs {
            prefix: prefix.clone(),
            config,
            space,
            phase,
            complete: false,
            settled: false,
            sets_aside: false,
            supersedes: Vec::new(),
            dumped_at: Duration::ZERO,
            places: Places::new(seed),
            tombstones: BTreeSet::new(),
            absent: BTreeSet::new(),
            below: BTreeMap::new(),
            memory: 0,
            bytes: 0,
            generation: 1,
            changed: false,
            dropped: Vec::new(),
            cut: None,
            aged: 0,
            to_expire: 0,
            moved: None,
            counts: Counts::default(),
        };
        let [moving, dumping] = Default::default();
        Self { name: name.into(), prefix, logs: Mutex::new(logs), moving, dumping }
    }

    /// Sets the configuration of the space.
    pub fn configure(&self, space: SpaceConfig, config: MemoryConfig) {
        let mut logs = self.logs();
        (logs.space, logs.config) = (space, config);
    }

    /// Sets the retention of the space on all logs, some at a time: commits and reads continue in
    /// between. Logs that are created meanwhile have the retention already.
    pub fn retain_all(&self, now: &dyn Fn() -> u64) {
        self.logs().moved = Some(BTreeSet::new());
        let mut next = Some(0);
        while let Some(slot) = next {
            next = self.logs().retain_some(slot, now);
        }
        self.logs().retain_moved(now);
    }

    /// Drops the entries that are too old from all logs, some logs at a time.
    pub fn expire_all(&self, now: &dyn Fn() -> u64) {
        let mut next = Some(0);
        while let Some(slot) = next {
            next = self.logs().expire_slots(slot, now);
        }
    }

    /// Returns the prefix of the keys of its logs.
    pub fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// Locks and returns the logs.
    ///
    /// # Panics
    /// If a thread panicked while it changed the logs.
    pub fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().expect("no panics")
    }

    /// Returns whether no thread panicked while it changed the logs.
    pub fn is_sound(&self) -> bool {
        self.logs.lock().is_ok()
    }
}

impl std::fmt::Debug for MemorySpace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MemorySpace({})", self.name)
    }
}

impl Logs {
    /// Adds the state and the counters of these logs to the report on their space.
    pub fn report(&self, info: &mut SpaceInfo) {
        let Counts { appended, appended_bytes, reads, refused, dropped, dumps } = self.counts;
        (info.appended, info.appended_bytes) = (appended, appended_bytes);
        (info.reads, info.refused) = (reads, refused);
        (info.logs, info.bytes) = (Some(self.len() as u64), Some(self.bytes()));
        let (used, complete, changed) = (self.memory() as u64, self.complete, self.is_changed());
        info.memory = Some(MemoryInfo { used, complete, changed, dumps, dropped });
    }
}

impl Logs {
    pub fn memory(&self) -> usize {
        self.memory
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the bounds of a log in memory.
    pub fn bounds(&self, key: &[u8]) -> Option<Bounds> {
        self.places.find(key).map(|slot| self.places.get(slot).log.bounds())
    }

    /// Returns whether a dump would write changes since the last dump.
    pub fn is_changed(&self) -> bool {
        self.changed
    }

    fn create(&mut self, key: &[u8], now: &dyn Fn() -> u64) -> Slot {
        let given = self.space.retention_of(&key[self.prefix.len()..]);
        let limited = Some(given).filter(Retention::is_limited);
        let terms = limited.and_then(|retention| RetentionState::of(retention, Bounds::default(), 0, now()));
        self.put(key, Log::empty_at(0, terms), self.generation)
    }

    fn put(&mut self, key: &[u8], log: Log, created: u32) -> Slot {
        self.memory += COST + log.memory();
        self.aged += usize::from(log.is_aged());
        let Bounds { first, next } = log.bounds();
        self.bytes += log.sum(first..next);
        let slot = self.places.add(key, log, created, self.generation);
        self.memory += self.places.get(slot).key.bytes_apart();
        slot
    }

    /// Changes a log with `how`, which returns the difference of its payload bytes.
    fn change(&mut self, slot: Slot, how: impl FnOnce(&mut Log) -> i64) {
        self.keep_for_cut(slot);
        self.alter(slot, how);
    }

    /// Changes a log like [`change`](Self::change), but a running dump sees the change.
    fn alter(&mut self, slot: Slot, how: impl FnOnce(&mut Log) -> i64) {
        let log = &mut self.places.get_mut(slot).log;
        let (before, was_aged) = (log.memory(), log.is_aged());
        let bytes = how(log);
        self.memory = self.memory + log.memory() - before;
        self.aged = self.aged + usize::from(log.is_aged()) - usize::from(was_aged);
        self.bytes = self.bytes.saturating_add_signed(bytes);
    }

    fn remove(&mut self, slot: Slot) {
        self.keep_for_cut(slot);
        let place = self.take_out(slot);
        if place.created < self.generation {
            self.forget(&place.key);
        }
    }

    fn take_out(&mut self, slot: Slot) -> Place {
        let place = self.places.remove(slot);
        let Bounds { first, next } = place.log.bounds();
        self.bytes -= place.log.sum(first..next);
        self.memory -= cost_of(&place);
        self.aged -= usize::from(place.log.is_aged());
        place
    }

    /// Adds a tombstone for a log that does not exist and may be in runs.
    fn forget(&mut self, key: &[u8]) {
        if self.tombstones.insert(key.to_vec()) {
            self.memory += tombstone_cost(key);
        }
    }

    /// Adds a log that was loaded from the runs, unless another call has added it. Returns `false`
    /// if the log does not fit in memory.
    pub fn bring(&mut self, key: &[u8], log: Option<LoadedLog>, generation: u32) -> bool {
        self.bring_into(key, log, generation, |_, _| false)
    }

    /// Adds a tombstone for a log that the runs have and that cannot be read, unless another call
    /// has added the log.
    pub fn set_aside(&mut self, key: &[u8], generation: u32) {
        if generation == self.generation && matches!(self.state(key), Lookup::Below) {
            self.forget(key);
        }
    }

    /// Ends the look-ups for a commit. A later commit looks the logs that are not here up again.
    pub fn end_look_ups(&mut self, ops: &[Op<'_>]) {
        if self.absent.is_empty() && self.below.is_empty() {
            return;
        }
        for op in ops {
            self.absent.remove(op.key);
            self.below.remove(op.key);
        }
    }

    /// Marks the logs of a commit as written now. Returns the newest stamp of older writes.
    pub fn keep(&mut self, ops: &[Op<'_>]) -> u64 {
        let before = self.places.stamp();
        for op in ops {
            if let Some(slot) = self.places.find(op.key) {
                self.places.touch(slot);
            }
        }
        before
    }

    /// Adds a log like [`bring`](Self::bring), for the commit `ops`. If memory is full and the
    /// space drops logs, drops older logs than those of the commit: logs that were last written at
    /// `before`, or before now if that does not suffice.
    pub fn bring_for(
        &mut self,
        (ops, nth): (&[Op<'_>], usize),
        log: Option<LoadedLog>,
        generation: u32,
        before: &mut u64,
    ) -> bool {
        let fits = self.bring_into(ops[nth].key, log, generation, |logs, excess| {
            logs.drop_older(*before, excess) || {
                *before = logs.keep(ops);
                logs.drop_older(*before, excess)
            }
        });
        self.counts.refused += u64::from(!fits);
        fits
    }

    /// Adds a log. `make_room` frees a number of bytes, and returns whether it could free them.
    fn bring_into(
        &mut self,
        key: &[u8],
        log: Option<LoadedLog>,
        generation: u32,
        make_room: impl FnOnce(&mut Self, usize) -> bool,
    ) -> bool {
        let unknown = self.places.find(key).is_none() && bug("stale-log-is-brought");
        if !unknown && (generation != self.generation || !matches!(self.state(key), Lookup::Below)) {
            return true;
        }
        let Some(LoadedLog { log }) = log else {
            // A tombstone would stay until the next dump, and there may be ever more of them.
            self.absent.insert(key.to_vec());
            return true;
        };
        let needed = COST + log.memory() + Key::from(key).bytes_apart();
        let excess = (self.memory + needed).saturating_sub(self.config.bytes as usize);
        let fits = excess == 0 || make_room(self, excess);
        if fits {
            self.put(key, log, 0);
        }
        fits
    }

    /// Sets the retention of the space on the logs of some slots, from `from` on. Returns the slot
    /// to continue at.
    fn retain_some(&mut self, from: Slot, now: &dyn Fn() -> u64) -> Option<Slot> {
        let end = self.places.end().min(from.saturating_add(SLOTS));
        for slot in from..end {
            self.retain(slot, now);
        }
        self.changed = true;
        (end < self.places.end()).then_some(end)
    }

    /// Sets the retention of the space on the logs that may have changed their slots since the
    /// first ones got it.
    fn retain_moved(&mut self, now: &dyn Fn() -> u64) {
        for key in self.moved.take().unwrap_or_default() {
            if let Some(slot) = self.places.find(&key) {
                self.retain(slot, now);
            }
        }
    }

    fn retain(&mut self, slot: Slot, now: &dyn Fn() -> u64) {
        if let Some(place) = self.places.occupied(slot) {
            let retention = self.space.retention_of(&place.key[self.prefix.len()..]);
            self.change(slot, |log| -(log.retain(retention, now) as i64));
        }
    }

    /// Drops the entries of a log that are too old.
    fn expire(&mut self, slot: Slot, now: &dyn Fn() -> u64) {
        let place = self.places.get(slot);
        if place.log.is_aged() && place.log.kept(now) > place.log.bounds().first {
            self.alter(slot, |log| -(log.limit(now) as i64));
        }
    }

    /// Drops the entries that are too old from the logs of some slots, from `from` on. Returns the
    /// slot to continue at.
    fn expire_slots(&mut self, from: Slot, now: &dyn Fn() -> u64) -> Option<Slot> {
        if self.aged == 0 {
            return None;
        }
        let end = self.places.end().min(from.saturating_add(SLOTS));
        for slot in from..end {
            if self.places.occupied(slot).is_some() {
                self.expire(slot, now);
            }
        }
        (end < self.places.end()).then_some(end)
    }

    /// Drops the entries that are too old from the next logs, until there is no
    /// [excess](Self::excess). After the last log, the first one is the next.
    fn expire_some(&mut self, now: &dyn Fn() -> u64) {
        if self.aged == 0 {
            return;
        }
        let all = self.places.end();
        for _ in 0..all.min(SLOTS) {
            if self.excess() == 0 {
                return;
            }
            // Slots at the end may have been given back since.
            let slot = if self.to_expire < all { self.to_expire } else { 0 };
            self.to_expire = slot + 1;
            if self.places.occupied(slot).is_some() {
                self.expire(slot, now);
            }
        }
    }

    fn is_tombstone(&self, key: &[u8]) -> bool {
        self.tombstones.contains(key) || self.cut.as_ref().is_some_and(|cut| cut.tombstones.contains(key))
    }

    fn lookup(&self, key: &[u8]) -> Lookup<&Log> {
        match self.places.find(key) {
            Some(slot) => Lookup::Here(&self.places.get(slot).log),
            None if self.complete || self.is_tombstone(key) || self.absent.contains(key) => Lookup::Gone,
            None => Lookup::Below,
        }
    }

    /// Returns the state of a log.
    pub fn state(&self, key: &[u8]) -> Lookup<State> {
        self.lookup(key).map(|log| State { bounds: Some(log.bounds()), terms: log.terms().cloned() })
    }

    /// Returns the entries that `wanted` selects by the bounds of a log at `now`.
    pub fn read<E>(
        &mut self,
        key: &[u8],
        now: u64,
        wanted: impl FnOnce(Bounds) -> Result<Range<u64>, E>,
    ) -> Result<Lookup<(Frozen, Range<u64>)>, E> {
        self.counts.reads += 1;
        Ok(match self.lookup(key) {
            Lookup::Here(log) => {
                let range = wanted(log.shown(now))?;
                Lookup::Here((log.freeze(range.clone()), range))
            }
            Lookup::Gone => Lookup::Gone,
            Lookup::Below => Lookup::Below,
        })
    }

    /// Returns the states of the listed logs in memory, and of listed tombstones, in no order.
    pub fn states(&self, listed: &Listed) -> Vec<(Vec<u8>, State)> {
        let here = self.places.iter().filter(|place| listed.has(&place.key)).map(|place| {
            let state = State { bounds: Some(place.log.bounds()), terms: place.log.terms().cloned() };
            (place.key.to_vec(), state)
        });
        let tombstones = self.tombstones.iter().chain(self.cut.iter().flat_map(|cut| &cut.tombstones));
        let tombstones = tombstones.filter(|key| listed.has(key) && self.places.find(key).is_none());
        here.chain(tombstones.map(|key| (key.clone(), State::default()))).collect()
    }
}

/// A log that is being loaded from the runs.
pub(crate) struct LoadedLog {
    log: Log,
}

impl LoadedLog {
    /// Creates a log that begins at `first`. Its entries are [pushed](Self::push) next.
    pub fn new(first: u64, terms: Option<&RetentionState>) -> Self {
        Self { log: Log::empty_at(first, terms.and_then(RetentionState::carried_over).map(Into::into)) }
    }

    pub fn push(&mut self, payload: &[u8]) {
        self.log.push(payload);
    }

    /// Returns whether the log alone takes more than `limit` bytes of memory. It fits nowhere then,
    /// and the rest need not be loaded.
    pub fn exceeds(&self, limit: u64) -> bool {
        self.log.memory() as u64 > limit
    }
}

impl<T> Lookup<T> {
    fn map<U>(self, how: impl FnOnce(T) -> U) -> Lookup<U> {
        match self {
            Lookup::Here(it) => Lookup::Here(how(it)),
            Lookup::Gone => Lookup::Gone,
            Lookup::Below => Lookup::Below,
        }
    }
}

/// Returns the memory of a log, in bytes.
fn cost_of(place: &Place) -> usize {
    COST + place.log.memory() + place.key.bytes_apart()
}

/// Returns the memory of a tombstone, in bytes.
fn tombstone_cost(key: &[u8]) -> usize {
    key.len() + 48
}

#[cfg(test)]
mod tests;
