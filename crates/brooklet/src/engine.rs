//! The engine room: what an open store is made of, and the threads that keep it going.
//!
//! Locks are taken in this order: keeper, front, the log's core. The front's is held for short steps only; nobody waits
//! for the log while holding it. The keeper's is held for a slice of work at a time.

mod maintenance;

use std::sync::{Arc, OnceLock, TryLockError};
use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_wal::{Block, Committer, Config, Pause, Recovery, Sink, Wal, WalError};

use crate::activity::Kept;
use crate::commit::{Action, Durability, Op};
use crate::counters::{Counters, Stall, StallReason};
use crate::error::Error;
use crate::front::{Front, Moment, OnBoard, Refused, Wish, wall};
use crate::keeper::Keeper;
use crate::memory::Silos;
use crate::model::MAX_KEY;
use crate::open::Opened;
use crate::options::Options;
use crate::pace::{Ages, Quiet};
use crate::pressure::Ration;
use crate::shelf::Shelf;
use crate::sweep::Sweeper;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::{self, JoinHandle, Thread};
use crate::sync::{Mutex, MutexGuard};
use crate::volumes::Volumes;

/// Ends the threads when the last handle goes.
pub(crate) struct Handle {
    pub inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Inner {
    pub options: Options,
    /// Bytes of the ring that the store has.
    ring_size: u64,
    pub volumes: Volumes,
    pub front: Arc<Shown>,
    /// `None` where the store is open read-only.
    pub wal: Option<Wal>,
    pub keeper: Mutex<Keeper>,
    pub recovery: Recovery,
    maintenance: OnceLock<Thread>,
    quiet: Mutex<Quiet>,
    /// For what look-ups keep in memory.
    pub shelf: Arc<Shelf>,
    ages: Mutex<Ages>,
    pub sweeper: Mutex<Sweeper>,
    /// Held by whoever changes the spaces.
    pub configuring: Mutex<()>,
    pub silos: Silos,
    /// The thread that dumps them when that is due.
    pub dumper: OnceLock<Thread>,
    /// Commits of the store itself: it is idle all the same.
    pub own_commits: AtomicU64,
    /// Set while the maintenance thread sleeps until it is woken, though nothing is full: by the next commit.
    asleep: AtomicBool,
    /// Set while a checkpoint is wanted and not begun, or asked for by a caller.
    pub wanted: AtomicBool,
    /// Set once the keeper has been told that it should look after room, until it does.
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
    /// What the keeper had done and had as its last slice ended: nobody waits for the keeper to look.
    pub kept: Mutex<Kept>,
    committer: Mutex<Option<Committer>>,
}

/// The logs whose sizes were looked up for a commit: until it has boarded, or was refused for good, they stay in memory, with
/// what was learned.
struct Counting<'a> {
    inner: &'a Inner,
    keys: Vec<&'a [u8]>,
}

impl<'a> Counting<'a> {
    fn begin(&mut self, front: &mut Front, key: &'a [u8]) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
            front.begin_count(key);
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            let mut front = self.inner.front();
            self.keys.iter().for_each(|key| front.end_count(key));
        }
    }
}

/// The front, as the log's sink.
pub(crate) struct Shown(Mutex<Front>);

impl Sink for Shown {
    fn durable(&self, blocks: &[Arc<Block>]) {
        self.0.lock().expect("no panics").show(blocks).expect("effects were checked when they boarded");
    }
}

impl Inner {
    pub fn front(&self) -> MutexGuard<'_, Front> {
        self.front.0.lock().expect("no panics")
    }

    pub fn keeper(&self) -> MutexGuard<'_, Keeper> {
        self.keeper.lock().expect("no panics")
    }

    /// The keeper, unless this very thread is at work with it: a store without threads has one caller, and where that
    /// one comes again from within (from a callback, or from a volume that calls back) the work goes on further out.
    fn free_keeper(&self) -> Option<MutexGuard<'_, Keeper>> {
        if self.options.threads {
            return Some(self.keeper());
        }
        match self.keeper.try_lock() {
            Ok(keeper) => Some(keeper),
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(_)) => panic!("no panics"),
        }
    }

    /// Steps the committer of a store without threads, until what it began has ended if `drain` says so.
    fn step_committer(&self, drain: bool) -> bool {
        // With threads it is not here, and held by nobody for long; without, see `free_keeper`.
        let Ok(mut committer) = self.committer.try_lock() else { return false };
        let Some(committer) = committer.as_mut() else { return false };
        let mut worked = false;
        while matches!(committer.step(), Pause::None | Pause::Write(_)) {
            worked = true;
            if !drain {
                break;
            }
        }
        worked
    }

    pub fn wal(&self) -> Result<&Wal, Error> {
        self.wal.as_ref().ok_or(Error::ReadOnly)
    }

    /// The wall clock, in milliseconds since the Unix epoch.
    pub fn now(&self) -> u64 {
        wall(&*self.options.clock)
    }

    pub fn nudge(&self) {
        if let Some(thread) = self.maintenance.get() {
            thread.unpark();
        }
    }

    pub fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Boards a commit, looking up logs as need be, and waiting for room if `wait` says so.
    ///
    /// `None` where a log of it is kept in memory. Nobody checks here whether the operations may be asked for at all.
    pub fn board(
        &self,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        wait: bool,
    ) -> Result<Option<OnBoard>, Error> {
        let wal = self.wal()?;
        // What frees space is let through whatever else is full.
        let freeing = !ops.iter().any(|op| op.action.adds());
        let mut asked = None;
        let Counters { boards, stalls, .. } = &self.counters;
        let clock = &*self.options.clock;
        let boarded = boards
            .time(clock, || self.board_once_there_is_room(wal, ops, durability, (freeing, wait), &mut asked));
        if asked.is_some() {
            self.front().room.leave();
        }
        let Some((on_board, delay)) = boarded? else { return Ok(None) };
        if !delay.is_zero() {
            let mut stall = Stall::new(stalls, clock);
            stall.waits(StallReason::HeapSlope);
            thread::park_timeout(delay);
        }
        Ok(Some(on_board))
    }

    /// Boards a commit, and tells how long its caller should wait before the next. `asked` keeps the number of having asked
    /// for room in the heap.
    fn board_once_there_is_room(
        &self,
        wal: &Wal,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        (freeing, wait): (bool, bool),
        asked: &mut Option<u64>,
    ) -> Result<Option<(OnBoard, Duration)>, Error> {
        let mut counting = Counting { inner: self, keys: Vec::new() };
        let mut stall = Stall::new(&self.counters.stalls, &*self.options.clock);
        let mut looked = false;
        loop {
            let mut front = self.front();
            let memory = front.memory();
            // Without threads a checkpoint is always as far as it can be.
            let rationed = self.options.threads && self.is_beyond_ration(memory);
            // What was looked up for this commit is let in: a checkpoint would drop it, and the next look-up bring it again.
            let over =
                !freeing && !looked && (rationed || memory > front.most_memory(self.options.memory_budget));
            let refused = if over {
                Refused::NoRoom(WalError::Busy)
            } else {
                match front.board(
                    wal,
                    ops,
                    durability,
                    self.options.linger,
                    &Moment::new(&*self.options.clock),
                ) {
                    Ok(on_board) => {
                        self.used.store(on_board.boarded.used, Ordering::Relaxed);
                        self.weigh(&front, on_board.boarded.used);
                        // Without threads nothing would come in time.
                        let waits = !freeing && wait && self.options.threads;
                        let delay = if waits { front.gauge().delay() } else { Duration::ZERO };
                        return Ok(Some((on_board, delay)));
                    }
                    Err(refused) => refused,
                }
            };
            // Whoever waits holds no runs: it would keep what merging frees.
            let looks = matches!(refused, Refused::Unknown(_) | Refused::Sizes(..));
            let runs = if looks { front.runs.clone() } else { Arc::default() };
            looked |= looks;
            if let Refused::Sizes(i, _) = refused {
                counting.begin(&mut front, ops[i].key);
            }
            // Commits that fail leave what was learned of their logs behind; that counts, too.
            let full = over || matches!(refused, Refused::NoRoom(WalError::Full { .. }));
            self.weigh(&front, if full { u64::MAX } else { 0 });
            let rests_on = match &refused {
                Refused::Error(error) => front.rests_on(ops, error),
                _ => None,
            };
            if let Refused::Short(wish) = refused {
                if !wait {
                    let error = front.room.refuse(wish);
                    self.weigh(&front, 0);
                    return Err(error);
                }
                *asked = Some(front.room.ask(*asked, wish)?);
            }
            drop(front);
            if full || asked.is_some() {
                // It may be resting between two slices.
                self.nudge();
            }
            match refused {
                Refused::Error(error) => return Err(self.refusal(wal, error, rests_on, wait)),
                Refused::InMemory => return Ok(None),
                Refused::Unknown(unknown) => {
                    let look = |key| self.counters.run_lookups.time(&*self.options.clock, || runs.state(key));
                    let looked = unknown.iter().map(|&i| Ok((ops[i].key, look(ops[i].key)?)));
                    let looked: Vec<_> = looked.collect::<Result<_, Error>>()?;
                    let mut front = self.front();
                    let mut learned = true;
                    looked.into_iter().for_each(|(key, state)| learned &= front.learn(&runs, key, state));
                    drop(front);
                    match learned {
                        true => {}
                        false if wait => {
                            stall.waits(StallReason::Import);
                            self.make_room(wal, WalError::Busy)?;
                        }
                        false => return Err(WalError::Busy.into()),
                    }
                }
                Refused::Sizes(i, missing) => {
                    let found = missing.look(&runs, ops[i].key)?;
                    self.front().learn_sizes(ops[i].key, found);
                }
                Refused::NoRoom(why) if !wait => return Err(why.into()),
                Refused::Short(wish) => {
                    stall.waits(StallReason::Heap);
                    self.wait_for_heap(wal, wish)?;
                }
                Refused::NoRoom(why) => {
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

    /// Lets the keeper do what may make room in the heap.
    fn wait_for_heap(&self, wal: &Wal, wish: Wish) -> Result<(), Error> {
        if self.options.threads {
            return self.wait_for_room(wal);
        }
        let worked = self.step()?;
        self.flush()?;
        let front = self.front();
        if worked || front.press().is_none() { Ok(()) } else { Err(front.room.full(wish)) }
    }

    fn make_room(&self, wal: &Wal, why: WalError) -> Result<(), Error> {
        if self.options.threads {
            return self.wait_for_room(wal);
        }
        let worked = self.step()?;
        self.flush()?;
        if worked { Ok(()) } else { Err(why.into()) }
    }

    fn wait_for_room(&self, wal: &Wal) -> Result<(), Error> {
        // The maintenance thread tries again by itself; until it gets on, waiting would be for nothing.
        let stalled = self.stalled.lock().expect("no panics").clone();
        stalled.map_or_else(|| Ok(wal.wait_for_room()?), Err)
    }

    /// Makes everything that boarded durable.
    pub fn flush(&self) -> Result<(), Error> {
        self.step_committer(true);
        Ok(self.wal()?.flush()?)
    }

    /// Does what the threads would do next. `false` where there is nothing to do.
    pub fn step(&self) -> Result<bool, Error> {
        let committed = self.step_committer(false);
        let mut worked = self.maintain()? || committed;
        if !worked && self.free_keeper().is_some_and(|keeper| keeper.is_checkpointing()) {
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
    pub fn start(opened: Opened, options: Options) -> Result<Self, Error> {
        let Opened { volumes, shelf, superblock, heap, manifest, mut front, recovery, .. } = opened;
        front.inherits(options.memory_budget);
        let ring_size = superblock.ring_size;
        let front = Arc::new(Shown(Mutex::new(front)));
        let wal = (!options.read_only).then(|| {
            let Options { block_size, depth, linger, interval, rate, .. } = options;
            let config = Config { block_size, depth, linger, interval, rate, ..Config::default() };
            let at = (superblock.trim.position, recovery.next, superblock.epoch);
            let ring = volumes.ring().clone();
            Wal::open(ring, superblock.zone(), config, at, options.clock.clone(), front.clone())
        });
        let committer = wal.as_ref().map(Committer::new).transpose();
        let committer = committer.map_err(Error::io("starting the committer"))?;
        let keeper = Keeper::new(volumes.clone(), shelf.clone(), superblock, heap, manifest);
        let keeper = Mutex::new(keeper);
        let threads = options.threads && wal.is_some();
        let now = options.clock.now();
        let inner = Arc::new(Inner {
            options,
            ring_size,
            volumes,
            front,
            wal,
            keeper,
            recovery,
            maintenance: OnceLock::new(),
            quiet: Mutex::new(Quiet::new(now)),
            shelf,
            ages: Mutex::new(Ages::new(now)),
            sweeper: Mutex::default(),
            configuring: Mutex::default(),
            silos: Silos::default(),
            dumper: OnceLock::new(),
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
        });
        let handle = Handle { inner: inner.clone(), threads: Mutex::default() };
        if inner.wal.is_some() {
            inner.keeper().prepare(&inner.context()?)?;
        }
        *inner.kept.lock().expect("no panics") = inner.keeper().kept();
        if threads {
            let committer = inner.committer.lock().expect("no panics").take();
            let committer = committer.expect("a store with a log has a committer");
            let keeper = inner.clone();
            let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
                let thread = thread::Builder::new().name(name.into()).spawn(run);
                thread.map_err(Error::io("starting a thread"))
            };
            let run = spawn("brooklet-commit", Box::new(move || committer.run()))?;
            let keep = spawn("brooklet-keep", Box::new(move || keeper.keep()))?;
            // Set here and not by the thread, which might look whether it is wanted while it cannot be woken yet.
            inner.maintenance.get_or_init(|| keep.thread().clone());
            inner.shelf.watched_by(keep.thread());
            handle.threads.lock().expect("no panics").extend([run, keep]);
        }
        if let Some(wal) = &inner.wal {
            inner.weigh(&inner.front(), wal.stats().used);
        }
        Ok(handle)
    }

    /// Closes the store once; later calls give the first one's answer.
    pub fn close(&self) -> Result<(), Error> {
        let mut closed = self.inner.closed.lock().expect("no panics");
        closed.get_or_insert_with(|| self.inner.end(self.take_threads())).clone()
    }

    /// Has a thread of the store end with it.
    pub fn adopt(&self, thread: JoinHandle<()>) {
        self.threads.lock().expect("no panics").push(thread);
    }

    pub fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.threads.lock().expect("no panics"))
    }
}

impl Inner {
    /// Makes everything durable, ends the threads and records where the ring ends.
    fn end(self: &Arc<Self>, threads: Vec<JoinHandle<()>>) -> Result<(), Error> {
        let dumped = self.dump_for_good();
        let end = self.wal.as_ref().map(|wal| self.flush().and_then(|()| Ok(wal.close()?)));
        self.end_threads(threads);
        match end {
            None => Ok(()),
            Some(end) => self.keeper().close(end?).and(dumped),
        }
    }

    pub fn end_threads(&self, threads: Vec<JoinHandle<()>>) {
        self.closing.store(true, Ordering::Release);
        threads.iter().for_each(|thread| thread.thread().unpark());
        for thread in threads {
            let _ = thread.join();
        }
        self.committer.lock().expect("no panics").take();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let threads = self.take_threads();
        let me = thread::current().id();
        let ours = threads.iter().any(|thread| thread.thread().id() == me);
        let inner = self.inner.clone();
        let close = move || {
            let mut closed = inner.closed.lock().expect("no panics");
            if let Err(error) = closed.get_or_insert_with(|| inner.end(threads)) {
                tracing::warn!(%error, "the store was not closed cleanly; the next opening recovers it");
            }
        };
        if ours {
            // The last handle went in a callback, on a thread that closing waits for.
            let closer = thread::Builder::new().name("brooklet-close".into()).spawn(close);
            drop(closer.inspect_err(|error| tracing::error!(%error, "no thread to close the store on")));
        } else {
            close();
        }
    }
}
