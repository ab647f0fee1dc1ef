//! Options that only tests set.

use crate::options::Options;

impl Options {
    /// Sets the size of the ring of a new store at first: whole sectors, at least 64 KiB.
    #[doc(hidden)]
    pub fn with_first_ring(mut self, bytes: u64) -> Self {
        self.first_ring = bytes;
        self
    }

    /// Sets the number of operations from which on a commit is a long one, which the store
    /// prepares.
    #[doc(hidden)]
    pub fn with_long_commits(mut self, ops: usize) -> Self {
        self.long = ops;
        self
    }
}
