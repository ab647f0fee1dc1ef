//! The comparison of the acknowledgements of a round with the store after the kill.
//!
//! A writer makes its operations one after another, on logs of its own. After a kill, the store
//! must be as it was after one of these operations: the last acknowledged one, or a later one that
//! was in flight, the same for all logs of the writer. So all acknowledged entries are there, in
//! order and byte for byte; a commit is there whole or not at all; and no entry is missing before
//! an unacknowledged one.

use std::collections::BTreeMap;
use std::thread;

use brooklet::io::Rng;
use brooklet::{Bounds, Error, ErrorKind, Store};

use super::log::Log;
use super::payload::Payloads;
use super::story::{Operation, Story, key};

/// Threads that read.
const READERS: usize = 2;
/// Most defects that are reported.
const TOLD: usize = 10;

/// A log as it is found: its bounds, and the stamps of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    bounds: Option<Bounds>,
    stamps: Vec<u32>,
}

/// The findings of the audits.
#[derive(Default)]
pub struct Audit {
    /// Logs that were compared, and entries in them.
    pub logs: u64,
    pub entries: u64,
    /// What is wrong.
    pub wrong: Vec<String>,
}

/// What the store and the payloads are called together.
#[derive(Clone, Copy)]
pub struct Eyes<'a> {
    pub store: &'a Store,
    pub payloads: &'a Payloads,
}

impl Eyes<'_> {
    /// Reads a log while nobody writes to it. `Err` says what is wrong with it.
    pub fn look(&self, log: u32) -> Result<Found, String> {
        let bounds = match self.store.bounds(key(log)) {
            Ok(bounds) => Some(bounds),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(wrong(log, error)),
        };
        let entries = self.entries(log)?;
        if entries.is_some() != bounds.is_some() {
            return Err(wrong(log, format!("its bounds are {bounds:?}, and it reads as {entries:?}")));
        }
        let (first, stamps) = entries.unwrap_or_default();
        let end = first + stamps.len() as u64;
        match bounds {
            Some(bounds) if !stamps.is_empty() && (bounds.first, bounds.next) != (first, end) => {
                Err(wrong(log, format!("its bounds are {bounds:?}, and it reads from {first} to {end}")))
            }
            Some(bounds) if stamps.len() as u64 != bounds.len() => {
                Err(wrong(log, format!("its bounds are {bounds:?}, and it reads as empty")))
            }
            _ => Ok(Found { bounds, stamps }),
        }
    }

    /// The first entry's number and all stamps of a log, whoever writes to it. `Err` says what is
    /// wrong with it.
    pub fn entries(&self, log: u32) -> Result<Option<(u64, Vec<u32>)>, String> {
        let entries = match self.store.read(key(log), ..) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(log, error)),
        };
        let (mut first, mut stamps) = (None, Vec::new());
        for entry in entries {
            let entry = entry.map_err(|error: Error| wrong(log, error))?;
            let at = *first.get_or_insert(entry.seq) + stamps.len() as u64;
            if entry.seq != at {
                return Err(wrong(log, format!("entry {} comes where {at} should", entry.seq)));
            }
            let stamp = self.payloads.stamp_of(log, at, &entry.payload);
            stamps.push(stamp.ok_or_else(|| wrong(log, format!("entry {at} is not what was written")))?);
        }
        Ok(Some((first.unwrap_or_default(), stamps)))
    }
}

fn wrong(log: u32, what: impl std::fmt::Display) -> String {
    format!("log {log} ({}): {what}", key(log))
}

impl Found {
    fn is(&self, log: &Log) -> bool {
        self.bounds == log.bounds() && self.stamps == log.stamps()
    }

    /// What is wrong, if it is not as it must be.
    pub fn compare(&self, number: u32, log: &Log) -> Result<(), String> {
        if self.is(log) {
            return Ok(());
        }
        Err(wrong(
            number,
            format!("found {self}, must be {}", Found { bounds: log.bounds(), stamps: log.stamps() }),
        ))
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bounds {
            None => write!(f, "none"),
            Some(Bounds { first, next }) => write!(f, "{first}..{next} with stamps {:x?}", self.stamps),
        }
    }
}

impl Audit {
    /// Compares what a writer did in its round, of which so many operations were acknowledged, and
    /// at most `open` more were begun. What is found is what counts from now on.
    pub fn writer(&mut self, eyes: Eyes<'_>, story: &mut Story, acknowledged: u64, open: u64) {
        let mut touched = vec![false; story.logs.len()];
        for _ in 0..acknowledged {
            let operation = story.next();
            operation.done().iter().for_each(|(log, _)| touched[*log as usize] = true);
            story.apply(&operation);
        }
        let mut before = BTreeMap::new();
        let mut operations = Vec::new();
        for _ in 0..open {
            let operation = story.next();
            for &(log, _) in operation.done() {
                before.entry(log).or_insert_with(|| story.logs[log as usize].clone());
                touched[log as usize] = false;
            }
            story.apply(&operation);
            operations.push(operation);
        }
        let settled = self.open(eyes, story, before, &operations);
        settled.into_iter().for_each(|(log, state)| story.logs[log as usize] = state);
        let touched = (0..).zip(touched).filter_map(|(log, touched)| touched.then_some(log));
        self.compare(eyes, story, touched.collect());
    }

    /// Compares some of a writer's logs, taken by chance.
    pub fn sample(&mut self, eyes: Eyes<'_>, story: &Story, some: usize, rng: &mut Rng) {
        let logs = (0..some).map(|_| rng.below(story.logs.len() as u64) as u32);
        self.compare(eyes, story, logs.collect());
    }

    /// Compares all of a writer's logs.
    pub fn all(&mut self, eyes: Eyes<'_>, story: &Story) {
        self.compare(eyes, story, (0..story.logs.len() as u32).collect());
    }

    /// Finds the moment at which the logs of operations in flight stand; the logs as they were at
    /// it. `before` holds them as they were before the first of these operations.
    fn open(
        &mut self,
        eyes: Eyes<'_>,
        story: &Story,
        before: BTreeMap<u32, Log>,
        operations: &[Operation],
    ) -> BTreeMap<u32, Log> {
        let mut found = BTreeMap::new();
        for &log in before.keys() {
            match eyes.look(story.number(log)) {
                Ok(one) => drop(found.insert(log, one)),
                Err(what) => {
                    self.tell(what);
                    return before;
                }
            }
        }
        self.logs += found.len() as u64;
        let mut now = before.clone();
        let mut ever: BTreeMap<u32, bool> = found.keys().map(|log| (*log, false)).collect();
        for done in 0..=operations.len() {
            if done > 0 {
                let steps = operations[done - 1].done();
                steps
                    .iter()
                    .for_each(|(log, step)| story.redo(now.get_mut(log).expect("it is in flight"), *step));
            }
            let fits = found.iter().filter(|(log, one)| one.is(&now[log]));
            let fits: Vec<u32> = fits.map(|(log, _)| *log).collect();
            if fits.len() == found.len() {
                return now;
            }
            fits.into_iter().for_each(|log| *ever.get_mut(&log).expect("it was found") = true);
        }
        let never: Vec<u32> = ever.iter().filter(|(_, ever)| !**ever).map(|(log, _)| *log).collect();
        for log in &never {
            let acknowledged = found[log].compare(story.number(*log), &before[log]);
            let what = acknowledged.expect_err("it does not fit");
            self.tell(format!("{what}, or as one of the {} operations in flight left it", operations.len()));
        }
        if never.is_empty() {
            let logs: Vec<String> =
                found.iter().map(|(log, one)| format!("{}: {one}", story.number(*log))).collect();
            let logs = logs.join("; ");
            self.tell(format!(
                "a commit is half done, or one is missing before another; logs in flight: {logs}"
            ));
        }
        before
    }

    /// Compares logs, several at a time, in the order of their keys: neighbours lie in one block.
    fn compare(&mut self, eyes: Eyes<'_>, story: &Story, mut logs: Vec<u32>) {
        logs.sort_by_cached_key(|log| key(story.number(*log)));
        let one = |log: &u32| {
            let number = story.number(*log);
            let found = eyes.look(number)?;
            found.compare(number, &story.logs[*log as usize]).map(|()| found.stamps.len() as u64)
        };
        let results: Vec<Vec<Result<u64, String>>> = thread::scope(|scope| {
            let parts = logs.chunks(logs.len().div_ceil(READERS).max(1));
            let readers: Vec<_> =
                parts.map(|part| scope.spawn(move || part.iter().map(one).collect())).collect();
            readers.into_iter().map(|reader| reader.join().expect("a reader panicked")).collect()
        });
        for result in results.into_iter().flatten() {
            self.logs += 1;
            match result {
                Ok(entries) => self.entries += entries,
                Err(what) => self.tell(what),
            }
        }
    }

    fn tell(&mut self, what: String) {
        if self.wrong.len() < TOLD {
            self.wrong.push(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::Step;
    use super::super::payload::Mix;
    use super::super::writer::numbers;
    use super::*;

    const LOGS: u32 = 40;
    const DEEDS: u64 = 400;
    const OPEN: u64 = 8;

    /// A store to which a story of one writer was told, but for the last operations of it.
    struct Stage {
        store: Store,
        payloads: Payloads,
        /// As it was before the round.
        story: Story,
    }

    impl Stage {
        fn new(told: u64) -> Self {
            let stage = Self {
                store: Store::in_memory(1).unwrap(),
                payloads: Payloads::new(1, Mix::Small),
                story: story(),
            };
            for log in 0..LOGS {
                let payload = stage.payloads.of(log, 0, 0);
                stage.store.append(key(log), payload).unwrap().wait().unwrap();
            }
            let mut telling = story();
            for _ in 0..told {
                stage.tell(&mut telling, |_| true);
            }
            stage
        }

        /// Does the story's next operation, as far as `does` says so of its steps.
        fn tell(&self, story: &mut Story, does: impl Fn(usize) -> bool) -> Operation {
            let operation = story.next();
            story.apply(&operation);
            let numbers = numbers(story, operation.done());
            for (i, (&(log, step), seq)) in operation.done().iter().zip(numbers).enumerate() {
                if does(i) {
                    self.step(log, step, seq);
                }
            }
            operation
        }

        fn step(&self, log: u32, step: Step, seq: Option<u32>) {
            let payload = |stamp| self.payloads.of(log, seq.unwrap(), stamp);
            let (store, key) = (&self.store, key(log));
            let ticket = match step {
                Step::Append(stamp) => store.append(key, payload(stamp)),
                Step::Snapshot(stamp) => store.snapshot(key, payload(stamp)),
                Step::Trim(before) => store.trim(key, before.into()),
                Step::KeepLast(n) => store.keep_last(key, n.into()),
                Step::Truncate(from) => store.truncate(key, from.into()),
                Step::Delete => store.delete(key),
                Step::ExpectNext(_) | Step::ExpectAbsent => return,
            };
            ticket.unwrap().wait().unwrap();
        }

        /// What an audit says that knows of so many acknowledged operations.
        fn audit(mut self, acknowledged: u64) -> Vec<String> {
            let mut audit = Audit::default();
            let eyes = Eyes { store: &self.store, payloads: &self.payloads };
            audit.writer(eyes, &mut self.story, acknowledged, OPEN);
            if audit.wrong.is_empty() {
                audit.all(eyes, &self.story);
                assert!(audit.wrong.is_empty(), "what passed once passes again: {:?}", audit.wrong);
            }
            audit.wrong
        }
    }

    fn story() -> Story {
        let mut story = Story::new(0, 1, vec![Log::filled(); LOGS as usize]);
        story.begin(5, 1);
        story
    }

    /// Some log of several entries after so many operations, which those in flight do not touch;
    /// and it.
    fn a_long_log() -> (u32, Log) {
        let (mut story, mut in_flight) = (story(), Vec::new());
        for i in 0..DEEDS + OPEN {
            let operation = story.next();
            story.apply(&operation);
            in_flight.extend(operation.done().iter().filter(|_| i >= DEEDS).map(|op| op.0));
        }
        let is_long = |log: &u32| story.logs[*log as usize].stamps().len() > 3;
        let log = (0..LOGS).find(|log| is_long(log) && !in_flight.contains(log));
        let log = log.expect("there are logs of several entries");
        (log, story.logs[log as usize].clone())
    }

    #[test]
    fn every_moment_from_the_acknowledged_on_passes() {
        for more in 0..=OPEN {
            assert_eq!(Stage::new(DEEDS + more).audit(DEEDS), [""; 0], "{more} more");
        }
    }

    #[test]
    fn a_moment_before_the_acknowledged_is_told() {
        // Operations that change nothing may be missing unseen.
        let missed = (1..=20).filter(|lost| Stage::new(DEEDS - lost).audit(DEEDS).is_empty()).count();
        assert!(missed <= 2, "{missed}");
        assert!(!Stage::new(DEEDS - 20).audit(DEEDS).is_empty());
    }

    #[test]
    fn a_moment_after_all_that_was_begun_is_told() {
        assert!(!Stage::new(DEEDS + OPEN + 10).audit(DEEDS).is_empty());
    }

    #[test]
    fn half_a_commit_is_told() {
        let (mut halves, mut told) = (0, 0);
        for at in DEEDS..DEEDS + 60 {
            let stage = Stage::new(at);
            let mut telling = story();
            (0..at).for_each(|_| {
                let operation = telling.next();
                telling.apply(&operation);
            });
            let operation = stage.tell(&mut telling, |i| i == 0);
            if operation.done().len() > 2 {
                halves += 1;
                told += u32::from(!stage.audit(at).is_empty());
            }
        }
        // A step that changes nothing makes no half.
        assert!(halves >= 4 && told >= halves - 1, "{told} of {halves}");
    }

    #[test]
    fn whatever_is_done_behind_its_back_is_told() {
        let (number, log) = a_long_log();
        let (last, stamp) = (u64::from(log.next) - 1, *log.stamps().last().unwrap());
        type Operation = fn(&Stage, u32, u64, u32) -> brooklet::Ticket;
        let harm: [(&str, Operation, &str); 7] = [
            ("an entry goes", |stage, log, last, _| stage.store.truncate(key(log), last).unwrap(), "must be"),
            ("the first goes", |stage, log, last, _| stage.store.trim(key(log), last).unwrap(), "must be"),
            (
                "one comes",
                |stage, log, last, stamp| {
                    stage.store.append(key(log), stage.payloads.of(log, last as u32 + 1, stamp)).unwrap()
                },
                "must be",
            ),
            ("the log goes", |stage, log, _, _| stage.store.delete(key(log)).unwrap(), "must be"),
            (
                "another log comes in its place",
                |stage, log, last, stamp| {
                    stage.store.truncate(key(log), last).unwrap().wait().unwrap();
                    stage.store.append(key(log), stage.payloads.of(log + 1, last as u32, stamp)).unwrap()
                },
                "is not what was written",
            ),
            (
                "an older entry comes again",
                |stage, log, last, stamp| {
                    stage.store.truncate(key(log), last).unwrap().wait().unwrap();
                    stage.store.append(key(log), stage.payloads.of(log, last as u32, stamp - 1)).unwrap()
                },
                "must be",
            ),
            (
                "a bit flips",
                |stage, log, last, stamp| {
                    stage.store.truncate(key(log), last).unwrap().wait().unwrap();
                    let mut payload = stage.payloads.of(log, last as u32, stamp);
                    payload[20] ^= 4;
                    stage.store.append(key(log), payload).unwrap()
                },
                "is not what was written",
            ),
        ];
        for (what, harm, told) in harm {
            let stage = Stage::new(DEEDS + 3);
            harm(&stage, number, last, stamp).wait().unwrap();
            let wrong = stage.audit(DEEDS);
            assert!(wrong.len() == 1 && wrong[0].contains(told), "{what}: {wrong:?}");
        }
    }
}
