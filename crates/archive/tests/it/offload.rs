//! Stores of which the old part lies in the bucket.

use crate::common;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{Create, OffloadReport, Options, Retention, Store};
use brooklet_archive::object_store::ObjectStore;
use brooklet_archive::object_store::memory::InMemory;
use brooklet_archive::{Archive, Archiver, Bucket, Error, Parts, Schedule, Which};
use common::faulty::Faulty;
use common::{Logs, archive, back_up, bucket, contents, fill, restored};

fn options() -> Options {
    // No memory of what was looked up, so that the bucket is asked.
    let clock = Arc::new(ManualClock::default());
    let options = Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    options.bounds_cache(0).cache_budget(256 << 10).clock(clock).rng_seed(1)
}

/// Opens a store, of which some lies in a bucket.
fn open(volume: &MemVolume, parts: &Parts) -> Result<Store, brooklet::Error> {
    let parts = parts.clone();
    let options = options().create(Create::Never).offload_reader(move |name| parts.open(name));
    options.open_on(Arc::new(volume.clone()))
}

fn parts(store: &Arc<impl ObjectStore>) -> Parts {
    Parts::new(&bucket(store), 4 << 20)
}

fn offload(archive: &mut Archive, store: &Store, most: u64) -> Result<OffloadReport, Error> {
    archive.offload(store, most, brooklet::Progress::ignore)
}

/// Backups, retention, restarts and restores go on as of any store, while most of it is elsewhere.
#[test]
fn most_of_a_store_lies_in_the_bucket() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let (volume, note) = (MemVolume::new(1), dir.path().join("note"));
    let mut store = options().create_on(Arc::new(volume.clone())).unwrap();
    let (mut all, mut here) = (0, 0);
    for round in 0..12 {
        fill(&store, &format!("log/{round}"), 30, 4000);
        if round > 3 {
            store.append(format!("log/{}/0007", round - 3), "late").unwrap().wait().unwrap();
            store.delete(format!("log/{}/0008", round - 3)).unwrap().wait().unwrap();
            store.trim(format!("log/{}/0009", round - 3), 1).unwrap().wait().unwrap();
            let kept = Retention::new().entries(1);
            store.set_retention(format!("log/{}/0010", round - 3), kept).unwrap().wait().unwrap();
        }
        let parts = parts(&memory).cache(dir.path(), 1 << 20).unwrap();
        let mut archive = archive(&memory, &note).with_parts(parts.clone());
        let before = contents(&store);
        back_up(&mut archive, &store).unwrap();
        let offloaded = offload(&mut archive, &store, 300_000).unwrap();
        assert!(offloaded.left <= 300_000 || offloaded.runs == 0);
        // Two backups stay.
        archive.prune(Duration::ZERO, false).unwrap();
        assert!(contents(&store) == before, "round {round}");
        assert!(restored(archive.bucket(), Which::Latest) == before);
        store.close().unwrap();
        drop(store);
        store = open(&volume, &parts).unwrap();
        assert!(contents(&store) == before, "round {round}");
        let view = archive.bucket().backup(Which::Latest).unwrap().view(1 << 20).unwrap();
        let copy = options().copy_on(Arc::new(MemVolume::new(2)), &view).unwrap();
        assert!(contents(&copy) == before, "round {round}");
        let runs = store.info().unwrap().runs;
        here = runs.iter().filter(|run| !run.offloaded).map(|run| run.bytes).sum();
        all = runs.iter().map(|run| run.bytes).sum();
    }
    assert!(all > 1_300_000 && here <= 300_000, "{here} of {all} bytes are here");
    let told = options().open_on(Arc::new(volume.clone())).unwrap_err().to_string();
    assert!(told.contains("is in use elsewhere") || told.contains("were offloaded"), "{told}");
}

/// What was looked up once is on the local disk.
#[test]
fn looking_up_again_costs_no_request() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    fill(&store, "log", 400, 4000);
    let mut archive = archive(&memory, &dir.path().join("note"));
    back_up(&mut archive, &store).unwrap();
    assert_eq!(offload(&mut archive, &store, 0).unwrap().left, 0);
    store.close().unwrap();
    drop(store);
    let gets = |parts: Parts, bucket: &Bucket| {
        let store = open(&volume, &parts).unwrap();
        for _ in 0..10 {
            for log in (0..400).step_by(7) {
                assert_eq!(store.read(format!("log/{log:04}"), ..).unwrap().count(), 2);
            }
        }
        bucket.costs().gets
    };
    let handle = bucket(&memory);
    let with = gets(Parts::new(&handle, 4 << 20).cache(dir.path(), 8 << 20).unwrap(), &handle);
    let handle = bucket(&memory);
    let without = gets(Parts::new(&handle, 4 << 20), &handle);
    // Requests that read ahead begin some time later: so all rounds are counted as one.
    assert!(with < 40 && without > 60, "{with} and {without}");
    // Read on and on, it is read ahead, by way of the cache or not.
    let store = open(&volume, &Parts::new(&handle, 4 << 20).cache(dir.path(), 8 << 20).unwrap()).unwrap();
    let before = handle.costs().gets;
    assert_eq!(contents(&store).len(), 400);
    assert!(handle.costs().gets - before < 30, "{}", handle.costs().gets - before);
}

/// A bucket that fails, and a host that is gone, at any request: what is let go is there.
#[test]
fn whatever_fails_nothing_is_lost() {
    // Most of the time is spent in waiting before the next try.
    let seen: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..28).map(|seed| scope.spawn(move || fails_and_goes_on(seed))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (offloaded, failed) = seen.iter().fold((0, 0), |sum, seen| (sum.0 + seen.0, sum.1 + seen.1));
    assert!(offloaded > 30 && failed > 20, "{offloaded} {failed}");
}

/// How many runs were offloaded, and how many rounds failed.
fn fails_and_goes_on(seed: u64) -> (usize, usize) {
    let (mut offloaded, mut failed) = (0, 0);
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let percent = if seed.is_multiple_of(2) { 30 } else { 0 };
    let faulty = Arc::new(Faulty::new(memory.clone(), seed, percent));
    let (volume, note) = (MemVolume::new(seed), dir.path().join("note"));
    let mut store = options().create_on(Arc::new(volume.clone())).unwrap();
    let mut want = Logs::new();
    for round in 0..4 {
        fill(&store, &format!("log/{round}"), 20, 3000);
        if percent == 0 {
            faulty.dies_unheard(seed % 4 == 1);
            faulty.live(Some(2 + seed / 2 % 14));
        }
        let mut archive = archive(&faulty, &note).with_parts(parts(&faulty));
        want.extend((0..20).map(|log| {
            let key = format!("log/{round}/{log:04}").into_bytes();
            (key, (0, Vec::new()))
        }));
        let done = back_up(&mut archive, &store).and_then(|_| offload(&mut archive, &store, 0));
        match done {
            Ok(done) => offloaded += done.runs,
            Err(_) => failed += 1,
        }
        faulty.live(None);
        // The process is gone, and another one comes.
        store.abandon();
        store = open(&volume, &parts(&memory)).unwrap();
        let found = contents(&store);
        assert!(found.keys().eq(want.keys()), "seed {seed}, round {round}");
        assert!(found.values().all(|(first, entries)| *first == 0 && entries.len() == 2));
    }
    let mut archive = archive(&memory, &note).with_parts(parts(&memory));
    back_up(&mut archive, &store).unwrap();
    assert_eq!(offload(&mut archive, &store, 0).unwrap().left, 0);
    assert!(contents(&store).keys().eq(want.keys()));
    (offloaded, failed)
}

/// Nothing goes into an archive that is another host's by now.
#[test]
fn who_lost_the_archive_lets_nothing_go() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    fill(&store, "log", 30, 4000);
    let mut here = archive(&memory, &dir.path().join("here"));
    assert_eq!(offload(&mut here, &store, 0).unwrap().runs, 0, "there is no backup");
    back_up(&mut here, &store).unwrap();
    let mut there = archive(&memory, &dir.path().join("there")).take_over();
    fill(&store, "more", 30, 4000);
    back_up(&mut there, &store).unwrap();
    assert!(matches!(offload(&mut here, &store, 0), Err(Error::Owned { number: 1, .. })));
    assert!(store.info().unwrap().runs.iter().all(|run| !run.offloaded));
    let other = common::store(2);
    let mut here = archive(&memory, &dir.path().join("there"));
    assert!(matches!(offload(&mut here, &other, 0), Err(Error::OtherStore { .. })));
}

/// Another host with a file of its own makes the next backups: its file has other runs.
#[test]
fn what_only_an_earlier_backup_has_is_found() {
    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    fill(&store, "log", 30, 4000);
    let mut here = archive(&memory, &dir.path().join("here"));
    back_up(&mut here, &store).unwrap();
    let copy = MemVolume::from_image(volume.image(), 2);
    assert_eq!(offload(&mut here, &store, 0).unwrap().left, 0);
    let before = contents(&store);
    store.close().unwrap();
    drop(store);
    let other = open(&copy, &parts(&memory)).unwrap();
    let mut there = archive(&memory, &dir.path().join("there")).take_over();
    for name in ["more", "most"] {
        fill(&other, name, 30, 4000);
        other.compact().unwrap();
        back_up(&mut there, &other).unwrap();
    }
    let store = open(&volume, &parts(&memory)).unwrap();
    assert!(contents(&store) == before);
    store.close().unwrap();
    drop(store);
    there.prune(Duration::ZERO, false).unwrap();
    let error = open(&volume, &parts(&memory)).map(drop).unwrap_err();
    assert!(matches!(error, brooklet::Error::Damaged { .. }), "{error}");
}

/// The record of the last backup is damaged, and the one before it has the same part.
#[test]
fn a_damaged_record_hides_no_part_that_another_backup_has() {
    use brooklet_archive::object_store::{ObjectStoreExt, path};
    use futures_util::FutureExt;

    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    fill(&store, "log", 30, 4000);
    let mut archive = archive(&memory, &dir.path().join("note"));
    back_up(&mut archive, &store).unwrap();
    assert_eq!(offload(&mut archive, &store, 0).unwrap().left, 0);
    fill(&store, "more", 3, 300);
    assert_eq!(back_up(&mut archive, &store).unwrap().number, 1);
    let before = contents(&store);
    store.close().unwrap();
    drop(store);
    let damage = |number: u64| {
        let record = path::Path::from(format!("some/where/backups/{number:020}"));
        memory.put(&record, "this is no record".into()).now_or_never().unwrap().unwrap();
    };
    damage(1);
    let store = open(&volume, &parts(&memory)).unwrap();
    assert!(contents(&store) == before);
    store.close().unwrap();
    drop(store);
    damage(0);
    let error = open(&volume, &parts(&memory)).map(drop).unwrap_err().to_string();
    assert!(error.contains("finding what was offloaded") && error.contains("000001 is damaged"), "{error}");
}

/// A part of the bucket that is gone, or not what it was, is told when the store asks for it, and
/// by whom it was kept.
#[test]
fn what_the_bucket_lost_is_named() {
    use brooklet_archive::object_store::ObjectStoreExt;
    use futures_util::{FutureExt, TryStreamExt};

    let (memory, dir) = (Arc::new(InMemory::new()), tempfile::tempdir().unwrap());
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    fill(&store, "log", 30, 4000);
    let mut archive = archive(&memory, &dir.path().join("note"));
    back_up(&mut archive, &store).unwrap();
    let listed: Vec<_> = memory.list(None).try_collect().now_or_never().unwrap().unwrap();
    let bundle = listed.iter().find(|object| object.location.as_ref().contains("bundles")).unwrap();
    let data = memory.get(&bundle.location).now_or_never().unwrap().unwrap().bytes().now_or_never().unwrap();
    let data = data.unwrap();
    let mut damaged = data.to_vec();
    damaged[data.len() / 2] ^= 1;
    // It is looked at before anything goes.
    memory.put(&bundle.location, damaged.clone().into()).now_or_never().unwrap().unwrap();
    let error = offload(&mut archive, &store, 0).unwrap_err();
    assert!(matches!(error, Error::Store(brooklet::Error::Damaged { .. })), "{error}");
    memory.delete(&bundle.location).now_or_never().unwrap().unwrap();
    let error = offload(&mut archive, &store, 0).unwrap_err();
    assert!(error.to_string().contains("bundles"), "{error}");
    assert_eq!(contents(&store).len(), 30);
    memory.put(&bundle.location, data.into()).now_or_never().unwrap().unwrap();
    assert_eq!(offload(&mut archive, &store, 0).unwrap().left, 0);
    store.close().unwrap();
    drop(store);
    memory.put(&bundle.location, damaged.into()).now_or_never().unwrap().unwrap();
    let store = open(&volume, &parts(&memory).cache(dir.path(), 1 << 20).unwrap()).unwrap();
    let read = |log: u32| {
        store.read(format!("log/{log:04}"), ..).and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
    };
    let (sound, wrong): (Vec<_>, Vec<_>) = (0..30).map(read).partition(Result::is_ok);
    assert!(!sound.is_empty() && !wrong.is_empty());
    assert!(wrong.into_iter().all(|read| matches!(read, Err(brooklet::Error::Damaged { .. }))));
    drop(store);
    for backup in listed.iter().filter(|object| object.location.as_ref().contains("backups")) {
        memory.delete(&backup.location).now_or_never().unwrap().unwrap();
    }
    let error = open(&volume, &parts(&memory)).unwrap_err().to_string();
    assert!(error.contains("finding what was offloaded"), "{error}");
}

#[test]
fn an_archiver_offloads() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let handle = Bucket::open(path("bucket").to_str().unwrap()).unwrap();
    let parts = Parts::new(&handle, 4 << 20).cache(dir.path(), 1 << 20).unwrap();
    let open = |path: &Path| {
        let parts = parts.clone();
        Options::new()
            .ring_size(1 << 20)
            .max_payload(64 << 10)
            .offload_reader(move |name| parts.open(name))
            .open(path)
    };
    let store = open(&path("store")).unwrap();
    let archive = Archive::new(handle.clone(), path("note"), "here").unwrap().with_parts(parts.clone());
    let schedule = Schedule { offload: Some(100_000), ..Schedule::default() };
    let archiver = Archiver::start(archive, store.clone(), schedule).unwrap();
    for round in 0..5 {
        fill(&store, &format!("log/{round}"), 30, 4000);
        let status = archiver.now();
        assert!(status.error.is_none() && status.offloaded.left <= 100_000, "{status:?}");
    }
    assert!(archiver.status().offloaded.bytes > 400_000);
    drop(archiver);
    let want = contents(&store);
    store.close().unwrap();
    drop(store);
    let store = open(&path("store")).unwrap();
    assert!(want.len() == 150 && contents(&store) == want);
    // What knows of a backup learns of the next one.
    fill(&store, "log/5", 30, 4000);
    let mut archive = Archive::new(handle.clone(), path("note"), "here").unwrap();
    back_up(&mut archive, &store).unwrap();
    assert!(offload(&mut archive, &store, 0).unwrap().runs > 0);
    store.close().unwrap();
    drop(store);
    let store = open(&path("store")).unwrap();
    assert_eq!(contents(&store).len(), 180);
    let info = store.info().unwrap();
    assert!(info.size - info.heap_offset - info.heap_free < 300_000, "{info:?}");
}
