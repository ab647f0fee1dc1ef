//! Compaction: some neighbouring runs become one, in instalments.
//!
//! An instalment adds about a segment's worth to the run that is being made, up to some place between two logs, and is
//! published like any other change: that run then has all logs before the place, the merged ones count only from it on, and
//! their segments that lie before it are free. Nothing of a merge is remembered but what the manifest says of it, so that
//! it goes on after a crash, a reopening or a lack of room where the last instalment ended.
//!
//! Of the dead entries, those of the merged runs are told with them until the end, however much of them has been merged;
//! only what newer runs have made irrelevant in the new one meanwhile is told with that.

use std::sync::Arc;

use brooklet_io::seeded::bug;

use super::build::{Build, End};
use super::{Context, Counted, Keeper};
use crate::error::{Error, is_full};
use crate::front::Press;
use crate::manifest::{Merging, RunMeta};
use crate::merge::{Input, Trouble};
use crate::policy::{Merge, POLICY, Shape};
use crate::runs::{Run, RunSet};
use crate::segment::Segment;

/// An instalment of a compaction.
pub(super) struct Compaction {
    /// The numbers of the runs that it replaces, newest first.
    inputs: Vec<u64>,
    /// The log that it began with.
    start: Option<Vec<u8>>,
    build: Build,
}

impl Compaction {
    pub fn inputs(&self) -> &[u64] {
        &self.inputs
    }
}

/// What there is to merge.
#[derive(Debug)]
pub(crate) enum Due {
    /// What was begun.
    Rest,
    /// Something new.
    Merge(Merge),
}

impl Keeper {
    /// Somebody waits for all runs to be merged: forgets why that failed before.
    pub fn insist(&mut self) {
        self.failed = None;
    }

    /// Goes on with merging all runs into one, before checkpoints but for one between two instalments. What is being merged
    /// already is merged first. Fails with what has failed since somebody [insisted](Self::insist), whoever met it.
    pub fn merge_all(&mut self, context: &Context<'_>) -> Result<(), Error> {
        if let Some(why) = context.wal.failure() {
            return Err(why.into());
        }
        if let Some((error, _)) = &self.failed {
            return Err(error.clone());
        }
        self.insisted = true;
        let runs = context.front().runs.clone();
        if self.compaction.is_none() && runs.merging().is_none() && runs.iter().len() > 1 {
            let level = runs.iter().map(|r| r.meta.level).max().unwrap_or_default();
            self.compacting = true;
            let all = Due::Merge(Merge { runs: 0..runs.iter().len(), level });
            self.begin(context, &runs, all).map_err(|trouble| self.bear(context, trouble))?;
        }
        Ok(())
    }

    /// What to merge next, if anything.
    pub fn due(&self, runs: &RunSet, eager: bool) -> Option<Due> {
        if self.failed.as_ref().is_some_and(|(_, room)| self.free_room() <= *room) {
            return None;
        }
        match runs.merging() {
            Some(_) => Some(Due::Rest),
            None => POLICY.next(&shapes(runs), eager).map(Due::Merge),
        }
    }

    /// What to merge next for room, if anything; `any`: whatever might free some.
    pub(super) fn due_for_room(&self, runs: &RunSet, any: bool) -> Option<Due> {
        self.due(runs, true).or_else(|| {
            let barred = self.failed.as_ref().is_some_and(|(_, room)| self.free_room() <= *room);
            if barred { None } else { POLICY.relief(&shapes(runs), any).map(Due::Merge) }
        })
    }

    /// Starts or goes on with a compaction; where room is `press`ed for, with one that makes some.
    pub(super) fn compact(&mut self, context: &Context<'_>, press: Option<Press>) -> Result<bool, Trouble> {
        self.compacting = true;
        let Some(mut compaction) = self.compaction.take() else {
            self.sweep();
            let runs = context.front().runs.clone();
            let due = match press {
                Some(press) => self.due_for_room(&runs, press.frees),
                None => self.due(&runs, context.is_idle()),
            };
            let Some(due) = due else { return Ok(false) };
            return self.begin(context, &runs, due).map(|()| true);
        };
        match self.write(context, &mut compaction.build) {
            Ok(true) => self.compaction = Some(compaction),
            Ok(false) => self.publish(context, compaction)?,
            Err(trouble) => self.fall_short(compaction, trouble)?,
        }
        Ok(true)
    }

    /// Begins the next instalment.
    fn begin(&mut self, context: &Context<'_>, runs: &RunSet, due: Due) -> Result<(), Trouble> {
        let (chosen, id, level) = match (due, runs.merge()) {
            (Due::Merge(merge), _) => {
                let merge = self.within_room(context, runs, merge);
                let chosen = runs.iter().skip(merge.runs.start).take(merge.runs.len()).cloned().collect();
                let id = self.superblock.next_run;
                self.superblock.next_run += 1;
                (chosen, id, merge.level)
            }
            (Due::Rest, Some((into, inputs))) => (inputs.to_vec(), into.meta.id, into.meta.level),
            (Due::Rest, None) => return Ok(()),
        };
        let chosen: Vec<Arc<Run>> = chosen;
        let oldest =
            |runs: &mut dyn DoubleEndedIterator<Item = &Arc<Run>>| runs.next_back().map(|r| r.meta.id);
        let bottom = oldest(&mut chosen.iter()) == oldest(&mut runs.iter()) || bug("tombstones-go-early");
        let is_newer = |run: &&Arc<Run>| run.meta.id != id && run.meta.id != chosen[0].meta.id;
        let newer = runs.iter().take_while(is_newer).cloned().collect();
        let input = Input::runs(&chosen, bottom, newer)?;
        // Half of the room is for what an instalment makes; what it frees comes later.
        let bytes = self.segment_size().min(self.room(context) / 2) / 4 * 3;
        let end = End { bytes: Some(bytes), before: self.stop_before.take() };
        let start = input.next_log().map(<[u8]>::to_vec);
        let inputs = chosen.iter().map(|r| r.meta.id).collect();
        self.compaction = Some(Compaction { inputs, start, build: self.build(input, id, level, end) });
        Ok(())
    }

    /// As many of the runs to be merged, newest first, as there is room to merge at once: of each, a segment may be in part
    /// merged and in part needed.
    fn within_room(&self, context: &Context<'_>, runs: &RunSet, merge: Merge) -> Merge {
        let (segment, mut left) =
            (self.segment_size(), self.room(context).saturating_sub(self.segment_size()));
        let fits = runs.iter().take(merge.runs.end).take_while(|run| {
            let part = run.bytes().min(segment);
            let fits = part <= left;
            left = left.saturating_sub(part);
            fits
        });
        let end = fits.count().max(2);
        match runs.iter().nth(end - 1) {
            Some(last) if end < merge.runs.end => Merge { runs: 0..end, level: last.meta.level },
            _ => merge,
        }
    }

    /// Gives up an instalment. Where room was short in the midst of a log that was not its first one, the next ends before
    /// that log, so that what it frees is there for it.
    fn fall_short(&mut self, compaction: Compaction, trouble: Trouble) -> Result<(), Trouble> {
        let Compaction { start, build, .. } = compaction;
        let log = build.log().to_vec();
        self.discard(build);
        match trouble {
            Trouble::Write(error) if is_full(&error) && start.is_some_and(|start| start != log) => {
                self.stop_before = Some(log);
                Ok(())
            }
            trouble => Err(trouble),
        }
    }

    /// Makes an instalment count.
    fn publish(&mut self, context: &Context<'_>, compaction: Compaction) -> Result<(), Trouble> {
        let Compaction { inputs, build, .. } = compaction;
        let mut next = build.input.next_log().map(<[u8]>::to_vec);
        if next.is_some() && !build.log().is_empty() && bug("merge-key-off-by-one") {
            next = Some(build.log().to_vec());
        }
        let passed = build.input.passed();
        let (made, sealed) = self.seal(build)?;
        let old = context.front().runs.clone();
        let into = self.joined(&old, made, &sealed);
        let mut news = News::default();
        for run in old.iter().filter(|run| run.meta.id != into.meta.id) {
            match inputs.iter().position(|id| *id == run.meta.id) {
                None => news.runs.push((run.clone(), run.dead())),
                Some(at) => news.merge(run, at, passed[at], &into, next.as_deref()),
            }
        }
        let merging = next.map(|from| Merging { into: into.meta.id, inputs: inputs.len(), from });
        let is_last = merging.is_none();
        if is_last {
            news.end(&into);
        }
        let News { runs, merged, freed } = news;
        let early = bug(if is_last { "runs-are-freed-early" } else { "instalment-frees-early" });
        if early {
            freed.iter().for_each(|segment| self.heap.give(segment.extent()));
        }
        self.replace(context, runs, merging, None).map_err(|trouble| self.lose(sealed, trouble))?;
        if !early {
            self.retired.extend(freed);
        }
        // Whoever still reads from these holds what was freed of them.
        drop((old, merged));
        self.stats.instalments += 1;
        self.stats.compactions += u64::from(is_last);
        self.yields = true;
        self.tidy(context);
        Ok(())
    }

    /// The run that a merge makes, with what an instalment added to it.
    fn joined(&self, runs: &RunSet, made: RunMeta, sealed: &[Arc<Segment>]) -> Arc<Run> {
        let so_far = runs.merge().map(|(into, _)| into).filter(|_| !bug("instalment-forgets-the-others"));
        let (before, segments) =
            so_far.map_or((RunMeta::default(), &[][..]), |run| (run.meta(), &run.segments[..]));
        let meta = RunMeta {
            logs: before.logs + made.logs,
            entries: before.entries + made.entries,
            tombstones: before.tombstones + made.tombstones,
            empties: before.empties + made.empties,
            dead: before.dead,
            ..made
        };
        Arc::new(Run::new(&self.shelf, meta, [segments, sealed].concat(), &[]))
    }
}

/// What an instalment makes of the runs.
#[derive(Default)]
struct News {
    runs: Vec<Counted>,
    /// The runs that are merged, while they are merged and at the end.
    merged: Vec<Arc<Run>>,
    /// Segments that nobody needs any more.
    freed: Vec<Arc<Segment>>,
}

impl News {
    /// Takes in the `at`th of the runs that are merged, of which so many segments are `passed`, behind what is being made;
    /// `next` is the log that is to be merged next.
    fn merge(&mut self, run: &Arc<Run>, at: usize, passed: usize, into: &Arc<Run>, next: Option<&[u8]>) {
        if at == 0 {
            self.runs.push((into.clone(), into.meta.dead));
        }
        self.freed.extend_from_slice(&run.segments[..passed]);
        self.merged.push(run.clone());
        if let Some(from) = next {
            self.runs.push((Arc::new(run.cut(passed, from)), run.dead()));
        }
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

/// How many entries of a merged run are dead. What the merge dropped, the runs that were merged had lost to each other;
/// whatever else they had lost, newer runs made irrelevant, and the merged run still holds it; as it does what it has lost
/// itself while it was being made. What was lost and not counted can only make this too small.
fn still_dead(replaced: &[Arc<Run>], merged: &Run) -> u64 {
    let entries = replaced.iter().map(|run| run.meta.entries).fold(0, u64::saturating_add);
    let dead = replaced.iter().map(|run| run.dead()).fold(0, u64::saturating_add);
    let dropped = if bug("merge-keeps-its-dead") { 0 } else { entries.saturating_sub(merged.meta.entries) };
    merged.at_most_all(dead.saturating_sub(dropped).saturating_add(merged.meta.dead))
}

/// How far merging lags behind, in percent.
pub(crate) fn backlog(runs: &RunSet) -> u64 {
    POLICY.backlog(&shapes(runs))
}

/// Whether there is something that a merge for room frees.
pub(super) fn can_free(runs: &RunSet) -> bool {
    runs.merging().is_some() || POLICY.relief(&shapes(runs), false).is_some()
}

/// What the policy knows of the runs; one that is only being made is none.
fn shapes(runs: &RunSet) -> Vec<Shape> {
    let unfinished = runs.merging().map(|merging| merging.into);
    let whole = runs.iter().filter(|run| Some(run.meta.id) != unfinished);
    whole.map(|run| Shape::of(&run.meta, run.bytes(), run.dead())).collect()
}
