//! The index of logs by the hashes of their keys. It grows in bounded steps: a commit that creates
//! a log holds a lock that all clients wait for, so no commit may pay for all logs.
//!
//! The index consists of segments, which are hash tables. A segment doubles until it may have
//! [`FULL`] entries. After that it splits into two segments, by the next bit of the hashes. The
//! directory has a place for each value of the upper bits of a hash; it doubles when a segment
//! splits that has one place in it (extendible hashing). Of the places of one segment, the first
//! has the segment, and the others are empty. A place stands for thousands of logs.
//!
//! One table of the `hashbrown` crate would move all entries at once, so that crate supplies the
//! segments, and its public calls are enough: a table of our own was slower to find a missing log.
//! An entry keeps half of the hash beside the slot, so that a split reads no log: logs are in no
//! cache.

use hashbrown::HashTable;

use crate::model::pending::Slot;

/// Maximum entries of a segment, and therefore of one move: 7 of 8 places of a table.
const FULL: usize = 4096 / 8 * 7;
/// The directory doubles only if the index has this many logs for each place. Good hashes always
/// reach this number. Bad hashes make a long segment, rather than a long directory.
const LOGS_PER_PLACE: usize = FULL / 4;

/// Slots by hash. Two logs may have the same hash; the caller compares their keys.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// None at first, then a power of two.
    places: Vec<Option<Segment>>,
    len: usize,
}

#[derive(Debug)]
struct Segment {
    table: HashTable<Entry>,
    /// Number of upper bits that the hashes of all entries have in common.
    depth: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    half: u32,
    slot: Slot,
}

impl Index {
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the slot with this hash that `is_it` accepts.
    #[inline]
    pub fn find(&self, hash: u64, mut is_it: impl FnMut(Slot) -> bool) -> Option<Slot> {
        let half = half(hash);
        let segment = self.places.get(self.place(half))?.as_ref()?;
        let found = segment.table.find(spread(half), |entry| entry.half == half && is_it(entry.slot));
        found.map(|entry| entry.slot)
    }

    /// Adds a slot, which must be new. Returns the number of entries that moved.
    pub fn add(&mut self, hash: u64, slot: Slot) -> usize {
        let half = half(hash);
        if self.places.is_empty() {
            self.places.push(Some(Segment { table: HashTable::new(), depth: 0 }));
        }
        let mut moved = 0;
        let table = loop {
            let place = self.place(half);
            let table = &self.segment(place).table;
            let is_full = table.len() == table.capacity();
            moved += if is_full { table.len() } else { 0 };
            if !is_full || !self.split(place) {
                break &mut self.segment(place).table;
            }
        };
        table.insert_unique(spread(half), Entry { half, slot }, |entry| spread(entry.half));
        self.len += 1;
        moved
    }

    /// Removes a slot, which must have this hash.
    pub fn remove(&mut self, hash: u64, slot: Slot) {
        let half = half(hash);
        let place = self.place(half);
        let table = &mut self.segment(place).table;
        let found = table.find_entry(spread(half), |entry| entry.slot == slot);
        found.expect("the log is in the index").remove();
        self.len -= 1;
    }

    /// Frees a part of the index, which is not used any more. Returns the number of bytes, or
    /// `None` once all is free.
    pub fn release_some(&mut self) -> Option<usize> {
        let segment = self.places.pop()?;
        Some(segment.map_or(0, |segment| segment.table.allocation_size()))
    }

    /// Returns the place of the segment for a hash.
    #[inline]
    fn place(&self, half: u32) -> usize {
        let mut place = upper(half, self.places.len().max(1).trailing_zeros());
        while let Some(None) = self.places.get(place) {
            // The segment is at the first of its places.
            place &= place - 1;
        }
        place
    }

    fn segment(&mut self, place: usize) -> &mut Segment {
        self.places[place].as_mut().expect("the place has a segment")
    }

    /// Splits a segment without room. Returns `false` if its table has to make room instead.
    fn split(&mut self, mut place: usize) -> bool {
        let count = self.places.len();
        let segment = self.segment(place);
        // A smaller table may double. Or most of its room is taken by removed entries.
        if segment.table.len() <= FULL / 2 {
            return false;
        }
        let depth = segment.depth + 1;
        if 1 << depth > count {
            if self.len < count * LOGS_PER_PLACE {
                return false;
            }
            self.places = self.places.drain(..).flat_map(|segment| [segment, None]).collect();
            place *= 2;
        }
        let [mut lower, mut higher] = [(); 2].map(|()| HashTable::with_capacity(FULL));
        for &entry in &self.segment(place).table {
            let half = if upper(entry.half, depth).is_multiple_of(2) { &mut lower } else { &mut higher };
            half.insert_unique(spread(entry.half), entry, |entry| spread(entry.half));
        }
        let next = place + (self.places.len() >> depth);
        self.places[place] = Some(Segment { table: lower, depth });
        self.places[next] = Some(Segment { table: higher, depth });
        true
    }
}

/// Returns the half of a hash that an entry keeps.
fn half(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// Returns the hash for the table of a segment. The table uses the lower bits and the uppermost 7,
/// all from bits of the half that do not choose the segment.
fn spread(half: u32) -> u64 {
    u64::from(half) | u64::from(half) << 45
}

/// Returns the first `bits` bits of a half.
fn upper(half: u32, bits: u32) -> usize {
    (u64::from(half) >> (u32::BITS - bits)) as usize
}

#[cfg(test)]
mod tests;
