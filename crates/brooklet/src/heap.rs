//! The heap: which extents are free. Rebuilt at open from the extents in use, kept in memory only.
//!
//! Free space is indexed by offset, to join neighbours, and by size, for best fit: small needs go into small holes.
//! Invariants: free extents do not overlap or touch each other; both indexes hold the same extents; every extent is a
//! whole number of sectors and lies in `start..end`.

use std::collections::{BTreeMap, BTreeSet};

use brooklet_io::SECTOR;

/// A range of the volume, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Extent {
    pub offset: u64,
    pub len: u64,
}

impl Extent {
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }
}

#[derive(Debug)]
pub(crate) struct Heap {
    start: u64,
    end: u64,
    by_offset: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
}

impl Heap {
    /// A heap in `start..end` with these extents in use. `Err` names an extent that overlaps another or lies outside.
    pub fn new(start: u64, end: u64, used: impl IntoIterator<Item = Extent>) -> Result<Self, Extent> {
        let mut used: Vec<Extent> = used.into_iter().collect();
        used.sort();
        let mut heap = Self { start, end, by_offset: BTreeMap::new(), by_size: BTreeSet::new() };
        let mut at = start;
        for extent in used {
            let whole =
                extent.offset % SECTOR as u64 == 0 && extent.len % SECTOR as u64 == 0 && extent.len > 0;
            if !whole || extent.offset < at || extent.offset.checked_add(extent.len).is_none_or(|e| e > end) {
                return Err(extent);
            }
            heap.insert(Extent { offset: at, len: extent.offset - at });
            at = extent.end();
        }
        heap.insert(Extent { offset: at, len: end - at });
        Ok(heap)
    }

    fn insert(&mut self, extent: Extent) {
        if extent.len > 0 {
            self.by_offset.insert(extent.offset, extent.len);
            self.by_size.insert((extent.len, extent.offset));
        }
    }

    fn remove(&mut self, extent: Extent) {
        self.by_offset.remove(&extent.offset);
        self.by_size.remove(&(extent.len, extent.offset));
    }

    /// Takes the smallest free extent that holds `len` bytes; what it is too large stays free.
    pub fn take(&mut self, len: u64) -> Option<Extent> {
        assert!(
            len > 0 && len.is_multiple_of(SECTOR as u64),
            "an extent of {len} bytes is not whole sectors"
        );
        let &(size, offset) = self.by_size.range((len, 0)..).next()?;
        self.remove(Extent { offset, len: size });
        self.insert(Extent { offset: offset + len, len: size - len });
        Some(Extent { offset, len })
    }

    /// Where the heap must end for an extent of `len` bytes to be had at its end.
    pub fn end_for(&self, len: u64) -> u64 {
        self.end + len - self.tail_free().min(len)
    }

    /// Takes in the space up to `end`, which the volume now has.
    pub fn grow(&mut self, end: u64) {
        let old = std::mem::replace(&mut self.end, end);
        self.give(Extent { offset: old, len: end - old });
    }

    /// Gives an extent back and joins it with its neighbours.
    pub fn give(&mut self, mut extent: Extent) {
        if extent.len == 0 {
            return;
        }
        assert!(self.start <= extent.offset && extent.end() <= self.end, "{extent:?} is outside the heap");
        let before =
            self.by_offset.range(..extent.offset).next_back().map(|(&offset, &len)| Extent { offset, len });
        let after =
            self.by_offset.range(extent.offset..).next().map(|(&offset, &len)| Extent { offset, len });
        assert!(before.is_none_or(|b| b.end() <= extent.offset), "{extent:?} was free already");
        assert!(after.is_none_or(|a| extent.end() <= a.offset), "{extent:?} was free already");
        if let Some(before) = before.filter(|b| b.end() == extent.offset) {
            self.remove(before);
            extent = Extent { offset: before.offset, len: before.len + extent.len };
        }
        if let Some(after) = after.filter(|a| a.offset == extent.end()) {
            self.remove(after);
            extent.len += after.len;
        }
        self.insert(extent);
    }

    /// Drops free space at the end; returns the new end if there was any.
    pub fn shrink(&mut self) -> Option<u64> {
        let (&offset, &len) = self.by_offset.last_key_value()?;
        if offset + len != self.end {
            return None;
        }
        self.remove(Extent { offset, len });
        self.end = offset;
        Some(offset)
    }

    /// Free bytes at the very end.
    pub fn tail_free(&self) -> u64 {
        let last = self.by_offset.last_key_value().filter(|(o, l)| *o + *l == self.end);
        last.map_or(0, |(_, len)| *len)
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    pub fn free_bytes(&self) -> u64 {
        self.by_offset.values().sum()
    }

    /// Free bytes in extents of `least` bytes and more.
    pub fn usable(&self, least: u64) -> u64 {
        self.by_size.range((least, 0)..).map(|(len, _)| len).sum()
    }

    /// The largest free extent, in bytes.
    pub fn largest_free(&self) -> u64 {
        self.by_size.last().map_or(0, |(len, _)| *len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const S: u64 = SECTOR as u64;

    fn e(offset: u64, len: u64) -> Extent {
        Extent { offset: offset * S, len: len * S }
    }

    #[test]
    fn best_fit_and_coalescing() {
        let mut heap = Heap::new(0, 20 * S, [e(2, 1), e(5, 5), e(12, 8)]).unwrap();
        assert_eq!(heap.free_bytes(), 6 * S);
        assert_eq!(heap.take(2 * S), Some(e(0, 2)), "the first of the smallest that fit");
        assert_eq!(heap.take(2 * S), Some(e(3, 2)));
        assert_eq!(heap.take(3 * S), None);
        heap.give(e(2, 1));
        heap.give(e(3, 2));
        heap.give(e(0, 2));
        assert_eq!(heap.largest_free(), 5 * S);
        assert_eq!(heap.end_for(4 * S), 24 * S);
        heap.grow(24 * S);
        assert_eq!(heap.end_for(6 * S), 26 * S);
        assert_eq!((heap.shrink(), heap.shrink()), (Some(20 * S), None));
    }

    #[test]
    fn overlapping_extents_are_named() {
        assert_eq!(Heap::new(0, 10 * S, [e(1, 3), e(3, 2)]).unwrap_err(), e(3, 2));
        assert_eq!(Heap::new(0, 10 * S, [e(8, 3)]).unwrap_err(), e(8, 3));
        assert_eq!(Heap::new(2 * S, 10 * S, [e(1, 1)]).unwrap_err(), e(1, 1));
    }

    #[test]
    fn random_use_never_hands_out_a_byte_twice() {
        let mut rng = brooklet_io::Rng::new(5);
        let mut heap = Heap::new(0, 256 * S, []).unwrap();
        let mut used: Vec<Extent> = Vec::new();
        for _ in 0..20_000 {
            if rng.percent(50)
                && let Some(extent) = heap.take((1 + rng.below(12)) * S)
            {
                used.push(extent);
            } else if !used.is_empty() {
                heap.give(used.swap_remove(rng.below(used.len() as u64) as usize));
            }
            assert_eq!(heap.free_bytes() + used.iter().map(|e| e.len).sum::<u64>(), 256 * S);
        }
        let again = Heap::new(0, 256 * S, used.iter().copied()).unwrap();
        assert_eq!((again.by_offset, again.by_size), (heap.by_offset, heap.by_size));
    }
}
