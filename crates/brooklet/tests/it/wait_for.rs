//! Waiting until a log has reached a number, by threads and by tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use brooklet::io::{Fault, MemVolume};
use brooklet::{Class, Commit, Durability, Error, MemoryConfig, Options, SpaceConfig, Store, WaitingFor};

use crate::common::small;
use crate::common::tasks::{Count, block_on};

/// So long that a wake-up that is lost shows.
const LONG: Duration = Duration::from_secs(120);

/// A commit that makes its log reach a number, and leaves no entry there.
type Step<'a> = (&'a str, u64, &'a dyn Fn(&mut Commit));

const GONE: [Step<'static>; 3] = [
    ("trimmed", 2, &|commit| _ = commit.append("trimmed", "a").append("trimmed", "b").trim("trimmed", 2)),
    ("truncated", 2, &|commit| {
        commit.append("truncated", "a").append("truncated", "b").truncate("truncated", 0);
    }),
    ("deleted", 1, &|commit| _ = commit.append("deleted", "a").delete("deleted")),
];

const BEGUN: Step<'static> = ("begun", 7, &|commit| _ = commit.begin_at("begun", 7).delete("begun"));

fn append(store: &Store, key: &str, payloads: &[&str]) {
    store.append_many(key, payloads).unwrap().wait().unwrap();
}

fn apply(store: &Store, step: &dyn Fn(&mut Commit)) {
    let mut commit = Commit::new();
    step(&mut commit);
    store.commit(&commit).unwrap().wait().unwrap();
}

#[test]
fn a_thread_waits_for_a_number() {
    let store = Store::in_memory(1).unwrap();
    append(&store, "log", &["a"]);
    assert!(store.wait_for("log", 0, Duration::ZERO).unwrap() && store.wait_for("log", 1, LONG).unwrap());
    assert!(store.wait_for("none", 0, Duration::ZERO).unwrap());
    assert!(!store.wait_for("log", 2, Duration::from_millis(3)).unwrap());
    // The numbers pass, and are gone when the waiting thread looks.
    for (key, next, step) in GONE {
        thread::scope(|scope| {
            let waiter = scope.spawn(|| store.wait_for(key, next, LONG).unwrap());
            while !waiter.is_finished() {
                apply(&store, step);
            }
            assert!(waiter.join().unwrap(), "{key}");
        });
    }
}

/// A store without threads: every wake-up of a commit comes before its wait ends.
fn store() -> (Store, MemVolume) {
    let volume = MemVolume::new(1);
    (small::open_new(&volume), volume)
}

fn poll(waiting: &mut WaitingFor, waker: &Arc<Count>) -> Poll<Result<(), Error>> {
    Pin::new(waiting).poll(&mut Context::from_waker(&Waker::from(waker.clone())))
}

#[test]
fn a_task_waits_for_a_number() {
    let (store, _) = store();
    let waker = Arc::new(Count::default());
    let mut waiting = store.wait_for_async("log", 2);
    assert!(poll(&mut waiting, &waker).is_pending());
    append(&store, "other", &["x", "y"]);
    assert_eq!(waker.get(), 0, "another log is no reason to wake");
    append(&store, "log", &["a"]);
    assert_eq!(waker.get(), 1);
    assert!(poll(&mut waiting, &waker).is_pending(), "the log has one entry");
    // A wait that is over for one reader is not over for another.
    let mut further = store.wait_for_async("log", 3);
    assert!(poll(&mut further, &waker).is_pending());
    append(&store, "log", &["b"]);
    assert!(matches!(poll(&mut waiting, &waker), Poll::Ready(Ok(()))));
    assert!(poll(&mut further, &waker).is_pending());
    // Before the call, and between the call and the first poll.
    for (key, next) in [("log", 0), ("log", 2), ("none", 0)] {
        assert!(matches!(poll(&mut store.wait_for_async(key, next), &waker), Poll::Ready(Ok(()))));
    }
    let mut late = store.wait_for_async("log", 3);
    append(&store, "log", &["c"]);
    assert!(matches!(poll(&mut late, &waker), Poll::Ready(Ok(()))));
}

/// The numbers pass, and are gone when the task looks.
#[test]
fn a_task_is_woken_for_a_number_that_is_gone() {
    let (store, _) = store();
    for (key, next, step) in GONE {
        let waker = Arc::new(Count::default());
        let mut waiting = store.wait_for_async(key, next);
        assert!(poll(&mut waiting, &waker).is_pending(), "{key}");
        apply(&store, step);
        assert_eq!(waker.get(), 1, "{key}");
        assert!(matches!(poll(&mut waiting, &waker), Poll::Ready(Ok(()))), "{key}");
    }
    // The deletion alone brings no number.
    let waker = Arc::new(Count::default());
    append(&store, "log", &["a"]);
    let mut waiting = store.wait_for_async("log", 2);
    assert!(poll(&mut waiting, &waker).is_pending());
    store.delete("log").unwrap().wait().unwrap();
    append(&store, "log", &["A"]);
    assert!(poll(&mut waiting, &waker).is_pending());
    append(&store, "log", &["B"]);
    assert!(matches!(poll(&mut waiting, &waker), Poll::Ready(Ok(()))));
}

#[test]
fn a_task_is_notified_of_the_end_of_the_store() {
    let (store, _) = store();
    let waker = Arc::new(Count::default());
    let mut waiting = store.wait_for_async("log", 1);
    assert!(poll(&mut waiting, &waker).is_pending());
    store.close().unwrap();
    assert_eq!(waker.get(), 1);
    for _ in 0..2 {
        assert!(matches!(poll(&mut waiting, &waker), Poll::Ready(Err(Error::Closed))));
    }
    assert!(matches!(block_on(store.wait_for_async("log", 0)), Err(Error::Closed)));
    drop((waiting, store));

    let (store, volume) = self::store();
    let mut waiting = store.wait_for_async("log", 1);
    assert!(poll(&mut waiting, &waker).is_pending());
    volume.fail(Fault::ErrorAfter { operations: 0, kind: std::io::ErrorKind::Other, sticky: true });
    store.append("log", "x").unwrap().wait().unwrap_err();
    assert_eq!(waker.get(), 2);
    assert!(matches!(poll(&mut waiting, &waker), Poll::Ready(Err(Error::Stopped { .. }))));
}

#[test]
fn a_task_that_no_longer_waits_leaves_no_waiter() {
    let (store, _) = store();
    let waker = Arc::new(Count::default());
    let mut waiting = store.wait_for_async("log", 1);
    assert!(poll(&mut waiting, &waker).is_pending());
    assert_eq!(Arc::strong_count(&waker), 2, "the store holds the waker");
    drop(waiting);
    assert_eq!(Arc::strong_count(&waker), 1, "the store holds it no longer");
    append(&store, "log", &["a"]);
    assert_eq!(waker.get(), 0);
}

#[test]
fn a_task_waits_for_durable_entries_and_for_those_in_memory() {
    let (store, _) = store();
    let waker = Arc::new(Count::default());
    let mut waiting = store.wait_for_async("log", 1);
    assert!(poll(&mut waiting, &waker).is_pending());
    store.append_with("log", "a", Durability::Deferred(LONG)).unwrap().wait().unwrap();
    assert!(poll(&mut waiting, &waker).is_pending(), "a power cut may take it back");
    store.flush().unwrap();
    assert!(matches!(poll(&mut waiting, &waker), Poll::Ready(Ok(()))));
    let space = store.create_space("space", SpaceConfig::new()).unwrap();
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(256 << 10)));
    let memory = store.create_space("memory", memory).unwrap();
    for space in [space, memory] {
        let mut waiting = space.wait_for_async("log", 1);
        assert!(poll(&mut waiting, &waker).is_pending());
        space.append("log", "a").unwrap().wait().unwrap();
        assert!(matches!(poll(&mut waiting, &waker), Poll::Ready(Ok(()))));
    }
}

/// As in the ring: a commit that takes its entries back has reached their numbers.
#[test]
fn a_task_is_woken_for_a_number_that_is_gone_from_memory() {
    let (store, _) = store();
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(256 << 10)));
    let space = store.create_space("memory", memory).unwrap();
    for (key, next, step) in GONE.into_iter().chain([BEGUN]) {
        let waker = Arc::new(Count::default());
        let mut waiting = space.wait_for_async(key, next);
        assert!(poll(&mut waiting, &waker).is_pending(), "{key}");
        let mut commit = Commit::new();
        step(&mut commit);
        space.commit(&commit).unwrap().wait().unwrap();
        assert_eq!(waker.get(), 1, "{key}");
        assert!(matches!(poll(&mut waiting, &waker), Poll::Ready(Ok(()))), "{key}");
    }
}

#[test]
fn a_task_gets_the_errors_of_a_wrong_wait() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = || Options::new().ring_size(1 << 20).max_payload(1 << 16);
    let store = options().open(&path).unwrap();
    assert!(matches!(block_on(store.wait_for_async("", 1)), Err(Error::InvalidKey { .. })));
    let waiting = store.wait_for_async("log", 1);
    drop(store);
    assert!(matches!(block_on(waiting), Err(Error::Closed)), "it does not keep its store open");
    let reader = options().read_only(true).open(&path).unwrap();
    assert!(matches!(block_on(reader.wait_for_async("log", 0)), Err(Error::ReadOnly)));
}
