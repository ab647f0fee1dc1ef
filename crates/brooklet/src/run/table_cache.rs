//! What the runs of a store share: the volume they lie on, the memory for looking things up in
//! them, and the counts of that.
//!
//! Filters, indexes and blocks of all runs are kept in one [`Cache`] of bounded size. Past the
//! bound they stay on the volume, and a look-up in a run costs at most: one read of 16 KiB for the
//! filter; where that says "maybe", one for each level of the index below the root and one for the
//! block. The filter's directory and the index's root, a few hundred bytes for a hundred thousand
//! logs, are what the cache gives up last. What nobody asks for goes with time, even where there is
//! room: the thread that keeps the store sees to that (`engine/worker.rs`).

use std::sync::{Arc, OnceLock};

use brooklet_codex::{BuilderOptions, Cache};
use brooklet_io::Volume;

use crate::model::keyed_hash::Secret;
use crate::run::bounds_cache::BoundsCache;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::thread::Thread;

/// Bits of filter for a log. One look-up in two hundred of a log that a run does not have is sent
/// on to the run's index, and with the index, of logs of a few hundred bytes, it makes less than
/// 2.5 bytes of memory a log.
const BITS_PER_LOG: u32 = 12;

/// What is remembered of logs may take this part of the memory for look-ups: by default, two
/// million logs of 16 bytes.
const BOUNDS_CACHE_PART: usize = 2;

pub(crate) struct TableCache {
    pub volume: Arc<dyn Volume>,
    pub cache: Arc<Cache>,
    /// Seed of the filters of new runs. Kept from callers, so that nobody can choose keys that a
    /// filter takes for others, to have each of them cost a read. Runs tell it, and it tells
    /// nothing of the secret.
    filter_seed: u64,
    /// Most bytes for all look-ups, and of those for what is remembered of logs; the cache has what
    /// that leaves.
    budget: usize,
    pub bounds_cache_budget: usize,
    questions: AtomicU64,
    false_positives: AtomicU64,
    /// Set while nobody looks after the cache, as it holds nothing: by the next look-up.
    unwatched: AtomicBool,
    /// Who does.
    watcher: OnceLock<Thread>,
}

/// How logs were looked up in the runs since the store was opened, and what is kept in memory for
/// that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupStats {
    /// How often a run's filter was asked whether the run has a log.
    pub filter_questions: u64,
    /// How often a filter said that it may be so, and it was not; each time took a look at the
    /// index and at one block.
    pub filter_false_positives: u64,
    /// How often a part of a filter, a block of an index or a block of entries was wanted and was
    /// in memory.
    pub cache_hits: u64,
    /// How often one was wanted that had to be read.
    pub cache_misses: u64,
    /// Bytes that were read for those. Listings, checks and compaction, which keep nothing in
    /// memory, are not counted.
    pub read_bytes: u64,
    /// Most bytes of memory for all this; see
    /// [`Options::cache_budget`](crate::Options::cache_budget).
    pub cache_budget: usize,
    /// Bytes of memory that filters take now.
    pub filter_bytes: usize,
    /// Bytes of memory that indexes take now.
    pub index_bytes: usize,
    /// Bytes of memory that blocks of entries take now.
    pub block_bytes: usize,
    /// How often a log's bounds were wanted and were remembered since it was last committed to:
    /// none of the above is then needed.
    pub bounds_cache: u64,
    /// Bytes of memory that what is remembered takes now.
    pub bounds_cache_bytes: usize,
}

impl TableCache {
    /// `budget` is for all look-ups; `bounds_cache` says how much of it for what is remembered of
    /// logs, if that is not left to the table cache.
    pub fn new(
        volume: Arc<dyn Volume>,
        budget: usize,
        bounds_cache: Option<usize>,
        secret: Secret,
    ) -> Arc<Self> {
        let bounds_cache_budget = bounds_cache.unwrap_or(budget / BOUNDS_CACHE_PART).min(budget);
        Arc::new(Self {
            volume,
            cache: Arc::new(Cache::new(budget)),
            budget,
            bounds_cache_budget,
            filter_seed: secret.hash(b"the seed of filters") as u64,
            questions: AtomicU64::new(0),
            false_positives: AtomicU64::new(0),
            unwatched: AtomicBool::new(false),
            watcher: OnceLock::new(),
        })
    }

    /// Leaves the cache what is not taken by what is remembered of logs.
    pub fn share(&self, bounds_cache: usize) {
        self.cache.resize(self.budget - bounds_cache);
    }

    /// How the codex of run `id` is built.
    pub fn builder_options(&self, id: u64) -> BuilderOptions {
        let (bits_per_item, filter_seed) = (BITS_PER_LOG, self.filter_seed);
        BuilderOptions { id, bits_per_item, filter_seed, apart_from: usize::MAX, ..BuilderOptions::default() }
    }

    /// Seed of the filters of new runs.
    pub fn filter_seed(&self) -> u64 {
        self.filter_seed
    }

    /// Says who ages the cache, which is not done by anybody else.
    pub fn watched_by(&self, thread: &Thread) {
        self.watcher.get_or_init(|| thread.clone());
    }

    /// Whether there is something to age. Where there is not, whoever looks something up next wakes
    /// the watcher.
    pub fn is_to_age(&self) -> bool {
        // In this order: what a look-up that does not see this keeps is seen here.
        self.unwatched.store(true, Ordering::Relaxed);
        let holds = !self.cache.is_empty();
        if holds {
            self.unwatched.store(false, Ordering::Relaxed);
        }
        holds
    }

    /// Takes note of a look-up, which asked so many filters and keeps what it read by now.
    pub fn asked(&self, filters: u64) {
        self.questions.fetch_add(filters, Ordering::Relaxed);
        if self.unwatched.load(Ordering::Relaxed) && self.unwatched.swap(false, Ordering::Relaxed) {
            self.watcher.get().inspect(|thread| thread.unpark());
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
