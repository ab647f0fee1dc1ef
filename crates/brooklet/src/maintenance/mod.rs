//! Maintenance: runs checkpoints and compaction in slices, and installs the superblock that makes
//! each of them part of the store.
//!
//! Maintenance is a state machine. [`Maintenance::step`] does one slice of the most urgent work. A
//! slice may end inside a log. In production, the maintenance thread calls `step`; in simulation,
//! the simulator calls `step`.
//!
//! A checkpoint has four steps. It freezes the active memtable at a block boundary. When the last
//! block of the memtable is visible, it streams the logs in key order into a run, table after
//! table. One flush makes the run, and a manifest that names the run, durable. Then the superblock
//! points at the manifest, and the ring is trimmed. A compaction works in the same way, but its
//! input is other runs, it does not trim the ring, and it proceeds in compaction steps
//! (`compaction.rs`). `maintenance/policy/mod.rs` selects these runs. Checkpoints and compactions
//! count the entries that are known to be dead. They drop runs without live entries, without
//! reading them.
//!
//! Invariants:
//! 1. The superblock is written only after everything it refers to is on stable media.
//! 2. The ring is trimmed, and extents and manifests are freed, only after the last copy of the
//!    superblock is durable. Extents are freed only when, in addition, no reader holds the table.
//! 3. A lack of room undoes only the work that was begun: of a compaction, only the current
//!    compaction step. Any other failed write, and any failed flush or superblock write, stops the
//!    store for good.
//! 4. Each appended commit has room for its checkpoint (`reserve.rs`). If the file system broke its
//!    promise of space, the checkpoint is *stuck*. Merging then runs first, because it may free
//!    room.

pub mod compaction;
mod due;
pub mod fill_bounds_cache;
mod grow_ring;
pub mod ingest;
pub mod ingest_dump;
pub mod install;
pub mod merge;
mod merge_state;
pub mod offload;
pub mod pace;
pub mod policy;
pub mod release_memtable;
pub mod reserve;
pub mod run_builder;
pub mod snapshot;
mod space_state;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_wal::{Cursor, PendingNotify, Wal};

use crate::error::{Error, described, is_full};
use crate::format::superblock::Superblock;
use crate::maintenance::compaction::Compaction;
use crate::maintenance::grow_ring::Refused;
use crate::maintenance::ingest::Ingestion;
use crate::maintenance::install::Brings;
use crate::maintenance::merge::{Input, matters};
use crate::maintenance::merge_state::MergeState;
use crate::maintenance::pace::IDLE;
use crate::maintenance::reserve::TABLE_COST;
use crate::maintenance::run_builder::Build;
use crate::maintenance::space_state::{SpaceState, Stuck};
use crate::memtable::Memtable;
use crate::memtable::sort::IncrementalSort;
use crate::run::dead_entries::DeadEntries;
use crate::run::table::Table;
use crate::run::table_cache::TableCache;
use crate::run::writer::BuildError;
use crate::run::{Counted, Run};
use crate::state::admission::SpacePressure;
use crate::state::{HALF_DONE, StoreState};
use crate::sync::{Mutex, MutexGuard, thread};
use crate::volume::Volumes;
use crate::volume::allocator::{Extent, Heap};

/// Counters of checkpoints and compaction since opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MaintenanceStats {
    /// Number of finished checkpoints.
    pub checkpoints: u64,
    /// Number of finished compactions.
    pub compactions: u64,
    /// Number of finished compaction steps. Each step frees some of the space that the compaction
    /// frees.
    pub compaction_steps: u64,
    /// Number of runs without live entries that were freed without being read.
    pub dead_runs: u64,
    /// Bytes of runs and manifests that were written.
    pub heap_written_bytes: u64,
    /// Bytes of free space inside the file that were returned to the file system.
    pub punched_bytes: u64,
}

/// Sorting the logs is about one part in this number of a checkpoint.
const ORDERING: u64 = 8;
/// How often, and for how long each time, maintenance waits for the readers of merged tables before
/// it refuses commits: for a second in all.
const MOST_WAITS: u32 = 1000;
const WAIT: Duration = Duration::from_millis(1);

struct Checkpoint {
    /// The last block of the frozen memtable; and, once that block is visible, the place where the
    /// ring continues after it.
    cut: u64,
    cursor: Option<Cursor>,
    /// The logs of the memtable, until they are sorted and the run is begun.
    order: IncrementalSort,
    build: Option<Build>,
    /// Number of the memtable's logs whose bounds are cached by now; see `fill_bounds_cache.rs`.
    bounds_cache: usize,
    /// The span of the checkpoint, in which each slice of its work is.
    span: tracing::Span,
}

/// The parts of the store that maintenance works on.
pub(crate) struct Context<'a> {
    pub state: &'a Mutex<StoreState>,
    pub wal: &'a Wal,
    pub seed: u64,
    /// The time since the last commit.
    pub quiet: Duration,
    /// Whether a thread of its own does the work, which may wait a moment for readers.
    pub has_thread: bool,
    /// Callbacks that a failure of maintenance has to notify. A callback may ask for maintenance.
    /// The callbacks are therefore called when the context is dropped, after maintenance's lock is
    /// released.
    pub untold: Cell<Option<PendingNotify<'a>>>,
}

impl Context<'_> {
    fn state(&self) -> MutexGuard<'_, StoreState> {
        self.state.lock().unwrap_or_else(|poisoned| {
            // Maintenance ends at its next look at the log.
            self.stop(io::Error::other(HALF_DONE));
            poisoned.into_inner()
        })
    }

    /// Stops the log. Only the first call has waiters to notify.
    fn stop(&self, why: io::Error) {
        let notify = self.wal.fail(why);
        let first = self.untold.take();
        self.untold.set(first.or(Some(notify)));
    }

    /// Returns whether the store is idle, so that saving space is worth more work.
    fn is_idle(&self) -> bool {
        self.quiet >= IDLE
    }
}

pub(crate) struct Maintenance {
    volumes: Volumes,
    pub table_cache: Arc<TableCache>,
    pub superblock: Superblock,
    pub heap: Heap,
    manifest: Option<Extent>,
    retired: Vec<Arc<Table>>,
    checkpoint: Option<Checkpoint>,
    compaction: Option<Compaction>,
    /// The import that the current checkpoint carries.
    ingestion: Option<Ingestion>,
    merges: MergeState,
    /// The memtable of the last checkpoint, which is being released.
    releasing: Option<Memtable>,
    space: SpaceState,
    /// The reason why the ring did not grow.
    ring_refused: Option<Refused>,
    pub stats: MaintenanceStats,
}

impl Maintenance {
    pub fn new(
        volumes: Volumes,
        table_cache: Arc<TableCache>,
        superblock: Superblock,
        heap: Heap,
        manifest: Option<Extent>,
    ) -> Self {
        Self {
            volumes,
            table_cache,
            superblock,
            heap,
            manifest,
            retired: Vec::new(),
            checkpoint: None,
            compaction: None,
            ingestion: None,
            merges: MergeState::default(),
            releasing: None,
            space: SpaceState::default(),
            ring_refused: None,
            stats: MaintenanceStats::default(),
        }
    }

    /// Returns whether a checkpoint is running.
    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Returns the progress of the running checkpoint, per mille; `None` if no checkpoint is
    /// running.
    pub fn progress(&self) -> Option<u64> {
        let checkpoint = self.checkpoint.as_ref()?;
        let Some(build) = &checkpoint.build else { return Some(checkpoint.order.progress() / ORDERING) };
        Some(1000 / ORDERING + build.input.progress() * (ORDERING - 1) / ORDERING)
    }

    /// Returns whether a compaction is running.
    pub fn is_compacting(&self) -> bool {
        self.compaction.is_some()
    }

    /// Returns whether the running checkpoint finds no room.
    pub fn is_stuck(&self) -> bool {
        self.space.stuck.as_ref().is_some_and(|stuck| self.free_room() <= stuck.room)
    }

    /// Does one slice of work. `wanted` asks for a checkpoint. Returns `false` if there is nothing
    /// to do now.
    pub fn step(&mut self, context: &Context<'_>, wanted: bool) -> Result<bool, Error> {
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        self.merges.compacting = false;
        self.slice(context, wanted).or_else(|build_error| match (self.handle_error(context, build_error), self.merges.compacting) {
            // The merge is retried once there is more room. Until then, other work may be possible.
            (error @ Error::Full { .. }, true) => {
                tracing::warn!(%error, "a merge found too little room; the store retries it later");
                Ok(true)
            }
            (error @ (Error::Damaged { .. } | Error::Io { .. }), true) if self.merges.failed.is_none() => {
                tracing::warn!(%error, "the store could not read a run; it merges neither this run nor older runs, only newer runs");
                Ok(true)
            }
            (error, _) => Err(error),
        })
    }

    /// Reserves room for the first commits.
    pub fn prepare(&mut self, context: &Context<'_>) -> Result<(), Error> {
        self.look(context).map(drop).map_err(|build_error| self.handle_error(context, build_error))
    }

    /// Records the failure, and stops the store if necessary.
    fn handle_error(&mut self, context: &Context<'_>, build_error: BuildError) -> Error {
        let error = self.fatal(context, build_error);
        // The space of the discarded tables is free again.
        self.collect_garbage();
        match (&error, self.merges.compacting) {
            (Error::Full { .. }, false) => self.space.note_stuck(error.clone(), self.free_room()),
            (Error::Full { .. }, true) => {
                let needed = self.more_room_than_now(context);
                if self.merges.beside {
                    self.merges.beside_needs = needed;
                } else {
                    self.merges.failed = Some((error.clone(), needed));
                }
            }
            // Another try would not read the run either.
            (Error::Damaged { .. } | Error::Io { .. }, true) => {
                self.merges.failed = (!self.leave_out(context, &error)).then(|| (error.clone(), u64::MAX));
            }
            _ => {}
        }
        if !self.merges.compacting {
            self.end_ingestion(context, Err(error.clone()));
        }
        error
    }

    /// Converts the failure to an error, and stops the store if necessary.
    fn fatal(&self, context: &Context<'_>, build_error: BuildError) -> Error {
        match build_error {
            BuildError::Write(e) if is_full(&e) => {
                Error::Full { what: "a run in the heap", why: e.to_string() }
            }
            BuildError::Write(e) => self.stop(context, described("writing", &*self.volumes.data)(e)),
            BuildError::Fatal(e) => self.stop(context, e),
            BuildError::Other(error) => error,
        }
    }

    /// Stops the store after a panic.
    pub fn stop_after(&self, context: &Context<'_>, panic: io::Error) -> Error {
        if bug("maintenance-goes-on-after-a-panic") {
            return Error::Stopped { why: panic.to_string() };
        }
        self.stop(context, panic)
    }

    fn stop(&self, context: &Context<'_>, e: io::Error) -> Error {
        let why = e.to_string();
        context.stop(e);
        Error::Stopped { why }
    }

    fn slice(&mut self, context: &Context<'_>, wanted: bool) -> Result<bool, BuildError> {
        if self.release(context) || self.look(context)? {
            return Ok(true);
        }
        let (pressed, claims) = {
            let state = context.state();
            (state.pressure(), state.active.claim())
        };
        if self.is_stuck() && !self.space.stuck.as_mut().is_some_and(Stuck::retries) {
            return self.get_unstuck(context);
        }
        if self.merges.full_requested && !self.merges.checkpoint_next {
            if self.compact(context, pressed)? {
                return Ok(true);
            }
            self.merges.full_requested = false;
        }
        self.merges.compacting = false;
        if self.checkpoint.is_some() {
            return self.go_on(context);
        }
        // A checkpoint turns claimed space into used space. Many small checkpoints would fragment
        // the runs, so a small claim waits for merging.
        let much = pressed.is_some() && claims > self.table_size();
        if (wanted || much) && self.freeze(context) {
            return Ok(true);
        }
        self.merges.checkpoint_next = false;
        if self.compact(context, pressed)? {
            return Ok(true);
        }
        self.merges.compacting = false;
        if let Some(SpacePressure { frees, requested: asked, .. }) = pressed {
            // One checkpoint for each request, because other commits may continue to claim space.
            if claims > 0 && self.space.checkpointed_for.replace(asked) != Some(asked) && self.freeze(context)
            {
                return Ok(true);
            }
            if self.waits_for_readers(context) {
                return Ok(true);
            }
            // Tombstones in the room for merging would leave none for it once the readers end.
            let has_readers = !self.retired.is_empty() && !bug("last-resort-beside-readers");
            if frees && !self.space.last_resort && !has_readers {
                self.space.last_resort = true;
                self.publish_budget(context);
                context.wal.wake();
                return Ok(true);
            }
            self.resolve_request(context, asked);
        }
        Ok(self.tidy(context))
    }

    /// Waits a moment if readers keep the room of merged tables: most readers end soon, and merging
    /// goes on then. Returns `false` if none do, or if they have been waited for long enough.
    fn waits_for_readers(&mut self, context: &Context<'_>) -> bool {
        if self.retired.is_empty() {
            self.space.waits = 0;
        }
        let waits = context.has_thread && !self.retired.is_empty() && self.space.waits < MOST_WAITS;
        if waits {
            self.space.waits += 1;
            thread::park_timeout(WAIT);
        }
        waits
    }

    /// Continues a checkpoint. Returns `false` while its last block is not durable yet.
    fn go_on(&mut self, context: &Context<'_>) -> Result<bool, BuildError> {
        let checkpoint = self.checkpoint.as_mut().expect("only a checkpoint goes on");
        let span = checkpoint.span.clone();
        let _span = span.enter();
        let Some(mut build) = checkpoint.build.take() else { return self.drain(context) };
        match self.write_and_cache_bounds(context, &mut build) {
            Ok(true) => self.checkpoint.as_mut().expect("it goes on").build = Some(build),
            Ok(false) => self.finish_checkpoint(context, build)?,
            Err(build_error) => {
                // The frozen memtable stays, and is written again later.
                self.discard(build);
                return Err(build_error);
            }
        }
        Ok(true)
    }

    /// Makes room for a checkpoint that found none: by growing the volume, or by merging.
    fn get_unstuck(&mut self, context: &Context<'_>) -> Result<bool, BuildError> {
        let (claims, requested) = {
            let state = context.state();
            (state.claims(), state.need().requested)
        };
        let pressure = SpacePressure { frees: true, any: true, requested };
        if self.make(claims)? > 0 || self.compact(context, Some(pressure))? {
            return Ok(true);
        }
        self.merges.compacting = false;
        self.resolve_request(context, requested);
        let stuck = self.space.stuck.as_mut().expect("it is stuck");
        stuck.futile += 1;
        Err(stuck.error.clone().into())
    }

    /// Ends the wait of all requests for room up to number `last`: maintenance can free no more
    /// room.
    fn resolve_request(&self, context: &Context<'_>, last: u64) {
        // Merging would have freed room if it had not failed.
        let failed = self.merges.failed.as_ref().map(|(error, _)| format!("a merge failed: {error}"));
        let full = Some(&self.space.why_full).filter(|why| !why.is_empty());
        let pinned: u64 = self.retired.iter().map(|table| table.extent().len).sum();
        let readers =
            (pinned > 0).then(|| format!("reads and views that go on keep {pinned} bytes of merged data"));
        let reasons: Vec<&String> = full.into_iter().chain(&failed).chain(&readers).collect();
        let why = reasons.into_iter().map(String::as_str).collect::<Vec<_>>().join("; ");
        context.state().room.resolve_request(last, &why);
        context.wal.wake();
    }

    fn freeze(&mut self, context: &Context<'_>) -> bool {
        let mut state = context.state();
        let Some(cut) = state.freeze(context.wal, context.seed) else { return false };
        let unused = state.take_unused();
        // To free memory takes long, and a span calls the code of a subscriber.
        drop(state);
        drop(unused);
        self.checkpoint = Some(Checkpoint {
            cut,
            cursor: None,
            order: IncrementalSort::default(),
            build: None,
            bounds_cache: 0,
            span: tracing::debug_span!("checkpoint", block = cut),
        });
        true
    }

    /// Sorts the frozen memtable's logs once the memtable is complete, and then starts writing the
    /// run.
    fn drain(&mut self, context: &Context<'_>) -> Result<bool, BuildError> {
        if bug("remembered-before-visible") {
            self.cache_bounds_early(context);
        }
        let checkpoint = self.checkpoint.as_mut().expect("only a checkpoint drains");
        if context.wal.settled() < checkpoint.cut && !bug("checkpoint-does-not-wait") {
            return Ok(false);
        }
        if checkpoint.cursor.is_none() {
            checkpoint.cursor = context.wal.cut_cursor(checkpoint.cut);
        }
        let mut state = context.state();
        state.complete();
        let memtable = state.frozen.clone().expect("a draining checkpoint has its memtable");
        let runs = state.runs.clone();
        drop(state);
        let bottom = runs.is_empty();
        if checkpoint.order.step(&memtable, |log| matters(log, bottom)) {
            return Ok(true);
        }
        let input = Input::memtable(memtable, std::mem::take(&mut checkpoint.order), DeadEntries::new(&runs));
        let build = self.build(input, (self.superblock.next_run, 0), Some(Vec::new()), None);
        self.superblock.next_run += 1;
        self.checkpoint.as_mut().expect("still there").build = Some(build);
        Ok(true)
    }

    fn finish_checkpoint(&mut self, context: &Context<'_>, build: Build) -> Result<(), BuildError> {
        let checkpoint = self.checkpoint.as_ref().expect("only a checkpoint is finished");
        let cursor = checkpoint.cursor.expect("a durable block was placed");
        let dead_entries = build.input.dead_entries().to_vec();
        let claim = build.input.expected();
        let (meta, sealed) = self.seal(build)?;
        let written: u64 = sealed.iter().map(|table| table.meta.len).sum();
        debug_assert!(
            written <= claim + sealed.len() as u64 * TABLE_COST,
            "{written} bytes in {} segments, which were to take {claim} at most",
            sealed.len()
        );
        let run = (meta.logs > 0).then(|| Arc::new(Run::new(&self.table_cache, meta, sealed.clone(), &[])));
        let lost =
            |run: &Run| dead_entries.iter().find(|(id, _)| *id == run.meta.id).map_or(0, |(_, lost)| *lost);
        run.iter().for_each(|made| self.look_through(context, made));
        let old = context.state().runs.clone();
        let mut runs: Vec<Counted> = self.ingested().into_iter().chain(run.map(|run| (run, 0))).collect();
        let still = |(run, dead): Counted| {
            let dead = run.at_most_all(dead.saturating_add(lost(&run)));
            (run, dead)
        };
        runs.extend(old.counted().map(still));
        if bug("frozen-tier-goes-early") {
            context.state().frozen = None;
        }
        let merging = old.merging().cloned();
        drop(old);
        self.replace(context, runs, merging, Brings::Memtable(cursor))
            .map_err(|build_error| self.lose(sealed, build_error))?;
        self.end_ingestion(context, Ok(()));
        self.checkpoint = None;
        self.space.stuck = None;
        self.merges.checkpoint_next = false;
        self.stats.checkpoints += 1;
        self.tidy(context);
        Ok(())
    }
}
