//! The methods of durable writes: a flag on the write, or a sync after the write.
//!
//! Invariants:
//! - Both methods give the same guarantee, so the choice may change at any time, even while writes
//!   are in flight.
//! - Once `flag_works` is false, it stays false, and `by_flag` too, with a line in `fallbacks`
//!   (unless the options forbid the flag). The kernel may refuse the flag during the measurement,
//!   so once the volume is shared, both change only under the lock of `why`.

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[cfg(not(target_os = "linux"))]
use rustix::io::Errno;

use super::inner::{FileInner, is_refusal, retry};
use super::{Durable, FileOptions};
use crate::seeded::bug;
use crate::{Clock, SystemClock};

pub(super) const FLAG: &str = "RWF_DSYNC";
pub(super) const SYNC: &str =
    if cfg!(target_os = "macos") { "write + F_FULLFSYNC" } else { "write + fdatasync" };

/// The method in use.
#[derive(Debug)]
pub(super) struct DurableBy {
    /// Whether durable writes carry `RWF_DSYNC`.
    pub(super) by_flag: AtomicBool,
    /// Whether durable writes could carry `RWF_DSYNC`.
    pub(super) flag_works: AtomicBool,
    /// Whether the options leave the choice to a measurement.
    pub(super) measurable: bool,
    /// Whether the method in use was measured, by this opening or an earlier one.
    pub(super) measured: AtomicBool,
    why: Mutex<String>,
    pub(super) calls: Calls,
}

/// The system calls. Tests replace them with slow and failing ones.
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
            measured: AtomicBool::new(false),
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
    /// Runs [`sync`](Self::sync), and checks that the file is still the one that was synced.
    pub(super) fn flush(&self) -> io::Result<()> {
        self.sync()?;
        self.watch().inspect_err(|e| self.syncs.fail(e))
    }

    /// Makes all earlier writes durable, in one sync for all concurrent callers. A failure is
    /// final.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.syncs.sync(|| {
            let result = (self.durable.calls.sync)(&self.file);
            self.counters.flushed();
            result
        })
    }

    /// Returns whether durable writes carry `RWF_DSYNC`.
    pub(crate) fn dsync(&self) -> bool {
        self.durable.by_flag.load(Ordering::Relaxed)
    }

    pub(super) fn durable_by(&self) -> &'static str {
        if self.dsync() { FLAG } else { SYNC }
    }

    pub(super) fn durable_why(&self) -> String {
        self.durable.why.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Switches to the method that measured better; returns `false`, and does nothing, if the
    /// kernel refused the flag meanwhile.
    pub(super) fn choose_measured(&self, by_flag: bool, why: String) -> bool {
        let mut told = self.durable.why.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.durable.flag_works.load(Ordering::Relaxed) {
            return false;
        }
        self.durable.by_flag.store(by_flag, Ordering::Relaxed);
        self.durable.measured.store(true, Ordering::Relaxed);
        *told = why;
        true
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
        if refusal.is_none() || !bug("file-refused-flag-needs-no-sync") {
            self.sync()?;
        }
        // The plain write succeeded, so the kernel refused the flag and not the write.
        if let Some(e) = refusal {
            self.flag_failed(&e);
        }
        Ok(n)
    }

    /// Writes with `RWF_DSYNC`. A write whose flag is refused is not counted: nothing reached the
    /// device.
    pub(super) fn write_by_flag(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let result = retry(|| (self.durable.calls.write_flagged)(&self.file, offset, data));
        if !result.as_ref().is_err_and(is_refusal) {
            self.counters.written(&result, true);
        }
        result
    }

    pub(super) fn flag_failed(&self, e: &io::Error) {
        let mut told = self.durable.why.lock().unwrap_or_else(PoisonError::into_inner);
        self.durable.by_flag.store(false, Ordering::Relaxed);
        self.durable.measured.store(false, Ordering::Relaxed);
        if self.durable.flag_works.swap(false, Ordering::Relaxed) {
            *told = format!("{FLAG} failed: {e}");
            self.note(format!("durable writes use fdatasync: {FLAG} failed: {e}"));
        }
    }

    /// Chooses the method when the file is opened. The first durable write shows whether the kernel
    /// supports `RWF_DSYNC`.
    pub(super) fn choose_durable(&mut self, options: &FileOptions) -> io::Result<()> {
        self.durable.measurable = options.durable == Durable::Probe;
        if options.durable == Durable::Flush {
            self.durable.why = Mutex::new("the options ask for it".into());
        } else if let Some(why) = self.flag_trouble()? {
            self.durable.why = Mutex::new(why.clone());
            // Other systems have no better method.
            if cfg!(target_os = "linux") {
                self.note(format!("durable writes use fdatasync: {why}"));
            }
        } else {
            *self.durable.by_flag.get_mut() = true;
            *self.durable.flag_works.get_mut() = true;
            let asked = options.durable == Durable::Dsync;
            let why = if asked { "the options ask for it" } else { "not measured against others" };
            self.durable.why = Mutex::new(why.into());
        }
        Ok(())
    }

    /// Returns the reason why `RWF_DSYNC` is not reliable, if one is known.
    #[cfg(target_os = "linux")]
    fn flag_trouble(&self) -> io::Result<Option<String>> {
        if !self.direct {
            // The kernel reports a failed write-back to one of the writing threads; see
            // `SharedSync`.
            return Ok(Some("they go through the page cache".into()));
        }
        // FUSE accepts the flag, but under direct I/O sends no sync to the file system's process.
        Ok(self.strange_file_system()?.map(|kind| format!("{kind} may drop {FLAG}")))
    }

    #[cfg(not(target_os = "linux"))]
    fn flag_trouble(&self) -> io::Result<Option<String>> {
        Ok(Some(format!("this system has no {FLAG}")))
    }
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
