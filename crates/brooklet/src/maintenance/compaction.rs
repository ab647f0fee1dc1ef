//! Compaction: merges neighbouring runs into one run, in compaction steps.
//!
//! A compaction step adds about one table to the new run, up to some place between two logs. It is
//! then published like any other change: the new run has all logs before that place, the merged
//! runs count only from that place on, and their tables before the place are free. The manifest is
//! the only record of a merge. After a crash, a reopening or a lack of room, the merge therefore
//! continues at the end of the last compaction step.
//!
//! Until the merge ends, the merged runs record all their dead entries, even those that are already
//! merged. The new run records only the entries that newer runs have made irrelevant meanwhile.

use std::io;
use std::sync::Arc;

use brooklet_io::seeded::bug;

use crate::error::Error;
use crate::format::manifest::{Merging, RunMeta};
use crate::maintenance::due::Due;
use crate::maintenance::install::Brings;
use crate::maintenance::merge::Input;
use crate::maintenance::policy::{Merge, POLICY, Shape, bytes_of};
use crate::maintenance::run_builder::{Build, End};
use crate::maintenance::{Context, Maintenance};
use crate::model::retention_state::Ageing;
use crate::run::table::Table;
use crate::run::writer::BuildError;
use crate::run::{Counted, Run, RunSet};
use crate::state::admission::SpacePressure;

/// The current compaction step of a compaction.
pub(super) struct Compaction {
    /// The numbers of the runs that the compaction replaces, newest first.
    inputs: Vec<u64>,
    /// The level of the run that the compaction makes.
    level: u64,
    /// Whether no run was older than the inputs when the merge began.
    bottom: bool,
    /// Whether another merge is running, and continues after this one.
    beside: bool,
    /// Bytes that the compaction may take before it frees as many.
    takes: u64,
    /// The span of the compaction step, in which each slice of its work is.
    span: tracing::Span,
    /// The build; `None` while a slice works on it.
    build: Option<Build>,
}

impl Compaction {
    pub fn inputs(&self) -> &[u64] {
        &self.inputs
    }

    pub fn level(&self) -> u64 {
        self.level
    }

    pub fn takes(&self) -> u64 {
        self.takes
    }

    /// Returns whether another merge is running, and continues after this one.
    pub fn is_beside(&self) -> bool {
        self.beside
    }

    /// Returns the bytes that the compaction step has taken.
    pub fn held(&self) -> u64 {
        self.build.as_ref().map_or(0, Build::held)
    }
}

impl Maintenance {
    /// Requests a merge of all runs: forgets why a merge failed before, and that the volume did not
    /// grow.
    pub fn request_full(&mut self) {
        (self.merges.failed, self.space.short_of_space) = (None, None);
        self.merges.left_out.clear();
    }

    /// Leaves out of merging the run that could not be read, as `error` records. Returns `false` if
    /// the run was already left out.
    pub(super) fn leave_out(&mut self, context: &Context<'_>, error: &Error) -> bool {
        if bug("damage-ends-all-merging") {
            return false;
        }
        let runs = context.state().runs.clone();
        let mut more = false;
        for run in runs.here() {
            let unread = run.tables.iter().fold(false, |unread, table| unread | table.was_unread());
            if unread || run.is_damaged() {
                more |= self.merges.left_out.insert(run.meta.id, error.clone()).is_none();
            }
        }
        more
    }

    /// Returns whether a run is left out of merging because it cannot be read.
    pub(super) fn is_left_out(&self, run: &Run) -> bool {
        run.is_damaged() || self.merges.left_out.contains_key(&run.meta.id)
    }

    /// Returns the runs that can be merged, newest first: all runs in the store's heap, down to the
    /// first run that is left out. The order matters because newer runs determine the entries that
    /// an older run may drop. A running merge is included as a whole, or not at all.
    fn mergeable<'a>(&self, runs: &'a RunSet) -> &'a [Arc<Run>] {
        let here = runs.here();
        let sound = here.iter().take_while(|run| !self.is_left_out(run)).count();
        match runs.merge() {
            Some((into, inputs)) => {
                let at = here.iter().position(|run| run.meta.id == into.meta.id).unwrap_or(sound);
                if sound > at + inputs.len() { &here[..sound] } else { &here[..at.min(sound)] }
            }
            None => &here[..sound],
        }
    }

    /// Returns whether a merge that was begun cannot continue.
    pub(super) fn is_stalled(&self, runs: &RunSet) -> bool {
        let into = runs.merging().map(|merging| merging.into);
        into.is_some() && self.mergeable(runs).iter().all(|run| Some(run.meta.id) != into)
    }

    /// Returns whether several runs can be merged, and one of them is among `these`.
    pub fn can_merge(&self, runs: &RunSet, these: &[u64]) -> bool {
        let runs = self.mergeable(runs);
        runs.len() > 1 && runs.iter().any(|run| these.contains(&run.meta.id))
    }

    /// Returns an error if a run is left out of merging.
    pub fn expect_none_left_out(&self, runs: &RunSet) -> Result<(), Error> {
        let here = runs.here();
        let Some(at) = here.iter().position(|run| self.is_left_out(run)) else { return Ok(()) };
        let (run, older) = (&here[at], here.len() - at - 1);
        let what = format!("the store merged all newer runs, but neither this run nor {older} older runs");
        match self.merges.left_out.get(&run.meta.id) {
            // A later read may succeed.
            Some(Error::Io { cause, .. }) if !run.is_damaged() => {
                let doing = format!("reading run {} ({what})", run.meta.id);
                Err(Error::Io { doing, cause: cause.clone() })
            }
            _ => {
                let what = format!("a part of it cannot be read: {what}");
                Err(Error::damaged(format!("run {}", run.meta.id), what))
            }
        }
    }

    /// Returns the shapes of the runs that can be merged, without the unfinished run of a merge.
    /// Offloaded runs are not merged: a merge would take the room that offloading freed.
    pub(super) fn shapes(&self, runs: &RunSet) -> Vec<Shape> {
        shapes(runs, self.mergeable(runs))
    }

    /// Returns the shapes of the runs that are newer than the run that the running merge makes.
    pub(super) fn newer_shapes(&self, runs: &RunSet, into: &Run) -> Vec<Shape> {
        let sound = self.mergeable(runs);
        let newer = sound.iter().position(|run| run.meta.id == into.meta.id).unwrap_or(sound.len());
        shapes(runs, &sound[..newer])
    }

    /// Continues to merge all runs into one. Checkpoints wait, except for one checkpoint between
    /// two compaction steps. A merge that is already running is finished first. Fails with any
    /// error since the last [request](Self::request_full), no matter which caller met it.
    pub fn merge_all(&mut self, context: &Context<'_>) -> Result<(), Error> {
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        if let Some((error, _)) = &self.merges.failed {
            return Err(error.clone());
        }
        self.merges.full_requested = true;
        let runs = context.state().runs.clone();
        let here = self.mergeable(&runs);
        let begun = runs.merging().is_some() && !self.is_stalled(&runs);
        if self.compaction.is_none() && !begun && here.len() > 1 {
            let level = here.iter().map(|r| r.meta.level).max().unwrap_or_default();
            self.merges.compacting = true;
            let all = Due::Merge(Merge { runs: 0..here.len(), level });
            if let Err(build_error) = self.begin(context, &runs, all) {
                let error = self.handle_error(context, build_error);
                let left_out =
                    matches!(error, Error::Damaged { .. } | Error::Io { .. }) && self.merges.failed.is_none();
                return if left_out { Ok(()) } else { Err(error) };
            }
        }
        Ok(())
    }

    /// Starts or continues a compaction. Under `pressure`, starts one that makes room. Returns
    /// `false` if no merge is due.
    pub(super) fn compact(
        &mut self,
        context: &Context<'_>,
        pressure: Option<SpacePressure>,
    ) -> Result<bool, BuildError> {
        self.merges.compacting = true;
        if pressure.is_some() {
            self.give_up_beside(context);
        }
        self.merges.beside = self.compaction.as_ref().is_some_and(Compaction::is_beside);
        let Some(mut build) = self.compaction.as_mut().and_then(|compaction| compaction.build.take()) else {
            self.collect_garbage();
            let runs = context.state().runs.clone();
            let due = match pressure {
                Some(SpacePressure { any, .. }) => self.due_for_room(&runs, any),
                None => self.due(&runs, self.goal(context.quiet)).or_else(|| self.due_for_reads(&runs)),
            };
            let Some(due) = due else { return Ok(false) };
            return self.begin(context, &runs, due).map(|()| true);
        };
        let span = self.compaction.as_ref().expect("it goes on").span.clone();
        let _span = span.enter();
        let more = self.write(context, &mut build);
        let compaction = self.compaction.as_mut().expect("it goes on");
        match more {
            Ok(true) => {
                compaction.build = Some(build);
                // During the slice, the bytes taken by the build did not count.
                self.publish_budget(context);
            }
            Ok(false) => {
                let Compaction { inputs, bottom, .. } = self.compaction.take().expect("it goes on");
                self.publish(context, (inputs, bottom), build)?;
            }
            Err(build_error) => {
                self.compaction = None;
                self.discard(build);
                return Err(build_error);
            }
        }
        Ok(true)
    }

    /// Begins the next compaction step.
    fn begin(&mut self, context: &Context<'_>, runs: &RunSet, due: Due) -> Result<(), BuildError> {
        // The manifest records one merge. Merges beside that merge are done in one step.
        let due = self.with_room_beside(context, runs, due)?;
        let at_a_go = runs.merging().is_some() && matches!(due, Due::Merge(_));
        let beside = at_a_go && !self.is_stalled(runs);
        self.merges.beside = beside;
        let (chosen, id, level, bottom) = match (due, runs.merge()) {
            (Due::Merge(merge), _) => {
                let Merge { runs: places, level } = self.within_room(context, runs, merge)?;
                let bottom = places.end == runs.iter().len() || bug("tombstones-go-early");
                let chosen: Vec<_> = runs.iter().skip(places.start).take(places.len()).cloned().collect();
                let merged = chosen.iter().map(|run| run.bytes()).fold(0, u64::saturating_add);
                self.table_cache.read_cost.settle(merged, bytes_of(&self.shapes(runs)));
                if !at_a_go {
                    self.merges.beside_needs = 0;
                }
                (chosen, self.superblock.next_run, level, bottom)
            }
            (Due::Rest, Some((into, inputs))) => {
                let bottom = runs.merging().is_some_and(|merging| merging.bottom);
                (inputs.to_vec(), into.meta.id, into.meta.level, bottom)
            }
            (Due::Rest, None) => return Ok(()),
        };
        let chosen: Vec<Arc<Run>> = chosen;
        for table in runs.here().iter().flat_map(|run| &run.tables) {
            table.was_unread();
        }
        let is_newer = |run: &&Arc<Run>| run.meta.id != id && run.meta.id != chosen[0].meta.id;
        let newer = runs.iter().take_while(is_newer).cloned().collect();
        let last = chosen.last().map(|run| run.meta.id);
        let older = runs.iter().skip_while(|run| Some(run.meta.id) != last).skip(1).cloned().collect();
        let mut input = Input::runs(&chosen, bottom, newer, older)?;
        let table = self.table_size();
        let all = chosen.iter().map(|run| run.bytes()).fold(0, u64::saturating_add);
        let mut takes = if at_a_go { all } else { self.to_merge(&chosen) };
        if at_a_go {
            self.check_room(context, takes)?;
        }
        let log = input.next_log_alive()?;
        if log > table {
            // Nothing is published in the middle of a log.
            takes = takes.saturating_add(log);
            self.check_room(context, log.saturating_add(2 * table))?;
        }
        // If room is short, a shorter step frees space sooner.
        let bytes = table.min(self.space.room / 2).max(table / 4) / 4 * 3;
        self.superblock.next_run = self.superblock.next_run.max(id + 1);
        let start = input.next_log().map(<[u8]>::to_vec);
        let (bytes, long) = if at_a_go { (u64::MAX, u64::MAX) } else { (bytes, table) };
        let end = Some(End { bytes, long, start });
        let inputs = chosen.iter().map(|r| r.meta.id).collect();
        let last = if runs.merging().is_none() || at_a_go {
            Some(Vec::new())
        } else {
            self.merges.merged_to.take_if(|(run, _)| *run == id).map(|(_, last)| last)
        };
        let build = Some(self.build(input, (id, level), last, end));
        let span = tracing::debug_span!("merge", run = id, level, runs = chosen.len(), bytes = all);
        self.compaction = Some(Compaction { inputs, level, bottom, beside, takes, span, build });
        Ok(())
    }

    /// Gives up a merge beside a running merge when a commit waits for room: it frees nothing
    /// before its end, and the running merge frees room with each of its compaction steps.
    fn give_up_beside(&mut self, context: &Context<'_>) {
        let Some(given_up) = self.compaction.take_if(|compaction| compaction.is_beside()) else { return };
        if let Some(build) = given_up.build {
            self.discard(build);
        }
        self.merges.beside_needs = self.more_room_than_now(context);
    }

    /// Returns the merge; the rest of the running merge if there is no room for a merge beside it.
    fn with_room_beside(
        &mut self,
        context: &Context<'_>,
        runs: &RunSet,
        due: Due,
    ) -> Result<Due, BuildError> {
        let Due::Merge(merge) = &due else { return Ok(due) };
        if runs.merging().is_none() || self.is_stalled(runs) {
            return Ok(due);
        }
        let chosen: Vec<_> = runs.iter().skip(merge.runs.start).take(merge.runs.len()).cloned().collect();
        let bytes = chosen.iter().map(|run| run.bytes()).fold(self.to_merge(&chosen), u64::max);
        let fits = self.room_to_merge(context, bytes)? >= bytes;
        Ok(if fits { due } else { Due::Rest })
    }

    /// Limits the merge to as many of its runs, newest first, as there is room to merge at once.
    /// Two runs are always tried.
    fn within_room(
        &mut self,
        context: &Context<'_>,
        runs: &RunSet,
        merge: Merge,
    ) -> Result<Merge, BuildError> {
        let Merge { runs: places, level } = merge;
        let chosen: Vec<Arc<Run>> = runs.iter().skip(places.start).take(places.len()).cloned().collect();
        let room = self.room_to_merge(context, self.to_merge(&chosen))?;
        // No other work can use the room that a running merge may take.
        let room = if self.space.short_of_space.is_some() { room.min(self.heap.bytes() / 8) } else { room };
        let least = chosen.len().min(2);
        let fit =
            (least..=chosen.len()).rev().find(|n| self.to_merge(&chosen[..*n]) <= room).unwrap_or(least);
        // Large tables, such as those of older formats, need more room than is kept.
        let takes = self.to_merge(&chosen[..fit]);
        if takes > 2 * self.least_kept() {
            self.check_room(context, takes)?;
        }
        let level = if fit < chosen.len() { chosen[fit - 1].meta.level } else { level };
        Ok(Merge { runs: places.start..places.start + fit, level })
    }

    /// Returns an error if a merge would take more room than is free.
    fn check_room(&mut self, context: &Context<'_>, takes: u64) -> Result<(), BuildError> {
        if self.room_to_merge(context, takes)? >= takes {
            return Ok(());
        }
        let why = format!("a merge needs {takes} bytes, more than are free, before it frees any");
        Err(BuildError::Write(io::Error::new(io::ErrorKind::StorageFull, why)))
    }

    /// Publishes a compaction step.
    fn publish(
        &mut self,
        context: &Context<'_>,
        (inputs, bottom): (Vec<u64>, bool),
        build: Build,
    ) -> Result<(), BuildError> {
        assert!(build.got_on(), "a compaction step of nothing would be followed by others for ever");
        let mut next = build.input.next_log().map(<[u8]>::to_vec);
        if next.is_some() && !build.log().is_empty() && bug("merge-key-off-by-one") {
            next = Some(build.log().to_vec());
        }
        let passed = build.input.passed();
        let last = build.last().map(<[u8]>::to_vec);
        let (made, sealed) = self.seal(build)?;
        let old = context.state().runs.clone();
        let into = self.joined(&old, made, &sealed);
        let mut news = News::default();
        for (run, dead) in old.counted().filter(|(run, _)| run.meta.id != into.meta.id) {
            match inputs.iter().position(|id| *id == run.meta.id) {
                None => news.runs.push((run, dead)),
                Some(at) => news.merge((run, dead), at, passed[at], &into, next.as_deref()),
            }
        }
        let merging = next.map(|from| Merging { into: into.meta.id, inputs: inputs.len(), bottom, from });
        let is_last = merging.is_none();
        // A merge beside which this one was done stays as it is.
        let other = old.merging().filter(|other| other.into != into.meta.id).cloned();
        let (goes_on, merging) = (other.is_some(), merging.or(other));
        if is_last {
            news.end(&into);
        }
        let News { runs, merged, freed } = news;
        let early = bug(if is_last { "runs-are-freed-early" } else { "compaction-step-frees-early" });
        if early {
            freed.iter().for_each(|table| self.heap.give(table.extent()));
        }
        self.replace(context, runs, merging, Brings::Nothing)
            .map_err(|build_error| self.lose(sealed, build_error))?;
        if !early {
            self.retired.extend(freed);
        }
        if is_last {
            self.note_cleaned(&merged, &into.meta);
        }
        // After this, only readers hold the freed tables.
        drop((old, merged));
        if !goes_on {
            self.merges.merged_to = last.filter(|_| !is_last).map(|last| (into.meta.id, last));
        }
        self.stats.compaction_steps += 1;
        self.stats.compactions += u64::from(is_last);
        self.merges.checkpoint_next = true;
        self.tidy(context);
        Ok(())
    }

    /// Records that a run was cleaned, if it was: older runs need the tombstones that are left in
    /// it.
    fn note_cleaned(&mut self, merged: &[Counted], into: &RunMeta) {
        let items = |meta: &RunMeta| meta.entries.saturating_add(meta.tombstones);
        let before = merged.iter().map(|(run, _)| items(&run.meta)).fold(0, u64::saturating_add);
        // The merge may have removed entries that were the reason to keep tombstones.
        if merged.len() > 1 || before > items(into) {
            self.merges.cleaned.clear();
        }
        self.merges.cleaned.extend((merged.len() == 1).then_some(into.id));
    }

    /// Returns the run that a merge makes, including the tables of the new compaction step.
    fn joined(&self, runs: &RunSet, made: RunMeta, sealed: &[Arc<Table>]) -> Arc<Run> {
        let so_far = runs.merge().map(|(into, _)| into).filter(|into| into.meta.id == made.id);
        let so_far = so_far.filter(|_| !bug("compaction-step-forgets-the-others"));
        let (before, tables) = so_far.map_or((RunMeta::default(), &[][..]), |run| {
            (RunMeta { dead: runs.dead(run), ..run.meta }, &run.tables[..])
        });
        let meta = RunMeta {
            logs: before.logs.saturating_add(made.logs),
            entries: before.entries.saturating_add(made.entries),
            tombstones: before.tombstones.saturating_add(made.tombstones),
            empties: before.empties.saturating_add(made.empties),
            dead: before.dead,
            ..made.with_ageing(Ageing::sum(before.ageing(), made.ageing()))
        };
        Arc::new(Run::new(&self.table_cache, meta, [tables, sealed].concat(), &[]))
    }
}

/// The runs after a compaction step.
#[derive(Default)]
struct News {
    runs: Vec<Counted>,
    /// The runs that are merged, before the step.
    merged: Vec<Counted>,
    /// Tables that are no longer needed.
    freed: Vec<Arc<Table>>,
}

impl News {
    /// Adds the `at`th of the merged runs, of which `passed` tables are no longer needed, after the
    /// run `into` that is being made. `next` is the next log to merge; `None` at the end of the
    /// merge.
    fn merge(
        &mut self,
        (run, dead): Counted,
        at: usize,
        passed: usize,
        into: &Arc<Run>,
        next: Option<&[u8]>,
    ) {
        if at == 0 {
            self.runs.push((into.clone(), into.meta.dead));
        }
        self.freed.extend_from_slice(&run.tables[..passed]);
        if let Some(from) = next {
            self.runs.push((Arc::new(run.cut(passed, from)), dead));
        }
        self.merged.push((run, dead));
    }

    /// Ends the merge.
    fn end(&mut self, into: &Arc<Run>) {
        let at = self
            .runs
            .iter()
            .position(|(run, _)| Arc::ptr_eq(run, into))
            .expect("it stands for what it merged");
        let (run, _) = self.runs.remove(at);
        if run.meta.logs > 0 {
            let dead = still_dead(&self.merged, &run);
            let at = if bug("merged-run-is-the-oldest") { self.runs.len() } else { at };
            self.runs.insert(at, (run, dead));
        }
    }
}

/// Returns the number of dead entries of a merged run. The merge dropped the entries that the
/// merged runs had lost to each other. Entries that newer runs made irrelevant are still in the new
/// run, and so are entries that the new run lost while it was made. Uncounted losses can only make
/// this number too small.
fn still_dead(replaced: &[Counted], merged: &Run) -> u64 {
    let entries = replaced.iter().map(|(run, _)| run.meta.entries).fold(0, u64::saturating_add);
    let dead = replaced.iter().map(|(_, dead)| *dead).fold(0, u64::saturating_add);
    let dropped = if bug("merge-keeps-its-dead") { 0 } else { entries.saturating_sub(merged.meta.entries) };
    merged.at_most_all(dead.saturating_sub(dropped).saturating_add(merged.meta.dead))
}

/// Returns how far merging lags behind, in percent.
pub(crate) fn backlog(runs: &RunSet) -> u64 {
    let sound = runs.here().iter().take_while(|run| !run.is_damaged()).count();
    POLICY.backlog(&shapes(runs, &runs.here()[..sound]))
}

fn shapes(all: &RunSet, runs: &[Arc<Run>]) -> Vec<Shape> {
    let unfinished = all.merging().map(|merging| merging.into);
    let whole = runs.iter().filter(|run| Some(run.meta.id) != unfinished);
    whole.map(|run| Shape::of(&run.meta, run.bytes(), all.dead(run))).collect()
}
