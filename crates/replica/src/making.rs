//! A file that a thread makes while its host reads the log on.
//!
//! The copy of a backup may take longer than the time between two backups, and each backup lets the
//! log begin behind it. A host that read nothing meanwhile would find the log trimmed past its new
//! file, and begin again for ever. So the blocks that come meanwhile wait in a second file, and the
//! thread lets the new file catch up with them, too: that must not hold up the reading either.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use brooklet::{CaughtUp, Kept, Options, Progress, SealedBlock};
use tokio::time::Instant;

use crate::cutter::LENGTH;
use crate::error::Error;

/// Bytes of blocks with which the file catches up at a time.
const PORTION: usize = 16 << 20;
/// Number of portions after which the file merges its runs, and the longest time for that.
const MERGES: u32 = 4;
const MERGING: Duration = Duration::from_secs(2);
/// Pause before the next opening of a file that another process has open.
const AGAIN: Duration = Duration::from_millis(200);
/// Longest time for which that is tried: more and more blocks wait meanwhile.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file of a store in the making; see [`start`](Self::start).
pub struct Making {
    path: PathBuf,
    /// The thread, until its end was looked at.
    thread: Option<JoinHandle<Result<(), brooklet::Error>>>,
    /// When the thread last wrote the file, if the log has all of the file.
    written: Arc<Mutex<Option<SystemTime>>>,
    ends: Arc<AtomicBool>,
    is_used: bool,
    later: Arc<Mutex<Later>>,
}

impl Making {
    /// Begins to make the file at `path` of the history `kept`, in a thread, while `goes_on`
    /// returns true. The thread also lets the file catch up with [held](Self::hold) blocks.
    /// Dropping the result ends that; the drop waits for a read of the backup, or a portion of
    /// blocks, that is under way.
    ///
    /// # Errors
    /// [`Error::Store`] if the blocks that come meanwhile can be held nowhere; [`Error::Thread`].
    pub fn start(
        options: &Options,
        path: &Path,
        kept: Kept,
        goes_on: impl Fn() -> bool + Send + 'static,
    ) -> Result<Self, Error> {
        let later = Arc::new(Mutex::new(Later::new(&with_suffix(path, ".later"))?));
        let ends = Arc::<AtomicBool>::default();
        // The replica, whose store may be open beside, writes the metrics.
        let options = options.clone().without_metrics();
        let (to, asked) = (path.to_path_buf(), ends.clone());
        let (waiting, written) = (later.clone(), Arc::<Mutex<Option<SystemTime>>>::default());
        let notes = written.clone();
        let work = move || {
            let goes_on = || goes_on() && !asked.load(Ordering::Relaxed);
            let store = kept.store;
            let made = make(options.clone(), &to, kept, &goes_on)?;
            *lock(&notes) = made;
            catch_up(&options, &to, store, &waiting, &notes, &goes_on)
        };
        let thread = thread::Builder::new().name("brooklet-making".into()).spawn(work);
        let thread = Some(thread.map_err(Error::Thread)?);
        Ok(Self { path: path.into(), thread, written, ends, is_used: false, later })
    }

    /// Holds blocks that follow those of the history, and those that were held before.
    ///
    /// # Errors
    /// [`Error::Store`] if they cannot be written. The file is of no use then.
    pub fn hold(&mut self, blocks: &[SealedBlock]) -> Result<(), Error> {
        let held = blocks.iter().try_for_each(|block| lock(&self.later).push(block));
        held.map_err(|cause| self.failed("holding blocks for", cause))
    }

    /// Returns whether the file is made, and has caught up with the held blocks. The last of them
    /// may be [left](Self::next_held).
    ///
    /// # Errors
    /// [`Error::Store`] if it could not be made.
    pub fn is_made(&mut self) -> Result<bool, Error> {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(false);
        }
        match self.thread.take().map(JoinHandle::join) {
            None => Ok(true),
            Some(Ok(made)) => made.map(|()| true).map_err(Error::Store),
            Some(Err(_)) => Err(Error::TaskEnded),
        }
    }

    /// Notes that the caller uses the file, which is made. Returns `false` if it did so before.
    pub fn is_first_use(&mut self) -> bool {
        !std::mem::replace(&mut self.is_used, true)
    }

    /// Returns when the file was last written while it was made, if the log has all of it.
    pub fn written(&self) -> Option<SystemTime> {
        *lock(&self.written)
    }

    /// Ends the making, as a drop does. Returns when the file was last written meanwhile, if it was
    /// made, and the log has all of it.
    pub fn end(mut self) -> Option<SystemTime> {
        self.stop();
        self.written()
    }

    fn stop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Nobody needs the result.
            drop(thread.join());
        }
    }

    /// Returns whether the caller uses the file, and held blocks are to follow.
    pub fn is_used(&self) -> bool {
        self.is_used
    }

    /// Returns whether blocks are held.
    pub fn holds(&self) -> bool {
        lock(&self.later).holds()
    }

    /// Returns the size of the held blocks.
    pub fn bytes(&self) -> u64 {
        lock(&self.later).bytes()
    }

    /// Takes the next of the held blocks, until they have `most` bytes.
    ///
    /// # Errors
    /// [`Error::Store`] if they cannot be read back.
    pub fn next_held(&mut self, most: usize) -> Result<Vec<SealedBlock>, Error> {
        lock(&self.later).take(most).map_err(|cause| self.failed("reading blocks for", cause))
    }

    fn failed(&self, doing: &str, cause: io::Error) -> Error {
        io_error(doing, &self.path, cause)
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for Making {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Making({})", self.path.display())
    }
}

/// Makes the file. Returns when it was written; no time if somebody may have written to it since.
fn make(
    options: Options,
    path: &Path,
    kept: Kept,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<SystemTime>, brooklet::Error> {
    let progress = |_: Progress| if goes_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
    match options.succeed(path, &kept, progress) {
        // The file is made, and another process has opened it already.
        Err(brooklet::Error::Locked { .. }) if path.exists() => Ok(None),
        // Taken here: another process may write to the file before the caller looks at it.
        made => made.and_then(|store| store.close()).map(|()| written(path)),
    }
}

/// Lets the file catch up with the blocks that wait, until less than a portion has come meanwhile.
/// That is left to the caller: the log of a busy owner has more each time. Notes when the file was
/// last written; no time if it has commits that the log lacks.
fn catch_up(
    options: &Options,
    path: &Path,
    store: u128,
    waiting: &Mutex<Later>,
    notes: &Mutex<Option<SystemTime>>,
    goes_on: &dyn Fn() -> bool,
) -> Result<(), brooklet::Error> {
    for portion in 1_u32.. {
        let mut later = lock(waiting);
        if portion > 1 && later.bytes() < PORTION as u64 {
            break;
        }
        let blocks = later.take(PORTION).map_err(|cause| failure("reading blocks for", path, cause))?;
        drop(later);
        if blocks.is_empty() {
            break;
        }
        let begin = Instant::now();
        let merges = || portion.is_multiple_of(MERGES) && goes_on() && begin.elapsed() < MERGING;
        let done = loop {
            if !goes_on() {
                return Err(brooklet::Error::Cancelled { what: "the making of a file" });
            }
            match options.clone().catch_up(path, store, &blocks, merges) {
                Err(brooklet::Error::Locked { .. }) if begin.elapsed() < PATIENCE => {
                    thread::park_timeout(AGAIN);
                }
                done => break done?,
            }
        };
        if matches!(done, CaughtUp::Outdated | CaughtUp::Apart) {
            let cause = io::Error::other("blocks are missing behind its end");
            return Err(failure("catching up with", path, cause));
        }
        *lock(notes) = if done == CaughtUp::Ahead { None } else { written(path) };
    }
    Ok(())
}

/// Returns when a file was last written.
fn written(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).and_then(|found| found.modified()).ok()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Blocks that wait, each behind its length, in a file without a name.
struct Later {
    file: File,
    written: u64,
    read: u64,
}

impl Later {
    fn new(path: &Path) -> Result<Self, Error> {
        remove(path)?;
        let file = File::options().read(true).write(true).create_new(true).open(path);
        let file = file.map_err(|cause| io_error("creating", path, cause))?;
        remove(path)?;
        Ok(Self { file, written: 0, read: 0 })
    }

    fn push(&mut self, block: &SealedBlock) -> io::Result<()> {
        let len = u32::try_from(block.bytes.len()).expect("a block has less than 4 GiB");
        let data = [&len.to_le_bytes()[..], &block.bytes[..]].concat();
        self.file.write_all_at(&data, self.written)?;
        self.written += data.len() as u64;
        Ok(())
    }

    /// Returns the size of the blocks that wait, with their lengths.
    fn bytes(&self) -> u64 {
        self.written - self.read
    }

    fn holds(&self) -> bool {
        self.bytes() > 0
    }

    /// Takes the next blocks, until they have `most` bytes.
    fn take(&mut self, most: usize) -> io::Result<Vec<SealedBlock>> {
        let (mut blocks, mut bytes) = (Vec::new(), 0);
        while self.holds() && bytes < most {
            let block = self.pop()?;
            bytes += block.bytes.len();
            blocks.push(block);
        }
        Ok(blocks)
    }

    fn pop(&mut self) -> io::Result<SealedBlock> {
        let mut len = [0; LENGTH];
        self.file.read_exact_at(&mut len, self.read)?;
        let mut data = vec![0; u32::from_le_bytes(len) as usize];
        self.file.read_exact_at(&mut data, self.read + LENGTH as u64)?;
        self.read += (LENGTH + data.len()) as u64;
        let block = SealedBlock::decode(data.into());
        let block = block.ok_or_else(|| io::Error::other("a block is not as it was written"))?;
        if self.read == self.written {
            self.file.set_len(0)?;
            (self.read, self.written) = (0, 0);
        }
        Ok(block)
    }
}

/// Removes a file, if there is one.
pub(crate) fn remove(path: &Path) -> Result<(), Error> {
    match std::fs::remove_file(path) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => Err(io_error("removing", path, cause)),
        _ => Ok(()),
    }
}

pub(crate) fn io_error(doing: &str, path: &Path, cause: io::Error) -> Error {
    Error::Store(failure(doing, path, cause))
}

fn failure(doing: &str, path: &Path, cause: io::Error) -> brooklet::Error {
    brooklet::Error::Io { doing: format!("{doing} {}", path.display()), cause: Arc::new(cause) }
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}
