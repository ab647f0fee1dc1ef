//! The handle of the log: appending, waiting for room, cutting and trimming, closing.

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_io::{Clock, SECTOR, Volume};
use bytes::Bytes;

use crate::ack::Ack;
use crate::block_handle::Block;
use crate::calls::Hush;
use crate::config::{Config, MIN_RING};
use crate::core::{Appended, CommitterWait, Core, Limits, OpenBlock, Setup, Stages, WalStats};
use crate::error::WalError;
use crate::format::Codec;
use crate::map::Layout;
use crate::mirror::{Mirror, MirrorHandle, MirrorStats, Waits};
use crate::pace::Pace;
use crate::ring::Cursor;
use crate::seal::Pool;
use crate::shared::{PendingNotify, Shared, Turn, WakesAfterPanic};
use crate::sink::{Sink, Waiters};
use crate::sync::atomic::Ordering;
use crate::sync::thread::{self, Thread};
use crate::tuner::Settings;

/// Records of at least this size, in bytes, are copied outside the lock, by streaming stores:
/// copying them takes longer than locking once more.
const LONG: usize = 8 << 10;

/// The state of a log at its opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Ring position of the oldest live block, in bytes.
    pub tail: u64,
    /// Position of the next block.
    pub next: Cursor,
    /// Number of this opening: larger than every earlier number, and durable already.
    pub epoch: u64,
}

/// A ring write-ahead log, open for appending. Clones are handles to the same log.
///
/// In a process that did not open the log, after a `fork`, calls fail with [`WalError::Forked`];
/// calls without an error type panic. Nothing is written there, and dropping the log does nothing.
///
/// A panic in the volume or the sink stops the log like a failed write.
#[derive(Clone)]
pub struct Wal {
    pub(crate) shared: Arc<Shared>,
}

impl Wal {
    /// Opens the ring for appending. The log shows every durable block to `sink` before it
    /// acknowledges the block.
    pub fn open(
        volume: Arc<dyn Volume>,
        layout: impl Into<Layout>,
        config: Config,
        opening: Opening,
        clock: Arc<dyn Clock>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        let layout = layout.into();
        let size = layout.map.current.size;
        assert!(size >= MIN_RING, "a ring of {size} bytes is too small");
        assert!(layout.zone.is_multiple_of(SECTOR as u64), "a ring starts at a sector");
        let limits = Limits::new(&config, size);
        let pool = Pool::new(limits.block_size);
        Self::open_in(volume, layout, (config, limits, pool), opening, clock, sink)
    }

    /// Opens like [`open`](Self::open), within given limits.
    pub(crate) fn open_in(
        volume: Arc<dyn Volume>,
        layout: Layout,
        (config, limits, pool): (Config, Limits, Arc<Pool>),
        opening: Opening,
        clock: Arc<dyn Clock>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        let Limits { block_size, max_record, reserve } = limits;
        let setup = Setup { store: layout.store, epoch: opening.epoch, max_record, reserve };
        let codec = config.codec.min(Codec::STRONGEST);
        let most = Settings { codec, block_size, depth: config.depth.max(1) };
        let pace = Pace { interval: config.interval, rate: config.rate };
        let core = Core::new(setup, (most, pace), pool.clone(), layout.map, opening.tail, opening.next);
        Self { shared: Arc::new(Shared::new(core, pool, (volume, layout.zone), config, clock, sink)) }
    }

    /// Gives every block from now on to a mirror, before anything is appended. Appends wait while
    /// `most` bytes of blocks are not kept.
    ///
    /// # Panics
    /// If the log has a mirror, or a record.
    pub fn attach(&self, mirror: Arc<dyn Mirror>, waits: Waits, most: u64) {
        let mut core = self.shared.lock();
        let next = core.next_lsn();
        core.attach(waits, most, next);
        drop(core);
        assert!(self.shared.mirror.set(mirror.clone()).is_ok(), "a log has one mirror");
        let log: Weak<Shared> = Arc::downgrade(&self.shared);
        mirror.start(MirrorHandle::new(log));
    }

    /// Returns the state of the log's mirror; `None` if the log has no mirror.
    pub fn mirror_stats(&self) -> Option<MirrorStats> {
        // A clock may be the user's own, and may panic: not under the lock.
        let now = self.shared.clock.now();
        self.shared.lock().mirror_stats(now)
    }

    /// Appends a record to the open block, without waiting.
    ///
    /// `encode` writes the record, at most `bound` bytes, and must not panic. If `freeing` is set,
    /// the record frees space, and may use the ring's reserve. `within` is the longest time that
    /// the record may rest if nobody waits for it.
    ///
    /// # Errors
    /// [`WalError::Full`] and [`WalError::Busy`]: call [`wait_for_room`](Self::wait_for_room) and
    /// try again.
    pub fn try_append(
        &self,
        bound: usize,
        freeing: bool,
        within: Duration,
        encode: impl FnOnce(&mut dyn FnMut(&[u8])),
    ) -> Result<Appended, WalError> {
        self.append_with(bound, freeing, within, |open| open.push(bound, encode))
    }

    /// Checks whether [`try_append`](Self::try_append) would append a record of at most `bound`
    /// bytes now. Other threads may take the room before the record comes.
    ///
    /// # Errors
    /// The errors of [`try_append`](Self::try_append).
    pub fn admits(&self, bound: usize, freeing: bool) -> Result<(), WalError> {
        self.shared.here()?;
        self.shared.lock().admits(bound, freeing)
    }

    /// Writes an empty block, and returns whether it did: not while anything is on its way. A
    /// mirror gets the block as it gets others.
    ///
    /// # Errors
    /// The error that stopped the log; [`WalError::WouldWait`] in a waker, [`WalError::Forked`] in
    /// a process that did not open the log.
    pub fn write_empty(&self) -> Result<bool, WalError> {
        let shared = &*self.shared;
        shared.may_wait()?;
        let taken = {
            let mut core = shared.lock();
            core.check()?;
            core.take_empty(shared.clock.now())
        };
        let Some(taken) = taken else { return Ok(false) };
        shared.carry_out(taken);
        shared.lock().check()?;
        Ok(true)
    }

    fn append_with(
        &self,
        bound: usize,
        freeing: bool,
        within: Duration,
        put: impl FnOnce(&mut OpenBlock) -> usize,
    ) -> Result<Appended, WalError> {
        let (appended, rest) = self.append_quietly(bound, freeing, within, put)?;
        self.shared.end_rest(rest);
        Ok(appended)
    }

    /// Appends without waking the committer; returns the rest that the caller must end then.
    fn append_quietly(
        &self,
        bound: usize,
        freeing: bool,
        within: Duration,
        put: impl FnOnce(&mut OpenBlock) -> usize,
    ) -> Result<(Appended, Option<CommitterWait>), WalError> {
        let shared = &*self.shared;
        shared.here()?;
        let _watch = WakesAfterPanic(shared);
        let mut core = shared.lock();
        let appended = core.append(bound, freeing, (within, || shared.clock.now()), put)?;
        let rest = core.should_wake();
        Ok((appended, rest))
    }

    /// Appends a record, `head` and then `record`, to the open block, as
    /// [`try_append`](Self::try_append) does. While it copies a long record, other threads append
    /// behind it.
    pub(crate) fn try_append_slice(&self, head: &[u8], record: &[u8]) -> Result<Appended, WalError> {
        let (len, linger) = (head.len().saturating_add(record.len()), self.shared.config.linger);
        if len < LONG {
            return self.try_append(len, false, linger, |out| {
                out(head);
                out(record);
            });
        }
        let mut reservation = None;
        let (appended, rest) = self.append_quietly(len, false, linger, |open| {
            let (offset, room) = open.push_reserved(head, record.len());
            reservation = Some(room);
            offset
        })?;
        // The record comes first: the waker of the volume's queue may be the user's own, and may
        // panic. The block would be written with whatever is in the record's place.
        reservation.expect("the record was appended").fill(record);
        self.shared.end_rest(rest);
        Ok(appended)
    }

    /// Appends a record, and waits for room if there is none.
    ///
    /// # Errors
    /// [`WalError::TooLarge`], [`WalError::Stopped`] and [`WalError::Closed`];
    /// [`WalError::WouldWait`] if the call would have to wait in a waker; [`WalError::Forked`] in a
    /// process that did not open the log. Nothing was appended.
    pub fn append(&self, record: &[u8]) -> Result<(Appended, Ack), WalError> {
        let appended = self.patiently(|| {}, || self.try_append_slice(&[], record))?;
        let ack = self.ack(appended.block.clone());
        Ok((appended, ack))
    }

    /// Makes attempts to append until one finds room, or fails. Calls `before_wait` before each
    /// wait.
    pub(crate) fn patiently<T>(
        &self,
        before_wait: impl Fn(),
        mut attempt: impl FnMut() -> Result<T, WalError>,
    ) -> Result<T, WalError> {
        // The number of changes of room before an attempt. The first attempt, which seldom fails,
        // does without it.
        let mut known = None;
        loop {
            match attempt() {
                Err(WalError::Busy | WalError::Full { .. }) => {
                    before_wait();
                    known = Some(self.wait_for_change_of_room(known)?);
                }
                ended => return ended,
            }
        }
    }

    /// Waits until the number of changes of room is another than `known`, and returns it. May
    /// return earlier.
    fn wait_for_change_of_room(&self, known: Option<u64>) -> Result<u64, WalError> {
        let shared = &*self.shared;
        shared.may_wait()?;
        let core = shared.lock();
        core.check()?;
        if known != Some(core.changes_of_room) {
            return Ok(core.changes_of_room);
        }
        drop(core);
        self.wait_a_turn(known)?;
        Ok(shared.lock().changes_of_room)
    }

    /// Returns the acknowledgement of a record in `block`.
    pub fn ack(&self, block: Arc<Block>) -> Ack {
        Ack::new(&self.shared, block)
    }

    /// Waits a moment for a trim of the ring or a smaller backlog. Without a committer, helps to
    /// write the backlog.
    ///
    /// # Errors
    /// The error that stopped the log; [`WalError::WouldWait`] in a waker, [`WalError::Forked`] in
    /// a process that did not open the log.
    pub fn wait_for_room(&self) -> Result<(), WalError> {
        self.wait_a_turn(None)
    }

    /// Waits for a change of room, `known` of which are known. If the number is not known, or
    /// without a committer, waits for a moment at most.
    fn wait_a_turn(&self, known: Option<u64>) -> Result<(), WalError> {
        let shared = &*self.shared;
        shared.may_wait()?;
        shared.lock().check()?;
        let alone = shared.committer.get().is_none();
        match if alone { shared.turn() } else { Turn::Wait } {
            Turn::Drive(taken) => shared.carry_out(taken),
            Turn::Sleep(time) => shared.clock.sleep(time),
            Turn::Wait => {
                let mut core = shared.lock();
                if known.is_some_and(|known| known != core.changes_of_room) {
                    return Ok(());
                }
                core.room_waiters.push(thread::current());
                let rest = core.should_wake();
                drop(core);
                shared.end_rest(rest);
                // A change of room wakes this thread. The time limit covers a change that came
                // before this thread joined the list, and work that only this thread can do.
                match known {
                    Some(_) if !alone => thread::park(),
                    _ => thread::park_timeout(Duration::from_millis(5)),
                }
                let me = thread::current().id();
                shared.lock().room_waiters.retain(|waiter| waiter.id() != me);
            }
        }
        Ok(())
    }

    /// Returns the number of the last block that is durable together with all blocks before it.
    pub fn durable(&self) -> u64 {
        self.shared.lock().durable()
    }

    /// Returns the number of the last block that may be trimmed, as far as the log knows: all
    /// blocks up to it are durable, and the mirror keeps them, if the log has a mirror. An opening
    /// passes the blocks that the mirror lacks to the mirror, and finds them in the ring.
    pub fn settled(&self) -> u64 {
        self.shared.lock().settled()
    }

    /// Returns bytes of a block's records, also if the block is not durable yet. `ranges` count
    /// from the start of [`Block::data`]. Returns `None` while a thread compresses the block: try
    /// again soon.
    ///
    /// # Errors
    /// The error that stopped the log.
    pub fn peek(&self, block: &Block, ranges: &[Range<usize>]) -> Result<Option<Vec<Bytes>>, WalError> {
        self.shared.here()?;
        let core = self.shared.lock();
        core.check()?;
        if let Some(data) = block.placed() {
            drop(core);
            return Ok(Some(ranges.iter().map(|range| data.slice(range.clone())).collect()));
        }
        Ok(core.records(block).map(|records| {
            ranges.iter().map(|range| Bytes::copy_from_slice(&records[range.clone()])).collect()
        }))
    }

    /// Ends the open block. Returns the number of the last block before the cut.
    pub fn cut(&self) -> u64 {
        let mut core = self.shared.lock();
        let seq = core.cut();
        let rest = core.should_wake();
        drop(core);
        self.shared.end_rest(rest);
        seq
    }

    /// Returns the cursor behind block `seq`, the number that a [`cut`](Self::cut) returned, once
    /// that block is placed.
    pub fn cut_cursor(&self, seq: u64) -> Option<Cursor> {
        self.shared.lock().cut_cursor(seq)
    }

    /// Returns the end of the log, if no block waits or is on its way, and the mirror, if there is
    /// one, keeps all of them.
    pub fn quiet_end(&self) -> Option<Cursor> {
        let core = self.shared.lock();
        let is_quiet = core.is_idle() && core.settled() == core.durable();
        is_quiet.then(|| core.end())
    }

    /// Moves the end of a log without records of its own to a place in the log of another host,
    /// which keeps the records before that place. From now on, [cuts](Self::cut) are at that place.
    ///
    /// # Panics
    /// If a record waits, or is on its way.
    pub fn skip(&self, lsn: u64, chain: u64) {
        self.shared.lock().skip(lsn, chain);
    }

    /// Frees the ring before `cursor`. The blocks there must be durable elsewhere, and recorded as
    /// trimmed.
    pub fn trim(&self, cursor: Cursor) {
        let mut core = self.shared.lock();
        core.trim(cursor);
        let rest = core.rest_without_cause();
        drop(core);
        self.shared.end_rest(rest);
        self.wake();
    }

    /// Wakes all threads that [wait for room](Self::wait_for_room): the ring may have room now, or
    /// the log may have ended.
    pub fn wake(&self) {
        let waiters = self.shared.lock().room_changed();
        waiters.iter().for_each(Thread::unpark);
    }

    /// Makes every record appended before the call durable.
    pub fn flush(&self) -> Result<(), WalError> {
        self.shared.here()?;
        let block = self.shared.lock().last_appended();
        block.map_or(Ok(()), |block| self.shared.wait(&block))
    }

    /// Closes the log: makes all appended records durable, refuses later ones, and returns the end
    /// of the log. When the call returns, every callback has been called. If a callback makes this
    /// call, the callbacks behind that one are called later.
    ///
    /// # Errors
    /// The error that stopped the log, [`WalError::Closed`] if it was closed before;
    /// [`WalError::WouldWait`] in a waker, [`WalError::Forked`] in a process that did not open the
    /// log.
    pub fn close(&self) -> Result<Cursor, WalError> {
        let end = self.end();
        self.join_callbacks();
        end
    }

    /// Closes the log like [`close`](Self::close), without waiting for callbacks: for an owner that
    /// holds a lock that a callback may need. Release that lock and call
    /// [`join_callbacks`](Self::join_callbacks) then.
    pub fn end(&self) -> Result<Cursor, WalError> {
        self.shared.may_wait()?;
        self.shared.lock().refuse();
        self.wake();
        loop {
            let drops = bug("closing-drops-the-rest");
            if !drops {
                self.flush()?;
            }
            let mut core = self.shared.lock();
            core.check()?;
            if core.is_idle() || drops {
                let end = core.end();
                let blocks = core.stop(WalError::Closed);
                let (rest, waiters) = (core.rest.take(), core.room_changed());
                drop(core);
                waiters.iter().for_each(Thread::unpark);
                self.shared.end_rest(rest);
                self.shared.notify_closed(&blocks);
                return Ok(end);
            }
        }
    }

    /// Returns when all callbacks of an ended log have been called; at once in a callback or a
    /// waker, and in a process that did not open the log.
    pub fn join_callbacks(&self) {
        if self.shared.may_wait().is_ok() {
            self.shared.calls.join();
        }
    }

    /// Delays callbacks until the returned guard is dropped, if no committer runs: the caller takes
    /// a lock that they may need.
    pub fn hush(&self) -> Hush<'_> {
        self.shared.calls.hush()
    }

    /// Wakes waiters of the log's [`Sink`], as the log does it: threads at once; tasks where
    /// callbacks run, under no lock of the log.
    pub fn wake_waiters(&self, waiters: Waiters) {
        self.shared.wake_waiters(waiters);
    }

    /// Returns whether this thread runs the log's committer, and so runs a waker now.
    pub fn is_committer(&self) -> bool {
        self.shared.is_committer()
    }

    /// Refuses a thread that may not wait for the log: for an owner, before it takes a lock under
    /// which others wait.
    ///
    /// # Errors
    /// [`WalError::WouldWait`] in a waker, [`WalError::Forked`] in a process that did not open the
    /// log.
    pub fn may_wait(&self) -> Result<(), WalError> {
        self.shared.may_wait()
    }

    /// Refuses a process that did not open the log.
    ///
    /// # Errors
    /// [`WalError::Forked`].
    pub fn here(&self) -> Result<(), WalError> {
        self.shared.here()
    }

    /// Ends the log as a killed process would: nothing more is written, and records that are not
    /// durable fail.
    pub fn abandon(&self) {
        if self.shared.here().is_err() {
            return;
        }
        drop(self.shared.stop(|core| core.stop(WalError::Closed)));
    }

    /// Stops the log because the store around it failed; the log acknowledges nothing more.
    pub fn fail(&self, error: io::Error) -> PendingNotify<'_> {
        self.shared.fail(error)
    }

    /// Returns the counters since the opening, and the use of the ring.
    pub fn stats(&self) -> WalStats {
        self.shared.lock().stats()
    }

    /// Returns the times that blocks took for each stage, since the opening.
    pub fn stages(&self) -> Stages {
        self.shared.lock().stages.clone()
    }

    /// Returns whether the log has stopped or was closed, without a lock. The log then has a
    /// [`failure`](Self::failure).
    pub fn has_ended(&self) -> bool {
        self.shared.ended.load(Ordering::Acquire)
    }

    /// Returns the error that stopped the log, if any.
    pub fn failure(&self) -> Option<WalError> {
        self.shared.here().and_then(|()| self.shared.lock().check()).err()
    }
}

impl fmt::Debug for Wal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.here() {
            Ok(()) => write!(f, "Wal({:?}, {:?})", self.shared.volume, self.stats()),
            Err(error) => write!(f, "Wal({:?}, {error})", self.shared.volume),
        }
    }
}

#[cfg(test)]
mod tests;
