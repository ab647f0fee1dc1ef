//! The spaces by name: found by a hash, listed in order.

use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use crate::state::spaces::Space;

/// The position of a space, which stays until the space is removed.
pub(crate) type Place = usize;

/// All spaces.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Makes the positions of names in the table unpredictable.
    seed: u64,
    spaces: Vec<Option<Space>>,
    free: Vec<Place>,
    by_name: HashTable<Place>,
    /// The places in the order of the names.
    in_order: Vec<Place>,
}

impl Index {
    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    /// Sets the seed of the hashes.
    pub fn set_seed(&mut self, seed: u64) {
        self.seed = seed;
        self.by_name.clear();
        for &place in &self.in_order {
            let hash = hash(seed, &self.spaces[place].as_ref().expect("it is listed").name);
            self.by_name.insert_unique(hash, place, |&other| hash_at(seed, &self.spaces, other));
        }
    }

    pub fn find(&self, name: &[u8]) -> Option<Place> {
        let is_it = |&place: &Place| *self.get(place).name == *name;
        self.by_name.find(hash(self.seed, name), is_it).copied()
    }

    pub fn get(&self, place: Place) -> &Space {
        self.spaces[place].as_ref().expect("the place has a space")
    }

    pub fn get_mut(&mut self, place: Place) -> &mut Space {
        self.spaces[place].as_mut().expect("the place has a space")
    }

    /// Returns the spaces by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Space> {
        self.in_order.iter().map(|&place| self.get(place))
    }

    /// Adds a space whose name is new.
    pub fn add(&mut self, space: Space) {
        let at = self.in_order.partition_point(|&place| *self.get(place).name < *space.name);
        let hash = hash(self.seed, &space.name);
        let place = self.free.pop().unwrap_or(self.spaces.len());
        if place == self.spaces.len() {
            self.spaces.push(None);
        }
        self.spaces[place] = Some(space);
        self.in_order.insert(at, place);
        self.by_name.insert_unique(hash, place, |&other| hash_at(self.seed, &self.spaces, other));
    }

    /// Removes a space, and returns it.
    pub fn remove(&mut self, name: &[u8]) -> Option<Space> {
        let place = self.find(name)?;
        let entry = self.by_name.find_entry(hash(self.seed, name), |&other| other == place);
        entry.expect("it was just found").remove();
        let at = self.in_order.partition_point(|&other| *self.get(other).name < *name);
        self.in_order.remove(at);
        self.free.push(place);
        self.spaces[place].take()
    }
}

fn hash(seed: u64, name: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, name)
}

fn hash_at(seed: u64, spaces: &[Option<Space>], place: Place) -> u64 {
    spaces[place].as_ref().map_or(0, |space| hash(seed, &space.name))
}
