//! The counts of a volume's operations.
//!
//! Invariant: every count only grows, independently. A reader may see an operation in one count and
//! not yet in another.

use std::io;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counts of operations on a volume's device since the volume was opened.
///
/// An operation counts when it ends, even if it failed; an operation that was refused before it
/// reached the device does not count. Bytes count if they were moved.
///
/// ```
/// use brooklet_io::{AlignedBuf, MemVolume, Persist, SECTOR, Volume};
/// let volume = MemVolume::new(7);
/// volume.grow(SECTOR as u64)?;
/// let before = volume.counts();
/// volume.write_at(0, &AlignedBuf::zeroed(SECTOR), Persist::Durable)?;
/// let cost = volume.counts() - before;
/// assert_eq!((cost.writes, cost.written_bytes, cost.flushes), (1, SECTOR as u64, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of reads.
    pub reads: u64,
    /// Number of bytes read.
    pub read_bytes: u64,
    /// Number of reads that the page cache alone answered. They did not reach the device, and do
    /// not count among the reads.
    pub cached_reads: u64,
    /// Number of writes of every kind.
    pub writes: u64,
    /// Number of bytes written.
    pub written_bytes: u64,
    /// Number of writes that carried their own durability, as by `RWF_DSYNC`.
    pub durable_writes: u64,
    /// Number of flushes (fdatasync or the like), including the flushes for durable writes that did
    /// not carry their own durability.
    pub flushes: u64,
}

/// Computes the operations between two counts of the same volume, the later count first.
impl Sub for Counts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            cached_reads: self.cached_reads - before.cached_reads,
            writes: self.writes - before.writes,
            written_bytes: self.written_bytes - before.written_bytes,
            durable_writes: self.durable_writes - before.durable_writes,
            flushes: self.flushes - before.flushes,
        }
    }
}

/// [`Counts`] that many threads add to.
#[derive(Debug, Default)]
pub(crate) struct IoCounters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    cached_reads: AtomicU64,
    writes: AtomicU64,
    written_bytes: AtomicU64,
    durable_writes: AtomicU64,
    flushes: AtomicU64,
}

impl IoCounters {
    pub(crate) fn read(&self, result: &io::Result<usize>) {
        add(&self.reads, 1);
        add(&self.read_bytes, moved(result));
    }

    pub(crate) fn cached_read(&self) {
        add(&self.cached_reads, 1);
    }

    /// Counts a write that ended; `durable` if it carried its own durability.
    pub(crate) fn written(&self, result: &io::Result<usize>, durable: bool) {
        add(&self.writes, 1);
        add(&self.written_bytes, moved(result));
        if durable {
            add(&self.durable_writes, 1);
        }
    }

    pub(crate) fn flushed(&self) {
        add(&self.flushes, 1);
    }

    pub(crate) fn counts(&self) -> Counts {
        let get = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counts {
            reads: get(&self.reads),
            read_bytes: get(&self.read_bytes),
            cached_reads: get(&self.cached_reads),
            writes: get(&self.writes),
            written_bytes: get(&self.written_bytes),
            durable_writes: get(&self.durable_writes),
            flushes: get(&self.flushes),
        }
    }
}

fn add(number: &AtomicU64, n: u64) {
    number.fetch_add(n, Ordering::Relaxed);
}

fn moved(result: &io::Result<usize>) -> u64 {
    result.as_ref().map_or(0, |n| *n as u64)
}
