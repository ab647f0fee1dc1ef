//! Memory spaces: routes commits and reads to a [memory space](crate::memory_space), and moves logs
//! into a memory space and out of it. `engine/memory_dump.rs` writes dumps.
//!
//! The store finds memory spaces by the names of their spaces. If the space of a log has a memory
//! space, the commit or read goes there, and otherwise to the ring. Both check again under their
//! own lock, so a change of the space in between does no harm.

use std::mem;
use std::sync::{Arc, PoisonError};

use brooklet_wal::{Hush, Waiters};

use crate::counters::{Stall, StallReason};
use crate::engine::Inner;
use crate::engine::append::Patience;
use crate::error::{Error, KeyText};
use crate::memory_space::commit::need_entries;
use crate::memory_space::{LoadedLog, Logs, Lookup, MemorySpace, Phase, Rejected};
use crate::memtable::seqs::Seqs;
use crate::model::commit::{Action, Durability, Op};
use crate::model::retention_state::State;
use crate::model::space_config::{MAX_NAME, SEPARATOR};
use crate::model::{Bounds, Effect};
use crate::read::asked::Asked;
use crate::read::scan::Listed;
use crate::read::{Entries, ReadView};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{MutexGuard, RwLock, held};

/// The memory spaces of a store.
#[derive(Default)]
pub(crate) struct MemorySpaces {
    /// The memory spaces, sorted by name.
    all: RwLock<Vec<Arc<MemorySpace>>>,
    /// Whether there are any memory spaces. Most stores have none, and skip the look-up.
    any: AtomicBool,
    /// Number of reads that memory spaces answered, including memory spaces that no longer exist.
    reads: AtomicU64,
}

impl MemorySpaces {
    pub fn all(&self) -> Vec<Arc<MemorySpace>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn find(&self, name: &[u8]) -> Option<Arc<MemorySpace>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let all = self.all.read().unwrap_or_else(PoisonError::into_inner);
        let at = all.binary_search_by(|memory_space| memory_space.name.as_bytes().cmp(name)).ok()?;
        Some(all[at].clone())
    }

    /// Returns the memory space that has the log of this key.
    pub fn of(&self, key: &[u8]) -> Option<Arc<MemorySpace>> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        self.find(&key[..key.iter().take(MAX_NAME + 1).position(|&byte| byte == SEPARATOR)?])
    }

    /// Returns the memory space that has the logs of all these operations, or `None` if no memory
    /// space has any of them.
    fn of_all(&self, ops: &[Op<'_>]) -> Result<Option<Arc<MemorySpace>>, Error> {
        let Some(first) = ops.first().filter(|_| self.any.load(Ordering::Acquire)) else { return Ok(None) };
        let memory_space = self.of(first.key);
        for op in &ops[1..] {
            let other = match &memory_space {
                Some(memory_space) if op.key.starts_with(memory_space.prefix()) => continue,
                Some(memory_space) => Some(memory_space.clone()),
                None => self.of(op.key),
            };
            if let Some(other) = other {
                return Err(Error::MixedSpaces { space: other.name.clone() });
            }
        }
        Ok(memory_space)
    }

    fn note<T>(&self, said: &Lookup<T>) {
        if !matches!(said, Lookup::Below) {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of reads that memory spaces answered since the store was opened.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub fn insert(&self, memory_space: Arc<MemorySpace>) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.push(memory_space);
        all.sort_by(|a, b| a.name.cmp(&b.name));
        self.any.store(true, Ordering::Release);
    }

    pub fn remove(&self, name: &str) {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|memory_space| memory_space.name != name);
        self.any.store(!all.is_empty(), Ordering::Release);
    }
}

/// The times that a commit looks logs up while dumps may begin. Each dump that begins makes the
/// look-ups void, and a log may take longer to load than the time between dumps.
const FREE_LOOK_UPS: u32 = 3;
/// The look-ups of a commit that may not wait for the end of a dump, if dumps make all of them
/// void.
const MOST_LOOK_UPS: u32 = 16;

/// The end of a try to commit in memory, without an error.
pub(crate) enum TriedInMemory {
    /// The memory space has the commit.
    Done(Seqs, Arc<MemorySpace>),
    /// The logs are not, or no longer, in a memory space.
    Elsewhere,
    /// The commit must read the volume, and its [`Patience`] does not permit it.
    MustRead,
}

impl Inner {
    /// Commits to logs in a memory space.
    pub fn commit_in_memory(
        &self,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        patience: Patience,
    ) -> Result<TriedInMemory, Error> {
        // Without threads, this thread may itself be moving the space, further up its stack. A
        // thread that moves the space waits for the log, which a waker must not do.
        let wait = patience.waits() && self.options.threads && self.may_wait().is_ok();
        while let Some(memory_space) = self.memory_spaces.of_all(ops)? {
            if durability.is_some() {
                let in_memory = || Error::InMemory { space: memory_space.name.clone() };
                return Err(self.ended().unwrap_or_else(in_memory));
            }
            match self.commit_with_look_ups(&memory_space, ops, patience, wait)? {
                Ok(seqs) => return Ok(TriedInMemory::Done(seqs, memory_space)),
                Err(Rejected::Error(error)) => return Err(error),
                Err(Rejected::Phase(Phase::Closed)) => return Err(Error::Closed),
                Err(Rejected::Phase(Phase::Moving)) if wait => {
                    let mut stall = Stall::new(&self.counters.stalls, &*self.options.clock);
                    stall.waits(StallReason::Moving);
                    if memory_space.moving.lock().is_err() {
                        // The move panicked on its way, so that it never ends.
                        return Err(self.half_done(&memory_space));
                    }
                }
                Err(Rejected::Phase(Phase::Open | Phase::Moved)) => {}
                Err(Rejected::Phase(Phase::Moving)) => {
                    let why = format!("the store is moving space {} to another class", memory_space.name);
                    return Err(Error::Busy { why });
                }
                Err(Rejected::Below(..)) => return Ok(TriedInMemory::MustRead),
            }
        }
        Ok(TriedInMemory::Elsewhere)
    }

    /// Commits to the logs of a space. Looks logs up that are not in memory, unless `patience` does
    /// not permit it. From some look-up on, no dump begins before the commit has its effect.
    fn commit_with_look_ups(
        &self,
        memory_space: &MemorySpace,
        ops: &[Op<'_>],
        patience: Patience,
        wait: bool,
    ) -> Result<Result<Seqs, Rejected>, Error> {
        let (mut alone, mut look_ups) = (None, 0);
        loop {
            // No write of the commit would show that the store has stopped.
            if let Some(error) = self.ended() {
                return Err(error);
            }
            let mut logs = memory_space.logs();
            let done = logs.commit(ops, &|| self.now());
            match &done {
                Ok(seqs) => self.notify(logs, ops, seqs.as_slice()),
                Err(_) => self.notify(logs, &[], &[]),
            }
            let (which, mut generation) = match done {
                Err(Rejected::Below(which, generation)) if patience != Patience::None => (which, generation),
                done => return Ok(done),
            };
            if look_ups >= FREE_LOOK_UPS && alone.is_none() {
                alone = self.hold_dumps(memory_space, wait);
                if alone.is_some() {
                    // A dump may have begun before this.
                    generation = memory_space.logs().generation();
                } else if look_ups >= MOST_LOOK_UPS {
                    memory_space.logs().end_look_ups(ops);
                    let why = format!("dumps of space {} follow each other", memory_space.name);
                    return Err(Error::Busy { why });
                }
            }
            look_ups += 1;
            let brought = self.bring_for(memory_space, ops, &which, generation);
            brought.inspect_err(|_| memory_space.logs().end_look_ups(ops))?;
        }
    }

    /// Lets no dump of a space begin until the result is dropped. Without `wait`, returns `None`
    /// during a dump: this thread may be dumping the space, further up its stack.
    fn hold_dumps<'a>(
        &'a self,
        memory_space: &'a MemorySpace,
        wait: bool,
    ) -> Option<(MutexGuard<'a, ()>, Option<Hush<'a>>)> {
        let hush = self.hush();
        let dumping = &memory_space.dumping;
        let alone = if wait { held(dumping) } else { dumping.try_lock().ok()? };
        Some((alone, hush))
    }

    /// Brings the logs of some operations of a commit to memory, as far as the runs have them, or
    /// their bounds alone, if the commit needs nothing else of them.
    fn bring_for(
        &self,
        memory_space: &MemorySpace,
        ops: &[Op<'_>],
        which: &[usize],
        generation: u32,
    ) -> Result<(), Error> {
        let needed = need_entries(ops);
        let mut before = memory_space.logs().keep(ops);
        for &i in which {
            let key = ops[i].key;
            if !needed.contains(key) {
                let bounds = self.below(memory_space, key, generation, self.bounds_below(key))?;
                memory_space.logs().note_below(key, bounds, generation);
                continue;
            }
            let loaded = self.below(memory_space, key, generation, self.log_below(memory_space, key))?;
            let mut logs = memory_space.logs();
            let fits = logs.bring_for((ops, i), loaded, generation, &mut before);
            let limit = logs.config.bytes;
            self.notify(logs, &[], &[]);
            if !fits {
                return Err(Error::MemoryFull { space: memory_space.name.clone(), limit });
            }
        }
        Ok(())
    }

    /// Wakes the readers that wait for the logs of a commit in memory, and of logs that the commit
    /// dropped. `seqs` are the numbers of the commit's entries: a later operation of the commit may
    /// have taken the entries back.
    fn notify(&self, mut logs: MutexGuard<'_, Logs>, ops: &[Op<'_>], seqs: &[u64]) {
        let (mut waiters, dropped) = (Waiters::default(), mem::take(&mut logs.dropped));
        let Some(mut marking) = self.watchers().marking(&mut waiters) else { return };
        dropped.iter().for_each(|key| marking.mark(key, Effect::Delete, None));
        let mut seqs = seqs.iter().copied();
        for op in ops {
            let bounds = logs.bounds(op.key);
            marking.mark(
                op.key,
                match op.action {
                    Action::Append(_) | Action::Snapshot(_) => {
                        Effect::Append(seqs.next().expect("each entry has a number"))
                    }
                    Action::Trim(before) => Effect::Trim(before),
                    Action::KeepLast(_) => Effect::Trim(bounds.map_or(0, |bounds| bounds.first)),
                    Action::Truncate(from) => Effect::Truncate(from),
                    Action::Begin(first) => Effect::Begin(first),
                    Action::Delete => Effect::Delete,
                    Action::Retain(_) => Effect::Entries(0),
                    Action::Expect(_) | Action::Enroll(_) | Action::ExpiryPass => continue,
                },
                bounds,
            );
        }
        drop((marking, logs));
        if let Some(wal) = &self.wal {
            wal.wake_waiters(waiters);
        }
    }

    /// Reads a log in a memory space. Returns `None` if the log is only in runs and memtables.
    pub fn read_in_memory(&self, key: &[u8], asked: &Asked) -> Result<Option<Entries>, Error> {
        let Some(memory_space) = self.memory_spaces.of(key) else { return Ok(None) };
        let now = self.now();
        let said = memory_space.logs().read(key, now, |bounds| asked.within(key, bounds))?;
        self.memory_spaces.note(&said);
        match said {
            Lookup::Here((frozen, range)) => {
                let payloads = frozen.shared(range.clone()).collect();
                Ok(Some(Entries::of_memory(key, range, payloads)))
            }
            Lookup::Gone => asked.of_no_log(key).map(Some),
            Lookup::Below => Ok(None),
        }
    }
}

impl Inner {
    /// Returns the state of a log in a memory space; `None` if the state is only in runs and
    /// memtables.
    pub fn find_in_memory(&self, key: &[u8]) -> Option<State> {
        let said = self.memory_spaces.of(key)?.logs().state(key);
        self.memory_spaces.note(&said);
        match said {
            Lookup::Here(state) => Some(state),
            Lookup::Gone => Some(State::default()),
            Lookup::Below => None,
        }
    }

    /// Returns the listed logs of memory spaces, and whether these are all listed logs.
    pub fn scan_in_memory(&self, listed: &Listed) -> (Vec<(Vec<u8>, State)>, bool) {
        let (mut states, mut alone, prefix) = (Vec::new(), false, listed.prefix());
        for memory_space in self.memory_spaces.all() {
            if prefix.starts_with(memory_space.prefix()) || memory_space.prefix().starts_with(prefix) {
                let logs = memory_space.logs();
                states.extend(logs.states(listed));
                alone |= logs.complete && prefix.starts_with(memory_space.prefix());
            }
        }
        (states, alone)
    }

    /// Returns what was found of a log in runs and memtables. If the log cannot be read, and the
    /// space leaves such logs alone, sets the log aside: then nothing was found.
    fn below<T>(
        &self,
        memory_space: &MemorySpace,
        key: &[u8],
        generation: u32,
        found: Result<Option<T>, Error>,
    ) -> Result<Option<T>, Error> {
        match found {
            Err(error @ (Error::Damaged { .. } | Error::NewerFormat { .. }))
                if memory_space.logs().sets_aside =>
            {
                memory_space.logs().set_aside(key, generation);
                let key = KeyText::of(key);
                tracing::warn!(%key, %error, "a log of a dump is set aside");
                Ok(None)
            }
            found => found,
        }
    }

    /// Looks the bounds of a log up in runs and memtables.
    fn bounds_below(&self, key: &[u8]) -> Result<Option<Bounds>, Error> {
        let state = self.state();
        let recent = state.recent(key).first().map(|(_, _, piece)| piece.bounds);
        let runs = state.runs.clone();
        drop(state);
        recent.map_or_else(|| Ok(runs.state(key)?.bounds), Ok::<_, Error>)
    }

    /// Loads a log from runs and memtables.
    fn log_below(&self, memory_space: &MemorySpace, key: &[u8]) -> Result<Option<LoadedLog>, Error> {
        let state = self.state();
        let recent = state.recent(key).first().map(|(_, log, _)| log.visible_terms().cloned());
        let read_view = ReadView::take(&state, key, &Asked::ALL, 0)?;
        let runs = state.runs.clone();
        drop(state);
        let entries = match read_view.entries(key, &Asked::ALL) {
            Err(Error::UnknownLog { .. }) => return Ok(None),
            entries => entries?,
        };
        let terms = recent.map_or_else(|| Ok(runs.state(key)?.terms), Ok::<_, Error>)?;
        let mut loaded = LoadedLog::new(entries.range().start, terms.as_deref());
        let limit = memory_space.logs().config.bytes;
        for entry in entries {
            loaded.push(&entry?.payload);
            if loaded.exceeds(limit) {
                return Err(memory_space.logs().memory_full());
            }
        }
        Ok(Some(loaded))
    }
}
