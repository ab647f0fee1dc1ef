//! Long values that nobody needs any more: their memory is freed little by little.

use std::collections::{VecDeque, btree_map};

use bytes::Bytes;

use super::{Keyspace, Value};

/// Fields of a hash from which on its memory takes long to free.
const LONG: usize = 4_000;
/// Most fields that wait to be freed.
const MOST: usize = 1 << 20;

/// The fields of hashes that wait to be freed.
#[derive(Default)]
pub struct Discarded(VecDeque<btree_map::IntoIter<Bytes, Bytes>>);

impl Discarded {
    /// Frees a value: later, if that takes long.
    pub fn add(&mut self, value: Value) {
        let Value::Hash(fields) = value else { return };
        if fields.len() < LONG {
            return;
        }
        self.0.push_back(fields.into_iter());
        let excess = self.len().saturating_sub(MOST);
        self.free_some(excess);
    }

    fn len(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }

    fn free_some(&mut self, mut most: usize) {
        while most > 0
            && let Some(first) = self.0.front_mut()
        {
            most -= first.by_ref().take(most).count();
            if first.len() == 0 {
                self.0.pop_front();
            }
        }
    }
}

impl Keyspace {
    /// Returns the number of fields that nobody needs any more, and whose memory is not free yet.
    pub fn discarded(&self) -> usize {
        self.cache.discarded.len()
    }

    /// Frees the memory of up to `most` fields that nobody needs any more.
    pub fn free_some(&mut self, most: usize) {
        self.cache.discarded.free_some(most);
    }
}
