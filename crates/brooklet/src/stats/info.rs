//! The structure of a store, for inspection.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brooklet_io::VolumeInfo;
use brooklet_wal::{Recovery, WalStats};

use crate::engine::Inner;
use crate::error::Error;
use crate::format::superblock::{COPIES, RING_OFFSET};
use crate::maintenance::MaintenanceStats;
use crate::run::table_cache::LookupStats;

/// A run in the report of [`Store::info`](crate::Store::info).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// The number of the run; a newer run has a larger number.
    pub id: u64,
    /// The level of the run: 0 for the run of a checkpoint, and one more for each merge.
    pub level: u64,
    /// Number of tables of the run.
    pub tables: usize,
    /// Offset of the first table on the volume, in bytes; 0 if the run has no table.
    pub offset: u64,
    /// Size of the run, in bytes, on the volume or offloaded.
    pub bytes: u64,
    /// Whether the run was [offloaded](crate::Store::offload), so that the volume holds no part of
    /// it.
    pub offloaded: bool,
    /// Size of the run before compression, in bytes.
    pub raw_bytes: u64,
    /// Number of logs that the run knows.
    pub logs: u64,
    /// Number of entries in the run.
    pub entries: u64,
    /// Number of these entries that are known to be trimmed, truncated or deleted.
    pub dead: u64,
    /// Whether the run is being merged with other runs, or is the unfinished result of a merge. The
    /// numbers above still count the parts of a run that are already merged, until the whole run is
    /// merged.
    pub merging: bool,
    /// Memory of the run's index and filter now, in bytes.
    pub memory_bytes: usize,
    /// Whether damage was found in the run since the store was opened. A damaged run and all older
    /// runs are not merged.
    pub damaged: bool,
}

/// The report of [`Store::info`](crate::Store::info).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The volume of the store.
    pub volume: VolumeInfo,
    /// The volume of the ring, if the ring has its own volume.
    pub ring_volume: Option<VolumeInfo>,
    /// The id of the store.
    pub id: u128,
    /// The format version of the store.
    pub format: u32,
    /// Number of copies of the superblock.
    pub superblock_copies: usize,
    /// The generation of the superblock.
    pub generation: u64,
    /// Number of times that the store was opened for writing.
    pub epoch: u64,
    /// The time of the store's creation, by the clock of its host.
    pub created: SystemTime,
    /// Size of the volume, or of the part of the volume that the store may use, in bytes.
    pub size: u64,
    /// Maximum size that the store may use, in bytes; 0 for a file that may grow as its file system
    /// allows.
    pub capacity: u64,
    /// Offset of the ring on its volume, in bytes.
    pub ring_offset: u64,
    /// Size that the ring may grow to, in bytes.
    pub ring_size: u64,
    /// Size of the ring now, in bytes.
    pub ring_in_use: u64,
    /// Position of the oldest block that is still needed, in the endless ring.
    pub ring_tail: u64,
    /// Position of the next block at the time of opening, in the endless ring.
    pub ring_head: u64,
    /// Offset of the heap, in bytes.
    pub heap_offset: u64,
    /// Free space in the heap, in bytes.
    pub heap_free: u64,
    /// Size of the largest free extent in the heap, in bytes.
    pub heap_largest_free: u64,
    /// The result of reading the ring at the last opening.
    pub recovery: Recovery,
    /// Number of logs in the memtables.
    pub memtable_logs: usize,
    /// Memory of the memtables, in bytes.
    pub memtable_bytes: usize,
    /// Counters of the ring; zero if the store is open read-only.
    pub wal: WalStats,
    /// Counters of checkpoints and compaction.
    pub maintenance: MaintenanceStats,
    /// Whether a checkpoint is running.
    pub checkpointing: bool,
    /// Whether a compaction is running.
    pub compacting: bool,
    /// Counters of look-ups in the runs, and the memory of their caches.
    pub lookups: LookupStats,
    /// The runs, newest first.
    pub runs: Vec<RunInfo>,
    /// The reason why the store stopped writing, if it stopped.
    pub stopped: Option<String>,
}

impl Inner {
    pub fn info(&self) -> Result<StoreInfo, Error> {
        self.here()?;
        let (superblock, free, largest, maintenance, at_work, table_cache) = {
            let maintenance = self.maintenance();
            let (free, largest) = (maintenance.heap.free_bytes(), maintenance.heap.largest_free());
            let at_work = (maintenance.is_checkpointing(), maintenance.is_compacting());
            (
                maintenance.superblock,
                free,
                largest,
                maintenance.stats,
                at_work,
                maintenance.table_cache.clone(),
            )
        };
        let state = self.state();
        let (memtable_logs, memtable_bytes) = (state.memtable_logs(), state.memory());
        let runs = state.runs.clone();
        let bounds_cache = (state.bounds_cache.hits, state.bounds_cache.bytes());
        drop(state);
        // Not under the state's lock, for which commits wait: the cache may be busy.
        let lookups = table_cache.stats(bounds_cache);
        let merge = runs.merge().into_iter();
        let merging: Vec<u64> = merge
            .flat_map(|(into, inputs)| [into].into_iter().chain(inputs))
            .map(|run| run.meta.id)
            .collect();
        let run = |run: &std::sync::Arc<crate::run::Run>| RunInfo {
            id: run.meta.id,
            level: run.meta.level,
            tables: run.tables.len(),
            offset: run.tables.first().map_or(0, |table| table.meta.offset),
            bytes: if run.is_offloaded() { run.len() } else { run.bytes() },
            offloaded: run.is_offloaded(),
            raw_bytes: run.raw_bytes(),
            logs: run.meta.logs,
            entries: run.meta.entries,
            dead: runs.dead(run),
            merging: merging.contains(&run.meta.id),
            memory_bytes: run.memory(),
            damaged: run.is_damaged(),
        };
        Ok(StoreInfo {
            volume: self.volumes.data.info(),
            ring_volume: self.volumes.ring.as_ref().map(|ring| ring.info()),
            id: superblock.id,
            format: superblock.format,
            superblock_copies: COPIES,
            generation: superblock.generation,
            epoch: superblock.epoch,
            created: UNIX_EPOCH + Duration::from_nanos(superblock.created),
            size: self.volumes.data.size().map_err(Error::io("measuring the volume"))?,
            capacity: superblock.capacity,
            ring_offset: RING_OFFSET,
            ring_size: superblock.ring_size,
            ring_in_use: superblock.map.current.size,
            ring_tail: superblock.trim.position,
            ring_head: self.recovery.next.position,
            heap_offset: superblock.heap_offset(),
            heap_free: free,
            heap_largest_free: largest,
            recovery: self.recovery,
            memtable_logs,
            memtable_bytes,
            wal: self.wal.as_ref().map(|wal| wal.stats()).unwrap_or_default(),
            maintenance,
            checkpointing: at_work.0,
            compacting: at_work.1 || runs.merging().is_some(),
            lookups,
            runs: runs.iter().map(run).collect(),
            stopped: self.stopped(),
        })
    }
}
