//! The checker: opens the disk that a power cut left, cuts the power again during the recovery, and
//! checks the recovered state.

use std::io::ErrorKind;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use brooklet::io::{Clock, Fault, ManualClock, MemVolume, Rng};
use brooklet::{Error, Store};

use crate::faulty_volume::{FaultyVolume, Interleaver};
use crate::interrupt::{Interrupt, Meanwhile, Place};
use crate::model::{Logs, Moment, shown};
use crate::oracle::{Expectation, Seen, Tolerance, Violation, violated};
use crate::plan::Shape;

/// Most power cuts within one another: during a recovery, during the recovery from that cut, and so
/// on.
pub const DEPTH: usize = 3;

/// The counts of checkers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Number of crash images that were opened and compared, by the depth of the power cut: 0 is a
    /// cut at work, 1 is a cut during a recovery.
    pub points: [u64; DEPTH + 1],
    /// Number of openings that failed with an error of the disk; another opening of the same disk
    /// followed each of them.
    pub restarts: u64,
    /// Number of openings that were rightly refused because of damage.
    pub refused: u64,
    /// Number of entries that were read back after a crash.
    pub entries: u64,
}

impl CheckCounts {
    /// Returns the number of all crash points.
    pub fn total(&self) -> u64 {
        self.points.iter().sum()
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &CheckCounts) {
        self.points.iter_mut().zip(other.points).for_each(|(mine, theirs)| *mine += theirs);
        self.restarts += other.restarts;
        self.refused += other.refused;
        self.entries += other.entries;
    }
}

/// The end of a process, which leaves its disk to the next process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A power cut: writes that were not durable may exist, in part or not at all.
    Cut,
    /// A kill: the process's writes can be read, durable or not.
    Killed,
}

/// A disk after the end of a process.
#[derive(Clone)]
pub struct Left {
    /// The disk, without its planned faults.
    pub disk: MemVolume,
    /// The end of the process.
    pub by: End,
}

impl Left {
    /// Returns the disk that a power cut or a kill now would leave.
    pub fn of(disk: &MemVolume, by: End, seed: u64) -> Self {
        let left = match by {
            End::Cut => disk.crashed(seed),
            End::Killed => disk.killed(),
        };
        Self { disk: left, by }
    }
}

/// Copies the disk in the middle of an opening, as a power cut or a kill would leave it.
struct Taker {
    disk: MemVolume,
    taken: Mutex<Vec<Left>>,
}

impl Interleaver for Taker {
    fn enter(&self, what: Meanwhile, _: bool) {
        let by = if what == Meanwhile::Kill { End::Killed } else { End::Cut };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let seed = taken.len() as u64;
        taken.push(Left::of(&self.disk, by, seed));
    }
}

/// Opens the crash images of stores of one shape.
pub struct Checker<'a> {
    /// Shape of the stores.
    pub shape: &'a Shape,
    /// Source of random numbers.
    pub rng: Rng,
    /// Counts so far.
    pub counts: CheckCounts,
}

impl Checker<'_> {
    /// Opens a left disk and compares the recovered state with the allowed states.
    pub fn examine(&mut self, left: Left, expected: &Expectation) -> Result<(), Violation> {
        self.at_depth(left, expected, 0)
    }

    fn at_depth(&mut self, left: Left, expected: &Expectation, depth: usize) -> Result<(), Violation> {
        self.counts.points[depth] += 1;
        let Left { disk, by } = left;
        let volume = self.shape.volume(disk.clone());
        let taker = Arc::new(Taker { disk: disk.clone(), taken: Mutex::default() });
        let interleaver: Weak<dyn Interleaver> = Arc::downgrade(&(taker.clone() as Arc<dyn Interleaver>));
        volume.invite(interleaver);
        let clock = Arc::new(ManualClock::default());
        clock.advance(Duration::from_millis(expected.now));
        let end = if by == End::Cut { "a power cut" } else { "a kill" };
        let words = format!("{end}{}", " while recovering from one".repeat(depth));
        let within = |Violation(what): Violation| Violation(format!("{words}: {what}"));
        let opened = self.open(&volume, &clock, (by, depth));
        let known = match opened {
            Ok(store) => {
                let known = self.look(&store, expected).map_err(within)?;
                let more = self.rng.percent(10) && !expected.tolerance.damaged;
                match more {
                    true => {
                        self.live_on(store, &clock, &disk, &known).map_err(within)?;
                        None
                    }
                    false => {
                        let epoch = store.info().map_or(expected.epoch, |info| info.epoch);
                        store.abandon();
                        Some((known, epoch))
                    }
                }
            }
            Err(error) if is_refusal(&error, expected.tolerance) => {
                self.counts.refused += 1;
                None
            }
            Err(error) => return violated(format!("{words}: the store does not open: {error}")),
        };
        let taken = std::mem::take(&mut *taker.taken.lock().unwrap_or_else(PoisonError::into_inner));
        for left in taken {
            self.at_depth(left, expected, depth + 1)?;
        }
        // After a power cut, all recovered data is durable. After a kill, only the opening can have
        // made that data durable.
        let again = if by == End::Cut { 10 } else { 50 };
        if let Some((known, epoch)) = known
            && depth < DEPTH
            && self.rng.percent(again)
        {
            // A later opening must recover everything that one opening has shown.
            let expected =
                Expectation { durable: known, unknown: Vec::new(), import: None, epoch, ..expected.clone() };
            let by = if self.rng.percent(25) { End::Killed } else { End::Cut };
            let left = Left::of(&disk, by, self.rng.next());
            self.at_depth(left, &expected, depth + 1)?;
        }
        Ok(())
    }

    /// Opens the store like a supervisor: after a failure of the disk, opens it again on the same
    /// disk. The disk has no more faults afterwards.
    fn open(
        &mut self,
        volume: &FaultyVolume,
        clock: &Arc<ManualClock>,
        (by, depth): (End, usize),
    ) -> Result<Store, Error> {
        // After a kill, some readable data is not durable, and stays so if a flush fails.
        if self.rng.percent(if by == End::Killed { 50 } else { 8 }) {
            let (kind, sticky) = (ErrorKind::Other, false);
            volume.disk.fail(match self.rng.below(5) {
                0 => Fault::ErrorAfter { operations: self.rng.below(8), kind, sticky },
                1 => Fault::ReadErrorAfter { reads: self.rng.below(6), kind, sticky },
                _ => Fault::FlushErrorAfter { flushes: self.rng.below(4) / 2, kind, sticky },
            });
        }
        loop {
            volume.begin(&self.ends(depth));
            let failures = volume.disk.failures();
            let opened = self.shape.open(volume, clock, self.rng.next());
            volume.begin(&[]);
            match opened {
                Err(Error::Io { .. } | Error::Stopped { .. }) if volume.disk.failures() > failures => {
                    self.counts.restarts += 1;
                }
                opened => {
                    volume.disk.heal();
                    return opened;
                }
            }
        }
    }

    /// Draws the power cuts and kills during an opening.
    fn ends(&mut self, depth: usize) -> Vec<Interrupt> {
        let mut ends = Vec::new();
        while depth < DEPTH && ends.len() < 3 && self.rng.percent(40) {
            let after = self.rng.below(14);
            let what = if self.rng.percent(25) { Meanwhile::Kill } else { Meanwhile::Cut };
            ends.push(Interrupt { after, place: Place::Anywhere, what });
        }
        ends
    }

    fn look(&mut self, store: &Store, expected: &Expectation) -> Result<Logs, Violation> {
        let info =
            store.info().or_else(|error| violated(format!("it does not tell about itself: {error}")))?;
        if info.epoch <= expected.epoch {
            return violated(format!("epoch {} was there before", info.epoch));
        }
        let thorough = self.rng.percent(20);
        let seen = Seen::of(store, expected.tolerance.damaged, thorough)?;
        let seen = seen.or_else(|error| violated(format!("what was recovered does not read: {error}")))?;
        self.counts.entries += seen.logs.values().map(|log| log.entries.len() as u64).sum::<u64>();
        expected.admit(&seen.at(Moment::at(expected.now)))
    }

    /// Continues to use a store for a while, which has the logs of `known`: all operations must
    /// work, and the store must have these logs afterwards.
    pub fn live_on(
        &mut self,
        store: Store,
        clock: &Arc<ManualClock>,
        disk: &MemVolume,
        known: &Logs,
    ) -> Result<(), Violation> {
        let key = b"the life after";
        let operations = || -> Result<(), Error> {
            drop(store.append(key, b"goes on")?);
            store.flush()?;
            store.checkpoint()?;
            while store.step()? {}
            store.append(key, b"and on")?.wait()?;
            store.close()
        };
        let done = panic::catch_unwind(AssertUnwindSafe(operations)).unwrap_or_else(|panicked| {
            // Dropping the last handle would close a store that cannot be closed after a panic.
            std::mem::forget(store.clone());
            panic::resume_unwind(panicked)
        });
        match done {
            Ok(()) => {}
            // The store is too full for these operations.
            Err(Error::Full { .. }) if self.shape.capacity > 0 => {
                store.abandon();
                return Ok(());
            }
            Err(error) => return violated(format!("the store fails: {error}")),
        }
        drop(store);
        let volume = self.shape.volume(disk.crashed(self.rng.next()));
        let report = self.shape.check(&volume);
        let report = report.or_else(|error| violated(format!("the check fails: {error}")))?;
        if let Some(finding) = report.findings.first() {
            return violated(format!("the store is not sound: {}", finding.what));
        }
        let again = self.shape.open(&volume, clock, 1);
        let again = again.or_else(|error| violated(format!("it does not open once more: {error}")))?;
        let seen =
            Seen::of(&again, false, true)?.or_else(|error| violated(format!("it does not read: {error}")))?;
        again.abandon();
        // If writes keep a pace, time has passed meanwhile.
        let known = &shown(known, &Moment::at(clock.wall().as_millis() as u64));
        let mut logs = seen.logs;
        let after = logs.remove(&key[..]).map_or(0, |log| log.entries.len());
        match (after, crate::model::difference(&logs, known)) {
            (2, same) if same.is_empty() => Ok(()),
            (found, what) => violated(format!("life goes on: {found} of 2 entries; {what}")),
        }
    }
}

/// Returns whether an opening may be refused with this error.
pub fn is_refusal(error: &Error, tolerance: Tolerance) -> bool {
    // With an outdated superblock or label, the ring and the data are of different moments.
    tolerance.damaged
        && matches!(error, Error::Damaged { .. } | Error::NotAStore { .. } | Error::WrongRing { .. })
}
