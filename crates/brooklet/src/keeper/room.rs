//! Room in the heap: found, grown into, given back.
//!
//! Invariant: the heap ends where the volume does, or before; at a fixed size, be it a device's or a capacity, growing
//! fails as on a full disk.

use std::io;
use std::sync::Arc;

use brooklet_io::SECTOR;
use brooklet_io::seeded::bug;

use super::Keeper;
use super::compact::garbage;
use crate::error::{Error, is_full};
use crate::heap::Extent;
use crate::merge::Trouble;
use crate::runs::RunSet;
use crate::superblock::Superblock;

/// The heap grows by multiples of this.
const GROWTH: u64 = 256 << 10;
/// A segment is not made longer, however large the heap.
const LARGEST_SEGMENT: u64 = 64 << 20;
/// Nor shorter, unless the heap is tiny: so that it holds several chunks, and is worth its footer.
const LEAST_SEGMENT: u64 = 64 << 10;
/// The heap has room for so many segments, and more: a merge holds one of each of the runs that it merges.
const MANY_SEGMENTS: u64 = 128;
/// A tiny heap, for so many.
const FEW_SEGMENTS: u64 = 16;

impl Keeper {
    /// Bytes that a segment is to have where there is room for it: so many that a run has few, and so few that a merge can
    /// publish often what it has done. A heap that may grow has room, and segments as large as memory can be used for.
    fn segment_size(&self) -> u64 {
        let Superblock { capacity, .. } = self.superblock;
        let heap = self.heap.end().max(capacity) - self.superblock.heap_offset();
        let least = (heap / FEW_SEGMENTS).clamp(LEAST_SEGMENT / 4, LEAST_SEGMENT);
        let may_grow = capacity == 0 && self.volumes.data.info().device.is_none();
        let least = if may_grow { least.max(self.memory_budget / 4) } else { least };
        let least = least.min(LARGEST_SEGMENT);
        (heap / MANY_SEGMENTS).clamp(least, LARGEST_SEGMENT).next_multiple_of(SECTOR as u64)
    }

    /// The smallest hole that is worth a segment, unless all that is left to write fits into less.
    fn least_hole(&self) -> u64 {
        self.segment_size() / 4
    }

    /// Bytes after which an instalment is published: less where room is short, since what it frees comes only then.
    pub(super) fn instalment_size(&self) -> u64 {
        self.segment_size().min(self.room() / 2).max(self.least_hole()) / 4 * 3
    }

    /// Makes sure that there is room for what a merge must write before it frees something, and, unless one failed already,
    /// for a checkpoint beside it.
    pub(super) fn check_room(&self, before_free: u64) -> Result<(), Trouble> {
        let beside = match self.short_of_room {
            None => self.memory_budget.min(self.superblock.ring_size) / 2,
            Some(_) => 0,
        };
        if self.room() < before_free.saturating_add(beside).max(self.least_hole()) {
            let why = "merging would take more room than there is, before it gives any back";
            return Err(Trouble::Write(io::Error::new(io::ErrorKind::StorageFull, why)));
        }
        Ok(())
    }

    /// How much of that is worth another merge, where one failed now.
    pub(super) fn enough(&self, runs: &RunSet) -> u64 {
        self.reach(runs).saturating_add(self.segment_size())
    }

    /// How much room there is and merging could make, as far as is known.
    pub(super) fn reach(&self, runs: &RunSet) -> u64 {
        let room = if self.superblock.capacity == 0 { self.free_room() } else { self.room() };
        room.saturating_add(garbage(runs))
    }

    /// Free bytes that segments could use.
    pub(super) fn free_room(&self) -> u64 {
        self.heap.usable(self.least_hole())
    }

    /// The same, with what the heap may grow by.
    pub(super) fn room(&self) -> u64 {
        let Superblock { capacity, .. } = self.superblock;
        if capacity == 0 { u64::MAX } else { self.free_room() + capacity.saturating_sub(self.heap.end()) }
    }

    /// Finds room for a segment that needs `least` bytes for its first entry, of a run of which `expected` are still to
    /// come. Best fit; else a hole that is not much too small, before the heap grows; else the largest there is.
    pub(super) fn allocate_segment(&mut self, least: u64, expected: u64) -> Result<Extent, Trouble> {
        let whole = |bytes: u64| bytes.next_multiple_of(SECTOR as u64);
        let least = whole(least);
        let wanted = whole(self.segment_size().min(expected.max(LEAST_SEGMENT))).max(least);
        self.sweep();
        if let Some(extent) = self.heap.take(wanted) {
            return Ok(extent);
        }
        let largest = self.heap.largest_free();
        if largest >= least.max(wanted / 4) {
            return Ok(self.heap.take(largest).expect("it is there"));
        }
        let full = match self.allocate(wanted) {
            Err(Trouble::Write(error)) if is_full(&error) => error,
            done => return done,
        };
        let capacity = self.superblock.capacity;
        if capacity > self.heap.end() && self.volumes.data.grow(capacity).is_ok() {
            self.heap.grow(capacity);
        }
        let largest = self.heap.largest_free().min(wanted);
        if largest < least.max(self.least_hole().min(expected)) {
            return Err(Trouble::Write(full));
        }
        Ok(self.heap.take(largest).expect("it is there"))
    }

    /// Finds room for `len` bytes, growing the volume if need be.
    pub(super) fn allocate(&mut self, len: u64) -> Result<Extent, Trouble> {
        let len = len.next_multiple_of(SECTOR as u64);
        self.sweep();
        if let Some(extent) = self.heap.take(len) {
            return Ok(extent);
        }
        let end = self.heap.end_for(len);
        let end = match self.volumes.data.grow(end.next_multiple_of(GROWTH)) {
            Ok(()) => end.next_multiple_of(GROWTH),
            Err(_) => self.volumes.data.grow(end).map(|()| end).map_err(Trouble::Write)?,
        };
        self.heap.grow(end);
        if self.superblock.capacity == 0 {
            // A disk that was full is not so any more.
            self.failed.take_if(|(error, _)| matches!(error, Error::Full { .. }));
        }
        Ok(self.heap.take(len).expect("the heap just grew by that much"))
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

    /// Gives space at the end of the volume back when it is a good part of it.
    pub(super) fn tidy(&mut self) {
        self.sweep();
        let used = self.heap.end() - self.heap.free_bytes();
        if self.heap.tail_free() > (used / 4).max(4 * GROWTH)
            && let Some(end) = self.heap.shrink()
        {
            if let Err(error) = self.volumes.data.shrink(end) {
                tracing::warn!(%error, "giving space back failed; it is kept for later use");
            }
            // A device keeps its size.
            let size = self.volumes.data.size().unwrap_or(end) / SECTOR as u64 * SECTOR as u64;
            self.heap.grow(size.max(end));
        }
    }
}
