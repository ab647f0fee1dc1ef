//! Measures which method of durable writes is better here: times both in turns, and compares the
//! medians.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::durable::{FLAG, SYNC};
use super::inner::{FileInner, is_refusal};
use crate::{AlignedBuf, Clock, SECTOR, Tuning};

/// Time limit of the measurement after the first turn of each method: hardly noticeable at the
/// opening of a store.
const BUDGET: Duration = Duration::from_millis(20);

/// Most turns. The number is odd, so that a median exists; a few slow writes do not change the
/// median. The turns take 1 to 2 milliseconds on a fast disk.
const MOST_TURNS: usize = 15;

/// Most sectors that the measured writes use in turn.
const SCRATCH_SECTORS: u64 = 16;

impl FileInner {
    /// Measures both methods in turns, if both are possible, and uses the better one.
    pub(super) fn tune(&self, scratch: Range<u64>) -> io::Result<()> {
        let sectors = self.scratch_sectors(&scratch)?;
        if !self.durable.measurable || !self.durable.flag_works.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Writes all sectors once before the measurement: the first write to newly allocated space
        // costs more than later writes.
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
            let flag_serves = !sync_serves_better(by_flag, by_sync);
            let (by_flag, by_sync) = (by_flag.as_micros(), by_sync.as_micros());
            let why =
                format!("{FLAG} {by_flag} us, {SYNC} {by_sync} us: medians of {turns} measured in turns");
            if self.choose_measured(flag_serves, why) {
                tracing::info!(
                    path = %self.path.display(), durable_by = self.durable_by(), why = self.durable_why(),
                    "volume tuned"
                );
            }
        }
        Ok(())
    }

    /// Returns the measured choice.
    pub(super) fn tuning(&self) -> Option<Tuning> {
        let measured = self.durable.measured.load(Ordering::Relaxed);
        measured
            .then(|| self.device_identity())
            .flatten()
            .map(|device| Tuning { device, by_flag: self.dsync() })
    }

    /// Uses the choice of an earlier opening, if that opening measured this device.
    pub(super) fn adopt(&self, tuning: Tuning) -> bool {
        let may_choose = self.durable.measurable && self.durable.flag_works.load(Ordering::Relaxed);
        let knows = self.device_identity() == Some(tuning.device);
        let why = || {
            format!(
                "measured here by an earlier opening, against {}",
                if tuning.by_flag { SYNC } else { FLAG }
            )
        };
        may_choose && knows && self.choose_measured(tuning.by_flag, why())
    }

    /// Returns a number for the device and the running kernel: a measurement counts for both. A
    /// device may get the number of another one, at worst after a reboot; then the slower method
    /// may be used, which is as safe.
    fn device_identity(&self) -> Option<u64> {
        let metadata = self.file.metadata().ok()?;
        let device = if self.device.is_some() { metadata.rdev() } else { metadata.dev() };
        let system = rustix::system::uname();
        let mut hasher = DefaultHasher::new();
        (device, system.nodename().to_bytes(), system.release().to_bytes()).hash(&mut hasher);
        Some(hasher.finish().max(1))
    }

    /// Returns the number of sectors of `scratch` to use.
    fn scratch_sectors(&self, scratch: &Range<u64>) -> io::Result<u64> {
        let sector = SECTOR as u64;
        if !scratch.start.is_multiple_of(sector) || !scratch.end.is_multiple_of(sector) || scratch.is_empty()
        {
            let message =
                format!("scratch space is whole sectors of {sector} bytes, and some, not {scratch:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        self.check_write(scratch.end - sector, SECTOR)?;
        Ok(((scratch.end - scratch.start) / sector).min(SCRATCH_SECTORS))
    }
}

/// Median times of a durable write.
#[derive(Debug, PartialEq, Eq)]
struct Measured {
    turns: usize,
    by_flag: Duration,
    by_sync: Duration,
}

/// Times both methods in turns, so that other load on the disk affects both alike. Measures nothing
/// if the flag is refused (`false`).
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

/// Returns whether the sync takes at least 10 % less time. A smaller gain does not justify giving
/// up the flag: writes with the flag do not wait for each other.
fn sync_serves_better(by_flag: Duration, by_sync: Duration) -> bool {
    by_sync * 10 <= by_flag * 9
}
