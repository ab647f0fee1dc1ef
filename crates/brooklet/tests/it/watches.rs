//! Watches: which logs changed, each once, in bounded memory.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use brooklet::io::MemVolume;
use brooklet::{
    Bounds, Class, Commit, Error, MemoryConfig, Options, Retention, SpaceConfig, Store, Watch, WatchEvent,
};

use crate::common::tasks::block_on;

/// So long that a wake-up that is lost shows.
const LONG: Duration = Duration::from_secs(120);

fn store() -> Store {
    Store::in_memory(1).unwrap()
}

/// All events that are there now, in short form: `key 0..2`, `key deleted`, `missed`.
fn now(watch: &mut Watch) -> String {
    let short = |event| match event {
        WatchEvent::Moved { key, bounds: Bounds { first, next } } => {
            format!("{} {first}..{next}", String::from_utf8_lossy(&key))
        }
        WatchEvent::Deleted { key } => format!("{} deleted", String::from_utf8_lossy(&key)),
        WatchEvent::Missed => "missed".into(),
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| watch.try_next().unwrap()).map(short).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_watch_names_each_changed_log_once() {
    let store = store();
    store.append("b/0", "before").unwrap().wait().unwrap();
    let (mut all, mut some) = (store.watch("").unwrap(), store.watch("b/").unwrap());
    assert_eq!((now(&mut all), now(&mut some)), (String::new(), String::new()));
    for key in ["b/1", "a", "b/0", "b/1"] {
        store.append_many(key, ["x", "y"]).unwrap().wait().unwrap();
    }
    store.trim("b/0", 1).unwrap().wait().unwrap();
    assert_eq!(now(&mut all), "a 0..2, b/0 1..3, b/1 0..4");
    store.delete("b/1").unwrap().wait().unwrap();
    store.truncate("b/0", 2).unwrap().wait().unwrap();
    assert_eq!(now(&mut some), "b/0 1..2, b/1 deleted");
    assert_eq!(now(&mut all), "b/0 1..2, b/1 deleted");
    // Deleted and made again is there, and an empty log is, too.
    let mut commit = Commit::new();
    commit.delete("b/0").append("b/0", "new").set_retention("b/2", Retention::new().entries(3));
    store.commit(&commit).unwrap().wait().unwrap();
    assert_eq!((now(&mut all), now(&mut some)), ("b/0 0..1, b/2 0..0".into(), "b/0 0..1, b/2 0..0".into()));
}

#[test]
fn too_many_changes_are_missed_by_name_only() {
    let store = store();
    let mut watch = store.watch("log/").unwrap().with_limit(10);
    for round in 1..=2 {
        for n in 0..10 {
            store.append(format!("log/{n}"), "x").unwrap().wait().unwrap();
        }
        let events = now(&mut watch);
        assert_eq!(events.split(", ").count(), 10);
        assert!(events.starts_with(&format!("log/0 0..{}", 3 * round - 2)), "{events}");
        for n in 0..11 {
            store.append(format!("log/{n}"), "x").unwrap().wait().unwrap();
        }
        assert_eq!(now(&mut watch), "missed");
        for n in 0..10 {
            store.append(format!("log/{n}"), "x").unwrap().wait().unwrap();
        }
        now(&mut watch);
    }
}

/// A watch on everything while everything is written: at the end, it knows where every log is.
#[test]
fn a_watch_on_everything_under_load() {
    let options = Options::new().ring_size(2 << 20).memory_budget(256 << 10).max_payload(64 << 10);
    let store = options.create_on(Arc::new(MemVolume::new(3))).unwrap();
    let mut watch = store.watch("").unwrap().with_limit(2_000);
    let known = thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut known = std::collections::BTreeMap::new();
            loop {
                match watch.next() {
                    // The last key of its batch.
                    Some(Ok(WatchEvent::Moved { key, bounds })) if key == b"z" => {
                        assert_eq!(bounds.next, 1);
                        return known;
                    }
                    Some(Ok(WatchEvent::Moved { key, bounds })) => {
                        let before = known.insert(key, bounds.next);
                        assert!(before < Some(bounds.next), "it only grows");
                    }
                    Some(Ok(WatchEvent::Deleted { key })) => drop(known.remove(&key)),
                    Some(Ok(_)) => {
                        known = store
                            .scan("")
                            .unwrap()
                            .map(|log| log.unwrap())
                            .map(|log| (log.key, log.bounds.next))
                            .collect();
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        thread::scope(|writers| {
            for writer in 0..3u64 {
                let store = &store;
                writers.spawn(move || {
                    for n in 0..8_000u64 {
                        drop(store.append(format!("log/{writer}/{}", n * 7919 % 1_500), [0; 40]).unwrap());
                    }
                });
            }
        });
        store.append("z", "x").unwrap().wait().unwrap();
        watcher.join().unwrap()
    });
    let mut there: std::collections::BTreeMap<_, _> =
        store.scan("").unwrap().map(|log| log.unwrap()).map(|log| (log.key, log.bounds.next)).collect();
    there.remove(&b"z"[..]);
    let missing: Vec<_> = there.iter().filter(|(key, next)| known.get(*key) != Some(next)).collect();
    assert_eq!(missing.first(), None);
    store.close().unwrap();
}

#[test]
fn watches_of_spaces_name_their_keys() {
    let store = store();
    let space = store.create_space("space", SpaceConfig::new()).unwrap();
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    let memory = store.create_space("memory", memory).unwrap();
    let mut all = store.watch("").unwrap();
    let mut watches = [space.watch("a").unwrap(), memory.watch("a").unwrap()];
    for space in [&space, &memory] {
        space.append("a1", "x").unwrap().wait().unwrap();
        space.append("b", "x").unwrap().wait().unwrap();
    }
    assert_eq!(watches.each_mut().map(now), ["a1 0..1", "a1 0..1"]);
    assert_eq!(now(&mut all), "memory/a1 0..1, memory/b 0..1, space/a1 0..1, space/b 0..1");
    memory.delete("a1").unwrap().wait().unwrap();
    assert_eq!(now(&mut watches[1]), "a1 deleted");
}

#[test]
fn a_watch_misses_an_import_and_ends_with_the_store() {
    let source = store();
    source.append("log", "a").unwrap().wait().unwrap();
    let store = store();
    let mut watch = store.watch("").unwrap();
    store.import().view(&source.view().unwrap(), "").unwrap();
    assert_eq!(now(&mut watch), "missed");
    thread::scope(|scope| {
        let reader = scope.spawn(|| (block_on(watch.next_async()), watch.next(), watch.next_timeout(LONG)));
        store.close().unwrap();
        let (first, then, again) = reader.join().unwrap();
        assert!(
            matches!((&first, &then, &again), (Err(Error::Closed), None, Err(Error::Closed))),
            "{first:?}"
        );
    });
    let mut stream = std::pin::pin!(Store::in_memory(2).unwrap().watch("").unwrap().into_stream());
    let mut poll =
        || futures_core::Stream::poll_next(stream.as_mut(), &mut Context::from_waker(Waker::noop()));
    assert!(matches!(poll(), Poll::Ready(Some(Err(Error::Closed)))));
    assert!(matches!(poll(), Poll::Ready(None)));
}
