//! The log as its users hold it: boarding, waiting for room, cutting and trimming, ending.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_io::{Clock, SECTOR, Volume};

use crate::ack::Ack;
use crate::block::Block;
use crate::calls::Hush;
use crate::core::{Boarded, Core, Filling, Limits, Setup, Stages, WalStats};
use crate::error::WalError;
use crate::format::{Codec, HEADER, disk_len};
use crate::pace::Pace;
use crate::recover::Layout;
use crate::ring::Cursor;
use crate::seal::Pool;
use crate::shared::{Shared, Turn, Untold};
use crate::sync::thread::{self, Thread};
use crate::tuner::Settings;

/// Sees every block become durable, in order, before anybody is told.
pub trait Sink: Send + Sync {
    /// The blocks are on stable media, and all before them.
    fn durable(&self, blocks: &[Arc<Block>]);
}

impl Sink for () {
    fn durable(&self, _: &[Arc<Block>]) {}
}

/// Where a ring lies on its volume, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Offset of the ring's first byte on the volume; a multiple of the sector size.
    pub offset: u64,
    /// Bytes of the ring; a multiple of the sector size. The space must be allocated and written
    /// before.
    pub size: u64,
    /// Identity of the store: blocks of another are never taken for ours.
    pub store: u64,
}

/// How a log works. The defaults suit a local solid-state disk.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Most bytes of a block, before compression. 1 MiB. That is what a log starts with; it finds
    /// out under load whether smaller ones serve better. What waits for a block that fills slowly
    /// is written before it is full.
    pub block_size: usize,
    /// Most writes in flight at once. 16: enough to hide a cloud volume's latency. A log starts
    /// with 4 and finds out.
    pub depth: usize,
    /// The strongest codec in use. [`Codec::Zstd`]. A log starts with [`Codec::Lz4`]; where that
    /// costs more time than it saves it finds out and steps back, and where a stronger one costs no
    /// throughput it steps up.
    pub codec: Codec,
    /// The least time from the start of a write to the start of the next, for a volume that is paid
    /// for by the operation: 1/3000 s, say. None: zero. Where there is a pace, only a
    /// [`Committer`](crate::Committer) writes.
    pub interval: Duration,
    /// Most bytes written in a second, for a volume that is paid for by the byte. No limit: zero.
    pub rate: u64,
    /// How long an append may rest when nobody waits for it. 1 ms.
    pub linger: Duration,
    /// Part of the ring, in percent, that only records which free space may use. 12: trims still
    /// find room when everything else is full.
    pub reserve_percent: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            block_size: 1 << 20,
            depth: 16,
            codec: Codec::Zstd,
            interval: Duration::ZERO,
            rate: 0,
            linger: Duration::from_millis(1),
            reserve_percent: 12,
        }
    }
}

/// Records of so many bytes are copied outside the lock, by streaming stores: copying them takes
/// longer than taking the lock once more.
const LONG: usize = 8 << 10;

/// Largest record that a ring of `size` bytes takes: with a lap's end before it and the reserve, it
/// fits in an empty one.
pub fn max_record(size: u64) -> usize {
    // Lengths are 32 bits wide in a block; less than a gigabyte leaves room for what is added to a
    // record on its way.
    (size / 3 / SECTOR as u64 * SECTOR as u64)
        .min((1 << 30) - (1 << 20))
        .saturating_sub((SECTOR + HEADER) as u64) as usize
}

/// What follows from the ring's size, and what was asked for.
pub(crate) fn limits(config: &Config, size: u64) -> Limits {
    let block_size = config.block_size.min(size as usize / 8);
    // A record that frees space finds room for a block of the usual size, wherever the ring stands.
    let reserve = size * u64::from(config.reserve_percent) / 100;
    let least = if config.reserve_percent > 0 { disk_len(block_size) + 2 * SECTOR } else { 0 };
    let reserve = reserve.max(least as u64);
    Limits { block_size, max_record: max_record(size), reserve }
}

/// A ring write-ahead log, open for appending. Clones are handles to the same log.
///
/// In a process that did not open it, after a `fork`, calls are refused with [`WalError::Forked`];
/// those that have no error to give panic. Nothing is written, and dropping it does nothing.
///
/// A panic in the volume or the sink stops the log as a failed write does.
#[derive(Clone)]
pub struct Wal {
    pub(crate) shared: Arc<Shared>,
}

impl Wal {
    /// Opens the ring for appending at `next`, with live blocks from ring position `tail` on.
    ///
    /// `epoch` must be larger than that of every earlier opening, and durable already. Every block
    /// that becomes durable is shown to `sink` before it is acknowledged.
    pub fn open(
        volume: Arc<dyn Volume>,
        zone: Zone,
        config: Config,
        (tail, next, epoch): (u64, Cursor, u64),
        clock: Arc<dyn Clock>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        assert!(zone.size >= MIN_RING, "a ring of {} bytes is too small", zone.size);
        assert!(zone.offset.is_multiple_of(SECTOR as u64), "a ring starts at a sector");
        let limits = limits(&config, zone.size);
        let pool = Pool::new(limits.block_size);
        Self::open_in(volume, zone.into(), (config, limits, pool), (tail, next, epoch), clock, sink)
    }

    /// [`open`](Self::open), in a ring that may have been resized, within given limits.
    pub(crate) fn open_in(
        volume: Arc<dyn Volume>,
        layout: Layout,
        (config, limits, pool): (Config, Limits, Arc<Pool>),
        (tail, next, epoch): (u64, Cursor, u64),
        clock: Arc<dyn Clock>,
        sink: Arc<dyn Sink>,
    ) -> Self {
        let Limits { block_size, max_record, reserve } = limits;
        let setup = Setup { store: layout.store, epoch, max_record, reserve };
        let most = Settings { codec: config.codec, block_size, depth: config.depth.max(1) };
        let pace = Pace { interval: config.interval, rate: config.rate };
        let core = Core::new(setup, (most, pace), pool.clone(), layout.map, tail, next);
        Self { shared: Arc::new(Shared::new(core, pool, (volume, layout.zone), config, clock, sink)) }
    }

    /// Takes a record into the open block, without waiting for anything.
    ///
    /// `encode` writes the record, at most `bound` bytes, and must not panic. `freeing` says that
    /// the record frees space, so that it may use the ring's reserve. `within` is how long the
    /// record may rest when nobody waits for it.
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
    ) -> Result<Boarded, WalError> {
        self.board(bound, freeing, within, |open| open.push(bound, encode))
    }

    fn board(
        &self,
        bound: usize,
        freeing: bool,
        within: Duration,
        put: impl FnOnce(&mut Filling) -> usize,
    ) -> Result<Boarded, WalError> {
        let shared = &*self.shared;
        shared.here()?;
        let mut core = shared.lock();
        let boarded = core.board(bound, freeing, (within, || shared.clock.now()), put)?;
        let rest = core.disturb();
        drop(core);
        shared.end_rest(rest);
        Ok(boarded)
    }

    /// Takes a record, `head` and then `record`, into the open block, as
    /// [`try_append`](Self::try_append) does. A long one is copied while others board behind it.
    pub(crate) fn try_append_slice(&self, head: &[u8], record: &[u8]) -> Result<Boarded, WalError> {
        let (len, linger) = (head.len().saturating_add(record.len()), self.shared.config.linger);
        if len < LONG {
            return self.try_append(len, false, linger, |out| {
                out(head);
                out(record);
            });
        }
        let mut berth = None;
        let boarded = self.board(len, false, linger, |open| {
            let (offset, room) = open.push_hole(head, record.len());
            berth = Some(room);
            offset
        })?;
        berth.expect("boarding gave it").fill(record);
        Ok(boarded)
    }

    /// Appends a record, waiting for room where there is none.
    ///
    /// # Errors
    /// [`WalError::TooLarge`], [`WalError::Stopped`] and [`WalError::Closed`];
    /// [`WalError::WouldWait`] where it would have to wait in a waker; [`WalError::Forked`] in a
    /// process that did not open the log. Nothing was taken.
    pub fn append(&self, record: &[u8]) -> Result<(Boarded, Ack), WalError> {
        loop {
            match self.try_append_slice(&[], record) {
                Ok(boarded) => {
                    let ack = self.ack(boarded.block.clone());
                    return Ok((boarded, ack));
                }
                Err(WalError::Busy | WalError::Full { .. }) => self.wait_for_room()?,
                Err(error) => return Err(error),
            }
        }
    }

    /// The acknowledgement of what boarded a block.
    pub fn ack(&self, block: Arc<Block>) -> Ack {
        Ack::new(&self.shared, block)
    }

    /// Waits a moment for the ring to be trimmed or the backlog to shrink. Helps with the backlog
    /// where no committer runs.
    ///
    /// # Errors
    /// Why the log stopped; [`WalError::WouldWait`] in a waker, [`WalError::Forked`] in a process
    /// that did not open the log.
    pub fn wait_for_room(&self) -> Result<(), WalError> {
        let shared = &*self.shared;
        shared.may_wait()?;
        shared.lock().check()?;
        let alone = shared.committer.get().is_none();
        match if alone { shared.turn() } else { Turn::Wait } {
            Turn::Drive(taken) => shared.carry_out(taken),
            Turn::Sleep(time) => shared.clock.sleep(time),
            Turn::Wait => {
                let mut core = shared.lock();
                core.room_waiters.push(thread::current());
                let rest = core.disturb();
                drop(core);
                shared.end_rest(rest);
                // Woken by a placement or a trim; the bound covers a wake-up that came before the
                // list was joined.
                thread::park_timeout(Duration::from_millis(5));
                let me = thread::current().id();
                shared.lock().room_waiters.retain(|waiter| waiter.id() != me);
            }
        }
        Ok(())
    }

    /// Number of the last block that is durable together with all before it.
    pub fn durable(&self) -> u64 {
        self.shared.lock().durable()
    }

    /// Ends the open block. Returns the number of the last block before the cut.
    pub fn cut(&self) -> u64 {
        let mut core = self.shared.lock();
        let seq = core.cut();
        let rest = core.disturb();
        drop(core);
        self.shared.end_rest(rest);
        seq
    }

    /// Where the log goes on after the block `seq` that a [`cut`](Self::cut) named, once that block
    /// is placed.
    pub fn cut_cursor(&self, seq: u64) -> Option<Cursor> {
        self.shared.lock().cut_cursor(seq)
    }

    /// Frees the ring before `cursor`. What lies there must be durable elsewhere, and recorded as
    /// trimmed.
    pub fn trim(&self, cursor: Cursor) {
        let mut core = self.shared.lock();
        core.trim(cursor);
        drop(core);
        self.wake();
    }

    /// Wakes whoever [waits for room](Self::wait_for_room): there may be some now, or none to wait
    /// for.
    pub fn wake(&self) {
        let waiters = std::mem::take(&mut self.shared.lock().room_waiters);
        waiters.iter().for_each(Thread::unpark);
    }

    /// Makes everything that boarded before the call durable.
    pub fn flush(&self) -> Result<(), WalError> {
        self.shared.here()?;
        let block = self.shared.lock().last_boarded();
        block.map_or(Ok(()), |block| self.shared.wait(&block))
    }

    /// Ends the log: makes what boarded durable, refuses what comes later, and tells where the log
    /// ended. When it returns, every callback has been called, but for those behind one that this
    /// is called in.
    ///
    /// # Errors
    /// Why the log stopped, [`WalError::Closed`] where it was closed before;
    /// [`WalError::WouldWait`] in a waker, [`WalError::Forked`] in a process that did not open the
    /// log.
    pub fn close(&self) -> Result<Cursor, WalError> {
        let end = self.end();
        self.join_callbacks();
        end
    }

    /// [`close`](Self::close), that does not wait for callbacks: for an owner who holds a lock that
    /// one may ask for, and calls [`join_callbacks`](Self::join_callbacks) without it.
    pub fn end(&self) -> Result<Cursor, WalError> {
        self.shared.may_wait()?;
        self.shared.lock().refuse();
        loop {
            let drops = bug("closing-drops-the-rest");
            if !drops {
                self.flush()?;
            }
            let mut core = self.shared.lock();
            core.check()?;
            if core.is_idle() || drops {
                let end = core.end();
                core.stop(WalError::Closed);
                let rest = core.rest.take();
                drop(core);
                self.shared.end_rest(rest);
                return Ok(end);
            }
        }
    }

    /// Returns once all callbacks of a log that has ended have been called; at once in a callback
    /// or a waker, and in a process that did not open the log.
    pub fn join_callbacks(&self) {
        if self.shared.may_wait().is_ok() {
            self.shared.calls.join();
        }
    }

    /// Where no committer runs: has callbacks wait until what is returned is dropped, since the
    /// caller takes a lock that they may ask for.
    pub fn hush(&self) -> Hush<'_> {
        self.shared.calls.hush()
    }

    /// Whether this thread runs the log's committer, and so came here in a waker.
    pub fn is_committer(&self) -> bool {
        self.shared.is_committer()
    }

    /// Refuses whoever could not wait for the log: for an owner, before it takes a lock under which
    /// others wait.
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

    /// Ends the log as a killed process would: nothing more is written, and what was not durable
    /// fails.
    pub fn abandon(&self) {
        if self.shared.here().is_err() {
            return;
        }
        drop(self.shared.stop(|core| core.stop(WalError::Closed)));
    }

    /// Stops the log because the store around it failed; nothing more is acknowledged.
    pub fn fail(&self, error: io::Error) -> Untold<'_> {
        self.shared.fail(error)
    }

    /// Counters since opening, and how full the ring is.
    pub fn stats(&self) -> WalStats {
        self.shared.lock().stats()
    }

    /// How long blocks took for each stage of their way, since opening.
    pub fn stages(&self) -> Stages {
        self.shared.lock().stages.clone()
    }

    /// Why the log stopped, if it did.
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

/// Bytes of the smallest ring that works: four records of a sector each.
pub const MIN_RING: u64 = 64 << 10;

const _: () = assert!(MIN_RING as usize / 4 > SECTOR + HEADER);
