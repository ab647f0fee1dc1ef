//! Walks so long that a thread reads ahead.

use crate::common::small::noise;
use crate::common::{contents, walked};
use crate::fork::in_child;

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{MemVolume, Rng};
use brooklet::{Error, Options, Store, View, WalkItem};

const RUNS: u64 = 4;
const LOGS: u64 = 600;

fn options() -> Options {
    Options::new().ring_size(1 << 20).max_payload(64 << 10).rng_seed(3)
}

/// Makes some MiB of logs in several runs: short logs in all of them, long ones in one, deleted
/// ones, and logs of another prefix after them.
fn fill(store: &Store) {
    let mut rng = Rng::new(1);
    for run in 0..RUNS {
        for log in 0..LOGS {
            let key = format!("log/{log:03}");
            drop(store.append(&key, noise(&mut rng, 500 + (log as usize * 7) % 900)).unwrap());
            if log % 50 == run {
                let long = (0..20).map(|_| noise(&mut rng, 9_000)).collect::<Vec<_>>();
                drop(store.append_many(&key, long).unwrap());
            }
            if log % 40 == run {
                drop(store.delete(&key).unwrap());
            }
        }
        store.append(format!("next/{run}"), "not of the prefix").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
    }
}

/// Returns a copy of a store without its threads.
fn closed(volume: &MemVolume, store: Store) -> MemVolume {
    store.close().unwrap();
    MemVolume::from_image(volume.image(), 1)
}

#[test]
fn a_walk_that_reads_ahead_returns_what_reads_return() {
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    fill(&store);
    let (view, expected) = (store.view().unwrap(), contents(&store).unwrap());
    let walks = |view: &View| {
        assert_eq!(walked(view, ""), expected);
        let logs = walked(view, "log/");
        assert!(logs.iter().eq(expected.iter().filter(|(key, _)| key.starts_with(b"log/"))));
        assert!(logs.len() < expected.len(), "the prefix leaves something out");
    };
    walks(&view);
    // One run, whose logs the thread reads without a merge.
    store.compact().unwrap();
    walks(&store.view().unwrap());
    drop(view);
    let alone = closed(&volume, store);
    let store = options().threads(false).open_on(Arc::new(alone)).unwrap();
    walks(&store.view().unwrap());
}

/// A walk that is dropped anywhere ends its thread, and gives back the space of its view.
#[test]
fn a_walk_may_end_anywhere() {
    let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    fill(&store);
    for items in (0..8_000).step_by(500) {
        let taken = store.view().unwrap().walk("").unwrap().take(items).map(Result::unwrap).count();
        assert!(taken == items || items > 3_000, "{taken} of {items} items");
    }
    let used = |store: &Store| {
        let info = store.info().unwrap();
        info.size - info.heap_offset - info.heap_free
    };
    let before = used(&store);
    (0..LOGS).for_each(|log| drop(store.delete(format!("log/{log:03}"))));
    store.append("last", "").unwrap().wait().unwrap();
    store.compact().unwrap();
    store.append("last", "").unwrap().wait().unwrap();
    store.compact().unwrap();
    assert!(used(&store) < before / 4, "{} of {before} bytes are held", used(&store));
}

/// A flipped bit anywhere in a run: the walk returns what comes before, then the error.
#[test]
fn damage_ends_a_walk_that_reads_ahead() {
    let volume = MemVolume::new(1);
    // No thread merges the runs meanwhile.
    let store = options().threads(false).create_on(Arc::new(volume.clone())).unwrap();
    fill(&store);
    let expected: Vec<WalkItem> = store.view().unwrap().walk("").unwrap().map(Result::unwrap).collect();
    let run = store.info().unwrap().runs[1];
    let image = closed(&volume, store).image();
    let mut late = 0;
    for at in (run.offset..run.offset + run.bytes).step_by(150_000) {
        let volume = MemVolume::from_image(image.clone(), 1);
        volume.flip(at as usize + 5, 2);
        let store = options().open_on(Arc::new(volume)).unwrap();
        let view = store.view().unwrap();
        let walk = match view.walk("") {
            Ok(walk) => walk,
            Err(error) => {
                assert!(matches!(error, Error::Damaged { .. }), "byte {at}: {error}");
                continue;
            }
        };
        let (mut items, mut damage) = (0, false);
        for (item, expected) in walk.zip(&expected) {
            assert!(!damage, "byte {at}: an error ends it");
            match item {
                Ok(item) => assert!(item == *expected, "byte {at}: item {items} is another"),
                Err(error) => damage = matches!(error, Error::Damaged { .. }),
            }
            items += 1;
        }
        late += u32::from(damage && items > 2_000);
        assert!(damage || items == expected.len(), "byte {at}");
        let salvaged = view.salvage("").unwrap().filter(Result::is_ok).count();
        assert!(salvaged + 300 > expected.len(), "byte {at}: {salvaged} of {}", expected.len());
    }
    assert!(late > 1, "the thread met the damage");
}

/// A child of a fork does not wait for the thread, which only its parent has.
#[test]
fn a_child_drops_a_walk_that_reads_ahead() {
    let dir = tempfile::tempdir().unwrap();
    let store = options().linger(Duration::from_secs(60)).open(dir.path().join("store")).unwrap();
    fill(&store);
    let mut walk = Some(store.view().unwrap().walk("").unwrap());
    let begun = walk.as_mut().unwrap().by_ref().take(3_000).filter(Result::is_ok).count();
    assert_eq!(begun, 3_000);
    let said = in_child(|| {
        let mut walk = walk.take().unwrap();
        let next = walk.next();
        drop(walk);
        format!("{}", matches!(next, Some(Err(Error::Forked))))
    });
    assert_eq!(said, "true", "the walk is of another process");
    assert!(walk.unwrap().all(|item| item.is_ok()), "the parent goes on");
}
