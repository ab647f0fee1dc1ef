//! How writes become durable: by their own flag, or by a sync after them, whichever serves better.
//!
//! Invariants:
//! - Both ways give the same guarantee, so the choice may change at any moment, also while writes are in flight.
//! - Once `flag_works` is false it stays so, and `by_flag` with it, with a line in `fallbacks` (unless the options
//!   forbid the flag).

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

#[cfg(not(target_os = "linux"))]
use rustix::io::Errno;

use super::inner::{FileInner, is_refusal, retry};
use super::{Durable, FileOptions};
use crate::{AlignedBuf, Clock, SECTOR, SystemClock};

/// For how long both ways are measured after each has had its first turn: enough for some dozen syncs of a fast disk,
/// and hardly felt when a store is opened.
const BUDGET: Duration = Duration::from_millis(20);

/// Most turns: an odd number, so that there is a median, that a few slow writes do not move.
const MOST_TURNS: usize = 63;

/// How many sectors the measured writes go round in at most.
const SCRATCH_SECTORS: u64 = 16;

const FLAG: &str = "RWF_DSYNC";
const SYNC: &str = if cfg!(target_os = "macos") { "write + F_FULLFSYNC" } else { "write + fdatasync" };

/// The way in use.
#[derive(Debug)]
pub(super) struct DurableBy {
    /// Whether durable writes carry `RWF_DSYNC`.
    by_flag: AtomicBool,
    /// Whether they could.
    flag_works: AtomicBool,
    /// Whether the options leave the choice to a measurement.
    measurable: bool,
    why: Mutex<String>,
    pub(super) calls: Calls,
}

/// The system's part. Tests put slow and failing calls in its place.
pub(super) struct Calls {
    pub(super) write_flagged: Box<WriteFlagged>,
    pub(super) sync: Box<SyncFile>,
    pub(super) clock: Arc<dyn Clock>,
}

pub(super) type WriteFlagged = dyn Fn(&File, u64, &[u8]) -> io::Result<usize> + Send + Sync;
pub(super) type SyncFile = dyn Fn(&File) -> io::Result<()> + Send + Sync;

impl Default for DurableBy {
    fn default() -> Self {
        Self {
            by_flag: AtomicBool::new(false),
            flag_works: AtomicBool::new(false),
            measurable: false,
            why: Mutex::default(),
            calls: Calls {
                write_flagged: Box::new(write_flagged),
                sync: Box::new(File::sync_data),
                clock: Arc::new(SystemClock::new()),
            },
        }
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Calls")
    }
}

impl FileInner {
    /// [`sync`](Self::sync), and a look at whether the file still is what was synced.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.sync()?;
        self.check_file_between_resizes().inspect_err(|e| self.syncs.fail(e))
    }

    /// Makes everything written before durable, together with others who ask for the same. A failure is final.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.syncs.sync(|| {
            let result = (self.durable.calls.sync)(&self.file);
            self.tally.flushed();
            result
        })
    }

    /// Whether durable writes carry `RWF_DSYNC`.
    pub(crate) fn dsync(&self) -> bool {
        self.durable.by_flag.load(Ordering::Relaxed)
    }

    pub(super) fn durable_by(&self) -> &'static str {
        if self.dsync() { FLAG } else { SYNC }
    }

    pub(super) fn durable_why(&self) -> String {
        self.durable.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_why(&self, why: String) {
        *self.durable.why.lock().unwrap_or_else(PoisonError::into_inner) = why;
    }

    pub(super) fn write_durable(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let mut refusal = None;
        if self.dsync() {
            match self.write_by_flag(offset, data) {
                Err(e) if is_refusal(&e) => refusal = Some(e),
                result => return result,
            }
        }
        let n = self.write(offset, data)?;
        self.sync()?;
        // Only now is it known that the flag was at fault, and not the write.
        if let Some(e) = refusal {
            self.flag_failed(&e);
        }
        Ok(n)
    }

    /// A write with `RWF_DSYNC`. One that is refused the flag is not counted: nothing was sent down.
    fn write_by_flag(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let result = retry(|| (self.durable.calls.write_flagged)(&self.file, offset, data));
        if !result.as_ref().is_err_and(is_refusal) {
            self.tally.written(&result, true);
        }
        result
    }

    fn flag_failed(&self, e: &io::Error) {
        self.durable.by_flag.store(false, Ordering::Relaxed);
        if self.durable.flag_works.swap(false, Ordering::Relaxed) {
            self.set_why(format!("{FLAG} failed: {e}"));
            self.note(format!("durable writes use fdatasync: {FLAG} failed: {e}"));
        }
    }

    /// Chooses the way when the file is opened. Whether the kernel knows `RWF_DSYNC` shows at the first durable write.
    pub(super) fn choose_durable(&mut self, options: &FileOptions) -> io::Result<()> {
        self.durable.measurable = options.durable == Durable::Probe;
        if options.durable == Durable::Flush {
            self.set_why("the options ask for it".into());
        } else if let Some(why) = self.flag_trouble()? {
            self.set_why(why.clone());
            self.note(format!("durable writes use fdatasync: {why}"));
        } else {
            *self.durable.by_flag.get_mut() = true;
            *self.durable.flag_works.get_mut() = true;
            let asked = options.durable == Durable::Dsync;
            self.set_why(if asked { "the options ask for it" } else { "not measured against others" }.into());
        }
        Ok(())
    }

    /// Why `RWF_DSYNC` cannot be relied on, if that is known.
    #[cfg(target_os = "linux")]
    fn flag_trouble(&self) -> io::Result<Option<String>> {
        if !self.direct {
            // A write-back that fails is told to one of the threads that write; see `SharedSync`.
            return Ok(Some("they go through the page cache".into()));
        }
        // FUSE takes the flag, but under direct I/O sends no sync to the file system's process.
        Ok(self.strange_file_system()?.map(|kind| format!("{kind} may drop {FLAG}")))
    }

    #[cfg(not(target_os = "linux"))]
    fn flag_trouble(&self) -> io::Result<Option<String>> {
        Ok(Some(format!("this system has no {FLAG}")))
    }

    /// Measures both ways in turns, where both are possible, and goes on with the better one.
    pub(super) fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        let sectors = self.scratch_sectors(&scratch)?;
        if !self.durable.measurable || !self.durable.flag_works.load(Ordering::Relaxed) {
            return Ok(());
        }
        // The first write to space that is allocated and unwritten costs more than any later one.
        let zeros = AlignedBuf::zeroed(SECTOR);
        let place = |turn: usize| scratch.start + turn as u64 % sectors * SECTOR as u64;
        for sector in 0..sectors as usize {
            self.write(place(sector), &zeros)?;
        }
        self.sync()?;
        let mut refusal = None;
        let by_flag = |turn| match self.write_by_flag(place(turn), &zeros) {
            Err(e) if is_refusal(&e) => {
                refusal = Some(e);
                Ok(false)
            }
            result => result.map(|_| true),
        };
        let by_sync = |turn| {
            self.write(place(turn), &zeros)?;
            self.sync()
        };
        let measured = measure(&*self.durable.calls.clock, by_flag, by_sync)?;
        if let Some(e) = refusal {
            self.flag_failed(&e);
            return Ok(());
        }
        if let Some(Measured { turns, by_flag, by_sync }) = measured {
            self.durable.by_flag.store(!sync_serves_better(by_flag, by_sync), Ordering::Relaxed);
            let (by_flag, by_sync) = (by_flag.as_micros(), by_sync.as_micros());
            self.set_why(format!(
                "{FLAG} {by_flag} us, {SYNC} {by_sync} us: medians of {turns} measured in turns"
            ));
        }
        Ok(())
    }

    /// How many sectors of `scratch` to use.
    fn scratch_sectors(&self, scratch: &Range<u64>) -> io::Result<u64> {
        let sector = SECTOR as u64;
        if !scratch.start.is_multiple_of(sector) || !scratch.end.is_multiple_of(sector) || scratch.is_empty()
        {
            let message =
                format!("scratch space is whole sectors of {sector} bytes, and some, not {scratch:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let sectors = ((scratch.end - scratch.start) / sector).min(SCRATCH_SECTORS);
        self.check_write(scratch.start, (scratch.end - scratch.start) as usize)?;
        Ok(sectors)
    }
}

/// Median times of a durable write.
#[derive(Debug, PartialEq, Eq)]
struct Measured {
    turns: usize,
    by_flag: Duration,
    by_sync: Duration,
}

/// Times both ways in turns, so that whatever else the disk does meets both alike. Nothing is measured if the flag is
/// refused (`false`).
fn measure(
    clock: &dyn Clock,
    mut by_flag: impl FnMut(usize) -> io::Result<bool>,
    mut by_sync: impl FnMut(usize) -> io::Result<()>,
) -> io::Result<Option<Measured>> {
    let (mut flag_times, mut sync_times) = (Vec::new(), Vec::new());
    let mut end = None;
    while flag_times.len() < MOST_TURNS {
        let turn = flag_times.len();
        let start = clock.now();
        if !by_flag(turn)? {
            return Ok(None);
        }
        let middle = clock.now();
        by_sync(turn)?;
        let now = clock.now();
        flag_times.push(middle - start);
        sync_times.push(now - middle);
        if now >= *end.get_or_insert(now + BUDGET) {
            break;
        }
    }
    let turns = flag_times.len();
    Ok(Some(Measured { turns, by_flag: median(flag_times), by_sync: median(sync_times) }))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Whether the sync is quicker by enough to give up the flag, with which writes do not wait for each other.
fn sync_serves_better(by_flag: Duration, by_sync: Duration) -> bool {
    by_sync * 10 <= by_flag * 9
}

#[cfg(target_os = "linux")]
fn write_flagged(file: &File, offset: u64, data: &[u8]) -> io::Result<usize> {
    let flags = rustix::io::ReadWriteFlags::DSYNC;
    Ok(rustix::io::pwritev2(file, &[io::IoSlice::new(data)], offset, flags)?)
}

#[cfg(not(target_os = "linux"))]
fn write_flagged(_file: &File, _offset: u64, _data: &[u8]) -> io::Result<usize> {
    Err(Errno::NOSYS.into())
}
