//! Compares the bounds cache with a plain map, and with the runs of stores that do all kinds of
//! work.

use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet_io::{Fault, ManualClock, MemVolume, Rng};
use proptest::prelude::*;

use super::*;
use crate::{Commit, Options, Store};

fn key(n: u64) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

fn set(table: &mut BoundsCache, key: &[u8], bounds: Option<Bounds>) {
    table.set(table.secret().hash(key), bounds);
}

proptest! {
    /// Returned bounds are the bounds that were set last, and a set returns at most as many logs as
    /// it holds.
    #[test]
    fn what_is_told_was_set_last(
        budget in prop_oneof![Just(0), Just(SET), Just(3 * SET), Just(1 << 14), Just(5 * SHARD)],
        sets: Vec<(u8, Option<(u16, u32)>)>,
    ) {
        let mut table = BoundsCache::new(Secret::of_seed(7), budget);
        let mut model = BTreeMap::new();
        for (n, bounds) in sets {
            let bounds = bounds.map(|(len, next)| Bounds { first: u64::from(next.saturating_sub(len.into())), next: next.into() });
            set(&mut table, &key(n.into()), bounds);
            model.insert(n, bounds);
            for (&n, &bounds) in &model {
                let told = table.get(&key(n.into()));
                prop_assert!(told.is_none() || told == bounds, "{n}: {told:?}, {bounds:?}");
            }
            let fits = bounds.filter(|bounds| bounds.next < (1 << NUMBER) - 1 && budget > 0);
            prop_assert_eq!(table.get(&key(n.into())), fits, "what was set last is there");
            prop_assert!(table.bytes() <= budget);
        }
    }
}

/// No log is evicted while there is room. Without room, the logs that were set last stay, and the
/// counts stay correct.
#[test]
fn all_are_remembered_while_there_is_room_and_then_the_newest() {
    let mut table = BoundsCache::new(Secret::of_seed(7), 1 << 20);
    let known = |table: &mut BoundsCache, logs: std::ops::Range<u64>| {
        logs.filter(|&n| table.get(&key(n)).is_some_and(|bounds| bounds == Bounds { first: n / 2, next: n }))
            .count()
    };
    assert_eq!(table.bytes(), 0, "untouched, it takes nothing");
    for n in 0..100 {
        set(&mut table, &key(n), Some(Bounds { first: n / 2, next: n }));
    }
    assert!(table.bytes() <= 16 * SET * 2 && known(&mut table, 0..100) == 100, "{}", table.bytes());
    for n in 100..30_000 {
        set(&mut table, &key(n), Some(Bounds { first: n / 2, next: n }));
    }
    let count = known(&mut table, 0..30_000);
    assert!(count > 29_900 && table.bytes() <= 1 << 20, "{count} of 30000 in {} bytes", table.bytes());
    for n in 30_000..1_000_000 {
        set(&mut table, &key(n), Some(Bounds { first: n / 2, next: n }));
    }
    assert_eq!(table.bytes(), 1 << 20);
    assert!(known(&mut table, 980_000..1_000_000) > 19_000);
    let count = known(&mut table, 0..1_000_000);
    assert!((60_000..=(1 << 20) / 16).contains(&count), "{count}");
    assert_eq!(table.shards.iter().map(|shard| shard.logs).sum::<usize>(), count);
    (0..1_000_000).for_each(|n| set(&mut table, &key(n), None));
    assert_eq!(
        (known(&mut table, 0..1_000_000), table.shards.iter().map(|shard| shard.logs).sum::<usize>()),
        (0, 0)
    );
}

/// Keys with equal hashes under one secret have different hashes under another secret. Without the
/// secret, nobody can choose such keys.
#[test]
fn keys_chosen_for_one_secret_are_nothing_to_another() {
    let place = |table: &BoundsCache, n: u64| {
        let (shard, tag) = table.find(table.secret().hash(&key(n)));
        (shard, tag >> 64)
    };
    let tables = [1, 2].map(|seed| BoundsCache::new(Secret::of_seed(seed), 1 << 20));
    let mut seen = BTreeMap::new();
    let mut chosen = Vec::new();
    // Of the 80 bits that must be equal, 16 are equal in this many keys. The same argument holds
    // for all 80 bits.
    for n in 0..30_000 {
        if let Some(other) = seen.insert(place(&tables[0], n), n) {
            chosen.push((n, other));
        }
    }
    assert!(chosen.len() > 100, "{}", chosen.len());
    let again = chosen.iter().filter(|(a, b)| place(&tables[1], *a) == place(&tables[1], *b)).count();
    assert!(again <= 2, "{again} of {}", chosen.len());
}

/// A few logs, so few that each is used many times.
const LOGS: u64 = 24;

fn name(n: u64) -> String {
    format!("log/{n}")
}

/// Checks that each cached log has its bounds of the runs, unless the frozen memtable has newer
/// bounds until its run is complete. Returns the number of cached logs.
fn compare(store: &Store) -> u64 {
    let mut state = store.inner().state();
    let runs = state.runs.clone();
    let mut known = 0;
    for n in 0..LOGS {
        let name = name(n);
        let name = name.as_bytes();
        let is_newer = state.frozen.as_ref().is_some_and(|memtable| {
            memtable.find(name).is_some_and(|slot| memtable.log(slot).piece().is_some())
        });
        if let Some(bounds) = state.bounds_cache.get(name).filter(|_| !is_newer) {
            assert_eq!(runs.state(name).unwrap().bounds, Some(bounds), "log {n}");
            known += 1;
        }
    }
    known
}

/// Does one operation of a caller; the store may refuse it.
fn act(store: &Store, rng: &mut Rng) {
    let log = name(rng.below(LOGS));
    match rng.below(24) {
        0..8 => drop(store.append(&log, b"entry")),
        8 => drop(store.trim(&log, rng.below(6))),
        9 => drop(store.delete(&log)),
        10 => drop(store.truncate(&log, rng.below(6))),
        11 => drop(store.snapshot(&log, b"snapshot")),
        12 => {
            // This commit is refused after it has changed the appended state.
            let mut commit = Commit::new();
            commit.append(&log, b"entry").delete("none");
            drop(store.commit(&commit));
        }
        13 => drop(store.bounds(&log)),
        14 | 15 => drop(store.checkpoint()),
        16 => drop(store.compact()),
        17 => drop(store.flush()),
        _ => drop(store.step()),
    }
}

fn options(seed: u64, places: u64) -> Options {
    let clock = Arc::new(ManualClock::default());
    let options =
        Options::new().ring_size(64 << 10).memory_budget(64 << 10).max_payload(8 << 10).threads(false);
    options.bounds_cache(places as usize * SET).clock(clock).rng_seed(seed)
}

#[test]
fn what_is_remembered_is_what_the_runs_say() {
    let mut known = 0;
    for seed in 0..60 {
        let rng = &mut Rng::new(seed);
        let volume = Arc::new(MemVolume::new(seed));
        // Room for one set, for two sets, or for all logs.
        let places = [1, 2, 64][rng.below(3) as usize];
        let mut store = options(seed, places).create_on(volume.clone()).unwrap();
        for _ in 0..300 {
            if rng.below(60) == 0 {
                if rng.percent(50) {
                    store.close().unwrap();
                    drop(store);
                } else {
                    store.abandon();
                }
                store = options(seed + rng.below(9), places).open_on(volume.clone()).unwrap();
                assert_eq!(compare(&store), 0, "nothing is remembered from before");
            }
            act(&store, rng);
            known += compare(&store);
        }
    }
    assert!(known > 10_000, "{known}");
}

/// A checkpoint finds no room several times, and succeeds at last.
#[test]
fn a_checkpoint_that_fails_leaves_nothing_wrong_behind() {
    let mut failed = 0;
    for seed in 0..10 {
        let rng = &mut Rng::new(seed);
        let volume = Arc::new(MemVolume::new(seed));
        let ring = Arc::new(MemVolume::new(seed));
        let store = options(seed, 64).create_on_with_ring(volume.clone(), ring).unwrap();
        for round in 0..10 {
            for _ in 0..30 {
                act(&store, rng);
                compare(&store);
            }
            for _ in 0..30 {
                act(&store, rng);
                store.flush().unwrap();
                let kind = std::io::ErrorKind::StorageFull;
                volume.fail(Fault::ErrorAfter { operations: 0, kind, sticky: false });
                failed += u64::from(store.checkpoint().is_err());
                volume.fail(Fault::Full(u64::MAX));
                compare(&store);
            }
            volume.fail(Fault::Full(u64::MAX));
            store.checkpoint().unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
            compare(&store);
        }
    }
    assert!(failed > 20, "{failed}");
}
