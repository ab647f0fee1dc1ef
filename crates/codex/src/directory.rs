//! The directory of a filter, prepared for look-ups, and the filter pieces that are in memory.
//!
//! A program looks up a key in many files, and most files do not hold it. So a filter look-up takes
//! one shared lock, and finds the part by comparing numbers: the common prefix of the first keys is
//! compared once, and the next eight bytes are kept as a number. Whole keys are compared only if
//! these numbers are equal.
//!
//! The cache decides which pieces stay: it counts the directory and each part as an entry, and
//! drops them here.
//!
//! Lock order: the cache's shard, then this lock. A holder of this lock takes no other.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::block::{Block, Spot};
use crate::class::{Class, stays};
use crate::error::{Result, damaged};
use crate::filter::Filter;
use crate::format::Ptr;

/// The location of the parts of a filter, and their first keys.
pub(crate) struct Directory {
    /// The common prefix of all first keys.
    common: Box<[u8]>,
    /// The eight bytes after that prefix, of each first key.
    heads: Box<[u64]>,
    firsts: Box<[Box<[u8]>]>,
    parts: Box<[Ptr]>,
    /// The byte by which parts must end.
    limit: u64,
}

impl Directory {
    /// Creates the directory from its block.
    pub fn new(block: Block) -> Result<Self> {
        let (limit, mut spot) = (block.at(), Spot::default());
        let (mut firsts, mut parts) = (Vec::<Box<[u8]>>::new(), Vec::new());
        spot.enter(block);
        while spot.step()? {
            if firsts.last().is_some_and(|last| **last >= *spot.key()) {
                return damaged(limit, "the parts of the filter are not in order");
            }
            firsts.push(spot.key().into());
            parts.push(spot.ptr()?);
        }
        Ok(Self::of(firsts, parts, limit))
    }

    /// Creates the directory of a filter with one part for all keys.
    pub fn of_one(part: Ptr, limit: u64) -> Self {
        Self::of(vec![Box::default()], vec![part], limit)
    }

    fn of(firsts: Vec<Box<[u8]>>, parts: Vec<Ptr>, limit: u64) -> Self {
        let ends = firsts.first().zip(firsts.last());
        let common = ends.map_or(0, |(a, b)| a.iter().zip(b).take_while(|(a, b)| a == b).count());
        Self {
            common: ends.map_or_else(Box::default, |(first, _)| first[..common].into()),
            heads: firsts.iter().map(|first| head(&first[common..])).collect(),
            firsts: firsts.into(),
            parts: parts.into(),
            limit,
        }
    }

    /// Returns the index of a key's part; `None` if all parts begin after the key.
    fn find(&self, key: &[u8]) -> Option<usize> {
        let Some(tail) = key.strip_prefix(&*self.common) else {
            return (*key > *self.common).then(|| self.parts.len().checked_sub(1)).flatten();
        };
        let head = head(tail);
        let mut end = self.heads.partition_point(|&other| other <= head);
        if end > 0 && self.heads[end - 1] == head {
            let start = self.heads[..end].partition_point(|&other| other < head);
            end = start + self.firsts[start..end].partition_point(|first| **first <= *key);
        }
        end.checked_sub(1)
    }

    /// Returns the index of a key's part, the pointer to it, and the byte by which it must end.
    pub fn part_of(&self, key: &[u8]) -> Option<(usize, Ptr, u64)> {
        self.find(key).map(|index| (index, self.parts[index], self.limit))
    }

    /// Returns the bytes of memory that the directory holds.
    pub fn memory(&self) -> usize {
        let part = size_of::<u64>() + size_of::<Box<[u8]>>() + size_of::<Ptr>() + size_of::<Part>();
        let firsts: usize = self.firsts.iter().map(|first| first.len()).sum();
        self.common.len() + firsts + self.parts.len() * part
    }
}

/// Returns the first eight bytes of a key as a number. The numbers of sorted keys are sorted.
fn head(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

/// The parts of a reader's filter that are in memory.
#[derive(Default)]
pub(crate) struct Held {
    state: RwLock<State>,
}

#[derive(Default)]
struct State {
    directory: Option<Directory>,
    /// Remaining laps of the directory in the cache.
    laps: AtomicU8,
    /// All parts of the directory, once a directory was read.
    parts: Vec<Part>,
}

#[derive(Default)]
struct Part {
    filter: Option<Filter>,
    laps: AtomicU8,
}

/// A piece of a filter that may be in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Directory,
    Part(usize),
}

/// The answer that is possible without a read.
pub(crate) enum Answer<T> {
    /// The answer of the key's part.
    Known(T),
    /// No part begins at or before the key, so no item has this key.
    Outside,
    /// The directory must be read first.
    NoDirectory,
    /// This part must be read first: its index, its pointer, and the byte by which it must end.
    NoPart(usize, Ptr, u64),
}

impl Held {
    /// Asks the part of a key.
    pub fn ask<T>(&self, key: &[u8], ask: impl FnOnce(&Filter) -> T) -> Answer<T> {
        let state = self.read();
        let Some(directory) = &state.directory else { return Answer::NoDirectory };
        stays(&state.laps, Class::Directory);
        let Some(index) = directory.find(key) else { return Answer::Outside };
        let part = &state.parts[index];
        let Some(filter) = &part.filter else {
            return Answer::NoPart(index, directory.parts[index], directory.limit);
        };
        stays(&part.laps, Class::Filter);
        Answer::Known(ask(filter))
    }

    pub fn put_directory(&self, directory: Directory) {
        let mut state = self.write();
        let parts = directory.parts.len();
        state.parts.resize_with(parts, Part::default);
        state.directory = Some(directory);
        *state.laps.get_mut() = Class::Directory.laps();
    }

    pub fn put_part(&self, index: usize, filter: Filter) {
        let mut state = self.write();
        if state.parts.len() <= index {
            // The directory was dropped meanwhile.
            state.parts.resize_with(index + 1, Part::default);
        }
        state.parts[index] = Part { filter: Some(filter), laps: AtomicU8::new(Class::Filter.laps()) };
    }

    /// Drops a piece.
    pub fn drop_piece(&self, piece: Piece) {
        let mut state = self.write();
        match piece {
            Piece::Directory => state.directory = None,
            Piece::Part(index) => state.parts[index].filter = None,
        }
    }

    /// Takes a lap from a piece. Returns `false` if the piece had no lap left.
    pub fn spend_lap(&self, piece: Piece) -> bool {
        let state = self.read();
        let laps = match piece {
            Piece::Directory => &state.laps,
            Piece::Part(index) => &state.parts[index].laps,
        };
        let left = laps.load(Ordering::Relaxed);
        laps.store(left.saturating_sub(1), Ordering::Relaxed);
        left > 0
    }

    fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.read();
        let parts = state.parts.iter().filter(|part| part.filter.is_some()).count();
        write!(f, "Held({parts} of {} parts)", state.parts.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn directory(firsts: &[Vec<u8>]) -> Directory {
        let ptr = |index| Ptr { offset: index as u64, len: 1, sum: 1 };
        let parts = (0..firsts.len()).map(ptr).collect();
        Directory::of(firsts.iter().map(|first| first.as_slice().into()).collect(), parts, 0)
    }

    proptest! {
        /// Keys of few letters have long common prefixes, are prefixes of other keys, and are equal
        /// in eight bytes and more.
        #[test]
        fn the_part_of_a_key_is_the_last_that_begins_at_or_before_it(
            common in proptest::collection::vec(0u8..2, 0..12),
            firsts in proptest::collection::btree_set(proptest::collection::vec(0u8..2, 0..12), 1..40),
            keys in proptest::collection::vec(proptest::collection::vec(0u8..2, 0..24), 40),
        ) {
            let whole = |tail: &Vec<u8>| [common.as_slice(), tail].concat();
            let firsts: Vec<Vec<u8>> = firsts.iter().map(whole).collect();
            let directory = directory(&firsts);
            for key in keys.iter().cloned().chain(keys.iter().map(whole)).chain(firsts.iter().cloned()) {
                let expected = firsts.iter().rposition(|first| *first <= key);
                prop_assert_eq!(directory.find(&key), expected, "{:?} in {:?}", key, firsts);
            }
        }
    }

    #[test]
    fn parts_out_of_order_are_refused() {
        let mut builder = crate::block::BlockBuilder::default();
        for key in [b"b", b"a"] {
            builder.add(key, &Ptr { offset: 1, len: 1, sum: 1 }.encode());
        }
        let block = Block::new(builder.finish().to_vec().into(), 9).unwrap();
        assert!(matches!(Directory::new(block), Err(crate::Error::Damaged { offset: 9, .. })));
    }
}
