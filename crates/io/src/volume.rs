//! What a store asks of the thing it is kept on.
//!
//! A [`Volume`] moves aligned bytes and reports raw results: a count may be short, an errno is
//! passed on as it is. Completing short transfers, remembering failures and choosing positions
//! belong to the callers above ([`read_exact_at`], [`write_all_at`] and the write-ahead log).
//!
//! Alignment: every offset, length and buffer address given to a volume is a multiple of
//! [`SECTOR`]. Volumes assert it, so that a mistake shows in memory as it would on a raw device.

use std::fmt;
use std::io;
use std::ops::Range;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use crate::seeded::bug;
use crate::{AlignedBuf, Counts, SECTOR};

/// Whether a write must be on stable media by the time it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// The write may sit in a volatile cache until the next [`Volume::flush`].
    Cached,
    /// The write itself is on stable media when it completes. Says nothing about other writes.
    Durable,
}

/// What a volume is and how it works, for logs and inspection.
#[derive(Clone, Debug)]
pub struct VolumeInfo {
    /// Where the volume is: a path, or `memory`.
    pub name: String,
    /// How queued operations are carried out: `io_uring`, `threads` or `memory`.
    pub backend: &'static str,
    /// Whether the page cache is bypassed.
    pub direct: bool,
    /// What the block device says of itself, if the volume is one.
    pub device: Option<BlockDevice>,
    /// How a durable write reaches stable media, for example `RWF_DSYNC` or `write + fdatasync`.
    pub durable_by: &'static str,
    /// Why in that way: what was measured (see [`Volume::tune`]), asked for, or stands against the
    /// others.
    pub durable_why: String,
    /// Why a better way is not in use, if one exists: one sentence a line.
    pub fallbacks: Vec<String>,
}

/// The sizes of a block device's blocks, in bytes. Both are [`SECTOR`] where the system does not
/// tell them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockDevice {
    /// What the device can be asked to write at least; offsets are multiples of it.
    pub logical_block: u32,
    /// What it writes at least by itself: less than that it has to read first.
    pub physical_block: u32,
}

/// A fixed place that keeps bytes: a file, a device, or memory.
///
/// Methods may be called from several threads at once; overlapping writes are the caller's mistake.
pub trait Volume: Send + Sync + fmt::Debug {
    /// Describes the volume.
    fn info(&self) -> VolumeInfo;

    /// What went down to the device since the volume was opened, by way of queues, too.
    fn counts(&self) -> Counts;

    /// Size in bytes, as of now.
    fn size(&self) -> io::Result<u64>;

    /// Reads into `buf`, which must be aligned; returns the bytes read, fewer only at the end or on
    /// a short transfer.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Fills `buf`, of any length and from any offset, by way of a cache of the system's, if there
    /// is one; whether it did.
    ///
    /// For what is small and may soon be wanted again, and can be told from anything else: a cache
    /// may hold what the volume was before. Where this is `false`, as by default, or gave something
    /// wrong, [`read_at`](Self::read_at) has the last word. What was read as the cache filled
    /// itself is counted among the reads.
    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let _ = (offset, buf);
        false
    }

    /// Reads as [`read_at`](Self::read_at) does, and returns only what lies on the medium, once a
    /// [`flush`](Self::flush) has succeeded. `None`: the volume cannot distinguish the medium from
    /// a cache in front of it, as by default.
    ///
    /// A cache can hold bytes that a failed flush dropped. They read back until the cache forgets
    /// them, and no later flush writes them.
    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        let _ = (offset, buf);
        None
    }

    /// Writes `data`, which must be aligned, and returns the bytes written, which may be fewer.
    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize>;

    /// Returns once every write completed before the call is on stable media.
    ///
    /// An error is final: what it covered may be lost, and a later success says nothing about it.
    fn flush(&self) -> io::Result<()>;

    /// Makes the volume at least `size` bytes long, with its space allocated.
    ///
    /// New bytes read as zero. The new size is durable after the next [`flush`](Self::flush). Fails
    /// with [`io::ErrorKind::StorageFull`] or [`io::ErrorKind::FileTooLarge`] where there is no
    /// room, and then changes nothing that held data.
    fn grow(&self, size: u64) -> io::Result<()>;

    /// Gives the space from `size` on back. A volume that cannot shrink ignores the call.
    fn shrink(&self, size: u64) -> io::Result<()>;

    /// Sees to it that the space of `range`, whole sectors inside the volume, is there: no write to
    /// it fails for want of room, whatever else fills the file system. What it holds stays.
    ///
    /// Fails as [`grow`](Self::grow) does where there is no room. By default space is always there,
    /// as a device's is. A volume around another one passes this on.
    fn allocate_range(&self, range: Range<u64>) -> io::Result<()> {
        let _ = range;
        Ok(())
    }

    /// Gives the space of `range`, whole sectors inside the volume, back to the file system; the
    /// size stays. It reads as zero then, but after a power cut may read as before. `false`: that
    /// cannot be done here, and nothing was.
    ///
    /// By default it cannot. A volume around another one passes this on.
    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        let _ = range;
        Ok(false)
    }

    /// Finds out in which way durable writes serve better here, and uses it from now on;
    /// [`info`](Self::info) tells which, and what was measured.
    ///
    /// Takes some milliseconds, of a slow disk as long as a few of its writes. `scratch`, whole
    /// sectors inside the volume, is written to: what it held is lost. By default there is nothing
    /// to choose. A volume around another one passes this on.
    fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        let _ = scratch;
        Ok(())
    }

    /// Writes zeros to the bytes behind the last whole sector, which no other write reaches; they
    /// are durable after the next [`flush`](Self::flush).
    ///
    /// By default, and where a device's blocks are too large to reach them, nothing is done. A
    /// volume around another one that shares its end passes this on.
    fn zero_rest(&self) -> io::Result<()> {
        Ok(())
    }

    /// A queue that carries out up to `depth` operations at once.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>>;
}

/// An operation handed to a [`Queue`], with the memory it works on.
#[derive(Debug)]
pub enum Op {
    /// Fill `buf`, as long as it is, from `offset`.
    Read {
        /// Where to read, in bytes.
        offset: u64,
        /// The memory to fill; it comes back with the completion.
        buf: AlignedBuf,
    },
    /// Write `data` at `offset`.
    Write {
        /// Where to write, in bytes.
        offset: u64,
        /// What to write; its address and length must be aligned.
        data: Bytes,
        /// When it counts as done.
        persist: Persist,
    },
}

impl Op {
    /// Asserts the alignment rule and makes a read's memory as long as its capacity.
    pub(crate) fn prepare(&mut self) {
        match self {
            Op::Read { offset, buf } => {
                assert_aligned(*offset, buf.as_ptr() as usize, buf.len());
            }
            Op::Write { offset, data, .. } => assert_aligned(*offset, data.as_ptr() as usize, data.len()),
        }
    }

    /// Bytes that it is to move.
    pub(crate) fn wanted(&self) -> usize {
        match self {
            Op::Read { buf, .. } => buf.len(),
            Op::Write { data, .. } => data.len(),
        }
    }

    /// Ends the operation, with a read's memory cut to what was read.
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
    /// The caller's name for the operation.
    pub token: u64,
    /// Bytes moved (maybe fewer than asked for) or the error.
    pub result: io::Result<usize>,
    /// A read's memory, as long as what was read.
    pub buf: Option<AlignedBuf>,
}

/// Operations in flight, owned by one driver at a time. Completions come in any order.
///
/// Dropping a queue waits for what is in flight.
pub trait Queue: Send {
    /// Starts an operation. The caller keeps at most the queue's depth in flight.
    fn submit(&mut self, token: u64, op: Op);

    /// Moves finished operations to `out`; with `wait`, blocks until there is at least one. Returns
    /// at once when nothing is in flight.
    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>);

    /// Blocks until there may be something to reap, or the [`waker`](Self::waker) was called since
    /// the last wait, or `patience` runs out; now and then for less. Returns at once when nothing
    /// is in flight.
    fn wait(&mut self, patience: Duration);

    /// Ends a [`wait`](Self::wait) from another thread: the one at hand, or the next one.
    fn waker(&self) -> Waker;

    /// Operations submitted and not yet reaped.
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
        // A short count that is not a whole number of sectors can only be the end of the volume.
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

/// Fills `buf` from the medium ([`Volume::read_medium`]), completing short transfers; `false` where
/// the volume cannot.
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

/// Writes all of `data`, completing short transfers.
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
        // A count inside a sector (a full file system can give one) is rewritten from that sector's
        // start.
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

/// Asserts that an operation keeps the alignment rule.
pub(crate) fn assert_aligned(offset: u64, address: usize, len: usize) {
    assert!(offset.is_multiple_of(SECTOR as u64), "offset {offset} is not a multiple of {SECTOR}");
    assert!(address.is_multiple_of(SECTOR), "buffer address {address:#x} is not a multiple of {SECTOR}");
    assert!(len.is_multiple_of(SECTOR), "length {len} is not a multiple of {SECTOR}");
}

#[cfg(test)]
pub(crate) mod tests;
