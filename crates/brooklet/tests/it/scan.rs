//! Listing from a place on: what it lists, from all tiers, and that it does not read what comes
//! before.

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Class, Error, LogInfo, Logs, MemoryConfig, Options, SpaceConfig, Store};

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

/// In an earlier state, a caller of pages never met the damage: a listing reports it at its end.
#[test]
fn a_page_reports_the_damage_within_it() {
    let volume = MemVolume::new(1);
    let (store, mut rng) = (store(&volume), Rng::new(1));
    let space = store.create_space("log", SpaceConfig::new()).unwrap();
    for n in 0..200 {
        let noise: Vec<u8> = (0..2000).map(|_| rng.below(256) as u8).collect();
        drop(space.append(format!("{n:03}"), noise).unwrap());
    }
    store.checkpoint().unwrap();
    let run = store.info().unwrap().runs[0];
    volume.flip((run.offset + run.bytes / 2) as usize, 1);
    let certain: Vec<_> = space.scan("").unwrap().filter_map(|log| Some(log.ok()?.key)).collect();
    assert!((150..200).contains(&certain.len()), "{} logs can be read", certain.len());
    let of_store: Vec<_> = certain.iter().map(|key| [b"log/", &key[..]].concat()).collect();
    for (of_space, limit) in [(true, 1), (true, 7), (true, 150), (false, 1), (false, 150)] {
        let (mut keys, mut reports, mut from) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            let logs = if of_space { space.scan_from("", &from) } else { store.scan_from("log/", &from) };
            let mut logs = logs.unwrap();
            let page: Vec<_> = logs.by_ref().take(limit).collect::<Result<_, _>>().unwrap();
            reports.extend(logs.take_damage());
            assert!(logs.take_damage().is_none(), "it is returned once");
            let Some(last) = page.last() else { break };
            from = [&last.key[..], b"\0"].concat();
            keys.extend(page.into_iter().map(|log| log.key));
        }
        assert_eq!(keys, if of_space { certain.clone() } else { of_store.clone() }, "{limit} a page");
        let [Error::Damaged { what, .. }] = &reports[..] else { panic!("{limit} a page: {reports:?}") };
        assert!(what.contains("may be missing"), "{what}");
    }
    // A listing whose damage was returned ends without it.
    let mut logs = space.scan("").unwrap();
    assert_eq!(logs.by_ref().take(150).filter(Result::is_ok).count(), 150);
    assert!(logs.take_damage().is_some());
    assert!(logs.all(|log| log.is_ok()));
}

/// The other run has logs within the range of the damage. Each page begins at another place of it.
#[test]
fn pages_of_two_runs_report_the_damage_of_one() {
    for damaged in [0, 1] {
        let volume = MemVolume::new(1);
        let (store, mut rng) = (store(&volume), Rng::new(1));
        for part in 0..2 {
            for n in (part..300).step_by(2) {
                let noise: Vec<u8> = (0..2000).map(|_| rng.below(256) as u8).collect();
                drop(store.append(format!("log/{n:03}"), noise).unwrap());
            }
            store.checkpoint().unwrap();
        }
        let runs = store.info().unwrap().runs;
        assert_eq!(runs.len(), 2);
        volume.flip((runs[damaged].offset + runs[damaged].bytes / 2) as usize, 1);
        let certain: Vec<_> = store.scan("log/").unwrap().filter_map(|log| Some(log.ok()?.key)).collect();
        assert!((200..300).contains(&certain.len()), "{} logs can be read", certain.len());
        for limit in [1, 2, 7] {
            let (mut keys, mut reports, mut from) = (Vec::new(), Vec::new(), Vec::new());
            loop {
                let mut logs = store.scan_from("log/", &from).unwrap();
                let page: Vec<_> = logs.by_ref().take(limit).collect::<Result<_, _>>().unwrap();
                reports.push(logs.take_damage().is_some());
                let Some(last) = page.last() else { break };
                from = [&last.key[..], b"\0"].concat();
                keys.extend(page.into_iter().map(|log| log.key));
            }
            assert_eq!(keys, certain, "run {damaged}, {limit} a page");
            assert!(reports.contains(&true), "run {damaged}, {limit} a page");
            assert_eq!((reports.first(), reports.last()), (Some(&false), Some(&false)));
        }
    }
}
