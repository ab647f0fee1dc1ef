//! Room in the heap: found, grown into, given back.
//!
//! Invariant: the heap ends where the volume does, or before; at a fixed size, be it a device's or a capacity, growing
//! fails as on a full disk.

use std::sync::Arc;

use brooklet_io::SECTOR;
use brooklet_io::seeded::bug;

use super::Keeper;
use crate::error::is_full;
use crate::heap::Extent;
use crate::merge::Trouble;

/// The heap grows by multiples of this.
const GROWTH: u64 = 256 << 10;

impl Keeper {
    /// Finds room for a run that is reckoned to take up to `bound` bytes. Where there is less, and a checkpoint or a caller
    /// waits for what merging may free, a merged run gets the largest extent there is, since what was trimmed and deleted
    /// may make it fit; if it does not, it is given up.
    pub(super) fn allocate_run(&mut self, bound: u64) -> Result<Extent, Trouble> {
        let full = match self.allocate(bound) {
            Err(Trouble::Write(error)) if is_full(&error) && self.compacting && self.short_of_room => error,
            done => return done,
        };
        let capacity = self.superblock.capacity;
        if capacity > self.heap.end() && self.volumes.data.grow(capacity).is_ok() {
            self.heap.grow(capacity);
        }
        let largest = self.heap.largest_free();
        if largest <= self.squeezed {
            return Err(Trouble::Write(full));
        }
        self.squeezed = largest;
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
        Ok(self.heap.take(len).expect("the heap just grew by that much"))
    }

    /// Gives back the extents of retired runs that no reader holds any more.
    pub(super) fn sweep(&mut self) {
        let heap = &mut self.heap;
        self.retired.retain(|run| {
            let pinned = Arc::strong_count(run) > 1 && !bug("readers-do-not-pin");
            if !pinned {
                heap.give(run.extent());
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
