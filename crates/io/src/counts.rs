//! What a volume was asked for, counted.
//!
//! Invariant: every number only grows, each by itself. A reader may see an operation in one number
//! and not yet in another.

use std::io;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

/// What went down to a volume's device since it was opened.
///
/// Operations are counted when they end, failed ones too, but not those that were refused before
/// anything was sent down. Bytes are those that were moved.
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
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Reads that the page cache answered alone: nothing went down for them, and they are not among
    /// the reads.
    pub cached_reads: u64,
    /// Writes of every kind.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The writes that carried their own durability, as by `RWF_DSYNC`.
    pub durable_writes: u64,
    /// Flushes (fdatasync or the like), those on behalf of durable writes that did not carry their
    /// own included.
    pub flushes: u64,
}

/// What was done between two looks at the same volume, the later one first.
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

    /// A write ended that carried its own durability, or did not.
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
