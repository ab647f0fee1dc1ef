//! Sweeping: trims entries that are too old from logs without new commits. The trimmed entries
//! become garbage, which merging drops like any other garbage (`maintenance/policy/mod.rs`).
//!
//! A run records how many entries of its logs are under limits of age, and when the first and the
//! last of them become too old (`format/manifest.rs`). A sweep walks through the heads of a run
//! when the store is idle, and when all entries of the run are too old, or about as many as make a
//! merge of all runs worthwhile. Each log with entries that are too old gets a commit that trims
//! them. The append step decides by the current state of the log which entries that commit trims.
//! An idle store therefore frees entries that are too old just as it frees dead entries.
//!
//! The number of entries that are too old is estimated as if entries expired evenly. One log with a
//! long age makes the estimate wrong. Therefore all runs with entries that are too old are walked
//! through in a round, at the latest an hour after the first entry expires. If a round finds less
//! than a merge needs, the next round waits twice as long, until a round finds enough. The findings
//! are only in memory. After each opening, the first round waits one hour, and finds again all
//! entries that no merge has dropped since.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::engine::Inner;
use crate::engine::append::{Patience, Tried};
use crate::error::{Error, ErrorKind};
use crate::maintenance::policy::POLICY;
use crate::model::commit::{Action, Durability, Op};
use crate::model::retention_state::Ageing;
use crate::read::scan::RunLogs;
use crate::run::{Run, RunSet};
use crate::sync::atomic::Ordering;

/// Number of logs that one step looks at.
const LOGS: usize = 200;

/// The shortest time between the expiry of an entry and a round, in milliseconds.
const HOUR: u64 = 3_600_000;

/// The state of sweeps.
#[derive(Default)]
pub(crate) struct Expiry {
    swept: BTreeMap<u64, Swept>,
    going: Option<ExpiryPass>,
    round: Option<Round>,
    /// Number of successive rounds that found little.
    vain: u32,
    /// Logs with entries that are too old and are still to be trimmed.
    old: VecDeque<Vec<u8>>,
    /// Whether the last try to trim these logs found no room.
    in_vain: bool,
    /// The amount of room with which the try before also found no room.
    stuck: Option<u64>,
}

/// A run that was walked through.
#[derive(Clone, Copy)]
struct Swept {
    /// The time of the round, in milliseconds since the Unix epoch.
    at: u64,
    /// The ages that the run recorded at that time. A run that is still being made records more
    /// later.
    told: Option<Ageing>,
    /// The ages of entries that were not too old at the time of the walk.
    left: Option<Ageing>,
}

/// A round: walks through all runs with entries that are too old.
struct Round {
    /// The time of the round, in milliseconds since the Unix epoch.
    now: u64,
    /// Number of entries that were too old.
    found: u64,
}

/// A walk through a run. The walk holds only the run's number, so that the run can be freed if it
/// is replaced between two steps, possibly long before the store is idle again.
struct ExpiryPass {
    run: u64,
    /// The key of the next log.
    from: Vec<u8>,
    /// The time of the previous walk: that walk found all entries that were too old by then.
    since: u64,
    now: u64,
    left: Option<Ageing>,
}

/// Returns how many entries must be too old for a merge to be worthwhile, of `entries` in all.
fn enough(entries: u64) -> u64 {
    (u128::from(entries) * u128::from(POLICY.idle_garbage) / 100) as u64
}

/// Returns the time at which a walk through a run is worthwhile; all runs hold `entries` entries.
fn due(ageing: Ageing, entries: u64) -> u64 {
    let Ageing { entries: ageing, from, to } = ageing;
    let span = u128::from(to.saturating_sub(from));
    // This assumes that entries expire evenly.
    from.saturating_add((span * u128::from(enough(entries).min(ageing)) / u128::from(ageing.max(1))) as u64)
}

/// Returns the number of entries in all runs.
fn entries(runs: &RunSet) -> u64 {
    runs.iter().map(|run| run.meta.entries).fold(0, u64::saturating_add)
}

impl Expiry {
    /// Begins with a round.
    fn in_a_round(now: u64) -> Self {
        Self { round: Some(Round { now, found: 0 }), ..Self::default() }
    }

    fn ageing(&self, run: &Run) -> Option<Ageing> {
        self.swept(run).map_or_else(|| run.meta.ageing(), |swept| swept.left)
    }

    fn swept(&self, run: &Run) -> Option<Swept> {
        self.swept.get(&run.meta.id).copied().filter(|swept| swept.told == run.meta.ageing())
    }

    /// Returns the time of the next walk or round.
    pub fn next(&self, runs: &RunSet) -> Option<u64> {
        if self.stuck.is_some() {
            // Other work makes room, and the sweep follows that work.
            return Some(u64::MAX);
        }
        if self.going.is_some() || self.round.is_some() || !self.old.is_empty() {
            return Some(0);
        }
        let entries = entries(runs);
        let due = runs.iter().filter_map(|run| Some(due(self.ageing(run)?, entries)));
        due.chain(self.next_round(runs)).min()
    }

    fn next_round(&self, runs: &RunSet) -> Option<u64> {
        let patience = HOUR << self.vain.min(40);
        let first = runs.iter().filter_map(|run| Some(self.ageing(run)?.from)).min();
        first.map(|first| first.saturating_add(patience))
    }

    /// Continues a walk, or begins one. Returns `false` if there is no run to walk through.
    fn step(&mut self, runs: &RunSet, now: u64) -> Result<bool, Error> {
        let Some(mut expire) = self.going.take().or_else(|| self.begin(runs, now)) else {
            return Ok(false);
        };
        // The new run records the rest of a replaced run.
        let Some(run) = runs.iter().find(|run| run.meta.id == expire.run) else { return Ok(true) };
        if self.walk(&mut expire, run).inspect_err(|_| self.give_up(run))? {
            self.going = Some(expire);
        }
        Ok(true)
    }

    /// Leaves a run out of later walks: another try would not read the run either.
    fn give_up(&mut self, run: &Run) {
        self.swept.insert(run.meta.id, Swept { at: 0, told: run.meta.ageing(), left: None });
    }

    /// Looks at some logs. Returns `false` after the last log.
    fn walk(&mut self, expire: &mut ExpiryPass, run: &Arc<Run>) -> Result<bool, Error> {
        let mut logs = RunLogs::new(run, &expire.from)?;
        for _ in 0..LOGS {
            let Some((key, head)) = &logs.current else { break };
            if let (Some(bounds), Some(terms)) = (head.piece.bounds, &head.terms) {
                if terms.young(bounds, expire.now) > terms.young(bounds, expire.since) {
                    self.old.push_back(key.clone());
                }
                expire.left = Ageing::sum(expire.left, terms.ageing(bounds, expire.now));
            }
            logs.advance()?;
        }
        match logs.current {
            Some((key, _)) => expire.from = key,
            None => {
                let count = |ageing: Option<Ageing>| ageing.map_or(0, |ageing| ageing.entries);
                let found = count(self.ageing(run)).saturating_sub(count(expire.left));
                if let Some(round) = &mut self.round {
                    round.found = round.found.saturating_add(found);
                }
                self.swept
                    .insert(expire.run, Swept { at: expire.now, told: run.meta.ageing(), left: expire.left });
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin(&mut self, runs: &RunSet, now: u64) -> Option<ExpiryPass> {
        self.swept.retain(|id, _| runs.iter().any(|run| run.meta.id == *id));
        if self.round.is_none() && self.next_round(runs).is_some_and(|at| at <= now) {
            self.round = Some(Round { now, found: 0 });
        }
        let entries = entries(runs);
        let at = |ageing: Ageing| if self.round.is_some() { ageing.from } else { due(ageing, entries) };
        let now = self.round.as_ref().map_or(now, |round| round.now);
        let Some(run) = runs.iter().find(|run| self.ageing(run).is_some_and(|ageing| at(ageing) <= now))
        else {
            if let Some(round) = self.round.take() {
                let much = round.found >= enough(entries);
                self.vain = if much { 0 } else { self.vain.saturating_add(1) };
            }
            return None;
        };
        let since = self.swept(run).map_or(0, |swept| swept.at);
        Some(ExpiryPass { run: run.meta.id, from: Vec::new(), since, now, left: None })
    }
}

impl Inner {
    /// Returns whether some run has entries under limits of age.
    pub fn is_ageing(&self) -> bool {
        self.state().runs.iter().any(|run| run.meta.ageing().is_some())
    }

    /// Does a part of a sweep, for an idle store. Returns `false` if there is nothing to do now.
    pub fn expire(&self) -> Result<bool, Error> {
        // Another thread is sweeping, or this thread is, further up its stack.
        let _hush = self.hush();
        let Ok(mut expiry) = self.expiry.try_lock() else { return Ok(false) };
        let expiry = &mut *expiry;
        let mut more = true;
        if expiry.old.is_empty() {
            let runs = self.state().runs.clone();
            more = expiry.step(&runs, self.now())?;
        }
        let room = self.state().room.most_freeing();
        if expiry.stuck == Some(room) {
            return Ok(false);
        }
        let left = expiry.old.len();
        match self.trim_old(expiry, false) {
            Err(Error::Busy { .. } | Error::Full { .. }) => {
                // The sweep continues after the flush and the requested checkpoint. If both do not
                // help, it has to wait for more room.
                self.flush()?;
                let in_vain = expiry.old.len() == left;
                let stuck = mem::replace(&mut expiry.in_vain, in_vain) && in_vain;
                expiry.stuck = stuck.then_some(room);
                Ok(!stuck)
            }
            done => {
                (expiry.stuck, expiry.in_vain) = (None, false);
                done.map(|()| more)
            }
        }
    }

    /// Walks once through each run that has entries that are too old by now, and waits for room if
    /// necessary. Leaves out each run that cannot be read, and returns the first error of these.
    pub fn expire_all(&self) -> Result<Option<Error>, Error> {
        // Entries that become too old during the walk are left, because there may be ever more of
        // them.
        let now = self.now();
        let (mut expiry, mut unread) = (Expiry::in_a_round(now), None);
        loop {
            let runs = self.state().runs.clone();
            let more = match expiry.step(&runs, now) {
                Err(error) if error.kind() != ErrorKind::Stopped => {
                    unread.get_or_insert(error);
                    true
                }
                more => more?,
            };
            drop(runs);
            self.trim_old(&mut expiry, true)?;
            if !more {
                return Ok(unread);
            }
        }
    }

    /// Trims the entries that are too old from the logs that were found. Logs without room for the
    /// commit are kept for another try.
    fn trim_old(&self, expiry: &mut Expiry, wait: bool) -> Result<(), Error> {
        while let Some(key) = expiry.old.front() {
            match self.expire_log(key, wait) {
                Ok(()) | Err(Error::EmptyCommit) => {} // others trimmed it
                Err(error @ (Error::Busy { .. } | Error::Full { .. })) => return Err(error),
                Err(error) if error.kind() == ErrorKind::Stopped => return Err(error),
                Err(error) => {
                    let log = key.escape_ascii();
                    tracing::warn!(%log, %error, "the store could not trim the expired entries of a log; it continues with other logs");
                }
            }
            expiry.old.pop_front();
        }
        Ok(())
    }

    /// Trims the entries that are too old from a log.
    fn expire_log(&self, key: &[u8], wait: bool) -> Result<(), Error> {
        // These commits do not end the store's idle time.
        let own = |n: u64| self.own_commits.fetch_add(n, Ordering::Relaxed);
        own(1);
        let patience = if wait { Patience::Room } else { Patience::Reads };
        let pass = [Op { key, action: Action::ExpiryPass }];
        let swept = self.append(&pass, Some(Durability::Durable), patience, None);
        if !matches!(swept, Ok(Tried::Done(_))) {
            own(u64::MAX);
        }
        swept.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Retention, Store};

    /// The ages of the hundred logs are 1 to 100 days.
    #[test]
    fn rounds_that_find_little_come_ever_later() {
        let store = Store::in_memory(1).unwrap();
        let begun = store.inner().now();
        for days in 1..=100 {
            let key = format!("log/{days}");
            let age = Duration::from_millis(24 * days * HOUR);
            drop(store.set_retention(&key, Retention::new().age(age)).unwrap());
            drop(store.append(&key, "entry").unwrap());
        }
        store.checkpoint().unwrap();
        let runs = store.inner().state().runs.clone();
        let (mut expiry, mut walks) = (Expiry::default(), 0);
        for hour in 0..=110 * 24 {
            while expiry.step(&runs, begun + hour * HOUR).unwrap() {
                walks += 1;
            }
            // The store keeps entries longer than their age: by a 64th of it because of the marks,
            // and more because of the groups of logs.
            let days = hour / 24 * 60 / 64;
            let found = expiry.old.len() as u64;
            assert!(found + 15 >= days.min(100), "{found} of {days} after {hour} hours");
        }
        assert_eq!(expiry.old.len(), 100, "each once");
        assert!((10..=20).contains(&walks), "{walks} walks");
    }

    /// Once, the thread woke a hundred times a second.
    #[test]
    fn a_sweep_without_room_lets_the_thread_sleep() {
        let store = Store::in_memory(1).unwrap();
        drop(store.set_retention("log", Retention::new().age(Duration::from_millis(1))).unwrap());
        drop(store.append("log", "entry").unwrap());
        store.checkpoint().unwrap();
        let runs = store.inner().state().runs.clone();
        let mut expiry = Expiry::default();
        expiry.old.push_back(b"log".to_vec());
        assert_eq!(expiry.next(&runs), Some(0));
        expiry.stuck = Some(100);
        assert_eq!(expiry.next(&runs), Some(u64::MAX));
    }

    #[test]
    fn a_run_is_walked_through_once_it_is_worth_it() {
        let ageing = Ageing { entries: 100, from: 1000, to: 2000 };
        assert_eq!(due(ageing, 100), 1150, "15 of 100");
        assert_eq!(due(ageing, 400), 1600);
        assert_eq!(due(ageing, 10_000), 2000, "all of its own");
        let most = u64::MAX;
        assert_eq!(due(Ageing { entries: most, from: 0, to: most }, most), most / 100 * 15 + 2);
        assert_eq!(due(Ageing { entries: 0, from: 5, to: 1 }, 0), 5);
    }
}
