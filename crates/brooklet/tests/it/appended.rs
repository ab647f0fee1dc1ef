//! Reads of entries that are appended and not durable yet.

use std::io::ErrorKind;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::thread;

use brooklet::io::{Fault, MemVolume};
use brooklet::{
    Class, Commit, Durability, Entry, Error, MemoryConfig, Options, Retention, SpaceConfig, Store,
};

fn options() -> Options {
    Options::new().ring_size(256 << 10).memory_budget(256 << 10).max_payload(32 << 10).block_size(4 << 10)
}

/// A store in which nothing becomes durable by itself.
fn still() -> Store {
    options().threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap()
}

fn appended(store: &Store, key: &str, range: impl RangeBounds<u64>) -> Vec<(u64, Vec<u8>)> {
    let entries = store.read_appended(key, range).unwrap().map(|entry| entry.unwrap());
    entries.map(|Entry { seq, payload }| (seq, payload.to_vec())).collect()
}

fn next(store: &Store, key: &str) -> Option<(u64, u64)> {
    store.bounds_appended(key).unwrap().map(|bounds| (bounds.first, bounds.next))
}

#[test]
fn a_writer_reads_back_what_is_not_durable() {
    let store = still();
    assert_eq!((appended(&store, "log", ..), next(&store, "log")), (vec![], None));
    let ticket = store.append_many("log", ["a", "b", "c"]).unwrap();
    let entries = vec![(0, b"a".to_vec()), (1, b"b".to_vec()), (2, b"c".to_vec())];
    assert_eq!((appended(&store, "log", ..), next(&store, "log")), (entries.clone(), Some((0, 3))));
    assert_eq!(appended(&store, "log", 1..2), entries[1..2]);
    assert_eq!(appended(&store, "log", 2..9), entries[2..]);
    let mut back = store.read_appended("log", ..).unwrap();
    assert_eq!(back.next_back().unwrap().unwrap().seq, 2);
    // Other readers see nothing of it.
    assert!(matches!(store.read("log", ..), Err(Error::UnknownLog { .. })));
    assert_eq!(store.get_bounds("log").unwrap(), None);
    ticket.wait().unwrap();
    assert_eq!((appended(&store, "log", ..), next(&store, "log")), (entries, Some((0, 3))));
}

/// Every operation, on top of entries in runs, in the frozen and in the active memtable.
#[test]
fn all_operations_in_flight_count() {
    for visible in [false, true] {
        let store = still();
        let payload = |n: u64| format!("{n}").repeat(300).into_bytes();
        let mut all: Vec<(u64, Vec<u8>)> = Vec::new();
        let append = |store: &Store, all: &mut Vec<(u64, Vec<u8>)>, count: u64| {
            for _ in 0..count {
                let seq = next(store, "log").map_or(0, |(_, next)| next);
                all.push((seq, payload(seq + all.len() as u64)));
                let ticket = store.append("log", &all.last().unwrap().1).unwrap();
                assert_eq!(ticket.seq(), seq);
            }
        };
        append(&store, &mut all, 30);
        drop(store.append("other", "x").unwrap());
        if visible {
            store.checkpoint().unwrap();
        }
        append(&store, &mut all, 30);
        assert_eq!(appended(&store, "log", ..), all);
        drop(store.truncate("log", 20).unwrap());
        all.truncate(20);
        append(&store, &mut all, 3);
        assert_eq!(appended(&store, "log", ..), all, "visible: {visible}");
        drop(store.trim("log", 5).unwrap());
        all.drain(..5);
        assert_eq!((appended(&store, "log", ..), next(&store, "log")), (all.clone(), Some((5, 23))));
        assert_eq!(appended(&store, "log", 0..7), all[..2]);
        let mut commit = Commit::new();
        commit.begin_at("log", 1_000).append("log", "y").keep_last("log", 1).append("log", "z");
        drop(store.commit(&commit).unwrap());
        all = vec![(1_000, b"y".to_vec()), (1_001, b"z".to_vec())];
        assert_eq!((appended(&store, "log", ..), next(&store, "log")), (all.clone(), Some((1_000, 1_002))));
        commit.clear();
        commit.delete("log");
        drop(store.commit(&commit).unwrap());
        assert_eq!((appended(&store, "log", ..), next(&store, "log")), (vec![], None));
        drop(store.append("log", "anew").unwrap());
        assert_eq!(appended(&store, "log", ..), [(0, b"anew".to_vec())]);
        drop(store.snapshot("log", "whole").unwrap());
        assert_eq!(appended(&store, "log", ..), [(1, b"whole".to_vec())]);
        store.flush().unwrap();
        assert_eq!(appended(&store, "log", ..), [(1, b"whole".to_vec())]);
    }
}

#[test]
fn limits_spaces_and_deferred_commits_count() {
    let store = still();
    drop(store.set_retention("few", Retention::new().entries(2)).unwrap());
    drop(store.append_many("few", ["a", "b", "c"]).unwrap());
    assert_eq!(appended(&store, "few", ..), [(1, b"b".to_vec()), (2, b"c".to_vec())]);
    drop(store.append_with("late", "x", Durability::Deferred(std::time::Duration::from_secs(9))).unwrap());
    assert_eq!(appended(&store, "late", ..), [(0, b"x".to_vec())]);
    let space = store.create_space("space", SpaceConfig::new()).unwrap();
    drop(space.append("log", "s").unwrap());
    assert_eq!(space.read_appended("log", ..).unwrap().count(), 1);
    assert_eq!(space.bounds_appended("log").unwrap().map(|bounds| bounds.next), Some(1));
    assert_eq!(space.get_bounds("log").unwrap(), None);
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    let memory = store.create_space("memory", memory).unwrap();
    drop(memory.append("log", "m").unwrap());
    assert_eq!(memory.read_appended("log", ..).unwrap().count(), 1);
    assert_eq!(memory.bounds_appended("log").unwrap().map(|bounds| bounds.next), Some(1));
}

/// Writers read back while others write: each sees its own entries at once.
#[test]
fn writers_read_back_at_once_under_load() {
    let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    thread::scope(|scope| {
        for writer in 0..4u8 {
            let store = &store;
            scope.spawn(move || {
                let key = format!("log/{writer}");
                let mut last = None;
                for n in 0..2_000u64 {
                    let payload = vec![writer ^ n as u8; 1 + (n as usize * 37) % 900];
                    let ticket = store.append(&key, &payload).unwrap();
                    assert_eq!(ticket.seq(), n);
                    let from = n.saturating_sub(3);
                    let read = appended(store, &key, from..);
                    assert_eq!(read.len() as u64, n - from + 1);
                    assert_eq!(read.last().unwrap(), &(n, payload));
                    if n % 97 == 0 {
                        drop(store.keep_last(&key, 5).unwrap());
                    }
                    last = Some(ticket);
                }
                last.unwrap().wait().unwrap();
                assert_eq!(appended(store, &key, ..).len() as u64, store.bounds(&key).unwrap().len());
            });
        }
    });
}

#[test]
fn a_store_that_cannot_write_says_so() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().threads(false).create_on(volume.clone()).unwrap();
    store.append("log", "durable").unwrap().wait().unwrap();
    volume.fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: false });
    assert!(store.append("log", "lost").unwrap().wait().is_err());
    let error = store.read_appended("log", ..).map(drop).unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
    assert_eq!(store.read("log", ..).unwrap().count(), 1, "other reads go on");
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    store.append("log", "a").unwrap().wait().unwrap();
    store.close().unwrap();
    let reader = options().read_only(true).open_on(volume).unwrap();
    assert_eq!((appended(&reader, "log", ..).len(), next(&reader, "log")), (1, Some((0, 1))));
    assert_eq!(next(&reader, "none"), None);
}
