//! The logs of a memory space, by key and by the time of their last write.

use std::collections::VecDeque;

use twox_hash::XxHash3_64;

use crate::memory_space::log::Log;
use crate::memtable::chunks::Chunks;
use crate::memtable::index::Index;
use crate::model::key::Key;
pub(super) use crate::model::pending::Slot;

/// Bytes of memory of a log without a long key and without its entries.
pub(super) const COST: usize = size_of::<Place>() + 16;

/// The share of the logs, one eighth plus a few logs, that is sorted at once to find the oldest
/// logs.
const SHARE: usize = 8;

/// A log and its metadata.
#[derive(Debug)]
pub(super) struct Place {
    pub key: Key,
    pub log: Log,
    /// The generations of the memory space in which the log was last changed, and in which it was
    /// created.
    pub changed: u32,
    pub created: u32,
    stamp: u64,
}

#[derive(Debug)]
pub(super) struct Places {
    seed: u64,
    index: Index,
    /// The last place has a log.
    places: Chunks<Place>,
    /// Slots that were freed. Some of them may be behind the last place, or in use again.
    free: Chunks<Slot>,
    stamp: u64,
    /// The least recently written logs at the last sort, oldest first, with their stamps at that
    /// time. A log that has another stamp now was written since.
    oldest: VecDeque<(u64, Slot)>,
}

impl Places {
    /// Creates a set without logs. `seed` makes the positions of keys unpredictable.
    pub fn new(seed: u64) -> Self {
        let (index, places, free, oldest) = Default::default();
        Self { seed, index, places, free, stamp: 0, oldest }
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns one more than the largest slot in use.
    pub fn end(&self) -> Slot {
        self.places.len() as Slot
    }

    fn hash(&self, key: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.seed, key)
    }

    pub fn find(&self, key: &[u8]) -> Option<Slot> {
        self.index.find(self.hash(key), |slot| *self.get(slot).key == *key)
    }

    pub fn get(&self, slot: Slot) -> &Place {
        &self.places[slot as usize]
    }

    pub fn get_mut(&mut self, slot: Slot) -> &mut Place {
        &mut self.places[slot as usize]
    }

    /// Returns the log of a slot, if the slot has one.
    pub fn occupied(&self, slot: Slot) -> Option<&Place> {
        self.places.get(slot as usize).filter(|place| !place.key.is_empty())
    }

    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.places.iter().filter(|place| !place.key.is_empty())
    }

    /// Returns the logs that were last written at `before` or earlier, in no order.
    pub fn older(&self, before: u64) -> impl Iterator<Item = &Place> {
        self.iter().filter(move |place| place.stamp <= before)
    }

    /// Adds a log. The key must be new.
    pub fn add(&mut self, key: &[u8], log: Log, created: u32, changed: u32) -> Slot {
        let hash = self.hash(key);
        self.stamp += 1;
        let place = Place { key: Key::from(key), log, changed, created, stamp: self.stamp };
        let slot = match self.take_free() {
            Some(slot) => {
                self.places[slot as usize] = place;
                slot
            }
            None => {
                self.places.push(place);
                Slot::try_from(self.places.len() - 1).expect("memory is full long before 4 billion logs")
            }
        };
        self.index.add(hash, slot);
        slot
    }

    /// Takes a slot without a log, if there is one.
    fn take_free(&mut self) -> Option<Slot> {
        loop {
            let slot = self.free.pop()?;
            if self.places.get(slot as usize).is_some_and(|place| place.key.is_empty()) {
                return Some(slot);
            }
        }
    }

    /// Removes a log.
    pub fn remove(&mut self, slot: Slot) -> Place {
        let nothing =
            Place { key: Key::from(&b""[..]), log: Log::default(), changed: 0, created: 0, stamp: 0 };
        let place = std::mem::replace(&mut self.places[slot as usize], nothing);
        self.index.remove(self.hash(&place.key), slot);
        self.free.push(slot);
        // The memory of these places does not count any more.
        while self.end().checked_sub(1).is_some_and(|last| self.occupied(last).is_none()) {
            self.places.pop();
        }
        place
    }

    /// Records a write to a log.
    pub fn touch(&mut self, slot: Slot) {
        self.stamp += 1;
        self.places[slot as usize].stamp = self.stamp;
    }

    /// Returns the newest stamp. All later writes get larger stamps.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// Returns the least recently written log, if it was not written after `stamp`.
    pub fn oldest(&mut self, stamp: u64) -> Option<Slot> {
        for sorted in [false, true] {
            if sorted {
                self.sort();
            }
            while let Some((at, slot)) = self.oldest.pop_front() {
                if self.occupied(slot).is_some_and(|place| place.stamp == at) {
                    return (at <= stamp).then_some(slot);
                }
            }
        }
        None
    }

    fn sort(&mut self) {
        let all = (0..).zip(self.places.iter()).filter(|(_, place)| !place.key.is_empty());
        let mut all: Vec<(u64, Slot)> = all.map(|(slot, place)| (place.stamp, slot)).collect();
        let some = (all.len() / SHARE + 16).min(all.len());
        if some < all.len() {
            all.select_nth_unstable(some);
            all.truncate(some);
        }
        all.sort_unstable();
        self.oldest = all.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_first() {
        let mut places = Places::new(1);
        for n in 0..1000u32 {
            places.add(&n.to_be_bytes(), Log::default(), 0, 0);
        }
        for n in (0..1000u32).step_by(2) {
            let slot = places.find(&n.to_be_bytes()).unwrap();
            places.touch(slot);
        }
        let before = places.stamp();
        places.add(b"new", Log::default(), 0, 0);
        let mut gone = Vec::new();
        while let Some(slot) = places.oldest(before) {
            let key = places.remove(slot).key;
            gone.push(u32::from_be_bytes(key[..].try_into().unwrap()));
            // A log that is written meanwhile stays longer.
            if gone.len() == 10 {
                let slot = places.find(&21u32.to_be_bytes()).unwrap();
                places.touch(slot);
            }
        }
        let wanted = (1..1000).step_by(2).chain((0..1000).step_by(2)).filter(|n| *n != 21);
        assert!(gone.into_iter().eq(wanted));
        assert_eq!(places.len(), 2);
        assert!(places.find(b"new").is_some());
    }

    /// Very many small logs make room for a few: the memory of their slots does not count any more.
    #[test]
    fn slots_at_the_end_are_given_back() {
        let mut places = Places::new(1);
        let key = |n: u32| n.to_be_bytes();
        for n in 0..10_000 {
            places.add(&key(n), Log::default(), 0, 0);
        }
        for n in (10..10_000).chain([3, 7]) {
            let slot = places.find(&key(n)).unwrap();
            places.remove(slot);
        }
        assert_eq!((places.len(), places.end()), (8, 10));
        assert_eq!(places.oldest(u64::MAX), Some(0));
        // Each slot has one log, whatever was freed before.
        for n in 20_000..20_100 {
            places.add(&key(n), Log::default(), 0, 0);
        }
        assert_eq!((places.len(), places.end()), (108, 108));
        let all = (0..10).filter(|n| ![3, 7].contains(n)).chain(20_000..20_100);
        for n in all {
            let slot = places.find(&key(n)).unwrap();
            assert_eq!(*places.get(slot).key, key(n));
            places.remove(slot);
        }
        assert_eq!((places.len(), places.end(), places.oldest(u64::MAX)), (0, 0, None));
    }
}
