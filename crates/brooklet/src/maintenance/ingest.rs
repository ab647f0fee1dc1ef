//! Ingests a run of new logs that an import has written: the import becomes part of the store in
//! one step, without passing through the log.
//!
//! The import takes extents from the heap, fills them, and checks that no run knows any of its
//! logs. Commits can still create the same logs meanwhile. Therefore a checkpoint carries the
//! import. Once the checkpoint's memtable is frozen, commits that would create a log wait. When the
//! checkpoint's run is written, it is searched for logs of the import. Then one superblock makes
//! both runs count, with the import as the newest run. Commits on existing logs and readers
//! continue.
//!
//! Invariants:
//! 1. When the import is ingested, none of its logs exists in any run or memtable. No older or
//!    newer state needs to be resolved against it, and no older tombstone hides any of it.
//! 2. When the import is ingested, no memtable, nor any memtable begun before, holds the bounds of
//!    a log that does not exist: a commit that looked up such a log looks it up again.
//! 3. The manifest names the extents of an import once the import is ingested; before, the heap is
//!    rebuilt without them.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use brooklet_io::seeded::bug;

use crate::error::{Error, KeyText};
use crate::maintenance::install::Brings;
use crate::maintenance::{Context, Maintenance};
use crate::model::Bounds;
use crate::read::scan::RunLogs;
use crate::run::table::Table;
use crate::run::writer::BuildError;
use crate::run::{Counted, Run, Wanted};
use crate::volume::allocator::Extent;

/// An import that is to be ingested, and its outcome.
#[derive(Clone)]
pub(crate) struct Ingestion {
    pub run: Arc<Run>,
    pub outcome: Arc<OnceLock<Result<(), Error>>>,
}

impl Maintenance {
    /// Returns the number for a run that will be written.
    pub fn new_run(&mut self) -> u64 {
        let id = self.superblock.next_run;
        self.superblock.next_run += 1;
        id
    }

    /// Finds room for a table of an import or of a dump whose first entry needs `least` bytes. It
    /// does not use the space that is certain for checkpoints, nor the reserve for merging and for
    /// commits that free space.
    pub fn extent_for_import(
        &mut self,
        context: &Context<'_>,
        what: &'static str,
        least: u64,
    ) -> Result<Extent, Error> {
        let len = self.table_size().max(least.next_multiple_of(SECTOR));
        self.extent_of(context, what, len)
    }

    /// Finds room for `len` bytes, under the same conditions. `len` is a multiple of the sector.
    pub fn extent_of(
        &mut self,
        context: &Context<'_>,
        what: &'static str,
        len: u64,
    ) -> Result<Extent, Error> {
        self.collect_garbage();
        for grown in [false, true] {
            if grown {
                self.make(crate::maintenance::reserve::more(len))
                    .map_err(|build_error| self.import_failed(context, what, build_error))?;
            }
            let Some(extent) = self.heap.take(len) else { continue };
            let mut state = context.state();
            let need = state.need();
            let budget = self.space_budget(&need, &state.runs);
            if budget.most >= need.claims {
                state.room.set_budget(budget);
                return Ok(extent);
            }
            drop(state);
            self.heap.give(extent);
        }
        let build_error = self.no_room();
        Err(self.import_failed(context, what, build_error))
    }

    /// Frees tables of an import that are in no manifest.
    pub fn give_up_tables(&mut self, tables: Vec<Arc<Table>>) {
        self.retired.extend(tables);
        self.collect_garbage();
    }

    /// Returns the error that ends an import or a dump. Stops the store if necessary.
    pub fn import_failed(&self, context: &Context<'_>, what: &'static str, build_error: BuildError) -> Error {
        match self.fatal(context, build_error) {
            Error::Full { why, .. } => Error::Full { what, why },
            error => error,
        }
    }

    /// Begins to ingest an import. The runs in `known` have no log of the import. Returns `false`
    /// if the import must wait because other imports or a checkpoint are running.
    pub fn ingest(
        &mut self,
        context: &Context<'_>,
        ingestion: &Ingestion,
        known: &BTreeSet<u64>,
    ) -> Result<bool, Error> {
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        {
            let mut state = context.state();
            let looked = state.runs.iter().all(|run| known.contains(&run.meta.id));
            if !looked || self.checkpoint.is_some() || self.ingestion.is_some() {
                return Ok(false);
            }
            state.ingesting = !bug("import-lets-new-logs-pass");
        }
        self.ingestion = Some(ingestion.clone());
        self.merges.compacting = false;
        if !self.freeze(context) {
            // All entries are in runs, and no commit can create a log.
            self.ingest_alone(context).map_err(|build_error| self.handle_error(context, build_error))?;
        }
        Ok(true)
    }

    fn ingest_alone(&mut self, context: &Context<'_>) -> Result<(), BuildError> {
        let old = context.state().runs.clone();
        let runs = self.ingested().into_iter().chain(old.counted());
        let (runs, merging) = (runs.collect(), old.merging().cloned());
        drop(old);
        self.replace(context, runs, merging, Brings::Logs)?;
        self.end_ingestion(context, Ok(()));
        Ok(())
    }

    /// Returns the import that is being ingested, as the newest run.
    pub(super) fn ingested(&self) -> Option<Counted> {
        self.ingestion.as_ref().map(|ingestion| (ingestion.run.clone(), 0))
    }

    /// Refuses the import that is being ingested if `made`, the run of the checkpoint that carries
    /// the import, has one of its logs.
    pub(super) fn look_through(&mut self, context: &Context<'_>, made: &Arc<Run>) {
        let Some(ingestion) = self.ingestion.as_ref().filter(|_| !bug("import-is-not-looked-through")) else {
            return;
        };
        let exists = |key: &[u8]| Ok(made.head(&mut Wanted::new(key))?.and_then(|head| head.piece.bounds));
        if let Err(error) = refuse_common(made, &ingestion.run, exists) {
            self.end_ingestion(context, Err(error));
        }
    }

    /// Ends this ingestion if it is still running.
    pub fn give_up_ingestion(&mut self, context: &Context<'_>, ingestion: &Ingestion, why: Error) {
        if self.ingestion.as_ref().is_some_and(|going_on| Arc::ptr_eq(&going_on.run, &ingestion.run)) {
            self.end_ingestion(context, Err(why));
        }
    }

    /// Ends the current ingestion, if any.
    pub(super) fn end_ingestion(&mut self, context: &Context<'_>, outcome: Result<(), Error>) {
        let Some(ingestion) = self.ingestion.take() else { return };
        context.state().ingesting = false;
        let first = ingestion.outcome.set(outcome);
        debug_assert!(first.is_ok(), "an adoption ends once");
        context.wal.wake();
    }
}

const SECTOR: u64 = brooklet_io::SECTOR as u64;

/// Returns an error if a log of the import is in the run, and `exists`. Iterates over the logs of
/// the smaller of the two.
pub(crate) fn refuse_common(
    run: &Arc<Run>,
    import: &Arc<Run>,
    exists: impl Fn(&[u8]) -> Result<Option<Bounds>, Error>,
) -> Result<(), Error> {
    let (few, many) = if run.meta.logs <= import.meta.logs { (run, import) } else { (import, run) };
    let mut logs = RunLogs::new(few, b"")?;
    while let Some((key, _)) = &logs.current {
        if many.head(&mut Wanted::new(key))?.is_some()
            && let Some(Bounds { next, .. }) = exists(key)?
        {
            return Err(Error::LogExists { key: KeyText::of(key), next });
        }
        logs.advance()?;
    }
    Ok(())
}
