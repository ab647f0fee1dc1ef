//! Full stores: appends are refused, reads served, deletes accepted, and then appends go on. In
//! memory and in a file, with the store's own threads and without.

use crate::common;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use brooklet::io::{Fault, FileOptions, FileVolume, ManualClock, MemVolume, OpenMode, Rng, Volume};
use brooklet::{Commit, Error, ErrorKind, Options, Retention, SpaceConfig, Store};
use common::contents;

const MIB: u64 = 1 << 20;
/// Nothing takes that long, however busy the machine is.
const FOREVER: Duration = Duration::from_secs(500);

fn options() -> Options {
    Options::new().ring_size(256 << 10).memory_budget(256 << 10).max_payload(32 << 10).cache_budget(256 << 10)
}

/// A volume, and what it is called.
type Named = (&'static str, Arc<dyn Volume>);

/// Volumes to fill: in memory, and in a file.
fn volumes() -> (tempfile::TempDir, Vec<Named>) {
    let dir = tempfile::tempdir().unwrap();
    let file = FileVolume::open(&dir.path().join("store"), OpenMode::Create, FileOptions::default()).unwrap();
    (dir, vec![("memory", Arc::new(MemVolume::new(1))), ("file", Arc::new(file))])
}

fn noise(rng: &mut Rng, len: u64) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8).collect()
}

/// Whether something was done, or there was no room for it.
fn done<T>(result: Result<T, Error>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::Full => false,
        Err(error) => panic!("{error}"),
    }
}

/// Appends until there is no room, and tells how often there was.
fn fill(store: &Store, mut next: impl FnMut(u64) -> (Vec<u8>, Vec<u8>)) -> u64 {
    let mut n = 0;
    loop {
        let (key, payload) = next(n);
        if !done(store.append(key, payload)) {
            store.flush().unwrap();
            return n;
        }
        n += 1;
        assert!(n < 1_000_000, "it is never full");
    }
}

/// No delete may be refused.
fn delete(store: &Store, key: Vec<u8>, when: &str) {
    drop(store.delete(key).unwrap_or_else(|error| panic!("{when}: {error}")));
}

fn long_key(n: u64) -> Vec<u8> {
    let mut key = noise(&mut Rng::new(n), 1000);
    key.extend_from_slice(format!("{n:08}").as_bytes());
    key
}

fn sound(store: Store, volume: &Arc<dyn Volume>) {
    let before = contents(&store).unwrap();
    store.close().unwrap();
    drop(store);
    let report = brooklet::check_volume(volume.clone(), brooklet::Progress::ignore).unwrap();
    assert!(report.is_sound(), "{report:?}");
    let store = options().open_on(volume.clone()).unwrap();
    assert!(contents(&store).unwrap() == before, "another store after opening it again");
}

#[test]
fn appends_are_refused_and_go_on_after_deletes() {
    let (_dir, volumes) = volumes();
    for (name, volume) in volumes {
        let store = options().capacity(4 * MIB).create_on(volume.clone()).unwrap();
        let mut rng = Rng::new(3);
        let mut entry = |n: u64| (format!("log/{}", n % 50).into_bytes(), noise(&mut rng, 2000));
        let first = fill(&store, &mut entry);
        assert!(first > 800, "{name}: {first} entries of 2,000 bytes are in a heap of 3.7 MiB");
        let held = contents(&store).unwrap();
        assert_eq!(held.values().map(|log| log.entries.len() as u64).sum::<u64>(), first, "{name}");
        for n in 0..25 {
            store.delete(format!("log/{n}")).unwrap().wait().unwrap();
        }
        let again = fill(&store, &mut entry);
        assert!(again > first / 3, "{name}: {again} after {first}, of which half were deleted");
        for n in 0..50 {
            drop(store.delete(format!("log/{n}")).unwrap());
        }
        let anew = fill(&store, &mut entry);
        assert!(anew > first * 3 / 4, "{name}: {anew} after {first}, which were deleted");
        sound(store, &volume);
    }
}

/// Nothing but small logs with long keys: what tells that a log is gone is as long as the log was.
#[test]
fn a_store_of_long_keys_can_be_emptied() {
    let (_dir, volumes) = volumes();
    for (name, volume) in volumes {
        let store = options().capacity(3 * MIB).create_on(volume.clone()).unwrap();
        let first = fill(&store, |n| (long_key(n), b"x".to_vec()));
        assert!(first > 1000, "{name}: {first}");
        for n in 0..first {
            delete(&store, long_key(n), &format!("{name}: {n} of {first}"));
        }
        store.flush().unwrap();
        let anew = fill(&store, |n| (long_key(n), b"y".to_vec()));
        assert!(anew > first * 3 / 4, "{name}: {anew} after {first}");
        sound(store, &volume);
    }
}

#[test]
fn random_deletes_make_room() {
    let (_dir, volumes) = volumes();
    for (name, volume) in volumes {
        let store = options().capacity(3 * MIB).create_on(volume.clone()).unwrap();
        let mut rng = Rng::new(8);
        let first = fill(&store, |n| (long_key(n), b"x".to_vec()));
        for n in 0..first {
            if rng.percent(50) {
                delete(&store, long_key(n), &format!("{name}: {n} of {first}"));
            }
        }
        let again = fill(&store, |n| (long_key(first + n), b"y".to_vec()));
        assert!(again > first / 4, "{name}: {again} after {first}, of which half were deleted");
        sound(store, &volume);
    }
}

#[test]
fn a_refused_commit_leaves_no_trace() {
    let (_dir, volumes) = volumes();
    for (_, volume) in volumes {
        let store = options().capacity(2 * MIB).create_on(volume.clone()).unwrap();
        let mut rng = Rng::new(3);
        fill(&store, |n| (format!("log/{}", n % 5).into_bytes(), noise(&mut rng, 3000)));
        let before = contents(&store).unwrap();
        let large = vec![7; 30_000];
        for n in 0..20 {
            let mut commit = Commit::new();
            let (old, new) = (format!("log/{}", n % 5), format!("new/{n}"));
            commit.append(&old, &large).append(&new, b"small").append(&old, &large);
            let error = store.commit(&commit).map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            assert!(error.to_string().contains("heap"), "{error}");
        }
        assert!(contents(&store).unwrap() == before);
        sound(store, &volume);
    }
}

/// What the whole heap could not hold is refused before anything is tried.
#[test]
fn a_commit_that_never_fits_is_refused_at_once() {
    let clock = Arc::new(ManualClock::default());
    let volume = MemVolume::new(1);
    let options =
        Options::new().ring_size(8 * MIB).max_payload(2 << 20).threads(false).clock(clock).rng_seed(1);
    let store = options.capacity(8 * MIB + (64 << 10) + MIB).create_on(Arc::new(volume.clone())).unwrap();
    store.append("log", b"small").unwrap().wait().unwrap();
    let checkpoints = store.info().unwrap().maintenance.checkpoints;
    let error = store.append("log", vec![1; 2 << 20]).map(drop).unwrap_err();
    assert!(error.kind() == ErrorKind::Full && error.to_string().contains("whole heap"), "{error}");
    assert_eq!(store.info().unwrap().maintenance.checkpoints, checkpoints);
    store.append("log", b"small").unwrap().wait().unwrap();
}

/// A commit that does not wait is refused as busy. A commit that waits makes room, or reports that
/// the store is full.
#[test]
fn a_commit_that_does_not_wait_is_refused_as_busy() {
    let clock = Arc::new(ManualClock::default());
    let options = options().threads(false).clock(clock).rng_seed(1).capacity(3 * MIB);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut rng = Rng::new(1);
    let mut commit = |n: u64| {
        let mut commit = Commit::new();
        commit.append(format!("log/{n}").as_bytes(), noise(&mut rng, 2000));
        commit
    };
    let (mut waited, mut taken) = (0, 0);
    let refused = loop {
        let next = commit(taken);
        let done = store.try_commit(&next).or_else(|busy| {
            assert_eq!(busy.kind(), ErrorKind::Busy, "{busy}");
            waited += 1;
            store.commit(&next)
        });
        match done {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert!(refused.kind() == ErrorKind::Full && waited > 1 && taken > 800, "{taken}, {waited}: {refused}");
    store.flush().unwrap();
    assert_eq!(store.scan("").unwrap().count() as u64, taken, "a refused commit has no effect");
    for n in 0..taken / 2 {
        drop(store.delete(format!("log/{n}")).unwrap());
    }
    let next = commit(taken);
    drop(store.try_commit(&next).or_else(|_| store.commit(&next)).expect("there is room again"));
}

/// Without threads: what can make room is done in the call, and a store from which everything was
/// deleted has room.
#[test]
fn a_store_without_threads_is_never_stuck() {
    for seed in 0..4 {
        let clock = Arc::new(ManualClock::default());
        let volume = MemVolume::new(seed);
        let mut rng = Rng::new(seed);
        let capacity = (256 << 10) + (64 << 10) + 4 * MIB + rng.below(64) * 4096;
        let options = options().threads(false).clock(clock.clone()).rng_seed(seed).capacity(capacity);
        let store = options.create_on(Arc::new(volume.clone())).unwrap();
        for round in 0..3 {
            let (key_len, payload) =
                ([40, 200, 1000][rng.below(3) as usize], [60, 500, 4000][rng.below(3) as usize]);
            let key = |n: u64| noise(&mut Rng::new(n ^ round << 32), key_len);
            let filled = fill(&store, |n| (key(n), noise(&mut Rng::new(n), payload)));
            assert!(filled > 10, "seed {seed}, round {round}: {filled}");
            if rng.percent(30) {
                store.checkpoint().unwrap();
            }
            for n in 0..filled {
                delete(&store, key(n), &format!("seed {seed}, round {round}: {n} of {filled}"));
            }
            store.flush().unwrap();
            while store.step().unwrap() {}
            store.append("one", b"1").unwrap().wait().unwrap();
            store.delete("one").unwrap().wait().unwrap();
        }
        store.close().unwrap();
    }
}

/// These commits drop entries, or limit what a log keeps, and record so in a few bytes: a journal
/// of removals, a state that names what was purged. In an earlier state, a full store refused them.
#[test]
fn a_full_store_takes_little_beside_what_frees() {
    let clock = Arc::new(ManualClock::default());
    let volume: Arc<dyn Volume> = Arc::new(MemVolume::new(1));
    let options = options().threads(false).clock(clock).rng_seed(1).capacity(4 * MIB);
    let store = options.create_on(volume.clone()).unwrap();
    let space = store.create_space("s", SpaceConfig::new()).unwrap();
    for key in ["s/a", "s/b", "journal", "state", "limited"] {
        store.append(key, "first").unwrap().wait().unwrap();
    }
    let mut rng = Rng::new(1);
    fill(&store, |n| (format!("log/{}", n % 50).into_bytes(), noise(&mut rng, 2000)));
    // Not even the least of entries finds room now.
    fill(&store, |_| (b"log/0".to_vec(), b"x".to_vec()));
    // A deletion is no way around the limit for entries and new logs.
    let mut large = Commit::new();
    large.delete("s/b").append("journal", noise(&mut rng, 4000));
    assert!(!done(store.commit(&large)));
    let mut created = Commit::new();
    created.delete("s/b").begin_at("k".repeat(900), 1);
    assert!(!done(store.commit(&created)));

    let mut removal = Commit::new();
    removal.delete("s/a").append("journal", "a is removed");
    drop(store.commit(&removal).unwrap());
    let mut purge = Commit::new();
    purge.snapshot("state", "purged up to 0").begin_at("log/7", 1);
    drop(store.commit(&purge).unwrap());
    drop(store.set_retention("limited", Retention::new().entries(1)).unwrap());
    space.configure(SpaceConfig::new().max_logs(5)).unwrap();
    assert_eq!(space.info().unwrap().logs, Some(1));
    for n in 0..50 {
        delete(&store, format!("log/{n}").into_bytes(), "after commits that added little");
    }
    store.flush().unwrap();
    drop(space);
    sound(store, &volume);
}

/// Logs that were only looked up need no room, however full the store is.
#[test]
fn a_tier_that_holds_nothing_is_checkpointed_without_room() {
    let volume = MemVolume::new(1);
    let store = options().capacity(2 * MIB).create_on(Arc::new(volume.clone())).unwrap();
    fill(&store, |n| (long_key(n), b"x".to_vec()));
    store.checkpoint().unwrap();
    volume.fail(Fault::Full(0));
    for n in 0..200 {
        let (old, new) = (long_key(n), long_key(n + 1_000_000));
        let mut commit = Commit::new();
        commit.expect_absent(&old).append(&new, b"x");
        assert!(matches!(store.commit(&commit), Err(Error::Conflict { .. } | Error::Full { .. })));
    }
    for _ in 0..3 {
        store.checkpoint().unwrap();
    }
}

/// Everybody gets an answer, and in the end there is room again.
#[test]
fn many_threads_fill_and_delete_and_none_hangs() {
    let (_dir, volumes) = volumes();
    for (name, volume) in volumes {
        let store = options().capacity(3 * MIB).create_on(volume.clone()).unwrap();
        let (tell, hear) = mpsc::channel();
        for thread in 0..8u64 {
            let (store, tell) = (store.clone(), tell.clone());
            std::thread::Builder::new()
                .spawn(move || {
                    let mut rng = Rng::new(thread);
                    for n in 0..1500 {
                        let key = format!("{thread}/{}", rng.below(40));
                        if rng.percent(3) {
                            for log in 0..40 {
                                match store.delete(format!("{thread}/{log}")) {
                                    Ok(_) | Err(Error::UnknownLog { .. }) => {}
                                    Err(error) => panic!("{error}"),
                                }
                            }
                        } else {
                            let payload = noise(&mut rng, 200 + (n % 7) * 500);
                            done(store.append(key, payload).and_then(|ticket| ticket.wait()));
                        }
                    }
                    tell.send(thread).unwrap();
                })
                .unwrap();
        }
        drop(tell);
        for _ in 0..8 {
            hear.recv_timeout(FOREVER).unwrap_or_else(|_| panic!("{name}: somebody hangs, or fell"));
        }
        for log in store.scan("").unwrap() {
            drop(store.delete(log.unwrap().key).unwrap());
        }
        store.append("one", b"1").unwrap().wait().unwrap();
        sound(store, &volume);
    }
}

/// Readers that come and go keep the room of merged runs for a while. Once they are gone, deletes
/// are accepted again.
pub fn deletes_go_on_after_readers() {
    let mut refused = 0;
    for seed in 0..30 {
        let volume = MemVolume::new(seed);
        // The same stores each time: in so small a heap, holes may refuse a delete in the end.
        let options = options().threads(false).rng_seed(seed).clock(Arc::new(ManualClock::default()));
        let store = options.capacity(3 * MIB).create_on(Arc::new(volume)).unwrap();
        let mut rng = Rng::new(seed);
        let first = fill(&store, |n| (long_key(n), b"x".to_vec()));
        let mut readers = Vec::new();
        for n in 0..first {
            match rng.below(40) {
                0 => readers.push(store.scan("").unwrap()),
                1..=3 if !readers.is_empty() => drop(readers.swap_remove(0)),
                _ => {}
            }
            if rng.percent(60) && !done(store.delete(long_key(n))) {
                refused += 1;
                readers.clear();
                delete(&store, long_key(n), &format!("seed {seed}: {n} of {first}"));
            }
        }
        readers.clear();
        let again = fill(&store, |n| (long_key(first + n), b"y".to_vec()));
        assert!(again > first / 4, "seed {seed}: {again} after {first}, of which 60% were deleted");
    }
    assert!(refused > 0, "no reader was in the way");
}

#[test]
fn readers_that_left_hold_up_no_deletes() {
    deletes_go_on_after_readers();
}

/// A volume may refuse a write into space that it has allocated, and take the same write later. The
/// heap cannot grow, and nothing can be merged.
#[test]
fn a_checkpoint_is_tried_again_after_a_write_found_no_space_for_once() {
    let volume = MemVolume::new(1);
    let options = options().threads(false).clock(Arc::new(ManualClock::default())).rng_seed(1);
    let store = options.capacity(3 * MIB).create_on(Arc::new(volume.clone())).unwrap();
    let mut rng = Rng::new(1);
    fill(&store, |n| (format!("log/{}", n % 100).into(), noise(&mut rng, 3000)));
    done(store.checkpoint());
    delete(&store, b"log/1".to_vec(), "to have something to write");
    store.flush().unwrap();
    volume.fail(Fault::ErrorAfter { operations: 0, kind: std::io::ErrorKind::StorageFull, sticky: false });
    assert!(!done(store.checkpoint()), "the write is refused");
    let tries = (1..=10).find(|_| done(store.checkpoint()));
    assert!(tries.is_some_and(|tries| tries <= 3), "{tries:?}");
}
