//! Observers of durable blocks: subscribers hold the blocks until they are taken, and witnesses
//! record the times.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use brooklet_io::seeded::bug;
use brooklet_io::{Clock, Process};
use brooklet_wal::Block;

/// The state that the store and a subscription share.
pub(crate) struct Subscriber {
    pub store: u128,
    pub most: usize,
    pub clock: Arc<dyn Clock>,
    pub seen: Mutex<Seen>,
    pub process: Process,
}

pub(crate) struct Seen {
    pub items: VecDeque<Item>,
    pub bytes: usize,
    /// The reason why commits are missing before the next item.
    pub lost: Option<Lost>,
    /// The place in the log where the last block ended.
    pub at: u64,
    /// The last readings of the wall clock and of the monotonic clock, in milliseconds.
    pub clocks: (u64, u64),
}

/// An item for a subscription.
#[derive(Clone)]
pub(crate) enum Item {
    /// A block, and the time at which the block became durable.
    Block(Arc<Block>, u64),
    Mark(Moment),
}

/// A moment: the place in its log that a store had reached at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The place in the log; see [`View::lsn`](crate::View::lsn).
    pub lsn: u64,
    /// The time, in milliseconds since the Unix epoch, by the store's clock. The clock may have
    /// been set back since an earlier moment.
    pub time_ms: u64,
}

/// Maximum difference of the clocks, in milliseconds, that does not count as a change of the wall
/// clock. The clocks are not read at the same instant.
const APART: u64 = 10;

/// Why a [`Subscription`](crate::Subscription) lacks commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// More bytes were committed than the subscription holds, before the caller took them.
    Behind {
        /// Maximum bytes that the subscription holds.
        most: usize,
    },
    /// Logs entered the store without commits: by an import, or from a memory space.
    Unlogged,
    /// This process did not open the store. It was forked from the process that opened the store.
    Forked,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Lost::*;
        match self {
            Behind { most } => {
                write!(f, "the subscriber was too slow: more than {most} bytes of commits waited")
            }
            Unlogged => {
                f.write_str("logs entered the store without commits, by an import or from a memory space")
            }
            Forked => f.write_str(
                "this process is a fork of the process that opened the store; open the store here",
            ),
        }
    }
}

impl std::error::Error for Lost {}

impl Subscriber {
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn publish(&self, blocks: &[Arc<Block>]) {
        let mut seen = self.seen();
        // The time is read under the lock: commits taken at a time include all that became durable
        // by then.
        let now = seen.look(&*self.clock);
        for block in blocks.iter().filter(|block| !block.data().is_empty()) {
            seen.bytes += block.data().len();
            seen.at = block.lsns().end;
            if seen.bytes > self.most {
                seen.lose(Lost::Behind { most: self.most });
            }
            if seen.lost.is_none() {
                seen.items.push_back(Item::Block(block.clone(), now));
            }
        }
    }
}

impl Seen {
    pub fn lose(&mut self, why: Lost) {
        self.lost.get_or_insert(why);
        (self.items, self.bytes) = (VecDeque::new(), 0);
    }

    /// Returns the wall time. If the clock was set since the last call, adds marks.
    pub fn look(&mut self, clock: &dyn Clock) -> u64 {
        let (wall, now) = (millis(clock), clock.now().as_millis() as u64);
        let (before, last) = std::mem::replace(&mut self.clocks, (wall, now));
        let passed = now.saturating_sub(last);
        if before.saturating_add(passed).abs_diff(wall) > APART && !bug("clock-is-set-unnoticed") {
            for time in [before.saturating_add(passed), wall.saturating_sub(passed)] {
                self.items.push_back(Item::Mark(Moment { lsn: self.at, time_ms: time }));
            }
        }
        wall
    }
}

pub(crate) fn millis(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.wall().as_millis()).unwrap_or(u64::MAX)
}

/// The observers of a store.
#[derive(Default)]
pub(crate) struct Subscribers {
    all: Vec<Weak<Subscriber>>,
    witnesses: Vec<Weak<Witness>>,
}

impl Subscribers {
    /// Notifies all observers that these blocks are durable, in order.
    pub fn publish(&mut self, blocks: &[Arc<Block>]) {
        self.all.retain(|subscription| {
            subscription.upgrade().inspect(|subscription| subscription.publish(blocks)).is_some()
        });
        self.witnesses
            .retain(|witness| witness.upgrade().inspect(|witness| witness.publish(blocks)).is_some());
    }

    /// Adds a subscriber.
    pub fn add(&mut self, subscription: &Arc<Subscriber>) {
        self.all.push(Arc::downgrade(subscription));
    }

    /// Records for all subscribers that logs entered the store without passing through its log.
    pub fn lose(&mut self) {
        self.all
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|subscription| subscription.seen().lose(Lost::Unlogged));
    }

    /// Adds a witness, which records when blocks become durable.
    pub fn witness(&mut self, clock: Arc<dyn Clock>) -> Arc<Witness> {
        let witness = Arc::new(Witness { clock, seen: Mutex::default() });
        self.witnesses.push(Arc::downgrade(&witness));
        witness
    }
}

/// A record of when blocks became durable while a view is taken. The view is the store as of its
/// cut, and not as of the end of the checkpoint.
pub(crate) struct Witness {
    clock: Arc<dyn Clock>,
    /// The places where blocks end, and the times at which the blocks became durable.
    seen: Mutex<Vec<(u64, u64)>>,
}

impl Witness {
    pub fn publish(&self, blocks: &[Arc<Block>]) {
        let now = millis(&*self.clock);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.extend(
            blocks.iter().filter(|block| !block.data().is_empty()).map(|block| (block.lsns().end, now)),
        );
    }

    /// Returns the last time, up to `now`, at which the store was at this place of its log.
    pub fn last_at(&self, lsn: u64, now: u64) -> u64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = seen.partition_point(|(end, _)| *end <= lsn);
        let Some((_, after)) = seen.get(behind) else { return now };
        // If both are in the same millisecond, or the clock was set back, the place has no time of
        // its own.
        let before = behind.checked_sub(1).map_or(0, |before| seen[before].1);
        before.max(after.saturating_sub(1)).min(now)
    }
}
