//! The activity of a store: counters since opening, times by stage of a write, reads by source,
//! queues, and stalls.

use brooklet_wal::{Histogram, MirrorStats, Stages, Wal, WalStats};

use crate::counters::{ReadStats, StallReason, StallStats};
use crate::engine::Inner;
use crate::maintenance::snapshot::MaintenanceSnapshot;
use crate::model::space_config::SpaceInfo;
use crate::run::table_cache::LookupStats;
use crate::sync::held;

/// Most spaces of a report. A report of more would take long, under the lock of the store.
const MOST_SPACES: usize = 1_000;

/// The report of [`Store::activity`](crate::Store::activity). All counters start at opening and
/// only grow. All times are in [`Histogram`]s.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Activity {
    /// Number of commits to the ring, including refused commits and the store's own commits.
    /// Commits on logs in memory spaces are counted in [`spaces`](Self::spaces).
    pub commits: u64,
    /// Append times of one in 16 of these commits. The time includes the look-up of the log,
    /// checks, numbering, copying, and any wait for room.
    pub append: Histogram,
    /// Times of blocks from append until durable, by stage.
    pub stages: Stages,
    /// Counters and queues of the ring.
    pub wal: WalStats,
    /// How far the mirror of the log is behind, if the store has one.
    pub mirror: Option<MirrorStats>,
    stalls: [StallStats; StallReason::ALL.len()],
    /// Number of reads by the source that answered them.
    pub reads: ReadStats,
    /// Number of look-ups of a log in the runs, by reads and by commits.
    pub run_lookups: u64,
    /// Times of one in 16 of these look-ups.
    pub run_lookup_times: Histogram,
    /// Counters of look-ups in the runs, and the memory of their caches.
    pub lookups: LookupStats,
    /// Number of logs in the memtables.
    pub memtable_logs: usize,
    /// Memory of the memtables, in bytes.
    pub memtable_bytes: usize,
    /// Maximum memory of the memtables, in bytes.
    pub memory_budget: usize,
    /// State and counters of maintenance at the end of its last slice of work.
    pub kept: MaintenanceSnapshot,
    /// Times of maintenance slices, of checkpoints and compaction together.
    pub slices: Histogram,
    /// Number of runs.
    pub runs: usize,
    /// Size of the runs, in bytes, on the volume or offloaded.
    pub run_bytes: u64,
    /// Number of entries in the runs.
    pub run_entries: u64,
    /// Number of these entries that are known to be trimmed, truncated or deleted.
    pub dead_entries: u64,
    /// The spaces, by name; the first 1,000, if the store has more.
    pub spaces: Vec<SpaceInfo>,
    /// The reason why the store stopped writing, if it stopped.
    pub stopped: Option<String>,
}

impl Activity {
    /// Returns how often and how long commits waited for one reason.
    pub fn stall(&self, reason: StallReason) -> StallStats {
        self.stalls[reason as usize]
    }
}

impl Inner {
    pub fn activity(&self) -> Activity {
        let counters = &self.counters;
        let kept = *held(&self.kept);
        let state = self.state();
        let (memtable_logs, memtable_bytes, runs) =
            (state.memtable_logs(), state.memory(), state.runs.clone());
        let reads = ReadStats { memory: self.memory_spaces.reads(), ..state.reads };
        let bounds_cache = (state.bounds_cache.hits, state.bounds_cache.bytes());
        drop(state);
        let lookups = self.table_cache.stats(bounds_cache);
        let wal = self.wal.as_ref();
        Activity {
            commits: counters.appends.count(),
            append: counters.appends.times(),
            stages: wal.map(|wal| wal.stages()).unwrap_or_default(),
            wal: wal.map(|wal| wal.stats()).unwrap_or_default(),
            mirror: wal.and_then(Wal::mirror_stats),
            stalls: StallReason::ALL.map(|reason| counters.stalls.get(reason)),
            reads,
            run_lookups: counters.run_lookups.count(),
            run_lookup_times: counters.run_lookups.times(),
            lookups,
            memtable_logs,
            memtable_bytes,
            memory_budget: self.options.memory_budget,
            kept: MaintenanceSnapshot { compacting: kept.compacting || runs.merging().is_some(), ..kept },
            slices: counters.slices.get(),
            runs: runs.iter().len(),
            run_bytes: runs.iter().map(|run| run.len()).sum(),
            run_entries: runs.iter().map(|run| run.meta.entries).sum(),
            dead_entries: runs.counted().map(|(_, dead)| dead).sum(),
            spaces: self.spaces(MOST_SPACES),
            stopped: self.stopped(),
        }
    }
}
