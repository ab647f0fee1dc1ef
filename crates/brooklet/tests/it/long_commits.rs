//! Commits of thousands of operations, which the store prepares.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brooklet::io::{MemVolume, Rng};
use brooklet::{Commit, Error, ErrorKind, MAX_KEY, Options, SpaceConfig, StallReason, Store};

use crate::common::contents;
use crate::common::gate::Gate;
use crate::common::small::{check, noise, open, open_new, options};
use crate::common::tasks::block_on;

/// Enough for a commit to be a long one, and no multiple of a portion.
const MANY: usize = 4_567;

fn key(n: usize) -> String {
    format!("log/{n}")
}

fn numbers(store: &Store, key: &str) -> Vec<u64> {
    store.read(key, ..).unwrap().map(|entry| entry.unwrap().seq).collect()
}

/// Options of a store whose ring takes a long commit.
fn roomy() -> Options {
    options().ring_size(4 << 20).memory_budget(1 << 20)
}

/// A commit that appends to each log.
fn appends(payload: &str) -> Commit {
    let mut commit = Commit::new();
    for n in 0..MANY {
        commit.append(key(n), payload);
    }
    commit
}

#[test]
fn a_preparation_changes_no_log_and_others_may_commit_before_the_commit() {
    let volume = MemVolume::new(1);
    let store = roomy().create_on(Arc::new(volume.clone())).unwrap();
    store.append(key(0), "at rest").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    let before = contents(&store).unwrap();
    let mut commit = appends("long");
    commit.trim(key(0), 1).delete(key(1));
    store.prepare(&mut commit).unwrap();
    assert_eq!(contents(&store).unwrap(), before);
    assert_eq!(store.bounds(key(2)).unwrap_err().kind(), ErrorKind::NotFound);
    store.append(key(0), "other").unwrap().wait().unwrap();
    store.append(key(2), "other").unwrap().wait().unwrap();
    let ticket = store.commit(&commit).unwrap();
    ticket.wait().unwrap();
    assert_eq!(ticket.seqs()[..4], [2, 0, 1, 0]);
    assert_eq!(numbers(&store, &key(0)), [1, 2]);
    assert!(!store.exists(key(1)).unwrap());
    assert_eq!(numbers(&store, &key(2)), [0, 1]);
    store.close().unwrap();
    drop(store);
    check(&volume);
    let store = roomy().open_on(Arc::new(volume)).unwrap();
    assert_eq!((numbers(&store, &key(0)), numbers(&store, &key(MANY - 1))), (vec![1, 2], vec![0]));
}

/// A prepared commit may change, and may be committed twice.
#[test]
fn a_prepared_commit_is_a_commit_like_others() {
    let store = roomy().create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut commit = appends("long");
    store.prepare(&mut commit).unwrap();
    commit.append("more", "x");
    for seq in 0..2 {
        let ticket = store.commit(&commit).unwrap();
        ticket.wait().unwrap();
        assert!(ticket.seqs().len() == MANY + 1 && ticket.seqs().iter().all(|found| *found == seq));
    }
    commit.clear();
    commit.expect_absent("more").append("more", "y");
    store.prepare(&mut commit).unwrap();
    assert_eq!(store.commit(&commit).unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(numbers(&store, "more"), [0, 1]);
}

#[test]
fn a_refused_long_commit_leaves_no_trace() {
    let store = roomy().create_on(Arc::new(MemVolume::new(1))).unwrap();
    store.append(key(7), "first").unwrap().wait().unwrap();
    let before = contents(&store).unwrap();
    type Refuse = fn(&mut Commit) -> &mut Commit;
    let refusals: [(Refuse, ErrorKind); 4] = [
        (|commit| commit.expect_next(key(7), 5), ErrorKind::Conflict),
        (|commit| commit.delete("unknown"), ErrorKind::NotFound),
        (|commit| commit.truncate(key(7), 9), ErrorKind::NotFound),
        (|commit| commit.append(key(8), [b'x'; 10 << 10]), ErrorKind::Invalid),
    ];
    for (refuse, kind) in refusals {
        for is_prepared in [false, true] {
            let mut commit = appends("long");
            refuse(&mut commit);
            let prepared = if is_prepared { store.prepare(&mut commit) } else { Ok(()) };
            let refused = prepared.and_then(|()| store.commit(&commit).map(drop));
            assert_eq!(refused.unwrap_err().kind(), kind);
            store.flush().unwrap();
            assert_eq!(contents(&store).unwrap(), before);
        }
    }
}

/// Neither the ring nor memory takes the commit, whatever it waits for.
#[test]
fn a_long_commit_without_room_is_refused_and_others_go_on() {
    let volume = MemVolume::new(1);
    let store = open_new(&volume);
    let mut commit = Commit::new();
    for n in 0..MANY {
        commit.append(key(n), [b'x'; 200]);
    }
    for is_prepared in [false, true] {
        if is_prepared {
            store.prepare(&mut commit).unwrap();
        }
        assert!(matches!(store.commit(&commit), Err(Error::CommitTooLarge { .. })));
        store.append("other", "x").unwrap().wait().unwrap();
    }
    store.close().unwrap();
    drop(store);
    check(&volume);
    assert_eq!(numbers(&open(&volume).unwrap(), "other"), [0, 1]);
}

/// Long commits of several threads take more memory together than the budget has, and more of the
/// ring than it has, while short ones go on.
#[test]
fn long_commits_of_many_threads_end_beside_short_ones() {
    const THREADS: usize = 3;
    const ROUNDS: usize = 6;
    let volume = MemVolume::new(1);
    let options = Options::new().ring_size(4 << 20).memory_budget(1 << 20).max_payload(64 << 10);
    let store = options.clone().create_on(Arc::new(volume.clone())).unwrap();
    let is_over = AtomicBool::new(false);
    let short = std::thread::scope(|scope| {
        let long = (0..THREADS).map(|_| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    let mut commit = appends("long");
                    if round % 2 == 0 {
                        store.prepare(&mut commit).unwrap();
                    }
                    store.commit(&commit).unwrap().wait().unwrap();
                }
            })
        });
        let long: Vec<_> = long.collect();
        let short = scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) {
                store.append("short", "x").unwrap().wait().unwrap();
                n += 1;
            }
            n
        });
        long.into_iter().for_each(|thread| thread.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
        short.join().unwrap()
    });
    let expected: Vec<u64> = (0..(THREADS * ROUNDS) as u64).collect();
    for n in [0, 1, 1_000, MANY - 1] {
        assert_eq!(numbers(&store, &key(n)), expected);
    }
    assert_eq!(numbers(&store, "short").len(), short);
    store.close().unwrap();
    drop(store);
    check(&volume);
    let store = options.open_on(Arc::new(volume)).unwrap();
    assert_eq!(numbers(&store, &key(MANY - 1)), expected);
}

/// A checkpoint that finds no room waits for commits that free space; no long commit may wait for
/// that checkpoint.
#[test]
fn long_commits_end_in_a_full_store() {
    let volume = MemVolume::new(1);
    let options = Options::new().ring_size(4 << 20).memory_budget(1 << 20).max_payload(64 << 10);
    let store = options.capacity(12 << 20).create_on(Arc::new(volume.clone())).unwrap();
    let mut rng = Rng::new(3);
    let (mut n, mut commit) = (0, Commit::new());
    let error = loop {
        // Long ones and others in turns.
        commit.clear();
        for _ in 0..if n % 4_400 == 0 { 4_000 } else { 400 } {
            commit.append(key(n), noise(&mut rng, 60));
            n += 1;
        }
        match store.commit(&commit) {
            Ok(ticket) => ticket.wait().unwrap(),
            Err(error) => break error,
        }
        assert!(n < 1_000_000, "it is never full");
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(store.commit(&commit).unwrap_err().kind(), ErrorKind::Full);
    let keys = store.scan("").unwrap().map(|log| log.unwrap().key).collect::<Vec<_>>();
    assert!(keys.len() > 10_000);
    for (round, keys) in keys.chunks(4_500).enumerate() {
        commit.clear();
        for key in keys {
            commit.delete(key);
        }
        if round % 2 == 0 {
            store.prepare(&mut commit).unwrap();
        }
        store.commit(&commit).unwrap().wait().unwrap();
    }
    assert_eq!(store.scan("").unwrap().count(), 0);
    store.commit(&appends("anew")).unwrap().wait().unwrap();
    store.close().unwrap();
    drop(store);
    check(&volume);
}

/// The logs that it deletes would take the memory that the checkpoint holds, and all others would
/// wait for the end of the checkpoint.
#[test]
fn a_long_commit_that_only_deletes_waits_for_a_running_checkpoint() {
    let gate = Gate::new(1);
    // So much that no checkpoint begins before.
    let options = Options::new().ring_size(16 << 20).memory_budget(8 << 20).max_payload(64 << 10);
    let store = options.create_on(Arc::new(gate.clone())).unwrap();
    store.commit(&appends("x")).unwrap().wait().unwrap();
    let mut deletes = Commit::new();
    for n in 0..MANY {
        deletes.delete(key(n));
    }
    let open = gate.close();
    std::thread::scope(|scope| {
        let checkpoint = scope.spawn(|| store.checkpoint());
        // The checkpoint has begun when reads find the log in its memtable.
        while store.activity().reads.frozen == 0 {
            assert!(!checkpoint.is_finished());
            assert_eq!(numbers(&store, &key(0)), [0]);
        }
        let prepared = scope.spawn(|| store.prepare(&mut deletes));
        while store.activity().stall(StallReason::Checkpoint).now == 0 {
            assert!(!prepared.is_finished(), "it did not wait");
            std::thread::yield_now();
        }
        drop(open);
        checkpoint.join().unwrap().unwrap();
        prepared.join().unwrap().unwrap();
    });
    store.commit(&deletes).unwrap().wait().unwrap();
    assert_eq!(store.scan("").unwrap().count(), 0);
}

/// A commit may be prepared by one store, or for one space, and committed to another.
#[test]
fn a_commit_is_checked_wherever_it_was_prepared() {
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let space = store.create_space("games", SpaceConfig::new()).unwrap();

    // The log with the empty key is the store's own.
    let mut empty = Commit::new();
    empty.append("", "x");
    space.prepare(&mut empty).unwrap();
    assert!(matches!(store.commit(&empty), Err(Error::InvalidKey { len: 0 })));
    space.commit(&empty).unwrap().wait().unwrap();

    let mut long = Commit::new();
    long.append([b'k'; MAX_KEY], "x");
    store.prepare(&mut long).unwrap();
    assert!(matches!(space.commit(&long), Err(Error::InvalidKey { .. })));

    let larger = options().max_payload(64 << 10).create_on(Arc::new(MemVolume::new(2))).unwrap();
    let mut large = Commit::new();
    large.append("log", vec![7; 64 << 10]);
    larger.prepare(&mut large).unwrap();
    assert!(matches!(store.commit(&large), Err(Error::PayloadTooLarge { .. })));

    // The places that one store found are no places of another.
    let mut many = appends("x");
    let first = roomy().create_on(Arc::new(MemVolume::new(3))).unwrap();
    let second = roomy().create_on(Arc::new(MemVolume::new(4))).unwrap();
    for n in (0..MANY).rev() {
        drop(second.append(key(n), "before").unwrap());
    }
    first.prepare(&mut many).unwrap();
    second.commit(&many).unwrap().wait().unwrap();
    assert!((0..MANY).all(|n| numbers(&second, &key(n)) == [0, 1]));

    drop((space, store));
    drop(open(&volume).unwrap());
}

/// A task's commit does not wait for room at first, and requests none.
#[test]
fn a_prepared_commit_of_a_task_waits_for_room_as_others_do() {
    let options = Options::new().ring_size(4 << 20).memory_budget(1 << 20).max_payload(64 << 10);
    let store = options.capacity(6 << 20).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut rng = Rng::new(1);
    let mut n = 0;
    while store.append(format!("full/{n}"), noise(&mut rng, 10_000)).is_ok_and(|ticket| ticket.wait().is_ok())
    {
        n += 1;
    }
    let mut commit = appends("long");
    store.prepare(&mut commit).unwrap();
    for _ in 0..3 {
        let refused = block_on(store.commit_async(commit.clone())).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Full);
        assert_eq!(store.append("other", noise(&mut rng, 10_000)).unwrap_err().kind(), ErrorKind::Full);
    }
    for n in 0..n {
        store.delete(format!("full/{n}")).unwrap().wait().unwrap();
    }
    assert_eq!(block_on(store.commit_async(commit)).unwrap().len(), MANY);
}
