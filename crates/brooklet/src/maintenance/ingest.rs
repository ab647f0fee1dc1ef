//! Adopting a run of new logs that somebody else has written, past the log: an import becomes part of the store in one step.
//!
//! Whoever imports takes extents from the heap, fills them, and makes sure that no run knows any of the logs. What is left is
//! what commits make meanwhile, and that one step. So a checkpoint carries it: from the moment at which its tier is frozen,
//! commits that would make a log wait; when its run is written, that is looked through for logs of the import; and then one
//! superblock makes both count, the import as the newest run. Commits on logs that are there go on, and so do readers.
//!
//! Invariants:
//! 1. No log of the import exists, in whatever runs or tier, when it is adopted. So nothing older or newer needs to be resolved
//!    against it, and a tombstone in what is older hides nothing of it.
//! 2. The bounds of a log that is not there are in no tier when it is adopted, and in none that was begun before: whoever
//!    looked it up looks again.
//! 3. Extents of an import are in the manifest once it is adopted; before, the heap is rebuilt without them.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use brooklet_io::seeded::bug;

use crate::error::{Error, KeyText};
use crate::maintenance::{Context, Maintenance};
use crate::model::Bounds;
use crate::read::scan::RunLogs;
use crate::run::table::Table;
use crate::run::writer::BuildError;
use crate::run::{Run, Wanted};
use crate::volume::allocator::Extent;

/// An import that is to be adopted, and how that went.
#[derive(Clone)]
pub(crate) struct Ingestion {
    pub run: Arc<Run>,
    pub outcome: Arc<OnceLock<Result<(), Error>>>,
}

impl Maintenance {
    /// The number of a run that somebody is going to write.
    pub fn new_run(&mut self) -> u64 {
        let id = self.superblock.next_run;
        self.superblock.next_run += 1;
        id
    }

    /// Finds room for a segment of an import, or of a dump, whose first entry needs `least` bytes. What checkpoints are certain of, and
    /// what is kept for merging and freeing, it does not touch.
    pub fn extent_for_import(
        &mut self,
        context: &Context<'_>,
        what: &'static str,
        least: u64,
    ) -> Result<Extent, Error> {
        let len = self.segment_size().max(least.next_multiple_of(SECTOR));
        self.sweep();
        for grown in [false, true] {
            if grown {
                self.make(crate::maintenance::reserve::more(len))
                    .map_err(|trouble| self.import_failed(context, what, trouble))?;
            }
            let Some(extent) = self.heap.take(len) else { continue };
            let mut front = context.front();
            let need = front.need();
            let told = self.told(&need, &front.runs);
            if told.most >= need.claims {
                front.room.tell(told);
                return Ok(extent);
            }
            drop(front);
            self.heap.give(extent);
        }
        let trouble = self.no_room();
        Err(self.import_failed(context, what, trouble))
    }

    /// Gives up segments of an import that are in no manifest.
    pub fn give_up_segments(&mut self, segments: Vec<Arc<Table>>) {
        self.retired.extend(segments);
        self.sweep();
    }

    /// Why an import, or a dump, cannot go on. Stops the store where it must.
    pub fn import_failed(&self, context: &Context<'_>, what: &'static str, trouble: BuildError) -> Error {
        match self.fatal(context, trouble) {
            Error::Full { why, .. } => Error::Full { what, why },
            error => error,
        }
    }

    /// Begins to adopt an import, of which the runs that are `known` are known to have no log. `false` where it cannot begin
    /// yet: there are others, or a checkpoint is going on.
    pub fn adopt(
        &mut self,
        context: &Context<'_>,
        adoption: &Ingestion,
        known: &BTreeSet<u64>,
    ) -> Result<bool, Error> {
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        {
            let mut front = context.front();
            let looked = front.runs.iter().all(|run| known.contains(&run.meta.id));
            if !looked || self.checkpoint.is_some() || self.adoption.is_some() {
                return Ok(false);
            }
            front.adopting = !bug("import-lets-new-logs-pass");
        }
        self.adoption = Some(adoption.clone());
        self.compacting = false;
        if !self.freeze(context) {
            // Nothing is in memory only, and nobody can make a log.
            self.adopt_alone(context).map_err(|trouble| self.bear(context, trouble))?;
        }
        Ok(true)
    }

    fn adopt_alone(&mut self, context: &Context<'_>) -> Result<(), BuildError> {
        let old = context.front().runs.clone();
        let runs = self.adopted().into_iter().chain(old.iter().map(|run| (run.clone(), run.dead())));
        let (runs, merging) = (runs.collect(), old.merging().cloned());
        drop(old);
        self.replace(context, runs, merging, None)?;
        self.end_adoption(context, Ok(()));
        Ok(())
    }

    /// The import that is being adopted, as the newest of the runs.
    pub(super) fn adopted(&self) -> Option<crate::maintenance::Counted> {
        self.adoption.as_ref().map(|adoption| (adoption.run.clone(), 0))
    }

    /// Refuses the import that is being adopted if a log of it came up in the run of the checkpoint which carries it.
    pub(super) fn look_through(&mut self, context: &Context<'_>, made: &Arc<Run>) {
        let Some(adoption) = self.adoption.as_ref().filter(|_| !bug("import-is-not-looked-through")) else {
            return;
        };
        let exists = |key: &[u8]| Ok(made.head(&mut Wanted::new(key))?.and_then(|head| head.piece.bounds));
        if let Err(error) = refuse_common(made, &adoption.run, exists) {
            self.end_adoption(context, Err(error));
        }
    }

    /// Ends this adoption, if it is still going on.
    pub fn give_up_adoption(&mut self, context: &Context<'_>, adoption: &Ingestion, why: Error) {
        if self.adoption.as_ref().is_some_and(|going_on| Arc::ptr_eq(&going_on.run, &adoption.run)) {
            self.end_adoption(context, Err(why));
        }
    }

    /// Ends the adoption that is going on, if one is.
    pub(super) fn end_adoption(&mut self, context: &Context<'_>, outcome: Result<(), Error>) {
        let Some(adoption) = self.adoption.take() else { return };
        context.front().adopting = false;
        let first = adoption.outcome.set(outcome);
        debug_assert!(first.is_ok(), "an adoption ends once");
        context.wal.wake();
    }
}

const SECTOR: u64 = brooklet_io::SECTOR as u64;

/// Refuses an import of which a run has a log that `exists`. Goes through whichever of them has fewer logs.
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
