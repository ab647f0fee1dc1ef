//! Copies of a store: what a view shows, in a store of its own, or no store at all.

use crate::common;

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use brooklet::codex::{Bytes, Source};
use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Create, Error, Options, Progress, Retention, Store, View};
use common::{contents, elsewhere, seen};

fn options(seed: u64) -> Options {
    let clock = Arc::new(ManualClock::default());
    clock.set_wall(Duration::from_secs(1000));
    let options = Options::new().ring_size(256 << 10).memory_budget(64 << 10).max_payload(9 << 10);
    options.threads(false).clock(clock).rng_seed(seed)
}

/// A store with some runs, in the midst of a merge where chance has it so.
fn store(seed: u64) -> Store {
    let store = options(seed).create_on(Arc::new(MemVolume::new(seed))).unwrap();
    let mut rng = Rng::new(seed);
    let count = rng.below(400);
    work(&store, &mut rng, count);
    store
}

fn work(store: &Store, rng: &mut Rng, count: u64) {
    for _ in 0..count {
        let key = format!("log/{}", rng.below(30));
        let payload: Vec<u8> = (0..rng.below(3000)).map(|_| rng.next() as u8).collect();
        let ticket = match rng.below(12) {
            0 => store.snapshot(&key, payload),
            1 if store.exists(&key).unwrap() => store.delete(&key),
            2 => store.set_retention(&key, Retention::new().entries(4).age(Duration::from_secs(900))),
            _ => store.append(&key, payload),
        };
        match ticket {
            Ok(ticket) => drop(ticket),
            // Its end was appended already.
            Err(Error::UnknownLog { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_copy_is_what_the_view_shows_and_goes_on() {
    let (mut empty, mut several) = (0, 0);
    for seed in 0..60 {
        let store = store(seed);
        let view = store.view().unwrap();
        let want = seen(&view);
        let limits: Vec<Retention> = want.keys().map(|key| store.retention(key).unwrap()).collect();
        empty += usize::from(want.is_empty());
        several += usize::from(view.parts().len() > 3);
        if seed % 2 == 1 {
            // Later checkpoints and merges of the store are none of the view.
            work(&store, &mut Rng::new(seed + 1000), 200);
            store.checkpoint().unwrap();
        }
        let volume = MemVolume::new(seed + 1);
        let copy = options(seed + 100).copy_on(Arc::new(volume.clone()), &view).unwrap();
        assert_ne!(copy.info().unwrap().id, store.info().unwrap().id);
        assert!(contents(&copy).unwrap() == want, "seed {seed}");
        for (key, limits) in want.keys().zip(&limits) {
            assert_eq!(copy.retention(key).unwrap(), *limits);
        }
        // It is used like any other, and so is what was made of it.
        copy.append("log/1", "more").unwrap().wait().unwrap();
        copy.append("new", "more").unwrap().wait().unwrap();
        let now = contents(&copy).unwrap();
        copy.checkpoint().unwrap();
        assert!(contents(&copy).unwrap() == now, "seed {seed}");
        copy.compact().unwrap();
        assert!(contents(&copy).unwrap() == now, "seed {seed}");
        copy.close().unwrap();
        drop(copy);
        let report = brooklet::check_volume(Arc::new(volume.clone()), Progress::ignore).unwrap();
        assert!(report.is_sound(), "seed {seed}: {:?}", report.findings);
        assert!(
            contents(&options(1).create(Create::Never).open_on(Arc::new(volume)).unwrap()).unwrap() == now
        );
        assert!(seen(&view) == want);
    }
    assert!(empty < 20 && several > 20, "{empty} {several}");
}

/// In the old state the copy of an earlier view had the counts of later checkpoints. So a run whose
/// entries were alive in the copy was freed.
#[test]
fn a_copy_counts_what_is_dead_in_its_view() {
    for by_parts in [false, true] {
        let store = options(1).create_on(Arc::new(MemVolume::new(1))).unwrap();
        for key in ["a", "b", "c"] {
            store.append(key, "payload").unwrap().wait().unwrap();
        }
        store.checkpoint().unwrap();
        let view = store.view().unwrap();
        store.delete("a").unwrap().wait().unwrap();
        store.delete("b").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
        let view = if by_parts { elsewhere(&view) } else { view };
        let volume = MemVolume::new(2);
        let copy = options(2).copy_on(Arc::new(volume.clone()), &view).unwrap();
        copy.delete("c").unwrap().wait().unwrap();
        copy.checkpoint().unwrap();
        let found = contents(&copy).unwrap();
        assert!(found.keys().map(|key| &key[..]).eq([&b"a"[..], b"b"]), "{found:?}");
        copy.close().unwrap();
        drop(copy);
        let report = brooklet::check_volume(Arc::new(volume), Progress::ignore).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
    }
}

/// In the old state the run that a view makes of commits counted no tombstones and no empty logs.
/// So the next checkpoint of a copy freed it: deleted logs came back, and numbers were given again.
#[test]
fn a_copy_keeps_the_deletes_and_trims_of_the_ring() {
    let volume = MemVolume::new(1);
    let store = options(1).create_on(Arc::new(volume.clone())).unwrap();
    for payload in ["0", "1", "2"] {
        for key in ["deleted", "empty", "other"] {
            store.append(key, payload).unwrap().wait().unwrap();
        }
    }
    store.checkpoint().unwrap();
    store.delete("deleted").unwrap().wait().unwrap();
    store.append("empty", "3").unwrap().wait().unwrap();
    store.trim("empty", 4).unwrap().wait().unwrap();
    store.abandon();
    let reader = options(2).read_only(true).open_on(Arc::new(volume)).unwrap();
    let view = reader.view().unwrap();
    let copy = options(3).copy_on(Arc::new(MemVolume::new(2)), &view).unwrap();
    for round in 0..3 {
        copy.append("other", format!("{round}")).unwrap().wait().unwrap();
        copy.checkpoint().unwrap();
        assert!(!copy.exists("deleted").unwrap(), "round {round}");
        let bounds = copy.bounds("empty").unwrap();
        assert_eq!((bounds.first, bounds.next), (4, 4), "round {round}");
    }
    assert_eq!(copy.append("empty", "4").unwrap().seq(), 4);
}

#[test]
fn files_are_there_as_a_whole_or_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = Options::new()
        .ring_size(1 << 20)
        .max_payload(9 << 10)
        .create_on(Arc::new(MemVolume::new(1)))
        .unwrap();
    let mut rng = Rng::new(7);
    for n in 0..900 {
        let noise: Vec<u8> = (0..4000).map(|_| rng.next() as u8).collect();
        drop(store.append(format!("log/{}", n % 70), noise).unwrap());
        if n % 200 == 0 {
            store.checkpoint().unwrap();
        }
    }
    let (view, path) = (store.view().unwrap(), dir.path().join("copy"));
    let bytes: u64 = view.parts().iter().map(|part| part.name().len).sum();
    let mut told = 0;
    let progress = |done: Progress| {
        assert!(done.bytes > told && done.total_bytes >= Some(done.bytes));
        told = done.bytes;
        ControlFlow::Continue(())
    };
    let copy = Options::new().copy(&path, &view, progress).unwrap();
    assert!(contents(&copy).unwrap() == seen(&view) && told >= bytes);
    drop(copy);
    let refused = Options::new().copy(&path, &view, Progress::ignore);
    assert!(matches!(refused, Err(Error::Exists { .. })));
    std::fs::remove_file(&path).unwrap();
    let cut = Options::new().copy(&path, &view, |_| ControlFlow::Break(()));
    assert!(matches!(cut, Err(Error::Cancelled { .. })));
    let small = Options::new().ring_size(1 << 20).capacity(3 << 20).max_payload(9 << 10);
    let full = small.copy(&path, &view, Progress::ignore);
    assert!(matches!(full, Err(Error::Full { .. })), "{bytes}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left over");
    // With its ring in a file of its own.
    let ring = dir.path().join("ring");
    let copy = Options::new().ring_at(&ring).copy(&path, &view, Progress::ignore).unwrap();
    assert!(contents(&copy).unwrap() == seen(&view) && ring.exists());
}

/// The power goes, and operations fail, at each step.
#[test]
fn a_copy_that_is_cut_off_is_no_store() {
    let store = store(3);
    let view = store.view().unwrap();
    let want = seen(&view);
    let (mut none, mut whole) = (0, 0);
    let error = |operations| Fault::ErrorAfter { operations, kind: io::ErrorKind::Other, sticky: false };
    for fault in [&Fault::PowerOffAfter as &dyn Fn(u64) -> Fault, &error] {
        for after in 0.. {
            let volume = MemVolume::new(after);
            volume.fail(fault(after));
            let made = options(after).copy_on(Arc::new(volume.clone()), &view).map(drop);
            let disk = Arc::new(MemVolume::from_image(volume.crash(), after));
            match options(1).create(Create::Never).open_on(disk) {
                Ok(found) => {
                    assert!(contents(&found).unwrap() == want, "after {after}");
                    whole += 1;
                }
                Err(Error::NotAStore { .. }) => {
                    assert!(made.is_err(), "after {after}");
                    none += 1;
                }
                Err(error) => panic!("after {after}: {error}"),
            }
            if made.is_ok() {
                break;
            }
        }
    }
    assert!(none > 20 && whole >= 2, "{none} {whole}");
}

#[test]
fn what_is_damaged_is_not_copied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy");
    let store = store(3);
    let view = store.view().unwrap();
    let parts: Vec<Bytes> =
        view.parts().iter().map(|part| part.read(0, part.name().len as usize).unwrap()).collect();
    let names: Vec<_> = view.parts().iter().map(|part| part.name()).collect();
    let mut refused = 0;
    for (nth, part) in parts.iter().enumerate() {
        for at in (0..part.len()).step_by(part.len() / 40) {
            let open = |name| {
                let of = names.iter().position(|known| *known == name).unwrap();
                let mut data = parts[of].to_vec();
                if of == nth {
                    data[at] ^= 8;
                }
                Ok(Arc::new(Bytes::from(data)) as Arc<dyn Source>)
            };
            let Ok(damaged) = View::from_parts(&view.table(), 1 << 20, open) else { continue };
            let copied = options(1).copy_on(Arc::new(MemVolume::new(1)), &damaged).map(drop);
            assert!(matches!(copied, Err(Error::Damaged { .. })), "part {nth}, byte {at}");
            let small = Options::new().ring_size(1 << 20).max_payload(9 << 10);
            let copied = small.copy(&path, &damaged, Progress::ignore).map(drop);
            assert!(matches!(copied, Err(Error::Damaged { .. })), "part {nth}, byte {at}");
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left over");
}
