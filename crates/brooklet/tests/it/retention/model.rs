//! What a store with retention should show: a plain list of entries for each log, and nothing about
//! how.

use std::collections::BTreeMap;
use std::time::Duration;

use brooklet::io::Rng;
use brooklet::{Commit, Retention, Store};

use crate::common;

/// An entry and, under an age limit, the time before which it was committed, in milliseconds.
type Entry = (Vec<u8>, u64);

#[derive(Clone, Debug, Default)]
pub struct Log {
    first: u64,
    entries: Vec<Entry>,
    pub retention: Retention,
}

/// All logs, as appended.
#[derive(Clone, Debug, Default)]
pub struct Logs(pub BTreeMap<Vec<u8>, Log>);

#[derive(Clone, Debug)]
pub enum Change {
    Append(Vec<u8>),
    Snapshot(Vec<u8>),
    Trim(u64),
    KeepLast(u64),
    Truncate(u64),
    Delete,
    Retain(Retention),
}

fn ms(age: Duration) -> u64 {
    age.as_millis() as u64
}

/// The end of the granule in which something was committed.
fn rounded(now: u64, age: Duration) -> u64 {
    let granule = if ms(age) < 64 { 1 } else { 1 << (ms(age) / 64).ilog2() };
    (now / granule + 1) * granule
}

impl Log {
    pub fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    fn trim(&mut self, before: u64) {
        if before > self.first {
            self.entries.drain(..(before - self.first) as usize);
            self.first = before;
        }
    }

    /// The entries that are too old at `now`, counted from the oldest.
    fn old(&self, now: u64) -> u64 {
        let age = self.retention.age.map_or(u64::MAX, ms);
        self.entries.iter().take_while(|(_, time)| time.saturating_add(age) <= now).count() as u64
    }

    fn limit(&mut self, now: u64) {
        let few = self.next().saturating_sub(self.retention.entries.unwrap_or(u64::MAX));
        self.trim((self.first + self.old(now)).max(few));
        let bytes = |log: &Self| log.entries.iter().map(|(payload, _)| payload.len() as u64).sum::<u64>();
        while self.entries.len() > 1 && self.retention.bytes.is_some_and(|most| bytes(self) > most) {
            self.trim(self.first + 1);
        }
    }

    fn append(&mut self, payload: Vec<u8>, now: u64) {
        let time = self.retention.age.map_or(0, |age| rounded(now, age));
        let time = self.entries.last().map_or(time, |(_, last)| time.max(*last));
        self.entries.push((payload, time));
    }

    fn retain(&mut self, retention: Retention, now: u64) {
        self.limit(now);
        if let (None, Some(age)) = (self.retention.age, retention.age) {
            self.entries.iter_mut().for_each(|(_, time)| *time = rounded(now, age));
        }
        if let (Some(old), Some(age)) = (self.retention.age, retention.age) {
            self.sharpen(rounded(now, old), rounded(now, age));
        }
        if retention.age.is_none() {
            self.entries.iter_mut().for_each(|(_, time)| *time = 0);
        }
        self.retention = retention;
        self.limit(now);
    }
}

impl Log {
    /// The entries of the granule of now have a smaller one.
    fn sharpen(&mut self, old: u64, new: u64) {
        let newest = self.entries.iter().rposition(|(_, time)| *time != old).map_or(0, |last| last + 1);
        let (before, newest) = self.entries.split_at_mut(newest);
        if before.last().is_none_or(|(_, time)| *time < new) {
            newest.iter_mut().for_each(|(_, time)| *time = new.min(*time));
        }
    }
}

impl Logs {
    /// Does a commit, whole or not at all; `false` where it must be refused.
    pub fn apply(&mut self, changes: &[(Vec<u8>, Change)], now: u64) -> bool {
        let mut after = self.clone();
        let done = changes.iter().all(|(key, change)| after.apply_one(key, change, now).is_some());
        if done {
            *self = after;
        }
        done
    }

    fn apply_one(&mut self, key: &[u8], change: &Change, now: u64) -> Option<()> {
        let creates = match change {
            Change::Append(_) | Change::Snapshot(_) => true,
            Change::Retain(retention) => retention.is_limited(),
            _ => false,
        };
        if creates {
            self.0.entry(key.to_vec()).or_default();
        }
        let log = self.0.get_mut(key)?;
        match change {
            Change::Append(payload) | Change::Snapshot(payload) => {
                log.append(payload.clone(), now);
                if matches!(change, Change::Snapshot(_)) {
                    log.trim(log.next() - 1);
                }
                log.limit(now);
            }
            Change::Trim(before) => {
                log.limit(now);
                (*before <= log.next()).then_some(())?;
                log.trim(*before);
            }
            Change::KeepLast(n) => {
                log.limit(now);
                log.trim(log.next().saturating_sub(*n));
            }
            Change::Truncate(from) => {
                log.limit(now);
                (log.first..=log.next()).contains(from).then_some(())?;
                log.entries.truncate((from - log.first) as usize);
            }
            Change::Delete => drop(self.0.remove(key)),
            Change::Retain(retention) => log.retain(*retention, now),
        }
        Some(())
    }

    /// What readers see at `now`.
    pub fn shown(&self, now: u64) -> common::Logs {
        let shown = |log: &Log| {
            let old = log.old(now);
            let entries = log.entries.iter().skip(old as usize).map(|(payload, _)| payload.clone());
            common::Log { first: log.first + old, entries: entries.collect() }
        };
        self.0.iter().map(|(key, log)| (key.clone(), shown(log))).collect()
    }

    /// Makes sure that the store shows just this at `now`.
    pub fn compare(&self, store: &Store, now: u64, when: &str) {
        let found = common::contents(store).unwrap();
        let expected = self.shown(now);
        for key in found.keys().chain(expected.keys()) {
            let range = |log: Option<&common::Log>| log.map(|log| (log.first, log.next()));
            let (found, expected) = (found.get(key), expected.get(key));
            let key = key.escape_ascii();
            assert_eq!(range(found), range(expected), "{when}: {key} at {now}");
            assert!(found == expected, "{when}: {key} has other bytes");
        }
        for log in store.scan("").unwrap() {
            let log = log.unwrap();
            assert_eq!(log.retention, self.0[&log.key].retention, "{when}");
            assert_eq!(store.retention(&log.key).unwrap(), log.retention, "{when}");
        }
    }
}

pub fn commit(changes: &[(Vec<u8>, Change)]) -> Commit {
    let mut commit = Commit::new();
    for (key, change) in changes {
        match change {
            Change::Append(payload) => commit.append(key, payload),
            Change::Snapshot(payload) => commit.snapshot(key, payload),
            Change::Trim(before) => commit.trim(key, *before),
            Change::KeepLast(n) => commit.keep_last(key, *n),
            Change::Truncate(from) => commit.truncate(key, *from),
            Change::Delete => commit.delete(key),
            Change::Retain(retention) => commit.set_retention(key, *retention),
        };
    }
    commit
}

/// A random retention, tight enough to matter.
pub fn retention(rng: &mut Rng) -> Retention {
    let mut retention = Retention::new();
    if rng.percent(40) {
        retention = retention.entries(rng.below(30));
    }
    if rng.percent(50) {
        retention = retention.bytes([0, 100, 3_000, 20_000, 60_000][rng.below(5) as usize]);
    }
    if rng.percent(40) {
        retention = retention.age(Duration::from_millis([1, 50, 1_000, 30_000][rng.below(4) as usize]));
    }
    retention
}

/// A random change that makes sense more often than not.
pub fn change(rng: &mut Rng, logs: &Logs) -> (Vec<u8>, Change) {
    let key = format!("log/{}", rng.below(4)).into_bytes();
    let (first, next) = logs.0.get(&key).map_or((0, 0), |log| (log.first, log.next()));
    let within = |rng: &mut Rng| first.saturating_sub(rng.below(2)) + rng.below(next - first + 2);
    let largest = [30, 300, 4_000][rng.below(3) as usize];
    let payload = |rng: &mut Rng| vec![rng.next() as u8; rng.below(largest) as usize];
    let change = match rng.below(40) {
        0..=26 => Change::Append(payload(rng)),
        27 => Change::Snapshot(payload(rng)),
        28 => Change::Trim(within(rng)),
        29 => Change::KeepLast(rng.below(20)),
        30..=33 => Change::Truncate(within(rng)),
        34 => Change::Delete,
        _ => Change::Retain(retention(rng)),
    };
    (key, change)
}
