//! Numbers about a store.

use crate::arguments::give;
use crate::error::{BROOKLET_OK, brooklet_error, brooklet_status, call};
use crate::store::{brooklet_store, of};

/// Numbers about a store. Sizes are bytes.
#[repr(C)]
pub struct brooklet_info {
    /// The format version of the store.
    pub format: u64,
    /// How often the store was opened for writing.
    pub epoch: u64,
    /// Size of the volume.
    pub size: u64,
    /// Free space in the heap.
    pub heap_free: u64,
    /// Size that the ring may grow to.
    pub ring_size: u64,
    /// Size of the ring now.
    pub ring_in_use: u64,
    /// Number of logs with entries in memory that are not in runs yet.
    pub memtable_logs: u64,
    /// Memory of these entries.
    pub memtable_bytes: u64,
    /// Number of runs.
    pub runs: u64,
    /// Size of the runs.
    pub run_bytes: u64,
    /// Whether a checkpoint is running.
    pub checkpointing: bool,
    /// Whether a compaction is running.
    pub compacting: bool,
    /// Whether the store accepts no writes any more, after a failure.
    pub stopped: bool,
}

/// Stores numbers about the store at `info`.
///
/// # Safety
/// `store` is a store that was not freed; `info` and `error` are NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_store_info(
    store: *const brooklet_store,
    info: *mut brooklet_info,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let ask = || {
        // SAFETY: the caller's promise.
        let found = unsafe { of(store)? }.info()?;
        let told = brooklet_info {
            format: found.format.into(),
            epoch: found.epoch,
            size: found.size,
            heap_free: found.heap_free,
            ring_size: found.ring_size,
            ring_in_use: found.ring_in_use,
            memtable_logs: found.memtable_logs as u64,
            memtable_bytes: found.memtable_bytes as u64,
            runs: found.runs.len() as u64,
            run_bytes: found.runs.iter().map(|run| run.bytes).sum(),
            checkpointing: found.checkpointing,
            compacting: found.compacting,
            stopped: found.stopped.is_some(),
        };
        // SAFETY: the caller's promise.
        unsafe { give(info, told) };
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, ask) }
}
