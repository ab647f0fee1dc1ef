//! A volume in a file or on a block device.
//!
//! - `open`: names, opening and locks; `device`: what a block device says of itself.
//! - `inner`: the open file that the volume and its queues share, its reads and its checks.
//! - `durable`: how writes become durable; `tune`: the choice between the ways; `sync`: one sync
//!   for many callers.
//! - `backend`: direct I/O and io_uring, used where they can be relied on; `direct`: whether direct
//!   I/O is; `watch`: whether the file is still there, looked at beside each write; `held`: which
//!   files this process has open.
//! - `thread_queue`, `uring`: queues of operations, by threads and by io_uring.
//! - `grow`: the size, and the space; `holes`: space that is
//!   there and holds nothing, taken without asking for more.
//! - `cached`: reads by way of the page cache, for look-ups.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
#[cfg(target_os = "linux")]
use std::sync::atomic::Ordering;

pub use self::held::is_open_here;
use self::inner::FileInner;
pub(crate) use self::open::sync_folder;
pub use self::open::{process_exists, read_unlocked};
use self::thread_queue::ThreadQueue;
#[cfg(target_os = "linux")]
use self::uring::UringQueue;
use crate::{Counts, Persist, Queue, Volume, VolumeInfo};

mod backend;
mod cached;
mod device;
#[cfg(target_os = "linux")]
mod direct;
mod durable;
mod grow;
mod held;
#[cfg(target_os = "linux")]
mod holes;
pub(crate) mod inner;
mod open;
#[cfg(target_os = "linux")]
mod resident;
mod sync;
#[cfg(test)]
mod tests;
mod thread_queue;
mod tune;
#[cfg(target_os = "linux")]
mod uring;
mod watch;

/// Largest depth of a queue: kernels limit their rings, to several times as many.
const MAX_DEPTH: usize = 4096;

/// What to do with the file at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Make a new, empty file; it must not exist.
    Create,
    /// Read and write an existing file or block device, alone.
    ReadWrite,
    /// Read an existing file or block device, together with other readers.
    ReadOnly,
}

/// How a [`FileVolume`] works. The defaults are the fast way; each falls back by itself where it
/// does not work.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Bypass the page cache (default: true; the store keeps its own cache, and sees device errors
    /// at once).
    pub direct: bool,
    /// Carry out queued operations by io_uring (default: true; a thread per operation in flight
    /// costs more).
    pub io_uring: bool,
    /// How durable writes reach stable media (default: [`Durable::Probe`]; which way is quicker
    /// differs from disk to disk).
    pub durable: Durable,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { direct: true, io_uring: true, durable: Durable::Probe }
    }
}

/// How durable writes reach stable media. Each way gives the same guarantee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durable {
    /// As for [`Dsync`](Self::Dsync) until [`Volume::tune`] has measured both ways, and then the
    /// better one.
    #[default]
    Probe,
    /// Each write carries `RWF_DSYNC`, which a device with FUA serves without emptying its cache.
    /// Where the flag cannot be relied on, writes are followed by a sync all the same.
    Dsync,
    /// Writes are followed by an fdatasync; one serves all that were done before it began.
    Flush,
}

/// A volume in a file or on a block device, locked against other processes while it is open.
///
/// The lock is advisory (`flock`); it goes with the last of the volume and its queues. On Linux a
/// block device that is written to is claimed besides, so that nobody mounts it meanwhile.
#[derive(Debug)]
pub struct FileVolume {
    pub(crate) inner: Arc<FileInner>,
}

impl FileVolume {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if there is something where one should be
    /// created, [`ResourceBusy`](io::ErrorKind::ResourceBusy) if someone else has it open, or if it
    /// is a block device that is mounted or in use (only Linux tells),
    /// [`IsADirectory`](io::ErrorKind::IsADirectory) for a directory,
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for anything else that is neither a file nor a
    /// block device, and for a device whose logical blocks are larger than a
    /// [`SECTOR`](crate::SECTOR), and whatever the operating system says.
    ///
    /// ```
    /// use brooklet_io::{AlignedBuf, FileOptions, FileVolume, OpenMode, Persist, SECTOR, Volume};
    /// let dir = tempfile::tempdir()?;
    /// let volume = FileVolume::open(&dir.path().join("logs"), OpenMode::Create, FileOptions::default())?;
    /// volume.grow(1 << 20)?;
    /// let data = AlignedBuf::zeroed(SECTOR);
    /// assert_eq!(volume.write_at(0, &data, Persist::Durable)?, SECTOR);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(path: &Path, mode: OpenMode, options: FileOptions) -> io::Result<Self> {
        let inner = FileInner::open(path, mode, &options)?;
        tracing::info!(
            path = %path.display(), ?mode, size = inner.size(), backend = inner.backend(), direct = inner.direct,
            durable_by = inner.durable_by(), "volume opened"
        );
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Volume for FileVolume {
    fn info(&self) -> VolumeInfo {
        self.inner.info()
    }

    fn counts(&self) -> Counts {
        self.inner.counters.counts()
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.inner.size())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buf)
    }

    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.inner.read_cached(offset, buf)
    }

    /// Direct reads ask the device, and pass the page cache by.
    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        self.inner.direct.then(|| self.inner.read_at(offset, buf))
    }

    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        self.inner.write_at(offset, data, persist)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        self.inner.grow(size)
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        self.inner.shrink(size)
    }

    fn allocate_range(&self, range: Range<u64>) -> io::Result<()> {
        self.inner.allocate_range(range)
    }

    fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        self.inner.punch(range)
    }

    fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        self.inner.tune(scratch)
    }

    fn zero_rest(&self) -> io::Result<()> {
        self.inner.zero_rest()
    }

    /// A queue for 1 to 4096 operations at once.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        if !(1..=MAX_DEPTH).contains(&depth) {
            let message = format!("a queue has a depth from 1 to {MAX_DEPTH}, not {depth}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        #[cfg(target_os = "linux")]
        if self.inner.uring.load(Ordering::Relaxed) {
            match UringQueue::new(Arc::clone(&self.inner), depth) {
                Ok(queue) => return Ok(Box::new(queue)),
                Err(e) => {
                    self.inner.uring.store(false, Ordering::Relaxed);
                    self.inner.note(format!("queues use threads: a ring of depth {depth} failed: {e}"));
                }
            }
        }
        Ok(Box::new(ThreadQueue::new(Arc::clone(&self.inner), depth)))
    }
}
