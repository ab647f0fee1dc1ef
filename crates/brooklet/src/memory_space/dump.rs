//! Dumps a memory space while all other work continues: each log as it was at one moment, the
//! *cut*.
//!
//! A dump goes through the logs in the order of their keys, some at a time. The first change of a
//! log after the cut saves the state of the log at the cut for the dump. The saved state shares the
//! log's chunks, so the save copies at most the last chunk. Logs that were created after the cut
//! are not dumped.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;

use brooklet_io::seeded::bug;

use crate::memory_space::log::Frozen;
use crate::memory_space::slots::Slot;
use crate::memory_space::{Logs, tombstone_cost};
use crate::model::Bounds;

/// Number of slots that are read under one lock, and of logs that are frozen.
pub(super) const SLOTS: Slot = 4096;
const AT_ONCE: usize = 256;

/// The cut of a running dump.
#[derive(Debug)]
pub(super) struct Cut {
    /// Logs that changed after the cut, with their state at the cut.
    before: BTreeMap<Vec<u8>, Frozen>,
    /// Logs that did not exist at the cut and may be in runs.
    pub tombstones: BTreeSet<Vec<u8>>,
    /// Whether the dump has changes to write.
    changed: bool,
}

/// The part of a memory space that is still to be dumped.
pub(crate) struct Rest {
    /// The keys of its logs and of its tombstones; the next key is last.
    keys: Vec<Vec<u8>>,
}

impl Logs {
    /// Begins a dump. [`collect`](Self::collect), called for all slots, returns the dump's keys.
    pub fn begin_dump(&mut self) {
        assert!(self.cut.is_none(), "one dump goes on at a time");
        self.generation += 1;
        let tombstones = mem::take(&mut self.tombstones);
        let changed = mem::take(&mut self.changed);
        self.cut = Some(Cut { before: BTreeMap::new(), tombstones, changed });
    }

    /// Saves a log for the running dump, before the log changes or is removed.
    pub(super) fn keep_for_cut(&mut self, slot: Slot) {
        let place = self.places.get_mut(slot);
        if mem::replace(&mut place.changed, self.generation) == self.generation {
            return;
        }
        let Bounds { first, next } = place.log.bounds();
        if let Some(cut) = &mut self.cut {
            cut.before.insert(place.key.to_vec(), place.log.freeze(first..next));
        }
    }

    /// Collects the keys of some logs that have not changed since the cut, in the slots from `from`
    /// on. Returns the slot to continue at. Drops the entries that are too old by `now`.
    pub fn collect(&mut self, from: Slot, keys: &mut Vec<Vec<u8>>, now: &dyn Fn() -> u64) -> Option<Slot> {
        let end = self.places.end().min(from + SLOTS);
        for slot in from..end {
            let Some(place) = self.places.occupied(slot) else { continue };
            if place.changed < self.generation {
                keys.push(place.key.to_vec());
                self.expire(slot, now);
            }
        }
        (end < self.places.end()).then_some(end)
    }

    /// Returns the keys of the whole dump. `keys` are all collected keys.
    pub fn rest(&self, mut keys: Vec<Vec<u8>>) -> Rest {
        let cut = self.cut.as_ref().expect("a dump goes on");
        let tombstones = cut.tombstones.iter().filter(|_| !bug("dump-forgets-the-deleted"));
        keys.extend(cut.before.keys().chain(tombstones).cloned());
        Rest { keys }
    }

    /// Returns the next logs with their state at the cut; `None` for a log that did not exist.
    pub fn next(&mut self, rest: &mut Rest) -> Vec<(Vec<u8>, Option<Frozen>)> {
        let cut = self.cut.as_mut().expect("a dump goes on");
        let some = rest.keys.split_off(rest.keys.len().saturating_sub(AT_ONCE));
        let as_it_was = |key: Vec<u8>| {
            let frozen = cut.before.remove(&key).or_else(|| {
                let place = self.places.get(self.places.find(&key)?);
                let Bounds { first, next } = place.log.bounds();
                (place.changed < self.generation).then(|| place.log.freeze(first..next))
            });
            (key, frozen)
        };
        some.into_iter().rev().map(as_it_was).collect()
    }

    /// Ends a dump. If it `succeeded`, the dump is part of the store by now.
    pub fn end_dump(&mut self, succeeded: bool) {
        let cut = self.cut.take().expect("a dump goes on");
        if succeeded {
            self.memory -= cut.tombstones.iter().map(|key| tombstone_cost(key)).sum::<usize>();
            self.counts.dumps += 1;
            return;
        }
        self.changed |= cut.changed;
        for key in cut.tombstones {
            if !self.tombstones.insert(key.clone()) {
                self.memory -= tombstone_cost(&key);
            }
        }
    }
}

impl Rest {
    /// Sorts the keys.
    pub fn sort(&mut self) {
        self.keys.sort_unstable_by(|a, b| b.cmp(a));
        self.keys.dedup();
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
