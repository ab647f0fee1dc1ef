//! The logs that a listing takes from memory, in key order.
//!
//! A listing takes all of them at one moment, under the lock that commits wait for. There may be a
//! million, and a listing may end after ten. So the logs are sorted after the lock is released, and
//! only as far as the listing goes: always the part with the least keys, which grows from one part
//! to the next.

use std::cmp::Ordering;

use crate::model::key::Key;
use crate::model::retention_state::State;

/// Number of logs of the first part, and the growth from one part to the next.
const FIRST_PART: usize = 256;
const GROWTH: usize = 4;

#[derive(Debug)]
struct Log {
    key: Key,
    /// Of several states of a log, the one that was added first counts.
    number: u32,
    state: State,
}

/// The logs, each once.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Logs in no order.
    rest: Vec<Log>,
    /// The logs before them, last one first.
    sorted: Vec<Log>,
    /// Number of logs of the last part.
    part: usize,
}

impl Recent {
    /// Adds a log, unless it was added before.
    pub fn add(&mut self, key: &[u8], state: State) {
        let number = u32::try_from(self.rest.len()).unwrap_or(u32::MAX);
        self.rest.push(Log { key: key.into(), number, state });
    }

    /// Returns the least key.
    pub fn first(&mut self) -> Option<&[u8]> {
        if self.sorted.is_empty() && !self.rest.is_empty() {
            self.sort_part();
        }
        self.sorted.last().map(|log| &*log.key)
    }

    /// Takes the state of the log with the least key.
    pub fn take_first(&mut self) -> Option<State> {
        self.first()?;
        let log = self.sorted.pop()?;
        while self.first().is_some_and(|next| *next == *log.key) {
            self.sorted.pop();
        }
        Some(log.state)
    }

    /// Sorts the logs with the least keys.
    fn sort_part(&mut self) {
        self.part = (self.part * GROWTH).max(FIRST_PART);
        let from = self.rest.len().saturating_sub(self.part);
        if from > 0 {
            self.rest.select_nth_unstable_by(from, last_first);
        }
        self.sorted = self.rest.split_off(from);
        self.sorted.sort_unstable_by(last_first);
    }
}

fn last_first(a: &Log, b: &Log) -> Ordering {
    b.key.cmp(&a.key).then(b.number.cmp(&a.number))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use brooklet_io::Rng;

    use super::*;
    use crate::model::Bounds;

    #[test]
    fn logs_come_in_order_each_with_its_first_state() {
        let mut rng = Rng::new(1);
        for count in [0, 1, FIRST_PART, FIRST_PART + 1, 5_000] {
            let (mut recent, mut expected) = (Recent::default(), BTreeMap::new());
            for n in 0..count as u64 {
                // Some keys come several times, some are equal up to a length.
                let key = format!("log/{}", rng.below(count as u64 / 2 + 1)).into_bytes();
                let state = State::without_terms(Bounds { first: n, next: n + 1 });
                recent.add(&key, state.clone());
                expected.entry(key).or_insert(state);
            }
            for (key, state) in expected {
                assert_eq!(recent.first(), Some(&key[..]));
                assert_eq!(recent.take_first(), Some(state));
            }
            assert_eq!(recent.first(), None);
            assert_eq!(recent.take_first(), None);
        }
    }

    #[test]
    fn a_listing_that_ends_early_sorts_little() {
        let mut recent = Recent::default();
        (0..10_000).for_each(|n| recent.add(format!("{n:05}").as_bytes(), State::default()));
        (0..10).for_each(|_| drop(recent.take_first()));
        assert_eq!((recent.sorted.len(), recent.rest.len()), (FIRST_PART - 10, 10_000 - FIRST_PART));
    }
}
