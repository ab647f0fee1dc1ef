//! The ring of a new store is small, and grows under load; and the device is measured once.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use brooklet::io::{Counts, Fault, FileOptions, FileVolume, MemVolume, OpenMode, Rng, Volume};
use brooklet::{Commit, Error, ErrorKind, Options, Store};

use crate::common::contents;
use crate::common::small::{check, noise, options};

const KIB: u64 = 1 << 10;

/// Options of a store whose ring grows from 64 KiB to 1 MiB.
fn growing() -> Options {
    options().ring_size(1024 * KIB).with_first_ring(64 * KIB).memory_budget(4 << 20).max_payload(300 << 10)
}

fn in_use(store: &Store) -> u64 {
    store.info().unwrap().ring_in_use
}

#[test]
fn a_new_store_takes_little_of_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    for apart in [false, true] {
        let (data, ring) =
            (dir.path().join(format!("data-{apart}")), dir.path().join(format!("ring-{apart}")));
        let options = if apart { Options::new().ring_at(&ring) } else { Options::new() };
        let store = options.open(&data).unwrap();
        store.append("log", b"entry").unwrap().wait().unwrap();
        let files = [Some(&data), apart.then_some(&ring)].into_iter().flatten();
        let taken: u64 = files.map(|file| file.metadata().unwrap().blocks() * 512).sum();
        let info = store.info().unwrap();
        assert_eq!((info.ring_size, info.ring_in_use), (64 << 20, 4 << 20));
        // A file system that has no holes keeps the whole ring.
        let has_holes = !info.volume.fallbacks.iter().any(|why| why.contains("does not take back space"));
        assert!(taken <= 8 << 20 || !has_holes, "{taken} bytes");
        store.close().unwrap();
    }
}

/// Three copies of the superblock, a flush of earlier writes and a sync of the folder: no opening
/// after the first measures the device again.
#[test]
fn an_opening_after_a_clean_close_costs_its_promises_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    Options::new().open(&path).unwrap().close().unwrap();
    for _ in 0..2 {
        let volume = FileVolume::open(&path, OpenMode::ReadWrite, FileOptions::default()).unwrap();
        let volume: Arc<dyn Volume> = Arc::new(volume);
        let store = Options::new().threads(false).open_on(volume.clone()).unwrap();
        let Counts { durable_writes, flushes, .. } = volume.counts();
        assert!(durable_writes + flushes <= 4, "{durable_writes} durable writes, {flushes} flushes");
        store.append("log", b"entry").unwrap().wait().unwrap();
        store.close().unwrap();
    }
}

#[test]
fn the_ring_grows_under_load_and_keeps_every_commit() {
    let volume = MemVolume::new(1);
    let mut store = growing().create_on(Arc::new(volume.clone())).unwrap();
    let mut rng = Rng::new(7);
    let (mut sizes, mut expected) = (vec![in_use(&store)], Vec::new());
    while in_use(&store) < 1024 * KIB {
        let payload = noise(&mut rng, 3000);
        store.append("log", &payload).unwrap().wait().unwrap();
        expected.push(payload);
        store.step().unwrap();
        if sizes.last() != Some(&in_use(&store)) {
            sizes.push(in_use(&store));
            // A killed process; the next opening goes by the new map.
            std::mem::forget(store);
            store = growing().open_on(Arc::new(MemVolume::from_image(volume.image(), 2))).unwrap();
            let found: Vec<_> =
                store.read("log", ..).unwrap().map(|it| it.unwrap().payload.to_vec()).collect();
            assert_eq!(found, expected, "{sizes:?}");
            drop(store);
            store = growing().open_on(Arc::new(volume.clone())).unwrap();
        }
        assert!(expected.len() < 1000, "{sizes:?}");
    }
    assert_eq!(sizes, [64, 128, 256, 512, 1024].map(|size| size * KIB));
    assert_eq!(store.info().unwrap().maintenance.checkpoints, 0, "growing comes before a checkpoint");
    store.close().unwrap();
    check(&volume);
}

/// The device loses power after each operation of a growth in turn.
#[test]
fn a_crash_while_the_ring_grows_loses_nothing() {
    let mut grown = 0;
    for after in 0.. {
        let volume = MemVolume::new(after);
        let store = growing().create_on(Arc::new(volume.clone())).unwrap();
        let mut rng = Rng::new(after);
        let mut expected = Vec::new();
        // The blocks wrap around in the small ring, and fill more than half of it.
        for n in 0..16 {
            let payload = noise(&mut rng, 3000);
            store.append("log", &payload).unwrap().wait().unwrap();
            expected.push(payload);
            if n == 6 {
                store.checkpoint().unwrap();
            }
        }
        assert_eq!(in_use(&store), 64 * KIB);
        volume.fail(Fault::PowerOffAfter(after));
        let off = (0..20).any(|_| store.step().is_err());
        let acked = expected.len();
        drop(store);
        for _ in 0..4 {
            let image = MemVolume::from_image(volume.crash(), 1);
            let store = growing().open_on(Arc::new(image.clone())).unwrap();
            let found: Vec<_> =
                store.read("log", ..).unwrap().map(|it| it.unwrap().payload.to_vec()).collect();
            assert!(found.len() >= acked, "{after}: {} of {acked}", found.len());
            assert_eq!(found[..acked], expected[..]);
            grown += u64::from(in_use(&store) > 64 * KIB);
            store.append("log", b"more").unwrap().wait().unwrap();
            store.close().unwrap();
            check(&image);
        }
        if !off {
            break;
        }
    }
    assert!(grown > 0);
}

#[test]
fn a_commit_that_needs_a_larger_ring_gets_one() {
    let store = growing().create_on(Arc::new(MemVolume::new(1))).unwrap();
    let payload = noise(&mut Rng::new(1), 250 << 10);
    let mut commit = Commit::new();
    commit.append("log", &payload);
    assert_eq!(store.try_commit(&commit).unwrap_err().kind(), ErrorKind::Busy);
    assert!(store.step().unwrap());
    store.try_commit(&commit).unwrap().wait().unwrap();
    assert_eq!(in_use(&store), 1024 * KIB);
    let other = growing().create_on(Arc::new(MemVolume::new(2))).unwrap();
    other.append("log", &payload).unwrap().wait().unwrap();
    assert_eq!(contents(&other).unwrap(), contents(&store).unwrap());
    let mut large = Commit::new();
    large.append("log", &payload).append("log", &payload);
    let Err(Error::CommitTooLarge { limit, .. }) = store.commit(&large) else { panic!("it is too large") };
    assert!(limit > 300 << 10, "the limit is that of the full ring: {limit}");
}

/// Blocks of the ring before its last growth bar another growth, until a checkpoint frees them.
#[test]
fn a_commit_that_does_not_wait_gets_a_larger_ring_after_a_checkpoint() {
    let store = growing().create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut rng = Rng::new(5);
    for n in 0..40 {
        store.append("log", noise(&mut rng, 3000)).unwrap().wait().unwrap();
        if n == 6 {
            store.checkpoint().unwrap();
        }
        if n > 6 {
            store.step().unwrap();
        }
        if in_use(&store) > 64 * KIB {
            break;
        }
    }
    assert_eq!(in_use(&store), 128 * KIB);
    let payload = noise(&mut rng, 250 << 10);
    let mut commit = Commit::new();
    commit.append("log", &payload);
    let mut tries = 0;
    let ticket = loop {
        match store.try_commit(&commit) {
            Ok(ticket) => break ticket,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
        }
        tries += 1;
        assert!(tries < 100);
        store.step().unwrap();
    };
    ticket.wait().unwrap();
    assert!(store.info().unwrap().maintenance.checkpoints > 1, "the ring had two spans");
    assert_eq!(in_use(&store), 1024 * KIB);
}

/// In the old state the ring kept its size, and a running checkpoint went on, whose tables the
/// failed flush may have lost.
#[test]
fn a_flush_that_fails_for_lack_of_room_stops_the_store() {
    let volume = MemVolume::new(1);
    let store = growing().create_on(Arc::new(volume.clone())).unwrap();
    volume.fail(Fault::FlushErrorAfter { flushes: 0, kind: std::io::ErrorKind::StorageFull, sticky: false });
    let mut rng = Rng::new(3);
    let mut append = || store.append("log", noise(&mut rng, 3000))?.wait().and_then(|()| store.step());
    let refused = (0..40).find_map(|_| append().err()).expect("the ring grows");
    assert_eq!(refused.kind(), ErrorKind::Stopped, "{refused}");
    assert_eq!(in_use(&store), 64 * KIB);
}

/// There is no room for a larger ring: the small one serves, and large commits are refused.
#[test]
fn a_full_disk_keeps_the_ring_small() {
    let volume = MemVolume::new(1);
    let store = growing().memory_budget(64 << 10).create_on(Arc::new(volume.clone())).unwrap();
    volume.fail(Fault::Full(volume.taken() + 600 * KIB));
    let mut rng = Rng::new(3);
    for round in 0..400u64 {
        let key = format!("log/{}", round % 7);
        store.snapshot(&key, noise(&mut rng, 2000)).unwrap().wait().unwrap();
        store.step().unwrap();
    }
    let info = store.info().unwrap();
    assert!(info.ring_in_use < 1024 * KIB && info.maintenance.checkpoints > 1, "{}", info.ring_in_use);
    let refused = store.append("log", noise(&mut rng, 280 << 10)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    assert!(refused.to_string().contains("the larger ring that this commit needs"), "{refused}");
    let mut large = Commit::new();
    let payload = noise(&mut rng, 280 << 10);
    large.append("log", &payload);
    let refused = store.try_commit(&large).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    (0..7).for_each(|log| store.delete(format!("log/{log}")).unwrap().wait().unwrap());
    store.close().unwrap();
    check(&volume);
}

/// The new ring is not twice as large, and the blocks in the old one lie around its end: the new
/// one would have no room for the commit.
#[test]
fn a_commit_waits_for_the_checkpoint_that_lets_the_ring_grow() {
    for live in 0..12 {
        let volume = MemVolume::new(1);
        let options = growing().ring_size(96 * KIB).max_payload(24 << 10);
        let store = options.create_on(Arc::new(volume.clone())).unwrap();
        let mut rng = Rng::new(7);
        let mut append =
            |key: &str, len: usize| store.append(key, noise(&mut rng, len)).unwrap().wait().unwrap();
        (0..6).for_each(|_| append("log", 5_000));
        store.checkpoint().unwrap();
        (0..live).for_each(|_| append("log", 4_000));
        append("large", 20_000);
        assert_eq!((in_use(&store), store.bounds("large").unwrap().next), (96 * KIB, 1), "{live}");
        store.close().unwrap();
        check(&volume);
    }
}
