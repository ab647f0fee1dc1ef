//! The open file, shared by a volume and its queues.
//!
//! Invariants:
//! - `size` is the length of the file, and changes only under `resize`. Writes stay inside `size`,
//!   so a write never changes the file's length or the metadata of the length.
//! - An operation that would exceed `RLIMIT_FSIZE` is refused before it reaches the kernel: the
//!   kernel would send `SIGXFSZ`, which ends the process.
//! - `uring` and `gives_back` only change from true to false, with a line in `fallbacks`.
//! - The lock belongs to the open file. Queues share the open file, so it stays locked until the
//!   volume and all its queues are dropped.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::durable::DurableBy;
use super::held::Held;
#[cfg(target_os = "linux")]
use super::read_around::ReadAround;
use super::sync::SharedSync;
use super::{FileOptions, OpenMode, device, open};
use crate::counts::IoCounters;
use crate::process::Process;
use crate::seeded::bug;
use crate::volume::assert_aligned;
use crate::{BlockDevice, Op, Persist, VolumeInfo};

#[derive(Debug)]
pub(crate) struct FileInner {
    pub(super) path: PathBuf,
    pub(crate) file: File,
    /// Handle of the same file through the page cache, if such reads are possible.
    pub(super) cached: Option<File>,
    #[cfg(target_os = "linux")]
    pub(super) read_around: ReadAround,
    writable: bool,
    /// Whether another process may write the file, and resize it.
    beside: bool,
    /// Properties of a block device; its size is fixed.
    pub(super) device: Option<BlockDevice>,
    /// Last known number of names of the file: see [`watch`](Self::watch).
    pub(super) links: AtomicU64,
    /// Description of a change of the file by others, once detected.
    pub(super) gone: OnceLock<String>,
    _held: Held,
    opener: Process,
    pub(super) direct: bool,
    /// Whether direct reads return only bytes that are on the medium.
    pub(super) reads_medium: bool,
    pub(super) size: AtomicU64,
    /// Held while the size changes.
    pub(super) resize: Mutex<()>,
    /// Whether the file system can release space inside the file and allocate it again; true until
    /// an attempt fails.
    pub(super) gives_back: AtomicBool,
    pub(super) durable: DurableBy,
    pub(super) syncs: SharedSync,
    pub(super) uring: AtomicBool,
    pub(crate) counters: IoCounters,
    pub(super) fallbacks: Mutex<Vec<String>>,
}

impl Drop for FileInner {
    /// Releases the lock. Closing the file does not suffice: a child process that was forked
    /// meanwhile still has the file open, and holds the lock.
    fn drop(&mut self) {
        if self.opener.is_here() && !bug("child-keeps-the-lock") {
            // If the unlock fails, the next opening of the file is refused.
            let _ = self.file.unlock();
        }
    }
}

impl FileInner {
    pub(super) fn open(path: &Path, mode: OpenMode, options: &FileOptions) -> io::Result<Self> {
        let (mut file, made) = open::open(path, mode, options.permissions)?;
        let device = device::describe(&file, path)?;
        let size = device::size(&mut file, device.is_some())?;
        let mut inner = Self {
            path: path.to_owned(),
            writable: !mode.reads_only(),
            beside: mode == OpenMode::ReadBeside,
            device,
            links: AtomicU64::new(file.metadata()?.nlink()),
            gone: OnceLock::new(),
            _held: Held::new(&file)?,
            opener: Process::current(),
            file,
            cached: None,
            #[cfg(target_os = "linux")]
            read_around: ReadAround::default(),
            direct: false,
            reads_medium: false,
            size: AtomicU64::new(size),
            resize: Mutex::new(()),
            gives_back: AtomicBool::new(true),
            durable: DurableBy::default(),
            syncs: SharedSync::default(),
            uring: AtomicBool::new(false),
            counters: IoCounters::default(),
            fallbacks: Mutex::default(),
        };
        // Dropped before the volume: the file is locked until its name is gone.
        let unfinished = made;
        inner.choose_direct(options)?;
        inner.choose_durable(options)?;
        inner.choose_backend(options)?;
        inner.open_cached()?;
        unfinished.stays();
        Ok(inner)
    }

    pub(super) fn info(&self) -> VolumeInfo {
        VolumeInfo {
            name: self.path.display().to_string(),
            backend: self.backend(),
            direct: self.direct,
            device: self.device,
            durable_by: self.durable_by(),
            durable_why: self.durable_why(),
            fallbacks: self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(super) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        assert_aligned(offset, buf.as_ptr() as usize, buf.len());
        let file = self.cached.as_ref().filter(|_| bug("file-read-is-cached")).unwrap_or(&self.file);
        let result = retry(|| file.read_at(buf, offset));
        self.counters.read(&result);
        result
    }

    pub(super) fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        assert_aligned(offset, data.as_ptr() as usize, data.len());
        self.check_write(offset, data.len())?;
        self.watch()?;
        match persist {
            Persist::Cached => self.write(offset, data),
            Persist::Durable => {
                let written = self.write_durable(offset, data)?;
                self.watch()?;
                Ok(written)
            }
        }
    }

    /// Writes without durability.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let result = retry(|| self.file.write_at(data, offset));
        self.counters.written(&result, false);
        result
    }

    /// Carries out a prepared operation on the calling thread.
    pub(crate) fn perform(&self, op: &mut Op) -> io::Result<usize> {
        match op {
            Op::Read { offset, buf } => self.read_at(*offset, buf),
            Op::Write { offset, data, persist } => self.write_at(*offset, data, *persist),
        }
    }

    /// Counts an operation that a queue carried out; `durable`: whether a write carried the flag.
    #[cfg(all(target_os = "linux", feature = "io-uring"))]
    pub(crate) fn count(&self, op: &Op, result: &io::Result<usize>, durable: bool) {
        match op {
            Op::Read { .. } => self.counters.read(result),
            Op::Write { .. } => self.counters.written(result, durable),
        }
    }

    /// Refuses writes to a read-only volume, past the end and past the process's limit.
    pub(crate) fn check_write(&self, offset: u64, len: usize) -> io::Result<()> {
        self.check_writable()?;
        let size = self.size();
        match offset.checked_add(len as u64) {
            Some(end) if end <= size => self.check_limit(end),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("a write of {len} bytes at {offset} passes the end of the volume, {size}"),
            )),
        }
    }

    pub(super) fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            return Ok(());
        }
        let message = format!("{} is open for reading only", self.path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }

    pub(super) fn check_limit(&self, end: u64) -> io::Result<()> {
        match getrlimit(Resource::Fsize).current {
            // The limit is read every time, because other processes can change it. The limit does
            // not apply to devices.
            Some(limit) if end > limit && self.device.is_none() => Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{end} bytes are over the process's file size limit (ulimit -f) of {limit}"),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the size after another process may have changed it.
    pub(super) fn fresh_size(&self) -> io::Result<u64> {
        if self.beside && self.device.is_none() {
            self.size.store(self.file.metadata()?.len(), Ordering::Release);
        }
        Ok(self.size())
    }

    pub(super) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Notes `fallback` like [`note`](Self::note), but only once.
    pub(super) fn note_once(&self, fallback: String) {
        if !self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).contains(&fallback) {
            self.note(fallback);
        }
    }

    pub(super) fn note(&self, fallback: String) {
        tracing::warn!(path = %self.path.display(), "{fallback}");
        self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).push(fallback);
    }
}

/// Returns a copy of `e`; [`io::Error`] does not implement `Clone`.
pub(crate) fn copy(e: &io::Error) -> io::Error {
    e.raw_os_error().map_or_else(|| io::Error::new(e.kind(), e.to_string()), io::Error::from_raw_os_error)
}

pub(crate) fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Returns whether the error means that the operation is unsupported here, so that another method
/// is needed: the kernel or the file system does not support it, or a filter of system calls, as in
/// containers, refuses it.
pub(crate) fn is_refusal(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::PERM))
}
