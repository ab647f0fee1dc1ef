//! Tails: every entry once and in order, whatever happens to the log meanwhile; no polling.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{
    Class, Commit, Durability, Entry, Error, MemoryConfig, Options, Retention, SpaceConfig, Store, Tail,
    TailEvent, WhenFull,
};

use crate::common::small;
use crate::common::tasks::{Count, block_on};

/// So long that a wake-up that is lost shows.
const LONG: Duration = Duration::from_secs(120);

fn store() -> Store {
    Store::in_memory(1).unwrap()
}

fn append(store: &Store, key: &str, payloads: &[&str]) {
    store.append_many(key, payloads).unwrap().wait().unwrap();
}

/// An event in short form: `3=c`, `trimmed 1..3`, `truncated 2`, `deleted`.
fn short(event: TailEvent) -> String {
    match event {
        TailEvent::Entry(Entry { seq, payload }) => format!("{seq}={}", String::from_utf8_lossy(&payload)),
        TailEvent::Trimmed(range) => format!("trimmed {range:?}"),
        TailEvent::Truncated { next } => format!("truncated {next}"),
        TailEvent::Deleted => "deleted".into(),
        other => panic!("{other:?}"),
    }
}

/// All events that are there now.
fn now(tail: &mut Tail) -> String {
    let events = std::iter::from_fn(|| tail.try_next().unwrap());
    events.map(short).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_tail_returns_what_is_there_and_what_comes() {
    let store = store();
    append(&store, "log", &["a", "b"]);
    let (mut tail, mut late) = (store.tail("log", 0).unwrap(), store.tail("log", 2).unwrap());
    let mut of_new_log = store.tail("new", 0).unwrap();
    assert_eq!(
        (now(&mut tail), now(&mut late), now(&mut of_new_log)),
        ("0=a 1=b".into(), String::new(), String::new())
    );
    append(&store, "log", &["c"]);
    append(&store, "other", &["x"]);
    store.checkpoint().unwrap();
    append(&store, "log", &["d"]);
    append(&store, "new", &["n"]);
    assert_eq!((now(&mut tail), now(&mut late)), ("2=c 3=d".into(), "2=c 3=d".into()));
    assert_eq!((now(&mut of_new_log), of_new_log.position()), ("0=n".into(), 1));
}

#[test]
fn trimmed_entries_are_a_gap_with_a_name() {
    let store = store();
    append(&store, "log", &["a", "b", "c", "d"]);
    let mut tail = store.tail("log", 0).unwrap();
    assert_eq!(short(tail.try_next().unwrap().unwrap()), "0=a");
    store.trim("log", 3).unwrap().wait().unwrap();
    // The tail continues with its view.
    assert_eq!(now(&mut tail), "1=b 2=c 3=d");
    append(&store, "log", &["e", "f"]);
    store.snapshot("log", "g").unwrap().wait().unwrap();
    assert_eq!(now(&mut tail), "trimmed 4..6 6=g");
    append(&store, "log", &["h"]);
    store.keep_last("log", 0).unwrap().wait().unwrap();
    assert_eq!(now(&mut tail), "trimmed 7..8");
    store.set_retention("log", Retention::new().entries(1)).unwrap().wait().unwrap();
    append(&store, "log", &["i", "j"]);
    assert_eq!(now(&mut tail), "trimmed 8..9 9=j");
}

/// The numbers alone do not show that the entries are others.
#[test]
fn truncated_entries_come_again() {
    let store = store();
    append(&store, "log", &["a", "b", "c"]);
    let mut tail = store.tail("log", 0).unwrap();
    assert_eq!(now(&mut tail), "0=a 1=b 2=c");
    let mut commit = Commit::new();
    commit.truncate("log", 1).append("log", "B").append("log", "C").append("log", "D");
    store.commit(&commit).unwrap().wait().unwrap();
    assert_eq!(now(&mut tail), "truncated 1 1=B 2=C 3=D");
    // Entries that the tail has not returned are replaced without a word.
    append(&store, "log", &["e", "f"]);
    assert_eq!(short(tail.try_next().unwrap().unwrap()), "4=e");
    store.truncate("log", 5).unwrap().wait().unwrap();
    append(&store, "log", &["F", "G"]);
    assert_eq!(now(&mut tail), "5=F 6=G");
    store.truncate("log", 0).unwrap().wait().unwrap();
    assert_eq!(now(&mut tail), "truncated 0");
    append(&store, "log", &["A"]);
    assert_eq!(now(&mut tail), "0=A");
}

#[test]
fn a_log_that_is_deleted_and_made_again_is_another_log() {
    let store = store();
    append(&store, "log", &["a", "b"]);
    let mut tail = store.tail("log", 0).unwrap();
    assert_eq!(short(tail.try_next().unwrap().unwrap()), "0=a");
    let mut commit = Commit::new();
    commit.delete("log").append("log", "A").append("log", "B").append("log", "C");
    store.commit(&commit).unwrap().wait().unwrap();
    assert_eq!(now(&mut tail), "deleted 0=A 1=B 2=C");
    store.delete("log").unwrap().wait().unwrap();
    assert_eq!(now(&mut tail), "deleted");
    append(&store, "log", &["1", "2"]);
    store.truncate("log", 1).unwrap().wait().unwrap();
    assert_eq!(now(&mut tail), "0=1");
}

/// A follower that was away while its log was truncated, or deleted.
#[test]
fn a_tail_from_behind_the_end_says_so() {
    let store = store();
    append(&store, "log", &["a", "b"]);
    let mut tail = store.tail("log", 5).unwrap();
    assert_eq!(now(&mut tail), "truncated 2");
    append(&store, "log", &["c"]);
    assert_eq!(now(&mut tail), "2=c");
    assert_eq!(now(&mut store.tail("none", 1).unwrap()), "truncated 0");
}

#[test]
fn a_waiting_thread_wakes_for_its_log_and_for_the_end_of_the_store() {
    let store = store();
    let mut tail = store.tail("log", 0).unwrap();
    assert_eq!(tail.next_timeout(Duration::from_millis(5)).unwrap(), None);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let first = short(tail.next_timeout(LONG).unwrap().unwrap());
            let second = short(tail.next().unwrap().unwrap());
            (first, second, tail.next(), tail.next(), tail.next_timeout(LONG))
        });
        for payload in ["a", "b"] {
            thread::yield_now();
            append(&store, "log", &[payload]);
        }
        store.close().unwrap();
        let (first, second, closed, end, again) = reader.join().unwrap();
        assert_eq!((first.as_str(), second.as_str()), ("0=a", "1=b"));
        assert!(matches!(closed, Some(Err(Error::Closed))), "{closed:?}");
        assert!(end.is_none() && matches!(again, Err(Error::Closed)));
    });
    assert!(matches!(store.tail("log", 0), Err(Error::Closed)));
}

#[test]
fn a_store_that_stops_ends_its_tails() {
    let volume = MemVolume::new(7);
    let options = Options::new().ring_size(1 << 20).max_payload(1 << 16);
    let store = options.create_on(Arc::new(volume.clone())).unwrap();
    append(&store, "log", &["a"]);
    let mut tail = store.tail("log", 0).unwrap();
    assert_eq!(now(&mut tail), "0=a");
    let waker = Arc::new(Count::default());
    let task = Waker::from(waker.clone());
    let mut other = store.tail("log", 1).unwrap();
    assert!(pin!(other.next_async()).as_mut().poll(&mut Context::from_waker(&task)).is_pending());
    thread::scope(|scope| {
        let reader = scope.spawn(|| tail.next());
        volume.power_off();
        let _ = store.append("log", "b").map(|ticket| ticket.wait());
        let stopped = reader.join().unwrap();
        assert!(matches!(stopped, Some(Err(Error::Stopped { .. }))), "{stopped:?}");
    });
    store.close().unwrap_err();
    assert!(waker.get() > 0, "the task wakes, too");
    assert!(matches!(other.try_next(), Ok(None)));
    assert!(matches!(block_on(other.next_async()), Err(Error::Stopped { .. })));
    assert!(matches!(store.tail("log", 0), Err(Error::Stopped { .. })));
}

/// Each entry once, whoever writes and whatever merges.
#[test]
fn tails_follow_logs_that_many_threads_write() {
    let options = Options::new().ring_size(2 << 20).memory_budget(256 << 10).max_payload(64 << 10);
    let store = options.create_on(Arc::new(MemVolume::new(3))).unwrap();
    let (writers, entries) = (4u64, 1500u64);
    thread::scope(|scope| {
        for log in 0..2 {
            let mut tail = store.tail(format!("log/{log}"), 0).unwrap();
            scope.spawn(move || {
                let mut last = vec![0; writers as usize];
                for seq in 0..writers * entries {
                    let Some(Ok(TailEvent::Entry(entry))) = tail.next() else { panic!("an entry follows") };
                    assert_eq!(entry.seq, seq);
                    let text = String::from_utf8(entry.payload[..].to_vec()).unwrap();
                    let mut parts = text.split(' ').map(|part| part.parse::<u64>().unwrap_or_default());
                    let (writer, n) = (parts.next().unwrap(), parts.next().unwrap());
                    assert_eq!(n, last[writer as usize], "of each writer in its order");
                    last[writer as usize] += 1;
                }
            });
        }
        for writer in 0..writers {
            let store = &store;
            scope.spawn(move || {
                for n in 0..entries {
                    for log in 0..2 {
                        let payload = format!("{writer} {n} {}", "x".repeat((n % 300) as usize));
                        let ticket = store.append(format!("log/{log}"), payload).unwrap();
                        if n % 7 == 0 {
                            ticket.wait().unwrap();
                        }
                    }
                }
            });
        }
    });
    store.close().unwrap();
}

/// Tasks wake for their own log only: a thousand idle ones cost nothing.
#[test]
pub fn idle_tails_are_not_woken() {
    // Without threads, every wake-up of a commit comes before its wait ends.
    let store = small::options().threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut tails: Vec<_> = (0..1000).map(|n| store.tail(format!("log/{n}"), 0).unwrap()).collect();
    let wakers: Vec<_> = tails.iter().map(|_| Arc::new(Count::default())).collect();
    let wait = |tail: &mut Tail, waker: &Arc<Count>| {
        let task = Waker::from(waker.clone());
        assert!(pin!(tail.next_async()).as_mut().poll(&mut Context::from_waker(&task)).is_pending());
    };
    tails.iter_mut().zip(&wakers).for_each(|(tail, waker)| wait(tail, waker));
    // The wake-ups of log/7, and the number of other tasks that were woken.
    let woken = || {
        let others = wakers.iter().enumerate().filter(|(n, waker)| *n != 7 && waker.get() > 0);
        (wakers[7].get(), others.count())
    };
    for _ in 0..3 {
        append(&store, "log/7", &["x"]);
        append(&store, "other", &["x"]);
    }
    assert_eq!(woken(), (1, 0), "once for its entries, and not again until the task has looked");
    assert_eq!(now(&mut tails[7]), "0=x 1=x 2=x");
    wait(&mut tails[7], &wakers[7]);
    // These bring nothing to read.
    store.trim("log/7", 1).unwrap().wait().unwrap();
    for log in ["log/7", "log/8"] {
        store.set_retention(log, Retention::new().entries(1)).unwrap().wait().unwrap();
    }
    assert_eq!(woken(), (1, 0), "a log that gets no entry wakes nobody");
    store.close().unwrap();
    assert_eq!(woken(), (2, 999), "the end wakes all");
    assert!(wakers.iter().enumerate().all(|(n, waker)| n == 7 || waker.get() == 1));
}

#[test]
fn a_task_awaits_a_tail() {
    let store = store();
    thread::scope(|scope| {
        let mut tail = store.tail("log", 0).unwrap();
        let reader = scope.spawn(move || {
            block_on(async {
                let mut seen = Vec::new();
                while seen.len() < 100 {
                    seen.push(short(tail.next_async().await.unwrap()));
                }
                seen
            })
        });
        for n in 0..100 {
            append(&store, "log", &[&n.to_string()]);
        }
        let seen = reader.join().unwrap();
        assert_eq!(seen, (0..100).map(|n| format!("{n}={n}")).collect::<Vec<_>>());
    });
    let mut stream = store.tail("log", 98).unwrap().into_stream();
    let mut context = Context::from_waker(Waker::noop());
    let mut poll = || futures_core::Stream::poll_next(pin!(&mut stream).as_mut(), &mut context);
    for wanted in ["98=98", "99=99"] {
        let Poll::Ready(Some(Ok(event))) = poll() else { panic!("an entry is there") };
        assert_eq!(short(event), wanted);
    }
    assert!(poll().is_pending());
    store.close().unwrap();
    assert!(matches!(poll(), Poll::Ready(Some(Err(Error::Closed)))));
    assert!(matches!(poll(), Poll::Ready(None)));
}

/// An entry that only its writer was promised is not on stable media yet.
#[test]
fn deferred_entries_come_when_they_are_durable() {
    let clock = Arc::new(ManualClock::default());
    let options = small::options().threads(false).clock(clock);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut tail = store.tail("log", 0).unwrap();
    store.append_with("log", "a", Durability::Deferred(LONG)).unwrap().wait().unwrap();
    assert_eq!(now(&mut tail), "");
    assert!(!store.wait_for("log", 1, Duration::ZERO).unwrap());
    store.flush().unwrap();
    assert_eq!(now(&mut tail), "0=a");
    assert!(store.wait_for("log", 1, Duration::ZERO).unwrap());
}

#[test]
fn a_tail_does_not_keep_its_store_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let open = || Options::new().ring_size(1 << 20).max_payload(1 << 16).open(&path);
    let store = open().unwrap();
    append(&store, "log", &["a", "b"]);
    let mut tail = store.tail("log", 0).unwrap();
    assert_eq!(short(tail.try_next().unwrap().unwrap()), "0=a");
    drop(store);
    let error = std::iter::from_fn(|| tail.next()).find_map(Result::err);
    assert!(matches!(error, Some(Error::Closed)), "{error:?}");
    let store = open().unwrap();
    assert_eq!(now(&mut store.tail("log", 1).unwrap()), "1=b");
    drop(store);
    let reader = Options::new().read_only(true).open(&path).unwrap();
    assert!(matches!(reader.tail("log", 0), Err(Error::ReadOnly)));
    assert!(matches!(reader.wait_for("log", 0, LONG), Err(Error::ReadOnly)));
}

#[test]
fn tails_of_spaces_and_of_logs_in_memory() {
    let store = store();
    let space = store.create_space("space", SpaceConfig::new()).unwrap();
    let memory = MemoryConfig::new(256 << 10).when_full(WhenFull::DropOldest);
    let memory = store.create_space("memory", SpaceConfig::new().class(Class::Memory(memory))).unwrap();
    let mut tails = [space.tail("log", 0).unwrap(), memory.tail("log", 0).unwrap()];
    for space in [&space, &memory] {
        space.append_many("log", ["a", "b"]).unwrap().wait().unwrap();
        assert!(space.wait_for("log", 2, LONG).unwrap());
        let mut commit = Commit::new();
        commit.truncate("log", 1).append("log", "B").append("log", "C");
        space.commit(&commit).unwrap().wait().unwrap();
    }
    for tail in &mut tails {
        assert_eq!(now(tail), "0=a 1=B 2=C");
    }
    for space in [&space, &memory] {
        space.truncate("log", 2).unwrap().wait().unwrap();
        space.append("log", "c").unwrap().wait().unwrap();
    }
    for tail in &mut tails {
        assert_eq!(now(tail), "truncated 2 2=c");
    }
    memory.configure(SpaceConfig::new()).unwrap();
    memory.append("log", "d").unwrap().wait().unwrap();
    assert_eq!(now(&mut tails[1]), "3=d", "also after the space left memory");
    let dropping = MemoryConfig::new(256 << 10).when_full(WhenFull::DropOldest);
    let space = store.create_space("dropping", SpaceConfig::new().class(Class::Memory(dropping))).unwrap();
    space.append("first", "a").unwrap().wait().unwrap();
    let mut tail = space.tail("first", 0).unwrap();
    assert_eq!(now(&mut tail), "0=a");
    for n in 0..100 {
        space.append(format!("log/{n}"), vec![0; 10_000]).unwrap().wait().unwrap();
    }
    assert_eq!(now(&mut tail), "deleted", "full memory dropped the log");
}

#[test]
fn a_tail_sees_an_import() {
    let source = store();
    append(&source, "log", &["a", "b"]);
    let store = store();
    append(&store, "other", &["x"]);
    let mut tail = store.tail("log", 0).unwrap();
    assert_eq!(now(&mut tail), "");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| store.wait_for("log", 2, LONG));
        store.import().view(&source.view().unwrap(), "").unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
    assert_eq!(now(&mut tail), "0=a 1=b");
}

/// A tail that nobody reads keeps no entries, and costs the writers nothing that grows.
#[test]
fn a_tail_that_is_never_read_stores_nothing() {
    let store = store();
    let mut tail = store.tail("log", 0).unwrap();
    for _ in 0..20_000 {
        drop(store.snapshot("log", [0; 100]).unwrap());
    }
    store.flush().unwrap();
    assert_eq!(tail.try_next().unwrap(), Some(TailEvent::Trimmed(0..19_999)));
    assert!(matches!(tail.try_next().unwrap(), Some(TailEvent::Entry(Entry { seq: 19_999, .. }))));
}

/// A waker runs on a thread of the store, which must not wait for itself.
#[test]
fn a_tail_does_not_block_in_a_waker() {
    type Told = std::sync::mpsc::Sender<Result<Option<TailEvent>, Error>>;
    struct Waits(std::sync::Mutex<(Tail, Option<Told>)>);
    impl std::task::Wake for Waits {
        fn wake(self: Arc<Self>) {
            let (tail, sender) = &mut *self.0.lock().unwrap();
            let result = tail.next_timeout(LONG);
            sender.take().into_iter().for_each(|sender| sender.send(result.clone()).unwrap());
        }
    }
    let store = store();
    let (sender, receiver) = std::sync::mpsc::channel();
    let waits = Waits((store.tail("none", 0).unwrap(), Some(sender)).into());
    let waker = Waker::from(Arc::new(waits));
    // The committer may be faster than a poll: then nobody is woken.
    let _waits = loop {
        let mut ticket = store.append("log", "x").unwrap();
        let poll = pin!(&mut ticket).poll(&mut Context::from_waker(&waker));
        if poll.is_pending() {
            break ticket;
        }
    };
    assert!(matches!(receiver.recv_timeout(LONG).unwrap(), Err(Error::WouldWait)));
}
