//! The store's state that commits and readers share under one lock: memtables, runs, spaces, and
//! blocks that are not durable yet. [`append`] changes it, and [`publish`](StoreState::publish)
//! makes durable blocks visible.

pub mod admission;
pub mod append;
pub mod backpressure;
pub mod in_flight;
pub mod lost;
pub mod needs;
pub mod plan;
pub mod planned;
pub mod refusal;
pub mod rehearsal;
pub mod replay;
pub mod retention;
pub mod size_lookup;
pub mod spaces;
pub mod subscribers;
pub mod undo;
pub mod watchers;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use brooklet_wal::{Block, Waiters, Wal};

use crate::counters::{ReadSource, ReadStats};
use crate::error::Error;
use crate::memtable::{LogState, Memtable, Pending, Slot};
use crate::model::{Bounds, Piece};
use crate::run::RunSet;
use crate::run::bounds_cache::BoundsCache;
use crate::run::table_cache::TableCache;
use crate::state::admission::Room;
use crate::state::lost::{Doubt, Lost};
use crate::state::planned::Planned;
use crate::state::spaces::{SpaceTable, Spaces};
use crate::state::subscribers::Subscribers;
use crate::state::undo::Undo;
use crate::state::watchers::Watchers;

/// The reason for stopping a store whose state may be half changed.
pub(crate) const HALF_DONE: &str = "a thread panicked while it changed what readers see";

/// The effects of one block, in append order.
#[derive(Debug)]
struct PendingBlock {
    block: Arc<Block>,
    /// The memtable of these effects: the active one, or the one before it.
    generation: u64,
    effects: Vec<Pending>,
    /// The time at which the first deferred commit of the block appended.
    deferred: Option<Duration>,
}

/// The state that appending and reading share, under one lock.
pub(crate) struct StoreState {
    pub active: Memtable,
    /// The memtable that a checkpoint is writing; shared with it once all of its blocks are
    /// visible.
    pub frozen: Option<Arc<Memtable>>,
    /// Memory of a memtable that is no longer used and not freed yet, in bytes.
    pub releasing: usize,
    /// Memory that recovery used beyond half of the budget, in bytes, until it is freed. Writers
    /// may use as much more, so that they need not wait for the first checkpoint.
    inherited: usize,
    pub runs: Arc<RunSet>,
    /// Whether an import is about to add a run of new logs: until then, no commit creates a log.
    /// See `maintenance/ingest.rs`.
    pub ingesting: bool,
    /// The observers of durable blocks.
    pub subscribers: Subscribers,
    /// The readers that wait for changes of logs.
    pub watchers: Arc<Watchers>,
    pub bounds_cache: BoundsCache,
    pub spaces: Spaces,
    /// The damage in the ring, in a store that is open read-only.
    pub lost: Option<Arc<Lost>>,
    /// The bounds of the log that holds the table of spaces, before the active memtable.
    table_log: Option<Bounds>,
    /// The table of spaces as of the frozen memtable's last commit. The memtable gets the table
    /// once the memtable is complete.
    last_table: Option<(Slot, Vec<u8>)>,
    /// The room in the heap.
    pub room: Room,
    generation: u64,
    /// The last block that holds a deferred commit on any log.
    pub last_deferred: u64,
    pub reads: ReadStats,
    pending: VecDeque<PendingBlock>,
    /// Logs whose sizes are being looked up for commits, with the number of these commits. These
    /// logs stay in the active memtable until the lookup ends.
    counting: BTreeMap<Box<[u8]>, usize>,
    /// Number of `EntrySizes` made so far.
    counted: u64,
    /// The current commit: the log of each operation, the effects, and the state of each log before
    /// them.
    slots: Vec<Slot>,
    plan: Vec<Planned>,
    undo: Vec<Undo>,
    effects: Vec<Pending>,
    /// The generation of the active memtable when a long commit was rehearsed last.
    rehearsed: Option<u64>,
}

impl StoreState {
    pub fn new(seed: u64, runs: Arc<RunSet>, bounds_cache: BoundsCache, table: SpaceTable) -> Self {
        let SpaceTable { spaces, log: table_log } = table;
        Self {
            active: Memtable::new(seed),
            frozen: None,
            releasing: 0,
            inherited: 0,
            runs,
            ingesting: false,
            subscribers: Subscribers::default(),
            watchers: Watchers::new(seed),
            bounds_cache,
            spaces,
            lost: None,
            table_log,
            last_table: None,
            room: Room::default(),
            generation: 0,
            last_deferred: 0,
            reads: ReadStats::default(),
            pending: VecDeque::new(),
            counting: BTreeMap::new(),
            counted: 0,
            slots: Vec::new(),
            plan: Vec::new(),
            undo: Vec::new(),
            effects: Vec::new(),
            rehearsed: None,
        }
    }

    /// Makes durable blocks visible to readers, and adds the readers that wait for them to
    /// `waiters`.
    pub fn publish(&mut self, blocks: &[Arc<Block>], waiters: &mut Waiters) -> Result<(), Error> {
        self.subscribers.publish(blocks);
        let mut marking = self.watchers.marking(waiters);
        for block in blocks {
            if self.pending.front().is_none_or(|p| p.block.seq() != block.seq()) {
                continue; // an empty block: it only records the acknowledged part
            }
            let pending = self.pending.pop_front().expect("just seen");
            let memtable = if pending.generation == self.generation {
                &mut self.active
            } else {
                let frozen = self.frozen.as_mut().expect("effects of an older tier have that tier");
                Arc::get_mut(frozen).expect("a tier is shared only once it is complete")
            };
            memtable.apply(block, &pending.effects).ok_or_else(|| {
                Error::damaged(
                    format!("block {}", block.seq()),
                    "an effect does not fit the state of its log",
                )
            })?;
            if let Some(marking) = &mut marking {
                memtable.mark(&pending.effects, marking);
            }
        }
        Ok(())
    }

    /// Starts a new active memtable. Returns the last block of the old one, which is complete once
    /// that block is visible. Returns `None` if the active memtable is empty.
    pub fn freeze(&mut self, wal: &Wal, seed: u64) -> Option<u64> {
        assert!(self.frozen.is_none(), "one tier is frozen at a time");
        if self.active.is_empty() {
            return None;
        }
        let cut = wal.cut();
        if self.spaces.is_changed() && self.active.claim() > 0 {
            let slot = self.active.expect_table(self.table_log);
            self.table_log = self.active.log(slot).appended;
            self.last_table = Some((slot, self.spaces.encode_for_run()));
        }
        let old = std::mem::replace(&mut self.active, Memtable::new(seed));
        self.frozen = Some(Arc::new(old));
        self.generation += 1;
        self.carry_counted();
        Some(cut)
    }

    /// Freezes the memtable of a store that is open read-only.
    pub fn freeze_for_good(&mut self, seed: u64) {
        let mut memtable = std::mem::replace(&mut self.active, Memtable::new(seed));
        // If a part of the ring is lost, the table may be newer than the memtable.
        if self.spaces.is_kept() && memtable.claim() > 0 && self.lost.is_none() {
            let slot = memtable.expect_table(self.table_log);
            memtable.put_table(slot, self.spaces.encode().into());
        }
        self.frozen = Some(Arc::new(memtable));
    }

    /// Completes the frozen memtable, whose last block is visible.
    pub fn complete(&mut self) {
        if let Some((slot, table)) = self.last_table.take() {
            let memtable = self.frozen.as_mut().expect("what is complete is there");
            let memtable = Arc::get_mut(memtable).expect("a tier is shared only once it is complete");
            memtable.put_table(slot, table.into());
        }
    }

    /// Empties the bounds cache, because bounds may have changed without an update of the cache.
    pub fn clear_bounds_cache(&mut self, table_cache: &TableCache) {
        self.bounds_cache = BoundsCache::new(self.bounds_cache.secret(), table_cache.bounds_cache_budget);
    }

    fn memtables(&self) -> impl Iterator<Item = &Memtable> {
        [Some(&self.active), self.frozen.as_deref()].into_iter().flatten()
    }

    /// Returns the approximate bytes of memory of the memtables, including the memtable that is
    /// being released.
    pub fn memory(&self) -> usize {
        self.memtables().map(Memtable::bytes).sum::<usize>() + self.releasing
    }

    /// Returns the bytes of memory that writers may use, with a budget of `budget` bytes.
    pub fn most_memory(&self, budget: usize) -> usize {
        budget + self.inherited
    }

    /// Records the memory in use as memory that recovery used.
    pub fn inherits(&mut self, budget: usize) {
        self.inherited = self.memory().saturating_sub(budget / 2);
    }

    /// Records that `bytes` bytes of a written memtable are not freed yet.
    pub fn set_releasing(&mut self, bytes: usize) {
        self.releasing = bytes;
        self.inherited = self.inherited.min(bytes);
    }

    /// Returns the number of the oldest memtable in memory; memtables are counted from 0.
    pub fn oldest_generation(&self) -> u64 {
        self.generation - u64::from(self.frozen.is_some())
    }

    /// Returns the number of the active memtable.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns whether runs hold all appended effects.
    pub fn is_settled(&self) -> bool {
        self.pending.is_empty() && !self.active.is_changed() && self.frozen.is_none()
    }

    /// Returns the part of a log that damage in the ring makes unknown, if any.
    pub fn doubt(&self, key: &[u8]) -> Option<Doubt> {
        lost::of(&self.lost)?.doubt(key)
    }

    /// Returns the visible pieces of a log in the memtables, newest first.
    pub fn recent(&self, key: &[u8]) -> Vec<(&Memtable, &LogState, Piece)> {
        if let Some(lost) = &self.lost
            && let Some(log) = lost.proven(key)
        {
            return log.piece().map(|piece| (&*lost.behind, log, piece)).into_iter().collect();
        }
        let known =
            self.memtables().filter_map(|memtable| Some((memtable, memtable.log(memtable.find(key)?))));
        known.filter_map(|(memtable, log)| Some((memtable, log, log.piece()?))).collect()
    }

    /// Returns the number of logs in the memtables.
    pub fn memtable_logs(&self) -> usize {
        self.memtables().map(|memtable| memtable.logs.len()).sum()
    }

    /// Returns the source of a read of a log; `known` holds the log's pieces in the memtables.
    pub fn read_source(&self, known: &[(&Memtable, &LogState, Piece)]) -> ReadSource {
        match known.first() {
            Some((memtable, ..)) if std::ptr::eq(*memtable, &self.active) => ReadSource::Active,
            Some(_) => ReadSource::Frozen,
            None => ReadSource::Runs,
        }
    }

    /// Returns the last block that holds a deferred commit on a log; 0 if no block does.
    pub fn deferred(&self, key: &[u8]) -> u64 {
        let known = self.memtables().filter_map(|memtable| Some(memtable.log(memtable.find(key)?).deferred));
        known.max().unwrap_or_default()
    }
}
