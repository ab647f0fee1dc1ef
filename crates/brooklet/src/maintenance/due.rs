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
        let has_room = self.space.short_of_space.is_none() && self.space.room >= self.merges.beside_needs;
        let (into, inputs) = runs.merge().filter(|_| has_room)?;
        let level = into.meta.level.min(inputs.first()?.meta.level);
        POLICY.beside(&self.newer_shapes(runs, into), level)
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
                *shape = Shape::of(&RunMeta { tombstones: 0, ..run.meta }, shape.bytes, runs.dead(run));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brooklet_io::{ManualClock, MemVolume};

    use super::*;
    use crate::options::Options;
    use crate::state::admission::SpacePressure;
    use crate::store::Store;

    /// Returns a store in the middle of a merge of large runs, with `newer` runs since.
    fn within_a_merge(newer: usize) -> Store {
        let options = Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(8 << 10);
        let options = options.threads(false).clock(Arc::new(ManualClock::default())).rng_seed(1);
        let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        for run in 0..POLICY.most as u64 + 1 {
            for log in 0..100 {
                drop(store.append(format!("log/{log}/{}", run * log), [run as u8; 500]).unwrap());
            }
            store.checkpoint().unwrap();
        }
        while store.inner().state().runs.merging().is_none() {
            assert!(store.step().unwrap(), "a merge is due");
        }
        for run in 0..newer {
            drop(store.append("new", [run as u8]).unwrap());
            store.checkpoint().unwrap();
        }
        store
    }

    /// Once, such a failure barred all merging, so the disk was full with room to free.
    #[test]
    fn a_merge_that_finds_no_room_beside_another_does_not_bar_that_merge() {
        let store = within_a_merge(POLICY.most + 1);
        let inner = store.inner();
        let context = inner.context().unwrap();
        let runs = inner.state().runs.clone();
        let mut maintenance = inner.maintenance();
        let is_beside = |maintenance: &Maintenance| match maintenance.due(&runs, CompactionGoal::Bounds) {
            Some(Due::Merge(merge)) => merge.runs.start == 0,
            Some(Due::Rest) => false,
            None => panic!("no merge is due"),
        };
        assert!(is_beside(&maintenance));
        (maintenance.merges.compacting, maintenance.merges.beside) = (true, true);
        let no_room = maintenance.no_room();
        drop(maintenance.handle_error(&context, no_room));
        assert!(!is_beside(&maintenance), "it needs more room than there was");
        maintenance.space.room = maintenance.merges.beside_needs;
        assert!(is_beside(&maintenance), "there is more room");
        // The merge itself needs room.
        maintenance.merges.beside = false;
        let no_room = maintenance.no_room();
        drop(maintenance.handle_error(&context, no_room));
        assert!(maintenance.due(&runs, CompactionGoal::Bounds).is_none());
    }

    /// A merge that frees nothing before its end does not hold up a merge that frees.
    #[test]
    fn a_commit_without_room_ends_a_merge_beside_another() {
        let store = within_a_merge(POLICY.most);
        while !store.inner().maintenance().compaction.as_ref().is_some_and(|merge| merge.is_beside()) {
            drop(store.append("new", b"x").unwrap());
            store.checkpoint().unwrap();
            store.step().unwrap();
        }
        let inner = store.inner();
        let pressure = SpacePressure { frees: false, any: false, requested: 1 };
        let mut maintenance = inner.maintenance();
        assert!(maintenance.compact(&inner.context().unwrap(), Some(pressure)).unwrap());
        let goes_on = maintenance.compaction.as_ref().unwrap();
        assert!(!goes_on.is_beside() && goes_on.inputs().len() > 1);
    }
}
