//! What the handles of a log share, and how a thread drives it: take, seal, place, write, release, tell.
//!
//! Whoever waits, drives: a thread that waits for its block and finds a write slot free seals the block and writes it
//! itself, so that a lone writer pays for one system call and no wake-up. The [`Committer`](crate::Committer) serves
//! those who do not wait.
//!
//! Locks: `core` is held for short steps only, never across I/O, compression, the sink or a wake-up. The sink may take
//! locks of its own; callers may hold those while they board, so nothing here boards or waits inside the sink.

use std::fmt;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use brooklet_io::seeded::bug;
use brooklet_io::{Clock, Persist, Volume, write_all_at};

use crate::block::Block;
use crate::core::{Core, Next, Rest, Taken, Urge, Way, Write};
use crate::error::WalError;
use crate::listeners::{Heard, Listeners};
use crate::seal::{Pool, seal};
use crate::sync::thread::{self, Thread};
use crate::sync::{Mutex, MutexGuard};
use crate::wal::{Config, Sink};

pub(crate) struct Shared {
    pub core: Mutex<Core>,
    pub pool: Arc<Pool>,
    pub volume: Arc<dyn Volume>,
    /// Offset of the ring's first byte on the volume.
    pub zone: u64,
    pub config: Config,
    pub clock: Arc<dyn Clock>,
    pub sink: Arc<dyn Sink>,
    pub committer: OnceLock<Resting>,
}

/// Ends the committer's rests.
pub(crate) struct Resting {
    pub thread: Thread,
    pub flying: Waker,
}

impl Shared {
    pub fn lock(&self) -> MutexGuard<'_, Core> {
        self.core.lock().expect("the core does not panic")
    }

    /// Returns once `block` is durable, driving the log where nobody else does.
    pub fn wait(&self, block: &Arc<Block>) -> Result<(), WalError> {
        loop {
            match block.is_durable() {
                Some(true) => return Ok(()),
                None => return Err(self.failed()),
                Some(false) => {}
            }
            let taken = self.lock().take(Urge::Wanted);
            if let Some(taken) = taken {
                self.carry_out(taken);
            } else if let Some(heard) = block.listen(|all| all.thread(thread::current())) {
                self.see_to(Some(heard));
                thread::park();
            }
        }
    }

    /// Sees to it that somebody drives a block that was listened to: the first who listens, and the first who can drive, may
    /// have come after whoever drove before looked for someone to go on, and found nobody. Later ones need not: the next
    /// driver finds them all.
    pub fn see_to(&self, heard: Option<Heard>) {
        if heard == Some(Heard::First) {
            let next = self.lock().next_driver();
            self.wake(next);
        }
    }

    /// Why the log ended.
    pub fn failed(&self) -> WalError {
        self.lock().check().err().unwrap_or(WalError::Closed)
    }

    /// Seals, writes and releases a block that was taken, in this thread.
    pub fn carry_out(&self, taken: Taken) {
        let Some(write) = self.seal_and_place(taken) else { return };
        let persist = if bug("lone-write-is-cached") { Persist::Cached } else { Persist::Durable };
        let result = write_all_at(&*self.volume, self.zone + write.offset, &write.data, persist);
        self.finish(write.seq, result);
    }

    /// Seals a block and gives it its place. `None` where the log stopped meanwhile.
    pub fn seal_and_place(&self, taken: Taken) -> Option<Write> {
        let way = Way::begun(taken.boarded, self.clock.now());
        let way = (taken.records > 0).then_some(way);
        // Passengers copy their records without waiting for anything, so this is short.
        while taken.block.is_boarding() {
            thread::yield_now();
        }
        let sealed = seal(&self.pool, taken.buf, taken.records, taken.effort);
        let now = self.clock.now();
        let mut core = self.lock();
        let placed = core.place(taken.block.clone(), sealed, way, now);
        let waiters = std::mem::take(&mut core.room_waiters);
        let next = core.next_driver();
        drop(core);
        self.wake(next);
        waiters.iter().for_each(Thread::unpark);
        placed.map_err(|error| end(&[taken.block], Err(error))).ok()
    }

    /// Takes note of how a block's write ended, and releases what that makes durable.
    pub fn finish(&self, seq: u64, result: io::Result<()>) {
        if let Err(error) = result
            && !bug("failed-write-is-acknowledged")
        {
            return drop(self.fail(error));
        }
        let now = self.clock.now();
        self.lock().complete(seq, now);
        loop {
            let mut core = self.lock();
            let Some(blocks) = core.release() else {
                let next = core.next_driver();
                drop(core);
                return self.wake(next);
            };
            drop(core);
            self.sink.durable(&blocks);
            let now = self.clock.now();
            let mut core = self.lock();
            core.released(&blocks, now);
            // Under the lock: another driver may be about to release the blocks behind these, and none is done before these are.
            let listeners = finish(&blocks, true);
            let next = core.next_driver();
            drop(core);
            // The next write starts before this one's passengers are told.
            self.wake(next);
            let woken = tell(listeners, Ok(()));
            if woken > 0 {
                self.lock().stats.wakes += woken;
            }
        }
    }

    /// Stops the log for good.
    pub fn fail(&self, error: io::Error) -> Untold<'_> {
        tracing::error!(%error, "a write to the log failed; nothing more is acknowledged");
        let mut core = self.lock();
        let blocks = core.fail(error);
        let waiters = std::mem::take(&mut core.room_waiters);
        let rest = core.rest.take();
        Untold { shared: self, blocks, waiters, rest }
    }

    /// Lets a block's end, or the next driver, come to whoever waits for it.
    pub fn wake(&self, next: Option<Next>) {
        match next {
            Some(Next::Thread(thread)) => thread.unpark(),
            Some(Next::Committer(rest)) => self.end_rest(Some(rest)),
            None => {}
        }
    }

    /// Lets the committer go on, if it rests.
    pub fn end_rest(&self, rest: Option<Rest>) {
        if let (Some(rest), Some(committer)) = (rest, self.committer.get()) {
            match rest {
                Rest::Parked { .. } => committer.thread.unpark(),
                Rest::Flying { .. } => committer.flying.wake_by_ref(),
            }
        }
    }
}

/// Those who wait on a log that was stopped. They are told when this is dropped; callbacks are called then, so let go
/// of all locks before.
#[must_use = "whoever waits is told when it is dropped"]
pub struct Untold<'a> {
    shared: &'a Shared,
    blocks: Vec<Arc<Block>>,
    waiters: Vec<Thread>,
    rest: Option<Rest>,
}

impl Drop for Untold<'_> {
    fn drop(&mut self) {
        end(&self.blocks, Err(self.shared.failed()));
        self.waiters.iter().for_each(Thread::unpark);
        self.shared.end_rest(self.rest);
    }
}

impl fmt::Debug for Untold<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Untold({:?})", self.blocks)
    }
}

/// Ends `blocks`, and tells everyone who listens.
pub(crate) fn end(blocks: &[Arc<Block>], result: Result<(), WalError>) {
    tell(finish(blocks, result.is_ok()), result);
}

/// Ends `blocks`; gives those who are to be told.
fn finish(blocks: &[Arc<Block>], durable: bool) -> Vec<Listeners> {
    blocks.iter().map(|block| block.finish(durable)).collect()
}

/// Returns how many were woken.
fn tell(listeners: Vec<Listeners>, result: Result<(), WalError>) -> u64 {
    listeners.into_iter().map(|listeners| listeners.tell(&result)).sum()
}
