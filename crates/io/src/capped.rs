//! A volume with a capacity that its user has fixed.
//!
//! Invariants:
//! - No operation past the capacity reaches the inner volume; such operations of a queue wait in
//!   `ready`.
//! - The capacity is a multiple of the sector size, so a read that is cut at the capacity stays
//!   aligned.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::volume::assert_aligned;
use crate::{Completion, Counts, Op, Persist, Queue, SECTOR, Tuning, Volume, VolumeInfo};

/// Returns a volume that uses at most the first `capacity` bytes of `volume`, rounded down to whole
/// sectors.
///
/// The size of the returned volume is at most the capacity. Writing or growing beyond that fails
/// with [`StorageFull`](io::ErrorKind::StorageFull), and reading behaves as at the end of a volume.
///
/// ```
/// use std::sync::Arc;
/// use brooklet_io::{MemVolume, Volume, capped};
/// let volume = capped(Arc::new(MemVolume::new(7)), 1 << 20);
/// volume.grow(1 << 20)?;
/// assert_eq!(volume.grow(2 << 20).unwrap_err().kind(), std::io::ErrorKind::StorageFull);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn capped(volume: Arc<dyn Volume>, capacity: u64) -> Arc<dyn Volume> {
    Arc::new(Capped { within: volume, limit: Limit(capacity / SECTOR as u64 * SECTOR as u64) })
}

/// The capacity in bytes.
#[derive(Clone, Copy, Debug)]
struct Limit(u64);

impl Limit {
    /// Returns how many of `len` bytes at `offset` are inside the capacity.
    fn inside(self, offset: u64, len: usize) -> usize {
        self.0.saturating_sub(offset).min(len as u64) as usize
    }

    fn check(self, what: &str, offset: u64, len: u64) -> io::Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.0) {
            return Ok(());
        }
        let end = u128::from(offset) + u128::from(len);
        let message = format!("{what} to {end} bytes exceeds the capacity of {} bytes", self.0);
        Err(io::Error::new(io::ErrorKind::StorageFull, message))
    }
}

#[derive(Debug)]
struct Capped {
    within: Arc<dyn Volume>,
    limit: Limit,
}

impl Volume for Capped {
    fn info(&self) -> VolumeInfo {
        self.within.info()
    }

    fn counts(&self) -> Counts {
        self.within.counts()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.within.size()?.min(self.limit.0))
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        assert_aligned(offset, buf.as_ptr() as usize, buf.len());
        match self.limit.inside(offset, buf.len()) {
            0 => Ok(0),
            inside => self.within.read_at(offset, &mut buf[..inside]),
        }
    }

    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.limit.inside(offset, buf.len()) == buf.len() && self.within.read_cached(offset, buf)
    }

    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        match self.limit.inside(offset, buf.len()) {
            0 => Some(Ok(0)),
            inside => self.within.read_medium(offset, &mut buf[..inside]),
        }
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        self.limit.check("a write", offset, data.len() as u64)?;
        self.within.write_at(offset, data, persist)
    }

    fn flush(&self) -> io::Result<()> {
        self.within.flush()
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        self.limit.check("growing", 0, size)?;
        self.within.grow(size)
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        self.within.shrink(size)
    }

    fn allocate_range(&self, range: Range<u64>) -> io::Result<()> {
        self.limit.check("space", range.start, range.end.saturating_sub(range.start))?;
        self.within.allocate_range(range)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        self.limit.check("a hole", range.start, range.end.saturating_sub(range.start))?;
        self.within.punch(range)
    }

    fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        self.limit.check("scratch space", scratch.start, scratch.end.saturating_sub(scratch.start))?;
        self.within.tune(scratch)
    }

    fn tuning(&self) -> Option<Tuning> {
        self.within.tuning()
    }

    fn adopt(&self, tuning: Tuning) -> bool {
        self.within.adopt(tuning)
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let within = self.within.queue(depth)?;
        Ok(Box::new(CappedQueue { within, limit: self.limit, depth, ready: Vec::new() }))
    }
}

struct CappedQueue {
    within: Box<dyn Queue>,
    limit: Limit,
    depth: usize,
    /// Completions of operations that did not reach the inner volume.
    ready: Vec<Completion>,
}

impl Queue for CappedQueue {
    fn submit(&mut self, token: u64, mut op: Op) {
        assert!(self.in_flight() < self.depth, "more than {} operations in flight", self.depth);
        op.prepare();
        let outside = match &mut op {
            Op::Read { offset, buf } => {
                buf.set_len(self.limit.inside(*offset, buf.len()));
                buf.is_empty().then_some(Ok(0))
            }
            Op::Write { offset, data, .. } => {
                self.limit.check("a write", *offset, data.len() as u64).err().map(Err)
            }
        };
        match outside {
            Some(result) => self.ready.push(op.complete(token, result)),
            None => self.within.submit(token, op),
        }
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        let wait = wait && self.ready.is_empty();
        out.append(&mut self.ready);
        self.within.reap(wait, out);
    }

    fn wait(&mut self, patience: Duration) {
        if self.ready.is_empty() {
            self.within.wait(patience);
        }
    }

    fn waker(&self) -> Waker {
        self.within.waker()
    }

    fn in_flight(&self) -> usize {
        self.within.in_flight() + self.ready.len()
    }
}

#[cfg(test)]
mod tests;
