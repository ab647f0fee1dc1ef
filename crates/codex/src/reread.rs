//! The data blocks that look-ups read lately and that the cache does not keep.
//!
//! A look-up in a file of many blocks seldom needs a block that an earlier look-up read. If the
//! cache kept each block after its first read, the blocks would drive out the values that look-ups
//! need again. So a full cache keeps a block if a look-up reads the block again while this list
//! still has it.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a usual block. The list has one place for each block that the cache could hold.
const BLOCK: usize = 8 << 10;
const LEAST: usize = 64;
const MOST: usize = 1 << 16;

/// The hashes of the blocks. The hash of a block has one place. The next block with this place
/// replaces it.
#[derive(Debug)]
pub(crate) struct Reread {
    places: Box<[AtomicU64]>,
}

impl Reread {
    /// Creates an empty list for a cache of `budget` bytes.
    pub fn new(budget: usize) -> Self {
        let places = (budget / BLOCK).clamp(LEAST, MOST).next_power_of_two();
        Self { places: (0..places).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Records a read of the block with this hash. Returns whether the list had the block. If two
    /// blocks have the same hash, the answer may be wrong: the cache then keeps a block one read
    /// too early.
    pub fn record(&self, hash: u64) -> bool {
        let place = &self.places[hash as usize & (self.places.len() - 1)];
        place.swap(hash, Ordering::Relaxed) == hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(block: u64) -> u64 {
        block.wrapping_mul(0x9e37_79b9_7f4a_7c15).swap_bytes()
    }

    #[test]
    fn a_block_counts_as_read_again_until_others_take_its_place() {
        let list = Reread::new(8 << 20);
        let blocks: Vec<u64> = (1..=100).map(hash).collect();
        assert!(blocks.iter().all(|block| !list.record(*block)));
        let again = blocks.iter().filter(|block| list.record(**block)).count();
        assert!(again > 90, "{again} of 100 blocks in 1,024 places");
        let others = (1_000..101_000).filter(|block| list.record(hash(*block))).count();
        assert_eq!(others, 0);
        assert!(blocks.iter().all(|block| !list.record(*block)));
    }
}
