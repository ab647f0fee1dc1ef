//! Sweeping: entries that have become too old, of logs that nobody commits to, are trimmed, and so
//! become garbage that merging drops as any other (`maintenance/policy/mod.rs`).
//!
//! A run tells how many entries its logs have under limits of age, and when the first and the last
//! of them become too old (`format/manifest.rs`). Once the store is idle, and about as many are too
//! old as make all runs worth a merge, or all of the run's are, its heads are walked through, and
//! each log of which entries are too old gets a commit that trims them: what such a commit may do,
//! appending decides by what the log is by then. So a store at rest gives back what is too old as
//! it gives back what is dead.
//!
//! How many are too old is reckoned as if they became so evenly. One log of long age makes that
//! wrong; so all runs of which anything is too old are walked through in a round, an hour after
//! that is so at the latest. Where a round finds less than is worth a merge, the next one waits
//! twice as long, until one finds as much. What was found is kept in memory only: each opening
//! begins with an hour, and finds once more what no merge has dropped since.

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::sync::Arc;

use crate::engine::Inner;
use crate::error::Error;
use crate::maintenance::policy::POLICY;
use crate::model::commit::{Action, Durability, Op};
use crate::model::retention_state::Ageing;
use crate::read::scan::RunLogs;
use crate::run::{Run, RunSet};
use crate::sync::atomic::Ordering;

/// Logs that a step looks at.
const LOGS: usize = 200;

/// The shortest time, in milliseconds, that what is too old waits for a round.
const HOUR: u64 = 3_600_000;

/// What is known of sweeps.
#[derive(Default)]
pub(crate) struct Expiry {
    swept: BTreeMap<u64, Swept>,
    going: Option<ExpiryPass>,
    round: Option<Round>,
    /// Rounds in a row that found little.
    vain: u32,
    /// Logs of which entries were found to be too old, to be trimmed yet.
    old: VecDeque<Vec<u8>>,
    /// The last try to trim them found no room.
    in_vain: bool,
    /// Nor did the one before, with so much of it.
    stuck: Option<u64>,
}

/// A run that was walked through.
#[derive(Clone, Copy)]
struct Swept {
    /// As of when.
    at: u64,
    /// What it told then; one that is being made tells of more later.
    told: Option<Ageing>,
    /// What was left to become too old.
    left: Option<Ageing>,
}

/// Walks through all runs of which anything is too old.
struct Round {
    /// As of when.
    now: u64,
    /// Entries that were too old.
    found: u64,
}

/// A walk through a run. It has the run's number only: one that is replaced between two steps,
/// maybe long before the store is idle again, is not kept from going.
struct ExpiryPass {
    run: u64,
    /// The log to go on with.
    from: Vec<u8>,
    /// What was too old by then, another walk found.
    since: u64,
    now: u64,
    left: Option<Ageing>,
}

/// How many entries that are too old are worth a merge, of so many in all.
fn enough(entries: u64) -> u64 {
    (u128::from(entries) * u128::from(POLICY.idle_garbage) / 100) as u64
}

/// When a run is worth a walk, of runs that hold so many entries in all.
fn due(ageing: Ageing, entries: u64) -> u64 {
    let Ageing { entries: ageing, from, to } = ageing;
    let span = u128::from(to.saturating_sub(from));
    // As if they became too old evenly.
    from.saturating_add((span * u128::from(enough(entries).min(ageing)) / u128::from(ageing.max(1))) as u64)
}

/// The entries of all runs.
fn entries(runs: &RunSet) -> u64 {
    runs.iter().map(|run| run.meta.entries).fold(0, u64::saturating_add)
}

impl Expiry {
    /// One that makes a round now.
    fn in_a_round(now: u64) -> Self {
        Self { round: Some(Round { now, found: 0 }), ..Self::default() }
    }

    fn ageing(&self, run: &Run) -> Option<Ageing> {
        self.swept(run).map_or_else(|| run.meta.ageing(), |swept| swept.left)
    }

    fn swept(&self, run: &Run) -> Option<Swept> {
        self.swept.get(&run.meta.id).copied().filter(|swept| swept.told == run.meta.ageing())
    }

    /// When the next run is worth a walk, or a round comes.
    pub fn next(&self, runs: &RunSet) -> Option<u64> {
        if self.stuck.is_none() && (self.going.is_some() || self.round.is_some() || !self.old.is_empty()) {
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

    /// Goes on with a walk, or begins one. `false` where there is no run to walk through.
    fn step(&mut self, runs: &RunSet, now: u64) -> Result<bool, Error> {
        let Some(mut expire) = self.going.take().or_else(|| self.begin(runs, now)) else {
            return Ok(false);
        };
        // Of a run that was replaced, the new one tells what is left.
        let Some(run) = runs.iter().find(|run| run.meta.id == expire.run) else { return Ok(true) };
        if self.walk(&mut expire, run).inspect_err(|_| self.give_up(run))? {
            self.going = Some(expire);
        }
        Ok(true)
    }

    /// What cannot be read now will not be read better at the next try.
    fn give_up(&mut self, run: &Run) {
        self.swept.insert(run.meta.id, Swept { at: 0, told: run.meta.ageing(), left: None });
    }

    /// Looks at some logs; `false` once there is no more.
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
    /// Whether entries in some run become too old.
    pub fn is_ageing(&self) -> bool {
        self.state().runs.iter().any(|run| run.meta.ageing().is_some())
    }

    /// Does a part of a sweep, for an idle store. `false` where there is none to be done now.
    pub fn expire(&self) -> Result<bool, Error> {
        // Another thread is at it, or this very one further out.
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
            Err(Error::Full { .. }) => {
                // It goes on once what waits is written, and the checkpoint done that was asked
                // for. Where that does not help, there is nothing to do before there is more room.
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

    /// Walks through all runs of which anything is too old by now, each once, and waits for room if
    /// need be.
    pub fn expire_all(&self) -> Result<(), Error> {
        // What becomes too old meanwhile is left: it may be ever more.
        let now = self.now();
        let mut expiry = Expiry::in_a_round(now);
        loop {
            let runs = self.state().runs.clone();
            let more = expiry.step(&runs, now)?;
            drop(runs);
            self.trim_old(&mut expiry, true)?;
            if !more {
                return Ok(());
            }
        }
    }

    /// Trims what is too old of the logs that were found; those that there is no room for are kept
    /// for another try.
    fn trim_old(&self, expiry: &mut Expiry, wait: bool) -> Result<(), Error> {
        while let Some(key) = expiry.old.front() {
            match self.expire_log(key, wait) {
                Ok(()) | Err(Error::EmptyCommit) => {} // others trimmed it
                Err(error @ (Error::Full { .. } | Error::Stopped { .. } | Error::Closed)) => {
                    return Err(error);
                }
                Err(error) => {
                    let log = key.escape_ascii();
                    tracing::warn!(%log, %error, "what is too old of a log was not trimmed; going on with others");
                }
            }
            expiry.old.pop_front();
        }
        Ok(())
    }

    /// Trims what is too old of a log.
    fn expire_log(&self, key: &[u8], wait: bool) -> Result<(), Error> {
        // The store stays idle.
        let own = |n: u64| self.own_commits.fetch_add(n, Ordering::Relaxed);
        own(1);
        let swept = self.append(&[Op { key, action: Action::ExpiryPass }], Some(Durability::Durable), wait);
        if !matches!(swept, Ok(Some(_))) {
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

    /// A hundred logs, of ages of one day to a hundred.
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
            // Marks tell of a 64th, and groups of logs, more.
            let days = hour / 24 * 60 / 64;
            let found = expiry.old.len() as u64;
            assert!(found + 15 >= days.min(100), "{found} of {days} after {hour} hours");
        }
        assert_eq!(expiry.old.len(), 100, "each once");
        assert!((10..=20).contains(&walks), "{walks} walks");
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
