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
use crate::run::bounds_cache::BoundsCache;
use crate::run::read_cost::ReadCost;
use crate::run::whole_logs::WholeLogs;
use crate::sync::Sleeper;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bits of filter for each log. For one in two hundred look-ups of a log that a run does not have,
/// the filter answers "maybe", and the look-up continues in the run's index. Filter and index
/// together take less than 2.5 bytes of memory for each log, if logs have a few hundred bytes.
const BITS_PER_LOG: u32 = 12;

/// Bytes of a block of entries before compression. A read of a log at random decompresses one block
/// of each run that has entries of the log, so larger blocks cost it more time. Smaller blocks
/// compress worse, and need a larger index.
const BLOCK_SIZE: usize = 8 << 10;

/// The bounds cache may take this part of the memory for look-ups: by default, two million logs of
/// 16 bytes.
const BOUNDS_CACHE_PART: usize = 2;

pub(crate) struct TableCache {
    pub volume: Arc<dyn Volume>,
    pub cache: Arc<Cache>,
    pub whole_logs: WholeLogs,
    /// Seed of the filters of new runs. It is secret, so that nobody can choose keys for which a
    /// filter wrongly answers "maybe", and that each cost a read. The runs record this seed, but
    /// the seed reveals nothing of the secret.
    filter_seed: u64,
    /// Maximum bytes for all look-ups. The bounds cache may use part of them; the cache has the
    /// rest.
    budget: usize,
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
    /// Creates a cache with `budget` bytes for all look-ups. `bounds_cache` is the part of these
    /// bytes for the bounds cache; `None` selects the default part.
    pub fn new(
        volume: Arc<dyn Volume>,
        budget: usize,
        bounds_cache: Option<usize>,
        secret: Secret,
    ) -> Arc<Self> {
        let bounds_cache_budget = bounds_cache.unwrap_or(budget / BOUNDS_CACHE_PART).min(budget);
        let cache = Arc::new(Cache::new(budget));
        Arc::new(Self {
            volume,
            whole_logs: WholeLogs::new(&cache, secret.hash(b"the seed of whole logs") as u64),
            cache,
            budget,
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
        self.cache.resize(self.budget - bounds_cache);
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

    pub fn stats(&self, bounds_cache: &BoundsCache) -> LookupStats {
        let cache = self.cache.stats();
        LookupStats {
            filter_questions: self.questions.load(Ordering::Relaxed),
            filter_false_positives: self.false_positives.load(Ordering::Relaxed),
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            read_bytes: cache.read_bytes,
            cache_budget: self.budget,
            filter_bytes: cache.filter_bytes,
            index_bytes: cache.index_bytes,
            block_bytes: cache.data_bytes,
            bounds_cache: bounds_cache.hits,
            bounds_cache_bytes: bounds_cache.bytes(),
        }
    }
}
