//! Building a codex file from entries in any order.
//!
//! The builder takes entries into a segment. When the segment is full, a thread sorts it while the
//! next segment fills. When memory is full, or after the last entry, the sorted segments are
//! merged, range by range; any free thread packs a range. Entries that exceed the memory go into a
//! temporary file, one sorted stretch each time, and are merged from there at the end.
//!
//! While entries come in order, segments need no sorting: they are packed and written *directly*,
//! each up to the start of its last range. The temporary file then becomes the target file.
//!
//! Invariants:
//! 1. The order of stretches, and then segments, is the order in which their entries came: of two
//!    entries with the same key, the entry in the earlier source came first.
//! 2. The new file gets the target name only when all of it is on the medium; the name of the
//!    temporary file does not outlive it.
//! 3. The same entries, each key once, produce the same file, bit for bit, in any order, and with
//!    any memory and threads: each entry alone decides whether a range begins with it, and each
//!    range is packed alone.

mod sorter;

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::{fmt, mem};

use tempfile::NamedTempFile;

use crate::arena::Arena;
use crate::binder::{Binder, Output, Summary};
use crate::builder::check_lens;
use crate::error::{Error, Result, check_len};
use crate::limits::MAX_METADATA;
use crate::merge::{Merge, pack_entry};
use crate::options::{BuilderOptions, FileOptions};
use crate::pack::{Packed, Packer};
use crate::progress::{OnProgress, Progress, report};
use crate::sort::{Scratch, Segment, Sorted};
use crate::spill::Spill;
use crate::write::Writer;

pub use sorter::Sorter;

/// Bytes of a segment. Small segments are slow, because each range searches all segments.
const SEGMENT: usize = 16 << 20;
/// Minimum bytes of a segment: a range usually begins in such a segment.
const LEAST_SEGMENT: usize = if cfg!(test) { 8 << 10 } else { 1 << 20 };
/// Most threads that sort and pack.
const MOST_THREADS: usize = 1024;
/// Memory for the sort of a segment, as a multiple of the segment: the segment, its slots, and the
/// result.
const SORTING: usize = 3;

/// A builder of a codex file from entries in any order, in bounded memory, with all cores.
///
/// The file appears under its name when it is complete and on the medium, and not before. Dropping
/// the builder leaves nothing behind. The file has the mode 600: it belongs to its user alone.
///
/// ```
/// use brooklet_codex::{FileBuilder, FileOptions, Reader};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("trees.codex");
///
/// let mut builder = FileBuilder::new(&path, FileOptions::default())?;
/// for (key, value) in [("oak", "quercus"), ("ash", "fraxinus"), ("elm", "ulmus")] {
///     builder.add(key.as_bytes(), value.as_bytes())?;
/// }
/// let summary = builder.finish()?;
///
/// let reader = Reader::open(std::fs::File::open(&path)?, summary.len, Some(summary.footer_sum))?;
/// assert_eq!(reader.get(b"elm")?.as_deref(), Some(&b"ulmus"[..]));
/// let mut cursor = reader.cursor();
/// assert!(cursor.next()? && cursor.key() == b"ash");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FileBuilder {
    path: PathBuf,
    options: FileOptions,
    threads: usize,
    /// The segment that fills, and its final size in bytes.
    open: Segment,
    room: usize,
    /// Segments at work, in order.
    jobs: VecDeque<Job>,
    sorted: Vec<Sorted>,
    spill: Option<Spill>,
    /// Filter and counts of the temporary file, while it may become the target file: all entries so
    /// far have ascended, and are in it, or about to be.
    direct: Option<Direct>,
    scratch: Vec<Scratch>,
    progress: Progress,
    on_progress: Option<OnProgress>,
    failed: bool,
}

/// The state of a file that is written directly.
struct Direct {
    last: Option<Vec<u8>>,
    /// Everything that the binder needs, except the blocks.
    packed: Packed,
}

struct Job {
    handle: JoinHandle<Result<Done>>,
    bytes: usize,
}

/// The result of a segment's job.
enum Done {
    Sorted(Sorted, Scratch),
    Packed(PackedSegment),
}

struct PackedSegment {
    packed: Packed,
    last: Vec<u8>,
    /// Memory for reuse.
    bytes: Arena,
}

impl FileBuilder {
    /// Creates a builder of the file `path`. Before the first write, the builder creates a
    /// temporary file in the same folder.
    ///
    /// # Errors
    /// [`Error::Exists`] if a file of that name exists and [`FileOptions::replace`] is `false`.
    pub fn new(path: impl AsRef<Path>, options: FileOptions) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        if !options.replace && path.symlink_metadata().is_ok() {
            return Err(Error::Exists { path });
        }
        Ok(Self::of(path, options))
    }

    fn of(path: PathBuf, options: FileOptions) -> Self {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let threads = if options.threads == 0 { cores() } else { options.threads.min(MOST_THREADS) };
        let room = (options.memory / (2 * SORTING * (threads + 1))).clamp(LEAST_SEGMENT, SEGMENT);
        FileBuilder {
            path,
            options: FileOptions { blocks: options.blocks.sound(), ..options },
            threads,
            open: Segment::default(),
            room,
            jobs: VecDeque::new(),
            sorted: Vec::new(),
            spill: None,
            direct: Some(Direct { last: None, packed: Packed::default() }),
            scratch: Vec::new(),
            progress: Progress::default(),
            on_progress: None,
            failed: false,
        }
    }

    /// Sets `f` as the receiver of the progress, several times a second. If `f` returns `Break`,
    /// the current call fails with [`Error::Cancelled`].
    pub fn on_progress(&mut self, f: impl FnMut(Progress) -> ControlFlow<()> + Send + 'static) {
        self.on_progress = Some(Box::new(f));
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`Error::TooLarge`] leaves the builder as it was. After any other error, every call fails:
    /// [`Error::Io`], [`Error::Duplicate`] (a later call may report it), [`Error::Cancelled`].
    #[inline]
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check()?;
        check_lens(key, value)?;
        if self.open.is_full(key.len() + value.len(), self.room) {
            self.turn_over()?;
        }
        self.open.push(key, value);
        self.progress.bytes += (key.len() + value.len()) as u64;
        Ok(())
    }

    /// Completes the file, and renames it to its final name.
    ///
    /// # Errors
    /// The same errors as [`add`](Self::add); [`Error::Exists`] if a file of that name has appeared
    /// since [`new`](Self::new); [`Error::TooLarge`] as of
    /// [`Builder::finish`](crate::Builder::finish).
    pub fn finish(self) -> Result<Summary> {
        self.finish_with(&[])
    }

    /// Completes the file like [`finish`](Self::finish), with the caller's metadata for
    /// [`Reader::metadata`](crate::Reader::metadata); empty for none.
    ///
    /// # Errors
    /// The same errors as [`finish`](Self::finish), and [`Error::TooLarge`] if the metadata exceeds
    /// [`MAX_METADATA`] bytes.
    pub fn finish_with(mut self, metadata: &[u8]) -> Result<Summary> {
        check_len("the metadata", metadata.len(), MAX_METADATA)?;
        self.check()?;
        let rest = mem::take(&mut self.open);
        self.progress.entries += rest.entries();
        if self.goes_on(&rest) {
            self.finish_direct(rest, metadata)
        } else {
            self.finish_merged(rest, metadata)
        }
    }

    #[inline]
    fn check(&self) -> Result<()> {
        if self.failed {
            return Err(io::Error::other("an earlier call failed; nothing is built").into());
        }
        Ok(())
    }

    /// Returns whether a segment continues the temporary file, which holds all entries so far.
    fn goes_on(&self, segment: &Segment) -> bool {
        let Some(direct) = &self.direct else { return false };
        let follows = || direct.last.as_deref().is_none_or(|last| last < segment.first());
        segment.is_ascending() && (segment.entries() == 0 || follows())
    }

    /// Sends the current segment to be sorted or packed, and begins another.
    #[cold]
    fn turn_over(&mut self) -> Result<()> {
        self.failed = true;
        if self.open.entries() > 0 && self.goes_on(&self.open) {
            self.go_on()?;
        } else {
            self.sort_open()?;
        }
        report(&mut self.on_progress, &self.progress)?;
        self.failed = false;
        Ok(())
    }

    /// Packs the current segment as it is, except its last range, which begins the next segment.
    fn go_on(&mut self) -> Result<()> {
        let Some(cut) = self.open.last_range() else {
            // The segment becomes larger: seldom by much.
            return if self.open.len() <= self.options.memory { Ok(()) } else { self.sort_open() };
        };
        let scratch = self.scratch.pop().unwrap_or_default();
        let tail = self.open.split_off(cut, scratch.bytes, self.room);
        let segment = mem::replace(&mut self.open, tail);
        self.progress.entries += segment.entries();
        self.direct.as_mut().expect("it goes on there").last = Some(segment.last().to_vec());
        let options = self.options.blocks.clone();
        self.start(segment.len(), move || Ok(pack_segment(segment, &options)))
    }

    fn sort_open(&mut self) -> Result<()> {
        self.direct = None;
        let mut scratch = self.scratch.pop().unwrap_or_default();
        let next = Segment::within(mem::take(&mut scratch.bytes), self.room);
        let segment = mem::replace(&mut self.open, next);
        if segment.entries() == 0 {
            return Ok(());
        }
        self.progress.entries += segment.entries();
        let rule = self.options.duplicates;
        self.start(segment.len(), move || {
            let sorted = segment.sort(rule, &mut scratch)?;
            Ok(Done::Sorted(sorted, scratch))
        })?;
        if self.memory() > self.options.memory {
            self.settle_all()?;
            self.spill_sorted()?;
        }
        Ok(())
    }

    /// Returns the bytes of memory that entries take now.
    fn memory(&self) -> usize {
        let sorted: usize = self.sorted.iter().map(Sorted::memory).sum();
        let jobs: usize = self.jobs.iter().map(|job| job.bytes).sum();
        sorted + SORTING * (jobs + self.room)
    }

    /// Starts a job, after earlier jobs end if too many run.
    fn start(&mut self, bytes: usize, work: impl FnOnce() -> Result<Done> + Send + 'static) -> Result<()> {
        while self.jobs.len() >= self.threads || self.jobs.front().is_some_and(|job| job.handle.is_finished())
        {
            self.settle_one()?;
        }
        let handle = thread::Builder::new().name("codex-sort".into()).spawn(work)?;
        self.jobs.push_back(Job { handle, bytes });
        Ok(())
    }

    fn settle_all(&mut self) -> Result<()> {
        while !self.jobs.is_empty() {
            self.settle_one()?;
        }
        Ok(())
    }

    /// Waits for the oldest job, and takes its result.
    fn settle_one(&mut self) -> Result<()> {
        let job = self.jobs.pop_front().expect("there is one");
        match job.handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))? {
            Done::Sorted(sorted, scratch) => {
                self.sorted.push(sorted);
                self.scratch.push(scratch);
                Ok(())
            }
            Done::Packed(packed) => self.append(packed),
        }
    }

    /// Writes a segment that was packed directly.
    fn append(&mut self, done: PackedSegment) -> Result<()> {
        let PackedSegment { packed, last, bytes } = done;
        if self.spill.is_none() {
            let mut spill = Spill::new(temporary(&self.path)?);
            spill.begin();
            self.spill = Some(spill);
        }
        let spill = self.spill.as_mut().expect("it was just made");
        spill.append(&packed)?;
        spill.end(last);
        if let Some(direct) = &mut self.direct {
            direct.packed.absorb(packed);
        }
        self.scratch.push(Scratch { bytes, ..Scratch::default() });
        Ok(())
    }

    /// Merges the entries in memory into a stretch of the temporary file.
    fn spill_sorted(&mut self) -> Result<()> {
        let merge = Merge::new(None, &self.sorted, &self.options, self.threads);
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(Spill::new(temporary(&self.path)?)),
        };
        spill.begin();
        merge.run(self.threads, &mut self.progress, &mut self.on_progress, |packed| spill.append(&packed))?;
        spill.end(merge.last().unwrap_or_default());
        self.sorted.clear();
        Ok(())
    }

    /// Completes the temporary file, which becomes the target file.
    fn finish_direct(mut self, rest: Segment, metadata: &[u8]) -> Result<Summary> {
        self.settle_all()?;
        let Done::Packed(rest) = pack_segment(rest, &self.options.blocks) else { unreachable!("it packs") };
        self.append(rest)?;
        let mut spill = self.spill.take().expect("something was appended");
        let mut packed = self.direct.take().expect("all came in order").packed;
        packed.blocks = mem::take(&mut spill.blocks);
        let mut binder = Binder::new(self.options.blocks.clone());
        binder.push(&mut packed, 0);
        self.publish(spill.writer, binder, metadata)
    }

    /// Sorts all entries.
    fn sort_all(&mut self, rest: Segment) -> Result<()> {
        self.direct = None;
        // This thread sorts the rest, while other threads sort the other segments.
        let rest = rest.sort(self.options.duplicates, &mut Scratch::default())?;
        self.settle_all()?;
        self.sorted.push(rest);
        self.scratch.clear();
        Ok(self.spill.as_mut().map_or(Ok(()), |spill| spill.writer.settle())?)
    }

    /// Merges everything into the target file.
    fn finish_merged(mut self, rest: Segment, metadata: &[u8]) -> Result<Summary> {
        self.sort_all(rest)?;
        let (mut writer, mut binder) =
            (Writer::new(temporary(&self.path)?), Binder::new(self.options.blocks.clone()));
        let merge = Merge::new(self.spill.as_ref(), &self.sorted, &self.options, self.threads);
        merge.run(self.threads, &mut self.progress, &mut self.on_progress, |mut packed| {
            let base = writer.written();
            writer.write_all(&packed.frames)?;
            binder.push(&mut packed, base);
            Ok(())
        })?;
        (self.spill, self.sorted) = (None, Vec::new());
        self.publish(writer, binder, metadata)
    }

    /// Writes the end of the file, makes the file durable, and renames it to its final name.
    fn publish(self, mut writer: Writer, binder: Binder, metadata: &[u8]) -> Result<Summary> {
        let written = writer.written();
        let summary = binder.finish(&mut Output::at(&mut writer, written), metadata)?;
        let file = writer.finish()?;
        let named =
            if self.options.replace { file.persist(&self.path) } else { file.persist_noclobber(&self.path) };
        match named {
            Ok(_) => {}
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(Error::Exists { path: self.path });
            }
            Err(error) => return Err(error.error.into()),
        }
        File::open(folder(&self.path))?.sync_all()?;
        Ok(summary)
    }
}

fn pack_segment(segment: Segment, options: &BuilderOptions) -> Done {
    let (mut packer, mut last) = (Packer::new(options.clone()), Vec::new());
    for (entry, begins_range) in segment.ranges() {
        if begins_range {
            packer.begin_range();
        }
        pack_entry(&mut packer, options, entry);
    }
    last.extend_from_slice(packer.last());
    Done::Packed(PackedSegment { packed: packer.finish(), last, bytes: segment.into_bytes() })
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a temporary file in the folder of the target file.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".");
    tempfile::Builder::new()
        .prefix(&name)
        .suffix(".part")
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(folder(path))
}

impl fmt::Debug for FileBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileBuilder({}, {:?})", self.path.display(), self.progress)
    }
}

#[cfg(test)]
mod tests;
