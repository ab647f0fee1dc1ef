//! Listing from a place on: what it lists, from all tiers, and that it does not read what comes
//! before.

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Class, LogInfo, Logs, MemoryConfig, Options, SpaceConfig, Store};

fn store(volume: &MemVolume) -> Store {
    let options = Options::new().ring_size(1 << 20).max_payload(16 << 10).threads(false);
    options.clock(Arc::new(ManualClock::default())).rng_seed(7).create_on(Arc::new(volume.clone())).unwrap()
}

fn all(logs: Logs) -> Vec<LogInfo> {
    logs.collect::<Result<_, _>>().unwrap()
}

/// Few letters, so that keys are prefixes of each other, and those that are written apart in runs.
fn key(rng: &mut Rng) -> Vec<u8> {
    let start: &[u8] = if rng.percent(30) { b"m/" } else { b"" };
    let letters = (0..1 + rng.below(4)).map(|_| b"\0\x01a\xff"[rng.below(4) as usize]);
    start.iter().copied().chain(letters).collect()
}

#[test]
fn a_listing_goes_on_from_any_place_in_all_tiers() {
    for seed in 0..30 {
        let (store, mut rng) = (store(&MemVolume::new(seed)), Rng::new(seed));
        let config = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
        let space = (seed % 2 == 1).then(|| store.create_space("m", config).unwrap());
        for n in 0..200 {
            let key = key(&mut rng);
            match rng.below(10) {
                // There may be no such log.
                0 => drop(store.delete(&key)),
                // Of more than one chunk, now and then.
                _ => drop(store.append(&key, vec![7; if n % 20 == 0 { 9000 } else { 20 }]).unwrap()),
            }
            match rng.below(30) {
                0 => store.checkpoint().unwrap(),
                1 => drop(space.as_ref().map(|space| space.dump().unwrap())),
                _ => {}
            }
        }
        store.flush().unwrap();
        for _ in 0..200 {
            let (mut prefix, from) = (key(&mut rng), key(&mut rng));
            prefix.truncate(rng.below(4) as usize);
            let mut wanted = all(store.scan(&prefix).unwrap());
            wanted.retain(|log| log.key >= from);
            assert_eq!(all(store.scan_from(&prefix, &from).unwrap()), wanted, "{prefix:?} from {from:?}");
        }
        if let Some(space) = space {
            let (listed, from) = (all(space.scan("").unwrap()), b"a");
            let wanted: Vec<_> = listed.into_iter().filter(|log| log.key[..] >= from[..]).collect();
            assert_eq!(all(space.scan_from("", from).unwrap()), wanted);
            assert!(!wanted.is_empty());
        }
    }
}

/// Damage in what comes before is never met, so it is not read.
#[test]
fn what_comes_before_is_passed_by() {
    let volume = MemVolume::new(1);
    let (store, mut rng) = (store(&volume), Rng::new(1));
    for n in 0..100 {
        let noise: Vec<u8> = (0..4000).map(|_| rng.below(256) as u8).collect();
        drop(store.append(format!("log/{n:02}"), noise).unwrap());
    }
    store.checkpoint().unwrap();
    let run = store.info().unwrap().runs[0];
    for at in (1000..100_000).step_by(500) {
        volume.flip(run.offset as usize + at, 1);
    }
    let keys: Vec<_> =
        all(store.scan_from("log/", "log/90").unwrap()).into_iter().map(|log| log.key).collect();
    assert_eq!((keys.len(), &keys[0][..]), (10, &b"log/90"[..]));
    assert!(store.scan("log/").and_then(|logs| logs.collect::<Result<Vec<_>, _>>()).is_err());
}
