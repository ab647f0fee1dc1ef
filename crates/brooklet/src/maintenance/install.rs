//! Installs written runs: writes the manifest, and the superblock that points at it.

use std::io;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Persist, write_all_at};
use brooklet_wal::{Cursor, Waiters};

use crate::error::{Error, described};
use crate::format::manifest::MAX_LEVEL;
use crate::format::manifest::{self, Manifest, Merging};
use crate::format::manifest_check::check_runs;
use crate::format::superblock::{Place, Superblock};
use crate::maintenance::compaction::Compaction;
use crate::maintenance::policy::is_dead;
use crate::maintenance::{Context, Maintenance};
use crate::memtable::Memtable;
use crate::run::table::Table;
use crate::run::writer::BuildError;
use crate::run::{Counted, Run};

/// The states of logs that new runs bring.
#[derive(Clone, Copy, Debug)]
pub(super) enum Brings {
    /// Those of a memtable, with all commits before this place of the ring.
    Memtable(Cursor),
    /// Those of an import.
    Logs,
    /// None of logs that commits in the ring may look up: the states that the runs had before are
    /// in other runs, or the new ones are those of a dump of memory.
    Nothing,
}

impl Maintenance {
    /// Frees tables that did not become part of the store, unless a superblock that names them may
    /// be on the disk.
    pub(super) fn lose(&mut self, sealed: Vec<Arc<Table>>, build_error: BuildError) -> BuildError {
        if !matches!(build_error, BuildError::Fatal(_)) {
            self.retired.extend(sealed);
        }
        build_error
    }

    /// Makes these the store's runs, newest first, without the runs that have no live entry.
    pub(super) fn replace(
        &mut self,
        context: &Context<'_>,
        mut runs: Vec<Counted>,
        merging: Option<Merging>,
        brings: Brings,
    ) -> Result<(), BuildError> {
        let trim = match brings {
            Brings::Memtable(end) => Some(end),
            Brings::Logs | Brings::Nothing => None,
        };
        self.set_aside(&mut runs, merging.as_ref());
        // An import may wait for its checkpoint meanwhile: only the install that has its run brings
        // its logs.
        let has = |import: &Run| runs.iter().any(|(run, _)| run.meta.id == import.meta.id);
        let ingests = self.ingestion.as_ref().is_some_and(|ingestion| has(&ingestion.run));
        let at_hand = self.compaction.as_ref().map_or(&[][..], Compaction::inputs);
        let dead = take_dead(&mut runs, at_hand, merging.as_ref());
        let chains = runs.iter().map(|(run, dead)| run.chain(*dead)).collect();
        self.install(context, &Manifest { runs: chains, merging: merging.clone() }, trim)?;
        let (mut state, mut waiters) = (context.state(), Waiters::default());
        let lsn = trim.map_or(state.runs.lsn(), |cursor| cursor.lsn);
        let changes = !matches!(brings, Brings::Nothing);
        state.runs = Arc::new(state.runs.next(runs, merging, lsn, changes));
        let fitting = (state.runs.clone(), state.bounds_cache.bytes());
        if ingests {
            // Under the same lock, because commits on the imported logs may follow at once.
            state.subscribers.lose();
            state.watchers.mark_all(&mut waiters);
        }
        let written = state.frozen.take_if(|_| trim.is_some());
        // Under the same lock: a commit that finds no frozen memtable and a full ring would request
        // another checkpoint.
        trim.into_iter().for_each(|cursor| context.wal.trim(cursor));
        if let Some(memtable) = written {
            // If a reader still holds the memtable, the reader frees it.
            self.releasing = Arc::into_inner(memtable);
            state.set_releasing(self.releasing.as_ref().map_or(0, Memtable::bytes));
        }
        // The space that the memtable claimed is now used or free. Set the budget before the next
        // append.
        let budget = self.space_budget(&state.need(), &state.runs);
        state.room.set_budget(budget);
        drop(state);
        self.table_cache.fit(&fitting.0, fitting.1);
        context.wal.wake_waiters(waiters);
        self.stats.dead_runs += dead.len() as u64;
        if !dead.is_empty() {
            // A dead run may have been the reason to keep tombstones.
            self.merges.cleaned.clear();
        }
        self.retired.extend(dead.iter().flat_map(|run| run.tables.iter().cloned()));
        Ok(())
    }

    /// Moves a run that is left out of merging, and all older runs, to the last level. Then levels
    /// do not fall from one run to the next, and newer runs are merged as usual. The runs of a
    /// begun merge are moved together.
    fn set_aside(&self, runs: &mut [Counted], merging: Option<&Merging>) {
        let place = |wanted: &dyn Fn(&Run) -> bool| runs.iter().position(|(run, _)| wanted(run));
        let Some(first) = place(&|run| self.is_left_out(run)) else { return };
        let into =
            merging.and_then(|merging| Some((place(&|run| run.meta.id == merging.into)?, merging.inputs)));
        let first = into.filter(|(at, inputs)| first <= at + inputs).map_or(first, |(at, _)| first.min(at));
        for (run, _) in &mut runs[first..] {
            if run.meta.level < MAX_LEVEL {
                *run = Arc::new(run.set_aside());
            }
        }
    }

    /// Makes `manifest` part of the store: writes it, flushes it and the tables it names, then
    /// writes the superblock.
    fn install(
        &mut self,
        context: &Context<'_>,
        manifest: &Manifest,
        trim: Option<Cursor>,
    ) -> Result<(), BuildError> {
        // The last manifest stays: better a store that stops than a store that does not open.
        check_runs(manifest, self.superblock.next_run)
            .map_err(|error| BuildError::Fatal(io::Error::other(format!("not written: {error}"))))?;
        if bug("manifest-goes-early") {
            self.manifest.take().into_iter().for_each(|old| self.heap.give(old));
        }
        let encoded = manifest.encode();
        let extent = self.allocate(encoded.len() as u64)?;
        let mut buf = AlignedBuf::new(encoded.len());
        buf.extend(&encoded);
        buf.pad();
        if let Err(error) = write_all_at(&*self.volumes.data, extent.offset, &buf, Persist::Cached) {
            self.heap.give(extent);
            return Err(BuildError::Write(error));
        }
        let mut flushed = if bug("no-flush-before-superblock") { Ok(()) } else { self.volumes.flush() };
        if flushed.is_err() && bug("failed-flush-is-tried-again") {
            flushed = self.volumes.flush();
        }
        flushed.map_err(BuildError::Fatal)?;
        if let Some(cursor) = trim.filter(|_| bug("ring-is-trimmed-early")) {
            context.wal.trim(cursor);
        }
        // If a ring write failed meanwhile, the device may have reported the failure to that write
        // only.
        if let Some(why) = context.wal.failure() {
            return Err(Error::from(why).into());
        }
        let place =
            Place { offset: extent.offset, len: encoded.len() as u64, sum: manifest::sum_of(&encoded) };
        let next = Superblock {
            generation: self.superblock.generation + 1,
            manifest: place,
            acked: context.wal.durable(),
            ..self.superblock
        };
        let next = trim.map_or(next, |cursor| next.trimmed(cursor));
        let written = next.write(&*self.volumes.data);
        if !bug("failed-superblock-is-let-pass") {
            written
                .map_err(described("writing the superblock of", &*self.volumes.data))
                .map_err(BuildError::Fatal)?;
        }
        self.superblock = next;
        self.stats.heap_written_bytes += extent.len;
        if let Some(old) = self.manifest.replace(extent) {
            self.heap.give(old);
        }
        Ok(())
    }

    /// Records that the ring begins at `cursor`: no block before it holds a record that the runs
    /// lack.
    pub fn skip_ring(&mut self, cursor: Cursor) -> io::Result<()> {
        let Superblock { generation, acked, .. } = self.superblock;
        // Each block before the place is acknowledged: it would not be skipped otherwise.
        let (generation, acked) = (generation + 1, acked.max(cursor.seq - 1));
        let next = Superblock { generation, acked, ..self.superblock }.trimmed(cursor);
        next.write(&*self.volumes.data)?;
        self.superblock = next;
        Ok(())
    }

    /// Frees the ring, if runs hold all of its records, and nothing is on its way.
    pub fn free_empty_blocks(&mut self, context: &Context<'_>) -> Result<(), Error> {
        let state = context.state();
        // Under the lock of the state: no commit is appended in between.
        let end = if state.is_settled() { context.wal.quiet_end() } else { None };
        drop(state);
        let Some(end) = end.filter(|end| *end != self.superblock.trim) else { return Ok(()) };
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        let written = self.skip_ring(end);
        // A superblock that is half written is followed by no other.
        written.map_err(|failed| {
            self.stop(context, described("writing the superblock of", &*self.volumes.data)(failed))
        })?;
        context.wal.trim(end);
        Ok(())
    }

    /// Records that the store is closed, and that the ring ends at `end`.
    pub fn close(&mut self, end: Cursor) -> Result<(), Error> {
        let generation = self.superblock.generation + 1;
        let next = Superblock { generation, acked: end.seq - 1, clean: true, ..self.superblock };
        // Everything is durable already. The flush checks that the file still works.
        self.volumes.flush().map_err(Error::io("closing the store"))?;
        next.write(&*self.volumes.data).map_err(Error::io("writing the superblock"))?;
        self.superblock = next;
        Ok(())
    }
}

/// Removes the runs in which nothing is alive, and returns them. Runs that are being merged stay
/// until the merge ends: the inputs `at_hand` of the current compaction step, and the run and the
/// inputs that `merging` names.
fn take_dead(runs: &mut Vec<Counted>, at_hand: &[u64], merging: Option<&Merging>) -> Vec<Arc<Run>> {
    let into =
        merging.and_then(|m| Some((runs.iter().position(|(run, _)| run.meta.id == m.into)?, m.inputs)));
    let published = into.map_or(0..0, |(at, inputs)| at..at + inputs + 1);
    let mut dead = Vec::new();
    let mut is_oldest = true;
    // Starts with the oldest run: when that is removed, the next run is the oldest.
    for at in (0..runs.len()).rev() {
        let (run, count) = &runs[at];
        let frees_live = bug("live-run-is-freed") && count + 1 >= run.meta.entries;
        let merges = published.contains(&at) || at_hand.contains(&run.meta.id);
        if !merges && (is_dead(&run.meta, *count, is_oldest) || frees_live) {
            dead.push(runs.remove(at).0);
        } else {
            is_oldest = false;
        }
    }
    dead
}
