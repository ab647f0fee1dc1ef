//! Retention of a log in memory. All sizes are in memory, so each step is computed at once.

use std::sync::Arc;

use crate::memory_space::log::Log;
use crate::model::retention::Retention;
use crate::model::retention_state::{self, RetentionState};
use crate::model::{Bounds, Effect};

/// Payload bytes of dropped entries.
type Gone = u64;

impl Log {
    fn apply(&mut self, effect: Effect, len: u64) {
        let bounds = self.bounds();
        retention_state::apply(self.terms_mut(), effect, Some(bounds), len);
    }

    /// Appends an entry at `now`, without applying the limits.
    pub fn append(&mut self, payload: &[u8], now: &dyn Fn() -> u64) {
        let Some(limits) = self.terms() else {
            self.push(payload);
            return;
        };
        let mark = limits.age.and_then(|_| limits.wanted_mark(now()));
        if let Some(time) = mark {
            self.apply(Effect::Mark(time), 0);
        }
        self.push(payload);
        self.apply(Effect::Append(self.bounds().next - 1), payload.len() as u64);
    }

    /// Drops the entries before `first`.
    pub fn cut_before(&mut self, first: u64) -> Gone {
        let gone = self.sum(self.bounds().first..first);
        self.trim(first);
        self.told(Effect::Trim(first), gone)
    }

    /// Drops the entries before `first`, which may be past the end. The next entry is then `first`.
    pub fn begin_at(&mut self, first: u64) -> Gone {
        let gone = self.cut_before(first.min(self.bounds().next));
        if first > self.bounds().next {
            self.begin(first);
            self.told(Effect::Begin(first), 0);
        }
        gone
    }

    /// Drops the entries from `next` on.
    pub fn cut_from(&mut self, next: u64) -> Gone {
        let gone = self.sum(next..self.bounds().next);
        self.truncate(next);
        self.told(Effect::Truncate(next), gone)
    }

    fn told(&mut self, effect: Effect, gone: Gone) -> Gone {
        if let Some(limits) = self.terms() {
            let held = limits.held.saturating_sub(gone);
            self.apply(effect, 0);
            self.apply(Effect::Held(held), 0);
        }
        gone
    }

    /// Returns the first entry within the limits of entries and age.
    pub fn kept(&self, now: &dyn Fn() -> u64) -> u64 {
        self.terms().map_or(self.bounds().first, |limits| {
            limits.kept(self.bounds(), if limits.age.is_some() { now() } else { 0 })
        })
    }

    /// Drops the entries beyond the limits.
    pub fn limit(&mut self, now: &dyn Fn() -> u64) -> Gone {
        let Some(limits) = self.terms() else { return 0 };
        let (most, held) = (limits.bytes, limits.held);
        let Bounds { first: was, next } = self.bounds();
        let mut first = self.kept(now);
        if let Some(most) = most {
            let left = held.saturating_sub(self.sum(was..first));
            if left > most && first < next {
                // The newest entry stays.
                first = self.walk(first..next - 1, left - most - 1).0;
            }
        }
        if first > was { self.cut_before(first) } else { 0 }
    }

    /// Sets the retention. Entries that are beyond the old limits now are dropped first.
    pub fn retain(&mut self, retention: Retention, now: &dyn Fn() -> u64) -> Gone {
        if self.terms().is_none() && !retention.is_limited() {
            return 0;
        }
        let mut gone = self.limit(now);
        let limit = |limit: Option<u64>| limit.map_or(0, |n| n + 1);
        let age = retention.age.map(|age| age.as_millis() as u64);
        let aged = self.terms().filter(|limits| limits.has_marks());
        let sharper = aged.and_then(|limits| limits.sharper_mark(age, now()));
        let counts = self.terms().is_some_and(|limits| limits.bytes.is_some());
        self.apply(Effect::Entries(limit(retention.entries)), 0);
        self.apply(Effect::Bytes(limit(retention.bytes)), 0);
        self.apply(Effect::Age(limit(age)), 0);
        let bounds = self.bounds();
        if retention.bytes.is_some() && !counts {
            self.apply(Effect::Held(self.sum(bounds.first..bounds.next)), 0);
        }
        let unmarked = |limits: &&Arc<RetentionState>| !limits.has_marks() && !bounds.is_empty();
        let mark = self.terms().filter(unmarked).and_then(|limits| limits.wanted_mark(now()));
        for time in mark.into_iter().chain(sharper) {
            self.apply(Effect::Mark(time), 0);
        }
        gone += self.limit(now);
        gone
    }
}
