//! The spaces by name: found by a hash, listed in order.
//!
//! Each commit and each read finds the space of a log, and counts there. Among 100,000 spaces, no
//! cache of the processor holds the space, and each line of memory costs a good part of an append.
//! So the table of hashes itself holds the name and the counters, in one line for each space.

use std::hint::black_box;

use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use crate::model::key::Key;
use crate::state::spaces::{Done, Space};

/// The position of a space, which stays until the space is removed.
pub(crate) type Place = usize;

/// The part of a space that commits and reads need.
#[derive(Debug)]
#[repr(align(64))]
struct Line {
    name: Key,
    place: Place,
    done: Done,
}

const _: () = assert!(size_of::<Line>() == 64);

/// All spaces.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// Makes the positions of names in the table unpredictable.
    seed: u64,
    lines: HashTable<Line>,
    spaces: Vec<Option<Space>>,
    free: Vec<Place>,
    /// The places in the order of the names.
    in_order: Vec<Place>,
}

impl Index {
    /// Returns an index of these spaces, whose names are in order. `seed` is for the hashes of
    /// names.
    pub fn new(seed: u64, spaces: Vec<Space>) -> Self {
        let mut lines = HashTable::with_capacity(spaces.len());
        for (place, space) in spaces.iter().enumerate() {
            insert(seed, &mut lines, &space.name, place);
        }
        let in_order = (0..spaces.len()).collect();
        let spaces = spaces.into_iter().map(Some).collect();
        Self { seed, lines, spaces, free: Vec::new(), in_order }
    }

    pub fn len(&self) -> usize {
        self.in_order.len()
    }

    pub fn is_empty(&self) -> bool {
        self.in_order.is_empty()
    }

    pub fn find(&self, name: &[u8]) -> Option<Place> {
        self.line(name).map(|line| line.place)
    }

    /// Returns the counters of a space.
    pub fn done(&self, name: &[u8]) -> Option<Done> {
        self.line(name).map(|line| line.done)
    }

    /// Returns the counters of a space.
    pub fn done_mut(&mut self, name: &[u8]) -> Option<&mut Done> {
        self.done_of(self.hash(name), name)
    }

    /// Returns the counters of a space whose name has this hash.
    pub fn done_of(&mut self, hash: u64, name: &[u8]) -> Option<&mut Done> {
        let line = self.lines.find_mut(hash, |line| *line.name == *name);
        line.map(|line| &mut line.done)
    }

    /// Returns the hash of a name.
    pub fn hash(&self, name: &[u8]) -> u64 {
        hash(self.seed, name)
    }

    /// Touches the lines of the names with these hashes. The processor fetches many of them at the
    /// same time, because no load depends on the bytes of another line, and because a few
    /// instructions lead from one to the next.
    pub fn touch(&self, hashes: impl Iterator<Item = u64>) {
        let any = |hash| self.lines.find(hash, |_| true).map_or(0, |line| line.place);
        black_box(hashes.map(any).fold(0, usize::wrapping_add));
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
        let place = self.free.pop().unwrap_or(self.spaces.len());
        if place == self.spaces.len() {
            self.spaces.push(None);
        }
        insert(self.seed, &mut self.lines, &space.name, place);
        self.in_order.insert(at, place);
        self.spaces[place] = Some(space);
    }

    /// Removes a space, and returns it.
    pub fn remove(&mut self, name: &[u8]) -> Option<Space> {
        let line = self.lines.find_entry(hash(self.seed, name), |line| *line.name == *name).ok()?;
        let (Line { place, .. }, _) = line.remove();
        let at = self.in_order.partition_point(|&other| *self.get(other).name < *name);
        self.in_order.remove(at);
        self.free.push(place);
        self.spaces[place].take()
    }

    fn line(&self, name: &[u8]) -> Option<&Line> {
        self.lines.find(hash(self.seed, name), |line| *line.name == *name)
    }
}

fn insert(seed: u64, lines: &mut HashTable<Line>, name: &[u8], place: Place) {
    let line = Line { name: name.into(), place, done: Done::default() };
    lines.insert_unique(hash(seed, name), line, |line| hash(seed, &line.name));
}

fn hash(seed: u64, name: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, name)
}
