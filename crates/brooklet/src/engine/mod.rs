//! The engine: the parts of an open store, and the threads that run it.
//!
//! Locks are taken in this order: maintenance, state, the log's core. The state's lock is held for
//! short steps only, and never during a wait for the log. Maintenance's lock is held for one slice
//! of work at a time.

pub mod append;
pub mod beside;
pub mod blocking;
pub mod expiry;
mod follow;
pub mod ingest_writer;
pub mod memory;
pub mod memory_dump;
pub mod memory_move;
pub mod prepare;
pub mod recovery;
mod ring;
pub mod worker;

use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::sync::{Arc, PoisonError, TryLockError};

use brooklet_io::Process;
use brooklet_io::panics::caught;
use brooklet_io::seeded::bug;
use brooklet_io::tether::Tether;
use brooklet_wal::{Block, Committer, Config, Cursor, Hush, Opening, Pause, Recovery, Sink, Waiters, Wal};

use crate::counters::Counters;
use crate::engine::blocking::BlockingCalls;
use crate::engine::expiry::Expiry;
use crate::engine::memory::MemorySpaces;
use crate::engine::prepare::Preparations;
use crate::engine::recovery::Opened;
use crate::engine::ring::RingSizes;
use crate::error::Error;
use crate::format::superblock::Superblock;
use crate::maintenance::Maintenance;
use crate::maintenance::pace::{Ages, Quiet};
use crate::maintenance::snapshot::MaintenanceSnapshot;
use crate::model::space_config::SpaceInfo;
use crate::options::Options;
use crate::options::mirror::MirrorOptions;
use crate::run::table_cache::TableCache;
use crate::state::backpressure::Ration;
use crate::state::retention::wall;
use crate::state::watchers::Watchers;
use crate::state::{HALF_DONE, StoreState};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::{self, JoinHandle};
use crate::sync::{Mutex, MutexGuard, Sleeper, held};
use crate::volume::Volumes;

/// A handle to an open store. Dropping the last handle closes the store and ends its threads.
pub(crate) struct Handle {
    pub inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub options: Options,
    /// Whether the store has a mirror, or had one before: nothing may bypass the log.
    pub mirrored: bool,
    /// Whether the store shows the log of another host: its users commit nothing.
    pub follows: bool,
    ring: RingSizes,
    pub volumes: Volumes,
    pub state: Arc<SharedState>,
    /// The log; `None` if the store is open read-only.
    pub wal: Option<Wal>,
    pub maintenance: Mutex<Maintenance>,
    pub recovery: Recovery,
    maintenance_sleeper: Arc<Sleeper>,
    quiet: Mutex<Quiet>,
    /// The caches for look-ups.
    pub table_cache: Arc<TableCache>,
    ages: Mutex<Ages>,
    pub expiry: Mutex<Expiry>,
    /// Held while the spaces are changed. Names the spaces whose logs may not all have the same
    /// retention, because an error ended the last change of it.
    pub configuring: Mutex<BTreeSet<String>>,
    pub memory_spaces: MemorySpaces,
    /// The thread that dumps memory spaces when a dump is due.
    pub dump_sleeper: Sleeper,
    /// The thread that writes the metrics file.
    pub metrics_sleeper: Sleeper,
    /// The calls of tasks that wait.
    pub blocking_calls: BlockingCalls,
    /// Number of the store's own commits, which do not end its idle time.
    pub own_commits: AtomicU64,
    /// Set while the maintenance thread sleeps until the next commit, although nothing is full. The
    /// next commit wakes it.
    asleep: AtomicBool,
    /// Set while a checkpoint is wanted and not begun, or requested by a caller.
    pub wanted: AtomicBool,
    /// Set when maintenance is asked to make room, until its next slice.
    told: AtomicBool,
    ration: Mutex<Ration>,
    /// The memory and the ring that writers may use for now, in bytes.
    limits: [AtomicU64; 2],
    /// Used bytes of the ring, as last reported.
    used: AtomicU64,
    /// Set while a limit holds a writer back.
    held_back: AtomicBool,
    preparations: Preparations,
    /// The error of the last checkpoint, while checkpoints fail.
    stalled: Mutex<Option<Error>>,
    /// In a store without threads: how much the mirror kept when a commit last found no room.
    full_at: AtomicU64,
    closing: AtomicBool,
    /// The result of closing, once the store is closed.
    pub closed: Mutex<Option<Result<(), Error>>>,
    pub counters: Counters,
    /// State and counters of maintenance at the end of its last slice, so that a reader need not
    /// wait for maintenance.
    pub kept: Mutex<MaintenanceSnapshot>,
    committer: Mutex<Option<Committer>>,
    /// The threads of the store, until the store ends.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Whether the store was closed by a call: its volumes are then released with the last handle,
    /// even if an iterator still exists.
    close_requested: AtomicBool,
    /// The tethers through which the store releases its volumes.
    tethers: Vec<Arc<Tether>>,
    /// The process that opened the store.
    pub process: Process,
}

/// The state, as the sink of the log. If a thread panics under its lock, the state may be half
/// changed, and the log stops.
pub(crate) struct SharedState {
    state: Mutex<StoreState>,
    /// The watchers of the state, which need not its lock.
    watchers: Arc<Watchers>,
}

impl Sink for SharedState {
    fn durable(&self, blocks: &[Arc<Block>], waiters: &mut Waiters) {
        // The log stops with this panic, and reports its message as the reason.
        let mut state = self.state.lock().unwrap_or_else(|_| panic!("{HALF_DONE}"));
        state.publish(blocks, waiters).expect("effects were checked when they were appended");
    }

    fn stopped(&self, waiters: &mut Waiters) {
        self.watchers.stop(waiters);
    }
}

impl Inner {
    /// Locks the state. If a thread panicked under this lock, the store has stopped, and nothing
    /// found in the state is acknowledged.
    ///
    /// # Panics
    /// In a process that did not open the store, where the lock may never become free.
    pub fn state(&self) -> MutexGuard<'_, StoreState> {
        assert!(self.process.is_here(), "{}", Error::Forked);
        self.state.state.lock().unwrap_or_else(|poisoned| {
            self.stop(io::Error::other(HALF_DONE));
            poisoned.into_inner()
        })
    }

    /// Locks the state for readers; fails if the state is half changed.
    pub fn sound_state(&self) -> Result<MutexGuard<'_, StoreState>, Error> {
        self.here()?;
        self.state.state.lock().map_err(|_| self.stop(io::Error::other(HALF_DONE)))
    }

    /// Returns the readers that wait for changes of logs.
    pub fn watchers(&self) -> &Arc<Watchers> {
        &self.state.watchers
    }

    /// Locks maintenance. If a thread panicked under this lock, the store has stopped, and
    /// maintenance does nothing more.
    ///
    /// # Panics
    /// In a process that did not open the store.
    pub fn maintenance(&self) -> MutexGuard<'_, Maintenance> {
        assert!(self.process.is_here(), "{}", Error::Forked);
        self.maintenance.lock().unwrap_or_else(|poisoned| self.maintenance_after(poisoned))
    }

    /// Handles a lock of maintenance under which a thread panicked: stops the store.
    fn maintenance_after<'a>(
        &self,
        poisoned: PoisonError<MutexGuard<'a, Maintenance>>,
    ) -> MutexGuard<'a, Maintenance> {
        self.stop(io::Error::other("a thread panicked while it held the lock of maintenance"));
        poisoned.into_inner()
    }

    /// Refuses a process that did not open the store.
    pub fn here(&self) -> Result<(), Error> {
        if self.process.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Fails on a thread that must not wait for the store, before it takes a lock that others hold
    /// while they wait for the log.
    pub fn may_wait(&self) -> Result<(), Error> {
        self.here()?;
        self.wal.as_ref().map_or(Ok(()), |wal| Ok(wal.may_wait()?))
    }

    /// Defers callbacks for a thread that takes such a lock: in a store without threads, callbacks
    /// wait until the returned guard is dropped, after the lock is released.
    pub fn hush(&self) -> Option<Hush<'_>> {
        self.wal.as_ref().map(Wal::hush)
    }

    /// Stops the store for good, after a panic: its state may be half changed.
    pub fn stop(&self, panic: io::Error) -> Error {
        let why = panic.to_string();
        if let Some(wal) = &self.wal {
            // Dropping the result notifies all waiters.
            drop(wal.fail(panic));
        }
        Error::Stopped { why }
    }

    /// Wraps the work of a thread of the store: a panic in it stops the store.
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

    /// Locks maintenance, unless this thread already works with it. A store without threads has one
    /// caller. If that caller calls again from a callback, or from a volume, the outer call
    /// continues the work.
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

    /// Steps the committer of a store without threads; with `drain`, until the work that it began
    /// has ended.
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

    /// Returns the log for writing.
    pub fn wal(&self) -> Result<&Wal, Error> {
        self.here()?;
        self.wal.as_ref().ok_or(Error::ReadOnly)
    }

    /// Returns the error of later calls once the store has stopped, or was closed. Before that, the
    /// call takes no lock.
    pub fn ended(&self) -> Option<Error> {
        let wal = self.wal.as_ref().filter(|wal| wal.has_ended())?;
        wal.failure().map(Error::from)
    }

    /// Returns the log for commits of this process.
    pub fn writable(&self) -> Result<&Wal, Error> {
        if self.follows { Err(Error::ReadOnly) } else { self.wal() }
    }

    /// Returns the time of the wall clock, in milliseconds since the Unix epoch.
    pub fn now(&self) -> u64 {
        wall(&*self.options.clock)
    }

    pub fn nudge(&self) {
        self.maintenance_sleeper.wake();
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Makes all appended commits durable.
    pub fn flush(&self) -> Result<(), Error> {
        let wal = self.wal()?;
        self.step_committer(true);
        Ok(wal.flush()?)
    }

    /// Makes all appended commits durable, for a checkpoint that waits for them. If the mirror of
    /// the log lacks some of them, waits a moment for it.
    pub fn settle(&self) -> Result<(), Error> {
        self.flush()?;
        let wal = self.wal()?;
        if wal.settled() < wal.durable() {
            wal.wait_for_room()?;
        }
        wal.failure().map_or(Ok(()), |why| Err(why.into()))
    }

    /// Does the next work of the threads. Returns `false` if there is nothing to do.
    pub fn step(&self) -> Result<bool, Error> {
        let committed = self.step_committer(false);
        let mut worked = self.maintain()? || committed;
        if !worked && self.free_maintenance().is_some_and(|maintenance| maintenance.is_checkpointing()) {
            self.settle()?;
            worked = true;
        }
        Ok(worked)
    }
}

impl Inner {
    /// Starts the threads of the committer and of maintenance.
    fn start_threads(self: &Arc<Self>) -> Result<(), Error> {
        let committer = held(&self.committer).take();
        let committer = committer.expect("a store with a log has a committer");
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = thread::Builder::new().name(name.into()).spawn(run);
            thread.map_err(Error::io("starting a thread"))
        };
        let run = spawn("brooklet-commit", Box::new(move || committer.run()))?;
        let maintain = self.watched("the maintenance thread", |inner| inner.run_maintenance());
        let maintenance = spawn("brooklet-maint", Box::new(maintain))?;
        // Set here and not by the new thread: the thread might check whether it is wanted before
        // others can wake it.
        self.maintenance_sleeper.set_thread(maintenance.thread());
        self.table_cache.watched_by(&self.maintenance_sleeper);
        held(&self.threads).extend([run, maintenance]);
        Ok(())
    }
}

impl Handle {
    /// Starts a store that was opened, and its threads.
    pub fn start(opened: Opened, options: Options, tethers: Vec<Arc<Tether>>) -> Result<Self, Error> {
        let Opened { volumes, table_cache, superblock, heap, manifest, mut state, recovery, .. } = opened;
        state.inherits(options.memory_budget);
        let state = Arc::new(SharedState { watchers: state.watchers.clone(), state: Mutex::new(state) });
        let wal = (!options.read_only)
            .then(|| open_wal(&options, &superblock, recovery.next, &volumes, state.clone()));
        if let (Some(wal), Some(MirrorOptions { mirror, waits, window, .. })) = (&wal, &options.mirror) {
            wal.attach(mirror.clone(), *waits, *window);
        }
        let failed = Error::io("starting the committer");
        let committer = wal.as_ref().map(Committer::new).transpose().map_err(failed)?;
        let (mirrored, follows, now) = (superblock.mirrored, opened.follows, options.clock.now());
        let maintenance = Maintenance::new(volumes.clone(), table_cache.clone(), superblock, heap, manifest);
        let (ring, threads) = (RingSizes::new(&maintenance), options.threads && wal.is_some());
        let inner = Arc::new(Inner {
            options,
            mirrored,
            follows,
            ring,
            volumes,
            state,
            wal,
            maintenance: Mutex::new(maintenance),
            recovery,
            maintenance_sleeper: Arc::default(),
            quiet: Mutex::new(Quiet::new(now)),
            table_cache,
            ages: Mutex::new(Ages::new(now)),
            expiry: Mutex::default(),
            configuring: Mutex::default(),
            memory_spaces: MemorySpaces::default(),
            dump_sleeper: Sleeper::default(),
            metrics_sleeper: Sleeper::default(),
            blocking_calls: BlockingCalls::default(),
            own_commits: AtomicU64::new(0),
            asleep: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            told: AtomicBool::new(false),
            ration: Mutex::default(),
            limits: [u64::MAX; 2].map(AtomicU64::new),
            used: AtomicU64::new(0),
            held_back: AtomicBool::new(false),
            preparations: Preparations::default(),
            stalled: Mutex::default(),
            full_at: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            closed: Mutex::default(),
            counters: Counters::default(),
            kept: Mutex::default(),
            committer: Mutex::new(committer),
            threads: Mutex::default(),
            close_requested: AtomicBool::new(false),
            tethers,
            process: Process::current(),
        });
        let handle = Handle { inner: inner.clone() };
        if inner.wal.is_some() {
            inner.maintenance().prepare(&inner.context()?)?;
        }
        *held(&inner.kept) = inner.maintenance().kept();
        if threads {
            inner.start_threads()?;
        }
        if let Some(wal) = &inner.wal {
            inner.weigh(&inner.state(), wal.stats().used);
        }
        Ok(handle)
    }

    /// Closes the store once; later calls return the first result. If there is no room for a dump
    /// of a space in memory, the store stays open until its last handle is dropped.
    pub fn close(&self) -> Result<(), Error> {
        let inner = &self.inner;
        inner.here()?;
        // First: the drop of the last handle releases the volumes even if the store stays open.
        inner.close_requested.store(true, Ordering::Relaxed);
        if inner.is_own_thread() {
            // This is a waker: closing would wait for this thread.
            inner.end_beside(Inner::close_at_last);
            return Ok(());
        }
        match caught("closing the store", || inner.dump_before_close()) {
            Ok(dumped) => dumped?,
            // The store has stopped, and closing it returns the reason.
            Err(panic) => drop(inner.stop(panic)),
        }
        inner.close()
    }
}

impl Inner {
    /// Returns the first `most` spaces, by name.
    pub fn spaces(&self, most: usize) -> Vec<SpaceInfo> {
        let mut infos = self.state().spaces.infos(most);
        for info in &mut infos {
            if let Some(memory_space) = self.memory_spaces.find(info.name.as_bytes()) {
                memory_space.logs().report(info);
            }
        }
        infos
    }

    /// Returns the report on a space, if it exists.
    pub fn space_info(&self, name: &str) -> Option<SpaceInfo> {
        let mut info = self.state().spaces.info(name.as_bytes())?;
        if let Some(memory_space) = self.memory_spaces.find(name.as_bytes()) {
            memory_space.logs().report(&mut info);
        }
        Some(info)
    }

    /// Returns the reason why the store stopped writing, if it stopped.
    pub fn stopped(&self) -> Option<String> {
        self.wal.as_ref().and_then(|wal| wal.failure()).map(|why| match Error::from(why) {
            Error::Stopped { why } => why,
            other => other.to_string(),
        })
    }

    /// Registers a thread that closing waits for.
    pub fn keep_thread(&self, thread: JoinHandle<()>) {
        held(&self.threads).push(thread);
    }

    /// Returns whether closing would wait for this thread, as in a waker.
    fn is_own_thread(&self) -> bool {
        self.wal.as_ref().is_some_and(Wal::is_committer) || self.blocking_calls.is_here()
    }

    /// Ends the store by `end` on another thread, if `end` would wait for this thread.
    fn end_beside(self: &Arc<Self>, end: fn(&Arc<Self>)) {
        let inner = self.clone();
        let closer = thread::Builder::new().name("brooklet-close".into()).spawn(move || end(&inner));
        drop(closer.inspect_err(
            |error| tracing::error!(%error, "the store could not start a thread to close itself"),
        ));
    }

    /// Closes the store, and logs a failure because no caller receives it.
    fn close_at_last(self: &Arc<Self>) {
        if let Err(error) = self.close() {
            tracing::warn!(%error, "the store was not closed cleanly; the next opening recovers it");
        }
    }

    /// Closes the store when its last handle is dropped, and releases its volumes if a call closed
    /// the store, or failed to.
    fn go(self: &Arc<Self>) {
        self.close_at_last();
        if self.close_requested.load(Ordering::Relaxed) && !bug("closed-store-keeps-its-file") {
            self.release();
        }
    }

    /// Releases the volumes of a closed store, also while handles remain.
    pub fn release(&self) {
        self.tethers.iter().for_each(|tether| tether.let_go());
    }

    fn close(self: &Arc<Self>) -> Result<(), Error> {
        let done = {
            let _hush = self.hush();
            let mut closed = held(&self.closed);
            let end = || {
                let _span = tracing::info_span!("close", store = self.volumes.data.info().name).entered();
                let ended = caught("closing the store", || self.end());
                ended.unwrap_or_else(|panic| Err(self.stop(panic)))
            };
            closed.get_or_insert_with(end).clone()
        };
        self.join_callbacks();
        done
    }

    /// Returns after every callback of an ended store has been called. A callback may need a lock
    /// of the thread that closes.
    pub fn join_callbacks(&self) {
        self.wal.iter().for_each(Wal::join_callbacks);
    }

    /// Makes all commits durable, ends the threads, and records where the ring ends.
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
        let Self { maintenance_sleeper, dump_sleeper, metrics_sleeper, blocking_calls, .. } = self;
        for sleeper in [&**maintenance_sleeper, dump_sleeper, metrics_sleeper, &blocking_calls.sleeper] {
            sleeper.wake();
        }
        let threads = mem::take(&mut *held(&self.threads));
        for thread in threads {
            let _ = thread.join();
        }
        let committer = held(&self.committer).take();
        drop(committer);
    }
}

/// Opens the log of a store.
fn open_wal(
    options: &Options,
    superblock: &Superblock,
    next: Cursor,
    volumes: &Volumes,
    sink: Arc<SharedState>,
) -> Wal {
    let Options { block_size, depth, linger, interval, rate, .. } = *options;
    let config = Config { block_size, depth, linger, interval, rate, ..Config::default() };
    let opening = Opening { tail: superblock.trim.position, next, epoch: superblock.epoch };
    let (ring, clock) = (volumes.ring().clone(), options.clock.clone());
    Wal::open(ring, superblock.layout(), config, opening, clock, sink)
}

impl Drop for Handle {
    fn drop(&mut self) {
        let inner = &self.inner;
        if inner.here().is_err() {
            // The threads do not exist in this process, and their shared state may be half changed:
            // nothing is ended, closed or freed.
            return mem::forget(inner.clone());
        }
        if inner.is_own_thread() {
            // The last handle was dropped in a waker, on a thread that closing waits for.
            inner.end_beside(Inner::go);
        } else {
            inner.go();
        }
    }
}
