//! The effects on one log that are appended and not durable yet, for readers that ask for them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_wal::{Block, Wal};
use bytes::Bytes;

use crate::error::Error;
use crate::memtable::{Memtable, Pending, Slot};
use crate::model::retention_state::RetentionState;
use crate::model::{Bounds, Effect, Piece};
use crate::state::StoreState;

/// The place of a payload in the log.
struct Place {
    block: Arc<Block>,
    range: Range<usize>,
}

/// The part of a log that is not durable yet: a piece on top of the visible pieces.
pub(crate) struct InFlight {
    pub piece: Piece,
    /// The payloads of the piece's entries.
    places: VecDeque<Place>,
}

impl StoreState {
    /// Returns the bounds of a log after all appended effects; `None` if no memtable knows the log.
    pub fn bounds_appended(&self, key: &[u8]) -> Option<Option<Bounds>> {
        self.memtables().find_map(|memtable| memtable.find(key).map(|slot| memtable.log(slot).appended))
    }

    /// Returns the terms of a log after all appended effects.
    pub fn terms_appended(&self, key: &[u8]) -> Option<&RetentionState> {
        self.memtables().find_map(|memtable| memtable.find(key).map(|slot| memtable.log(slot).terms()))?
    }

    /// Returns the part of a log that is not durable yet; `None` if there is no such part.
    pub fn in_flight(&self, key: &[u8]) -> Option<InFlight> {
        // The older memtable first.
        let memtables: Vec<(&Memtable, u64)> = self.memtables().zip((0..=self.generation).rev()).collect();
        let mut in_flight: Option<InFlight> = None;
        for (memtable, generation) in memtables.into_iter().rev() {
            let Some(slot) = memtable.find(key) else { continue };
            let log = memtable.log(slot);
            let forgotten = generation < self.generation && bug("reading-back-forgets-the-frozen-memtable");
            if log.in_flight == 0 || forgotten {
                continue;
            }
            let before = log.piece().map_or(log.origin(), |piece| piece.bounds);
            let part = in_flight.get_or_insert_with(|| InFlight::on_top_of(before));
            for (block, pending) in self.pending_effects(generation, slot, log.in_flight) {
                part.apply(block, pending);
            }
        }
        in_flight
    }

    /// Returns the last `count` effects on a log of a memtable that are not durable yet, the oldest
    /// first.
    fn pending_effects(&self, generation: u64, slot: Slot, count: u32) -> Vec<(&Arc<Block>, &Pending)> {
        let blocks = self.pending.iter().rev().filter(|pending| pending.generation == generation);
        let effects =
            blocks.flat_map(|pending| pending.effects.iter().rev().map(move |it| (&pending.block, it)));
        let mut found: Vec<_> =
            effects.filter(|(_, pending)| pending.slot == slot).take(count as usize).collect();
        found.reverse();
        found
    }
}

impl InFlight {
    fn on_top_of(bounds: Option<Bounds>) -> Self {
        Self { piece: Piece::on_top_of(bounds), places: VecDeque::new() }
    }

    fn apply(&mut self, block: &Arc<Block>, pending: &Pending) {
        self.piece.apply(pending.effect).expect("the effect fitted when it was appended");
        if matches!(pending.effect, Effect::Append(_)) {
            let start = pending.offset as usize;
            self.places.push_back(Place { block: block.clone(), range: start..start + pending.len as usize });
        }
        if let Some(trim) = pending.trim() {
            self.piece.apply(trim).expect("the effect fitted when it was appended");
        }
        let held = self.piece.held();
        let kept = (held.end - held.start) as usize;
        match pending.effect {
            Effect::Truncate(_) if !bug("reading-back-mixes-entries") => self.places.truncate(kept),
            _ => drop(self.places.drain(..self.places.len() - kept)),
        }
    }

    /// Returns the payloads of `range`, which must be within the piece's entries. Returns `None`
    /// while a thread compresses a block of these entries: try again soon.
    pub fn payloads(&self, wal: &Wal, range: Range<u64>) -> Result<Option<Vec<Bytes>>, Error> {
        let start = self.piece.held().start;
        let places = self.places.range((range.start - start) as usize..(range.end - start) as usize);
        let mut payloads = Vec::with_capacity(places.len());
        let mut places = places.peekable();
        while let Some(first) = places.next() {
            let mut ranges = vec![first.range.clone()];
            while let Some(next) = places.next_if(|next| Arc::ptr_eq(&next.block, &first.block)) {
                ranges.push(next.range.clone());
            }
            let Some(found) = wal.peek(&first.block, &ranges)? else { return Ok(None) };
            payloads.extend(found);
        }
        Ok(Some(payloads))
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::time::Duration;

    use brooklet_io::MemVolume;
    use brooklet_wal::Records;

    use super::*;
    use crate::state::spaces::Spaces;
    use crate::{Commit, Entries, Entry, Options, Retention, Store};

    /// Returns what readers see of a memtable, and its memory.
    fn shown(memtable: &Memtable) -> impl PartialEq + Debug + use<> {
        let logs = memtable.logs.iter().map(|log| {
            let sizes: Vec<u32> = log.sizes().collect();
            (log.key.to_vec(), log.appended, log.piece(), sizes, log.visible_terms().cloned(), log.in_flight)
        });
        (logs.collect::<Vec<_>>(), memtable.bytes())
    }

    fn pairs(entries: Entries) -> Vec<(u64, Vec<u8>)> {
        entries.map(|entry| entry.unwrap()).map(|Entry { seq, payload }| (seq, payload.to_vec())).collect()
    }

    fn store() -> Store {
        let options = Options::new().ring_size(4 << 20).memory_budget(8 << 20).threads(false).rng_seed(5);
        options.create_on(Arc::new(MemVolume::new(1))).unwrap()
    }

    /// The ring has two effects for a snapshot. In flight, they are one.
    #[test]
    fn snapshots_show_as_their_replay_does() {
        for limited in [false, true] {
            let store = store();
            if limited {
                let retention = Retention::new().entries(3).age(Duration::from_secs(3600));
                drop(store.set_retention("a", retention).unwrap());
            }
            for payload in ["one", "two"] {
                let mut commit = Commit::new();
                commit.append("a", "x").append("a", "x").snapshot("a", payload);
                commit.append("a", "x").snapshot("a", payload);
                commit.snapshot("b", payload).snapshot("b", payload);
                commit.append("c", "x").snapshot("c", payload).delete("c").snapshot("c", payload);
                drop(store.commit(&commit).unwrap());
            }
            drop(store.truncate("b", 3).unwrap());
            drop(store.snapshot("b", "last").unwrap());
            let wanted = [("a", 9_u64, "two"), ("b", 3, "last"), ("c", 0, "two")];
            let wanted = wanted.map(|(key, seq, payload)| (key, vec![(seq, payload.as_bytes().to_vec())]));
            for (key, entries) in &wanted {
                assert_eq!(pairs(store.read_appended(key, ..).unwrap()), *entries);
            }
            let blocks: Vec<Arc<Block>> =
                store.inner().state().pending.iter().map(|pending| pending.block.clone()).collect();
            assert!(!blocks.is_empty(), "nothing is durable yet");
            store.flush().unwrap();
            for (key, entries) in &wanted {
                assert_eq!(pairs(store.read(key, ..).unwrap()), *entries);
            }
            let last = Records::new(blocks.last().unwrap().data()).last().unwrap().unwrap();
            assert_eq!(last.1, b"\x01\x01b\x03\x04last\x82\x03", "an append and a trim");

            let (mut replayed, mut spaces) = (Memtable::new(1), Spaces::default());
            for block in &blocks {
                replayed.replay(block, &mut Vec::new(), &mut spaces).unwrap();
            }
            let state = store.inner().state();
            assert_eq!(shown(&state.active), shown(&replayed));
            if !limited {
                assert_eq!(state.active.claim(), replayed.claim());
            }
        }
    }

    #[test]
    fn a_refused_commit_undoes_its_snapshots() {
        let store = store();
        drop(store.append_many("a", ["x", "y"]).unwrap());
        let mut commit = Commit::new();
        commit.snapshot("a", "no").snapshot("b", "no").snapshot("a", "no").snapshot("b", "no").trim("a", 99);
        assert!(matches!(store.commit(&commit), Err(Error::OutOfRange { .. })));
        assert_eq!(store.bounds_appended("a").unwrap(), Some(Bounds { first: 0, next: 2 }));
        assert_eq!(store.bounds_appended("b").unwrap(), None);
        store.snapshot("a", "yes").unwrap().wait().unwrap();
        assert_eq!(pairs(store.read("a", ..).unwrap()), [(2, b"yes".to_vec())]);
        assert!(!store.exists("b").unwrap());
    }
}
