//! The cost of reading logs that are in several runs, as the bytes of a merge that cost as much.
//!
//! A read of a log looks at one piece in each run that has entries of the log. A merge would have
//! left one piece. When the looks at further pieces have cost as much as a merge, the merge pays:
//! the store then spends at most twice as much as if it had known the reads beforehand.

use crate::sync::atomic::{AtomicU64, Ordering};

/// The bytes of a merge that cost as much as the look at one further piece whose block must be
/// read: a read, a checksum, decompression. With a block in the page cache, this takes some 10 µs
/// of processor time, in which a merge processes 1 KiB to 2 KiB. A read of the device takes 50 µs
/// and more. The store does not know which of both a read was.
const BLOCK: u64 = 4096;
/// The same for a piece in the cache: some 1.2 µs.
const CACHED: u64 = 256;

pub(crate) struct ReadCost {
    /// Bytes that the reads since the last merge were worth.
    spent: AtomicU64,
    /// The bytes at which a merge is due. Maintenance sleeps until then.
    wake_at: AtomicU64,
}

impl Default for ReadCost {
    fn default() -> Self {
        Self { spent: AtomicU64::new(0), wake_at: AtomicU64::new(u64::MAX) }
    }
}

impl ReadCost {
    /// Counts a look at the `pieces` pieces of a log, for which `blocks` blocks had to be read.
    /// Returns whether a merge is due now.
    pub fn read(&self, pieces: u64, blocks: u64) -> bool {
        let further = pieces.saturating_sub(1);
        if further == 0 {
            return false;
        }
        // A merge would not save the first read.
        let blocks = blocks.saturating_sub(1).min(further);
        let cost = blocks * BLOCK + (further - blocks) * CACHED;
        let spent = self.spent.fetch_add(cost, Ordering::Relaxed) + cost;
        let wake_at = self.wake_at.load(Ordering::Relaxed);
        spent >= wake_at && self.wake_at.swap(u64::MAX, Ordering::Relaxed) != u64::MAX
    }

    /// Returns the bytes that the reads since the last merge were worth.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// Sets the bytes at which a merge is due; `None`: no merge would help.
    pub fn wake_at(&self, bytes: Option<u64>) {
        self.wake_at.store(bytes.unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Settles the cost of reads by a merge of `bytes` bytes. If all mergeable runs together have
    /// `all` bytes, more than that is forgotten: it was spent on pieces that no merge could join.
    pub fn settle(&self, bytes: u64, all: u64) {
        // Reads that are counted meanwhile may get lost. A later merge then comes a little later.
        let spent = self.spent().min(all);
        self.spent.store(spent.saturating_sub(bytes), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_pieces_cost_and_merges_settle_the_cost() {
        let cost = ReadCost::default();
        cost.wake_at(Some(3 * BLOCK));
        assert!(!cost.read(0, 0) && !cost.read(1, 1) && cost.spent() == 0, "one piece is the least");
        assert!(!cost.read(3, 2) && cost.spent() == BLOCK + CACHED);
        assert!(cost.read(3, 3) && cost.spent() == 3 * BLOCK + CACHED, "now a merge is due");
        assert!(!cost.read(9, 9), "maintenance is woken once");
        cost.settle(BLOCK, 4 * BLOCK);
        assert_eq!(cost.spent(), 3 * BLOCK, "beyond the bytes of all runs, nothing counts");
        cost.settle(9 * BLOCK, 4 * BLOCK);
        assert_eq!(cost.spent(), 0);
        cost.wake_at(None);
        assert!(!cost.read(1 << 20, 1 << 20));
    }
}
