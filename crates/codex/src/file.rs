//! Building a codex file from entries in any order.
//!
//! Entries are taken into a segment. When that is full, a thread sorts it while the next one fills.
//! When memory is full, or the entries have come to an end, the sorted segments are merged, range
//! by range, each packed by whichever thread is free. What does not fit in memory goes into a file
//! at work, a sorted stretch each time, and is merged from there at the end.
//!
//! While entries come in order, none of that is needed: segments are packed and written as they
//! are, *directly*, each up to where its last range begins; the file at work is then the one that
//! was asked for.
//!
//! Invariants:
//! 1. The order of segments, and of stretches before them, is that in which their entries came: of
//!    two entries of a key, the one in the earlier source came first.
//! 2. Nothing is under the name asked for before all of it is on the medium; what is at work has no
//!    name that outlives it.
//! 3. The same entries, each key once, give the same file, bit for bit, in whatever order they
//!    come, and whatever memory and threads there are: each entry tells by itself whether a range
//!    begins with it, and ranges are packed by themselves.

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
use crate::builder::{check_len, check_lens};
use crate::error::{Error, Result};
use crate::limits::MAX_METADATA;
use crate::merge::{Merge, pack_entry};
use crate::options::{BuilderOptions, FileOptions};
use crate::pack::{Packed, Packer};
use crate::progress::{OnProgress, Progress, report};
use crate::sort::{Scratch, Segment, Sorted};
use crate::spill::Spill;
use crate::write::Writer;

pub use sorter::Sorter;

/// Bytes of a segment: not too few, as each range takes a look at all segments.
const SEGMENT: usize = 16 << 20;
/// The smallest segment: one in which a range begins, mostly.
const LEAST_SEGMENT: usize = if cfg!(test) { 8 << 10 } else { 1 << 20 };
/// What sorting a segment takes, in segments: itself, its slots, and what comes of it.
const SORTING: usize = 3;

/// Builds a codex file from entries in any order, in bounded memory, with all cores.
///
/// The file appears under its name when it is complete and on the medium, and not before. Dropping
/// the builder leaves nothing behind.
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
    /// The segment that fills, and how large it becomes.
    open: Segment,
    room: usize,
    /// Segments at work, in order.
    jobs: VecDeque<Job>,
    sorted: Vec<Sorted>,
    spill: Option<Spill>,
    /// Filter and counts of the file at work, while it may become the one asked for: all entries so
    /// far have ascended, and are in it, or about to be.
    direct: Option<Direct>,
    scratch: Vec<Scratch>,
    progress: Progress,
    on_progress: Option<OnProgress>,
    failed: bool,
}

/// What a file is that is written directly.
struct Direct {
    last: Option<Vec<u8>>,
    /// All that the binder has to know of besides the blocks.
    packed: Packed,
}

struct Job {
    handle: JoinHandle<Result<Done>>,
    bytes: usize,
}

/// What comes of a segment.
enum Done {
    Sorted(Sorted, Scratch),
    Packed(PackedSegment),
}

struct PackedSegment {
    packed: Packed,
    last: Vec<u8>,
    /// Memory, to be used again.
    bytes: Arena,
}

impl FileBuilder {
    /// A builder of the file `path`. Makes a file at work in the same folder once there is
    /// something to write.
    ///
    /// # Errors
    /// [`Error::Exists`] where there is a file of that name that is not to be replaced.
    pub fn new(path: impl AsRef<Path>, options: FileOptions) -> Result<Self> {
        let path = path.as_ref().to_path_buf();
        if !options.replace && path.symlink_metadata().is_ok() {
            return Err(Error::Exists { path });
        }
        Ok(Self::of(path, options))
    }

    fn of(path: PathBuf, options: FileOptions) -> Self {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let threads = if options.threads == 0 { cores() } else { options.threads };
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

    /// Tells `f` of the progress, some times a second; where that breaks, the call at hand gives
    /// [`Error::Cancelled`].
    pub fn on_progress(&mut self, f: impl FnMut(Progress) -> ControlFlow<()> + Send + 'static) {
        self.on_progress = Some(Box::new(f));
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// [`Error::TooLarge`] leaves the builder as it was. After any other, every call fails:
    /// [`Error::Io`], [`Error::Duplicate`], which may also come later, [`Error::Cancelled`].
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

    /// Completes the file, and puts it under its name.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`Error::Exists`] where a file of that name has come up
    /// meanwhile.
    pub fn finish(self) -> Result<Summary> {
        self.finish_with(&[])
    }

    /// Like [`finish`](Self::finish), with metadata for
    /// [`Reader::metadata`](crate::Reader::metadata); empty for none.
    ///
    /// # Errors
    /// As [`finish`](Self::finish), and [`Error::TooLarge`] over [`MAX_METADATA`] bytes.
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

    /// Whether a segment goes on where the file at work ends, which holds all that came before.
    fn goes_on(&self, segment: &Segment) -> bool {
        let Some(direct) = &self.direct else { return false };
        let follows = || direct.last.as_deref().is_none_or(|last| last < segment.first());
        segment.is_ascending() && (segment.entries() == 0 || follows())
    }

    /// Sends the segment at hand to be sorted or packed, and begins another.
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

    /// Packs the segment at hand as it is, but for its last range, with which the next one begins.
    fn go_on(&mut self) -> Result<()> {
        let Some(cut) = self.open.last_range() else {
            // It becomes larger: seldom by much.
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

    /// Bytes of memory that entries take now.
    fn memory(&self) -> usize {
        let sorted: usize = self.sorted.iter().map(Sorted::memory).sum();
        let jobs: usize = self.jobs.iter().map(|job| job.bytes).sum();
        sorted + SORTING * (jobs + self.room)
    }

    /// Starts a job, when there are not too many already.
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

    /// Waits for the oldest job, and takes what came of it.
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

    /// Writes what was packed directly.
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

    /// Merges what is in memory into a stretch of the file at work.
    fn spill_sorted(&mut self) -> Result<()> {
        let merge = Merge::new(None, &self.sorted, &self.options.blocks, self.options.duplicates);
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

    /// Completes the file at work, which is the one that was asked for.
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

    /// Has everything sorted.
    fn sort_all(&mut self, rest: Segment) -> Result<()> {
        self.direct = None;
        // Sorted here, while the others are sorted elsewhere.
        let rest = rest.sort(self.options.duplicates, &mut Scratch::default())?;
        self.settle_all()?;
        self.sorted.push(rest);
        self.scratch.clear();
        Ok(self.spill.as_mut().map_or(Ok(()), |spill| spill.writer.settle())?)
    }

    /// Merges everything into the file that was asked for.
    fn finish_merged(mut self, rest: Segment, metadata: &[u8]) -> Result<Summary> {
        self.sort_all(rest)?;
        let (mut writer, mut binder) =
            (Writer::new(temporary(&self.path)?), Binder::new(self.options.blocks.clone()));
        let merge =
            Merge::new(self.spill.as_ref(), &self.sorted, &self.options.blocks, self.options.duplicates);
        merge.run(self.threads, &mut self.progress, &mut self.on_progress, |mut packed| {
            let base = writer.written();
            writer.write_all(&packed.frames)?;
            binder.push(&mut packed, base);
            Ok(())
        })?;
        (self.spill, self.sorted) = (None, Vec::new());
        self.publish(writer, binder, metadata)
    }

    /// Writes the end of the file, brings it to the medium, and gives it its name.
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

/// A file at work, beside the one that is asked for.
fn temporary(path: &Path) -> io::Result<NamedTempFile> {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".");
    tempfile::Builder::new()
        .prefix(&name)
        .suffix(".part")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder(path))
}

impl fmt::Debug for FileBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileBuilder({}, {:?})", self.path.display(), self.progress)
    }
}

#[cfg(test)]
mod tests;
