//! The watchers of a store, found by their keys.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use crate::state::watchers::Watcher;
use crate::state::watchers::marks::{LogMarks, PrefixMarks};
use crate::sync::atomic::Ordering;

pub(crate) struct Registry {
    pub logs: ByKey<LogMarks>,
    pub prefixes: ByKey<PrefixMarks>,
}

impl Registry {
    pub fn new(seed: u64) -> Self {
        Self { logs: ByKey::new(seed), prefixes: ByKey::new(seed) }
    }
}

/// A key, and its watchers.
type Entry<M> = (Box<[u8]>, Vec<Arc<Watcher<M>>>);

/// Watchers by key, or by prefix. A key may have many watchers.
pub(crate) struct ByKey<M> {
    seed: u64,
    table: HashTable<Entry<M>>,
    /// The lengths of the keys, and the number of keys of each length.
    lens: BTreeMap<usize, usize>,
}

impl<M> ByKey<M> {
    fn new(seed: u64) -> Self {
        Self { seed, table: HashTable::new(), lens: BTreeMap::new() }
    }

    /// Returns the lengths of the keys, shortest first.
    pub fn lens(&self) -> impl Iterator<Item = usize> {
        self.lens.keys().copied()
    }

    pub fn get(&self, key: &[u8]) -> &[Arc<Watcher<M>>] {
        let hash = XxHash3_64::oneshot_with_seed(self.seed, key);
        self.table.find(hash, |(of, _)| **of == *key).map_or(&[], |(_, watchers)| watchers)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Watcher<M>>> {
        self.table.iter().flat_map(|(_, watchers)| watchers)
    }

    pub fn add(&mut self, key: &[u8], watcher: Arc<Watcher<M>>) {
        let seed = self.seed;
        let hash = |key: &[u8]| XxHash3_64::oneshot_with_seed(seed, key);
        let entry = self.table.entry(hash(key), |(of, _)| **of == *key, |(of, _)| hash(of));
        let mut entry = entry.or_insert_with(|| {
            *self.lens.entry(key.len()).or_default() += 1;
            (key.into(), Vec::with_capacity(1))
        });
        let watchers = &mut entry.get_mut().1;
        watcher.place.store(watchers.len(), Ordering::Relaxed);
        watchers.push(watcher);
    }

    pub fn remove(&mut self, key: &[u8], watcher: &Arc<Watcher<M>>) {
        let hash = XxHash3_64::oneshot_with_seed(self.seed, key);
        let found = self.table.find_entry(hash, |(of, _)| **of == *key);
        let Ok(mut found) = found else { panic!("a watcher has its key") };
        let watchers = &mut found.get_mut().1;
        let place = watcher.place.load(Ordering::Relaxed);
        let removed = watchers.swap_remove(place);
        assert!(Arc::ptr_eq(&removed, watcher), "a watcher is at its place");
        if let Some(moved) = watchers.get(place) {
            moved.place.store(place, Ordering::Relaxed);
        }
        if watchers.is_empty() {
            found.remove();
            let count = self.lens.get_mut(&key.len()).expect("each key counts");
            *count -= 1;
            if *count == 0 {
                self.lens.remove(&key.len());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_of_one_key_come_and_go_in_any_order() {
        let mut by_key = ByKey::<LogMarks>::new(7);
        let new = || Arc::new(Watcher::new(LogMarks::default()));
        let watchers: Vec<_> = (0..5).map(|_| new()).collect();
        watchers.iter().for_each(|watcher| by_key.add(b"log", watcher.clone()));
        by_key.add(b"another", new());
        assert_eq!(by_key.lens().collect::<Vec<_>>(), [3, 7]);
        for (left, at) in [(4, 1), (3, 4), (2, 0), (1, 2), (0, 3)] {
            by_key.remove(b"log", &watchers[at]);
            assert_eq!(by_key.get(b"log").len(), left);
            assert!(by_key.get(b"log").iter().all(|other| !Arc::ptr_eq(other, &watchers[at])));
        }
        assert_eq!((by_key.lens().collect::<Vec<_>>(), by_key.all().count()), (vec![7], 1));
    }
}
