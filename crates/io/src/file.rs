//! A volume in a file or on a block device.
//!
//! Invariants:
//! - `size` is the length of the file and moves only under `resize`. Writes stay inside it, so a write never
//!   changes the file's length, and with it its metadata.
//! - Whatever would exceed `RLIMIT_FSIZE` is refused before the kernel sees it: the kernel would answer with
//!   `SIGXFSZ`, which ends the process.
//! - `dsync` and `uring` only ever go from true to false, each time with a line in `fallbacks`.
//! - The lock belongs to the open file. Queues share it, so the file stays locked until the volume and all its queues
//!   are gone.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::threads::ThreadQueue;
#[cfg(target_os = "linux")]
use crate::uring::UringQueue;
use crate::volume::assert_aligned;
#[cfg(target_os = "linux")]
use crate::{AlignedBuf, SECTOR};
use crate::{Op, Persist, Queue, Volume, VolumeInfo};

/// Largest depth of a queue: the largest ring every kernel takes.
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

/// How a [`FileVolume`] works. The defaults are the fast way; each falls back by itself where it does not work.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Bypass the page cache (default: true; the store keeps its own cache, and sees device errors at once).
    pub direct: bool,
    /// Carry out queued operations by io_uring (default: true; a thread per operation in flight costs more).
    pub io_uring: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { direct: true, io_uring: true }
    }
}

/// A volume in a file or on a block device, locked against other processes while it is open.
///
/// The lock is advisory (`flock`); it goes with the last of the volume and its queues.
#[derive(Debug)]
pub struct FileVolume {
    inner: Arc<FileInner>,
}

impl FileVolume {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// [`AlreadyExists`](io::ErrorKind::AlreadyExists) if there is something where one should be created,
    /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if someone else has it open,
    /// [`IsADirectory`](io::ErrorKind::IsADirectory) for a directory,
    /// [`InvalidInput`](io::ErrorKind::InvalidInput) for anything else that is neither a file nor a block device, and
    /// whatever the operating system says.
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
        let mut file = open_file(path, mode)?;
        lock_file(&file, mode)?;
        if mode == OpenMode::Create {
            sync_parent(path)?;
        }
        // Seeking gives the size of a block device too, whose metadata says zero.
        let size = file.seek(SeekFrom::End(0))?;
        let found = file.metadata()?;
        let mut inner = FileInner {
            path: path.to_owned(),
            writable: mode != OpenMode::ReadOnly,
            device: found.file_type().is_block_device(),
            named: found.nlink() > 0,
            file,
            direct: false,
            size: AtomicU64::new(size),
            resize: Mutex::new(()),
            dsync: AtomicBool::new(false),
            uring: AtomicBool::new(false),
            failed_flush: Mutex::default(),
            fallbacks: Mutex::default(),
        };
        inner.choose_direct(&options)?;
        inner.choose_dsync()?;
        inner.choose_backend(&options)?;
        tracing::info!(
            path = %path.display(), ?mode, size, backend = inner.backend(), direct = inner.direct,
            durable_by = inner.durable_by(), "volume opened"
        );
        Ok(Self { inner: Arc::new(inner) })
    }
}

impl Volume for FileVolume {
    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            name: self.inner.path.display().to_string(),
            backend: self.inner.backend(),
            direct: self.inner.direct,
            durable_by: self.inner.durable_by(),
            fallbacks: self.inner.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.inner.size())
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.inner.read_at(offset, buf)
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

/// Gives the file `draft` the name `path`, durably, unless something has that name; then it is `false`, and `draft`
/// stays.
pub fn publish(draft: &Path, path: &Path) -> io::Result<bool> {
    match fs::hard_link(draft, path) {
        Ok(()) => fs::remove_file(draft)?,
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        // Without links, two who create the same store at the same moment are not told apart.
        Err(e) if matches!(e.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied) => {
            fs::rename(draft, path)?;
        }
        Err(e) => return Err(e),
    }
    sync_parent(path)?;
    Ok(true)
}

/// Whether a process of this number exists, as far as this process may know.
pub fn process_exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Reads up to `len` bytes at `offset`, fewer at the end, through the page cache and past any lock.
///
/// For looking at a volume that someone else has open, such as for the name of its holder. Needs no alignment.
pub fn read_unlocked(path: &Path, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut data = vec![0; len];
    let mut done = 0;
    while done < len {
        match retry(|| file.read_at(&mut data[done..], offset + done as u64))? {
            0 => break,
            n => done += n,
        }
    }
    data.truncate(done);
    Ok(data)
}

/// The open file, shared by the volume and its queues.
#[derive(Debug)]
pub(crate) struct FileInner {
    path: PathBuf,
    pub(crate) file: File,
    writable: bool,
    /// A block device: its size is fixed.
    device: bool,
    /// It had a name when it was opened; a deleted file may be opened through another process, to save it.
    named: bool,
    direct: bool,
    size: AtomicU64,
    resize: Mutex<()>,
    /// Whether a write can be made durable by itself, by `RWF_DSYNC`.
    dsync: AtomicBool,
    uring: AtomicBool,
    /// The first failed flush. Held while flushing.
    failed_flush: Mutex<Option<io::Error>>,
    fallbacks: Mutex<Vec<String>>,
}

impl FileInner {
    pub(crate) fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        assert_aligned(offset, buf.as_ptr() as usize, buf.len());
        retry(|| self.file.read_at(buf, offset))
    }

    pub(crate) fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        assert_aligned(offset, data.as_ptr() as usize, data.len());
        self.check_write(offset, data.len())?;
        match persist {
            Persist::Cached => {
                // Before the write, which would make a file that was cut longer again. Durable writes are many and
                // small, and lie before the rest of the file; they do without.
                self.check_file_between_resizes()?;
                retry(|| self.file.write_at(data, offset))
            }
            Persist::Durable => self.write_durable(offset, data),
        }
    }

    /// Carries out a prepared operation on the calling thread.
    pub(crate) fn perform(&self, op: &mut Op) -> io::Result<usize> {
        match op {
            Op::Read { offset, buf } => self.read_at(*offset, buf),
            Op::Write { offset, data, persist } => self.write_at(*offset, data, *persist),
        }
    }

    /// [`sync`](Self::sync), and a look at whether the file still is what was synced.
    fn flush(&self) -> io::Result<()> {
        self.sync()?;
        self.check_file_between_resizes().inspect_err(|e| {
            self.failed_flush.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(copy(e));
        })
    }

    /// Makes everything written before durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        // No second try after an error: the kernel reports a failed write-back once, to one of those who share the open
        // file, and then forgets it. So syncs go one by one, and a failure counts for all that come after. (The
        // standard library repeats an interrupted call, which is safe: an interrupted call has reported nothing.)
        let mut failed = self.failed_flush.lock().unwrap_or_else(PoisonError::into_inner);
        match &*failed {
            Some(e) => Err(copy(e)),
            None => self.file.sync_data().inspect_err(|e| *failed = Some(copy(e))),
        }
    }

    /// Whether durable writes carry `RWF_DSYNC`.
    pub(crate) fn dsync(&self) -> bool {
        self.dsync.load(Ordering::Relaxed)
    }

    /// Refuses writes to a read-only volume, over the end and over the process's limit.
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

    fn check_writable(&self) -> io::Result<()> {
        if self.writable {
            return Ok(());
        }
        let message = format!("{} is open for reading only", self.path.display());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, message))
    }

    fn check_limit(&self, end: u64) -> io::Result<()> {
        match getrlimit(Resource::Fsize).current {
            // Asked for every time, as the limit can be changed from outside; the limit does not bind devices.
            Some(limit) if end > limit && !self.device => Err(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("{end} bytes are over the process's file size limit (ulimit -f) of {limit}"),
            )),
            _ => Ok(()),
        }
    }

    /// Finds out whether the file is still there and whole: what lies in one that was deleted or cut short is gone when it
    /// is closed, whatever a flush says. Called under `resize`.
    fn check_file(&self) -> io::Result<()> {
        if self.device {
            return Ok(());
        }
        let found = self.file.metadata()?;
        let what = if found.len() < self.size() {
            format!("cut from {} to {} bytes", self.size(), found.len())
        } else if self.named && found.nlink() == 0 {
            "deleted".to_owned()
        } else {
            return Ok(());
        };
        Err(io::Error::other(format!("{} was {what} by someone else while it was open", self.path.display())))
    }

    /// [`check_file`](Self::check_file), while nobody is about to change the size.
    fn check_file_between_resizes(&self) -> io::Result<()> {
        let _resizing = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_file()
    }

    fn write_durable(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let mut refusal = None;
        if self.dsync() {
            match retry(|| write_dsync(&self.file, offset, data)) {
                Err(e) if is_refusal(&e) => refusal = Some(e),
                result => return result,
            }
        }
        let n = retry(|| self.file.write_at(data, offset))?;
        self.sync()?;
        // Only now is it known that the flag was at fault, and not the write.
        if let Some(e) = refusal
            && self.dsync.swap(false, Ordering::Relaxed)
        {
            self.note(format!("durable writes use fdatasync: RWF_DSYNC failed: {e}"));
        }
        Ok(n)
    }

    fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    fn grow(&self, size: u64) -> io::Result<()> {
        let _resizing = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_writable()?;
        let old = self.size();
        if size <= old {
            return Ok(());
        }
        if self.device {
            let message = format!("{} has {old} bytes and cannot grow to {size}", self.path.display());
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        self.check_file()?;
        self.check_limit(size)?;
        let mut grown = retry(|| allocate(&self.file, old, size - old));
        if grown.as_ref().is_err_and(is_refusal) {
            tracing::warn!(path = %self.path.display(), "the file system cannot allocate space in advance");
            grown = self.file.set_len(size);
        }
        if let Err(e) = grown {
            // A failed allocation may leave a part behind, with or without a longer file.
            if let Err(e) = self.file.set_len(old) {
                tracing::warn!(path = %self.path.display(), "space from a failed growth stays allocated: {e}");
            }
            return Err(e);
        }
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    fn shrink(&self, size: u64) -> io::Result<()> {
        let _resizing = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_writable()?;
        let old = self.size();
        if self.device || size >= old {
            return Ok(());
        }
        self.check_file()?;
        // The size falls first, so that a write that comes now cannot make the file longer again.
        self.size.store(size, Ordering::Release);
        self.file.set_len(size).inspect_err(|_| self.size.store(old, Ordering::Release))
    }

    fn backend(&self) -> &'static str {
        if self.uring.load(Ordering::Relaxed) { "io_uring" } else { "threads" }
    }

    fn durable_by(&self) -> &'static str {
        match self.dsync() {
            true => "RWF_DSYNC",
            false if cfg!(target_os = "macos") => "write + F_FULLFSYNC",
            false => "write + fdatasync",
        }
    }

    fn note(&self, fallback: String) {
        tracing::warn!(path = %self.path.display(), "{fallback}");
        self.fallbacks.lock().unwrap_or_else(PoisonError::into_inner).push(fallback);
    }
}

/// How the file is used, chosen when it is opened.
#[cfg(target_os = "linux")]
impl FileInner {
    /// Direct I/O is switched on after the open: some file systems create the file and then refuse the flag.
    fn choose_direct(&mut self, options: &FileOptions) -> io::Result<()> {
        if !options.direct {
            self.note("buffered I/O: the options ask for it".into());
            return Ok(());
        }
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        let mut probe = AlignedBuf::zeroed(SECTOR);
        let probed = rustix::fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT)
            .map_err(io::Error::from)
            .and_then(|()| retry(|| self.file.read_at(&mut probe, 0)));
        match probed {
            Ok(_) => self.direct = true,
            Err(e) if is_refusal(&e) => {
                rustix::fs::fcntl_setfl(&self.file, flags)?;
                self.note(format!("buffered I/O: direct I/O failed: {e}"));
            }
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Whether the kernel knows `RWF_DSYNC` shows at the first durable write.
    fn choose_dsync(&mut self) -> io::Result<()> {
        if !self.direct {
            // A write-back that fails is told to one of the threads that write; see `flush`.
            self.note("durable writes use fdatasync: they go through the page cache".into());
        } else if let Some(kind) = self.strange_file_system()? {
            // FUSE takes the flag, but under direct I/O sends no sync to the file system's process.
            self.note(format!("durable writes use fdatasync: {kind} may drop RWF_DSYNC"));
        } else {
            *self.dsync.get_mut() = true;
        }
        Ok(())
    }

    fn choose_backend(&mut self, options: &FileOptions) -> io::Result<()> {
        if !options.io_uring {
            self.note("queues use threads: the options ask for them".into());
            return Ok(());
        }
        if let Some(kind) = self.strange_file_system()? {
            // Where FUSE takes only a part of a direct write, the kernel's ring goes on with the rest by itself - at the
            // offset of the first part, since the position has not moved on.
            self.note(format!("queues use threads: {kind} may misplace what io_uring writes"));
            return Ok(());
        }
        match UringQueue::probe() {
            Ok(()) => *self.uring.get_mut() = true,
            Err(e) => self.note(format!("queues use threads: io_uring failed: {e}")),
        }
        Ok(())
    }

    /// What the file lies on, if that is not known to be a device or a file system that carries out direct writes by
    /// itself: FUSE, a network, a layer over something else. Nothing tells whether such a one keeps what a flag or a ring
    /// asks for; plain calls it has to keep.
    fn strange_file_system(&self) -> io::Result<Option<String>> {
        /// ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, ZFS, tmpfs; see `statfs(2)`.
        const KNOWN: [u64; 7] =
            [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e, 0x2fc1_2fc1, 0x0102_1994];
        let kind = rustix::fs::fstatfs(&self.file)?.f_type as u64;
        let known = self.device || KNOWN.contains(&kind);
        Ok((!known).then(|| format!("a file system of type {kind:#x}")))
    }
}

/// How the file is used, chosen when it is opened.
#[cfg(not(target_os = "linux"))]
impl FileInner {
    fn choose_direct(&mut self, options: &FileOptions) -> io::Result<()> {
        #[cfg(target_os = "macos")]
        if options.direct {
            rustix::fs::fcntl_nocache(&self.file, true)?;
            self.direct = true;
            return Ok(());
        }
        if options.direct {
            self.note("buffered I/O: this system has no direct I/O".into());
        } else {
            self.note("buffered I/O: the options ask for it".into());
        }
        Ok(())
    }

    fn choose_dsync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn choose_backend(&mut self, _options: &FileOptions) -> io::Result<()> {
        Ok(())
    }
}

fn open_file(path: &Path, mode: OpenMode) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(mode != OpenMode::ReadOnly).create_new(mode == OpenMode::Create);
    if mode != OpenMode::Create {
        // Before the open: opening a pipe waits, and opening a tape or a terminal has effects.
        let kind = fs::metadata(path)?.file_type();
        if kind.is_dir() {
            let message = format!("{} is a directory", path.display());
            return Err(io::Error::new(io::ErrorKind::IsADirectory, message));
        }
        if !kind.is_file() && !kind.is_block_device() {
            let message = format!("{} is neither a file nor a block device", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        if kind.is_block_device() && mode == OpenMode::ReadWrite && cfg!(target_os = "linux") {
            // Makes Linux refuse a device that is mounted or otherwise claimed.
            options.custom_flags(OFlags::EXCL.bits() as i32);
        }
    }
    options.open(path)
}

fn lock_file(file: &File, mode: OpenMode) -> io::Result<()> {
    let locked = if mode == OpenMode::ReadOnly { file.try_lock_shared() } else { file.try_lock() };
    locked.map_err(|e| match e {
        TryLockError::WouldBlock => {
            io::Error::new(io::ErrorKind::ResourceBusy, "the volume is open elsewhere")
        }
        TryLockError::Error(e) => e,
    })
}

/// Makes the new name of a file durable.
fn sync_parent(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(parent)?.sync_all()
}

/// An error like `e`, which cannot be cloned.
pub(crate) fn copy(e: &io::Error) -> io::Error {
    e.raw_os_error().map_or_else(|| io::Error::new(e.kind(), e.to_string()), io::Error::from_raw_os_error)
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Whether the error says that the kernel or the file system does not know what was asked of it.
pub(crate) fn is_refusal(e: &io::Error) -> bool {
    matches!(Errno::from_io_error(e), Some(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS))
}

#[cfg(target_os = "linux")]
fn write_dsync(file: &File, offset: u64, data: &[u8]) -> io::Result<usize> {
    let flags = rustix::io::ReadWriteFlags::DSYNC;
    Ok(rustix::io::pwritev2(file, &[io::IoSlice::new(data)], offset, flags)?)
}

#[cfg(not(target_os = "linux"))]
fn write_dsync(_file: &File, _offset: u64, _data: &[u8]) -> io::Result<usize> {
    Err(Errno::NOSYS.into())
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), offset, len)?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn allocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(Errno::NOSYS.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, Completion, Rng, SECTOR, read_exact_at, write_all_at};

    fn filled(len: usize, byte: u8) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(len);
        buf.fill(byte);
        buf
    }

    fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
        result.unwrap_err().kind()
    }

    fn create(dir: &tempfile::TempDir, options: FileOptions) -> FileVolume {
        let volume = FileVolume::open(&dir.path().join("v"), OpenMode::Create, options).unwrap();
        volume.grow(1 << 20).unwrap();
        volume
    }

    #[test]
    fn keeps_bytes_across_opens() {
        let dir = tempfile::tempdir().unwrap();
        let volume = create(&dir, FileOptions::default());
        write_all_at(&volume, 8192, &filled(SECTOR, 1), Persist::Durable).unwrap();
        write_all_at(&volume, 16384, &filled(2 * SECTOR, 2), Persist::Cached).unwrap();
        volume.flush().unwrap();
        drop(volume);

        let path = dir.path().join("v");
        let again = FileVolume::open(&path, OpenMode::Create, FileOptions::default());
        assert_eq!(kind(again), io::ErrorKind::AlreadyExists);
        let volume = FileVolume::open(&path, OpenMode::ReadWrite, FileOptions::default()).unwrap();
        assert_eq!(volume.size().unwrap(), 1 << 20);
        let mut buf = filled(6 * SECTOR, 9);
        read_exact_at(&volume, 0, &mut buf).unwrap();
        let sectors: Vec<u8> = buf.chunks(SECTOR).map(|s| s[0]).collect();
        assert_eq!(sectors, [0, 0, 1, 0, 2, 2]);
        assert!(buf.chunks(SECTOR).all(|s| s.iter().all(|&b| b == s[0])));
    }

    #[test]
    fn buffered_volumes_work_too_and_say_so() {
        let dir = tempfile::tempdir().unwrap();
        let volume = create(&dir, FileOptions { direct: false, io_uring: false });
        write_all_at(&volume, 0, &filled(SECTOR, 3), Persist::Durable).unwrap();
        let mut buf = AlignedBuf::zeroed(SECTOR);
        read_exact_at(&volume, 0, &mut buf).unwrap();
        assert!(buf.iter().all(|&b| b == 3));
        let info = volume.info();
        assert_eq!((info.direct, info.backend), (false, "threads"));
        assert!(info.fallbacks.iter().any(|f| f.starts_with("buffered I/O:")), "{info:?}");
        if cfg!(target_os = "linux") {
            assert!(info.fallbacks.iter().any(|f| f.starts_with("queues use threads:")), "{info:?}");
        }
    }

    /// The kernel tells of a failed write-back once, to one of those who share the file; we tell everybody.
    #[test]
    fn a_failed_flush_fails_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let mut volume = create(&dir, FileOptions::default());
        let inner = Arc::get_mut(&mut volume.inner).unwrap();
        // What cannot be flushed stands in for a device that fails once.
        let (pipe, _other_end) = io::pipe().unwrap();
        let good = std::mem::replace(&mut inner.file, std::os::fd::OwnedFd::from(pipe).into());
        let error = inner.flush().unwrap_err();
        inner.file = good;
        assert_eq!(inner.flush().unwrap_err().raw_os_error(), error.raw_os_error());
        inner.dsync = AtomicBool::new(false);
        assert!(volume.write_at(0, &filled(SECTOR, 1), Persist::Durable).is_err());
        assert!(volume.write_at(0, &filled(SECTOR, 1), Persist::Cached).is_ok());
    }

    /// What is written to a file without a name, or behind a cut, is acknowledged for nothing: flushing and growing say so.
    #[test]
    fn a_file_that_others_cut_or_delete_is_not_flushed_as_if_nothing_were() {
        for what in ["cut", "deleted"] {
            let dir = tempfile::tempdir().unwrap();
            let volume = create(&dir, FileOptions::default());
            volume.flush().unwrap();
            if what == "cut" {
                OpenOptions::new().write(true).open(dir.path().join("v")).unwrap().set_len(4096).unwrap();
            } else {
                fs::remove_file(dir.path().join("v")).unwrap();
            }
            assert!(volume.shrink(8192).is_err());
            let growth = volume.grow(2 << 20).unwrap_err().to_string();
            let write = volume.write_at(0, &filled(SECTOR, 1), Persist::Cached).unwrap_err().to_string();
            assert!(write.contains(&format!("was {what}")), "{write}");
            assert!(growth.contains(&format!("was {what}")), "{growth}");
            assert!(volume.flush().unwrap_err().to_string().contains("by someone else"));
            assert!(volume.flush().is_err(), "for good");
        }
    }

    #[test]
    fn publishing_never_takes_a_name_from_another() {
        let dir = tempfile::tempdir().unwrap();
        let (draft, name) = (dir.path().join("draft"), dir.path().join("name"));
        fs::write(&draft, "first").unwrap();
        assert!(publish(&draft, &name).unwrap() && !draft.exists());
        fs::write(&draft, "second").unwrap();
        assert!(!publish(&draft, &name).unwrap() && draft.exists());
        assert_eq!(fs::read(&name).unwrap(), b"first");
        assert_eq!(kind(publish(&dir.path().join("none"), &dir.path().join("new"))), io::ErrorKind::NotFound);
    }

    #[test]
    fn durable_writes_work_without_the_flag() {
        let dir = tempfile::tempdir().unwrap();
        for io_uring in [true, false] {
            let volume = FileVolume::open(
                &dir.path().join(format!("{io_uring}")),
                OpenMode::Create,
                FileOptions { io_uring, ..FileOptions::default() },
            )
            .unwrap();
            volume.grow(1 << 20).unwrap();
            volume.inner.dsync.store(false, Ordering::Relaxed);
            assert!(volume.info().durable_by.starts_with("write + "));
            write_all_at(&volume, 0, &filled(SECTOR, 4), Persist::Durable).unwrap();
            let mut queue = volume.queue(4).unwrap();
            let data = filled(SECTOR, 5).freeze();
            queue.submit(0, Op::Write { offset: SECTOR as u64, data, persist: Persist::Durable });
            let mut done = Vec::new();
            queue.reap(true, &mut done);
            assert!(matches!(done[..], [Completion { token: 0, result: Ok(SECTOR), buf: None }]), "{done:?}");
            let mut buf = AlignedBuf::zeroed(2 * SECTOR);
            read_exact_at(&volume, 0, &mut buf).unwrap();
            assert_eq!((buf[0], buf[SECTOR]), (4, 5));
        }
    }

    #[test]
    fn is_open_once_for_writing_or_often_for_reading() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v");
        let open = |mode| FileVolume::open(&path, mode, FileOptions::default());
        let volume = create(&dir, FileOptions::default());
        write_all_at(&volume, 0, &filled(SECTOR, 6), Persist::Durable).unwrap();
        assert_eq!(kind(open(OpenMode::ReadWrite)), io::ErrorKind::ResourceBusy);
        assert_eq!(kind(open(OpenMode::ReadOnly)), io::ErrorKind::ResourceBusy);
        assert_eq!(read_unlocked(&path, 100, 3).unwrap(), [6; 3]);
        assert_eq!(read_unlocked(&path, (1 << 20) - 1, 10).unwrap(), [0]);

        let queue = volume.queue(1).unwrap();
        drop(volume);
        assert_eq!(kind(open(OpenMode::ReadWrite)), io::ErrorKind::ResourceBusy, "the queue holds the lock");
        drop(queue);
        let readers = [open(OpenMode::ReadOnly).unwrap(), open(OpenMode::ReadOnly).unwrap()];
        assert_eq!(kind(open(OpenMode::ReadWrite)), io::ErrorKind::ResourceBusy);
        drop(readers);
        open(OpenMode::ReadWrite).unwrap();
    }

    #[test]
    fn refuses_what_is_no_volume() {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &Path, mode| kind(FileVolume::open(path, mode, FileOptions::default()));
        assert_eq!(open(dir.path(), OpenMode::ReadWrite), io::ErrorKind::IsADirectory);
        assert_eq!(open(dir.path(), OpenMode::ReadOnly), io::ErrorKind::IsADirectory);
        assert_eq!(open(Path::new("/dev/null"), OpenMode::ReadWrite), io::ErrorKind::InvalidInput);
        assert_eq!(open(&dir.path().join("none"), OpenMode::ReadWrite), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_read_only_volume_takes_no_change() {
        let dir = tempfile::tempdir().unwrap();
        drop(create(&dir, FileOptions::default()));
        let path = dir.path().join("v");
        let volume = FileVolume::open(&path, OpenMode::ReadOnly, FileOptions::default()).unwrap();
        let denied = io::ErrorKind::PermissionDenied;
        assert_eq!(kind(volume.write_at(0, &filled(SECTOR, 1), Persist::Cached)), denied);
        assert_eq!(kind(volume.grow(2 << 20)), denied);
        assert_eq!(kind(volume.shrink(0)), denied);
        let mut queue = volume.queue(1).unwrap();
        queue.submit(7, Op::Write { offset: 0, data: filled(SECTOR, 1).freeze(), persist: Persist::Cached });
        let mut done = Vec::new();
        queue.reap(true, &mut done);
        assert_eq!((done[0].token, done[0].result.as_ref().unwrap_err().kind()), (7, denied));
        assert_eq!(volume.read_at(0, &mut AlignedBuf::zeroed(SECTOR)).unwrap(), SECTOR);
    }

    #[test]
    fn grows_and_shrinks_but_never_by_a_write() {
        let dir = tempfile::tempdir().unwrap();
        let volume = create(&dir, FileOptions::default());
        let end = 1 << 20;
        let past = |offset| kind(volume.write_at(offset, &filled(2 * SECTOR, 1), Persist::Cached));
        assert_eq!(past(end - SECTOR as u64), io::ErrorKind::InvalidInput);
        assert_eq!(past(u64::MAX - SECTOR as u64 + 1), io::ErrorKind::InvalidInput);
        volume.grow(100).unwrap();
        assert_eq!(volume.size().unwrap(), end, "a volume grows to at least the given size");
        volume.shrink(SECTOR as u64).unwrap();
        assert_eq!(past(0), io::ErrorKind::InvalidInput);
        assert_eq!(volume.read_at(0, &mut AlignedBuf::zeroed(2 * SECTOR)).unwrap(), SECTOR);
        assert_eq!(fs::metadata(dir.path().join("v")).unwrap().len(), SECTOR as u64);
        assert!(volume.grow(1 << 60).is_err(), "no disk is that large");
        assert_eq!(fs::metadata(dir.path().join("v")).unwrap().len(), SECTOR as u64);
        assert_eq!(volume.size().unwrap(), SECTOR as u64);
    }

    /// The kernel kills a process that writes past its limit, even inside the file; it must not get that far.
    #[test]
    fn the_file_size_limit_gives_errors_and_no_signal() {
        let dir = tempfile::tempdir().unwrap();
        drop(create(&dir, FileOptions::default()));
        let status = std::process::Command::new("sh")
            .args(["-c", "ulimit -f 16 && exec \"$0\" --exact file::tests::limited --ignored"])
            .arg(std::env::current_exe().unwrap())
            .env("BROOKLET_TEST_VOLUME", dir.path().join("v"))
            // A profile, where one is taken, would be over the limit, too.
            .env("LLVM_PROFILE_FILE", "/dev/null")
            .stdout(std::process::Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
    }

    #[test]
    #[ignore = "run under a limit by the_file_size_limit_gives_errors_and_no_signal"]
    fn limited() {
        let path = std::env::var_os("BROOKLET_TEST_VOLUME").expect("set by the test that runs this one");
        let too_large = io::ErrorKind::FileTooLarge;
        for io_uring in [true, false] {
            let options = FileOptions { io_uring, ..FileOptions::default() };
            let volume = FileVolume::open(Path::new(&path), OpenMode::ReadWrite, options).unwrap();
            write_all_at(&volume, 0, &filled(SECTOR, 1), Persist::Durable).unwrap();
            for offset in [4 * SECTOR as u64, 100 * SECTOR as u64] {
                assert_eq!(kind(volume.write_at(offset, &filled(SECTOR, 1), Persist::Cached)), too_large);
                let mut queue = volume.queue(1).unwrap();
                let data = filled(SECTOR, 1).freeze();
                queue.submit(0, Op::Write { offset, data, persist: Persist::Cached });
                let mut done = Vec::new();
                queue.reap(true, &mut done);
                assert_eq!(done[0].result.as_ref().unwrap_err().kind(), too_large);
            }
            assert_eq!(kind(volume.grow(2 << 20)), too_large);
        }
    }

    #[test]
    fn both_backends_carry_out_what_is_submitted() {
        for io_uring in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let volume = create(&dir, FileOptions { io_uring, ..FileOptions::default() });
            let mut queue = volume.queue(32).unwrap();
            let mut done = Vec::new();
            let mut rng = Rng::new(1);
            for token in 0..200u64 {
                while queue.in_flight() == 32 {
                    queue.reap(true, &mut done);
                }
                let persist = if rng.percent(10) { Persist::Durable } else { Persist::Cached };
                let data = filled(SECTOR, token as u8).freeze();
                queue.submit(token, Op::Write { offset: token * SECTOR as u64, data, persist });
                queue.reap(false, &mut done);
            }
            while queue.in_flight() > 0 {
                queue.reap(true, &mut done);
            }
            queue.reap(true, &mut done); // nothing in flight: returns at once
            done.sort_by_key(|c| c.token);
            assert!(done.iter().map(|c| c.token).eq(0..200));
            assert!(done.iter().all(|c| matches!(c.result, Ok(SECTOR))), "{done:?}");

            for token in 0..16 {
                let offset = token * 16 * SECTOR as u64;
                queue.submit(token, Op::Read { offset, buf: AlignedBuf::zeroed(16 * SECTOR) });
            }
            done.clear();
            while queue.in_flight() > 0 {
                queue.reap(true, &mut done);
            }
            for Completion { token, result, buf } in done {
                let buf = buf.unwrap();
                assert_eq!((result.unwrap(), buf.len()), (16 * SECTOR, 16 * SECTOR));
                for (i, sector) in buf.chunks(SECTOR).enumerate() {
                    let number = token * 16 + i as u64;
                    let byte = if number < 200 { number as u8 } else { 0 };
                    assert!(sector.iter().all(|&b| b == byte), "{io_uring} {number}");
                }
            }
        }
    }

    #[test]
    fn a_read_at_the_end_is_short() {
        for io_uring in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let volume = create(&dir, FileOptions { io_uring, ..FileOptions::default() });
            let mut queue = volume.queue(2).unwrap();
            let offset = (1 << 20) - SECTOR as u64;
            queue.submit(0, Op::Read { offset, buf: AlignedBuf::zeroed(4 * SECTOR) });
            let mut done = Vec::new();
            queue.reap(true, &mut done);
            assert!(matches!(done[0].result, Ok(SECTOR)));
            assert_eq!(done[0].buf.as_ref().unwrap().len(), SECTOR);
        }
    }

    #[test]
    fn dropping_a_queue_finishes_what_is_in_flight() {
        for io_uring in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let volume = create(&dir, FileOptions { io_uring, ..FileOptions::default() });
            let mut queue = volume.queue(64).unwrap();
            for token in 0..64 {
                let data = filled(SECTOR, 8).freeze();
                queue.submit(
                    token,
                    Op::Write { offset: token * SECTOR as u64, data, persist: Persist::Cached },
                );
            }
            drop(queue);
            let mut buf = AlignedBuf::zeroed(64 * SECTOR);
            read_exact_at(&volume, 0, &mut buf).unwrap();
            assert!(buf.iter().all(|&b| b == 8));
        }
    }

    #[test]
    fn a_queue_has_a_sane_depth() {
        let dir = tempfile::tempdir().unwrap();
        let volume = create(&dir, FileOptions::default());
        for depth in [0, MAX_DEPTH + 1] {
            assert_eq!(volume.queue(depth).err().map(|e| e.kind()), Some(io::ErrorKind::InvalidInput));
        }
        volume.queue(MAX_DEPTH).unwrap();
    }

    #[test]
    #[should_panic(expected = "is not a multiple")]
    fn alignment_is_asserted() {
        let dir = tempfile::tempdir().unwrap();
        let volume = create(&dir, FileOptions { direct: false, io_uring: false });
        let _ = volume.read_at(512, &mut AlignedBuf::zeroed(SECTOR));
    }
}
