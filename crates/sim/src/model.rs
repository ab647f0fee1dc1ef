//! A plain model of the store: the contents of its logs after each commit, without any storage.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use brooklet::io::Rng;
use brooklet::{Bounds, Bytes, Commit, Error, Retention};

mod retention;

pub use retention::{Moment, shown};

/// A log: its first number, its entries and its limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Number of the first entry.
    pub first: u64,
    /// Payloads, the oldest first.
    pub entries: Vec<Bytes>,
    /// Limits of the log.
    pub retention: Retention,
    /// Upper bound of each entry's commit time, in milliseconds; 0 where age does not matter.
    /// Readers do not see these times.
    pub times: Vec<u64>,
}

impl Log {
    /// Returns the number of the next entry.
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// Returns the first and the next number, as the store does.
    pub fn bounds(&self) -> Bounds {
        Bounds { first: self.first, next: self.next() }
    }

    /// Returns whether this log is `other` with older entries before it, which a limit of bytes
    /// should have trimmed.
    pub fn exceeds_limit(&self, other: &Self) -> bool {
        let limited = self.retention == other.retention && other.retention.bytes.is_some();
        limited
            && self.first < other.first
            && self.next() == other.next()
            && self.entries.ends_with(&other.entries)
    }

    /// Returns whether this log is `other`, perhaps without its limits, with older entries that
    /// limits may have removed.
    pub fn lacks_limits(&self, other: &Self) -> bool {
        (!self.retention.is_limited() || self.retention == other.retention)
            && self.first <= other.first
            && self.next() == other.next()
            && self.entries.ends_with(&other.entries)
    }

    fn trim(&mut self, before: u64) {
        if before > self.first {
            self.entries.drain(..(before - self.first) as usize);
            self.times.drain(..(before - self.first) as usize);
            self.first = before;
        }
    }
}

/// All logs. Clones share equal logs.
pub type Logs = BTreeMap<Bytes, Arc<Log>>;

/// The name of the space that most logs belong to.
pub const SPACE: &str = "log";

fn is_of_space(key: &[u8]) -> bool {
    key.starts_with(b"log/")
}

/// Returns the logs of the space.
pub fn of_space(logs: &Logs) -> Logs {
    logs.iter().filter(|(key, _)| is_of_space(key)).map(|(key, log)| (key.clone(), log.clone())).collect()
}

/// Returns `logs` with the logs of the space replaced by `space`.
pub fn with_space(logs: &Logs, space: &Logs) -> Logs {
    let rest = logs.iter().filter(|(key, _)| !is_of_space(key));
    rest.chain(space).map(|(key, log)| (key.clone(), log.clone())).collect()
}

/// Returns whether some changes are on logs of the space, and other changes are not.
pub fn is_mixed(changes: &[Change]) -> bool {
    let mut of_space = changes.iter().map(|change| is_of_space(change.key()));
    let first = of_space.next();
    of_space.any(|other| Some(other) != first)
}

/// A change to one log, or an expectation about one log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Adds an entry.
    Append(Bytes, Bytes),
    /// Adds an entry and drops all earlier entries.
    Snapshot(Bytes, Bytes),
    /// Drops the entries before a number.
    Trim(Bytes, u64),
    /// Drops all but the last entries.
    KeepLast(Bytes, u64),
    /// Drops the entries from a number on.
    Truncate(Bytes, u64),
    /// Makes the log begin at a number.
    Begin(Bytes, u64),
    /// Deletes the log.
    Delete(Bytes),
    /// Sets the limits of the log.
    Retain(Bytes, Retention),
    /// Refuses the commit unless this is the next number.
    ExpectNext(Bytes, u64),
    /// Refuses the commit if the log exists.
    ExpectAbsent(Bytes),
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Append(key, payload) => write!(f, "append {} B to {}", payload.len(), text(key)),
            Change::Snapshot(key, payload) => write!(f, "snapshot {} with {} B", text(key), payload.len()),
            Change::Trim(key, before) => write!(f, "trim {} before {before}", text(key)),
            Change::KeepLast(key, n) => write!(f, "keep the last {n} of {}", text(key)),
            Change::Truncate(key, from) => write!(f, "truncate {} from {from}", text(key)),
            Change::Begin(key, first) => write!(f, "let {} begin at {first}", text(key)),
            Change::Delete(key) => write!(f, "delete {}", text(key)),
            Change::Retain(key, Retention { entries, bytes, age, .. }) => {
                write!(f, "keep {entries:?} entries, {bytes:?} bytes, {age:?} of {}", text(key))
            }
            Change::ExpectNext(key, next) => write!(f, "expect {} to go on at {next}", text(key)),
            Change::ExpectAbsent(key) => write!(f, "expect no {}", text(key)),
        }
    }
}

impl Change {
    /// Returns the key of the changed log.
    pub fn key(&self) -> &Bytes {
        match self {
            Change::Append(key, _) | Change::Snapshot(key, _) | Change::Trim(key, _) => key,
            Change::KeepLast(key, _) | Change::Truncate(key, _) | Change::Delete(key) => key,
            Change::Begin(key, _) => key,
            Change::Retain(key, _) | Change::ExpectNext(key, _) | Change::ExpectAbsent(key) => key,
        }
    }
}

/// Returns a key as readable text.
pub fn text(key: &[u8]) -> String {
    key.escape_ascii().to_string()
}

/// The expected reason for the refusal of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The log does not exist.
    Unknown,
    /// The entries do not exist.
    OutOfRange,
    /// An expectation is not met.
    Conflict,
    /// The commit has no operations.
    Empty,
}

impl Refusal {
    /// Returns whether an error of the store is this refusal.
    pub fn is(self, error: &Error) -> bool {
        match self {
            Refusal::Unknown => matches!(error, Error::UnknownLog { .. }),
            Refusal::OutOfRange => matches!(error, Error::OutOfRange { .. }),
            Refusal::Conflict => matches!(error, Error::Conflict { .. }),
            Refusal::Empty => matches!(error, Error::EmptyCommit),
        }
    }
}

/// Applies a commit, appended at `now`, to the model, as a whole or not at all; returns the numbers
/// of its entries.
pub fn apply(logs: &mut Logs, changes: &[Change], now: u64) -> Result<Vec<u64>, Refusal> {
    for change in changes {
        match change {
            Change::ExpectNext(key, next) if logs.get(key).map_or(0, |log| log.next()) != *next => {
                return Err(Refusal::Conflict);
            }
            Change::ExpectAbsent(key) if logs.contains_key(key) => return Err(Refusal::Conflict),
            _ => {}
        }
    }
    let mut after = logs.clone();
    let mut seqs = Vec::new();
    for change in changes {
        apply_one(&mut after, change, now, &mut seqs)?;
    }
    if changes.iter().all(|c| matches!(c, Change::ExpectNext(..) | Change::ExpectAbsent(..))) {
        return Err(Refusal::Empty);
    }
    *logs = after;
    Ok(seqs)
}

fn apply_one(logs: &mut Logs, change: &Change, now: u64, seqs: &mut Vec<u64>) -> Result<(), Refusal> {
    let known = |logs: &mut Logs, key: &Bytes| -> Result<Log, Refusal> {
        logs.remove(key).map(Arc::unwrap_or_clone).ok_or(Refusal::Unknown)
    };
    let (key, log) = match change {
        Change::Append(key, payload) | Change::Snapshot(key, payload) => {
            let mut log = logs.remove(key).map(Arc::unwrap_or_clone).unwrap_or_default();
            let seq = log.next();
            seqs.push(seq);
            log.append(payload.clone(), now);
            if matches!(change, Change::Snapshot(..)) {
                log.trim(seq);
            }
            log.limit(now);
            (key, log)
        }
        Change::Trim(key, before) => {
            let mut log = known(logs, key)?;
            log.limit(now);
            if *before > log.next() {
                return Err(Refusal::OutOfRange);
            }
            log.trim(*before);
            (key, log)
        }
        Change::KeepLast(key, n) => {
            let mut log = known(logs, key)?;
            log.limit(now);
            log.trim(log.next().saturating_sub(*n));
            (key, log)
        }
        Change::Truncate(key, from) => {
            let mut log = known(logs, key)?;
            log.limit(now);
            if *from < log.first || *from > log.next() {
                return Err(Refusal::OutOfRange);
            }
            log.entries.truncate((*from - log.first) as usize);
            log.times.truncate((*from - log.first) as usize);
            (key, log)
        }
        Change::Begin(key, first) => {
            let mut log = logs.remove(key).map(Arc::unwrap_or_clone).unwrap_or_default();
            log.limit(now);
            log.trim((*first).min(log.next()));
            if log.entries.is_empty() {
                log.first = log.first.max(*first);
            }
            (key, log)
        }
        Change::Delete(key) => {
            known(logs, key)?;
            return Ok(());
        }
        Change::Retain(key, retention) => {
            let mut log = match retention.is_limited() {
                true => logs.remove(key).map(Arc::unwrap_or_clone).unwrap_or_default(),
                false => known(logs, key)?,
            };
            log.retain(*retention, now);
            (key, log)
        }
        Change::ExpectNext(..) | Change::ExpectAbsent(..) => return Ok(()),
    };
    logs.insert(key.clone(), Arc::new(log));
    Ok(())
}

/// Converts changes into a commit of the store.
pub fn commit(changes: &[Change]) -> Commit {
    let mut commit = Commit::new();
    for change in changes {
        match change {
            Change::Append(key, payload) => commit.append(key, payload),
            Change::Snapshot(key, payload) => commit.snapshot(key, payload),
            Change::Trim(key, before) => commit.trim(key, *before),
            Change::KeepLast(key, n) => commit.keep_last(key, *n),
            Change::Truncate(key, from) => commit.truncate(key, *from),
            Change::Begin(key, first) => commit.begin_at(key, *first),
            Change::Delete(key) => commit.delete(key),
            Change::Retain(key, retention) => commit.set_retention(key, *retention),
            Change::ExpectNext(key, next) => commit.expect_next(key, *next),
            Change::ExpectAbsent(key) => commit.expect_absent(key),
        };
    }
    commit
}

/// The habits of commits: their logs, sizes and operations.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Number of logs in use.
    pub keys: u64,
    /// Whether a tenth of the logs gets most of the commits.
    pub skewed: bool,
    /// Upper bound of the size of usual payloads, in bytes.
    pub small: u64,
    /// Upper bound of the size of rare payloads, in bytes.
    pub large: u64,
    /// Weights of append, snapshot, trim, keep last, truncate, delete, expect next, expect absent,
    /// retain, begin.
    pub weights: [u64; 10],
}

impl Habits {
    /// Draws a key: most keys have the same form, some are awkward.
    pub fn key(&self, rng: &mut Rng) -> Bytes {
        let mut n = rng.below(self.keys);
        if self.skewed && rng.percent(80) {
            n = rng.below(self.keys.div_ceil(10));
        }
        match n {
            0 => vec![0].into(),
            1 => Bytes::from_static(b"log/\0/x"),
            2 => Bytes::from_static(b"log/\0"),
            n => format!("log/{n}").into(),
        }
    }

    /// Draws new logs with entries; occasionally one of them exists already.
    pub fn new_logs(&self, count: u64, rng: &mut Rng, logs: &Logs) -> Vec<Change> {
        let mut changes = Vec::new();
        for n in 0..count {
            let known = rng.percent(2);
            let drawn = (0..8).map(|_| self.key(rng)).find(|key| known || !logs.contains_key(key));
            let key = drawn.unwrap_or_else(|| format!("imported/{n}").into());
            if !known && logs.contains_key(&key) {
                continue;
            }
            for _ in 0..1 + rng.below(4) {
                changes.push(Change::Append(key.clone(), self.payload(rng)));
            }
        }
        changes
    }

    fn payload(&self, rng: &mut Rng) -> Bytes {
        let len = if rng.percent(3) { rng.below(self.large) } else { rng.below(self.small) } as usize;
        let byte = rng.next() as u8;
        if rng.percent(50) { vec![byte; len].into() } else { (0..len).map(|_| rng.next() as u8).collect() }
    }

    /// Draws a random change, which is more often valid than not.
    pub fn change(&self, rng: &mut Rng, logs: &Logs) -> Change {
        let key = self.key(rng);
        let (first, next) = logs.get(&key).map_or((0, 0), |log| (log.first, log.next()));
        let within = |rng: &mut Rng| first.saturating_sub(rng.below(2)) + rng.below(next - first + 3);
        let mut pick = rng.below(self.weights.iter().sum());
        let kind = self.weights.iter().position(|&weight| {
            let found = pick < weight;
            pick = pick.saturating_sub(weight);
            found
        });
        match kind.expect("the pick is below the sum") {
            0 => Change::Append(key, self.payload(rng)),
            1 => Change::Snapshot(key, self.payload(rng)),
            2 => Change::Trim(key, within(rng)),
            3 => Change::KeepLast(key, rng.below(5)),
            4 => Change::Truncate(key, within(rng)),
            5 => Change::Delete(key),
            6 => Change::ExpectNext(key, if rng.percent(80) { next } else { next + 1 }),
            7 => Change::ExpectAbsent(key),
            8 => Change::Retain(key, retention::draw(rng)),
            _ if rng.percent(30) => Change::Begin(key, within(rng)),
            _ => {
                let far = [3, 300, 1 << 40][rng.below(3) as usize];
                Change::Begin(key, next + rng.below(far))
            }
        }
    }
}

/// Describes the differences between two states; empty if they are equal.
pub fn difference(found: &Logs, expected: &Logs) -> String {
    let mut out = String::new();
    let only_expected = expected.keys().filter(|key| !found.contains_key(*key));
    for key in found.keys().chain(only_expected) {
        let (found, expected) = (found.get(key), expected.get(key));
        if found == expected {
            continue;
        }
        let show = |log: Option<&Arc<Log>>| {
            log.map_or("no log".into(), |log| format!("{}..{}", log.first, log.next()))
        };
        let (is, should) = (show(found), show(expected));
        let kept = |log: Option<&Arc<Log>>| log.map(|log| log.retention);
        let _ = match is == should {
            true if kept(found) != kept(expected) => {
                writeln!(out, "{}: keeps {:?}, expected {:?}", text(key), kept(found), kept(expected))
            }
            true => writeln!(out, "{}: {is}, but other bytes than were written", text(key)),
            false => writeln!(out, "{}: found {is}, expected {should}", text(key)),
        };
    }
    out
}
