//! Who is notified of blocks as they become durable: followers, which keep them until they are
//! taken, and witnesses, which note when.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use brooklet_io::seeded::bug;
use brooklet_io::{Clock, Process};
use brooklet_wal::Block;

/// What the store's side and a follower share.
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
    /// Why something is missing before what comes next.
    pub lost: Option<Lost>,
    /// Where the last block ended.
    pub at: u64,
    /// When the clocks were looked at last: that of the wall, and that which is never set.
    pub clocks: (u64, u64),
}

/// What a follower is told.
#[derive(Clone)]
pub(crate) enum Item {
    /// A block, and when it became durable.
    Block(Arc<Block>, u64),
    Mark(Moment),
}

/// Up to where in its log a store was at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The place in the log; see [`View::lsn`](crate::View::lsn).
    pub lsn: u64,
    /// The time, in milliseconds since the Unix epoch, by the store's clock, which may have been
    /// set back since an earlier moment.
    pub time_ms: u64,
}

/// How far the clocks may be apart, in milliseconds, without the one having been set: they are not
/// looked at at once.
const APART: u64 = 10;

/// Why a [`Subscription`](crate::Subscription) lacks commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Lost {
    /// More was committed than the follower holds, before anybody took it.
    #[error("more than {most} bytes were committed before they were taken")]
    Behind {
        /// The bytes that the follower holds at most.
        most: usize,
    },
    /// Logs entered the store without commits: by an import, or from a space in memory.
    #[error("logs entered the store without commits, by an import or from memory")]
    Unlogged,
    /// This process did not open the store: it was forked from the one that did.
    #[error("this process was forked from the one that opened the store; open the store here")]
    Forked,
}

impl Subscriber {
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn publish(&self, blocks: &[Arc<Block>]) {
        let mut seen = self.seen();
        // While nobody can take: what is taken at a time has all that became durable up to then.
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

    /// What time it is. Where the clock was set since this was called last, that is marked.
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

/// Those who follow a store.
#[derive(Default)]
pub(crate) struct Subscribers {
    all: Vec<Weak<Subscriber>>,
    witnesses: Vec<Weak<Witness>>,
}

impl Subscribers {
    /// Blocks are durable, in order.
    pub fn publish(&mut self, blocks: &[Arc<Block>]) {
        self.all.retain(|subscription| {
            subscription.upgrade().inspect(|subscription| subscription.publish(blocks)).is_some()
        });
        self.witnesses
            .retain(|witness| witness.upgrade().inspect(|witness| witness.publish(blocks)).is_some());
    }

    /// From now on it is notified.
    pub fn add(&mut self, subscription: &Arc<Subscriber>) {
        self.all.push(Arc::downgrade(subscription));
    }

    /// Something came into the store past its log.
    pub fn lose(&mut self) {
        self.all
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|subscription| subscription.seen().lose(Lost::Unlogged));
    }

    /// From now on it is noted when blocks become durable.
    pub fn witness(&mut self, clock: Arc<dyn Clock>) -> Arc<Witness> {
        let witness = Arc::new(Witness { clock, seen: Mutex::default() });
        self.witnesses.push(Arc::downgrade(&witness));
        witness
    }
}

/// Notes when blocks become durable, while a view is taken: the view is the store as it was at its
/// cut, and not as it was once the checkpoint had ended.
pub(crate) struct Witness {
    clock: Arc<dyn Clock>,
    /// Where blocks end, and when they became durable.
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

    /// The last moment, up to `now`, at which the store was at that place of its log.
    pub fn last_at(&self, lsn: u64, now: u64) -> u64 {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = seen.partition_point(|(end, _)| *end <= lsn);
        let Some((_, after)) = seen.get(behind) else { return now };
        // Both in one millisecond, or the clock was set back: then the place has no moment of its
        // own.
        let before = behind.checked_sub(1).map_or(0, |before| seen[before].1);
        before.max(after.saturating_sub(1)).min(now)
    }
}
