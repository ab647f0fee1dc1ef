//! The knowledge of the world about its store: the acknowledged commits, the sent commits, and the
//! states that readers may see.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use brooklet::{Bytes, Entry, Error, LogInfo, Store, Ticket};

use crate::faulty_volume::Evidence;
use crate::model::{self, Change, Log, Logs, Moment, text};

/// Something that must not be: what, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

/// `Err` with a violation.
pub fn violated<T>(what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation(what.into()))
}

/// A commit that was appended and was not seen to be durable yet.
pub struct Flight {
    /// What it changes.
    pub changes: Arc<[Change]>,
    /// When it was appended, in milliseconds.
    pub at: u64,
    /// It was acknowledged at once, whether durable or not.
    pub deferred: bool,
    ticket: Ticket,
    /// How its callback was called: 0 not yet, 1 acknowledged, 2 failed. Deferred commits have
    /// none.
    told: Arc<AtomicU8>,
}

impl Flight {
    /// Returns a flight that watches its ticket in both ways: by a question and by a callback. The
    /// callback may panic.
    pub fn new(changes: Arc<[Change]>, at: u64, ticket: Ticket, (deferred, panics): (bool, bool)) -> Self {
        let told = Arc::new(AtomicU8::new(0));
        if !deferred {
            let told = told.clone();
            ticket.on_done(move |result| {
                told.store(if result.is_ok() { 1 } else { 2 }, Ordering::Relaxed);
                assert!(!panics, "a callback that panics");
            });
        }
        Self { changes, at, deferred, ticket, told }
    }

    fn is_acknowledged(&self) -> bool {
        self.ticket.is_durable() || self.told.load(Ordering::Relaxed) == 1
    }
}

/// Commits, in the order in which they were appended.
#[derive(Default)]
pub struct Oracle {
    /// The state after every acknowledged commit; what readers see.
    pub durable: Logs,
    /// The state after every commit that was appended.
    pub appended: Logs,
    /// Those in between.
    pub flying: VecDeque<Flight>,
    /// Of those that became durable, the ones whose callback waits until the store lets go of its
    /// locks; as [`Flight`] has it.
    pub untold: Vec<Arc<AtomicU8>>,
    /// An import that is going on, or that ended with an error that leaves it open, and when it
    /// began, in milliseconds: its logs are all there, or none is.
    pub import: Option<(Arc<[Change]>, u64)>,
    /// The logs that may ever have had limits.
    pub limited: BTreeSet<Bytes>,
    /// Imports have come in since the store was opened.
    pub imported: bool,
    /// What runs may have of the space's logs, while they are in memory.
    pub memory_space: Option<MemorySpaceModel>,
    /// The last durable states of the open store, for readers beside it, which are a little behind.
    pub recent: VecDeque<Logs>,
    /// Durable states since somebody began to read.
    pub watched: Option<Vec<Logs>>,
    /// Earlier durable states, the newest last, where they may be needed.
    pub past: Option<VecDeque<Logs>>,
    /// The largest epoch seen.
    pub epoch: u64,
    /// The store has said that it stopped: nothing may be acknowledged any more.
    pub stopped: bool,
    /// Commits that were acknowledged.
    pub acknowledged: u64,
    /// The highest next number that each log had in a durable state, also within a commit, since
    /// the log was removed here. Imports do not count.
    pub reached: BTreeMap<Bytes, u64>,
}

/// The durable states of logs that are in memory.
#[derive(Clone, Default)]
pub struct MemorySpaceModel {
    /// One of these is what the last dump has, or what they were as they came into memory.
    pub kept: Vec<Logs>,
    /// One of these is what a dump that goes on has, or one that ended with an error.
    dump: Vec<Logs>,
    /// How many of those are of dumps before the one that goes on.
    before: usize,
    dumping: bool,
}

impl MemorySpaceModel {
    /// What runs have is this.
    pub fn of(logs: &Logs) -> Self {
        Self { kept: vec![model::of_space(logs)], ..Self::default() }
    }
}

/// Earlier states that are kept at most.
const PAST: usize = 400;

/// States that a reader beside the store may show, at most: some blocks of commits whose
/// acknowledgement is not recorded yet.
const RECENT: usize = 200;

/// Records the numbers that the logs of a commit reach; `seqs` are those of its entries.
fn reach(reached: &mut BTreeMap<Bytes, u64>, changes: &[Change], seqs: &[u64]) {
    let mut seqs = seqs.iter();
    for change in changes {
        let next = match change {
            Change::Append(..) | Change::Snapshot(..) => seqs.next().expect("each entry has a number") + 1,
            Change::Begin(_, first) => *first,
            _ => continue,
        };
        let highest = reached.entry(change.key().clone()).or_default();
        *highest = (*highest).max(next);
    }
}

impl Oracle {
    /// Records the commits that have become durable.
    pub fn settle(&mut self) -> Result<(), Violation> {
        while self.flying.front().is_some_and(Flight::is_acknowledged) {
            if self.stopped {
                return violated("a commit is acknowledged although the store has said that it stopped");
            }
            let flight = self.flying.pop_front().expect("just seen");
            if !flight.deferred {
                self.untold.push(flight.told);
            }
            if let Some(past) = &mut self.past {
                past.push_back(self.durable.clone());
                past.drain(..past.len().saturating_sub(PAST));
            }
            let seqs = model::apply(&mut self.durable, &flight.changes, flight.at).expect("it was accepted");
            reach(&mut self.reached, &flight.changes, &seqs);
            self.acknowledged += 1;
            self.show();
        }
        if self.flying.iter().any(Flight::is_acknowledged) {
            return violated("a commit is acknowledged before one that was appended earlier");
        }
        Ok(())
    }

    /// There is a new durable state.
    fn show(&mut self) {
        self.recent.push_back(self.durable.clone());
        self.recent.drain(..self.recent.len().saturating_sub(RECENT));
        if let Some(watched) = &mut self.watched {
            watched.push(self.durable.clone());
        }
    }

    /// Returns whether the ring alone makes the states of the open store: no logs are in memory, no
    /// import is in progress, and none has come in past commits that the superblock does not know.
    pub fn is_of_ring(&self) -> bool {
        self.memory_space.is_none() && self.import.is_none() && !self.imported
    }

    /// Returns whether `recent` has all durable states of the open store.
    pub fn has_all_recent(&self) -> bool {
        self.recent.len() < RECENT
    }

    /// Nobody is inside the store: every callback was called by now.
    pub fn hear(&mut self) -> Result<(), Violation> {
        self.settle()?;
        match self.untold.drain(..).all(|told| told.load(Ordering::Relaxed) == 1) {
            true => Ok(()),
            false => violated("a commit is durable, and its callback was not told so"),
        }
    }

    /// The process is no more, and nobody waits for its commits.
    pub fn land(&mut self) {
        self.flying.clear();
        self.untold.clear();
    }

    /// A commit is in memory, where readers see it.
    pub fn remember(&mut self, changes: &[Change], at: u64) -> Result<(), Violation> {
        self.settle()?;
        let memory_space = self.memory_space.get_or_insert_with(|| MemorySpaceModel::of(&self.durable));
        if let Some(past) = &mut self.past {
            past.push_back(self.durable.clone());
        }
        for logs in [&mut self.durable, &mut self.appended] {
            match model::apply(logs, changes, at) {
                Ok(seqs) => reach(&mut self.reached, changes, &seqs),
                Err(_) => return violated("a commit in memory is on logs of which one is not durable yet"),
            }
        }
        if memory_space.dumping {
            memory_space.dump.push(model::of_space(&self.durable));
        }
        self.acknowledged += 1;
        self.show();
        Ok(())
    }

    /// A dump may begin, if there is something to dump.
    pub fn begin_dump(&mut self) {
        if let Some(memory_space) = &mut self.memory_space {
            memory_space.before = memory_space.dump.len();
            memory_space.dump.push(model::of_space(&self.durable));
            memory_space.dumping = true;
        }
    }

    /// It has ended, and is part of the store, or is not, or nobody knows.
    pub fn end_dump(&mut self, counts: Option<bool>) {
        if let Some(memory_space) = &mut self.memory_space {
            memory_space.dumping = false;
            match counts {
                Some(true) => memory_space.kept = std::mem::take(&mut memory_space.dump),
                Some(false) => memory_space.dump.truncate(memory_space.before),
                None => {}
            }
        }
    }

    /// The import has come in.
    pub fn adopt(&mut self) {
        let Some((changes, at)) = self.import.take() else { return };
        if let Some(past) = &mut self.past {
            past.push_back(self.durable.clone());
        }
        for logs in [&mut self.durable, &mut self.appended] {
            model::apply(logs, &changes, at).expect("appends are always accepted");
        }
        self.imported = true;
        self.show();
    }

    /// Returns the moment for a reader that reads at `now`.
    pub fn moment(&self, now: u64) -> Moment {
        let mut earlier = BTreeMap::new();
        for flight in &self.flying {
            for change in flight.changes.iter() {
                if let Change::Retain(key, _) = change {
                    earlier.entry(key.clone()).or_insert(flight.at);
                }
            }
        }
        Moment { now, earlier }
    }

    /// What may be found if the power went `now`.
    pub fn expectation(&self, tolerance: Tolerance, now: u64) -> Expectation {
        Expectation {
            durable: self.durable.clone(),
            unknown: self.flying.iter().map(|flight| (flight.changes.clone(), flight.at)).collect(),
            import: self.import.clone(),
            memory_space: self
                .memory_space
                .as_ref()
                .map(|memory_space| memory_space.kept.iter().chain(&memory_space.dump).cloned().collect()),
            past: self.past.iter().flatten().cloned().collect(),
            epoch: self.epoch,
            tolerance,
            now,
        }
    }
}

/// Results that are permitted because the disk did more harm than a power cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tolerance {
    /// Whether the medium differs from the written bytes: a named error is right, a wrong byte is
    /// not.
    pub damaged: bool,
    /// The evidence that distinguishes a lost tail from one that was never there.
    pub evidence: Evidence,
}

/// What may be found on a disk.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// At least this.
    pub durable: Logs,
    /// And any number of these, in order.
    pub unknown: Vec<(Arc<[Change]>, u64)>,
    /// And all of this, or nothing.
    pub import: Option<(Arc<[Change]>, u64)>,
    /// And one of these of the space's logs, if they are in memory.
    pub memory_space: Option<Vec<Logs>>,
    /// Earlier states, the newest last.
    pub past: Vec<Logs>,
    /// Every opening has a larger epoch.
    pub epoch: u64,
    /// What else is let pass.
    pub tolerance: Tolerance,
    /// The clock when it is looked for, in milliseconds.
    pub now: u64,
}

impl Expectation {
    /// Finds the state that a store shows among those that it may show.
    pub fn admit(&self, seen: &Seen) -> Result<Logs, Violation> {
        let mut nearest = String::new();
        for durable in self.with_silo(&self.durable) {
            nearest = match self.admit_prefix(seen, durable.clone()) {
                Ok(state) => return Ok(state),
                Err(nearest) => nearest,
            };
            if let Some((changes, at)) = &self.import {
                let mut state = durable;
                if changes.iter().all(|change| !state.contains_key(change.key())) {
                    model::apply(&mut state, changes, *at).expect("appends are always accepted");
                    if let Ok(state) = self.admit_prefix(seen, state) {
                        return Ok(state);
                    }
                }
            }
        }
        // Damage to the newest blocks looks like a torn write, as long as nothing later tells.
        if self.tolerance.damaged && self.tolerance.evidence == Evidence::None {
            let mut past = self.past.iter().rev().flat_map(|state| self.with_silo(state));
            if let Some(state) = past.find(|state| seen.difference(state).is_empty()) {
                return Ok(state);
            }
        }
        violated(format!("what is found is no prefix that holds every acknowledged commit:\n{nearest}"))
    }

    /// What runs may have of these states.
    pub fn in_runs(&self, states: &[Logs]) -> Vec<Logs> {
        states.iter().flat_map(|state| self.with_silo(state)).collect()
    }

    /// Returns the states that a store may show for `state`, by the logs in memory that runs have.
    fn with_silo(&self, state: &Logs) -> Vec<Logs> {
        match &self.memory_space {
            Some(kept) => kept.iter().map(|kept| model::with_space(state, kept)).collect(),
            None => vec![state.clone()],
        }
    }

    /// The state that a store shows, where it is this one or one after some of the unknown commits;
    /// else how it differs.
    fn admit_prefix(&self, seen: &Seen, mut state: Logs) -> Result<Logs, String> {
        let mut nearest = seen.difference(&state);
        for (changes, at) in &self.unknown {
            if nearest.is_empty() {
                break;
            }
            model::apply(&mut state, changes, *at).expect("it was accepted");
            nearest = seen.difference(&state);
        }
        if nearest.is_empty() { Ok(state) } else { Err(nearest) }
    }
}

/// The state that a store shows.
#[derive(Debug, Default)]
pub struct Seen {
    /// The readable logs.
    pub logs: Logs,
    /// Logs that are there, and say that they are damaged.
    pub unreadable: BTreeSet<Bytes>,
    /// The listing broke off because of damage.
    pub partial: bool,
    /// When it was read.
    pub moment: Moment,
    /// The store met damage, or may have.
    pub damaged: bool,
}

impl Seen {
    /// The same, read at that moment.
    pub fn at(self, moment: Moment) -> Self {
        Self { moment, ..self }
    }

    /// Reads everything, by listing and by reading each log; if it is to be thorough, backward and
    /// by its bounds, too. An error is returned unless `damaged` says that damage is to be
    /// expected.
    pub fn of(store: &Store, damaged: bool, thorough: bool) -> Result<Result<Self, Error>, Violation> {
        let mut seen = Self { damaged, ..Self::default() };
        let excused = |error: &Error| damaged && matches!(error, Error::Damaged { .. });
        let listing = match store.scan("") {
            Ok(listing) => listing,
            Err(error) if excused(&error) => return Ok(Ok(Self { partial: true, ..seen })),
            Err(error) => return Ok(Err(error)),
        };
        for listed in listing {
            let listed = match listed {
                Ok(listed) => listed,
                Err(error) if excused(&error) => {
                    seen.partial = true;
                    break;
                }
                Err(error) => return Ok(Err(error)),
            };
            let key = Bytes::from(listed.key.clone());
            match read_log(store, &key, &listed, thorough)? {
                Ok(log) if log.bounds() == listed.bounds => drop(seen.logs.insert(key, Arc::new(log))),
                Ok(log) => {
                    let (found, listed) = (log.bounds(), listed.bounds);
                    return violated(format!(
                        "{} is listed as {listed:?}, and read as {found:?}",
                        text(&key)
                    ));
                }
                Err(error) if excused(&error) => drop(seen.unreadable.insert(key)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(seen))
    }

    /// Whether nothing was damaged.
    pub fn is_whole(&self) -> bool {
        self.unreadable.is_empty() && !self.partial
    }

    /// Where this is not `state`, in words.
    pub fn difference(&self, state: &Logs) -> String {
        let state = &model::shown(state, &self.moment);
        if self.is_whole() && !self.damaged {
            return if self.logs == *state { String::new() } else { model::difference(&self.logs, state) };
        }
        let mut logs = self.logs.clone();
        for (key, log) in state {
            let missed = self.partial && !self.logs.contains_key(key);
            // The store estimates the bytes of damaged entries, and so may keep more than the
            // limit; it may not keep less.
            let estimated = self.damaged && self.logs.get(key).is_some_and(|found| found.exceeds_limit(log));
            if missed || estimated || self.unreadable.contains(key) {
                logs.insert(key.clone(), log.clone());
            }
        }
        model::difference(&logs, state)
    }
}

/// Reads a log that was listed with `bounds`.
fn read_log(
    store: &Store,
    key: &Bytes,
    listed: &LogInfo,
    thorough: bool,
) -> Result<Result<Log, Error>, Violation> {
    let (bounds, retention) = (listed.bounds, listed.retention);
    let read = || -> Result<_, Error> {
        let entries: Vec<Entry> = store.read(key, ..)?.collect::<Result<_, _>>()?;
        if !thorough {
            return Ok((entries, None));
        }
        let bounds = store.bounds(key)?;
        let back: Vec<Entry> = store.read(key, bounds.first..bounds.next)?.rev().collect::<Result<_, _>>()?;
        let many: Vec<Entry> = store.read_many([key])?.into_iter().flatten().collect::<Result<_, _>>()?;
        let same = many == entries
            && store.bounds_many([key])? == [Some(bounds)]
            && store.last(key)?.as_ref() == back.first();
        Ok((entries, Some((bounds, store.retention(key)?, back, same))))
    };
    let (entries, again) = match read() {
        Ok(all) => all,
        Err(error) => return Ok(Err(error)),
    };
    if let Some((same, kept, mut back, same_of_many)) = again {
        back.reverse();
        if !same_of_many {
            return violated(format!("{} differs if it is read with other logs", text(key)));
        }
        if kept != retention {
            return violated(format!("{} is listed to keep {retention:?}, and keeps {kept:?}", text(key)));
        }
        if entries != back {
            return violated(format!("{} reads differently forward and backward", text(key)));
        }
        if same != bounds {
            return violated(format!("{} is listed as {bounds:?}, and is {same:?}", text(key)));
        }
    }
    for (i, entry) in entries.iter().enumerate() {
        if entry.seq != bounds.first + i as u64 {
            return violated(format!("{}: entry {} stands where {i} should", text(key), entry.seq));
        }
    }
    let entries = entries.into_iter().map(|entry| entry.payload).collect();
    Ok(Ok(Log { first: bounds.first, entries, retention, times: Vec::new() }))
}
