//! The interface between a store and its storage.
//!
//! A [`Volume`] moves aligned bytes and reports raw results: a count may be short, and an errno is
//! passed on unchanged. Callers complete short transfers, remember failures and choose positions
//! ([`read_exact_at`], [`write_all_at`] and the write-ahead log).
//!
//! Alignment: every offset, length and buffer address given to a volume is a multiple of
//! [`SECTOR`]. Volumes assert this, so that a mistake shows in memory as on a raw device.

use std::fmt;
use std::io;
use std::ops::Range;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use crate::seeded::bug;
use crate::{AlignedBuf, Counts, SECTOR};

/// The durability of a write at its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// The write may stay in a volatile cache until the next [`Volume::flush`].
    Cached,
    /// The write is on stable media when it completes. Other writes may not be.
    Durable,
}

/// The description of a volume, for logs and inspection.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Location of the volume: a path, or `memory`.
    pub name: String,
    /// Backend of queued operations: `io_uring`, `threads` or `memory`.
    pub backend: &'static str,
    /// Whether the volume bypasses the page cache.
    pub direct: bool,
    /// Block sizes reported by the block device, if the volume is one.
    pub device: Option<BlockDevice>,
    /// Method by which a durable write reaches stable media, for example `RWF_DSYNC` or `write +
    /// fdatasync`.
    pub durable_by: &'static str,
    /// Reason for that method: a measurement (see [`Volume::tune`]), an option, or an obstacle to
    /// the other methods.
    pub durable_why: String,
    /// Reasons why a better method is not in use, if one exists: one sentence a line.
    pub fallbacks: Vec<String>,
}

/// The result of a measurement of durable writes: see [`Volume::tune`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Identifies the device, and the system, that were measured; never zero.
    pub device: u64,
    /// Whether a flag on the write served better than a sync after the write.
    pub by_flag: bool,
}

/// The sizes of a block device's blocks, in bytes. Both are [`SECTOR`] if the system does not
/// report them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// Logical block size, in bytes: the smallest write; offsets are multiples of it.
    pub logical_block: u32,
    /// Physical block size, in bytes; smaller writes cause a read-modify-write.
    pub physical_block: u32,
}

/// A fixed array of stored bytes: a file, a device, or memory.
///
/// Several threads may call methods at once; overlapping writes are the caller's error.
pub trait Volume: Send + Sync + fmt::Debug {
    /// Returns the description of the volume.
    fn info(&self) -> VolumeInfo;

    /// Returns the counts of operations on the device since the volume was opened, including those
    /// of queues.
    fn counts(&self) -> Counts;

    /// Returns the current size, in bytes.
    fn size(&self) -> io::Result<u64>;

    /// Reads into `buf`, which must be aligned. Returns the bytes read; fewer only at the end or on
    /// a short transfer.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Fills `buf`, of any length and from any offset, through a cache of the system, if one
    /// exists; returns whether it did.
    ///
    /// Use it for small data that may soon be needed again, and that the caller can verify: a cache
    /// may hold earlier contents of the volume. If the method returns `false`, as by default, or
    /// wrong bytes, call [`read_at`](Self::read_at). The reads that fill the cache count among the
    /// reads.
    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let _ = (offset, buf);
        false
    }

    /// Reads like [`read_at`](Self::read_at), but only bytes that are on the medium, once a
    /// [`flush`](Self::flush) has succeeded. Returns `None`, as by default, if the volume cannot
    /// distinguish the medium from a cache in front of it.
    ///
    /// A cache can hold bytes that a failed flush dropped. The cache returns them until it forgets
    /// them, and no later flush writes them.
    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        let _ = (offset, buf);
        None
    }

    /// Writes `data`, which must be aligned, and returns the bytes written, which may be fewer.
    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize>;

    /// Makes every write that completed before the call durable.
    ///
    /// An error is final: the writes before it may be lost, and a later success does not cover
    /// them.
    fn flush(&self) -> io::Result<()>;

    /// Makes the volume at least `size` bytes long, with its space allocated.
    ///
    /// New bytes read as zero. The new size is durable after the next [`flush`](Self::flush). Fails
    /// with [`io::ErrorKind::StorageFull`] or [`io::ErrorKind::FileTooLarge`] if there is no room;
    /// existing data is then unchanged.
    fn grow(&self, size: u64) -> io::Result<()>;

    /// Releases the space from `size` on. A volume that cannot shrink ignores the call.
    fn shrink(&self, size: u64) -> io::Result<()>;

    /// Allocates the space of `range`, whole sectors inside the volume: no later write to it fails
    /// for lack of room, even if the file system fills up. The contents stay.
    ///
    /// Fails like [`grow`](Self::grow) if there is no room. By default space is always allocated,
    /// as on a device. A volume around another one passes this call on.
    fn allocate_range(&self, range: Range<u64>) -> io::Result<()> {
        let _ = range;
        Ok(())
    }

    /// Releases the space of `range`, whole sectors inside the volume, to the file system; the size
    /// stays. The range then reads as zero, but after a power cut may read as before. Returns
    /// `false` if the volume cannot do this; nothing has changed then.
    ///
    /// By default a volume cannot. A volume around another one passes this call on.
    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        let _ = range;
        Ok(false)
    }

    /// Measures which method of durable writes is better here, and uses it from now on;
    /// [`info`](Self::info) reports the method and the measurement.
    ///
    /// Takes some milliseconds; on a slow disk, the time of a few of its writes. Writes to
    /// `scratch`, whole sectors inside the volume: their contents are lost. By default there is
    /// nothing to choose. A volume around another one passes this call on.
    fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        let _ = scratch;
        Ok(())
    }

    /// Returns the result of [`tune`](Self::tune), to be stored for the next opening; `None` if
    /// nothing was measured. A volume around another one passes this call on.
    fn tuning(&self) -> Option<Tuning> {
        None
    }

    /// Uses the result of an earlier measurement. Returns `false`, and changes nothing, if it was
    /// measured on another device or by another system: measure again then. A volume around another
    /// one passes this call on.
    fn adopt(&self, tuning: Tuning) -> bool {
        let _ = tuning;
        false
    }

    /// Writes zeros to the bytes behind the last whole sector, which no other write reaches; they
    /// are durable after the next [`flush`](Self::flush).
    ///
    /// Does nothing by default, and if the device's blocks are too large to reach these bytes. A
    /// volume around another one with the same end passes this call on.
    fn zero_rest(&self) -> io::Result<()> {
        Ok(())
    }

    /// Creates a queue that carries out up to `depth` operations at once.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>>;
}

/// An operation for a [`Queue`], with its memory.
#[derive(Debug)]
pub enum Op {
    /// A read from `offset` that fills all of `buf`.
    Read {
        /// Offset of the read, in bytes.
        offset: u64,
        /// Memory to fill; the completion returns it.
        buf: AlignedBuf,
    },
    /// A write of `data` at `offset`.
    Write {
        /// Offset of the write, in bytes.
        offset: u64,
        /// Bytes to write; their address and length must be aligned.
        data: Bytes,
        /// Durability of the write at its completion.
        persist: Persist,
    },
}

impl Op {
    /// Asserts the alignment rule and extends a read's memory to its capacity.
    pub(crate) fn prepare(&mut self) {
        match self {
            Op::Read { offset, buf } => {
                assert_aligned(*offset, buf.as_ptr() as usize, buf.len());
            }
            Op::Write { offset, data, .. } => assert_aligned(*offset, data.as_ptr() as usize, data.len()),
        }
    }

    /// Returns the bytes that the operation should move.
    #[cfg(all(target_os = "linux", feature = "io-uring"))]
    pub(crate) fn wanted(&self) -> usize {
        match self {
            Op::Read { buf, .. } => buf.len(),
            Op::Write { data, .. } => data.len(),
        }
    }

    /// Ends the operation; cuts a read's memory to the bytes read.
    pub(crate) fn complete(self, token: u64, result: io::Result<usize>) -> Completion {
        let buf = match self {
            Op::Read { mut buf, .. } => {
                buf.set_len(*result.as_ref().unwrap_or(&0));
                Some(buf)
            }
            Op::Write { .. } => None,
        };
        Completion { token, result, buf }
    }
}

/// The end of an operation.
#[derive(Debug)]
pub struct Completion {
    /// Token that the caller gave to the operation.
    pub token: u64,
    /// Bytes moved (maybe fewer than requested), or the error.
    pub result: io::Result<usize>,
    /// Memory of a read, as long as the bytes read.
    pub buf: Option<AlignedBuf>,
}

/// A queue of operations in flight, owned by one driver at a time. Completions come in any order.
///
/// Dropping a queue waits for the operations in flight.
pub trait Queue: Send {
    /// Starts an operation. The caller keeps at most the queue's depth in flight.
    fn submit(&mut self, token: u64, op: Op);

    /// Moves finished operations to `out`; with `wait`, blocks until at least one has finished.
    /// Returns immediately if nothing is in flight.
    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>);

    /// Blocks until an operation may have finished, the [`waker`](Self::waker) was called since the
    /// last wait, or `patience` runs out; sometimes shorter. Returns immediately if nothing is in
    /// flight.
    fn wait(&mut self, patience: Duration);

    /// Returns a waker that ends a [`wait`](Self::wait) from another thread: the current one, or
    /// the next one.
    fn waker(&self) -> Waker;

    /// Returns the number of operations submitted and not yet reaped.
    fn in_flight(&self) -> usize;
}

/// Reads exactly `buf.len()` bytes, completing short transfers.
pub fn read_exact_at(volume: &dyn Volume, offset: u64, buf: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let n = volume.read_at(offset + done as u64, &mut buf[done..])?;
        if bug("short-read-is-whole") {
            return Ok(());
        }
        // Only the end of the volume gives a short count that is not a whole number of sectors.
        if n == 0 || n % SECTOR != 0 && n < buf.len() - done {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("the volume ends {} bytes into a read of {} at {offset}", done + n, buf.len()),
            ));
        }
        done += n;
    }
    Ok(())
}

/// Fills `buf` from the medium ([`Volume::read_medium`]), and completes short transfers. Returns
/// `false` if the volume cannot.
pub fn read_medium_exact_at(volume: &dyn Volume, offset: u64, buf: &mut [u8]) -> bool {
    let mut done = 0;
    while done < buf.len() {
        match volume.read_medium(offset + done as u64, &mut buf[done..]) {
            Some(Ok(n)) if n > 0 && (n.is_multiple_of(SECTOR) || done + n == buf.len()) => done += n,
            _ => return false,
        }
    }
    true
}

/// Writes all of `data`, and completes short transfers.
pub fn write_all_at(volume: &dyn Volume, offset: u64, data: &[u8], persist: Persist) -> io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        let n = volume.write_at(offset + done as u64, &data[done..], persist)?;
        if n == 0 {
            return Err(io::Error::new(
                io::ErrorKind::WriteZero,
                format!("the volume took {done} of {} bytes at {offset}", data.len()),
            ));
        }
        // After a count inside a sector (a full file system can return one), the write restarts at
        // that sector.
        done = if done + n == data.len() { data.len() } else { (done + n) / SECTOR * SECTOR };
        if done < data.len() && n < SECTOR {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("the volume took only part of a sector at {}", offset + done as u64),
            ));
        }
    }
    Ok(())
}

/// Asserts that an operation obeys the alignment rule.
pub(crate) fn assert_aligned(offset: u64, address: usize, len: usize) {
    assert!(offset.is_multiple_of(SECTOR as u64), "offset {offset} is not a multiple of {SECTOR}");
    assert!(address.is_multiple_of(SECTOR), "buffer address {address:#x} is not a multiple of {SECTOR}");
    assert!(len.is_multiple_of(SECTOR), "length {len} is not a multiple of {SECTOR}");
}

#[cfg(test)]
pub(crate) mod tests;
