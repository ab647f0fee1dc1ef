//! Compaction: some neighbouring runs become one.

use std::sync::Arc;

use brooklet_io::seeded::bug;

use super::build::Build;
use super::{Context, Counted, Keeper};
use crate::error::Error;
use crate::merge::{Input, Trouble};
use crate::policy::{Merge, POLICY, Shape};
use crate::runs::{Run, RunSet};

/// A compaction that goes on.
pub(super) struct Compaction {
    /// The numbers of the runs that it replaces, newest first.
    replaces: Vec<u64>,
    pub build: Build,
}

impl Compaction {
    pub fn replaces(&self) -> &[u64] {
        &self.replaces
    }
}

impl Keeper {
    /// Starts merging all runs into one, if there are several and nothing else goes on.
    pub fn merge_all(&mut self, context: &Context<'_>) -> Result<(), Error> {
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        let runs = context.front().runs.clone();
        let level = runs.iter().map(|r| r.meta.level).max().unwrap_or_default();
        self.compacting = true;
        if runs.iter().len() > 1 && !self.is_busy() {
            self.short_of_room = true;
            let merged = self.merge(&runs, &Merge { runs: 0..runs.iter().len(), level });
            merged.map_err(|trouble| self.bear(context, trouble))?;
        }
        Ok(())
    }

    /// What to merge next, if anything.
    pub fn due(&self, runs: &RunSet, eager: bool) -> Option<Merge> {
        let in_vain = self.barred || self.cramped && !self.short_of_room;
        if in_vain { None } else { POLICY.next(&shapes(runs), eager) }
    }

    /// Starts or goes on with a compaction.
    pub(super) fn compact(&mut self, context: &Context<'_>) -> Result<bool, Trouble> {
        self.compacting = true;
        let Some(mut compaction) = self.compaction.take() else {
            let runs = context.front().runs.clone();
            // Where there is no room, space is worth as much work as while the store is idle.
            let eager = context.is_idle() || self.short_of_room;
            let Some(merge) = self.due(&runs, eager) else { return Ok(false) };
            return self.merge(&runs, &merge).map(|()| true);
        };
        if compaction.build.slice().inspect_err(|_| self.heap.give(compaction.build.extent))? {
            self.compaction = Some(compaction);
            return Ok(true);
        }
        let Compaction { replaces, build } = compaction;
        let run = self.seal(build)?;
        let old = context.front().runs.clone();
        let (kept, replaced): (Vec<_>, Vec<_>) =
            old.iter().cloned().partition(|r| !replaces.contains(&r.meta.id));
        let newer = old.iter().position(|r| r.meta.id == replaces[0]).expect("merged runs stay until then");
        let mut runs: Vec<Counted> = kept.into_iter().map(|run| (run.clone(), run.dead())).collect();
        let newer = if bug("merged-run-is-the-oldest") { runs.len() } else { newer };
        let merged = run.iter().map(|run| (run.clone(), still_dead(&replaced, run)));
        runs.splice(newer..newer, merged);
        if bug("runs-are-freed-early") {
            replaced.iter().for_each(|run| self.heap.give(run.extent()));
        }
        self.replace(context, runs, None).map_err(|trouble| self.lose(run, trouble))?;
        if !bug("runs-are-freed-early") {
            self.retired.extend(replaced);
        }
        drop(old);
        self.stats.compactions += 1;
        self.tidy();
        Ok(true)
    }

    fn merge(&mut self, all: &RunSet, merge: &Merge) -> Result<(), Trouble> {
        let chosen: Vec<Arc<Run>> =
            all.iter().skip(merge.runs.start).take(merge.runs.len()).cloned().collect();
        let bottom = merge.runs.end == all.iter().len() || bug("tombstones-go-early");
        let build = self.build(Input::runs(&chosen, bottom)?, merge.level)?;
        let replaces = chosen.iter().map(|r| r.meta.id).collect();
        self.compaction = Some(Compaction { replaces, build });
        Ok(())
    }
}

/// How many entries of a merged run are dead. What the merge dropped, the runs that were merged had lost to each other;
/// whatever else they had lost, newer runs made irrelevant, and the merged run still holds it. What was lost and not
/// counted can only make this too small.
fn still_dead(replaced: &[Arc<Run>], merged: &Run) -> u64 {
    let entries = replaced.iter().map(|run| run.meta.entries).fold(0, u64::saturating_add);
    let dead = replaced.iter().map(|run| run.dead()).fold(0, u64::saturating_add);
    let dropped = if bug("merge-keeps-its-dead") { 0 } else { entries.saturating_sub(merged.meta.entries) };
    merged.at_most_all(dead.saturating_sub(dropped))
}

/// How far merging lags behind, in percent.
pub(crate) fn backlog(runs: &RunSet) -> u64 {
    POLICY.backlog(&shapes(runs))
}

/// What the policy knows of the runs.
fn shapes(runs: &RunSet) -> Vec<Shape> {
    runs.iter().map(|run| Shape::of(&run.meta, run.dead())).collect()
}
