//! The engine room: what an open store is made of, and the threads that keep it going.
//!
//! Locks are taken in this order: maintenance, state, the log's core. The state's is held for short
//! steps only; nobody waits for the log while holding it. The maintenance's is held for a slice of
//! work at a time.

pub mod append;
pub mod expiry;
pub mod ingest_writer;
pub mod memory;
pub mod memory_dump;
pub mod memory_move;
pub mod recovery;
pub mod worker;

use std::io;
use std::mem;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError};

use brooklet_io::Process;
use brooklet_io::panics::caught;
use brooklet_io::seeded::bug;
use brooklet_io::tether::Tether;
use brooklet_wal::{Block, Committer, Config, Hush, Opening, Pause, Recovery, Sink, Wal};

use crate::counters::Counters;
use crate::engine::expiry::Expiry;
use crate::engine::memory::MemorySpaces;
use crate::engine::recovery::Opened;
use crate::error::Error;
use crate::format::superblock::Superblock;
use crate::maintenance::Maintenance;
use crate::maintenance::pace::{Ages, Quiet};
use crate::maintenance::snapshot::MaintenanceSnapshot;
use crate::model::space_config::SpaceInfo;
use crate::options::Options;
use crate::run::table_cache::TableCache;
use crate::state::StoreState;
use crate::state::backpressure::Ration;
use crate::state::retention::wall;
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
    /// Set while the maintenance thread sleeps until it is woken, though nothing is full: by the
    /// next commit.
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
    /// What maintenance had done and had as its last slice ended: nobody waits for maintenance to
    /// look.
    pub kept: Mutex<MaintenanceSnapshot>,
    committer: Mutex<Option<Committer>>,
    /// Those of the store, until it ends.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The store was closed by a call: with the last handle its volumes go, whoever has an
    /// iterator.
    full_requested: AtomicBool,
    /// By these it lets go of its volumes.
    tethers: Vec<Arc<Tether>>,
    /// The process that opened the store.
    pub process: Process,
}

/// The state, as the log's sink. A panic under its lock may have left it half changed: the log
/// stops then.
pub(crate) struct SharedState(Mutex<StoreState>);

impl Sink for SharedState {
    fn durable(&self, blocks: &[Arc<Block>]) {
        self.0
            .lock()
            .expect("no panics")
            .publish(blocks)
            .expect("effects were checked when they were appended");
    }
}

impl Inner {
    /// The state. Where a thread panicked under its lock, the store has stopped: nothing that is
    /// found here is acknowledged.
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

    /// Maintenance. Where a thread panicked under its lock, the store has stopped, and maintenance
    /// does nothing more.
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
        self.stop(io::Error::other("a thread panicked while it held the lock of maintenance"));
        poisoned.into_inner()
    }

    /// Refuses a process that did not open the store.
    pub fn here(&self) -> Result<(), Error> {
        if self.process.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Refuses whoever could not wait for the store, before it takes a lock under which others wait
    /// for the log.
    pub fn may_wait(&self) -> Result<(), Error> {
        self.here()?;
        self.wal.as_ref().map_or(Ok(()), |wal| Ok(wal.may_wait()?))
    }

    /// For who takes such a lock: where the store has no threads, callbacks wait until this is
    /// dropped, after the lock.
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

    /// Maintenance, unless this very thread is at work with it: a store without threads has one
    /// caller, and where that one comes again from within (from a callback, or from a volume that
    /// calls back) the work goes on further out.
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

    /// Steps the committer of a store without threads, until what it began has ended if `drain`
    /// says so.
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

impl Inner {
    /// Starts the committer's thread, and that of maintenance.
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
        // Set here and not by the thread, which might look whether it is wanted while it cannot be
        // woken yet.
        self.maintenance_thread.get_or_init(|| maintenance.thread().clone());
        self.table_cache.watched_by(maintenance.thread());
        held(&self.threads).extend([run, maintenance]);
        Ok(())
    }
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
            let Superblock { trim, epoch, .. } = superblock;
            let opening = Opening { tail: trim.position, next: recovery.next, epoch };
            let ring = volumes.ring().clone();
            Wal::open(ring, superblock.zone(), config, opening, options.clock.clone(), state.clone())
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
            inner.start_threads()?;
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

    /// Closes the store as its last handle goes, and lets go of its volumes if it was told to
    /// close.
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

    /// Returns once every callback of a store that has ended has been called. A callback may want
    /// the lock of who closes.
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
            // The threads are not here, and what they shared is as it was in the midst of
            // something: nothing is ended, closed or freed.
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
