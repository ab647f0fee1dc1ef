//! What logs keep, in the plain model: every entry with its time, and limits applied one entry
//! after another.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::Rng;
use brooklet::{Bytes, Retention};

use super::{Log, Logs};

/// When somebody reads, in milliseconds; of some logs readers see what they were earlier, since
/// other limits are on their way to disk.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// When.
    pub now: u64,
    /// When for these logs.
    pub earlier: BTreeMap<Bytes, u64>,
}

impl Moment {
    /// This time, for all logs.
    pub fn at(now: u64) -> Self {
        Self { now, ..Self::default() }
    }

    /// When a log is looked at.
    pub fn of(&self, key: &Bytes) -> u64 {
        self.earlier.get(key).map_or(self.now, |earlier| self.now.min(*earlier))
    }
}

/// What readers see of logs.
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

/// The end of the granule in which something is committed.
fn rounded(now: u64, age: Duration) -> u64 {
    let part = age.as_millis() as u64 / 64;
    let granule = if part == 0 { 1 } else { 1 << part.ilog2() };
    (now / granule + 1) * granule
}

impl Log {
    /// How many entries are too old.
    pub fn old(&self, now: u64) -> usize {
        let Some(age) = self.retention.age else { return 0 };
        self.times.iter().take_while(|time| *time + age.as_millis() as u64 <= now).count()
    }

    pub(super) fn append(&mut self, payload: Bytes, now: u64) {
        let time = self.retention.age.map_or(0, |age| rounded(now, age));
        self.times.push(self.times.last().map_or(time, |last| time.max(*last)));
        self.entries.push(payload);
    }

    /// Drops what it does not keep.
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

    /// The entries of the granule of now have a smaller one.
    fn sharpen(&mut self, old: u64, new: u64) {
        let newest = self.times.iter().rposition(|time| *time != old).map_or(0, |last| last + 1);
        let (before, newest) = self.times.split_at_mut(newest);
        if before.last().is_none_or(|time| *time < new) {
            newest.iter_mut().for_each(|time| *time = new.min(*time));
        }
    }
}

/// Limits that are met soon.
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
