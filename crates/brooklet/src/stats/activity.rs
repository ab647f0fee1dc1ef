//! What the store does: counters since opening, by stage of a write and by what answers a read,
//! queues, stalls.

use brooklet_wal::{Histogram, Stages, WalStats};

use crate::counters::{ReadStats, StallReason, StallStats};
use crate::engine::Inner;
use crate::maintenance::snapshot::MaintenanceSnapshot;
use crate::model::space_config::SpaceInfo;
use crate::run::table_cache::LookupStats;
use crate::sync::held;

/// What [`Store::activity`](crate::Store::activity) tells. Counters are since opening, and only
/// grow; times are in [`Histogram`]s.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Activity {
    /// Commits that came to the ring, those that were refused and those of the store itself too.
    /// Commits on logs that are kept in memory are in [`spaces`](Self::spaces).
    pub commits: u64,
    /// How long one in 16 of them took to append: its log was found, it was checked, numbered and
    /// copied, after waiting for room where there was none.
    pub append: Histogram,
    /// How long blocks took from there on until they were durable.
    pub stages: Stages,
    /// Counters of the ring, and its queues.
    pub wal: WalStats,
    stalls: [StallStats; StallReason::ALL.len()],
    /// What answered reads.
    pub reads: ReadStats,
    /// How often a log was looked for in the runs, by reads and by commits.
    pub run_lookups: u64,
    /// How long one in 16 of those look-ups took.
    pub run_lookup_times: Histogram,
    /// What look-ups found in memory and what they had to read.
    pub lookups: LookupStats,
    /// Logs in the memtables.
    pub memtable_logs: usize,
    /// Bytes of memory they take.
    pub memtable_bytes: usize,
    /// Bytes of memory they may take.
    pub memory_budget: usize,
    /// What maintenance did and had as its last slice of work ended.
    pub kept: MaintenanceSnapshot,
    /// How long its slices took, checkpoints and compaction together.
    pub slices: Histogram,
    /// Runs.
    pub runs: usize,
    /// Their bytes, on the volume or elsewhere.
    pub run_bytes: u64,
    /// Entries in them.
    pub run_entries: u64,
    /// Those that are known to have been trimmed, truncated or deleted since.
    pub dead_entries: u64,
    /// The spaces, by name.
    pub spaces: Vec<SpaceInfo>,
    /// Why the store stopped writing, if it did.
    pub stopped: Option<String>,
}

impl Activity {
    /// How commits had to wait for one reason.
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
        let lookups = self.table_cache.stats(&state.bounds_cache);
        drop(state);
        let wal = self.wal.as_ref();
        Activity {
            commits: counters.appends.count(),
            append: counters.appends.times(),
            stages: wal.map(|wal| wal.stages()).unwrap_or_default(),
            wal: wal.map(|wal| wal.stats()).unwrap_or_default(),
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
            dead_entries: runs.iter().map(|run| run.dead()).sum(),
            spaces: self.spaces(),
            stopped: self.stopped(),
        }
    }
}
