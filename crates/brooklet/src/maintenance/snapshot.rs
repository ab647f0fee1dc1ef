//! The state and counters of maintenance, for reports.

use crate::maintenance::{Maintenance, MaintenanceStats};

/// The state of checkpoints, compaction and the heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaintenanceSnapshot {
    /// Counters of checkpoints and compaction since opening.
    pub stats: MaintenanceStats,
    /// Progress of the running checkpoint, per mille; `None` if no checkpoint is running.
    pub checkpoint: Option<u64>,
    /// Whether a compaction is running.
    pub compacting: bool,
    /// Size of the heap, in bytes.
    pub heap_bytes: u64,
    /// Free space in the heap, in bytes.
    pub heap_free: u64,
    /// Size of the largest free extent in the heap, in bytes.
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
