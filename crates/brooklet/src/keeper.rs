//! Keeping: checkpoints and compaction, in slices, and the superblock flip that makes each of them count.
//!
//! A state machine: [`Keeper::step`] does one slice of the most urgent work. The maintenance thread calls it in
//! production, a simulator calls it itself.
//!
//! A checkpoint, told once: the active tier is frozen at a block boundary; when its last block is visible, its logs are
//! streamed in key order into a run; the run is flushed, then a manifest that names it, then the superblock that points
//! at the manifest and trims the ring. A compaction is the same with other runs as its input and no trim.
//!
//! Invariants:
//! 1. The superblock is written only after all it refers to is on stable media.
//! 2. The ring is trimmed, and extents and manifests are given back, only after the last copy of the superblock is
//!    durable - extents moreover only when no reader holds the run.
//! 3. A lack of room undoes what was begun and nothing else. Any other failed write, and a flush or superblock that
//!    failed for whatever reason, stops the store for good.

mod room;

use std::cell::Cell;
use std::io;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{AlignedBuf, Persist, write_all_at};
use brooklet_wal::{Cursor, Untold, Wal};

use crate::error::{Error, is_full};
use crate::front::Front;
use crate::heap::{Extent, Heap};
use crate::manifest::{self, RunMeta};
use crate::merge::{Input, Trouble, write_error};
use crate::piece::PieceWriter;
use crate::runs::{ExtentWriter, Run, RunBuilder, RunSet, builder};
use crate::superblock::{Place, Superblock};
use crate::sync::{Mutex, MutexGuard};
use crate::volumes::Volumes;

/// Runs of one level that are merged into one of the next. 4: each entry is rewritten once per fourfold growth.
const FANOUT: usize = 4;
/// More levels than any store has: each holds [`FANOUT`] times as much as the one below.
pub(crate) const MAX_LEVEL: u64 = 32;
/// Bytes of payload after which a slice of work ends.
const SLICE: u64 = 1 << 20;

/// Counters of checkpoints and compaction since opening.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeeperStats {
    /// Checkpoints done.
    pub checkpoints: u64,
    /// Compactions done.
    pub compactions: u64,
    /// Bytes of runs and manifests written.
    pub heap_written_bytes: u64,
}

/// A run being written.
struct Build {
    input: Input,
    out: PieceWriter<RunBuilder>,
    extent: Extent,
    id: u64,
    level: u64,
}

struct Checkpoint {
    /// The last block of the frozen tier, and, once that is visible, where the ring goes on after it.
    cut: u64,
    cursor: Option<Cursor>,
    build: Option<Build>,
}

struct Compaction {
    replaces: Vec<u64>,
    build: Build,
}

/// What the keeper works on.
pub(crate) struct Context<'a> {
    pub front: &'a Mutex<Front>,
    pub wal: &'a Wal,
    pub seed: u64,
    /// Whom the keeper's failure concerns. Their callbacks may ask for the keeper, so they are told with the context's
    /// end, after the keeper's lock was let go of.
    pub untold: Cell<Option<Untold<'a>>>,
}

impl Context<'_> {
    fn front(&self) -> MutexGuard<'_, Front> {
        self.front.lock().expect("no panics")
    }
}

pub(crate) struct Keeper {
    volumes: Volumes,
    pub superblock: Superblock,
    pub heap: Heap,
    manifest: Option<Extent>,
    retired: Vec<Arc<Run>>,
    checkpoint: Option<Checkpoint>,
    compaction: Option<Compaction>,
    /// A checkpoint found no room, or all runs are to be merged: compaction comes first, since it may make some.
    short_of_room: bool,
    /// What the slice at hand works on, for when it fails.
    compacting: bool,
    /// A compaction met damage: none is tried again until the store is opened anew.
    barred: bool,
    /// Bytes of the largest extent, smaller than reckoned, that a compaction has tried since the last flip: the same again
    /// would end the same.
    squeezed: u64,
    pub stats: KeeperStats,
}

impl Keeper {
    pub fn new(volumes: Volumes, superblock: Superblock, heap: Heap, manifest: Option<Extent>) -> Self {
        Self {
            volumes,
            superblock,
            heap,
            manifest,
            retired: Vec::new(),
            checkpoint: None,
            compaction: None,
            short_of_room: false,
            compacting: false,
            barred: false,
            squeezed: 0,
            stats: KeeperStats::default(),
        }
    }

    /// Whether a checkpoint or a compaction is going on.
    pub fn is_busy(&self) -> bool {
        self.checkpoint.is_some() || self.compaction.is_some()
    }

    /// Whether a checkpoint is going on.
    pub fn is_checkpointing(&self) -> bool {
        self.checkpoint.is_some()
    }

    /// Whether the last slice worked on a checkpoint that goes on.
    pub fn was_checkpointing(&self) -> bool {
        self.is_checkpointing() && !self.compacting
    }

    /// Does one slice of work; `wanted` asks for a checkpoint. `false` where there is nothing to do now.
    pub fn step(&mut self, context: &Context<'_>, wanted: bool) -> Result<bool, Error> {
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        let result = self.slice(context, wanted);
        result.map_err(|trouble| self.bear(context, trouble))
    }

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
            let merged = self.merge(&runs, runs.iter().cloned().collect(), level);
            merged.map_err(|trouble| self.bear(context, trouble))?;
        }
        Ok(())
    }

    /// Gives up what was begun, and stops the store where it must.
    fn bear(&mut self, context: &Context<'_>, trouble: Trouble) -> Error {
        self.abandon();
        let error = match trouble {
            Trouble::Write(e) if is_full(&e) => Error::Full { what: "a run in the heap", why: e.to_string() },
            Trouble::Write(e) | Trouble::Fatal(e) => {
                let why = e.to_string();
                context.untold.set(Some(context.wal.fail(e)));
                Error::Stopped { why }
            }
            Trouble::Other(error) => error,
        };
        match &error {
            // Each has its turn: compaction where a checkpoint found no room, and the other way round.
            Error::Full { .. } => self.short_of_room = !self.compacting,
            // What cannot be read now will not be read better at the next try.
            Error::Damaged { .. } | Error::Io { .. } if self.compacting => self.barred = true,
            _ => {}
        }
        error
    }

    /// Drops unfinished runs; a frozen tier stays, to be written again.
    fn abandon(&mut self) {
        let compaction = self.compaction.take();
        if compaction.is_some() {
            // It fell with a checkpoint; the room it had may do all the same.
            self.squeezed = 0;
        }
        let unfinished = [self.checkpoint.as_mut().and_then(|c| c.build.take()), compaction.map(|c| c.build)];
        for build in unfinished.into_iter().flatten() {
            self.heap.give(build.extent);
        }
    }

    fn slice(&mut self, context: &Context<'_>, wanted: bool) -> Result<bool, Trouble> {
        if self.short_of_room {
            if self.compact(context)? {
                return Ok(true);
            }
            self.short_of_room = false;
        }
        self.compacting = false;
        if let Some(checkpoint) = &mut self.checkpoint {
            let Some(build) = &mut checkpoint.build else { return self.drain(context) };
            if !build.slice()? {
                self.finish_checkpoint(context)?;
            }
            return Ok(true);
        }
        if wanted && self.freeze(context) {
            return Ok(true);
        }
        self.compact(context)
    }

    fn freeze(&mut self, context: &Context<'_>) -> bool {
        let mut front = context.front();
        let Some(cut) = front.freeze(context.wal, context.seed) else { return false };
        self.checkpoint = Some(Checkpoint { cut, cursor: None, build: None });
        true
    }

    /// Starts writing once the frozen tier is complete.
    fn drain(&mut self, context: &Context<'_>) -> Result<bool, Trouble> {
        let checkpoint = self.checkpoint.as_mut().expect("only a checkpoint drains");
        if context.wal.durable() < checkpoint.cut && !bug("checkpoint-does-not-wait") {
            return Ok(false);
        }
        if checkpoint.cursor.is_none() {
            checkpoint.cursor = context.wal.cut_cursor(checkpoint.cut);
        }
        let front = context.front();
        let tier = front.frozen.clone().expect("a draining checkpoint has its tier");
        let bottom = front.runs.is_empty();
        drop(front);
        let build = self.build(Input::tier(tier, bottom), 0)?;
        self.checkpoint.as_mut().expect("still there").build = Some(build);
        Ok(true)
    }

    fn finish_checkpoint(&mut self, context: &Context<'_>) -> Result<(), Trouble> {
        let checkpoint = self.checkpoint.as_mut().expect("only a checkpoint is finished");
        let cursor = checkpoint.cursor.expect("a durable block was placed");
        let build = checkpoint.build.take().expect("only what was written is finished");
        let run = self.seal(build)?;
        let mut runs: Vec<Arc<Run>> = run.clone().into_iter().collect();
        runs.extend(context.front().runs.iter().cloned());
        if bug("frozen-tier-goes-early") {
            context.front().frozen = None;
        }
        self.flip(context, &runs, Some(cursor)).map_err(|trouble| self.lose(run, trouble))?;
        let mut front = context.front();
        front.runs = Arc::new(RunSet::new(runs));
        front.frozen = None;
        drop(front);
        self.checkpoint = None;
        context.wal.trim(cursor);
        self.stats.checkpoints += 1;
        self.tidy();
        Ok(())
    }

    /// Gives up a run that did not become part of the store - unless a superblock that names it may be on the disk.
    fn lose(&mut self, run: Option<Arc<Run>>, trouble: Trouble) -> Trouble {
        if !matches!(trouble, Trouble::Fatal(_)) {
            self.retired.extend(run);
        }
        trouble
    }

    /// Starts or goes on with a compaction.
    fn compact(&mut self, context: &Context<'_>) -> Result<bool, Trouble> {
        self.compacting = true;
        let Some(mut compaction) = self.compaction.take() else {
            if self.barred {
                return Ok(false);
            }
            let runs = context.front().runs.clone();
            let level = |n: u64| runs.iter().filter(|r| r.meta.level == n).count();
            let Some(full) = runs.iter().map(|r| r.meta.level).find(|&n| level(n) >= FANOUT) else {
                return Ok(false);
            };
            let chosen: Vec<Arc<Run>> = runs.iter().filter(|r| r.meta.level == full).cloned().collect();
            return self.merge(&runs, chosen, full + 1).map(|()| true);
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
        let mut runs = kept;
        let newer = if bug("merged-run-is-the-oldest") { runs.len() } else { newer };
        runs.splice(newer..newer, run.clone());
        if bug("runs-are-freed-early") {
            replaced.iter().for_each(|run| self.heap.give(run.extent()));
        }
        self.flip(context, &runs, None).map_err(|trouble| self.lose(run, trouble))?;
        context.front().runs = Arc::new(RunSet::new(runs));
        if !bug("runs-are-freed-early") {
            self.retired.extend(replaced);
        }
        drop(old);
        self.stats.compactions += 1;
        self.tidy();
        Ok(true)
    }

    fn merge(&mut self, all: &RunSet, chosen: Vec<Arc<Run>>, level: u64) -> Result<(), Trouble> {
        let oldest = |runs: Option<&Arc<Run>>| runs.map(|r| r.meta.id);
        let bottom = oldest(all.iter().next_back()) == oldest(chosen.last()) || bug("tombstones-go-early");
        let build = self.build(Input::runs(&chosen, bottom)?, level)?;
        let replaces = chosen.iter().map(|r| r.meta.id).collect();
        self.compaction = Some(Compaction { replaces, build });
        Ok(())
    }

    fn build(&mut self, input: Input, level: u64) -> Result<Build, Trouble> {
        let extent = self.allocate_run(input.bound())?;
        let id = self.superblock.next_run;
        self.superblock.next_run += 1;
        let writer = ExtentWriter::new(self.volumes.data.clone(), extent);
        Ok(Build { input, out: PieceWriter::new(builder(writer, id)), extent, id, level })
    }

    /// Ends a run and gives back what it did not need of its extent. `None` where it came out empty.
    fn seal(&mut self, build: Build) -> Result<Option<Arc<Run>>, Trouble> {
        let Build { out, extent, id, level, .. } = build;
        let (logs, entries) = (out.logs, out.entries);
        let sealed = if logs == 0 {
            Ok(None)
        } else {
            out.into_inner().finish().map_err(write_error).and_then(|(summary, writer)| {
                let used = writer.finish().map_err(Trouble::Write)?;
                Ok(Some((summary, used)))
            })
        };
        let sealed = sealed.inspect_err(|_| self.heap.give(extent))?;
        let used = sealed.as_ref().map_or(0, |(_, used)| *used);
        self.heap.give(Extent { offset: extent.offset + used, len: extent.len - used });
        self.stats.heap_written_bytes += used;
        let Some((summary, used)) = sealed else { return Ok(None) };
        let (len, footer_sum) = (summary.len, summary.footer_sum);
        let meta = RunMeta { id, level, offset: extent.offset, len, extent: used, footer_sum, logs, entries };
        let run = Run::open(self.volumes.data.clone(), meta).map_err(|error| {
            self.heap.give(Extent { offset: extent.offset, len: used });
            match error {
                // No damage to the store, but a device whose word on a write is worth nothing.
                Error::Damaged { place, what } => Trouble::Write(io::Error::other(format!(
                    "{place} does not read back as it was just written: {what}"
                ))),
                error => error.into(),
            }
        })?;
        Ok(Some(Arc::new(run)))
    }

    /// Makes `runs` the store's runs: flush, manifest, flush, superblock.
    fn flip(
        &mut self,
        context: &Context<'_>,
        runs: &[Arc<Run>],
        trim: Option<Cursor>,
    ) -> Result<(), Trouble> {
        if bug("manifest-goes-early") {
            self.manifest.take().into_iter().for_each(|old| self.heap.give(old));
        }
        let encoded = manifest::encode(&runs.iter().map(|r| r.meta).collect::<Vec<_>>());
        let extent = self.allocate(encoded.len() as u64)?;
        let mut buf = AlignedBuf::new(encoded.len());
        buf.extend(&encoded);
        buf.pad();
        if let Err(error) = write_all_at(&*self.volumes.data, extent.offset, &buf, Persist::Cached) {
            self.heap.give(extent);
            return Err(Trouble::Write(error));
        }
        let mut flushed = if bug("no-flush-before-superblock") { Ok(()) } else { self.volumes.flush() };
        if flushed.is_err() && bug("failed-flush-is-tried-again") {
            flushed = self.volumes.flush();
        }
        flushed.map_err(Trouble::Fatal)?;
        if let Some(cursor) = trim.filter(|_| bug("ring-is-trimmed-early")) {
            context.wal.trim(cursor);
        }
        // A ring write that failed meanwhile may have taken the word of the device with it.
        if let Some(why) = context.wal.failure() {
            return Err(Error::from(why).into());
        }
        let place =
            Place { offset: extent.offset, len: encoded.len() as u64, sum: manifest::sum_of(&encoded) };
        let mut next = Superblock {
            generation: self.superblock.generation + 1,
            manifest: place,
            acked: context.wal.durable(),
            ..self.superblock
        };
        next.trim = trim.unwrap_or(next.trim);
        let written = next.write(&*self.volumes.data);
        if !bug("failed-superblock-is-let-pass") {
            written.map_err(Trouble::Fatal)?;
        }
        self.superblock = next;
        self.squeezed = 0;
        self.stats.heap_written_bytes += extent.len;
        if let Some(old) = self.manifest.replace(extent) {
            self.heap.give(old);
        }
        Ok(())
    }

    /// Records that the store is closed, and that the ring ends at `end`.
    pub fn close(&mut self, end: Cursor) -> Result<(), Error> {
        let generation = self.superblock.generation + 1;
        let next = Superblock { generation, acked: end.seq - 1, clean: true, ..self.superblock };
        // Everything is durable; this tells whether the file still is what it was.
        self.volumes.flush().map_err(Error::io("closing the store"))?;
        next.write(&*self.volumes.data).map_err(Error::io("writing the superblock"))?;
        self.superblock = next;
        Ok(())
    }
}

impl Build {
    /// Writes some logs. `false` once there is no more.
    fn slice(&mut self) -> Result<bool, Trouble> {
        let until = self.out.inner().written() + SLICE;
        while self.out.inner().written() < until {
            if !self.input.step(&mut self.out)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
