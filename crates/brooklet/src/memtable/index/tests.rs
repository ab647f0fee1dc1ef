use std::collections::BTreeMap;

use brooklet_io::Rng;

use super::*;

/// A number of steps or logs, less under miri.
const fn some(count: usize) -> usize {
    if cfg!(miri) { count / 32 } else { count }
}

impl Index {
    /// Checks that every entry is found, and that the places agree with the segments.
    fn check(&self) {
        let count = self.places.len();
        assert!(count <= 1 || count.is_power_of_two());
        let mut entries = 0;
        for (place, segment) in self.places.iter().enumerate() {
            let Some(segment) = segment else { continue };
            let own = count >> segment.depth;
            assert!(place % own == 0 && self.places[place + 1..place + own].iter().all(Option::is_none));
            for entry in &segment.table {
                assert_eq!(self.place(entry.half), place);
                let hash = u64::from(entry.half) << 32;
                assert_eq!(self.find(hash, |slot| slot == entry.slot), Some(entry.slot));
            }
            entries += segment.table.len();
        }
        assert_eq!(entries, self.len);
    }
}

/// Hashes for a model: some good, some with few values, some with equal upper or lower halves.
fn hash(rng: &mut Rng, kind: u64) -> u64 {
    let any = rng.next();
    match kind {
        0 => any,
        1 => any % 40,
        2 => (any % 40) << 32,
        3 => any >> 12,
        4 => any << 20 & !0 << 40,
        _ => 0x1234_5678_9abc_def0,
    }
}

#[test]
fn the_index_is_a_multimap_whatever_the_hashes_are() {
    for kind in 0..6 {
        let mut rng = Rng::new(kind);
        let (mut index, mut model) = (Index::default(), BTreeMap::new());
        let (mut entries, mut next): (Vec<(u64, Slot)>, Slot) = (Vec::new(), 0);
        for step in 0..some(24_000) {
            // The index grows, shrinks, and grows again.
            let removes = if (step / some(8_000)) % 2 == 1 { 80 } else { 20 };
            if rng.percent(removes) && !entries.is_empty() {
                let (hash, slot) = entries.swap_remove(rng.below(entries.len() as u64) as usize);
                index.remove(hash, slot);
                model.remove(&(hash, slot));
                assert_eq!(index.find(hash, |other| other == slot), None);
            } else {
                let hash = hash(&mut rng, kind);
                index.add(hash, next);
                model.insert((hash, next), ());
                entries.push((hash, next));
                assert_eq!(index.find(hash, |other| other == next), Some(next));
                next += 1;
            }
            assert_eq!(index.len(), model.len());
            if step % some(4000) == 0 {
                index.check();
            }
        }
        index.check();
        for &(hash, slot) in model.keys() {
            let mut asked = Vec::new();
            let found = index.find(hash, |other| {
                asked.push(other);
                other == slot
            });
            assert_eq!(found, Some(slot));
            asked.sort_unstable();
            asked.dedup_by(|a, b| a == b && panic!("slot {a} is there twice"));
        }
        assert_eq!(index.find(rng.next(), |_| false), None);
        for (hash, slot) in entries {
            index.remove(hash, slot);
        }
        index.check();
        assert_eq!(index.len(), 0);
    }
}

#[test]
fn no_new_log_moves_more_than_a_segment() {
    let (mut index, mut rng) = (Index::default(), Rng::new(1));
    let (mut moves, mut all) = (0, 0);
    for slot in 0..if cfg!(miri) { FULL + 100 } else { 300_000 } {
        let moved = index.add(rng.next(), slot as Slot);
        assert!(moved <= FULL, "log {slot} moved {moved} entries");
        moves = moves.max(moved);
        all += moved;
    }
    index.check();
    assert_eq!(moves, FULL, "segments split when they are full");
    assert!(all <= 2 * index.len(), "each entry moves once or twice: {all}");
    let segments = index.places.iter().flatten().count();
    assert!(index.len() / segments > FULL / 3, "{segments} segments");
}

#[test]
fn equal_hashes_end_in_a_long_segment_and_a_short_directory() {
    let (mut index, logs) = (Index::default(), some(2 * FULL) as Slot);
    for slot in 0..logs {
        index.add(u64::MAX, slot);
    }
    index.check();
    assert!(index.places.len() <= 8);
    for slot in 0..logs {
        assert_eq!(index.find(u64::MAX, |other| other == slot), Some(slot));
    }
    // Two hashes that differ in their last bit need no directory that tells them apart.
    let (mut index, mut rng) = (Index::default(), Rng::new(2));
    for slot in 0..logs {
        index.add(u64::MAX << 33 | rng.below(2) << 32, slot);
    }
    index.check();
    assert!(index.places.len() <= 8);
}

#[test]
fn an_empty_index_has_no_memory_and_a_small_one_little() {
    let mut index = Index::default();
    assert_eq!(index.places.capacity(), 0);
    assert_eq!(index.find(1, |_| true), None);
    for slot in 0..7 {
        index.add(u64::from(slot) << 32, slot);
    }
    assert_eq!((index.places.len(), index.len()), (1, 7));
    let bytes = index.segment(0).table.allocation_size();
    assert!(bytes <= 128, "{bytes} bytes");
    assert!(index.release_some().is_some() && index.release_some().is_none());
}

#[test]
fn removed_entries_leave_room_for_others() {
    let (mut index, mut rng) = (Index::default(), Rng::new(3));
    let mut hashes = std::collections::VecDeque::new();
    for slot in 0..some(300_000) as Slot {
        let hash = rng.next();
        hashes.push_back((hash, slot));
        assert!(index.add(hash, slot) <= FULL);
        if hashes.len() > some(2 * FULL) {
            let (hash, slot) = hashes.pop_front().unwrap();
            index.remove(hash, slot);
        }
    }
    index.check();
    assert!(index.places.len() <= 8, "{} places", index.places.len());
}
