//! Decides which merge is due.

use std::time::Duration;

use crate::format::manifest::RunMeta;
use crate::maintenance::Maintenance;
use crate::maintenance::pace::{IDLE, LONG_IDLE};
use crate::maintenance::policy::{CompactionGoal, Merge, POLICY, Shape};
use crate::run::RunSet;

/// A merge that is due.
#[derive(Debug)]
pub(crate) enum Due {
    /// The rest of a merge that was begun.
    Rest,
    /// A new merge.
    Merge(Merge),
}

impl Maintenance {
    /// Returns the goal of merging after a time without a commit. If there is little room, space is
    /// worth as much work as while the store is idle, and faster reads are worth none.
    pub(super) fn goal(&self, quiet: Duration) -> CompactionGoal {
        match self.space.short_of_space {
            None if quiet >= LONG_IDLE => CompactionGoal::Reads,
            None if quiet < IDLE => CompactionGoal::Bounds,
            _ => CompactionGoal::Space,
        }
    }

    /// Returns the time without a commit after which a merge is due, if one is.
    pub fn due_after(&self, runs: &RunSet) -> Option<Duration> {
        let due = |quiet| self.due(runs, self.goal(quiet)).or_else(|| self.due_for_reads(runs)).is_some();
        [IDLE, LONG_IDLE].into_iter().find(|&quiet| due(quiet))
    }

    /// Has the next read wake this thread that makes a merge due.
    pub fn await_reads(&self, runs: &RunSet) {
        let bytes = self.merge_for_reads(runs).map(|(_, bytes)| bytes);
        self.table_cache.read_cost.wake_at(bytes);
    }

    /// Returns the merge that reads have paid for.
    pub(super) fn due_for_reads(&self, runs: &RunSet) -> Option<Due> {
        let (merge, bytes) = self.merge_for_reads(runs)?;
        (self.table_cache.read_cost.spent() >= bytes).then_some(Due::Merge(merge))
    }

    /// Returns the merge that would make reads faster, and the bytes of its runs. `None` if another
    /// merge is begun, or if space is worth more.
    fn merge_for_reads(&self, runs: &RunSet) -> Option<(Merge, u64)> {
        let is_free = runs.merging().is_none() && !self.is_barred() && self.space.short_of_space.is_none();
        if is_free { POLICY.for_reads(&self.shapes(runs)) } else { None }
    }

    /// Returns the next merge, if one is due.
    pub(super) fn due(&self, runs: &RunSet, goal: CompactionGoal) -> Option<Due> {
        if self.is_barred() {
            return None;
        }
        match runs.merging() {
            Some(_) if !self.is_stalled(runs) => Some(self.due_beside(runs).map_or(Due::Rest, Due::Merge)),
            _ => POLICY.next(&self.shapes(runs), goal).map(Due::Merge),
        }
    }

    /// Returns a merge of runs that are newer than the running merge, if too many of them wait. Not
    /// if room is short: the running merge frees room sooner.
    fn due_beside(&self, runs: &RunSet) -> Option<Merge> {
        let (into, inputs) = runs.merge().filter(|_| self.space.short_of_space.is_none())?;
        POLICY.beside(&self.newer_shapes(runs, into), inputs.first()?.meta.level)
    }

    /// Returns the next merge that makes room. With `any`, a merge that frees little is enough.
    pub(super) fn due_for_room(&self, runs: &RunSet, any: bool) -> Option<Due> {
        if runs.merging().is_some() && !self.is_stalled(runs) {
            return (!self.is_barred()).then_some(Due::Rest);
        }
        if self.is_barred() {
            return None;
        }
        self.reclaim(runs, any).map(Due::Merge).or_else(|| self.due(runs, CompactionGoal::Space))
    }

    /// Returns the next run to clean for room.
    fn reclaim(&self, runs: &RunSet, any: bool) -> Option<Merge> {
        let mut shapes = self.shapes(runs);
        for (shape, run) in shapes.iter_mut().zip(runs.iter()) {
            if self.merges.cleaned.contains(&run.meta.id) {
                *shape = Shape::of(&RunMeta { tombstones: 0, ..run.meta }, shape.bytes, run.dead());
            }
        }
        POLICY.reclaim(&shapes, any)
    }

    /// Returns whether a merge for room would free something.
    pub(super) fn can_free(&self, runs: &RunSet) -> bool {
        let goes_on = runs.merging().is_some() && !self.is_stalled(runs);
        !self.is_barred() && (goes_on || self.reclaim(runs, false).is_some())
    }

    /// Returns whether merging is barred because a merge failed. After a lack of room, merging is
    /// barred until there is as much room as that merge needed.
    pub(super) fn is_barred(&self) -> bool {
        self.merges.failed.as_ref().is_some_and(|(_, wanted)| self.space.room < *wanted)
    }
}
