//! Sorts the logs of a memtable by key, a step at a time: a memtable may have a million logs.
//!
//! Each part of the memtable is sorted separately, and all parts are then merged at once. Each log
//! is in no cache when its turn arrives, so every access counts.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::vec;

use crate::memtable::{LogState, Memtable, Slot};

/// Number of logs of a step, which takes a few tenths of a millisecond.
const AT_ONCE: usize = 1024;

/// A sort of logs in progress.
#[derive(Default)]
pub(crate) struct IncrementalSort {
    /// The number of logs looked at so far, and of all logs of the memtable.
    seen: usize,
    of: usize,
    /// The unmerged rest of each sorted part.
    parts: Vec<vec::IntoIter<Slot>>,
    merged: Vec<Slot>,
}

impl IncrementalSort {
    /// Does one step. `wanted` selects the logs to sort; `memtable` must be the same in all steps.
    /// Returns `false` once the logs are in order.
    pub fn step(&mut self, memtable: &Memtable, wanted: impl FnMut(&LogState) -> bool) -> bool {
        self.of = memtable.logs.len();
        if self.seen < self.of {
            self.sort(memtable, wanted);
            return true;
        }
        self.merge(memtable)
    }

    /// Returns the progress, per mille.
    pub fn progress(&self) -> u64 {
        ((self.seen + self.merged.len()) * 500 / self.of.max(1)) as u64
    }

    /// Returns the sorted logs.
    pub fn end(self) -> Vec<Slot> {
        self.merged
    }

    fn sort(&mut self, memtable: &Memtable, mut wanted: impl FnMut(&LogState) -> bool) {
        let next = self.of.min(self.seen + AT_ONCE);
        let slots = self.seen as Slot..next as Slot;
        let mut part: Vec<Slot> = slots.filter(|&slot| wanted(memtable.log(slot))).collect();
        part.sort_unstable_by(|&a, &b| memtable.log(a).key.cmp(&memtable.log(b).key));
        self.seen = next;
        self.parts.push(part.into_iter());
    }

    fn merge(&mut self, memtable: &Memtable) -> bool {
        let first =
            |part: &vec::IntoIter<Slot>| part.as_slice().first().map(|&slot| &*memtable.log(slot).key);
        let heads = self.parts.iter().enumerate();
        let mut heads: BinaryHeap<_> =
            heads.filter_map(|(i, part)| Some(Reverse((first(part)?, i)))).collect();
        for _ in 0..AT_ONCE {
            let Some(mut least) = heads.peek_mut() else { return false };
            let Reverse((key, i)) = &mut *least;
            let part = &mut self.parts[*i];
            self.merged.extend(part.next());
            match first(part) {
                Some(next) => *key = next,
                None => drop(PeekMut::pop(least)),
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use brooklet_io::Rng;

    use super::*;
    use crate::model::retention_state::State;

    #[test]
    fn logs_come_into_order_by_small_steps() {
        for logs in [0, 1, AT_ONCE - 1, AT_ONCE, 5 * AT_ONCE + 7] {
            let (mut memtable, mut rng) = (Memtable::new(1), Rng::new(2));
            for _ in 0..logs {
                memtable.add(&rng.next().to_le_bytes(), State::default());
            }
            let wanted = |log: &LogState| log.key[0] != 7;
            let (mut order, mut looks, mut merged, mut progress) = (IncrementalSort::default(), 0, 0, 0);
            while order.step(&memtable, |log| {
                looks += 1;
                wanted(log)
            }) {
                assert!(std::mem::take(&mut looks) <= AT_ONCE);
                assert!(order.merged.len() - std::mem::replace(&mut merged, order.merged.len()) <= AT_ONCE);
                assert!(order.progress() >= std::mem::replace(&mut progress, order.progress()));
            }
            assert!(logs == 0 || order.progress() > 990, "{}", order.progress());
            let slots = 0..logs as Slot;
            let mut all: Vec<Slot> = slots.filter(|&slot| wanted(memtable.log(slot))).collect();
            all.sort_by_key(|&slot| &*memtable.log(slot).key);
            assert!(order.end() == all, "{logs} logs");
        }
    }
}
