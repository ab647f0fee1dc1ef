//! The positions of blocks: the ring's arithmetic, and nothing else.
//!
//! Positions count bytes in an endless ring and only grow; the [`Map`] locates each position in the
//! zone. Invariants: `tail <= head <= map.limit(tail)`; all are multiples of the sector size; the
//! bytes in `tail..head` are never allocated again before a trim.

use brooklet_io::SECTOR;

use crate::map::Map;

/// The position of the next block, and the state that this block continues: the whole state of the
/// ring, as a superblock stores it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Position in the endless ring, in bytes.
    pub position: u64,
    /// Number of the next block.
    pub seq: u64,
    /// Log position of the next payload byte.
    pub lsn: u64,
    /// Header checksum of the block before.
    pub chain: u64,
}

/// The space of the ring.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    map: Map,
    tail: u64,
    head: u64,
}

impl Ring {
    /// Creates a ring whose live blocks are in `tail..head`.
    pub fn new(map: Map, tail: u64, head: u64) -> Self {
        let size = map.current.size;
        assert!(
            size > 0 && size.is_multiple_of(SECTOR as u64),
            "a ring of {size} bytes is not whole sectors"
        );
        assert!(tail <= head && head <= map.limit(tail), "live blocks {tail}..{head} do not fit in {size}");
        Self { map, tail, head }
    }

    /// Returns the size of the ring, in bytes.
    pub fn size(&self) -> u64 {
        self.map.current.size
    }

    /// Returns the map of positions.
    pub fn map(&self) -> &Map {
        &self.map
    }

    /// Returns the least position at which the oldest live block may start.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Returns the least position at which the next block may start.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// Returns the bytes of live blocks, and of gaps at the end of a lap between them.
    pub fn used(&self) -> u64 {
        self.head - self.tail
    }

    /// Returns whether a block of up to `len` bytes fits behind `waiting` bytes of blocks that are
    /// not placed yet, leaving `reserve` bytes free.
    ///
    /// Blocks shrink when they are compressed, and skip the end of a lap if they do not fit there.
    /// So the answer counts one lap end of the largest block's size.
    pub fn has_room(&self, waiting: u64, len: u64, largest: u64, reserve: u64) -> bool {
        let need = waiting + len;
        let gap = if need >= self.map.lap_left(self.head) { largest.max(len) } else { 0 };
        self.head + need + gap + reserve <= self.map.limit(self.tail)
    }

    /// Takes `len` bytes for a block and returns the position of the first byte; `None` if the ring
    /// is full.
    pub fn place(&mut self, len: u64) -> Option<u64> {
        let left = self.map.lap_left(self.head);
        let start = if len > left { self.head + left } else { self.head };
        if start + len > self.map.limit(self.tail) {
            return None;
        }
        self.head = start + len;
        assert!(len <= self.map.piece(start), "a block straddles the end of the ring");
        Some(start)
    }

    /// Frees everything before `position`.
    pub fn trim(&mut self, position: u64) {
        assert!(
            self.tail <= position && position <= self.head,
            "trim to {position} is outside {}..{}",
            self.tail,
            self.head
        );
        self.tail = position;
        self.map.settle(position);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    const S: u64 = SECTOR as u64;

    #[test]
    fn a_block_that_does_not_fit_starts_the_next_lap() {
        let mut ring = Ring::new(Map::new(8 * S), 0, 0);
        assert_eq!(ring.place(6 * S), Some(0));
        assert_eq!(ring.place(3 * S), None, "the next lap still holds the first block");
        ring.trim(6 * S);
        assert_eq!(ring.place(3 * S), Some(8 * S));
        assert_eq!((ring.head(), ring.used()), (11 * S, 5 * S));
    }

    #[test]
    fn room_promised_is_room_had() {
        let mut rng = brooklet_io::Rng::new(1);
        let mut ring = Ring::new(Map::new(16 * S), 0, 0);
        let mut ends = std::collections::VecDeque::new();
        for _ in 0..20_000 {
            let blocks: Vec<u64> = (0..1 + rng.below(3)).map(|_| S * (1 + rng.below(4))).collect();
            let (last, before) = blocks.split_last().expect("at least one");
            if ring.has_room(before.iter().sum(), *last, 4 * S, 0) {
                for len in blocks {
                    // A block may shrink when it is compressed.
                    let len = S * (1 + rng.below(len / S));
                    ring.place(len).expect("promised");
                    ends.push_back(ring.head());
                }
            } else if let Some(end) = ends.pop_front() {
                ring.trim(end);
            }
        }
        assert!(ring.head() > 1000 * 16 * S, "the ring went round");
    }
}
