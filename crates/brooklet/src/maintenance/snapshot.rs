//! What maintenance has and did, for reports.

use crate::maintenance::{Maintenance, MaintenanceStats};

/// What maintenance has: checkpoints, compaction and the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaintenanceSnapshot {
    /// What it did.
    pub stats: MaintenanceStats,
    /// How far the checkpoint is that goes on, per mille, if one does.
    pub checkpoint: Option<u64>,
    /// Whether a compaction goes on.
    pub compacting: bool,
    /// Bytes of the heap.
    pub heap_bytes: u64,
    /// Those of them that are free.
    pub heap_free: u64,
    /// The largest free extent, in bytes.
    pub heap_largest_free: u64,
}

impl Maintenance {
    pub fn kept(&self) -> MaintenanceSnapshot {
        MaintenanceSnapshot {
            stats: self.stats,
            checkpoint: self.progress(),
            compacting: self.is_compacting(),
            heap_bytes: self.heap.bytes(),
            heap_free: self.heap.free_bytes(),
            heap_largest_free: self.heap.largest_free(),
        }
    }
}
