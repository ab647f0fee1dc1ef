//! The engine room: what an open store is made of, and the threads that keep it going.
//!
//! Locks are taken in this order: maintenance, state, the log's core. The state's is held for short steps only; nobody waits
//! for the log while holding it. The maintenance's is held for a slice of work at a time.

pub mod expiry;
pub mod ingest_writer;
pub mod memory;
pub mod memory_dump;
pub mod memory_move;
pub mod recovery;
pub mod worker;

use crate::model::space_config::SpaceInfo;
use std::io;
use std::mem;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};
use std::time::Duration;

use brooklet_io::Process;
use brooklet_io::panics::caught;
use brooklet_io::seeded::bug;
use brooklet_io::tether::Tether;
use brooklet_wal::{Block, Committer, Config, Hush, Pause, Recovery, Sink, Wal, WalError};

use crate::counters::{Counters, Stall, StallReason};
use crate::engine::expiry::Expiry;
use crate::engine::memory::MemorySpaces;
use crate::engine::recovery::Opened;
use crate::error::Error;
use crate::maintenance::Maintenance;
use crate::maintenance::pace::{Ages, Quiet};
use crate::maintenance::snapshot::MaintenanceSnapshot;
use crate::model::MAX_KEY;
use crate::model::commit::{Action, Durability, Op};
use crate::options::Options;
use crate::run::table_cache::TableCache;
use crate::state::admission::SpaceRequest;
use crate::state::backpressure::Ration;
use crate::state::retention::{CommitClock, wall};
use crate::state::{Accepted, Retry, StoreState};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::{self, JoinHandle, Thread};
use crate::sync::{Mutex, MutexGuard, held};
use crate::volume::Volumes;

/// Ends the threads when the last handle goes.
pub(crate) struct Handle {
    pub inner: Arc<Inner>,
}

/// Why a store stops whose front may be half changed.
const HALF_DONE: &str = "a thread panicked while it changed what readers see";

pub(crate) struct Inner {
    pub options: Options,
    /// Bytes of the ring that the store has.
    ring_size: u64,
    pub volumes: Volumes,
    pub state: Arc<SharedState>,
    /// `None` where the store is open read-only.
    pub wal: Option<Wal>,
    pub maintenance: Mutex<Maintenance>,
    pub recovery: Recovery,
    maintenance_thread: OnceLock<Thread>,
    quiet: Mutex<Quiet>,
    /// For what look-ups keep in memory.
    pub table_cache: Arc<TableCache>,
    ages: Mutex<Ages>,
    pub expiry: Mutex<Expiry>,
    /// Held by whoever changes the spaces.
    pub configuring: Mutex<()>,
    pub memory_spaces: MemorySpaces,
    /// The thread that dumps them when that is due.
    pub dump_thread: OnceLock<Thread>,
    /// Commits of the store itself: it is idle all the same.
    pub own_commits: AtomicU64,
    /// Set while the maintenance thread sleeps until it is woken, though nothing is full: by the next commit.
    asleep: AtomicBool,
    /// Set while a checkpoint is wanted and not begun, or asked for by a caller.
    pub wanted: AtomicBool,
    /// Set once maintenance has been told that it should look after room, until it does.
    told: AtomicBool,
    ration: Mutex<Ration>,
    /// Up to where writers may use memory and the ring for now.
    limits: [AtomicU64; 2],
    /// Bytes of the ring in use, as far as was told.
    used: AtomicU64,
    /// Set while a writer is held back by a limit.
    held_back: AtomicBool,
    /// Why checkpoints do not get on, while they do not.
    stalled: Mutex<Option<Error>>,
    closing: AtomicBool,
    /// How closing went, once it did.
    pub closed: Mutex<Option<Result<(), Error>>>,
    pub counters: Counters,
    /// What maintenance had done and had as its last slice ended: nobody waits for maintenance to look.
    pub kept: Mutex<MaintenanceSnapshot>,
    committer: Mutex<Option<Committer>>,
    /// Those of the store, until it ends.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The store was closed by a call: with the last handle its volumes go, whoever has an iterator.
    full_requested: AtomicBool,
    /// By these it lets go of its volumes.
    tethers: Vec<Arc<Tether>>,
    /// The process that opened the store.
    pub process: Process,
}

/// The logs whose sizes were looked up for a commit: until it has appended, or was refused for good, they stay in memory, with
/// what was learned.
struct Counting<'a> {
    inner: &'a Inner,
    keys: Vec<&'a [u8]>,
}

impl<'a> Counting<'a> {
    fn begin(&mut self, state: &mut StoreState, key: &'a [u8]) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
            state.begin_count(key);
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            let mut state = self.inner.state();
            self.keys.iter().for_each(|key| state.end_count(key));
        }
    }
}

/// The state, as the log's sink. A panic under its lock may have left it half changed: the log stops then.
pub(crate) struct SharedState(Mutex<StoreState>);

impl Sink for SharedState {
    fn durable(&self, blocks: &[Arc<Block>]) {
        self.0.lock().expect("no panics").publish(blocks).expect("effects were checked when they boarded");
    }
}

impl Inner {
    /// The state. Where a thread panicked under its lock, the store has stopped: nothing that is found here is acknowledged.
    ///
    /// # Panics
    /// In a process that did not open the store, where the lock may never be free.
    pub fn state(&self) -> MutexGuard<'_, StoreState> {
        assert!(self.process.is_here(), "{}", Error::Forked);
        self.state.0.lock().unwrap_or_else(|poisoned| {
            self.stop(io::Error::other(HALF_DONE));
            poisoned.into_inner()
        })
    }

    /// The state for readers, who get nothing of one that is half changed.
    pub fn sound_state(&self) -> Result<MutexGuard<'_, StoreState>, Error> {
        self.here()?;
        self.state.0.lock().map_err(|_| self.stop(io::Error::other(HALF_DONE)))
    }

    /// Maintenance. Where a thread panicked under its lock, the store has stopped, and maintenance does nothing more.
    ///
    /// # Panics
    /// In a process that did not open the store.
    pub fn maintenance(&self) -> MutexGuard<'_, Maintenance> {
        assert!(self.process.is_here(), "{}", Error::Forked);
        self.maintenance.lock().unwrap_or_else(|poisoned| self.maintenance_after(poisoned))
    }

    /// Maintenance that a thread had as it panicked: the store stops.
    fn maintenance_after<'a>(
        &self,
        poisoned: PoisonError<MutexGuard<'a, Maintenance>>,
    ) -> MutexGuard<'a, Maintenance> {
        self.stop(io::Error::other("a thread panicked while it had the keeper"));
        poisoned.into_inner()
    }

    /// Refuses a process that did not open the store.
    pub fn here(&self) -> Result<(), Error> {
        if self.process.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Refuses whoever could not wait for the store, before it takes a lock under which others wait for the log.
    pub fn may_wait(&self) -> Result<(), Error> {
        self.here()?;
        self.wal.as_ref().map_or(Ok(()), |wal| Ok(wal.may_wait()?))
    }

    /// For who takes such a lock: where the store has no threads, callbacks wait until this is dropped, after the lock.
    pub fn hush(&self) -> Option<Hush<'_>> {
        self.wal.as_ref().map(Wal::hush)
    }

    /// Stops the store for good, after a panic: its state may be half changed.
    pub fn stop(&self, panic: io::Error) -> Error {
        let why = panic.to_string();
        if let Some(wal) = &self.wal {
            // Whoever it concerns is told as this is dropped.
            drop(wal.fail(panic));
        }
        Error::Stopped { why }
    }

    /// What a thread of the store does: a panic in it stops the store.
    pub fn watched(
        self: &Arc<Self>,
        name: &'static str,
        run: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let inner = self.clone();
        move || {
            if let Err(panic) = caught(name, || run(&inner)) {
                inner.stop(panic);
            }
        }
    }

    /// Maintenance, unless this very thread is at work with it: a store without threads has one caller, and where that
    /// one comes again from within (from a callback, or from a volume that calls back) the work goes on further out.
    fn free_maintenance(&self) -> Option<MutexGuard<'_, Maintenance>> {
        if self.options.threads {
            return Some(self.maintenance());
        }
        match self.maintenance.try_lock() {
            Ok(maintenance) => Some(maintenance),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(poisoned)) => Some(self.maintenance_after(poisoned)),
        }
    }

    /// Steps the committer of a store without threads, until what it began has ended if `drain` says so.
    fn step_committer(&self, drain: bool) -> bool {
        if self.options.threads {
            return false;
        }
        let _hush = self.hush();
        // See `free_maintenance`.
        let Ok(mut committer) = self.committer.try_lock() else { return false };
        let Some(committer) = committer.as_mut() else { return false };
        if drain { committer.drain() } else { matches!(committer.step(), Pause::None | Pause::Write(_)) }
    }

    /// The log, for who writes.
    pub fn wal(&self) -> Result<&Wal, Error> {
        self.here()?;
        self.wal.as_ref().ok_or(Error::ReadOnly)
    }

    /// The wall clock, in milliseconds since the Unix epoch.
    pub fn now(&self) -> u64 {
        wall(&*self.options.clock)
    }

    pub fn nudge(&self) {
        if let Some(thread) = self.maintenance_thread.get() {
            thread.unpark();
        }
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Boards a commit, looking up logs as need be, and waiting for room if `wait` says so.
    ///
    /// `None` where a log of it is kept in memory. Nobody checks here whether the operations may be asked for at all.
    pub fn append(
        &self,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        wait: bool,
    ) -> Result<Option<Accepted>, Error> {
        let wal = self.wal()?;
        // What frees space is let through whatever else is full.
        let freeing = !ops.iter().any(|op| op.action.adds());
        let mut asked = None;
        let Counters { appends, stalls, .. } = &self.counters;
        let clock = &*self.options.clock;
        let appended = appends.time(clock, || {
            self.append_once_there_is_room(wal, ops, durability, (freeing, wait), &mut asked)
        });
        if asked.is_some() {
            self.state().room.withdraw();
        }
        let Some((accepted, delay)) = appended? else { return Ok(None) };
        if !delay.is_zero() && self.may_wait().is_ok() {
            let mut stall = Stall::new(stalls, clock);
            stall.waits(StallReason::HeapSlope);
            thread::park_timeout(delay);
        }
        Ok(Some(accepted))
    }

    /// Boards a commit, and tells how long its caller should wait before the next. `asked` keeps the number of having asked
    /// for room in the heap.
    fn append_once_there_is_room(
        &self,
        wal: &Wal,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        (freeing, wait): (bool, bool),
        asked: &mut Option<u64>,
    ) -> Result<Option<(Accepted, Duration)>, Error> {
        let mut counting = Counting { inner: self, keys: Vec::new() };
        let mut stall = Stall::new(&self.counters.stalls, &*self.options.clock);
        let mut looked = false;
        loop {
            let mut state = self.state();
            let memory = state.memory();
            // Without threads a checkpoint is always as far as it can be.
            let rationed = self.options.threads && self.is_beyond_ration(memory);
            // What was looked up for this commit is let in: a checkpoint would drop it, and the next look-up bring it again.
            let over =
                !freeing && !looked && (rationed || memory > state.most_memory(self.options.memory_budget));
            let refused = if over {
                Retry::NoRoom(WalError::Busy)
            } else {
                match state.append(
                    wal,
                    ops,
                    durability,
                    self.options.linger,
                    &CommitClock::new(&*self.options.clock),
                ) {
                    Ok(accepted) => {
                        self.used.store(accepted.appended.used, Ordering::Relaxed);
                        self.weigh(&state, accepted.appended.used);
                        // Without threads nothing would come in time.
                        let waits = !freeing && wait && self.options.threads;
                        let delay = if waits { state.gauge().delay() } else { Duration::ZERO };
                        return Ok(Some((accepted, delay)));
                    }
                    Err(refused) => refused,
                }
            };
            // Whoever waits holds no runs: it would keep what merging frees.
            let looks = matches!(refused, Retry::Unknown(_) | Retry::Sizes(..));
            let runs = if looks { state.runs.clone() } else { Arc::default() };
            looked |= looks;
            if let Retry::Sizes(i, _) = refused {
                counting.begin(&mut state, ops[i].key);
            }
            // Commits that fail leave what was learned of their logs behind; that counts, too.
            let full = over || matches!(refused, Retry::NoRoom(WalError::Full { .. }));
            self.weigh(&state, if full { u64::MAX } else { 0 });
            let rests_on = match &refused {
                Retry::Error(error) => state.rests_on(ops, error),
                _ => None,
            };
            if let Retry::Short(request) = refused {
                if !wait {
                    let error = state.room.refuse(request);
                    self.weigh(&state, 0);
                    return Err(error);
                }
                *asked = Some(state.room.request_space(*asked, request)?);
            }
            drop(state);
            if full || asked.is_some() {
                // It may be resting between two slices.
                self.nudge();
            }
            match refused {
                Retry::Error(error) => return Err(self.refusal(wal, error, rests_on, wait)),
                Retry::InMemory => return Ok(None),
                Retry::Unknown(unknown) => {
                    let look = |key| self.counters.run_lookups.time(&*self.options.clock, || runs.state(key));
                    let looked = unknown.iter().map(|&i| Ok((ops[i].key, look(ops[i].key)?)));
                    let looked: Vec<_> = looked.collect::<Result<_, Error>>()?;
                    let mut state = self.state();
                    let mut learned = true;
                    looked.into_iter().for_each(|(key, known)| learned &= state.learn(&runs, key, known));
                    drop(state);
                    match learned {
                        true => {}
                        false if wait => {
                            stall.waits(StallReason::Import);
                            self.make_room(wal, WalError::Busy)?;
                        }
                        false => return Err(WalError::Busy.into()),
                    }
                }
                Retry::Sizes(i, missing) => {
                    let found = missing.look(&runs, ops[i].key)?;
                    self.state().learn_sizes(ops[i].key, found);
                }
                Retry::NoRoom(why) if !wait => return Err(why.into()),
                Retry::Short(request) => {
                    stall.waits(StallReason::Heap);
                    self.wait_for_heap(wal, request)?;
                }
                Retry::NoRoom(why) => {
                    stall.waits(match why {
                        _ if rationed => StallReason::Checkpoint,
                        _ if over => StallReason::Memory,
                        WalError::Full { .. } => StallReason::Ring,
                        _ => StallReason::Backlog,
                    });
                    self.make_room(wal, why)?;
                }
            }
        }
    }

    /// Refuses a commit with `error`, once the block that this rests on is durable; or says why that cannot be waited for.
    fn refusal(&self, wal: &Wal, error: Error, rests_on: Option<u64>, wait: bool) -> Error {
        let settled = rests_on.is_none_or(|block| wal.durable() >= block) || bug("refusal-before-durable");
        match settled {
            true => error,
            false if !wait => WalError::Busy.into(),
            false => self.flush().map_or_else(|stopped| stopped, |()| error),
        }
    }

    /// Whether an operation may be asked for at all.
    pub fn check(&self, op: &Op<'_>) -> Result<(), Error> {
        check_key(op.key)?;
        match op.action {
            Action::Append(payload) | Action::Snapshot(payload)
                if payload.len() > self.options.largest_payload() =>
            {
                Err(Error::PayloadTooLarge { len: payload.len(), limit: self.options.largest_payload() })
            }
            Action::Retain(retention) => retention.check(),
            _ => Ok(()),
        }
    }

    /// Lets maintenance do what may make room in the heap.
    fn wait_for_heap(&self, wal: &Wal, request: SpaceRequest) -> Result<(), Error> {
        if self.options.threads {
            return self.wait_for_room(wal);
        }
        let worked = self.step()?;
        self.flush()?;
        let state = self.state();
        if worked || state.pressure().is_none() { Ok(()) } else { Err(state.room.full(request)) }
    }

    fn make_room(&self, wal: &Wal, why: WalError) -> Result<(), Error> {
        if self.options.threads {
            return self.wait_for_room(wal);
        }
        let durable = wal.durable();
        let worked = self.step()?;
        self.flush()?;
        // Where there is a pace, only those who wait get on.
        if worked || wal.durable() > durable { Ok(()) } else { Err(why.into()) }
    }

    fn wait_for_room(&self, wal: &Wal) -> Result<(), Error> {
        // The maintenance thread tries again by itself; until it gets on, waiting would be for nothing.
        let stalled = held(&self.stalled).clone();
        stalled.map_or_else(|| Ok(wal.wait_for_room()?), Err)
    }

    /// Makes everything that appended durable.
    pub fn flush(&self) -> Result<(), Error> {
        let wal = self.wal()?;
        self.step_committer(true);
        Ok(wal.flush()?)
    }

    /// Does what the threads would do next. `false` where there is nothing to do.
    pub fn step(&self) -> Result<bool, Error> {
        let committed = self.step_committer(false);
        let mut worked = self.maintain()? || committed;
        if !worked && self.free_maintenance().is_some_and(|maintenance| maintenance.is_checkpointing()) {
            self.flush()?;
            worked = true;
        }
        Ok(worked)
    }
}

pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > MAX_KEY { Err(Error::InvalidKey { len: key.len() }) } else { Ok(()) }
}

impl Handle {
    /// Starts a store that was opened, and its threads.
    pub fn start(opened: Opened, options: Options, tethers: Vec<Arc<Tether>>) -> Result<Self, Error> {
        let Opened { volumes, table_cache, superblock, heap, manifest, mut state, recovery, .. } = opened;
        state.inherits(options.memory_budget);
        let ring_size = superblock.ring_size;
        let state = Arc::new(SharedState(Mutex::new(state)));
        let wal = (!options.read_only).then(|| {
            let Options { block_size, depth, linger, interval, rate, .. } = options;
            let config = Config { block_size, depth, linger, interval, rate, ..Config::default() };
            let at = (superblock.trim.position, recovery.next, superblock.epoch);
            let ring = volumes.ring().clone();
            Wal::open(ring, superblock.zone(), config, at, options.clock.clone(), state.clone())
        });
        let committer = wal.as_ref().map(Committer::new).transpose();
        let committer = committer.map_err(Error::io("starting the committer"))?;
        let maintenance = Maintenance::new(volumes.clone(), table_cache.clone(), superblock, heap, manifest);
        let maintenance = Mutex::new(maintenance);
        let threads = options.threads && wal.is_some();
        let now = options.clock.now();
        let inner = Arc::new(Inner {
            options,
            ring_size,
            volumes,
            state,
            wal,
            maintenance,
            recovery,
            maintenance_thread: OnceLock::new(),
            quiet: Mutex::new(Quiet::new(now)),
            table_cache,
            ages: Mutex::new(Ages::new(now)),
            expiry: Mutex::default(),
            configuring: Mutex::default(),
            memory_spaces: MemorySpaces::default(),
            dump_thread: OnceLock::new(),
            own_commits: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            told: AtomicBool::new(false),
            ration: Mutex::default(),
            limits: [u64::MAX; 2].map(AtomicU64::new),
            used: AtomicU64::new(0),
            held_back: AtomicBool::new(false),
            stalled: Mutex::default(),
            closing: AtomicBool::new(false),
            closed: Mutex::default(),
            counters: Counters::default(),
            kept: Mutex::default(),
            committer: Mutex::new(committer),
            threads: Mutex::default(),
            full_requested: AtomicBool::new(false),
            tethers,
            process: Process::current(),
        });
        let handle = Handle { inner: inner.clone() };
        if inner.wal.is_some() {
            inner.maintenance().prepare(&inner.context()?)?;
        }
        *held(&inner.kept) = inner.maintenance().kept();
        if threads {
            let committer = held(&inner.committer).take();
            let committer = committer.expect("a store with a log has a committer");
            let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
                let thread = thread::Builder::new().name(name.into()).spawn(run);
                thread.map_err(Error::io("starting a thread"))
            };
            let run = spawn("brooklet-commit", Box::new(move || committer.run()))?;
            let keep = spawn("brooklet-keep", Box::new(inner.watched("the keeper", |inner| inner.keep())))?;
            // Set here and not by the thread, which might look whether it is wanted while it cannot be woken yet.
            inner.maintenance_thread.get_or_init(|| keep.thread().clone());
            inner.table_cache.watched_by(keep.thread());
            held(&inner.threads).extend([run, keep]);
        }
        if let Some(wal) = &inner.wal {
            inner.weigh(&inner.state(), wal.stats().used);
        }
        Ok(handle)
    }

    /// Closes the store once; later calls give the first one's answer.
    pub fn close(&self) -> Result<(), Error> {
        let inner = &self.inner;
        inner.here()?;
        inner.full_requested.store(true, Ordering::Relaxed);
        if inner.is_own_thread() {
            // In a waker: closing waits for this thread.
            inner.end_beside(Inner::close_at_last);
            return Ok(());
        }
        inner.close()
    }
}

impl Inner {
    /// All spaces, by name.
    pub fn spaces(&self) -> Vec<SpaceInfo> {
        let mut infos = self.state().spaces.infos();
        for info in &mut infos {
            if let Some(memory_space) = self.memory_spaces.find(info.name.as_bytes()) {
                memory_space.logs().report(info);
            }
        }
        infos
    }

    /// Why the store stopped writing, if it did.
    pub fn stopped(&self) -> Option<String> {
        self.wal.as_ref().and_then(|wal| wal.failure()).map(|why| match Error::from(why) {
            Error::Stopped { why } => why,
            other => other.to_string(),
        })
    }

    /// Has a thread of the store end with it.
    pub fn keep_thread(&self, thread: JoinHandle<()>) {
        held(&self.threads).push(thread);
    }

    /// Whether closing would wait for this thread, as in a waker.
    fn is_own_thread(&self) -> bool {
        self.wal.as_ref().is_some_and(Wal::is_committer)
    }

    /// Ends the store by `end`, on another thread than this one, for which that would wait.
    fn end_beside(self: &Arc<Self>, end: fn(&Arc<Self>)) {
        let inner = self.clone();
        let closer = thread::Builder::new().name("brooklet-close".into()).spawn(move || end(&inner));
        drop(closer.inspect_err(|error| tracing::error!(%error, "no thread to close the store on")));
    }

    /// Closes the store where nobody hears how that went.
    fn close_at_last(self: &Arc<Self>) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the store was not closed cleanly; the next opening recovers it");
        }
    }

    /// Closes the store as its last handle goes, and lets go of its volumes if it was told to close.
    fn go(self: &Arc<Self>) {
        self.close_at_last();
        if self.full_requested.load(Ordering::Relaxed) && !bug("closed-store-keeps-its-file") {
            self.tethers.iter().for_each(|tether| tether.let_go());
        }
    }

    fn close(self: &Arc<Self>) -> Result<(), Error> {
        let done = {
            let _hush = self.hush();
            let mut closed = held(&self.closed);
            let end = || {
                let ended = caught("closing the store", || self.end());
                ended.unwrap_or_else(|panic| Err(self.stop(panic)))
            };
            closed.get_or_insert_with(end).clone()
        };
        self.join_callbacks();
        done
    }

    /// Returns once every callback of a store that has ended has been called. A callback may want the lock of who closes.
    pub fn join_callbacks(&self) {
        self.wal.iter().for_each(Wal::join_callbacks);
    }

    /// Makes everything durable, ends the threads and records where the ring ends.
    fn end(self: &Arc<Self>) -> Result<(), Error> {
        let dumped = self.dump_for_good();
        let end = self.wal.as_ref().map(|wal| self.flush().and_then(|()| Ok(wal.end()?)));
        self.end_threads();
        match end {
            None => Ok(()),
            Some(end) => self.maintenance().close(end?).and(dumped),
        }
    }

    pub fn end_threads(&self) {
        self.closing.store(true, Ordering::Release);
        let threads = mem::take(&mut *held(&self.threads));
        threads.iter().for_each(|thread| thread.thread().unpark());
        for thread in threads {
            let _ = thread.join();
        }
        let committer = held(&self.committer).take();
        drop(committer);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let inner = &self.inner;
        if inner.here().is_err() {
            // The threads are not here, and what they shared is as it was in the midst of something: nothing is ended, closed
            // or freed.
            return mem::forget(inner.clone());
        }
        if inner.is_own_thread() {
            // The last handle went in a waker, on a thread that closing waits for.
            inner.end_beside(Inner::go);
        } else {
            inner.go();
        }
    }
}
