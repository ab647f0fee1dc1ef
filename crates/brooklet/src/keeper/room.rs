//! Room in the heap: made certain before it is needed, told to the front, found, given back.
//!
//! Boarding relies on what is told ([`Told`]), so it is never hoped for: only ready extents count (`heap.rs`), and the volume
//! grows, or secures loose ones, in steps and ahead of need, here, where no writer waits for the file system.
//!
//! Space is given back where much more is free than is needed soon: at the end by cutting the volume, and in the middle, while
//! the store is idle, by punching holes. What is kept for checkpoints and merging is never given back, so that a full file
//! system takes nothing from it.
//!
//! Invariant: the heap ends where the volume does, or before; at a fixed size, be it a device's or a capacity, growing
//! fails as on a full disk.

use std::io;
use std::sync::Arc;

use brooklet_io::SECTOR;
use brooklet_io::seeded::bug;

use super::build::Build;
use super::compact::can_free;
use super::{Context, Keeper};
use crate::error::is_full;
use crate::front::{Need, Told};
use crate::heap::Extent;
use crate::merge::Trouble;
use crate::model::MAX_KEY;
use crate::runs::RunSet;
use crate::superblock::Superblock;

/// The heap grows by multiples of this; what is smaller is not worth asking for.
const GROWTH: u64 = 256 << 10;
/// The least and the most that it grows by; in between, a sixteenth of it.
const STEP: [u64; 2] = [1 << 20, 256 << 20];
/// What is kept for merging: a sixteenth of the heap, but no less and no more than so many of the smallest and largest
/// segments, one for each run that is merged and some for what is made of them.
const KEPT_SEGMENTS: u64 = 16;
/// The most that is made ready before it is needed.
const AHEAD: u64 = 64 << 20;
/// Loose extents that could not be secured, after which no more are tried for now.
const TRIES: usize = 16;
/// Entries that are always reckoned with, and those that are where there is much room.
const USUAL: usize = 1 << 10;
const LARGE: usize = 1 << 20;
/// What a segment takes besides its entries, at most: its footer, the root of its index, the directory of its filter, and
/// what fills its last sector.
pub(super) const SEGMENT_COST: u64 = 5 << 10;
/// A segment is not made longer, however large the heap.
pub(super) const LARGEST_SEGMENT: u64 = 64 << 20;
/// Nor is it made shorter than this part of the heap, where there is room.
const MANY_SEGMENTS: u64 = 1024;
/// Nor is it made shorter than this.
pub(super) const LEAST_SEGMENT: u64 = 16 << 10;
/// A hole that is smaller is not worth a segment.
const LEAST_HOLE: u64 = 64 << 10;
/// Holes smaller than this are not punched.
const HOLE: u64 = 1 << 20;

impl Keeper {
    /// Makes space certain ahead of need, and tells the front what there is. `true` where some was made.
    pub(super) fn look(&mut self, context: &Context<'_>) -> Result<bool, Trouble> {
        self.sweep();
        let need = context.front().need();
        let wanted = self.wanted(&need);
        let mut made = false;
        if self.usable(need.largest) >= wanted {
            self.stunted = None;
        } else if self.stunted != Some(need.asked) {
            made = self.make(wanted - self.usable(need.largest))?;
            self.stunted = (self.usable(need.largest) < wanted).then_some(need.asked);
        }
        self.tell(context);
        Ok(made)
    }

    /// Tells the front what room there is.
    pub(super) fn tell(&self, context: &Context<'_>) {
        let mut front = context.front();
        let told = self.told(&front.need(), &front.runs);
        front.room.tell(told);
    }

    pub(super) fn told(&self, need: &Need, runs: &RunSet) -> Told {
        let large = need.largest.max(LARGE);
        let largest = if self.usable(large) >= self.wanted(need) { large } else { need.largest.max(USUAL) };
        let usable = self.usable(largest) + self.checkpoint_holds();
        let (reserve, ahead) = (self.reserve(), self.ahead(need));
        let capacity = self.superblock.capacity;
        let most = capacity.checked_sub(self.superblock.heap_offset()).filter(|_| capacity > 0);
        let look_at = usable.saturating_sub(reserve + ahead / 2);
        Told {
            usable,
            largest,
            reserve,
            most: most.map_or(u64::MAX, |most| most.saturating_sub(reserve)),
            look_at: if self.stunted.is_some() { u64::MAX } else { look_at },
            slope: if self.stunted.is_some() && can_free(runs) { reserve } else { 0 },
        }
    }

    /// Bytes that checkpoints can write for certain into ready extents, where no entry is larger than `largest`: at the end
    /// of each there may be too little for the next one, and each segment has what is no entry.
    fn usable(&self, largest: usize) -> u64 {
        let entry = largest.max(USUAL) + 2 * MAX_KEY;
        let least = self.least_hole();
        let usable = self.heap.usable(least, least.max(entry as u64 + SEGMENT_COST));
        let segment = self.segment_size();
        (u128::from(usable) * u128::from(segment) / u128::from(segment + SEGMENT_COST)) as u64
    }

    /// Bytes of the extents that the checkpoint going on has taken.
    fn checkpoint_holds(&self) -> u64 {
        let build = self.checkpoint.as_ref().and_then(|checkpoint| checkpoint.build.as_ref());
        build.map_or(0, Build::held)
    }

    /// Bytes kept for merging, and for the next manifests.
    pub fn reserve(&self) -> u64 {
        let merging = (self.heap.bytes() / KEPT_SEGMENTS)
            .clamp(KEPT_SEGMENTS * LEAST_SEGMENT, KEPT_SEGMENTS * LARGEST_SEGMENT);
        merging + self.manifest.map_or(0, |manifest| 2 * manifest.len)
    }

    /// Bytes that the heap grows by.
    fn growth(&self) -> u64 {
        (self.heap.bytes() / 16).clamp(STEP[0], STEP[1]).next_multiple_of(GROWTH)
    }

    /// Bytes to have ready besides what is claimed already.
    fn ahead(&self, need: &Need) -> u64 {
        self.growth().max(need.claims / 4).min(AHEAD)
    }

    /// Bytes to have ready.
    fn wanted(&self, need: &Need) -> u64 {
        let wish = need.wish.map_or(0, |wish| wish.cost);
        need.claims.saturating_add(self.reserve()).saturating_add(self.ahead(need)).saturating_add(wish)
    }

    /// Makes `want` bytes ready, or as many as can be had: loose ones are secured, and then the volume grows. `true` where
    /// there were any.
    fn make(&mut self, want: u64) -> Result<bool, Trouble> {
        let mut made = 0;
        let mut failed = 0;
        let loose: Vec<Extent> = self.heap.loose().collect();
        for extent in loose {
            let (mut at, mut len) = (extent.offset, self.growth());
            while at < extent.end() && made < want {
                let part = Extent { offset: at, len: len.min(extent.end() - at) };
                match self.volumes.data.secure(part.offset..part.end()) {
                    Ok(()) => {
                        self.heap.secured(part);
                        made += part.len;
                        at = part.end();
                    }
                    Err(error) if !is_full(&error) => return Err(Trouble::Write(error)),
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
        let mut step = self.growth().max(want.saturating_sub(made));
        while made < want && step > 0 {
            match self.grow(step)? {
                Some(more) => made += more,
                None => step = if step > GROWTH { step / 2 } else { 0 },
            }
        }
        Ok(made > 0)
    }

    /// Grows the volume by `step` bytes, or up to its capacity. `None` where it cannot.
    fn grow(&mut self, step: u64) -> Result<Option<u64>, Trouble> {
        let (old, capacity) = (self.heap.end(), self.superblock.capacity);
        let end = old.saturating_add(step).next_multiple_of(GROWTH);
        // At its capacity the volume itself says why there is no more.
        let end = if capacity > old { end.min(capacity) } else { end };
        match self.volumes.data.grow(end) {
            Ok(()) => {
                self.heap.grow(end);
                Ok(Some(end - old))
            }
            Err(error) if is_full(&error) => {
                self.why_full = error.to_string();
                Ok(None)
            }
            Err(error) => Err(Trouble::Write(error)),
        }
    }

    /// Bytes that a segment is to have where there is room for it: so many that a run has few, and so few that a merge can
    /// publish often what it has done, in stores of any size.
    pub(super) fn segment_size(&self) -> u64 {
        let used = self.heap.bytes() - self.heap.free_bytes();
        (used / MANY_SEGMENTS).clamp(self.least_segment, LARGEST_SEGMENT).next_multiple_of(SECTOR as u64)
    }

    /// The smallest hole that is worth a segment, unless all that is left to write fits into less.
    fn least_hole(&self) -> u64 {
        LEAST_HOLE.min(self.segment_size() / 2)
    }

    /// Free bytes that segments could use.
    pub(super) fn free_room(&self) -> u64 {
        self.heap.usable(self.least_hole(), 0)
    }

    /// Bytes that merging may take, beside what checkpoints are certain of.
    pub(super) fn room(&self, context: &Context<'_>) -> u64 {
        let Superblock { capacity, .. } = self.superblock;
        if capacity == 0 && self.stunted.is_none() {
            return u64::MAX;
        }
        let need = context.front().need();
        let free = self.free_room() + self.checkpoint_holds();
        (free.saturating_sub(need.claims) + capacity.saturating_sub(self.heap.end())).max(LEAST_SEGMENT)
    }

    /// Finds room for a segment that needs `least` bytes for its first entry, of a run of which `expected` are still to
    /// come. Best fit; else a hole that is not much too small, before the heap grows; else the largest there is. A merge
    /// leaves what checkpoints are certain of.
    pub(super) fn allocate_segment(
        &mut self,
        context: &Context<'_>,
        least: u64,
        expected: u64,
        merges: bool,
    ) -> Result<Extent, Trouble> {
        let whole = |bytes: u64| bytes.next_multiple_of(SECTOR as u64);
        let least = whole(least);
        let wanted = whole(self.segment_size().min(expected)).max(least);
        self.sweep();
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
        let spare = self.room(context).min(self.heap.largest_ready()) / SECTOR as u64 * SECTOR as u64;
        let small = (merges && spare >= least.max(self.least_hole()))
            .then(|| self.take(context, spare, merges))
            .flatten();
        small.ok_or_else(|| self.no_room())
    }

    /// Takes an extent; for a merge not, where checkpoints would be less certain of what they need.
    fn take(&mut self, context: &Context<'_>, len: u64, merges: bool) -> Option<Extent> {
        let extent = self.heap.take(len)?;
        if merges {
            let mut front = context.front();
            let told = self.told(&front.need(), &front.runs);
            if told.usable < front.claims() && !bug("reserve-not-kept") {
                drop(front);
                self.heap.give(extent);
                return None;
            }
            front.room.tell(told);
        }
        Some(extent)
    }

    fn no_room(&self) -> Trouble {
        let why =
            if self.why_full.is_empty() { "no hole in the heap is large enough" } else { &self.why_full };
        Trouble::Write(io::Error::new(io::ErrorKind::StorageFull, why))
    }

    /// Finds room for `len` bytes, growing the volume if need be.
    pub(super) fn allocate(&mut self, len: u64) -> Result<Extent, Trouble> {
        let len = len.next_multiple_of(SECTOR as u64);
        self.sweep();
        if let Some(extent) = self.heap.take(len) {
            return Ok(extent);
        }
        self.make(len)?;
        self.heap.take(len).ok_or_else(|| self.no_room())
    }

    /// Gives back the extents of retired segments that no reader holds any more.
    pub(super) fn sweep(&mut self) {
        let heap = &mut self.heap;
        self.retired.retain(|segment| {
            let pinned = Arc::strong_count(segment) > 1 && !bug("readers-do-not-pin");
            if !pinned {
                heap.give(segment.extent());
            }
            pinned
        });
    }

    /// Free bytes beyond what is needed soon, where they are a good part of the heap.
    fn spare(&self, need: &Need) -> Option<u64> {
        let used = self.heap.bytes() - self.heap.free_bytes();
        let spare = self.heap.ready_bytes().saturating_sub(self.wanted(need) + self.ahead(need));
        (spare > (used / 8).max(HOLE)).then_some(spare)
    }

    /// Gives space at the end of the volume back when there is much to spare, and, while nobody commits, space in the
    /// middle. `true` where some was.
    pub(super) fn tidy(&mut self, context: &Context<'_>) -> bool {
        self.sweep();
        let need = context.front().need();
        let Some(spare) = self.spare(&need) else { return false };
        let cut = spare.min(self.heap.tail_free()) / GROWTH * GROWTH;
        if cut >= HOLE
            && let Some(end) = self.heap.shrink(self.heap.end() - cut)
        {
            if let Err(error) = self.volumes.data.shrink(end) {
                tracing::warn!(%error, "giving space back failed; it is kept for later use");
            }
            // A device keeps its size.
            let size = self.volumes.data.size().unwrap_or(end) / SECTOR as u64 * SECTOR as u64;
            self.heap.grow(size.max(end));
            if size <= end {
                return true;
            }
        }
        context.is_idle() && self.punch(spare)
    }

    /// Punches holes of `spare` bytes in all, the last ones first: what is left lies in front, where it is found again.
    fn punch(&mut self, spare: u64) -> bool {
        let mut left = if self.punches { spare } else { 0 };
        let ready: Vec<Extent> = self.heap.ready().rev().collect();
        for extent in ready {
            let len = extent.len.min(left) / GROWTH * GROWTH;
            if len < HOLE {
                continue;
            }
            let hole = Extent { offset: extent.end() - len, len };
            match self.volumes.data.punch(hole.offset..hole.end()) {
                Ok(true) => {
                    self.heap.loosened(hole);
                    self.stats.punched_bytes += len;
                    left -= len;
                }
                done => {
                    if let Err(error) = done {
                        tracing::warn!(%error, "giving space back failed; it is kept for later use");
                    }
                    self.punches = false;
                    break;
                }
            }
        }
        left < spare && self.punches
    }
}
