//! What a store is made of, for inspection.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use brooklet_io::VolumeInfo;
use brooklet_wal::{Recovery, WalStats};

use crate::engine::Inner;
use crate::error::Error;
use crate::format::superblock::{COPIES, RING_OFFSET};
use crate::maintenance::MaintenanceStats;
use crate::run::table_cache::LookupStats;

/// A run, as [`Store::info`](crate::Store::info) tells it.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// Its number; larger is newer.
    pub id: u64,
    /// Its level: 0 for a checkpoint's, one more for each merge.
    pub level: u64,
    /// Tables that it consists of.
    pub tables: usize,
    /// Where the first of them starts on the volume, in bytes; 0 where there is none.
    pub offset: u64,
    /// Its bytes, on the volume or elsewhere.
    pub bytes: u64,
    /// Whether it was [offloaded](crate::Store::offload), so that the volume holds nothing of it.
    pub offloaded: bool,
    /// Its bytes before compression.
    pub raw_bytes: u64,
    /// Logs it knows.
    pub logs: u64,
    /// Entries it holds.
    pub entries: u64,
    /// Those of them that are known to have been trimmed, truncated or deleted since.
    pub dead: u64,
    /// Whether it is being merged with others, or is what has been made of them so far. What was
    /// merged of a run is not there any more, but counts above until all of it is.
    pub merging: bool,
    /// Bytes of memory its index and filter take now.
    pub memory_bytes: usize,
    /// Whether damage was met in it since the store was opened: then neither it nor any older run
    /// is merged.
    pub damaged: bool,
}

/// What [`Store::info`](crate::Store::info) tells.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoreInfo {
    /// The volume.
    pub volume: VolumeInfo,
    /// The volume of the ring, where it has one of its own.
    pub ring_volume: Option<VolumeInfo>,
    /// Identity of the store.
    pub id: u128,
    /// Format version.
    pub format: u32,
    /// Copies of the superblock.
    pub superblock_copies: usize,
    /// Generation of the superblock.
    pub generation: u64,
    /// How many times the store was opened for writing.
    pub epoch: u64,
    /// When it was created, by the clock of its host.
    pub created: SystemTime,
    /// Bytes of the volume, or of the part that the store may use.
    pub size: u64,
    /// Bytes of the volume that the store may use; 0: a file may grow as its file system lets it.
    pub capacity: u64,
    /// Where the ring starts on its volume, in bytes.
    pub ring_offset: u64,
    /// Bytes of the ring.
    pub ring_size: u64,
    /// Position of the oldest block that is kept, in the endless ring.
    pub ring_tail: u64,
    /// Position where the next block went when the store was opened, in the endless ring.
    pub ring_head: u64,
    /// Where the heap starts, in bytes.
    pub heap_offset: u64,
    /// Free bytes in the heap.
    pub heap_free: u64,
    /// The largest free extent in the heap, in bytes.
    pub heap_largest_free: u64,
    /// What the last opening found in the ring.
    pub recovery: Recovery,
    /// Logs in the memtable.
    pub memtable_logs: usize,
    /// Bytes of memory the memtable takes.
    pub memtable_bytes: usize,
    /// Counters of the ring; zero where the store is open read-only.
    pub wal: WalStats,
    /// Counters of checkpoints and compaction.
    pub maintenance: MaintenanceStats,
    /// Whether a checkpoint is going on.
    pub checkpointing: bool,
    /// Whether a compaction is going on.
    pub compacting: bool,
    /// Counters of look-ups in the runs, and the memory they take.
    pub lookups: LookupStats,
    /// The runs, newest first.
    pub runs: Vec<RunInfo>,
    /// Why the store stopped writing, if it did.
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
        let lookups = table_cache.stats(&state.bounds_cache);
        drop(state);
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
            dead: run.dead(),
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
