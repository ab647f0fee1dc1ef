//! Walks over keys, a portion at a time.

use std::collections::BTreeMap;

use bytes::Bytes;

/// Most walks that can be continued. The walk that rested longest is dropped first.
const MOST: usize = 4096;

/// The walks in progress: of each, the last key. Nothing else is kept between two portions, so a
/// walk that is begun and abandoned costs the memory of a key, for some time.
#[derive(Default)]
pub struct Scans {
    last: u64,
    at: BTreeMap<u64, Bytes>,
}

impl Scans {
    /// Takes the last key of a walk.
    pub fn take(&mut self, cursor: u64) -> Option<Bytes> {
        self.at.remove(&cursor)
    }

    /// Stores the last key of a walk until the walk is continued; returns the cursor.
    pub fn leave(&mut self, key: &[u8]) -> u64 {
        self.last += 1;
        self.at.insert(self.last, Bytes::copy_from_slice(key));
        if self.at.len() > MOST {
            self.at.pop_first();
        }
        self.last
    }
}
