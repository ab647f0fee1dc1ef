//! The shared parts of all runs: the volume, the memory for look-ups, and the counters of look-ups.
//!
//! One [`Cache`] of bounded size holds filters, indexes and blocks of all runs. Blocks beyond the
//! bound stay on the volume. A look-up in a run then costs at most one read of 16 KiB for the
//! filter. If the filter answers "maybe", a look-up of bounds costs one read of a page of notes. A
//! look-up of entries costs one more read for each level of the index below the root, and one read
//! for the block. The cache evicts the filter's directory and
//! the index's root last; both together take a few hundred bytes for a hundred thousand logs. The
//! maintenance thread (`engine/worker.rs`) also evicts blocks that are not used for some time, even
//! if there is room.

use std::sync::{Arc, OnceLock};

use brooklet_codex::{BuilderOptions, Cache};
use brooklet_io::Volume;

use crate::model::keyed_hash::Secret;
use crate::run::RunSet;
use crate::run::read_cost::ReadCost;
use crate::run::whole_logs::WholeLogs;
use crate::sync::Sleeper;
use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Bits of filter for each log. For one in two hundred look-ups of a log that a run does not have,
/// the filter answers "maybe", and the look-up continues in the run's index. Filter and index
/// together take less than 2.5 bytes of memory for each log, if logs have a few hundred bytes.
const BITS_PER_LOG: u32 = 12;

/// Bytes of a block of entries before compression. A read of a log at random decompresses one block
/// of each run that has entries of the log, so larger blocks cost it more time. Smaller blocks
/// compress worse, and need a larger index.
const BLOCK_SIZE: usize = 8 << 10;

/// The memory for look-ups by default, in bytes; and at least so much for each log of the largest
/// run, beside the bounds cache. A new log, and an append to a log at rest, ask the filters of all
/// runs: 1.6 bytes for each log of a run. If these are not in memory, each question reads 16 KiB.
const BUDGET: usize = 64 << 20;
const BUDGET_PER_LOG: usize = 2;

/// The bounds cache may take this part of the memory for look-ups: by default, two million logs of
/// 16 bytes. It does not grow with the largest run.
const BOUNDS_CACHE_PART: usize = 2;

pub(crate) struct TableCache {
    pub volume: Arc<dyn Volume>,
    pub cache: Arc<Cache>,
    pub whole_logs: WholeLogs,
    /// Seed of the filters of new runs. It is secret, so that nobody can choose keys for which a
    /// filter wrongly answers "maybe", and that each cost a read. The runs record this seed, but
    /// the seed reveals nothing of the secret.
    filter_seed: u64,
    /// Whether the budget grows with the largest run, since the user requested none.
    grows: bool,
    /// Maximum bytes for all look-ups. The bounds cache may use part of them; the cache has the
    /// rest.
    budget: AtomicUsize,
    pub bounds_cache_budget: usize,
    questions: AtomicU64,
    false_positives: AtomicU64,
    pub read_cost: ReadCost,
    /// Set while no thread ages the cache, because it is empty. The next look-up clears this flag
    /// and wakes the thread.
    unwatched: AtomicBool,
    /// The thread that ages the cache and merges runs.
    watcher: OnceLock<Arc<Sleeper>>,
}

/// Counters of look-ups in the runs since the store was opened, and the memory of their caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupStats {
    /// Number of times that a run's filter was asked for a log.
    pub filter_questions: u64,
    /// Number of times that a filter answered "maybe" but the run did not have the log. Each such
    /// answer causes a look at a page of notes, or at the index and at one block.
    pub filter_false_positives: u64,
    /// Number of times that a needed part of a filter, block of an index or block of entries was in
    /// memory.
    pub cache_hits: u64,
    /// Number of times that a needed part or block had to be read.
    pub cache_misses: u64,
    /// Bytes that were read for look-ups. Listings, checks and compaction do not use the cache, and
    /// their reads are not counted here.
    pub read_bytes: u64,
    /// Maximum memory for all look-ups, in bytes; see
    /// [`Options::cache_budget`](crate::Options::cache_budget).
    pub cache_budget: usize,
    /// Memory of cached filters now, in bytes.
    pub filter_bytes: usize,
    /// Memory of cached indexes now, in bytes.
    pub index_bytes: usize,
    /// Memory of cached blocks of entries now, in bytes.
    pub block_bytes: usize,
    /// Number of times that a log's needed bounds were in the bounds cache. Such a look-up does not
    /// read any run.
    pub bounds_cache: u64,
    /// Memory of the bounds cache now, in bytes.
    pub bounds_cache_bytes: usize,
}

impl TableCache {
    /// Creates a cache with `requested` bytes for all look-ups; `None` selects the default, which
    /// grows with the largest run. `bounds_cache` is the part of these bytes for the bounds cache;
    /// `None` selects the default part.
    pub fn new(
        volume: Arc<dyn Volume>,
        requested: Option<usize>,
        bounds_cache: Option<usize>,
        secret: Secret,
    ) -> Arc<Self> {
        let budget = requested.unwrap_or(BUDGET);
        let bounds_cache_budget = bounds_cache.unwrap_or(budget / BOUNDS_CACHE_PART).min(budget);
        let cache = Arc::new(Cache::new(budget));
        Arc::new(Self {
            volume,
            whole_logs: WholeLogs::new(&cache, secret.hash(b"the seed of whole logs") as u64),
            cache,
            grows: requested.is_none(),
            budget: AtomicUsize::new(budget),
            bounds_cache_budget,
            filter_seed: secret.hash(b"the seed of filters") as u64,
            questions: AtomicU64::new(0),
            false_positives: AtomicU64::new(0),
            read_cost: ReadCost::default(),
            unwatched: AtomicBool::new(false),
            watcher: OnceLock::new(),
        })
    }

    /// Gives the cache the part of the budget that the bounds cache does not take.
    pub fn share(&self, bounds_cache: usize) {
        self.cache.resize(self.budget.load(Ordering::Relaxed) - bounds_cache);
    }

    /// Fits the default budget to `runs`. The bounds cache takes `bounds_cache` bytes now.
    pub fn fit(&self, runs: &RunSet, bounds_cache: usize) {
        if self.grows {
            self.budget.store(default_budget(runs.most_logs()), Ordering::Relaxed);
            self.share(bounds_cache);
        }
    }

    /// Returns the options for building a codex of run `id`.
    pub fn builder_options(&self, id: u64) -> BuilderOptions {
        let (bits_per_item, filter_seed) = (BITS_PER_LOG, self.filter_seed);
        BuilderOptions {
            id,
            bits_per_item,
            filter_seed,
            block_size: BLOCK_SIZE,
            apart_from: usize::MAX,
            ..BuilderOptions::default()
        }
    }

    /// Returns the seed of the filters of new runs.
    pub fn filter_seed(&self) -> u64 {
        self.filter_seed
    }

    /// Sets the thread that ages the cache and merges runs. Only the first call has an effect.
    pub fn watched_by(&self, watcher: &Arc<Sleeper>) {
        self.watcher.get_or_init(|| watcher.clone());
    }

    /// Returns whether the cache holds anything to age. If not, the next look-up wakes the watcher.
    pub fn is_to_age(&self) -> bool {
        // The order matters: if a look-up does not see this flag, its cached blocks are seen here.
        self.unwatched.store(true, Ordering::Relaxed);
        let holds = !self.cache.is_empty();
        if holds {
            self.unwatched.store(false, Ordering::Relaxed);
        }
        holds
    }

    /// Counts a look-up that asked `filters` filters. The look-up has cached its blocks by now.
    pub fn asked(&self, filters: u64) {
        self.questions.fetch_add(filters, Ordering::Relaxed);
        if self.unwatched.load(Ordering::Relaxed) && self.unwatched.swap(false, Ordering::Relaxed) {
            self.watcher.get().inspect(|watcher| watcher.wake());
        }
    }

    /// Counts a look at the `pieces` pieces of a log, for which `blocks` blocks had to be read. If
    /// this makes a merge due, wakes the thread that merges.
    pub fn read(&self, pieces: usize, blocks: u64) {
        if self.read_cost.read(pieces as u64, blocks) {
            self.watcher.get().inspect(|watcher| watcher.wake());
        }
    }

    pub fn misled(&self) {
        self.false_positives.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters. `bounds_cache`: the hits and the bytes of the bounds cache.
    pub fn stats(&self, bounds_cache: (u64, usize)) -> LookupStats {
        let cache = self.cache.stats();
        LookupStats {
            filter_questions: self.questions.load(Ordering::Relaxed),
            filter_false_positives: self.false_positives.load(Ordering::Relaxed),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            read_bytes: cache.read_bytes,
            cache_budget: self.budget.load(Ordering::Relaxed),
            filter_bytes: cache.filter_bytes,
            index_bytes: cache.index_bytes,
            block_bytes: cache.data_bytes,
            bounds_cache: bounds_cache.0,
            bounds_cache_bytes: bounds_cache.1,
        }
    }
}

/// Returns the default budget of a store whose largest run has `logs` logs.
fn default_budget(logs: u64) -> usize {
    let filters = usize::try_from(logs).unwrap_or(usize::MAX).saturating_mul(BUDGET_PER_LOG);
    BUDGET.max((BUDGET / BOUNDS_CACHE_PART).saturating_add(filters))
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;
    use crate::error::Error;
    use crate::format::manifest::{Manifest, RunMeta, TableMeta};
    use crate::run::table::Table;

    #[test]
    fn the_default_budget_holds_the_filters_of_the_largest_run() {
        assert_eq!([0, 1_000, 16 << 20].map(default_budget), [64 << 20; 3]);
        let most = default_budget(100_000_000);
        assert_eq!(most, (32 << 20) + 200_000_000);
        assert!(most < 250_000_000, "at most 2.5 bytes a log");
        assert_eq!(default_budget(u64::MAX), usize::MAX);
    }

    #[test]
    fn only_the_default_budget_follows_the_runs() {
        for (requested, most) in [(None, default_budget(100_000_000)), (Some(1 << 20), 1 << 20)] {
            let secret = Secret::of_seed(1);
            let table_cache = TableCache::new(Arc::new(MemVolume::new(0)), requested, None, secret);
            let fitted = |logs: &[u64]| {
                let table = || TableMeta { len: 1 << 30, ..TableMeta::default() };
                let meta = |(id, &logs)| (RunMeta { id, logs, ..RunMeta::default() }, vec![table()]);
                let manifest = Manifest { runs: (1..).zip(logs).map(meta).collect(), merging: None };
                let why = || Error::damaged("the table", "it has no bytes");
                let open = |run, table| Ok(Table::broken(run, table, why()));
                table_cache.fit(&RunSet::open(&table_cache, &manifest, 0, open).unwrap(), 5_000);
                let budget = table_cache.stats((0, 0)).cache_budget;
                let taken = if requested.is_none() { 5_000 } else { 0 };
                assert_eq!(table_cache.cache.stats().budget, budget - taken);
                budget
            };
            assert_eq!(fitted(&[10, 100_000_000, 7]), most);
            assert_eq!(fitted(&[10, 7]), requested.unwrap_or(BUDGET));
            let claimed = fitted(&[u64::MAX]);
            assert_eq!(claimed, requested.unwrap_or(default_budget(1 << 30)), "no more logs than bytes");
        }
    }
}
