//! The holes of a disk: whole sectors that were released, take no room, and were not written since.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::SECTOR;

/// The sectors in holes.
#[derive(Clone, Debug, Default)]
pub(super) struct Holes(BTreeSet<u64>);

impl Holes {
    pub fn add(&mut self, range: Range<u64>) {
        self.0.extend(sectors(&range));
    }

    pub fn fill(&mut self, range: Range<u64>) {
        let sectors = sectors(&range);
        self.0.retain(|sector| !sectors.contains(sector));
    }

    /// Returns the number of bytes in the holes that `range` touches.
    pub fn within(&self, range: &Range<u64>) -> u64 {
        self.0.range(sectors(range)).count() as u64 * SECTOR as u64
    }

    pub fn bytes(&self) -> u64 {
        self.0.len() as u64 * SECTOR as u64
    }
}

fn sectors(range: &Range<u64>) -> Range<u64> {
    range.start / SECTOR as u64..range.end.div_ceil(SECTOR as u64)
}
