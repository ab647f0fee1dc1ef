//! Sweeping: entries that have become too old, of logs that nobody commits to, are trimmed, and so become garbage that
//! merging drops as any other (`policy.rs`).
//!
//! A run tells how many entries its logs have under limits of age, and when the first and the last of them become too old
//! (`manifest.rs`). Once the store is idle, and about as many are too old as make all runs worth a merge, or all of the
//! run's are, its heads are walked through, and each log of which entries are too old gets a commit that trims them: what
//! such a commit may do, boarding decides by what the log is by then. So a store at rest gives back what is too old as
//! it gives back what is dead; a run is walked through once for each such share, and once more after each opening at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::commit::{Action, Durability, Op};
use crate::engine::Inner;
use crate::error::Error;
use crate::policy::POLICY;
use crate::runs::{Run, RunSet};
use crate::scan::RunLogs;
use crate::sync::atomic::Ordering;
use crate::terms::Ageing;

/// Logs that a step looks at.
const LOGS: usize = 200;

/// What is known of sweeps.
#[derive(Default)]
pub(crate) struct Sweeper {
    /// Of runs that were walked through, what they told, and what was left to become too old. A run that is being made
    /// may tell of more later.
    swept: BTreeMap<u64, [Option<Ageing>; 2]>,
    going: Option<Sweep>,
}

/// A walk through a run.
struct Sweep {
    run: Arc<Run>,
    logs: RunLogs,
    now: u64,
    left: Option<Ageing>,
}

/// When a run is worth a walk, of runs that hold so many entries in all.
fn due(ageing: Ageing, entries: u64) -> u64 {
    let Ageing { entries: ageing, from, to } = ageing;
    let enough = u128::from(entries) * u128::from(POLICY.idle_garbage) / 100;
    let span = u128::from(to.saturating_sub(from));
    // As if they became too old evenly.
    from.saturating_add((span * enough.min(ageing.into()) / u128::from(ageing.max(1))) as u64)
}

impl Sweeper {
    fn ageing(&self, run: &Run) -> Option<Ageing> {
        let told = run.meta.ageing();
        self.swept.get(&run.meta.id).filter(|swept| swept[0] == told).map_or(told, |swept| swept[1])
    }

    /// When the next run is worth a walk.
    pub fn next(&self, runs: &RunSet) -> Option<u64> {
        let entries = runs.iter().map(|run| run.meta.entries).fold(0, u64::saturating_add);
        let due = runs.iter().filter_map(|run| Some(due(self.ageing(run)?, entries)));
        due.chain(self.going.as_ref().map(|_| 0)).min()
    }

    /// Goes on with a walk, or begins one; `all` runs are worth it, of which anything is too old. Gives the logs of which
    /// entries are, and `false` where there is no run to walk through.
    fn step(&mut self, runs: &RunSet, now: u64, all: bool) -> Result<(Vec<Vec<u8>>, bool), Error> {
        let sweep = match self.going.take() {
            None => self.begin(runs, now, all)?,
            going => going,
        };
        let Some(mut sweep) = sweep else { return Ok((Vec::new(), false)) };
        let (old, more) = match self.walk(&mut sweep) {
            Ok(walked) => walked,
            Err(error) => {
                self.give_up(&sweep.run);
                return Err(error);
            }
        };
        self.going = more.then_some(sweep);
        Ok((old, true))
    }

    /// What cannot be read now will not be read better at the next try.
    fn give_up(&mut self, run: &Run) {
        self.swept.insert(run.meta.id, [run.meta.ageing(), None]);
    }

    /// Looks at some logs; `false` once there is no more.
    fn walk(&mut self, sweep: &mut Sweep) -> Result<(Vec<Vec<u8>>, bool), Error> {
        let mut old = Vec::new();
        for _ in 0..LOGS {
            let Some((key, head)) = &sweep.logs.current else {
                self.swept.insert(sweep.run.meta.id, [sweep.run.meta.ageing(), sweep.left]);
                return Ok((old, false));
            };
            if let (Some(bounds), Some(terms)) = (head.piece.bounds, &head.terms) {
                if terms.young(bounds, sweep.now) > bounds.first {
                    old.push(key.clone());
                }
                sweep.left = Ageing::sum(sweep.left, terms.ageing(bounds, sweep.now));
            }
            sweep.logs.advance()?;
        }
        Ok((old, true))
    }

    fn begin(&mut self, runs: &RunSet, now: u64, all: bool) -> Result<Option<Sweep>, Error> {
        self.swept.retain(|id, _| runs.iter().any(|run| run.meta.id == *id));
        let entries = runs.iter().map(|run| run.meta.entries).fold(0, u64::saturating_add);
        let at = |ageing: Ageing| if all { ageing.from } else { due(ageing, entries) };
        let Some(run) = runs.iter().find(|run| self.ageing(run).is_some_and(|ageing| at(ageing) <= now))
        else {
            return Ok(None);
        };
        let logs = RunLogs::new(run, b"").inspect_err(|_| self.give_up(run))?;
        Ok(Some(Sweep { run: run.clone(), logs, now, left: None }))
    }
}

impl Inner {
    /// Whether entries in some run become too old.
    pub fn is_ageing(&self) -> bool {
        self.front().runs.iter().any(|run| run.meta.ageing().is_some())
    }

    /// Does a part of a sweep. `false` where there is none to be done now.
    pub fn sweep(&self, all: bool) -> Result<bool, Error> {
        let runs = self.front().runs.clone();
        let step = |sweeper: &mut Sweeper| sweeper.step(&runs, self.now(), all);
        let (old, more) = match self.sweeper.try_lock() {
            Ok(mut sweeper) => step(&mut sweeper)?,
            // A store without threads has one caller, who came again from a volume that calls back: it goes on further out.
            Err(_) if !self.options.threads => return Ok(false),
            Err(_) => step(&mut self.sweeper.lock().expect("no panics"))?,
        };
        for key in &old {
            match self.sweep_log(key) {
                Err(Error::EmptyCommit) => {} // others trimmed it
                Err(Error::Full { .. }) => {
                    // The walk is begun anew when there is room.
                    *self.sweeper.lock().expect("no panics") = Sweeper::default();
                    return Ok(false);
                }
                done => done?,
            }
        }
        Ok(more)
    }

    /// Trims what is too old of a log.
    fn sweep_log(&self, key: &[u8]) -> Result<(), Error> {
        // The store stays idle.
        let own = |n: u64| self.own_commits.fetch_add(n, Ordering::Relaxed);
        own(1);
        let swept = self.board(&[Op { key, action: Action::Sweep }], Durability::Durable, false);
        if swept.is_err() {
            own(u64::MAX);
        }
        swept.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
