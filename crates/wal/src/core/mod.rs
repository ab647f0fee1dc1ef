//! The decisions of the log: appending, sealing, placing, and durability of blocks.
//!
//! A plain state machine: no clock, no thread, no I/O. Drivers lock it, ask for work, do the work
//! outside the lock, and report the result:
//!
//! ```text
//! append ──▶ open ──▶ closed ──take──▶ (seal) ──place──▶ in flight ──complete──▶ release ──▶ durable
//! ```
//!
//! A log with a mirror (`mirror.rs`) also passes each block to the mirror, and may wait for the
//! mirror before the release.
//!
//! Invariants:
//! 1. Blocks are taken, placed and released in the order of their numbers; at most one is between
//!    take and place, since a header names the checksum of the block before it.
//! 2. `durable` is the largest number such that this block and all blocks before it are complete
//!    and the sink has seen them.
//! 3. A record is accepted only if its block, uncompressed, will find room in the ring.
//! 4. After a failure, no record is accepted, and no block is taken, placed or released.

mod drive;
mod mirror;
mod open_block;
mod resize;
mod stages;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;
use bytes::Bytes;

use self::open_block::FRAME;
use crate::block_handle::{Block, Kept};
use crate::error::WalError;
use crate::format::{Codec, HEADER, Header, disk_len};
use crate::map::Map;
use crate::mirror::SealedBlock;
use crate::pace::{Pace, Pacer};
use crate::ring::{Cursor, Ring};
use crate::seal::{Pool, Sealed};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::Thread;
use crate::tuner::{Done, Settings, Tuner};

pub(crate) use self::drive::{CommitterWait, Next, Taken, WriteReason};
pub(crate) use self::mirror::Released;
pub(crate) use self::open_block::OpenBlock;
pub(crate) use self::resize::Limits;
pub(crate) use self::stages::BlockTimes;
pub use self::stages::Stages;

/// The opening's identity, and the limits of the ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub store: u64,
    pub epoch: u64,
    pub max_record: usize,
    pub reserve: u64,
}

/// Most closed blocks that may wait for the compressor; beyond that number, appends are refused. A
/// small number keeps the blocks in CPU caches.
const MAX_CLOSED: usize = 3;

struct InFlight {
    block: Arc<Block>,
    raw_len: usize,
    shrinks: bool,
    done: bool,
    /// Times of a block with records.
    times: Option<BlockTimes>,
    /// The written bytes, if the log has a mirror.
    sealed: Option<SealedBlock>,
}

/// A placed block, to be written durably.
#[derive(Debug)]
pub(crate) struct Write {
    pub seq: u64,
    /// Offset inside the ring.
    pub offset: u64,
    pub data: Bytes,
}

/// The place of an appended record.
#[derive(Clone, Debug)]
pub struct Appended {
    /// Log position of the record.
    pub lsn: u64,
    /// The block that holds the record.
    pub block: Arc<Block>,
    /// Offset of the record's bytes in [`Block::data`].
    pub offset: usize,
    /// Bytes of the ring in use.
    pub used: u64,
    /// The earliest time at which the block may be written at the current pace; zero without a
    /// pace.
    pub earliest: Duration,
}

/// The counters since the opening, and the current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct WalStats {
    /// Number of records accepted.
    pub records: u64,
    /// Payload bytes accepted, framing included, before compression.
    pub raw_bytes: u64,
    /// Number of blocks placed.
    pub blocks: u64,
    /// Bytes passed to the volume.
    pub written_bytes: u64,
    /// Number of threads woken, for the end of their block or to drive the next.
    pub wakes: u64,
    /// Bytes of the ring in use.
    pub used: u64,
    /// Size of the ring, in bytes.
    pub size: u64,
    /// Bytes after which a block is full, at present.
    pub block_size: usize,
    /// Most writes in flight at once, at present.
    pub depth: usize,
    /// Codec for blocks that shrink, at present.
    pub codec: Codec,
    /// Number of full blocks that wait to be written, at present.
    pub queued: usize,
    /// Number of writes in flight, at present.
    pub in_flight: usize,
    /// Number of threads that wait for room, at present.
    pub waiting: usize,
}

pub(crate) struct Core {
    setup: Setup,
    tuner: Tuner,
    pacer: Pacer,
    pool: Arc<Pool>,
    ring: Ring,
    open: OpenBlock,
    closed: VecDeque<OpenBlock>,
    closed_bytes: u64,
    /// The block between take and place, and its uncompressed size in the ring.
    taken: Option<(Arc<Block>, usize)>,
    /// Whether the last tested block shrinks.
    shrinks: bool,
    /// The newest closed block.
    last: Option<Arc<Block>>,
    /// The window: blocks whose writes have begun and that are not released. The writes of blocks
    /// behind the first may have ended.
    in_flight: VecDeque<InFlight>,
    /// Number of writes in the window that have not ended.
    flying: usize,
    /// Cursor of the next block to place; its position is the head of the ring.
    next: Cursor,
    next_lsn: u64,
    durable: u64,
    /// The acknowledged number in the newest placed block.
    told: u64,
    releasing: bool,
    /// Times of the blocks that are being released.
    ending: Vec<BlockTimes>,
    closing: bool,
    /// Whether the ring is about to change: appends are refused.
    paused: bool,
    marks: VecDeque<(u64, Option<Cursor>)>,
    failure: Option<WalError>,
    /// Whether there is a failure, for readers that take no lock.
    pub ended: Arc<AtomicBool>,
    /// The blocks that the mirror has yet to keep, if the log has a mirror.
    mirror: Option<Box<mirror::MirrorWindow>>,
    /// Blocks that were closed when the log stopped.
    wrecked: Vec<OpenBlock>,
    /// The committer's current rest; `None` while the committer runs.
    pub rest: Option<CommitterWait>,
    /// Threads that wait for room, and the number of events after which there may be room for a
    /// record that was refused, or no hope of it.
    pub room_waiters: Vec<Thread>,
    pub changes_of_room: u64,
    pub stats: WalStats,
    pub stages: Stages,
}

impl Core {
    pub fn new(
        setup: Setup,
        (most, pace): (Settings, Pace),
        pool: Arc<Pool>,
        map: Map,
        tail: u64,
        next: Cursor,
    ) -> Self {
        let open = OpenBlock::new(&pool, next.seq, Kept::Never);
        Self {
            setup,
            tuner: Tuner::new(most),
            pacer: Pacer::new(pace),
            pool,
            ring: Ring::new(map, tail, next.position),
            open,
            closed: VecDeque::new(),
            closed_bytes: 0,
            taken: None,
            shrinks: false,
            last: None,
            in_flight: VecDeque::new(),
            flying: 0,
            next,
            next_lsn: next.lsn,
            durable: next.seq - 1,
            told: next.seq - 1,
            closing: false,
            paused: false,
            releasing: false,
            ending: Vec::new(),
            marks: VecDeque::new(),
            failure: None,
            ended: Arc::new(AtomicBool::new(false)),
            mirror: None,
            wrecked: Vec::new(),
            rest: None,
            room_waiters: Vec::new(),
            changes_of_room: 0,
            stats: WalStats::default(),
            stages: Stages::default(),
        }
    }

    pub fn check(&self) -> Result<(), WalError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    pub fn durable(&self) -> u64 {
        self.durable
    }

    pub fn is_idle(&self) -> bool {
        self.is_at_rest() && !self.hides()
    }

    /// Returns whether no block waits to be written, or is on its way. Blocks may wait for the
    /// mirror.
    pub fn is_at_rest(&self) -> bool {
        let nothing_moves = self.taken.is_none() && self.in_flight.is_empty() && !self.releasing;
        self.open.records == 0 && self.closed.is_empty() && nothing_moves
    }

    /// Returns the records of a block that no thread has taken yet; `None` if one has, or while a
    /// thread writes its record into the block.
    pub fn records(&self, block: &Block) -> Option<&[u8]> {
        let waiting = self.closed.iter().chain([&self.open]);
        let found = waiting.into_iter().find(|waiting| std::ptr::eq(&*waiting.block, block))?;
        (!block.is_being_filled()).then(|| &found.buf[HEADER..])
    }

    /// Returns the newest block that holds a record and may not be durable yet.
    pub fn last_appended(&self) -> Option<Arc<Block>> {
        if self.open.records > 0 { Some(self.open.block.clone()) } else { self.last.clone() }
    }

    pub fn stats(&self) -> WalStats {
        let Settings { codec, block_size, depth } = self.tuner.settings();
        let (queued, in_flight, waiting) = (self.closed.len(), self.flying, self.room_waiters.len());
        let (used, size) = (self.ring.used(), self.ring.size());
        WalStats { used, size, block_size, depth, codec, queued, in_flight, waiting, ..self.stats }
    }

    /// Checks whether a record of at most `bound` bytes can be appended now. With `spare`, the
    /// record may use the reserve for records that free space.
    pub fn admits(&self, bound: usize, spare: bool) -> Result<(), WalError> {
        self.check()?;
        if self.closing {
            return Err(WalError::Closed);
        }
        if bound > self.setup.max_record {
            return Err(WalError::TooLarge { len: bound, limit: self.setup.max_record });
        }
        if self.closed.len() >= MAX_CLOSED
            || self.paused
            || self.mirror.as_ref().is_some_and(|it| it.is_full())
        {
            return Err(WalError::Busy);
        }
        if !self.finds_room(bound, if spare { 0 } else { self.setup.reserve }) {
            return Err(WalError::Full { used: self.ring.used(), size: self.ring.size() });
        }
        Ok(())
    }

    /// Appends a record of at most `bound` bytes, which may rest for `within` from `now` on. `put`
    /// appends the record to the block and returns its start in the payload.
    ///
    /// With `spare`, the record may use the reserve for records that free space.
    pub fn append(
        &mut self,
        bound: usize,
        spare: bool,
        (within, now): (Duration, impl Fn() -> Duration),
        put: impl FnOnce(&mut OpenBlock) -> usize,
    ) -> Result<Appended, WalError> {
        self.admits(bound, spare)?;
        let block_size = self.tuner.settings().block_size;
        if !self.open.fits(bound, block_size) {
            if self.open.records > 0 {
                self.close_open();
            }
            self.open.make_room(&self.pool, bound);
        }
        let open = &mut self.open;
        // A record with at least as much time as an earlier record does not move the deadline.
        if open.records == 0 || within < open.within {
            let now = now();
            open.deadline = open.deadline.min(now.saturating_add(within));
            open.within = within;
            if open.records == 0 {
                open.appended = now;
            }
        }
        let start = open.buf.len();
        let offset = put(open);
        let lsn = self.next_lsn + (start - HEADER) as u64;
        self.stats.records += 1;
        let block = open.block.clone();
        Ok(Appended { lsn, block, offset, used: self.ring.used(), earliest: self.earliest(now) })
    }

    /// Returns the earliest time at which the open block may be written at the current pace.
    fn earliest(&self, now: impl Fn() -> Duration) -> Duration {
        if !self.is_paced() {
            return Duration::ZERO;
        }
        let (mut pacer, now) =
            (self.pacer, if bug("pace-forgets-the-time") { Duration::ZERO } else { now() });
        // The pace counts a taken block when the block is placed.
        let taken = self.taken.as_ref().map(|(_, len)| *len);
        let closed = self.closed.iter().map(|f| disk_len(f.buf.len() - HEADER));
        taken.into_iter().chain(closed).for_each(|len| pacer.charge(len as u64, now));
        pacer.next()
    }

    /// Returns whether a record of `bound` bytes, and every block before it, will find a place in
    /// the ring.
    fn finds_room(&self, bound: usize, reserve: u64) -> bool {
        let filled = self.open.buf.len() - HEADER;
        let (before, with) = if self.open.fits(bound, self.tuner.settings().block_size) {
            (0, disk_len(filled + bound + FRAME))
        } else {
            (disk_len(filled), disk_len(bound + FRAME))
        };
        // Any waiting block may be the block that does not fit at the end of a lap.
        let waiting = self.closed.iter().map(|f| disk_len(f.buf.len() - HEADER)).chain([before, with]);
        let largest = waiting.max().unwrap_or_default().max(self.taken.as_ref().map_or(0, |(_, len)| *len));
        self.ring.has_room(self.closed_bytes + before as u64, with as u64, largest as u64, reserve)
    }

    /// Counts a change of room, and returns the threads to wake.
    pub fn room_changed(&mut self) -> Vec<Thread> {
        self.changes_of_room += 1;
        std::mem::take(&mut self.room_waiters)
    }

    /// Refuses new records from now on.
    pub fn refuse(&mut self) {
        self.closing = true;
    }

    fn close_open(&mut self) {
        self.pool.set_block_size(self.tuner.settings().block_size);
        let next_seq = self.open.block.seq() + 1;
        let next = self.new_block(next_seq);
        let filled = std::mem::replace(&mut self.open, next);
        let len = filled.buf.len() - HEADER;
        self.next_lsn += len as u64;
        self.stats.raw_bytes += len as u64;
        self.closed_bytes += disk_len(len) as u64;
        self.last = Some(filled.block.clone());
        self.closed.push_back(filled);
    }

    fn new_block(&self, seq: u64) -> OpenBlock {
        let kept = self.mirror.as_ref().map_or(Kept::Never, |mirror| mirror.end_of(seq));
        OpenBlock::new(&self.pool, seq, kept)
    }

    /// Ends the open block, so that later records are in blocks behind it; returns the number of
    /// the last block before the cut. [`cut_cursor`](Self::cut_cursor) then returns the cursor
    /// behind that block.
    pub fn cut(&mut self) -> u64 {
        if self.open.records > 0 {
            self.close_open();
        }
        let seq = self.open.block.seq() - 1;
        let placed = self.next.seq == seq + 1;
        self.marks.push_back((seq, placed.then_some(self.next)));
        seq
    }

    /// Returns the cursor behind the block `seq` of a cut, once that block is placed. Forgets the
    /// cut.
    pub fn cut_cursor(&mut self, seq: u64) -> Option<Cursor> {
        let at = self.marks.iter().position(|(s, cursor)| *s == seq && cursor.is_some())?;
        if bug("trimmed-beyond-checkpoint") {
            return self.marks.remove(at).map(|_| self.next);
        }
        self.marks.remove(at).and_then(|(_, cursor)| cursor)
    }

    /// Gives a sealed block its position and checksum.
    pub fn place(
        &mut self,
        block: Arc<Block>,
        sealed: Sealed,
        times: Option<BlockTimes>,
        now: Duration,
    ) -> Result<Write, WalError> {
        self.check()?;
        assert!(
            self.taken.take().is_some_and(|(taken, _)| taken.seq() == block.seq()),
            "only the block that was taken is placed"
        );
        let (len, raw_len, shrinks) = (sealed.disk_len(), sealed.raw_len(), sealed.shrinks());
        let whole = HEADER + sealed.stored_len();
        self.closed_bytes -= disk_len(raw_len) as u64;
        let position = self.ring.place(len as u64).expect("appending checked the room");
        let seq = block.seq();
        assert!(seq == self.next.seq, "blocks are placed in the order of their numbers");
        // An empty block only records the acknowledged number; no later block needs to record that
        // the empty block was acknowledged.
        self.told = if raw_len == 0 { seq } else { self.durable };
        let place = Header {
            store: self.setup.store,
            epoch: self.setup.epoch,
            seq,
            position,
            lsn: self.next.lsn,
            acked: if bug("block-tells-too-much") { seq - 1 } else { self.durable },
            previous: self.next.chain,
            ..Header::default()
        };
        let (chain, data, payload) = sealed.stamp(&self.pool, place);
        let from = Cursor { position, ..self.next };
        self.next =
            Cursor { position: self.ring.head(), seq: seq + 1, lsn: self.next.lsn + raw_len as u64, chain };
        block.set_place(from, self.next, payload);
        let sealed = self.mirror.is_some().then(|| SealedBlock::placed(from, self.next, data.slice(..whole)));
        for (_, cursor) in self.marks.iter_mut().filter(|(s, _)| *s == seq) {
            *cursor = Some(self.next);
        }
        self.shrinks = shrinks.unwrap_or(self.shrinks);
        let times = times.map(|times| BlockTimes { placed: now, ..times });
        let shrinks = self.shrinks;
        self.in_flight.push_back(InFlight { block, raw_len, shrinks, done: false, times, sealed });
        self.flying += 1;
        self.tuner.busy(now);
        self.pacer.charge(len as u64, now);
        self.stats.blocks += 1;
        self.stats.written_bytes += len as u64;
        Ok(Write { seq, offset: self.ring.map().at(position), data })
    }

    /// Records that the write of a block succeeded.
    pub fn complete(&mut self, seq: u64, now: Duration) {
        if self.failure.is_some() {
            return;
        }
        let first = self.in_flight.front().expect("a completed block is in flight").block.seq();
        let flown = &mut self.in_flight[(seq - first) as usize];
        flown.done = true;
        flown.times.iter_mut().for_each(|times| times.written = now);
        let (raw_len, shrinks) = (flown.raw_len, flown.shrinks);
        self.flying -= 1;
        self.tuner.done(Done { raw_len, shrinks, others: self.flying }, now);
        if self.flying == 0 && self.taken.is_none() && self.closed.is_empty() && self.open.records == 0 {
            self.tuner.idle(now);
        }
    }

    /// Stops the log for good; returns every block that will not become durable.
    pub fn fail(&mut self, error: io::Error) -> Vec<Arc<Block>> {
        self.stop(WalError::Stopped(Arc::new(error)))
    }

    /// Ends the log without an error of the volume.
    pub fn stop(&mut self, why: WalError) -> Vec<Arc<Block>> {
        if self.failure.is_some() {
            return Vec::new();
        }
        self.failure = Some(why);
        self.ended.store(true, Ordering::Release);
        let mut blocks = self.mirror.as_mut().map(|mirror| mirror.stop()).unwrap_or_default();
        blocks.extend(self.in_flight.drain(..).map(|f| f.block));
        // The driver of the taken block will find the log stopped.
        blocks.extend(self.taken.take().map(|(block, _)| block));
        blocks.extend(self.closed.iter().map(|f| f.block.clone()));
        // Writers may still write into the buffers of closed blocks; so the buffers stay alive.
        self.wrecked.extend(self.closed.drain(..));
        blocks.push(self.open.block.clone());
        let later: Vec<_> = blocks.iter().filter_map(|block| block.later().cloned()).collect();
        blocks.extend(later);
        blocks
    }

    /// Frees the ring before a cursor that a durable superblock covers.
    pub fn trim(&mut self, cursor: Cursor) {
        self.ring.trim(cursor.position);
    }

    /// Moves the end of a log in which nothing waits and nothing is on its way: the next block
    /// continues another log, whose records are kept elsewhere.
    pub fn skip(&mut self, lsn: u64, chain: u64) {
        assert!(self.is_idle(), "a log that others continue has no records of its own");
        (self.next.lsn, self.next.chain, self.next_lsn) = (lsn, chain, lsn);
        self.stats.records += 1;
    }

    /// Returns the log position of the next record.
    pub fn next_lsn(&self) -> u64 {
        self.next_lsn + (self.open.buf.len() - HEADER) as u64
    }

    /// Returns the position of the next block, once nothing is in flight.
    pub fn end(&self) -> Cursor {
        assert!(self.is_idle(), "the end of a busy log moves");
        self.next
    }
}
