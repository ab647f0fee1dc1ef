//! Letting a run go that somebody keeps elsewhere: from then on it is read from there, and its
//! space in the heap is free.
//!
//! Invariants:
//! 1. Runs lie here, or elsewhere, as a whole; all that lie elsewhere are older than all that lie
//!    here, and of the last level. So merges, which are of neighbours, never take one of them in,
//!    and levels never fall.
//! 2. A run that is being merged does not go.

use std::sync::Arc;

use brooklet_io::seeded::bug;

use crate::error::Error;
use crate::maintenance::compaction::Compaction;
use crate::maintenance::{Context, Counted, Maintenance};
use crate::run::table::Table;
use crate::run::{Run, RunSet};

impl Maintenance {
    /// The run that may go next, if one may: the oldest that lies here.
    pub fn may_go(&self, runs: &RunSet) -> Option<Arc<Run>> {
        let oldest = runs.here().last()?;
        let at_hand = self.compaction.as_ref().map_or(&[][..], Compaction::inputs);
        let merging = runs.merge().into_iter().flat_map(|(into, inputs)| [into].into_iter().chain(inputs));
        let merges =
            at_hand.contains(&oldest.meta.id) || merging.into_iter().any(|run| Arc::ptr_eq(run, oldest));
        (!merges).then(|| oldest.clone())
    }

    /// Has `run` be read from `tables`, which are its own, and kept elsewhere. `false` where it may
    /// not go any more.
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
        let next =
            |old: &Arc<Run>| (if Arc::ptr_eq(old, &run) { gone.clone() } else { old.clone() }, old.dead());
        let runs: Vec<Counted> = old.iter().map(next).collect();
        let merging = old.merging().cloned();
        drop(old);
        if bug("run-goes-early") {
            run.tables.iter().for_each(|table| self.heap.give(table.extent()));
        }
        self.replace(context, runs, merging, None).map_err(|build_error| {
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
}
