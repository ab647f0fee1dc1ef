//! A volume in a file or on a block device.
//!
//! - `open`: names, opening and locks; `device`: the properties that a block device reports.
//! - `inner`: the open file that the volume and its queues share, its reads and its checks.
//! - `durable`: the methods of durable writes; `tune`: the choice between them; `sync`: one sync
//!   for many callers.
//! - `backend`: direct I/O and io_uring, used if they are reliable; `direct`: whether direct I/O is
//!   reliable; `watch`: checks during each write that the file still exists; `held`: the files that
//!   this process has open.
//! - `thread_queue`, `uring`: queues of operations, with threads and with io_uring.
//! - `grow`: the size, and the space; `holes`: allocated space without data, used without another
//!   allocation.
//! - `cached`: reads through the page cache, for look-ups; `read_around`: whether they read the
//!   neighbouring bytes, too.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
#[cfg(all(target_os = "linux", feature = "io-uring"))]
use std::sync::atomic::Ordering;

pub use self::held::is_open_here;
use self::inner::FileInner;
pub(crate) use self::open::sync_folder;
pub use self::open::{process_exists, read_unlocked};
use self::thread_queue::ThreadQueue;
#[cfg(all(target_os = "linux", feature = "io-uring"))]
use self::uring::UringQueue;
use crate::{Counts, Persist, Queue, Tuning, Volume, VolumeInfo};

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
mod read_around;
#[cfg(target_os = "linux")]
mod resident;
mod sync;
#[cfg(test)]
mod tests;
mod thread_queue;
mod tune;
#[cfg(all(target_os = "linux", feature = "io-uring"))]
mod uring;
mod watch;

/// Largest depth of a queue: kernels limit their rings to several times this number.
const MAX_DEPTH: usize = 4096;

/// The treatment of the file at the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Creates a new, empty file; it must not exist.
    Create,
    /// Reads and writes an existing file or block device, exclusively.
    ReadWrite,
    /// Reads an existing file or block device, together with other readers.
    ReadOnly,
    /// Reads an existing file or block device past any lock, while another process may write it.
    ReadBeside,
}

impl OpenMode {
    /// Returns whether the volume only reads.
    pub(crate) fn reads_only(self) -> bool {
        matches!(self, Self::ReadOnly | Self::ReadBeside)
    }
}

/// The options of a [`FileVolume`]. The defaults are the fast methods; each falls back
/// automatically if it does not work.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Whether to bypass the page cache. Default: true, because the store has its own cache, and
    /// sees device errors immediately.
    pub direct: bool,
    /// Whether to carry out queued operations with io_uring. Default: true, because a thread for
    /// each operation in flight costs more.
    pub io_uring: bool,
    /// Method by which durable writes reach stable media. Default: [`Durable::Probe`], because the
    /// faster method differs from disk to disk.
    pub durable: Durable,
    /// Permissions of a file that is created, less those that the process's umask takes away.
    /// Default: 0o600, because only the user of the process needs the file.
    pub permissions: u32,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { direct: true, io_uring: true, durable: Durable::Probe, permissions: 0o600 }
    }
}

/// The method by which durable writes reach stable media. Each method gives the same guarantee.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durable {
    /// Works like [`Dsync`](Self::Dsync) until [`Volume::tune`] has measured both methods, then
    /// uses the better one.
    #[default]
    Probe,
    /// Each write carries `RWF_DSYNC`, which a device with FUA serves without emptying its cache.
    /// If the flag is not reliable, a sync follows the writes.
    Dsync,
    /// An fdatasync follows the writes; one fdatasync serves all writes that completed before it
    /// began.
    Flush,
}

/// A volume in a file or on a block device, locked against other processes while it is open.
///
/// The lock is advisory (`flock`); it ends when the volume and all its queues are dropped. On
/// Linux, a volume that writes to a block device also claims it, so that nobody mounts it
/// meanwhile.
#[derive(Debug)]
pub struct FileVolume {
    pub(crate) inner: Arc<FileInner>,
}

impl FileVolume {
    /// Opens the file or block device at `path`.
    ///
    /// # Errors
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if a file to create exists;
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if another volume has the file open, or if the
    /// block device is mounted or in use (detected only on Linux);
    /// [`IsADirectory`](io::ErrorKind::IsADirectory) for a directory;
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for anything else that is neither a file nor a
    /// block device, and for a device whose logical blocks are larger than a
    /// [`SECTOR`](crate::SECTOR); and the errors of the operating system.
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
        self.inner.fresh_size()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buf)
    }

    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        self.inner.read_cached(offset, buf)
    }

    /// Reads from the device, because direct reads bypass the page cache. `None` on macOS, and on
    /// FUSE and network file systems, where another program or machine may have a cache.
    fn read_medium(&self, offset: u64, buf: &mut [u8]) -> Option<io::Result<usize>> {
        self.inner.reads_medium.then(|| self.inner.read_at(offset, buf))
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

    fn tuning(&self) -> Option<Tuning> {
        self.inner.tuning()
    }

    fn adopt(&self, tuning: Tuning) -> bool {
        self.inner.adopt(tuning)
    }

    fn zero_rest(&self) -> io::Result<()> {
        self.inner.zero_rest()
    }

    /// Creates a queue for 1 to 4096 operations at once.
    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        if !(1..=MAX_DEPTH).contains(&depth) {
            let message = format!("a queue has a depth from 1 to {MAX_DEPTH}, not {depth}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        #[cfg(all(target_os = "linux", feature = "io-uring"))]
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
