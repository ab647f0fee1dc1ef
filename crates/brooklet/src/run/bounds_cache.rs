//! The bounds cache: the bounds of logs that were recently committed to and have left memory. The
//! next commit on such a log, or the next request for its bounds, needs no look-up in the runs.
//!
//! A checkpoint moves logs from memory into a run, and their bounds into this table, a few at a
//! time (`maintenance/fill_bounds_cache.rs`). The table holds nothing else: logs without commits
//! take no space.
//!
//! Invariants:
//! 1. The table and the runs agree on a log's bounds, unless the frozen memtable holds newer
//!    bounds. Memtables are therefore asked first. Before a memtable is released, each of its logs
//!    is set here to the memtable's bounds, or removed here. Merging runs, and freeing dead runs,
//!    changes no bounds.
//! 2. The table takes no more bytes than its budget. When it is full, it evicts the logs that were
//!    written to least recently.
//! 3. Setting one log takes a bounded time, however many there are: the table grows a shard at a
//!    time.
//!
//! A log takes 16 bytes:
//!
//! ```text
//! bits  0 ..  24  the first number
//! bits 24 ..  48  the next number, plus 1: so no place that is taken is all zero
//! bits 48 .. 128  80 bits of the key's hash; by the upper 32 of them it finds its set of 16 places
//! ```
//!
//! Logs with larger numbers are not stored. Other 32 bits of the hash choose the shard. The table
//! does not hold keys: decision 12 explains why two logs are not confused.

use brooklet_io::seeded::bug;

use crate::model::Bounds;
use crate::model::keyed_hash::Secret;

/// Number of places of a set. A log may be in any place of its set.
const WAYS: usize = 16;
/// Bytes of a set.
const SET: usize = WAYS * size_of::<Place>();
/// Maximum bytes of a shard, and therefore of one move when a shard grows.
const SHARD: usize = 64 << 10;
const NUMBER: u32 = 24;
const EMPTY: Place = 0;

/// A log, or [`EMPTY`].
type Place = u128;

pub(crate) struct BoundsCache {
    secret: Secret,
    shards: Box<[Shard]>,
    /// Maximum number of sets of a shard.
    most_sets: usize,
    bytes: usize,
    /// Number of look-ups that found their log.
    pub hits: u64,
}

#[derive(Default)]
struct Shard {
    /// In each set, the log that was set last is first.
    sets: Vec<[Place; WAYS]>,
    logs: usize,
}

impl BoundsCache {
    /// Creates an empty table that takes at most `budget` bytes. A person who chooses log keys must
    /// not know the secret.
    pub fn new(secret: Secret, budget: usize) -> Self {
        let shards = (budget / SHARD).max(1);
        Self {
            secret,
            shards: (0..shards).map(|_| Shard::default()).collect(),
            most_sets: budget / shards / SET,
            bytes: 0,
            hits: 0,
        }
    }

    /// Returns the memory of the table now, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bounds of a log, if the table has them.
    pub fn get(&mut self, key: &[u8]) -> Option<Bounds> {
        if self.bytes == 0 {
            return None;
        }
        let (shard, tag) = self.find(self.secret.hash(key));
        let found = self.shards[shard].get(tag);
        self.hits += u64::from(found.is_some());
        found.map(bounds)
    }

    /// Stores the current bounds of a log that keeps all of its entries. Removes the log if it does
    /// not exist, or if its numbers are too large. `hash` is the hash of the log's key with the
    /// table's secret.
    pub fn set(&mut self, hash: u128, bounds: Option<Bounds>) {
        let (shard, tag) = self.find(hash);
        let shard = &mut self.shards[shard];
        match bounds.and_then(|bounds| place(tag, bounds)) {
            Some(place) => self.bytes += shard.keep(place, self.most_sets) * SET,
            None if bug("remembers-after-delete") => {}
            None => shard.forget(tag),
        }
    }

    /// Returns the secret that keys are hashed with, so that a caller can hash many keys
    /// beforehand.
    pub fn secret(&self) -> Secret {
        self.secret
    }

    /// Returns the shard of a log, and the log's tag there.
    fn find(&self, hash: u128) -> (usize, u128) {
        (scale((hash >> 96) as u32, self.shards.len()), hash & ((1 << 80) - 1))
    }
}

/// Maps a uniformly distributed number to an index below `count`.
fn scale(number: u32, count: usize) -> usize {
    ((u64::from(number) * count as u64) >> 32) as usize
}

fn tag_of(place: Place) -> u128 {
    place >> (2 * NUMBER)
}

fn place(tag: u128, Bounds { first, next }: Bounds) -> Option<Place> {
    let fits = next < (1 << NUMBER) - 1;
    fits.then(|| tag << (2 * NUMBER) | u128::from(next + 1) << NUMBER | u128::from(first))
}

fn bounds(place: Place) -> Bounds {
    let number = |place: Place| place as u64 & ((1 << NUMBER) - 1);
    Bounds { first: number(place), next: number(place >> NUMBER) - 1 }
}

impl Shard {
    /// Returns the set of a log; `None` if the shard has no sets yet.
    fn set(&mut self, tag: u128) -> Option<&mut [Place; WAYS]> {
        let set = scale((tag >> 48) as u32, self.sets.len());
        self.sets.get_mut(set)
    }

    fn get(&mut self, tag: u128) -> Option<Place> {
        self.set(tag)?.iter().copied().find(|&place| place != EMPTY && tag_of(place) == tag)
    }

    /// Puts a log first in its set. Returns the number of sets by which the shard grew.
    fn keep(&mut self, place: Place, most_sets: usize) -> usize {
        // Grow only if the log's set is full and the shard is a quarter full. A full set in an
        // emptier shard is a coincidence, and not worth twice the memory.
        let is_short = |shard: &mut Self| {
            let crowded = shard.logs >= shard.sets.len() * WAYS / 4;
            crowded && shard.set(tag_of(place)).is_none_or(|set| set[WAYS - 1] != EMPTY)
        };
        let mut grown = 0;
        if self.sets.len() < most_sets && is_short(self) {
            grown = self.sets.len().max(1).min(most_sets - self.sets.len());
            self.grow(grown);
        }
        self.insert(place);
        grown
    }

    fn insert(&mut self, place: Place) {
        let Some(set) = self.set(tag_of(place)) else { return };
        let known = |&old: &Place| old == EMPTY || tag_of(old) == tag_of(place);
        // If other logs have all places, the last log is evicted.
        let at = set.iter().position(known).unwrap_or(WAYS - 1);
        let is_new = set[at] == EMPTY;
        set[..=at].rotate_right(1);
        set[0] = place;
        self.logs += usize::from(is_new);
    }

    fn forget(&mut self, tag: u128) {
        let Some(set) = self.set(tag) else { return };
        let Some(at) = set.iter().position(|&place| place != EMPTY && tag_of(place) == tag) else { return };
        set[at..].rotate_left(1);
        set[WAYS - 1] = EMPTY;
        self.logs -= 1;
    }

    fn grow(&mut self, by: usize) {
        let sets = vec![[EMPTY; WAYS]; self.sets.len() + by];
        self.logs = 0;
        for set in std::mem::replace(&mut self.sets, sets) {
            // The log that was set last is inserted last, so that it is first again.
            set.into_iter().rev().filter(|&place| place != EMPTY).for_each(|place| self.insert(place));
        }
    }
}

#[cfg(test)]
mod tests;
