//! The store as its users hold it: every public call, and the threads behind them.

use std::future::Future;
use std::ops::RangeBounds;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::task::{Context as TaskContext, Poll};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use brooklet_io::{MemVolume, Volume};
use brooklet_wal::{Ack, Block, Committer, Config, Pause, Recovery, Sink, Wal, WalError};

use crate::commit::{Action, Commit, Durability, Op};
use crate::error::{Error, KeyText};
use crate::front::{Front, OnBoard, Refused, Seqs};
use crate::keeper::{Context, Keeper};
use crate::model::{Bounds, MAX_KEY};
use crate::open::{self, Opened};
use crate::options::Options;
use crate::read::{Entries, View};
use crate::scan::Logs;

/// A store of many small append-only logs in one file. Clones are handles to the same open store.
///
/// Dropping the last handle closes it. All calls may be made from any thread.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

/// Ends the threads when the last handle goes.
struct Handle {
    inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Inner {
    pub options: Options,
    pub volume: Arc<dyn Volume>,
    pub front: Arc<Shown>,
    /// `None` where the store is open read-only.
    pub wal: Option<Wal>,
    pub keeper: Mutex<Keeper>,
    pub recovery: Recovery,
    maintenance: OnceLock<Thread>,
    /// Set while a checkpoint is wanted and not begun, or asked for by a caller.
    wanted: AtomicBool,
    /// Why checkpoints do not get on, while they do not.
    stalled: Mutex<Option<Error>>,
    closing: AtomicBool,
    /// How closing went, once it did.
    closed: Mutex<Option<Result<(), Error>>>,
    committer: Mutex<Option<Committer>>,
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

    fn wal(&self) -> Result<&Wal, Error> {
        self.wal.as_ref().ok_or(Error::ReadOnly)
    }

    /// Does a slice of maintenance. `false` where there is nothing to do.
    fn maintain(&self) -> Result<bool, Error> {
        let wal = self.wal()?;
        let mut keeper = self.keeper();
        let wanted = self.wanted.load(Ordering::Relaxed);
        let context = Context { front: &self.front.0, wal, seed: self.options.seed };
        let worked = keeper.step(&context, wanted);
        if wanted && (keeper.is_checkpointing() || matches!(worked, Ok(false))) {
            self.wanted.store(false, Ordering::Relaxed);
        }
        let stalled = worked.as_ref().err().filter(|_| keeper.is_checkpointing()).cloned();
        *self.stalled.lock().expect("no panics") = stalled;
        worked
    }

    /// Asks for a checkpoint when the ring or the memory is part full.
    fn weigh(&self, front: &Front, used: u64) {
        let full = used > self.options.ring_size / 2 || front.active.bytes() > self.options.memory_budget / 2;
        if full && front.frozen.is_none() && !self.wanted.swap(true, Ordering::Relaxed) {
            self.nudge();
        }
    }

    fn nudge(&self) {
        if let Some(thread) = self.maintenance.get() {
            thread.unpark();
        }
    }

    /// The maintenance thread: steps, and sleeps until there is something to do.
    fn keep(&self) {
        self.maintenance.get_or_init(std::thread::current);
        while !self.closing.load(Ordering::Acquire) {
            match self.maintain() {
                Ok(true) => {}
                Ok(false) if self.keeper().is_checkpointing() => {
                    // The frozen tier's last block is on its way; push it, since nobody may be waiting for it.
                    if self.flush().is_err() {
                        std::thread::park();
                    }
                }
                Ok(false) => std::thread::park(),
                Err(Error::Stopped { .. } | Error::Closed) => std::thread::park(),
                Err(error) => {
                    tracing::warn!(%error, "a checkpoint or compaction was given up for now");
                    std::thread::park_timeout(Duration::from_millis(100));
                }
            }
        }
    }

    /// Boards a commit, looking up logs and waiting for room as need be.
    fn board(&self, ops: &[Op<'_>], durability: Durability) -> Result<OnBoard, Error> {
        let wal = self.wal()?;
        for op in ops {
            self.check(op)?;
        }
        // What frees space is let through whatever else is full.
        let freeing = !ops.iter().any(|op| matches!(op.action, Action::Append(_) | Action::Snapshot(_)));
        loop {
            let mut front = self.front();
            let over =
                !freeing && front.frozen.is_some() && front.active.bytes() > self.options.memory_budget / 2;
            let refused = if over {
                Refused::NoRoom(WalError::Busy)
            } else {
                match front.board(wal, ops, durability, self.options.linger) {
                    Ok(on_board) => {
                        self.weigh(&front, on_board.boarded.used);
                        return Ok(on_board);
                    }
                    Err(refused) => refused,
                }
            };
            let runs = front.runs.clone();
            // Commits that fail leave what was learned of their logs behind; that counts, too.
            let full = over || matches!(refused, Refused::NoRoom(WalError::Full { .. }));
            self.weigh(&front, if full { u64::MAX } else { 0 });
            drop(front);
            match refused {
                Refused::Error(error) => return Err(error),
                Refused::Unknown(unknown) => {
                    let looked = unknown.iter().map(|&i| Ok((ops[i].key, runs.bounds(ops[i].key)?)));
                    let looked: Vec<_> = looked.collect::<Result<_, Error>>()?;
                    let mut front = self.front();
                    looked.into_iter().for_each(|(key, bounds)| front.learn(&runs, key, bounds));
                }
                Refused::NoRoom(why) => self.make_room(wal, why)?,
            }
        }
    }

    fn check(&self, op: &Op<'_>) -> Result<(), Error> {
        check_key(op.key)?;
        match op.action {
            Action::Append(payload) | Action::Snapshot(payload)
                if payload.len() > self.options.max_payload =>
            {
                Err(Error::PayloadTooLarge { len: payload.len(), limit: self.options.max_payload })
            }
            _ => Ok(()),
        }
    }

    fn make_room(&self, wal: &Wal, why: WalError) -> Result<(), Error> {
        if self.options.threads {
            // The maintenance thread tries again by itself; until it gets on, waiting would be for nothing.
            let stalled = self.stalled.lock().expect("no panics").clone();
            return stalled.map_or_else(|| Ok(wal.wait_for_room()?), Err);
        }
        let worked = self.step()?;
        self.flush()?;
        if worked { Ok(()) } else { Err(why.into()) }
    }

    /// Makes everything that boarded durable.
    fn flush(&self) -> Result<(), Error> {
        if let Some(committer) = self.committer.lock().expect("no panics").as_mut() {
            // Without threads, what the committer began is for us to bring to its end.
            while matches!(committer.step(), Pause::None | Pause::Write) {}
        }
        Ok(self.wal()?.flush()?)
    }

    /// Does what the threads would do next. `false` where there is nothing to do.
    fn step(&self) -> Result<bool, Error> {
        let mut worked = false;
        if let Some(committer) = self.committer.lock().expect("no panics").as_mut() {
            worked |= matches!(committer.step(), Pause::None | Pause::Write);
        }
        worked |= self.maintain()?;
        if !worked && self.keeper().is_checkpointing() {
            self.flush()?;
            worked = true;
        }
        Ok(worked)
    }
}

fn check_key(key: &[u8]) -> Result<(), Error> {
    if key.is_empty() || key.len() > MAX_KEY { Err(Error::InvalidKey { len: key.len() }) } else { Ok(()) }
}

impl Store {
    /// Opens the store at `path` with the default options, creating it if it is not there.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        Options::new().open(path)
    }

    /// An empty store in memory, for tests and trials. `seed` makes its chances repeatable.
    pub fn in_memory(seed: u64) -> Result<Self, Error> {
        let options = Options { seed, ..Options::new() }.ring_size(4 << 20).max_payload(512 << 10);
        options.create_on(Arc::new(MemVolume::new(seed)))
    }
}

impl Options {
    /// Opens the store at `path`.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Store, Error> {
        self.check()?;
        let volume = open::volume(path.as_ref(), &self)?;
        self.open_on(volume)
    }

    /// Opens the store on a volume.
    pub fn open_on(self, volume: Arc<dyn Volume>) -> Result<Store, Error> {
        self.check()?;
        let mut opened = open::load(&volume, &self)?;
        if !self.read_only {
            open::claim(&volume, &mut opened)?;
        }
        Store::start(volume, opened, self)
    }

    /// Makes an empty store on a volume and opens it.
    pub fn create_on(self, volume: Arc<dyn Volume>) -> Result<Store, Error> {
        open::create(&volume, &self)?;
        self.open_on(volume)
    }
}

impl Store {
    fn start(volume: Arc<dyn Volume>, opened: Opened, mut options: Options) -> Result<Self, Error> {
        let Opened { superblock, heap, manifest, front, recovery, .. } = opened;
        options.ring_size = superblock.ring_size;
        let front = Arc::new(Shown(Mutex::new(front)));
        let wal = (!options.read_only).then(|| {
            let Options { block_size, depth, linger, .. } = options;
            let config = Config { block_size, depth, linger, ..Config::default() };
            let at = (superblock.trim.position, recovery.next, superblock.epoch);
            Wal::open(
                volume.clone(),
                open::zone(&superblock),
                config,
                at,
                options.clock.clone(),
                front.clone(),
            )
        });
        let committer = wal.as_ref().map(Committer::new).transpose();
        let committer = committer.map_err(Error::io("starting the committer"))?;
        let keeper = Mutex::new(Keeper::new(volume.clone(), superblock, heap, manifest));
        let threads = options.threads && wal.is_some();
        let inner = Arc::new(Inner {
            options,
            volume,
            front,
            wal,
            keeper,
            recovery,
            maintenance: OnceLock::new(),
            wanted: AtomicBool::new(false),
            stalled: Mutex::default(),
            closing: AtomicBool::new(false),
            closed: Mutex::default(),
            committer: Mutex::new(committer),
        });
        let handle = Arc::new(Handle { inner: inner.clone(), threads: Mutex::default() });
        if threads {
            let committer = inner.committer.lock().expect("no panics").take();
            let committer = committer.expect("a store with a log has a committer");
            let keeper = inner.clone();
            let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
                let thread = std::thread::Builder::new().name(name.into()).spawn(run);
                thread.map_err(Error::io("starting a thread"))
            };
            let mut threads = handle.threads.lock().expect("no panics");
            threads.push(spawn("brooklet-commit", Box::new(move || committer.run()))?);
            threads.push(spawn("brooklet-keep", Box::new(move || keeper.keep()))?);
        }
        if let Some(wal) = &inner.wal {
            inner.weigh(&inner.front(), wal.stats().used);
        }
        Ok(Self { handle })
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.handle.inner
    }

    fn write(&self, ops: &[Op<'_>], durability: Durability) -> Result<Ticket, Error> {
        let inner = self.inner();
        let on_board = inner.board(ops, durability)?;
        let ack = inner.wal()?.ack(&on_board.boarded);
        Ok(Ticket { seqs: on_board.seqs, ack, deferred: durability != Durability::Durable })
    }

    fn write_one(&self, key: &(impl AsRef<[u8]> + ?Sized), action: Action<'_>) -> Result<Ticket, Error> {
        self.write(&[Op { key: key.as_ref(), action }], Durability::Durable)
    }

    /// Adds an entry to a log, creating the log if need be.
    ///
    /// The entry's number is known at once ([`Ticket::seq`]); the entry is safe, and visible to readers, once the
    /// ticket says so ([`Ticket::wait`], or awaiting it).
    pub fn append(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Append(payload.as_ref()))
    }

    /// [`append`](Self::append), acknowledged as `durability` says.
    pub fn append_with(
        &self,
        key: impl AsRef<[u8]>,
        payload: impl AsRef<[u8]>,
        durability: Durability,
    ) -> Result<Ticket, Error> {
        self.write(&[Op { key: key.as_ref(), action: Action::Append(payload.as_ref()) }], durability)
    }

    /// Adds several entries to a log, all or none, with consecutive numbers.
    pub fn append_many<P: AsRef<[u8]>>(
        &self,
        key: impl AsRef<[u8]>,
        payloads: impl IntoIterator<Item = P>,
    ) -> Result<Ticket, Error> {
        let payloads: Vec<P> = payloads.into_iter().collect();
        let op = |i: usize| Op { key: key.as_ref(), action: Action::Append(payloads[i].as_ref()) };
        let ops: Vec<Op<'_>> = (0..payloads.len()).map(op).collect();
        self.write(&ops, Durability::Durable)
    }

    /// Adds an entry and drops all before it, in one step.
    pub fn snapshot(&self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Snapshot(payload.as_ref()))
    }

    /// Drops the entries before `before`, which may be at most the log's next number. What is dropped already stays so.
    pub fn trim(&self, key: impl AsRef<[u8]>, before: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Trim(before))
    }

    /// Drops all but the last `n` entries.
    pub fn keep_last(&self, key: impl AsRef<[u8]>, n: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::KeepLast(n))
    }

    /// Drops the entries from `from` on; the next entry gets that number.
    pub fn truncate(&self, key: impl AsRef<[u8]>, from: u64) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Truncate(from))
    }

    /// Drops the log. A log created later under the same key is a new one and starts at 0.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<Ticket, Error> {
        self.write_one(&key, Action::Delete)
    }

    /// Does everything in a commit, or nothing of it.
    ///
    /// # Errors
    /// [`Error::Conflict`] where an expectation does not hold: it names the log and what was found.
    pub fn commit(&self, commit: &Commit<'_>) -> Result<Ticket, Error> {
        self.write(&commit.ops, commit.durability)
    }

    /// Reads entries of a log, as they are now: `..` for all, `5..` from number 5 on, `.rev()` for the newest first.
    ///
    /// Only acknowledged entries are seen. What happens to the log later does not change what the iterator gives.
    ///
    /// # Errors
    /// [`Error::UnknownLog`], and [`Error::OutOfRange`] where the range names entries that were trimmed or that are not
    /// there yet. While iterating, [`Error::Damaged`] where an entry does not read back as it was written.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// store.append_many("doc", ["a", "b", "c"])?.wait()?;
    /// let newest = store.read("doc", 1..)?.rev().next().unwrap()?;
    /// assert_eq!((newest.seq, &newest.payload[..]), (2, &b"c"[..]));
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(&self, key: impl AsRef<[u8]>, range: impl RangeBounds<u64>) -> Result<Entries, Error> {
        let key = key.as_ref();
        self.settle(key)?;
        let view = View::take(&self.inner().front(), key, &range)?;
        view.entries(key, &range)
    }

    /// The log's first and next numbers.
    ///
    /// # Errors
    /// [`Error::UnknownLog`].
    pub fn bounds(&self, key: impl AsRef<[u8]>) -> Result<Bounds, Error> {
        let key = key.as_ref();
        self.find(key)?.ok_or_else(|| Error::UnknownLog { key: KeyText::of(key) })
    }

    /// Whether the log exists.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        Ok(self.find(key.as_ref())?.is_some())
    }

    fn find(&self, key: &[u8]) -> Result<Option<Bounds>, Error> {
        self.settle(key)?;
        let front = self.inner().front();
        let recent = front.recent(key).first().map(|(_, _, piece)| piece.bounds);
        let runs = front.runs.clone();
        drop(front);
        recent.map_or_else(|| runs.bounds(key), Ok)
    }

    /// Makes durable what was acknowledged on a log without being so, since readers see it and nothing but durable data.
    fn settle(&self, key: &[u8]) -> Result<(), Error> {
        check_key(key)?;
        let deferred = self.inner().front().deferred(key);
        self.settle_block(deferred)
    }

    fn settle_block(&self, deferred: u64) -> Result<(), Error> {
        let inner = self.inner();
        match &inner.wal {
            Some(wal) if deferred > 0 && wal.durable() < deferred => match inner.flush() {
                // Reads go on when writing cannot, and show what is safe.
                Err(Error::Stopped { .. } | Error::Closed) => Ok(()),
                done => done,
            },
            _ => Ok(()),
        }
    }

    /// The logs whose keys start with `prefix`, in the order of their keys.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Result<Logs, Error> {
        let deferred = self.inner().front().last_deferred;
        self.settle_block(deferred)?;
        let (logs, runs) = Logs::take(&self.inner().front(), prefix.as_ref());
        logs.with_runs(&runs)
    }

    /// Makes everything committed before the call durable, deferred commits too.
    pub fn flush(&self) -> Result<(), Error> {
        self.inner().flush()
    }

    /// Writes the recent tier to a run and frees the ring behind it. Happens by itself; this does it now.
    pub fn checkpoint(&self) -> Result<(), Error> {
        let inner = self.inner();
        inner.flush()?;
        let target = inner.front().generation();
        let done = |front: &Front| {
            front.oldest_generation() > target || front.frozen.is_none() && front.active.is_empty()
        };
        while !done(&inner.front()) {
            inner.wanted.store(true, Ordering::Relaxed);
            if !inner.maintain()? {
                inner.flush()?;
            }
        }
        // There may be enough runs for a compaction now.
        inner.nudge();
        Ok(())
    }

    /// Merges all runs into one: what was trimmed and deleted leaves, and its space is free. Happens by itself, a tier
    /// at a time; this does all of it now.
    pub fn compact(&self) -> Result<(), Error> {
        let inner = self.inner();
        self.checkpoint()?;
        let context = Context { front: &inner.front.0, wal: inner.wal()?, seed: inner.options.seed };
        let before: Vec<u64> = inner.front().runs.iter().map(|run| run.meta.id).collect();
        // A merged run is a new one, with a number of its own.
        let left = || inner.front().runs.iter().any(|run| before.contains(&run.meta.id));
        while before.len() > 1 && left() {
            // What goes on already is brought to its end first.
            inner.keeper().merge_all(&context)?;
            if !inner.maintain()? {
                inner.flush()?;
            }
        }
        Ok(())
    }

    /// Does what the store's threads would do next; `false` where there is nothing. For stores without threads.
    #[doc(hidden)]
    pub fn step(&self) -> Result<bool, Error> {
        self.inner().step()
    }

    /// Lets go of the store as a killed process would: nothing more is written. For tests.
    #[doc(hidden)]
    pub fn abandon(self) {
        let mut closed = self.inner().closed.lock().expect("no panics");
        if let Some(wal) = &self.inner().wal {
            wal.abandon();
        }
        self.inner().end_threads(self.handle.take_threads());
        *closed = Some(Ok(()));
        drop(closed);
    }

    /// Makes everything durable and closes the store, so that the next opening need not look for a torn end.
    /// Every handle stops taking writes; the file is let go of when the last one is dropped. Closing twice is no error.
    pub fn close(&self) -> Result<(), Error> {
        self.handle.close()
    }
}

impl Handle {
    fn close(&self) -> Result<(), Error> {
        let mut closed = self.inner.closed.lock().expect("no panics");
        closed.get_or_insert_with(|| self.inner.end(self.take_threads())).clone()
    }

    fn take_threads(&self) -> Vec<JoinHandle<()>> {
        std::mem::take(&mut *self.threads.lock().expect("no panics"))
    }
}

impl Inner {
    /// Makes everything durable, ends the threads and records where the ring ends.
    fn end(&self, threads: Vec<JoinHandle<()>>) -> Result<(), Error> {
        let end = self.wal.as_ref().map(|wal| self.flush().and_then(|()| Ok(wal.close()?)));
        self.end_threads(threads);
        match end {
            None => Ok(()),
            Some(end) => self.keeper().close(end?),
        }
    }

    fn end_threads(&self, threads: Vec<JoinHandle<()>>) {
        self.closing.store(true, Ordering::Release);
        self.nudge();
        for thread in threads {
            let _ = thread.join();
        }
        self.committer.lock().expect("no panics").take();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let threads = self.take_threads();
        let me = std::thread::current().id();
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
            let closer = std::thread::Builder::new().name("brooklet-close".into()).spawn(close);
            drop(closer.inspect_err(|error| tracing::error!(%error, "no thread to close the store on")));
        } else {
            close();
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Store({})", self.inner().volume.info().name)
    }
}

/// The promise of a write: its sequence numbers now, its durability when it comes.
///
/// Wait for it on a thread, await it in a task of any runtime, or leave a callback. Dropping it changes nothing: the
/// write becomes durable all the same.
#[derive(Clone, Debug)]
#[must_use = "a write is acknowledged only once its ticket has been waited for"]
pub struct Ticket {
    seqs: Seqs,
    ack: Ack,
    deferred: bool,
}

impl Ticket {
    /// The number of the entry that was added; of the first, where there are several; 0 where none was.
    pub fn seq(&self) -> u64 {
        self.seqs.as_slice().first().copied().unwrap_or_default()
    }

    /// The numbers of all entries that were added, in the order of the operations.
    pub fn seqs(&self) -> &[u64] {
        self.seqs.as_slice()
    }

    /// Blocks until the write is acknowledged: on stable media, or at once for a deferred one.
    ///
    /// # Errors
    /// [`Error::Stopped`]: a write to the device failed; whether this commit took effect is unknown until the store is
    /// opened again.
    pub fn wait(&self) -> Result<(), Error> {
        if self.deferred { Ok(()) } else { self.wait_durable() }
    }

    /// Blocks until the write is on stable media, a deferred one too.
    pub fn wait_durable(&self) -> Result<(), Error> {
        Ok(self.ack.wait()?)
    }

    /// Whether the write is on stable media, without waiting.
    pub fn is_durable(&self) -> bool {
        self.ack.is_done()
    }

    /// Calls `callback` once the write is acknowledged, or cannot be any more.
    ///
    /// It runs on a thread that drives the log: it must be quick, and must not wait for another write.
    pub fn on_done(&self, callback: impl FnOnce(Result<(), Error>) + Send + 'static) {
        if self.deferred {
            callback(Ok(()));
        } else {
            self.ack.on_done(|result| callback(result.map_err(Error::from)));
        }
    }
}

impl Future for Ticket {
    type Output = Result<(), Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut TaskContext<'_>) -> Poll<Self::Output> {
        if self.deferred {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.ack).poll(context).map_err(Error::from)
    }
}
