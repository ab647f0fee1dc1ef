//! The choice of drivers: the block that may be written, and the thread that is woken to write it.

use std::sync::Arc;
use std::time::Duration;

use brooklet_io::AlignedBuf;

use super::{Core, MAX_CLOSED, OpenBlock};
use crate::block_handle::Block;
use crate::format::{Codec, HEADER, disk_len};
use crate::seal::Effort;
use crate::sync::thread::Thread;
use crate::tuner::Settings;

/// While nothing is compressed, one block in this many is tested for compression.
const ASK_EVERY: u64 = 16;

/// Most blocks in the window, for each write that may be in flight. Bounds the memory of blocks
/// that wait for an earlier block.
const WINDOW: usize = 2;

/// A block taken for sealing.
pub(crate) struct Taken {
    pub block: Arc<Block>,
    pub buf: AlignedBuf,
    pub records: u32,
    /// Time at which the first record was appended.
    pub appended: Duration,
    /// Whether to compress it.
    pub effort: Effort,
}

/// The reason to close the open block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteReason {
    /// A caller waits for the block.
    Wanted,
    /// A caller waits for the block at this time, and no committer's thread keeps the pace.
    Alone(Duration),
    /// The driver is otherwise idle; the deadline decides.
    Due(Duration),
}

/// The next driver.
pub(crate) enum Next {
    Thread(Thread),
    Committer(CommitterWait),
}

/// The rest of the committer. `until` is the time of its next check; `Duration::MAX`: never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommitterWait {
    /// The committer has no write in flight.
    Parked { until: Duration },
    /// The committer waits for a write to end; a slot for another may be free.
    Flying { until: Duration },
}

impl CommitterWait {
    fn until(self) -> Duration {
        match self {
            Self::Parked { until } | Self::Flying { until } => until,
        }
    }
}

impl Core {
    /// Returns whether a driver may take a block now.
    fn may_take(&self, reason: WriteReason) -> bool {
        let block_size = self.tuner.settings().block_size;
        if self.failure.is_some() || self.taken.is_some() || !self.has_slot() {
            return false;
        }
        let paced = self.is_paced();
        if paced
            && !matches!(reason, WriteReason::Due(now) | WriteReason::Alone(now) if now >= self.pacer.next())
        {
            return false;
        }
        if !self.closed.is_empty() {
            return true;
        }
        if self.open.records == 0 {
            return false;
        }
        // While a write is in flight, the open block continues to fill, unless it is large enough
        // for its own write.
        let worth = self.flying == 0 || paced || self.open.buf.len() >= block_size / 8;
        worth
            && match reason {
                WriteReason::Wanted | WriteReason::Alone(_) => true,
                WriteReason::Due(now) => self.open.deadline <= now || self.open.block.is_wanted(),
            }
    }

    /// Takes the oldest waiting block. If none waits, closes the open block if `reason` allows it.
    pub fn take(&mut self, reason: WriteReason) -> Option<Taken> {
        if !self.may_take(reason) {
            return None;
        }
        if self.closed.is_empty() {
            self.close_open();
        }
        // If blocks pile up although the device has little to do, compression is the bottleneck.
        // The tuner finds that out too, but a short burst may end before. A trial of the tuner is
        // not disturbed.
        let Settings { codec, depth, .. } = self.tuner.settings();
        let starves = self.closed.len() > MAX_CLOSED / 2 && self.flying < (depth / 2).min(2);
        let starves = starves && !self.is_paced() && !self.tuner.is_trying();
        let filled = self.closed.pop_front()?;
        let seq = filled.block.seq();
        self.taken = Some((filled.block.clone(), disk_len(filled.buf.len() - HEADER)));
        let effort = match codec {
            _ if starves => Effort::None,
            Codec::Raw if seq.is_multiple_of(ASK_EVERY) => Effort::Ask,
            Codec::Raw => Effort::None,
            codec => Effort::Compress(codec),
        };
        let OpenBlock { block, buf, records, appended, .. } = filled;
        Some(Taken { block, buf, records, appended, effort })
    }

    /// Returns whether a placed block, or the superblock, records all acknowledged blocks.
    pub fn has_told(&self) -> bool {
        self.told >= self.durable
    }

    /// Takes an empty block that only records the acknowledged number, if nothing records it yet
    /// and all is quiet.
    pub fn take_quiet(&mut self, now: Duration) -> Option<Taken> {
        if self.has_told() { None } else { self.take_empty(now) }
    }

    /// Takes an empty block, if all is quiet.
    pub fn take_empty(&mut self, now: Duration) -> Option<Taken> {
        let due = self.is_idle() && !self.paused && self.failure.is_none();
        let due = due && now >= self.pacer.next();
        if !due || !self.has_room_for_empty() {
            return None;
        }
        self.close_open();
        let filled = self.closed.pop_front()?;
        self.taken = Some((filled.block.clone(), disk_len(filled.buf.len() - HEADER)));
        let OpenBlock { block, buf, appended, .. } = filled;
        Some(Taken { block, buf, records: 0, appended, effort: Effort::None })
    }

    fn has_room_for_empty(&self) -> bool {
        let sector = disk_len(0) as u64;
        self.ring.has_room(0, sector, sector, self.setup.reserve)
    }

    /// Returns whether the empty block waits for room or for the mirror, and nothing else is to do.
    /// Only a trim, a resize or the mirror changes that, or an append, which wakes the committer.
    pub fn waits_for_change(&self) -> bool {
        self.is_at_rest() && (self.hides() || !self.paused && !self.has_room_for_empty())
    }

    /// Returns the rest of a committer that sleeps although nothing records the acknowledged
    /// number, if the empty block need not wait any more. Every change that lets it be written
    /// asks, under the same lock.
    pub fn rest_without_cause(&mut self) -> Option<CommitterWait> {
        let sleeps = self.rest == Some(CommitterWait::Parked { until: Duration::MAX });
        if sleeps && !self.has_told() && !self.waits_for_change() { self.rest.take() } else { None }
    }

    /// Returns the next driver, if a block can be taken and somebody wants it. With `alone`, no
    /// committer's thread drives the log.
    pub fn next_driver(&mut self, alone: bool) -> Option<Next> {
        if self.is_paced() && !alone {
            let late = self.rest.is_some_and(|rest| rest.until() > self.pacer.next());
            let work = self.failure.is_none() && self.has_slot() && self.is_wanted();
            return if late && work { self.rest.take().map(Next::Committer) } else { None };
        }
        // Under a pace, the thread that is woken sleeps until its time.
        let reason = if alone { WriteReason::Alone(self.pacer.next()) } else { WriteReason::Wanted };
        if !self.may_take(reason) || !self.is_wanted() {
            return None;
        }
        let waiting = self.closed.iter().map(|f| &f.block).chain([&self.open.block]);
        if let Some(thread) = waiting.into_iter().find_map(|block| block.take_thread()) {
            self.stats.wakes += 1;
            return Some(Next::Thread(thread));
        }
        self.rest.take().map(Next::Committer)
    }

    /// Returns the committer's rest, if the open block's deadline or a backlog must end it.
    pub fn should_wake(&mut self) -> Option<CommitterWait> {
        let rest = self.rest?;
        // Without a pace, a block that is due continues to fill until the write in flight ends.
        let bound = matches!(rest, CommitterWait::Parked { .. }) || self.is_paced() && self.has_slot();
        let due = bound && self.due().is_some_and(|due| due < rest.until());
        let wake = due || self.may_take(WriteReason::Wanted) && self.is_wanted();
        if wake { self.rest.take() } else { None }
    }

    /// Returns whether a block is full, or somebody waits for the open block.
    fn is_wanted(&self) -> bool {
        !self.closed.is_empty() || self.open.block.is_wanted()
    }

    /// Returns whether one more write may be in flight. A device ends writes in any order: a slow
    /// write must not prevent later writes, up to the bound of the window.
    pub fn has_slot(&self) -> bool {
        let depth = self.tuner.settings().depth;
        self.flying < depth && self.in_flight.len() < WINDOW * depth
    }

    /// Returns whether a pace delays writes. Then only the committer drives, because its timer is
    /// exact, unless it has no thread.
    pub fn is_paced(&self) -> bool {
        self.pacer.is_on()
    }

    /// Returns the time for which the pace still delays the next write.
    pub fn held_back(&self, now: Duration) -> Option<Duration> {
        self.pacer.next().checked_sub(now).filter(|time| !time.is_zero())
    }

    /// Returns the time when the next block is due, as far as known; `None` if no block is due.
    pub fn due(&self) -> Option<Duration> {
        let deadline = (self.open.records > 0).then_some(self.open.deadline);
        if !self.is_paced() {
            return deadline;
        }
        (if self.is_wanted() { Some(Duration::ZERO) } else { deadline }).map(|due| due.max(self.pacer.next()))
    }
}
