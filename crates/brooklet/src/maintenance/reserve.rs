//! Room in the heap: maintenance secures room before it is needed, reports it to the state,
//! allocates it, and returns it to the file system.
//!
//! Appending relies on the reported budget ([`SpaceBudget`]), so the budget counts only ready
//! extents (`volume/allocator.rs`). The volume grows, or secures loose extents, in steps and ahead
//! of need. This happens here, where no writer waits for the file system.
//!
//! A part of the ready space is *kept*: for the next manifest; for merging, which writes before
//! it frees; and for commits that only free space, whose tombstones also take room. Commits that
//! free space and add little may take a quarter of the last part. There is therefore always room to
//! trim, delete, checkpoint and merge.
//!
//! A merge writes about as many bytes as it reads. The read part of a run is free once the merge
//! has passed a table of that run. At any time, a merge therefore takes at most one table of each
//! of its runs, and the current compaction step, more than it has freed. A compaction step is less
//! than two tables, unless a single log is longer. This room is secured before a merge begins, and
//! kept until it ends.
//!
//! If much more space is free than is needed soon, some is returned to the file system: at the end
//! by cutting the volume, and in the middle, while the store is idle, by punching holes. Kept
//! space is never returned, so that a full file system cannot take it.
//!
//! Invariant: the heap ends at the end of the volume, or before. If the size is fixed by a device
//! or a capacity, growing fails as on a full disk.

use std::io;
use std::sync::Arc;

use brooklet_io::SECTOR;
use brooklet_io::seeded::bug;

use crate::error::is_full;
use crate::maintenance::run_builder::Build;
use crate::maintenance::{Context, Maintenance};
use crate::run::writer::BuildError;
use crate::run::{Run, RunSet};
use crate::state::admission::{SpaceBudget, SpaceDemand};
use crate::volume::allocator::Extent;

/// The heap grows by multiples of this number of bytes, unless less space is left.
const GROWTH: u64 = 256 << 10;
const LEAST_GROWTH: u64 = 16 << 10;
/// Minimum and maximum step of growth, in bytes. In between, a step is a sixteenth of the heap.
const STEP: [u64; 2] = [1 << 20, 256 << 20];
/// Maximum number of bytes that are made ready ahead of need.
const AHEAD: u64 = 64 << 20;
/// If more than this number of loose extents cannot be secured, no more are tried for now.
const TRIES: usize = 16;
/// The budget always covers entries of `USUAL` bytes and, if there is enough room, entries of up to
/// `LARGE` bytes.
const USUAL: usize = 1 << 10;
const LARGE: usize = 1 << 20;
/// Maximum bytes of a table besides its entries: its footer, the root of its index, the directory
/// of its filter, and the padding of its last sector.
pub(super) const TABLE_COST: u64 = 5 << 10;
/// Number of tables that the heap has room for.
const TABLES: u64 = 256;
/// The same number for a small heap.
const FEW_TABLES: u64 = 64;
/// Bounds of the minimum table size, in bytes; the lower bound is for a small heap. A table of that
/// size holds several chunks, and is worth its footer.
const SHORT_TABLE: [u64; 2] = [32 << 10, 1 << 20];
/// Maximum table size in a heap of any size, in bytes.
const LONG_TABLE: u64 = 512 << 20;
/// Number of tables kept for merging two runs: one table of each run, and the tables of a
/// compaction step.
const KEPT_TO_MERGE: u64 = 4;
/// Number of tables kept for commits that only free space.
const KEPT_TO_FREE: u64 = 4;
/// Number of these tables that commits may take that free space and add little.
const FOR_LITTLE: u64 = 1;
/// Holes smaller than this number of bytes are not punched.
const HOLE: u64 = 1 << 20;

impl Maintenance {
    /// Makes space ready ahead of need, and reports the budget to the state. Returns `true` if it
    /// made space ready.
    pub(super) fn look(&mut self, context: &Context<'_>) -> Result<bool, BuildError> {
        self.collect_garbage();
        let (need, runs) = needed(context);
        let wanted = self.wanted(&need, &runs);
        let usable = self.usable(need.largest);
        let mut made = 0;
        if usable >= wanted {
            (self.space.short_of_space, self.space.last_resort) = (None, false);
        } else if self.space.short_of_space != Some((need.requested, need.refusals)) {
            let want = more(wanted - usable);
            made = self.make(want)?;
            self.space.short_of_space = (made < want).then_some((need.requested, need.refusals));
        }
        self.space.room = self.room_beside(&need);
        self.publish_budget(context);
        Ok(made > 0)
    }

    /// Reports the current budget to the state.
    pub(super) fn publish_budget(&self, context: &Context<'_>) {
        let mut state = context.state();
        let budget = self.space_budget(&state.need(), &state.runs);
        state.room.set_budget(budget);
    }

    pub(super) fn space_budget(&self, need: &SpaceDemand, runs: &RunSet) -> SpaceBudget {
        let wanted = self.wanted(need, runs);
        // Chunks grow with each append. The limit is generous, so that not every append needs a new
        // budget.
        let usual = need.largest.max(USUAL);
        let mut largest = need.largest.max(LARGE);
        while largest > usual && self.usable(largest) < wanted {
            largest = (largest / 2).max(usual);
        }
        let certain = self.certain(largest);
        let kept = self.kept_to_merge(runs);
        let resort = if self.space.last_resort { certain / 2 } else { 0 };
        let most_freeing = certain.saturating_sub(kept).max(resort);
        let beyond = |tables: u64| certain.saturating_sub(kept + tables * self.table_size());
        let (most, most_little) = (beyond(KEPT_TO_FREE), beyond(KEPT_TO_FREE - FOR_LITTLE));
        let capacity = self.superblock.capacity;
        let whole = capacity.saturating_sub(self.superblock.heap_offset());
        let short_of_space = self.space.short_of_space.is_some();
        SpaceBudget {
            most,
            most_little,
            most_freeing,
            largest,
            whole: if capacity == 0 { 0 } else { whole },
            look_at: if short_of_space { u64::MAX } else { most.saturating_sub(self.ahead(need) / 2) },
            slope: if short_of_space && self.can_free(runs) { self.table_size() * KEPT_TO_MERGE } else { 0 },
        }
    }

    /// Returns the bytes that checkpoints can certainly write into ready extents if no entry takes
    /// more than `largest` bytes. The end of each extent may be too small for the next entry, and
    /// each table has bytes that are not entries.
    fn usable(&self, largest: usize) -> u64 {
        let least = self.least_hole();
        let usable = self.heap.usable(least, least.max(largest.max(USUAL) as u64 + TABLE_COST));
        self.for_entries(usable)
    }

    /// Returns the part of `bytes` bytes of tables that is left for entries.
    fn for_entries(&self, bytes: u64) -> u64 {
        let table = self.table_size();
        (u128::from(bytes) * u128::from(table) / u128::from(table + TABLE_COST)) as u64
    }

    /// Returns the bytes that are certain for checkpoints, less the bytes for the next manifest.
    fn certain(&self, largest: usize) -> u64 {
        (self.usable(largest) + self.held_by_checkpoint()).saturating_sub(self.for_manifest())
    }

    /// Returns the bytes that the running checkpoint has taken. The frozen memtable still claims
    /// these bytes.
    fn held_by_checkpoint(&self) -> u64 {
        let build = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.build.as_ref());
        self.for_entries(build.map_or(0, Build::held))
    }

    /// Returns the bytes kept for merging, less those that the current compaction step has taken.
    fn kept_to_merge(&self, runs: &RunSet) -> u64 {
        // A merge that failed for lack of room needs more than is kept.
        let merging = runs.merge().filter(|_| !self.is_barred()).map(|(_, inputs)| self.to_merge(inputs));
        let (takes, held) = self.compaction.as_ref().map_or((0, 0), |begun| (begun.takes(), begun.held()));
        self.least_kept().max(merging.unwrap_or_default()).max(takes) - held.min(takes)
    }

    pub(super) fn least_kept(&self) -> u64 {
        KEPT_TO_MERGE * self.table_size()
    }

    fn for_manifest(&self) -> u64 {
        self.manifest.map_or(0, |manifest| manifest.len / 4 * 5) + 2 * SECTOR as u64
    }

    /// Returns the maximum bytes that merging these runs takes before it frees as many: a table of
    /// each run, and a compaction step.
    pub(super) fn to_merge(&self, runs: &[Arc<Run>]) -> u64 {
        let tables = runs.iter().map(|run| run.largest_table()).fold(0, u64::saturating_add);
        tables.saturating_add(2 * self.table_size())
    }

    /// Returns the bytes that a merge may take besides the bytes that checkpoints and manifests
    /// need. Makes more space ready if these are fewer than `wanted`.
    pub(super) fn room_to_merge(&mut self, context: &Context<'_>, wanted: u64) -> Result<u64, BuildError> {
        self.space.room = self.room_beside(&context.state().need());
        if self.space.room < wanted && self.space.short_of_space.is_none() {
            self.make(more(wanted - self.space.room))?;
            self.space.room = self.room_beside(&context.state().need());
        }
        Ok(self.space.room)
    }

    /// Returns the bytes that are certain besides the bytes that checkpoints and manifests need.
    pub(super) fn room_beside(&self, need: &SpaceDemand) -> u64 {
        // A stuck checkpoint needs the room that merging makes, so merging may use all room.
        let claims = if self.is_stuck() { 0 } else { need.claims };
        self.certain(need.largest).saturating_sub(claims)
    }

    /// Returns the room that a merge needs which found too little now: a quarter of a table more.
    pub(super) fn more_room_than_now(&mut self, context: &Context<'_>) -> u64 {
        self.space.room = self.room_beside(&context.state().need());
        self.space.room.saturating_add(self.table_size() / 4)
    }

    /// Returns the step by which the heap grows, in bytes.
    fn growth(&self) -> u64 {
        (self.heap.bytes() / 16).clamp(STEP[0], STEP[1]).next_multiple_of(GROWTH)
    }

    /// Returns the bytes to have ready in addition to the claimed bytes.
    fn ahead(&self, need: &SpaceDemand) -> u64 {
        self.growth().max(need.claims / 4).min(AHEAD)
    }

    /// Returns the bytes to have ready in all.
    fn wanted(&self, need: &SpaceDemand, runs: &RunSet) -> u64 {
        let kept = self.kept_to_merge(runs) + KEPT_TO_FREE * self.table_size() + self.for_manifest();
        let request = need.request.map_or(0, |request| request.claim);
        let wanted =
            need.claims.saturating_add(kept).saturating_add(self.ahead(need)).saturating_add(request);
        wanted.saturating_sub(self.held_by_checkpoint())
    }

    /// Makes `want` bytes ready, or fewer if there is not enough space: first secures loose
    /// extents, then grows the volume. Returns the number of bytes made ready.
    pub(super) fn make(&mut self, want: u64) -> Result<u64, BuildError> {
        let secured = self.allocate_loose(want)?;
        let mut grown = 0;
        let mut step = self.growth().max(want.saturating_sub(secured));
        while secured + grown < want && step > 0 {
            match self.grow(step)? {
                Some(more) => grown += more,
                None => step = if step > LEAST_GROWTH { step / 2 } else { 0 },
            }
        }
        Ok(secured + grown)
    }

    /// Secures loose extents, up to `want` bytes. Returns the number of bytes secured.
    fn allocate_loose(&mut self, want: u64) -> Result<u64, BuildError> {
        let (mut made, mut failed) = (0, 0);
        let unsecured: Vec<Extent> = self.heap.unsecured().collect();
        for extent in unsecured {
            let (mut at, mut len) = (extent.offset, self.growth());
            while at < extent.end() && made < want {
                let part = Extent { offset: at, len: len.min(extent.end() - at) };
                match self.volumes.data.allocate_range(part.offset..part.end()) {
                    Ok(()) => {
                        self.heap.secured(part);
                        made += part.len;
                        at = part.end();
                    }
                    Err(error) if !is_full(&error) => return Err(BuildError::Write(error)),
                    Err(_) if part.len > GROWTH => len = (part.len / 2).next_multiple_of(SECTOR as u64),
                    Err(_) => {
                        failed += 1;
                        break;
                    }
                }
            }
            if made >= want || failed > TRIES {
                break;
            }
        }
        Ok(made)
    }

    /// Grows the volume by `step` bytes, or up to its capacity. Returns the number of bytes added;
    /// `None` if the volume cannot grow.
    fn grow(&mut self, step: u64) -> Result<Option<u64>, BuildError> {
        let (old, capacity) = (self.heap.end(), self.superblock.capacity);
        let end = old.saturating_add(step).next_multiple_of(GROWTH.min(step.next_power_of_two()));
        // At its capacity, the volume itself returns an error with the reason.
        let end = if capacity > old { end.min(capacity) } else { end };
        match self.volumes.data.grow(end) {
            Ok(()) => {
                self.heap.grow(end);
                Ok(Some(end - old))
            }
            Err(error) if is_full(&error) => {
                self.space.why_full = error.to_string();
                Ok(None)
            }
            Err(error) => Err(BuildError::Write(error)),
        }
    }

    /// Returns the size of a table, in bytes, if there is room for it. With this size, a run has
    /// few tables, and a merge can publish its progress often, in a store of any size.
    pub(super) fn table_size(&self) -> u64 {
        let heap = self.heap.bytes();
        let least = (heap / FEW_TABLES).clamp(SHORT_TABLE[0], SHORT_TABLE[1]);
        (heap / TABLES).clamp(least, LONG_TABLE).next_multiple_of(SECTOR as u64)
    }

    /// Returns the smallest hole that is worth a table, in bytes. If fewer bytes are left to write,
    /// a smaller hole is enough.
    fn least_hole(&self) -> u64 {
        (self.table_size() / 4).next_multiple_of(SECTOR as u64)
    }

    /// Returns the free bytes that tables could use.
    pub(super) fn free_room(&self) -> u64 {
        self.heap.usable(self.least_hole(), 0)
    }

    /// Allocates an extent for a table. The first entry of the table needs `least` bytes; the rest
    /// of the run takes about `expected` bytes. Takes the smallest extent that is large enough. If
    /// no extent is, takes one of at least a quarter of the wanted size before the heap grows, and
    /// the largest one after that. A merge leaves the bytes that are certain for checkpoints.
    pub(super) fn allocate_table(
        &mut self,
        context: &Context<'_>,
        least: u64,
        expected: u64,
        merges: bool,
    ) -> Result<Extent, BuildError> {
        let whole = |bytes: u64| bytes.next_multiple_of(SECTOR as u64);
        let least = whole(least);
        let wanted = whole(self.table_size().min(expected)).max(least);
        self.collect_garbage();
        for grown in [false, true] {
            if grown {
                self.make(wanted)?;
            }
            let largest = self.heap.largest_ready().min(wanted);
            let enough = if grown { least.max(self.least_hole().min(wanted)) } else { least.max(wanted / 4) };
            if largest >= enough
                && let Some(extent) = self.take(context, largest, merges)
            {
                return Ok(extent);
            }
        }
        Err(self.no_room())
    }

    /// Takes an extent of `len` bytes. For a merge, returns `None` if checkpoints need the extent.
    fn take(&mut self, context: &Context<'_>, len: u64, merges: bool) -> Option<Extent> {
        let extent = self.heap.take(len)?;
        if merges {
            let mut state = context.state();
            let need = state.need();
            if self.room_beside(&need) == 0 {
                drop(state);
                self.heap.give(extent);
                return None;
            }
            let budget = self.space_budget(&need, &state.runs);
            state.room.set_budget(budget);
        }
        Some(extent)
    }

    pub(super) fn no_room(&self) -> BuildError {
        let why = if self.space.why_full.is_empty() {
            "no hole in the heap is large enough"
        } else {
            &self.space.why_full
        };
        BuildError::Write(io::Error::new(io::ErrorKind::StorageFull, why))
    }

    /// Allocates `len` bytes, and grows the volume if necessary.
    pub(super) fn allocate(&mut self, len: u64) -> Result<Extent, BuildError> {
        let len = len.next_multiple_of(SECTOR as u64);
        self.collect_garbage();
        if let Some(extent) = self.heap.take(len) {
            return Ok(extent);
        }
        self.make(len)?;
        self.heap.take(len).ok_or_else(|| self.no_room())
    }

    /// Frees the extents of retired tables that no reader holds any more.
    pub(super) fn collect_garbage(&mut self) {
        let heap = &mut self.heap;
        self.retired.retain(|table| {
            let pinned = Arc::strong_count(table) > 1 && !bug("readers-do-not-pin");
            if !pinned {
                heap.give(table.extent());
            }
            pinned
        });
    }

    /// Returns the free bytes that are not needed soon, if they are a large part of the heap.
    fn spare(&self, need: &SpaceDemand, runs: &RunSet) -> Option<u64> {
        let used = self.heap.bytes() - self.heap.free_bytes();
        let wanted = self.wanted(need, runs).saturating_add(self.ahead(need));
        let spare = self.usable(need.largest).saturating_sub(wanted);
        (spare > (used / 8).max(HOLE)).then_some(spare)
    }

    /// Returns space at the end of the volume to the file system if there is much to spare. While
    /// the store is idle, returns space in the middle. Returns `true` if some space was returned.
    /// Reduces the budget first, so that no commit relies on that space.
    pub(super) fn tidy(&mut self, context: &Context<'_>) -> bool {
        self.collect_garbage();
        let mut state = context.state();
        let Some(spare) = self.spare(&state.need(), &state.runs) else { return false };
        let cut = spare.min(self.heap.tail_free()) / GROWTH * GROWTH;
        let end = if cut >= HOLE { self.heap.shrink(self.heap.end() - cut) } else { None };
        let holes = if end.is_none() && context.is_idle() { self.holes(spare) } else { Vec::new() };
        let budget = self.space_budget(&state.need(), &state.runs);
        state.room.set_budget(budget);
        drop(state);
        end.is_some_and(|end| self.cut(end)) || self.punch(&holes)
    }

    /// Cuts the volume to `end`, the new end of the heap. Returns `false` if the volume keeps its
    /// size.
    fn cut(&mut self, end: u64) -> bool {
        if let Err(error) = self.volumes.data.shrink(end) {
            tracing::warn!(%error, "the store could not return space to the file system; it keeps the space for later use");
        }
        // A device keeps its size.
        let size = self.volumes.data.size().unwrap_or(end) / SECTOR as u64 * SECTOR as u64;
        self.heap.grow(size.max(end));
        size <= end
    }

    /// Selects holes of at most `spare` bytes in all, and makes them loose. Begins with the last
    /// holes, so that the space in front stays ready.
    fn holes(&mut self, spare: u64) -> Vec<Extent> {
        let mut left = if self.space.punches { spare } else { 0 };
        let ready: Vec<Extent> = self.heap.ready().rev().collect();
        let hole = |extent: Extent| {
            let len = extent.len.min(left) / GROWTH * GROWTH;
            left -= if len < HOLE { 0 } else { len };
            (len >= HOLE).then(|| Extent { offset: extent.end() - len, len })
        };
        let holes: Vec<Extent> = ready.into_iter().filter_map(hole).collect();
        holes.iter().for_each(|hole| self.heap.unsecure(*hole));
        holes
    }

    /// Punches these loose holes. Returns `false` if there are no holes, or if punching failed.
    fn punch(&mut self, holes: &[Extent]) -> bool {
        for hole in holes {
            match self.volumes.data.punch(hole.offset..hole.end()) {
                Ok(true) => self.stats.punched_bytes += hole.len,
                done => {
                    if let Err(error) = done {
                        tracing::warn!(%error, "the store could not return space to the file system; it keeps the space for later use");
                    }
                    self.space.punches = false;
                }
            }
        }
        !holes.is_empty() && self.space.punches
    }
}

/// Returns the bytes to make ready so that `usable` bytes are usable.
pub(super) fn more(usable: u64) -> u64 {
    usable.saturating_add(usable / 4).saturating_add(GROWTH)
}

/// Returns the current demand for space, and the current runs.
fn needed(context: &Context<'_>) -> (SpaceDemand, Arc<RunSet>) {
    let state = context.state();
    (state.need(), state.runs.clone())
}
