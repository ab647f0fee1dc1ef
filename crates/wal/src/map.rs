//! The map from positions in the endless ring to offsets in the zone.
//!
//! Positions only grow, whatever the size of the ring. A [`Span`] maps the positions from its start
//! on. A resize begins a new span at the ring's head. While blocks of the old span are live, both
//! spans are in force: the ring is *settling*. A resize copies no data.
//!
//! Invariants:
//! - A position before `current.from` belongs to `before`, every other position to `current`; so
//!   each position has one place.
//! - While the ring settles, the new span is used only where no live block of the old span is: in
//!   one piece, from the start of the span up to [`Map::limit`]. The limit only moves forward, as
//!   the tail does.
//! - No block crosses the end of a lap or the position where a span begins.

use std::ops::Range;

use brooklet_io::SECTOR;

use crate::config::Zone;

/// A span: the positions from `from` on, until a newer span begins. `from` is at `offset`; later
/// positions follow it, and wrap around in `size` bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first position of the span.
    pub from: u64,
    /// Offset of that position in the ring, in bytes.
    pub offset: u64,
    /// Size of the ring in this span, in bytes.
    pub size: u64,
}

impl Span {
    fn at(&self, position: u64) -> u64 {
        (self.offset + (position - self.from)) % self.size
    }
}

/// The map of every live position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    /// The newest span, which maps the head of the ring.
    pub current: Span,
    /// The previous span, while blocks of that span are live.
    pub before: Option<Span>,
}

impl Map {
    /// Creates the map of a ring of `size` bytes that was never resized.
    pub fn new(size: u64) -> Self {
        Self { current: Span { from: 0, offset: 0, size }, before: None }
    }

    /// Returns whether the map has the place of `position`: it is not before all spans.
    pub fn maps(&self, position: u64) -> bool {
        position >= self.before.unwrap_or(self.current).from
    }

    fn span(&self, position: u64) -> &Span {
        match &self.before {
            Some(before) if position < self.current.from => before,
            _ => &self.current,
        }
    }

    /// Returns the size of the ring that `position` belongs to, in bytes.
    pub(crate) fn size_at(&self, position: u64) -> u64 {
        self.span(position).size
    }

    /// Returns the offset of `position` in the zone.
    pub(crate) fn at(&self, position: u64) -> u64 {
        self.span(position).at(position)
    }

    /// Returns the bytes from `position` to the end of its lap.
    pub(crate) fn lap_left(&self, position: u64) -> u64 {
        self.size_at(position) - self.at(position)
    }

    /// Returns the number of contiguous bytes from `position` on: to the end of its lap, or of its
    /// span.
    pub(crate) fn piece(&self, position: u64) -> u64 {
        let left = self.lap_left(position);
        if position < self.current.from { left.min(self.current.from - position) } else { left }
    }

    /// Returns the number of bytes of the zone that the spans use.
    pub fn reach(&self) -> u64 {
        self.before.map_or(0, |before| before.size).max(self.current.size)
    }

    /// Returns the first position that must not be written yet, with live blocks from `tail` on.
    pub(crate) fn limit(&self, tail: u64) -> u64 {
        let Span { from, offset, size } = self.current;
        let Some(old) = self.before.filter(|_| tail < from) else { return tail + size };
        let start = old.at(tail);
        let end = start + (from - tail);
        let live: [Range<u64>; 2] = [start..end.min(old.size), 0..end.saturating_sub(old.size)];
        if live.iter().any(|live| live.contains(&offset)) {
            return from;
        }
        let next = live.iter().filter(|live| !live.is_empty() && live.start > offset).map(|live| live.start);
        from + next.min().unwrap_or(size).min(size) - offset
    }

    /// Drops the previous span, once no block of that span is live.
    pub fn settle(&mut self, tail: u64) {
        self.before = self.before.filter(|_| tail < self.current.from);
    }

    /// Returns the map after a resize to `size` bytes, with live blocks in `tail..head`. The new
    /// span begins at the possible place with the most room; the room may be zero, see
    /// [`limit`](Self::limit).
    pub(crate) fn resized(&self, tail: u64, head: u64, size: u64) -> Map {
        assert!(self.before.is_none(), "a ring settles before it is resized again");
        let single = |from, offset| Map { current: Span { from, offset, size }, before: None };
        if tail == head {
            return single(head, 0);
        }
        let start = self.current.at(tail);
        if start + (head - tail) <= self.current.size.min(size) && start + (head - tail) < size {
            // The live blocks do not wrap around: they stay in place, and the ring continues in the
            // new size.
            return single(tail, start);
        }
        let begin = |offset| Map { current: Span { from: head, offset, size }, before: Some(self.current) };
        [0, self.current.at(head), self.current.size]
            .into_iter()
            .filter(|offset| *offset < size)
            .map(begin)
            .max_by_key(|map| map.limit(tail))
            .expect("a ring has a first byte")
    }

    /// Returns whether the numbers could be those of a ring with live blocks from `tail` on.
    pub fn is_sound(&self, tail: u64) -> bool {
        let sector = SECTOR as u64;
        let span = |span: &Span| {
            span.size > 0
                && span.offset < span.size
                && [span.from, span.offset, span.size].iter().all(|n| n % sector == 0 && *n < 1 << 62)
        };
        let Some(old) = self.before else { return span(&self.current) && tail >= self.current.from };
        let order = old.from <= tail && tail < self.current.from && self.current.from - tail <= old.size;
        span(&self.current) && span(&old) && order && self.limit(tail) > self.current.from
    }
}

/// The layout of a ring on its volume: its zone, its owner, and its map.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Offset of the ring's first byte on the volume.
    pub zone: u64,
    /// Identity of the store, as in [`Zone`].
    pub store: u64,
    /// The places of positions in the ring.
    pub map: Map,
}

impl Layout {
    /// Returns the offset of `position` on the volume.
    pub(crate) fn offset(&self, position: u64) -> u64 {
        self.zone + self.map.at(position)
    }
}

impl From<Zone> for Layout {
    fn from(Zone { offset, size, store }: Zone) -> Self {
        Self { zone: offset, store, map: Map::new(size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const S: u64 = SECTOR as u64;

    fn limit(map: &Map, tail: u64) -> u64 {
        (map.limit(tail) - map.current.from) / S
    }

    #[test]
    fn what_does_not_wrap_stays_where_it_is() {
        // Live: sectors 2..6 of 8.
        let map = Map::new(8 * S);
        for size in [7, 8, 20] {
            let resized = map.resized(10 * S, 14 * S, size * S);
            assert_eq!(resized.before, None);
            assert_eq!(resized.limit(10 * S), (10 + size) * S);
            assert!((10..14).all(|p| resized.at(p * S) == map.at(p * S)), "{size}");
            assert_eq!(resized.at(14 * S), 6 * S);
        }
        // It reaches to the new end exactly, or beyond: the new span begins before it.
        for size in [6, 5, 3] {
            let resized = map.resized(10 * S, 14 * S, size * S);
            assert_eq!((resized.current.offset, limit(&resized, 10 * S)), (0, 2));
        }
        assert_eq!(
            map.resized(14 * S, 14 * S, 3 * S),
            Map { current: Span { from: 14 * S, offset: 0, size: 3 * S }, before: None }
        );
    }

    #[test]
    fn what_wraps_leaves_the_longest_free_piece() {
        // Live: sectors 6..8 and 0..3 of 8; free: 3..6.
        let map = Map::new(8 * S);
        let resize = |size| map.resized(6 * S, 11 * S, size * S);
        assert_eq!((resize(20).current.offset / S, limit(&resize(20), 6 * S)), (8, 12), "the new end");
        assert_eq!((resize(9).current.offset / S, limit(&resize(9), 6 * S)), (3, 3), "the gap");
        assert_eq!((resize(5).current.offset / S, limit(&resize(5), 6 * S)), (3, 2), "the gap, cut short");
        assert_eq!(limit(&resize(3), 6 * S), 0, "all that would be left lives");
        // The limit moves as the tail does, over what was freed; once the old span is gone it is a
        // ring like any other.
        let mut map = resize(9);
        assert_eq!(limit(&map, 7 * S), 4);
        assert_eq!(limit(&map, 8 * S), 6, "nothing lives behind any more, and the lap ends");
        assert_eq!(map.reach(), 9 * S);
        map.settle(10 * S);
        assert!(map.before.is_some());
        map.settle(11 * S);
        assert_eq!((map.before, map.limit(12 * S)), (None, 21 * S));
    }

    /// Whatever is resized when: no two live positions lie in the same place.
    #[test]
    fn live_positions_never_share_a_place() {
        let mut rng = brooklet_io::Rng::new(5);
        for _ in 0..3000 {
            let mut map = Map::new((1 + rng.below(12)) * S);
            let (mut tail, mut head) = (0, 0);
            for _ in 0..30 {
                match rng.below(3) {
                    0 => tail += rng.below((head - tail) / S + 1) * S,
                    1 => head += rng.below((map.limit(tail) - head) / S + 1) * S,
                    _ if map.before.is_none() => {
                        let resized = map.resized(tail, head, (1 + rng.below(12)) * S);
                        // The ring refuses what leaves no room.
                        if resized.limit(tail) > head {
                            map = resized;
                        }
                    }
                    _ => {}
                }
                map.settle(tail);
                assert!(map.is_sound(tail), "{map:?} {tail}");
                let mut places: Vec<u64> = (tail / S..head / S).map(|p| map.at(p * S)).collect();
                assert!(places.iter().all(|at| *at < map.reach()));
                places.sort_unstable();
                places.dedup();
                assert_eq!(places.len() as u64, (head - tail) / S, "{map:?}, {tail}..{head}");
            }
        }
    }
}
