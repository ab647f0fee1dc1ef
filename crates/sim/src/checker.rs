//! The checker: opens what a power cut left, cuts the power again while it recovers, and says
//! whether it is right.

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

/// A power cut during recovery, during the recovery from that, and so on: at most so deep.
pub const DEPTH: usize = 3;

/// What checkers have found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckCounts {
    /// Crash images that were opened and compared, by how deep in recovery the power went: 0 is at
    /// work.
    pub points: [u64; DEPTH + 1],
    /// Openings that failed with an error of the disk, each of which was followed by another on the
    /// same disk.
    pub restarts: u64,
    /// Openings that were refused because of damage, rightly.
    pub refused: u64,
    /// Entries that were read back after a crash.
    pub entries: u64,
}

impl CheckCounts {
    /// All crash points.
    pub fn total(&self) -> u64 {
        self.points.iter().sum()
    }

    /// Adds another's counts.
    pub fn add(&mut self, other: &CheckCounts) {
        self.points.iter_mut().zip(other.points).for_each(|(mine, theirs)| *mine += theirs);
        self.restarts += other.restarts;
        self.refused += other.refused;
        self.entries += other.entries;
    }
}

/// How a process ends, and leaves its disk to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By a power cut: of what was not durable, anything may be there.
    Cut,
    /// It is killed: what it wrote can be read, durable or not.
    Killed,
}

/// A disk that somebody left.
#[derive(Clone)]
pub struct Left {
    /// The disk; its own faults are over.
    pub disk: MemVolume,
    /// How.
    pub by: End,
}

impl Left {
    /// What is left of `disk` if the power is cut now, or whoever uses it is killed.
    pub fn of(disk: &MemVolume, by: End, seed: u64) -> Self {
        let left = match by {
            End::Cut => disk.crashed(seed),
            End::Killed => disk.killed(),
        };
        Self { disk: left, by }
    }
}

/// Takes what a power cut would leave, or the death of the process, in the middle of an opening.
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

/// Opens crash images of stores of one shape.
pub struct Checker<'a> {
    /// The shape.
    pub shape: &'a Shape,
    /// Where chances come from.
    pub rng: Rng,
    /// What was seen.
    pub counts: CheckCounts,
}

impl Checker<'_> {
    /// Opens what was left and compares what it shows with what it may show.
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
        // What was there before a power cut is durable. After a kill, only the opening can have
        // made it so.
        let again = if by == End::Cut { 10 } else { 50 };
        if let Some((known, epoch)) = known
            && depth < DEPTH
            && self.rng.percent(again)
        {
            // What one opening has shown, no later one may miss.
            let expected =
                Expectation { durable: known, unknown: Vec::new(), import: None, epoch, ..expected.clone() };
            let by = if self.rng.percent(25) { End::Killed } else { End::Cut };
            let left = Left::of(&disk, by, self.rng.next());
            self.at_depth(left, &expected, depth + 1)?;
        }
        Ok(())
    }

    /// Opens the store, as whoever watches over a process does: where the disk fails meanwhile,
    /// once more on the same disk. After that it is a good disk.
    fn open(
        &mut self,
        volume: &FaultyVolume,
        clock: &Arc<ManualClock>,
        (by, depth): (End, usize),
    ) -> Result<Store, Error> {
        // After a kill some of what can be read is not durable, and a flush that fails leaves it
        // so.
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

    /// Where the power goes, or the process dies, during an opening.
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

    /// Goes on with a recovered store for a while: it must be good for everything.
    fn live_on(
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
            // Dropping the last handle would close a store that is in no state to be closed.
            std::mem::forget(store.clone());
            panic::resume_unwind(panicked)
        });
        match done {
            Ok(()) => {}
            // It has no room left for this life.
            Err(Error::Full { .. }) if self.shape.capacity > 0 => {
                store.abandon();
                return Ok(());
            }
            Err(error) => return violated(format!("the recovered store fails: {error}")),
        }
        drop(store);
        let volume = self.shape.volume(disk.crashed(self.rng.next()));
        let report = self.shape.check(&volume);
        let report = report.or_else(|error| violated(format!("the check fails: {error}")))?;
        if let Some(finding) = report.findings.first() {
            return violated(format!("the recovered store is not sound: {}", finding.what));
        }
        let again = self.shape.open(&volume, clock, 1);
        let again = again.or_else(|error| violated(format!("it does not open once more: {error}")))?;
        let seen =
            Seen::of(&again, false, true)?.or_else(|error| violated(format!("it does not read: {error}")))?;
        again.abandon();
        // Where writes keep a pace, time has passed meanwhile.
        let known = &shown(known, &Moment::at(clock.wall().as_millis() as u64));
        let mut logs = seen.logs;
        let after = logs.remove(&key[..]).map_or(0, |log| log.entries.len());
        match (after, crate::model::difference(&logs, known)) {
            (2, same) if same.is_empty() => Ok(()),
            (found, what) => violated(format!("life after recovery: {found} of 2 entries; {what}")),
        }
    }
}

/// Whether an opening may be refused so.
pub fn is_refusal(error: &Error, tolerance: Tolerance) -> bool {
    // A superblock or a label that reads as it once was makes the ring and the data be of different
    // moments.
    tolerance.damaged
        && matches!(error, Error::Damaged { .. } | Error::NotAStore { .. } | Error::WrongRing { .. })
}
