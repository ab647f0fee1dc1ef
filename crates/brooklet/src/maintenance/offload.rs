//! Offloads a run whose parts are stored elsewhere: the store then reads the run from there, and
//! frees its space in the heap. Takes a run back whose parts were copied to the heap.
//!
//! Invariants:
//! 1. A run is in the heap or offloaded as a whole. All offloaded runs are older than all runs in
//!    the heap, and are of the last level. Merges are of neighbours, so a merge never includes an
//!    offloaded run, and levels never fall.
//! 2. A run that is being merged is not offloaded.

use std::sync::Arc;

use brooklet_io::seeded::bug;

use crate::error::Error;
use crate::maintenance::compaction::Compaction;
use crate::maintenance::install::Brings;
use crate::maintenance::policy::POLICY;
use crate::maintenance::{Context, Maintenance};
use crate::run::table::Table;
use crate::run::{Counted, Run, RunSet};

impl Maintenance {
    /// Returns the run that may be offloaded next: the oldest run in the heap.
    pub fn may_go(&self, runs: &RunSet) -> Option<Arc<Run>> {
        let oldest = runs.here().last()?;
        let at_hand = self.compaction.as_ref().map_or(&[][..], Compaction::inputs);
        let merging = runs.merge().into_iter().flat_map(|(into, inputs)| [into].into_iter().chain(inputs));
        let merges =
            at_hand.contains(&oldest.meta.id) || merging.into_iter().any(|run| Arc::ptr_eq(run, oldest));
        (!merges).then(|| oldest.clone())
    }

    /// Replaces the tables of `run` by `tables`, its offloaded copies. Returns `false` if the run
    /// may no longer be offloaded.
    pub fn let_go(
        &mut self,
        context: &Context<'_>,
        run: Arc<Run>,
        tables: Vec<Arc<Table>>,
    ) -> Result<bool, Error> {
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        let old = context.state().runs.clone();
        if self.may_go(&old).is_none_or(|oldest| !Arc::ptr_eq(&oldest, &run)) {
            return Ok(false);
        }
        let gone = Arc::new(run.gone(tables));
        let next = |(old, dead): Counted| (if Arc::ptr_eq(&old, &run) { gone.clone() } else { old }, dead);
        let runs: Vec<Counted> = old.counted().map(next).collect();
        let merging = old.merging().cloned();
        drop(old);
        if bug("run-goes-early") {
            run.tables.iter().for_each(|table| self.heap.give(table.extent()));
        }
        self.replace(context, runs, merging, Brings::Nothing).map_err(|build_error| {
            match self.fatal(context, build_error) {
                Error::Full { why, .. } => Error::Full { what: "a manifest in the heap", why },
                error => error,
            }
        })?;
        let freed = run.tables.clone();
        drop(run);
        self.retired.extend(freed.into_iter().filter(|_| !bug("run-goes-early")));
        self.tidy(context);
        Ok(true)
    }

    /// Replaces the tables of `run`, which is offloaded, by `tables`, their copies in the heap.
    /// Returns `false`, and frees the copies, if another call was faster. `checkpoint` is the size
    /// of a checkpoint's run, in bytes.
    pub fn take_back(
        &mut self,
        context: &Context<'_>,
        run: &Arc<Run>,
        tables: Vec<Arc<Table>>,
        checkpoint: u64,
    ) -> Result<bool, Error> {
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        let old = context.state().runs.clone();
        let here = old.here();
        if old.iter().nth(here.len()).is_none_or(|newest| !Arc::ptr_eq(newest, run)) {
            drop(old);
            self.give_up_tables(tables);
            return Ok(false);
        }
        let at_hand = self.compaction.as_ref().map_or(0, Compaction::level);
        let level = level_of(here, run, checkpoint).max(at_hand);
        let back = Arc::new(run.back(tables.clone(), level));
        let next = |(old, dead): Counted| (if Arc::ptr_eq(&old, run) { back.clone() } else { old }, dead);
        let runs: Vec<Counted> = old.counted().map(next).collect();
        let merging = old.merging().cloned();
        drop((old, back));
        self.replace(context, runs, merging, Brings::Nothing).map_err(|build_error| {
            let build_error = self.lose(tables, build_error);
            self.import_failed(context, "a manifest in the heap", build_error)
        })?;
        self.tidy(context);
        Ok(true)
    }
}

/// Returns the level of a run that comes back behind the runs that are `here`. Its own level is not
/// known any more: this is the level of a run of its size, and no lower than any of theirs. The run
/// that a merge has begun is among them, and its level counts once the merge has ended.
fn level_of(here: &[Arc<Run>], run: &Run, checkpoint: u64) -> u64 {
    let newer: u64 = here.iter().map(|run| run.bytes()).sum();
    let highest = here.iter().map(|run| run.meta.level).max().unwrap_or(0);
    POLICY.level_for(newer + run.len(), checkpoint).max(highest)
}
