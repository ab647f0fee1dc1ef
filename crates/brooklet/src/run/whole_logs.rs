//! The logs that were read lately, each as the one piece that a merge of all runs would make of it.
//!
//! A log whose entries were appended far apart is in several runs. A read of such a log looks into
//! a filter, an index and a block of each run. The next read of the log finds the whole log here,
//! by one look-up. The logs share the memory of the cache for look-ups.
//!
//! A kept log is valid as long as no run has replaced another, and the log is in no newer run
//! ([`Age`]). Only runs count here: newer memtables have their own pieces.

use std::sync::Arc;

use brooklet_codex::{Cache, Values};
use brooklet_io::seeded::bug;
use brooklet_wal::{put_varint, take_varint};
use bytes::Bytes;

use crate::format::run_entry::{Head, put_whole_log};
use crate::model::resolve;

/// Maximum length of a kept log, in bytes. A longer log has few entries to a block, so its look-ups
/// take a small part of the time of its read.
const LONGEST: usize = 64 << 10;

/// The age of a set of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Age {
    /// Number of times that runs were replaced or removed.
    pub replaced: u64,
    /// Number of runs that were added since, as the newest.
    pub added: u64,
}

impl Age {
    /// Returns the age of the set that replaces a set of this age. `added`: the number of new runs
    /// in front of the runs of this set; `None` if those changed.
    pub fn next(self, added: Option<usize>) -> Self {
        match added {
            Some(added) => Self { added: self.added + added as u64, ..self },
            None if bug("kept-logs-outlive-their-runs") => self,
            None => Self { replaced: self.replaced + 1, added: 0 },
        }
    }

    /// Returns the number of runs that a set of this age has in front of the runs of a set of age
    /// `before`; `None` if the sets differ in other runs.
    pub fn newer_than(self, before: Age) -> Option<usize> {
        let added = self.added.checked_sub(before.added).filter(|_| self.replaced == before.replaced);
        added.map(|added| if bug("newer-runs-are-not-asked") { 0 } else { added as usize })
    }
}

/// Some logs, each with the age of the set of runs in which it was read.
#[derive(Debug)]
pub(crate) struct WholeLogs {
    values: Values,
}

impl WholeLogs {
    pub fn new(cache: &Arc<Cache>, seed: u64) -> Self {
        Self { values: Values::new(cache, seed) }
    }

    /// Returns the log `key`, and the age of the runs in which it was read.
    pub fn get(&self, key: &[u8]) -> Option<(Age, Head)> {
        let value = self.values.get(key)?;
        let mut rest = &value[..];
        let age = Age { replaced: take_varint(&mut rest)?, added: take_varint(&mut rest)? };
        Some((age, Head::decode(&value.slice_ref(rest))?))
    }

    /// Keeps the log `key`, whose pieces are `pieces`, newest first. Does nothing if these are not
    /// the whole log, or if the log is long.
    pub fn put<'h>(&self, key: &[u8], age: Age, pieces: impl Iterator<Item = &'h Head> + Clone) {
        let Some(newest) = pieces.clone().next() else { return };
        let Some(bounds) = newest.piece.bounds else { return };
        let log = resolve(pieces.clone().map(|head| head.piece));
        let pieces: Vec<&Head> = pieces.collect();
        let (mut at, mut len) = (bounds.first, 0);
        for (i, part) in log.parts.iter().rev() {
            let chunk = &pieces[*i].chunk;
            if part.start != at || part.end > chunk.range().end || part.start < chunk.base {
                return;
            }
            at = part.end;
            len += chunk.len_of(part.clone());
        }
        if at != bounds.next || len > LONGEST {
            return;
        }
        let payloads = log.parts.iter().rev().flat_map(|(i, part)| pieces[*i].chunk.payloads(part.clone()));
        let mut value = Vec::with_capacity(len + 64 + (bounds.next - bounds.first) as usize * 2);
        for number in [age.replaced, age.added] {
            put_varint(&mut |b| value.extend_from_slice(b), number);
        }
        put_whole_log(&mut value, bounds, newest.terms.as_deref(), payloads);
        // The cache counts the length, not the capacity.
        self.values.put(key, Bytes::from(value.into_boxed_slice()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Bounds, Effect, Piece, retention_state};

    fn logs() -> WholeLogs {
        WholeLogs::new(&Arc::new(Cache::new(1 << 20)), 1)
    }

    /// Returns a piece of a log with bounds `first..next`, which holds the entries from `base` on.
    fn piece(first: u64, next: u64, base: u64, fill: u8, len: usize) -> Head {
        let payload = vec![fill; len];
        let held = base.max(first)..next;
        let mut value = Vec::new();
        let bounds = Bounds { first: held.start, next };
        put_whole_log(&mut value, bounds, None, held.map(|_| &payload[..]));
        let head = Head::decode(&value.into()).expect("a head");
        Head { piece: Piece { bounds: Some(Bounds { first, next }), base }, ..head }
    }

    #[test]
    fn a_kept_log_is_the_merge_of_its_pieces() {
        let age = Age { replaced: 300, added: 2 };
        // The newest piece took entry 5 back, and trimmed the log to 3.
        let mut pieces = [piece(3, 7, 5, 3, 10), piece(0, 6, 4, 2, 20), piece(0, 4, 0, 1, 30)];
        let bounds = pieces[0].piece.bounds;
        retention_state::apply(&mut pieces[0].terms, Effect::Entries(100), bounds, 0);
        let logs = logs();
        logs.put(b"log", age, pieces.iter());
        let (found, head) = logs.get(b"log").expect("it was kept");
        assert_eq!((found, head.piece.bounds, head.piece.base), (age, bounds, 3));
        assert_eq!(head.terms, pieces[0].terms);
        let got: Vec<_> = head.chunk.range().map(|seq| head.chunk.payload(seq)).collect();
        assert_eq!(got, [vec![1; 30], vec![2; 20], vec![3; 10], vec![3; 10]]);
        assert!(logs.get(b"other").is_none());
    }

    #[test]
    fn a_log_is_kept_only_if_it_is_whole_and_short() {
        let logs = logs();
        let deleted = Head { piece: Piece { bounds: None, base: 0 }, ..piece(0, 0, 0, 0, 0) };
        for pieces in [
            vec![],
            vec![deleted.clone()],
            // An older piece is missing, or a chunk of one.
            vec![piece(0, 6, 4, 1, 1)],
            vec![piece(0, 6, 4, 1, 1), piece(0, 3, 0, 1, 1)],
            vec![piece(0, 70, 0, 1, 1_000)],
        ] {
            logs.put(b"log", Age::default(), pieces.iter());
            assert!(logs.get(b"log").is_none(), "{pieces:?}");
        }
        logs.put(b"log", Age::default(), [deleted, piece(0, 4, 0, 1, 1)].iter());
        assert!(logs.get(b"log").is_none(), "a deleted log has no older pieces");
        logs.put(b"log", Age::default(), [piece(9, 9, 9, 1, 1)].iter());
        assert!(logs.get(b"log").is_some(), "a log without entries");
    }

    #[test]
    fn only_sets_that_grew_at_the_front_are_the_same_but_for_newer_runs() {
        let old = Age::default();
        let grown = old.next(Some(1)).next(Some(0)).next(Some(2));
        assert_eq!((grown.newer_than(old), grown.newer_than(grown)), (Some(3), Some(0)));
        assert_eq!(old.newer_than(grown), None, "an older view does not know newer runs");
        let replaced = grown.next(None);
        assert_eq!((replaced.newer_than(grown), grown.newer_than(replaced)), (None, None));
    }
}
