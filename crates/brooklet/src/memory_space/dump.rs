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

/// Slots that are looked at under one lock, and logs that are frozen.
const SLOTS: Slot = 4096;
const AT_ONCE: usize = 256;

/// What a dump that goes on is of.
#[derive(Debug)]
pub(super) struct Cut {
    /// Logs that were changed since, as they were.
    before: BTreeMap<Vec<u8>, Frozen>,
    /// Those that were no more, and may be in runs.
    pub tombstones: BTreeSet<Vec<u8>>,
    /// Whether there was something to write.
    changed: bool,
}

/// What of a memory space is still to be dumped.
pub(crate) struct Rest {
    /// The keys of its logs, and of those that are no more; the next one last.
    keys: Vec<Vec<u8>>,
}

impl Logs {
    /// Begins a dump. [`collect`](Self::collect), for all slots, says what is in it.
    pub fn begin_dump(&mut self) {
        assert!(self.cut.is_none(), "one dump goes on at a time");
        self.generation += 1;
        let tombstones = mem::take(&mut self.tombstones);
        let changed = mem::take(&mut self.changed);
        self.cut = Some(Cut { before: BTreeMap::new(), tombstones, changed });
    }

    /// A log is about to change, or to go.
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

    /// Collects the keys of some logs that are as they were at the cut, of the slots from `from`
    /// on; gives where to go on. Drops what is too old by `now`.
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

    /// All keys, those that were collected being all that were left as they are.
    pub fn rest(&self, mut keys: Vec<Vec<u8>>) -> Rest {
        let cut = self.cut.as_ref().expect("a dump goes on");
        let tombstones = cut.tombstones.iter().filter(|_| !bug("dump-forgets-the-deleted"));
        keys.extend(cut.before.keys().chain(tombstones).cloned());
        Rest { keys }
    }

    /// The next logs as they were at the cut; `None` for those that were no more.
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

    /// Ends a dump, which is part of the store by now if it `succeeded`.
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
    /// Puts the keys in order.
    pub fn sort(&mut self) {
        self.keys.sort_unstable_by(|a, b| b.cmp(a));
        self.keys.dedup();
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}
