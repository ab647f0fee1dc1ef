//! Retention in the plain model: every entry has its time, and limits apply one entry after
//! another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::Rng;
use brooklet::{Bytes, Retention};

use super::{Log, Logs};

/// The time of a read, in milliseconds. Readers see some logs as of an earlier time, because new
/// limits of these logs are not durable yet.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// Time of the read.
    pub now: u64,
    /// Earlier times for these logs.
    pub earlier: BTreeMap<Bytes, u64>,
}

impl Moment {
    /// Returns a moment with the same time for all logs.
    pub fn at(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    /// Returns the time at which readers see a log.
    pub fn of(&self, key: &Bytes) -> u64 {
        self.earlier.get(key).map_or(self.now, |earlier| self.now.min(*earlier))
    }
}

/// Returns the visible contents of logs.
pub fn shown(logs: &Logs, moment: &Moment) -> Logs {
    let seen = |key: &Bytes, log: &Arc<Log>| {
        if log.retention.age.is_none() && log.times.is_empty() {
            return log.clone();
        }
        let old = log.old(moment.of(key));
        let (first, entries) = (log.first + old as u64, log.entries[old..].to_vec());
        Arc::new(Log { first, entries, retention: log.retention, times: Vec::new() })
    };
    logs.iter().map(|(key, log)| (key.clone(), seen(key, log))).collect()
}

/// Returns the end of the granule that contains `now`.
fn rounded(now: u64, age: Duration) -> u64 {
    let part = age.as_millis() as u64 / 64;
    let granule = if part == 0 { 1 } else { 1 << part.ilog2() };
    (now / granule + 1) * granule
}

impl Log {
    /// Returns the number of entries that are too old.
    pub fn old(&self, now: u64) -> usize {
        let Some(age) = self.retention.age else { return 0 };
        self.times.iter().take_while(|time| *time + age.as_millis() as u64 <= now).count()
    }

    pub(super) fn append(&mut self, payload: Bytes, now: u64) {
        let time = self.retention.age.map_or(0, |age| rounded(now, age));
        self.times.push(self.times.last().map_or(time, |last| time.max(*last)));
        self.entries.push(payload);
    }

    /// Drops the entries that exceed the limits.
    pub(super) fn limit(&mut self, now: u64) {
        self.trim(self.first + self.old(now) as u64);
        if let Some(most) = self.retention.entries {
            self.trim(self.next().saturating_sub(most));
        }
        let most = self.retention.bytes.unwrap_or(u64::MAX);
        while self.entries.len() > 1
            && self.entries.iter().map(|entry| entry.len() as u64).sum::<u64>() > most
        {
            self.trim(self.first + 1);
        }
    }

    pub(super) fn retain(&mut self, retention: Retention, now: u64) {
        self.limit(now);
        match (self.retention.age, retention.age) {
            (None, Some(age)) => self.times.fill(rounded(now, age)),
            (_, None) => self.times.fill(0),
            (Some(old), Some(age)) => self.sharpen(rounded(now, old), rounded(now, age)),
        }
        self.retention = retention;
        self.limit(now);
    }

    /// Moves the entries of the current granule to the new, smaller granule.
    fn sharpen(&mut self, old: u64, new: u64) {
        let newest = self.times.iter().rposition(|time| *time != old).map_or(0, |last| last + 1);
        let (before, newest) = self.times.split_at_mut(newest);
        if before.last().is_none_or(|time| *time < new) {
            newest.iter_mut().for_each(|time| *time = new.min(*time));
        }
    }
}

/// Draws limits that are reached soon.
pub(super) fn draw(rng: &mut Rng) -> Retention {
    let mut retention = Retention::new();
    if rng.percent(40) {
        retention = retention.entries(rng.below(8));
    }
    if rng.percent(50) {
        retention = retention.bytes([0, 60, 1_000, 8_000, 40_000][rng.below(5) as usize]);
    }
    if rng.percent(40) {
        retention = retention.age(Duration::from_millis([1, 300, 2_000, 20_000][rng.below(4) as usize]));
    }
    retention
}
