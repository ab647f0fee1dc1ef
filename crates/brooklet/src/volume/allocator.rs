//! The heap: manages free extents. It is rebuilt at opening from the extents in use, and is in
//! memory only.
//!
//! A free extent is *ready* if its space certainly exists. It is *loose* if other files may have
//! taken its space: after a hole was punched, and after opening, because the places of holes are
//! not stored. Only ready extents are handed out. A loose extent becomes ready once the volume has
//! secured it.
//!
//! Invariants: free extents do not overlap, and extents of the same kind do not touch each other;
//! every extent is a whole number of sectors and lies in `start..end`.

use brooklet_io::SECTOR;

use crate::volume::free_list::Free;

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
    ready: Free,
    unsecured: Free,
}

impl Heap {
    /// Creates a heap in `start..end` with these extents in use, and the rest loose. Returns an
    /// extent that overlaps another one or is outside as the error.
    pub fn new(start: u64, end: u64, used: impl IntoIterator<Item = Extent>) -> Result<Self, Extent> {
        let mut used: Vec<Extent> = used.into_iter().collect();
        used.sort();
        let mut heap = Self { start, end, ready: Free::default(), unsecured: Free::default() };
        let mut at = start;
        for extent in used {
            let whole =
                extent.offset % SECTOR as u64 == 0 && extent.len % SECTOR as u64 == 0 && extent.len > 0;
            if !whole || extent.offset < at || extent.offset.checked_add(extent.len).is_none_or(|e| e > end) {
                return Err(extent);
            }
            heap.unsecured.add(Extent { offset: at, len: extent.offset - at });
            at = extent.end();
        }
        heap.unsecured.add(Extent { offset: at, len: end - at });
        Ok(heap)
    }

    /// Takes `len` bytes of the smallest ready extent that holds them. The rest of that extent
    /// stays free.
    pub fn take(&mut self, len: u64) -> Option<Extent> {
        assert!(
            len > 0 && len.is_multiple_of(SECTOR as u64),
            "an extent of {len} bytes is not whole sectors"
        );
        let Extent { offset, .. } = self.ready.best(len)?;
        let taken = Extent { offset, len };
        self.ready.cut(taken);
        Some(taken)
    }

    /// Frees an extent. The space of the extent was in use, so the extent is ready.
    pub fn give(&mut self, extent: Extent) {
        if extent.len == 0 {
            return;
        }
        assert!(self.start <= extent.offset && extent.end() <= self.end, "{extent:?} is outside the heap");
        assert!(self.unsecured.touching(extent).is_none(), "{extent:?} was free already");
        self.ready.add(extent);
    }

    /// Adds the space up to `end`, which the volume now has.
    pub fn grow(&mut self, end: u64) {
        let old = std::mem::replace(&mut self.end, end);
        self.give(Extent { offset: old, len: end - old });
    }

    /// Removes free space at the end of the heap, down to `to` at most. Returns the new end; `None`
    /// if the end stays.
    pub fn shrink(&mut self, to: u64) -> Option<u64> {
        let new = to.max(self.end - self.tail_free());
        if new >= self.end {
            return None;
        }
        for free in [&mut self.ready, &mut self.unsecured] {
            while let Some(last) = free.last().filter(|last| last.end() > new) {
                let offset = last.offset.max(new);
                free.cut(Extent { offset, len: last.end() - offset });
            }
        }
        self.end = new;
        Some(new)
    }

    /// Returns the free bytes at the end of the heap.
    pub fn tail_free(&self) -> u64 {
        let mut at = self.end;
        let before = |at: u64| {
            let byte = Extent { offset: at.checked_sub(1)?, len: 1 };
            self.ready.touching(byte).or_else(|| self.unsecured.touching(byte))
        };
        while let Some(last) = before(at) {
            at = last.offset;
        }
        self.end - at
    }

    /// Returns the loose extents, by offset.
    pub fn unsecured(&self) -> impl Iterator<Item = Extent> {
        self.unsecured.iter()
    }

    /// Returns the ready extents, by offset.
    pub fn ready(&self) -> impl DoubleEndedIterator<Item = Extent> {
        self.ready.iter()
    }

    /// Makes a loose extent, or a part of one, ready.
    pub fn secured(&mut self, extent: Extent) {
        self.unsecured.cut(extent);
        self.ready.add(extent);
    }

    /// Makes a ready extent, or a part of one, loose.
    pub fn unsecure(&mut self, extent: Extent) {
        self.ready.cut(extent);
        self.unsecured.add(extent);
    }

    pub fn end(&self) -> u64 {
        self.end
    }

    /// Returns the bytes of the heap, free or not.
    pub fn bytes(&self) -> u64 {
        self.end - self.start
    }

    pub fn free_bytes(&self) -> u64 {
        self.ready.bytes() + self.unsecured.bytes()
    }

    /// Returns the bytes that can certainly be written into ready extents of at least `least`
    /// bytes, if each extent may lose `waste` bytes.
    pub fn usable(&self, least: u64, waste: u64) -> u64 {
        self.ready.lens().take_while(|len| *len >= least).map(|len| len.saturating_sub(waste)).sum()
    }

    /// Returns the size of the largest ready extent, in bytes.
    pub fn largest_ready(&self) -> u64 {
        self.ready.lens().next().unwrap_or(0)
    }

    /// Returns the size of the largest free extent, in bytes.
    pub fn largest_free(&self) -> u64 {
        self.largest_ready().max(self.unsecured.lens().next().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const S: u64 = SECTOR as u64;

    fn e(offset: u64, len: u64) -> Extent {
        Extent { offset: offset * S, len: len * S }
    }

    /// Creates a heap whose free space is all ready.
    fn ready(start: u64, end: u64, used: &[Extent]) -> Heap {
        let mut heap = Heap::new(start, end, used.iter().copied()).unwrap();
        let unsecured: Vec<_> = heap.unsecured().collect();
        unsecured.into_iter().for_each(|extent| heap.secured(extent));
        heap
    }

    #[test]
    fn best_fit_and_coalescing() {
        let mut heap = ready(0, 20 * S, &[e(2, 1), e(5, 5), e(12, 8)]);
        assert_eq!((heap.free_bytes(), heap.bytes()), (6 * S, 20 * S));
        assert_eq!(heap.take(2 * S), Some(e(0, 2)), "the first of the smallest that fit");
        assert_eq!(heap.take(2 * S), Some(e(3, 2)));
        assert_eq!(heap.take(3 * S), None);
        heap.give(e(2, 1));
        heap.give(e(3, 2));
        heap.give(e(0, 2));
        assert_eq!(heap.largest_free(), 5 * S);
        heap.grow(24 * S);
        assert_eq!((heap.largest_ready(), heap.tail_free()), (5 * S, 4 * S));
        assert_eq!((heap.shrink(22 * S), heap.tail_free()), (Some(22 * S), 2 * S));
        assert_eq!((heap.shrink(0), heap.shrink(0)), (Some(20 * S), None));
    }

    #[test]
    fn what_is_loose_is_not_handed_out() {
        let mut heap = Heap::new(0, 20 * S, [e(8, 2)]).unwrap();
        assert_eq!((heap.take(S), heap.free_bytes(), heap.ready.bytes()), (None, 18 * S, 0));
        heap.secured(e(2, 4));
        assert_eq!((heap.take(5 * S), heap.take(4 * S)), (None, Some(e(2, 4))));
        heap.give(e(2, 4));
        heap.secured(e(15, 5));
        assert_eq!((heap.usable(5 * S, S), heap.usable(S, S), heap.usable(S, 5 * S)), (4 * S, 7 * S, 0));
        heap.unsecure(e(16, 2));
        assert_eq!(heap.unsecured().collect::<Vec<_>>(), [e(0, 2), e(6, 2), e(10, 5), e(16, 2)]);
        assert_eq!((heap.tail_free(), heap.largest_free()), (10 * S, 5 * S));
        assert_eq!((heap.shrink(11 * S), heap.free_bytes()), (Some(11 * S), 9 * S));
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
        let mut heap = ready(0, 256 * S, &[]);
        let mut used: Vec<Extent> = Vec::new();
        for _ in 0..20_000 {
            match rng.below(10) {
                0 => {
                    let unsecured: Vec<_> = heap.unsecured().collect();
                    unsecured.into_iter().for_each(|extent| heap.secured(extent));
                }
                1 => {
                    let ready = heap.ready().next();
                    ready.into_iter().for_each(|extent| heap.unsecure(extent));
                }
                2..6 => used.extend(heap.take((1 + rng.below(12)) * S)),
                _ if used.is_empty() => {}
                _ => heap.give(used.swap_remove(rng.below(used.len() as u64) as usize)),
            }
            assert_eq!(heap.free_bytes() + used.iter().map(|e| e.len).sum::<u64>(), 256 * S);
        }
        let mut again = ready(0, 256 * S, &used);
        let unsecured: Vec<_> = heap.unsecured().collect();
        unsecured.into_iter().for_each(|extent| heap.secured(extent));
        assert_eq!(again.ready, heap.ready);
        assert_eq!(again.shrink(0), heap.shrink(0));
    }
}
