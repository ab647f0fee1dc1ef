//! The state that the handles of a log share, and the steps of a thread that drives the log: take,
//! seal, place, write, release, notify.
//!
//! A waiting thread drives: a thread that waits for its block and finds a free write slot seals the
//! block and writes it itself, so a lone writer needs one system call and no wake-up. The
//! [`Committer`](crate::Committer) drives for tasks and callbacks.
//!
//! Locks: `core` is held for short steps only, never across I/O, compression, the sink or a
//! wake-up. The sink may take its own locks, and callers may hold those locks while they append; so
//! no code here appends or waits inside the sink. `calls` describes where user code runs.
//!
//! A panic of the volume, of the sink or of a driver counts as a failed write: it stops the log,
//! and all waiters are notified.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::thread::panicking;
use std::time::Duration;

use brooklet_io::panics::caught;
use brooklet_io::seeded::bug;
use brooklet_io::{Clock, Persist, Process, Volume, write_all_at};

use crate::block_handle::Block;
use crate::calls::{Call, Calls, Expected, guarded, take_tasks, wake_all};
use crate::config::Config;
use crate::core::{BlockTimes, CommitterWait, Core, Next, Released, Taken, Write, WriteReason};
use crate::error::WalError;
use crate::listeners::{Heard, Listeners};
use crate::mirror::{Mirror, Mirrored};
use crate::seal::{Pool, seal};
use crate::sink::{Sink, Waiters};
use crate::sync::atomic::AtomicBool;
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, MutexGuard};

pub(crate) struct Shared {
    core: Mutex<Core>,
    /// Whether the log has stopped or was closed; see [`Core::ended`].
    pub ended: Arc<AtomicBool>,
    pub pool: Arc<Pool>,
    pub volume: Arc<dyn Volume>,
    /// Offset of the ring's first byte on the volume.
    pub zone: u64,
    pub config: Config,
    pub clock: Arc<dyn Clock>,
    pub sink: Arc<dyn Sink>,
    /// The second place of the blocks, if the log has one.
    pub mirror: OnceLock<Arc<dyn Mirror>>,
    pub committer: OnceLock<CommitterHandle>,
    pub calls: Arc<Calls>,
    /// The process that opened the log.
    pub process: Process,
}

/// The next action of a thread that waits for the log.
pub(crate) enum Turn {
    /// The thread writes this block.
    Drive(Taken),
    /// The thread sleeps: no committer's thread keeps the pace.
    Sleep(Duration),
    /// The thread waits for others.
    Wait,
}

/// A handle to end the committer's rests.
pub(crate) struct CommitterHandle {
    pub thread: Thread,
    pub flying: Waker,
}

/// A guard that is taken before the core is locked. If the thread panics, it wakes the committer,
/// which finds the log half changed and notifies all waiters. Otherwise, they would wait for the
/// next call, which may not come for hours. This thread cannot notify them: its callers may hold
/// locks.
pub(crate) struct WakesAfterPanic<'a>(pub &'a Shared);

impl Drop for WakesAfterPanic<'_> {
    fn drop(&mut self) {
        if panicking()
            && let Some(committer) = self.0.committer.get()
        {
            committer.thread.unpark();
            // The waker may be the user's own, and may panic.
            guarded(|| committer.flying.wake_by_ref());
        }
    }
}

impl Shared {
    pub fn new(
        core: Core,
        pool: Arc<Pool>,
        (volume, zone): (Arc<dyn Volume>, u64),
        config: Config,
        clock: Arc<dyn Clock>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        let (ended, core) = (core.ended.clone(), Mutex::new(core));
        let (committer, process) = (OnceLock::new(), Process::current());
        let (calls, mirror) = (Calls::new(process), OnceLock::new());
        Self { core, ended, pool, volume, zone, config, clock, sink, mirror, committer, calls, process }
    }

    /// Refuses a process that did not open the log.
    pub fn here(&self) -> Result<(), WalError> {
        if self.process.is_here() { Ok(()) } else { Err(WalError::Forked) }
    }

    /// Locks the core. After a panic under the lock, the log has stopped.
    ///
    /// # Panics
    /// In a process that did not open the log: the lock may never be free there.
    pub fn lock(&self) -> MutexGuard<'_, Core> {
        assert!(self.process.is_here(), "{}", WalError::Forked);
        self.core.lock().unwrap_or_else(|poisoned| {
            let mut core = poisoned.into_inner();
            let blocks = core.fail(io::Error::other("a thread panicked while it changed the log"));
            if !blocks.is_empty() {
                let (expected, waiters, rest) = (self.calls.expect(), core.room_changed(), core.rest.take());
                drop(core);
                waiters.iter().for_each(Thread::unpark);
                self.end_rest(rest);
                self.end(&blocks, Err(self.failed()), expected);
                return self.lock();
            }
            core
        })
    }

    /// Returns once `block` is durable, and drives the log if no other thread does.
    pub fn wait(&self, block: &Arc<Block>) -> Result<(), WalError> {
        loop {
            if let Some(ended) = block.ended() {
                return ended;
            }
            self.may_wait()?;
            match self.turn() {
                Turn::Drive(taken) => self.carry_out(taken),
                Turn::Sleep(time) => self.clock.sleep(time),
                Turn::Wait => {
                    if let Some(heard) = block.listen(|all| all.thread(thread::current())) {
                        self.see_to(Some(heard));
                        thread::park();
                    }
                }
            }
        }
    }

    /// Returns the next action of a thread that waits for durability.
    pub fn turn(&self) -> Turn {
        let mut core = self.lock();
        let alone = core.is_paced() && self.committer.get().is_none();
        let now = if alone { self.clock.now() } else { Duration::ZERO };
        match core.take(if alone { WriteReason::Alone(now) } else { WriteReason::Wanted }) {
            Some(taken) => Turn::Drive(taken),
            None if alone => core.held_back(now).map_or(Turn::Wait, Turn::Sleep),
            None => Turn::Wait,
        }
    }

    /// Refuses to wait on the committer's thread, called from a waker: the committer would wait for
    /// itself.
    pub fn may_wait(&self) -> Result<(), WalError> {
        self.here()?;
        if self.is_committer() { Err(WalError::WouldWait) } else { Ok(()) }
    }

    /// Returns whether this is the committer's thread.
    pub fn is_committer(&self) -> bool {
        self.committer.get().is_some_and(|committer| committer.thread.id() == thread::current().id())
    }

    /// Returns the next driver, if a block can be taken and somebody wants it.
    fn next_driver(&self, core: &mut Core) -> Option<Next> {
        core.next_driver(self.committer.get().is_none())
    }

    /// Ensures that a block with a new listener is driven. The first listener, and the first thread
    /// that can drive, may have joined after the last driver looked for a successor and found none.
    /// Later listeners need no check: the next driver finds them all.
    pub fn see_to(&self, heard: Option<Heard>) {
        if heard == Some(Heard::First) {
            let next = self.next_driver(&mut self.lock());
            self.wake(next);
        }
    }

    /// Returns the error that ended the log.
    pub fn failed(&self) -> WalError {
        self.lock().check().err().unwrap_or(WalError::Closed)
    }

    /// Seals, writes and releases a taken block, in this thread.
    pub fn carry_out(&self, taken: Taken) {
        let Some(write) = self.seal_and_place(taken) else { return };
        let persist = if bug("lone-write-is-cached") { Persist::Cached } else { Persist::Durable };
        let write_all = || write_all_at(&*self.volume, self.zone + write.offset, &write.data, persist);
        let written = if bug("panic-leaves-a-write-open") {
            Ok(write_all())
        } else {
            // The thread may be a user's thread that only waits, but all waiters need this write.
            caught("writing a block", write_all)
        };
        self.finish(write.seq, written.and_then(|result| result));
    }

    /// Seals a block and places it. `None` if the log stopped meanwhile.
    pub fn seal_and_place(&self, taken: Taken) -> Option<Write> {
        match caught("sealing a block", || self.try_seal_and_place(taken)) {
            Ok(placed) => placed.ok(),
            Err(panic) => {
                drop(self.fail(panic));
                None
            }
        }
    }

    fn try_seal_and_place(&self, taken: Taken) -> Result<Write, WalError> {
        // Writers copy their records without waiting, so this loop is short. Nothing that may panic
        // comes before it: that would free the memory into which they copy.
        while taken.block.is_being_filled() {
            thread::yield_now();
        }
        let times = BlockTimes::begun(taken.appended, self.clock.now());
        let times = (taken.records > 0).then_some(times);
        let sealed = seal(&self.pool, taken.buf, taken.records, taken.effort);
        let now = self.clock.now();
        let mut core = self.lock();
        let placed = core.place(taken.block, sealed, times, now);
        let waiters = core.room_changed();
        let next = self.next_driver(&mut core);
        drop(core);
        self.wake(next);
        waiters.iter().for_each(Thread::unpark);
        placed
    }

    /// Records the result of a block's write, and releases the blocks that are durable now.
    pub fn finish(&self, seq: u64, result: io::Result<()>) {
        if let Err(error) = result
            && !bug("failed-write-is-acknowledged")
        {
            return drop(self.fail(error));
        }
        let now = self.clock.now();
        self.lock().complete(seq, now);
        self.release();
    }

    /// Records how many blocks the mirror keeps, and releases what waited for that.
    pub fn keep(&self, blocks: u64) {
        let now = self.clock.now();
        let mut core = self.lock();
        let ends = core.kept(blocks, now);
        let waiters = core.room_changed();
        let expected = self.calls.expect();
        drop(core);
        waiters.iter().for_each(Thread::unpark);
        self.notify(finish(&ends, &Ok(())), Waiters::default(), &Ok(()), expected);
        self.release();
    }

    /// Releases the blocks that may be released now.
    fn release(&self) {
        loop {
            let mut core = self.lock();
            let Some(Released { given, shown: blocks }) = core.release() else {
                let next = self.next_driver(&mut core);
                // The mirror may have been the last to be waited for.
                let rest = if core.may_hide() { core.rest_without_cause() } else { None };
                drop(core);
                self.end_rest(rest);
                return self.wake(next);
            };
            // Announced under the lock: a thread that sees these blocks ended may close the log,
            // and closing waits for the callbacks of these blocks.
            let expected = self.calls.expect();
            drop(core);
            let mut waiters = Waiters::default();
            let show = || {
                if let Some(mirror) = self.mirror.get().filter(|_| !given.is_empty()) {
                    mirror.take(given);
                }
                if !blocks.is_empty() {
                    self.sink.durable(&blocks, &mut waiters);
                }
            };
            if let Err(panic) = caught("the log's sink", show) {
                // The released blocks are no longer in the window, so `fail` does not return them.
                let pending = self.fail(panic);
                let ended = Err(self.failed());
                self.notify(finish(&blocks, &ended), waiters, &ended, expected);
                return drop(pending);
            }
            let now = self.clock.now();
            let mut core = self.lock();
            core.released(&blocks, now);
            // Under the lock: another driver may be about to release the blocks behind these
            // blocks, and no block ends before an earlier block.
            let listeners = finish(&blocks, &Ok(()));
            let next = self.next_driver(&mut core);
            drop(core);
            // Starts the next write before this write's waiters are notified.
            self.wake(next);
            let woken = self.notify(listeners, waiters, &Ok(()), expected);
            if woken > 0 {
                self.lock().stats.wakes += woken;
            }
        }
    }

    /// Stops the log for good.
    pub fn fail(&self, error: io::Error) -> PendingNotify<'_> {
        tracing::error!(%error, "a write to the log failed; the log acknowledges no more appends");
        self.stop(|core| core.fail(error))
    }

    /// Stops the log with `how`.
    pub fn stop(&self, how: impl FnOnce(&mut Core) -> Vec<Arc<Block>>) -> PendingNotify<'_> {
        let mut core = self.lock();
        let blocks = how(&mut core);
        let waiters = core.room_changed();
        let rest = core.rest.take();
        PendingNotify { shared: self, blocks, waiters, rest, expected: Some(self.calls.expect()) }
    }

    /// Wakes the next driver: a thread that waits for a block, or the committer.
    pub fn wake(&self, next: Option<Next>) {
        match next {
            Some(Next::Thread(thread)) => thread.unpark(),
            Some(Next::Committer(rest)) => self.end_rest(Some(rest)),
            None => {}
        }
    }

    /// Wakes the committer, if it rests.
    pub fn end_rest(&self, rest: Option<CommitterWait>) {
        if let (Some(rest), Some(committer)) = (rest, self.committer.get()) {
            match rest {
                CommitterWait::Parked { .. } => committer.thread.unpark(),
                CommitterWait::Flying { .. } => committer.flying.wake_by_ref(),
            }
        }
    }

    /// Ends `blocks` of a stopped log, and notifies all listeners and all waiters of the sink.
    fn end(&self, blocks: &[Arc<Block>], result: Result<(), WalError>, expected: Expected<'_>) {
        let mut waiters = Waiters::default();
        if let Err(panic) = caught("the log's sink", || self.sink.stopped(&mut waiters)) {
            tracing::error!("{panic}");
        }
        self.notify(finish(blocks, &result), waiters, &result, expected);
    }

    /// Wakes the waiters of a sink, for its owner: under no lock, as the log does it.
    pub fn wake_waiters(&self, waiters: Waiters) {
        if !waiters.is_empty() {
            self.notify(Vec::new(), waiters, &Ok(()), self.calls.expect());
        }
    }

    /// Notifies the waiters of the sink, and of blocks that the mirror does not keep, that the log
    /// is closed.
    pub fn notify_closed(&self, blocks: &[Arc<Block>]) {
        self.end(blocks, Err(WalError::Closed), self.calls.expect());
    }

    /// Wakes the listening threads and the sink's waiters, and passes the other calls on. Returns
    /// the number of threads and tasks that were woken.
    fn notify(
        &self,
        listeners: Vec<Listeners>,
        waiters: Waiters,
        result: &Result<(), WalError>,
        expected: Expected<'_>,
    ) -> u64 {
        let (mut calls, mut woken) = (Vec::new(), (waiters.threads.len() + waiters.tasks.len()) as u64);
        waiters.threads.iter().for_each(Thread::unpark);
        calls.push(Call { tasks: waiters.tasks, callbacks: Vec::new(), result: result.clone() });
        for listeners in listeners {
            let (count, call) = listeners.notify(result.clone());
            woken += count;
            calls.push(call);
        }
        let tasks = if self.is_committer() { take_tasks(&mut calls) } else { Vec::new() };
        expected.hand(calls, self.committer.get().is_some());
        wake_all(tasks);
        woken
    }
}

impl Mirrored for Shared {
    fn kept(&self, blocks: u64) {
        if self.here().is_ok() {
            self.keep(blocks);
        }
    }

    fn mirror_ended(&self, why: &str) {
        if self.here().is_err() {
            return;
        }
        if matches!(self.lock().check(), Err(WalError::Closed)) {
            // Nobody waits for an acknowledgement any more.
            tracing::info!(why, "the second copy of the log has ended, after the log was closed");
            return;
        }
        tracing::error!(why, "the second copy of the log has ended; the log acknowledges no more appends");
        drop(self.stop(|core| core.stop(WalError::MirrorEnded { why: why.into() })));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.process.is_here() {
            return;
        }
        // An ack then reports that no thread drives the log any more.
        drop(self.stop(|core| core.stop(WalError::Closed)));
        self.calls.end();
    }
}

/// The waiters of a stopped log. Dropping this value notifies them, and may run callbacks: release
/// all locks before.
#[must_use = "whoever waits is told when it is dropped"]
pub struct PendingNotify<'a> {
    shared: &'a Shared,
    blocks: Vec<Arc<Block>>,
    waiters: Vec<Thread>,
    rest: Option<CommitterWait>,
    expected: Option<Expected<'a>>,
}

impl Drop for PendingNotify<'_> {
    fn drop(&mut self) {
        if let Some(expected) = self.expected.take() {
            self.shared.end(&self.blocks, Err(self.shared.failed()), expected);
        }
        self.waiters.iter().for_each(Thread::unpark);
        self.shared.end_rest(self.rest);
    }
}

impl fmt::Debug for PendingNotify<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Untold({:?})", self.blocks)
    }
}

/// Ends `blocks`; returns their listeners.
fn finish(blocks: &[Arc<Block>], result: &Result<(), WalError>) -> Vec<Listeners> {
    blocks.iter().map(|block| block.finish(result)).collect()
}
