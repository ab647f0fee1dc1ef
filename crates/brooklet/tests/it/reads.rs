//! Reads that take what is there, and reads of many logs.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Bounds, Class, Durability, Error, MemoryConfig, Options, SpaceConfig, Store};

fn store() -> Store {
    let clock = Arc::new(ManualClock::default());
    let options =
        Options::new().ring_size(1 << 20).max_payload(8 << 10).threads(false).clock(clock).rng_seed(1);
    options.create_on(Arc::new(MemVolume::new(1))).unwrap()
}

fn append(store: &Store, key: &str, payloads: &[&str]) {
    store.append_many(key, payloads).unwrap().wait().unwrap();
}

/// Returns a store with logs in a run, in the memtable and in both, in a space in memory, and logs
/// that were trimmed, emptied and deleted.
fn of_all_kinds() -> Store {
    let store = store();
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    store.create_space("memory", memory).unwrap();
    for key in ["run", "both", "trimmed", "emptied", "deleted"] {
        append(&store, key, &["a", "b", "c"]);
    }
    store.trim("trimmed", 2).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.trim("emptied", 3).unwrap().wait().unwrap();
    store.delete("deleted").unwrap().wait().unwrap();
    for key in ["both", "memtable", "memory/log"] {
        append(&store, key, &["d"]);
    }
    store
}

const KEYS: [&str; 9] =
    ["both", "none", "memory/log", "trimmed", "deleted", "run", "memtable", "emptied", "memory/none"];

#[test]
fn what_is_there_is_read_and_nothing_is_no_error() {
    let store = of_all_kinds();
    let texts = |entries: brooklet::Entries| {
        entries.map(|entry| String::from_utf8(entry.unwrap().payload.to_vec()).unwrap()).collect::<String>()
    };
    for _ in 0..2 {
        for (key, all, from_1, bounds) in [
            ("run", "abc", "bc", Some((0, 3))),
            ("both", "abcd", "bcd", Some((0, 4))),
            ("memtable", "d", "", Some((0, 1))),
            ("memory/log", "d", "", Some((0, 1))),
            ("trimmed", "c", "c", Some((2, 3))),
            ("emptied", "", "", Some((3, 3))),
            ("deleted", "", "", None),
            ("none", "", "", None),
            ("memory/none", "", "", None),
        ] {
            assert_eq!(texts(store.read_available(key, ..).unwrap()), all, "{key}");
            assert_eq!(texts(store.read_available(key, 1..).unwrap()), from_1, "{key}");
            assert_eq!(texts(store.read_available(key, 0..u64::MAX).unwrap()), all, "{key}");
            assert_eq!(texts(store.read_available(key, 9..=12).unwrap()), "", "{key}");
            let payload = |entry: Option<brooklet::Entry>| entry.map(|entry| entry.payload);
            let byte = |c: Option<char>| c.map(|c| brooklet::Bytes::from(c.to_string()));
            assert_eq!(payload(store.first(key).unwrap()), byte(all.chars().next()), "{key}");
            assert_eq!(payload(store.last(key).unwrap()), byte(all.chars().last()), "{key}");
            let expected = bounds.map(|(first, next)| Bounds { first, next });
            assert_eq!(store.get_bounds(key).unwrap(), expected, "{key}");
            assert_eq!(store.exists(key).unwrap(), bounds.is_some(), "{key}");
        }
        store.checkpoint().unwrap();
    }
    assert!(matches!(store.read_available("", ..), Err(Error::InvalidKey { .. })));
    assert!(matches!(store.get_bounds(""), Err(Error::InvalidKey { .. })));
}

#[test]
fn lent_entries_are_those_of_the_iterator() {
    let (store, mut rng) = (store(), Rng::new(7));
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    store.create_space("memory", memory).unwrap();
    for round in 0..3 {
        for n in 0..60 {
            let payloads = vec![vec![n; rng.below(3_000) as usize]; 1 + rng.below(3) as usize];
            store.append_many("log", &payloads).unwrap().wait().unwrap();
            store.append("memory/log", &payloads[0]).unwrap().wait().unwrap();
        }
        store.trim("log", 20 * (round + 1)).unwrap().wait().unwrap();
        // The last round stays in the memtable.
        if round < 2 {
            store.checkpoint().unwrap();
        }
    }
    for turn in 0..200 {
        let key = if turn % 4 == 0 { "memory/log" } else { "log" };
        let bounds = store.bounds(key).unwrap();
        let from = bounds.first + rng.below(bounds.next - bounds.first);
        let to = from + rng.below(bounds.next - from) + 1;
        let expected: Vec<_> = store.read(key, from..to).unwrap().map(Result::unwrap).collect();
        let (mut entries, mut found) = (store.read(key, from..to).unwrap(), Vec::new());
        let last = (turn % 3 == 0).then(|| entries.next_back()).flatten();
        loop {
            let mut room = rng.below(100);
            let all = entries.lend_while(|seq, payload| {
                let fits = room > 0;
                if fits {
                    room -= 1;
                    found.push(brooklet::Entry { seq, payload: payload.to_vec().into() });
                }
                fits
            });
            if all.unwrap() {
                break;
            }
            found.extend(entries.next().map(Result::unwrap));
        }
        found.extend(last.map(Result::unwrap));
        assert!(found == expected, "turn {turn}: {} of {} entries", found.len(), expected.len());
        // The same from the other end.
        let (mut entries, mut found) = (store.read(key, from..to).unwrap(), Vec::new());
        let first = (turn % 3 == 0).then(|| entries.next()).flatten();
        loop {
            let mut room = rng.below(100);
            let all = entries.lend_back_while(|seq, payload| {
                let fits = room > 0;
                if fits {
                    room -= 1;
                    found.push(brooklet::Entry { seq, payload: payload.to_vec().into() });
                }
                fits
            });
            if all.unwrap() {
                break;
            }
            found.extend(entries.next_back().map(Result::unwrap));
        }
        found.extend(first.map(Result::unwrap));
        found.reverse();
        assert!(found == expected, "turn {turn}: {} of {} entries back", found.len(), expected.len());
    }
}

#[test]
fn many_logs_are_read_as_each_alone() {
    let store = of_all_kinds();
    // More than are looked up at once, and some of them twice.
    for n in 0..200 {
        append(&store, &format!("many/{n}"), &["x"; 4][..1 + n % 4]);
        if n == 100 {
            store.checkpoint().unwrap();
        }
    }
    let mut rng = Rng::new(3);
    let mut keys: Vec<String> = KEYS.map(str::to_owned).to_vec();
    keys.extend((0..400).map(|_| format!("many/{}", rng.below(220))));
    let many = store.read_many(&keys).unwrap();
    let bounds = store.bounds_many(&keys).unwrap();
    assert_eq!((many.len(), bounds.len()), (keys.len(), keys.len()));
    for ((key, entries), bounds) in keys.iter().zip(many).zip(bounds) {
        let alone = store.read_available(key, ..).unwrap();
        assert!(entries.map(Result::unwrap).eq(alone.map(Result::unwrap)), "{key}");
        assert_eq!(bounds, store.get_bounds(key).unwrap(), "{key}");
    }
    assert!(store.read_many::<&str>([]).unwrap().is_empty());
    assert!(matches!(store.read_many(["run", ""]), Err(Error::InvalidKey { .. })));
    assert!(matches!(store.bounds_many([""]), Err(Error::InvalidKey { .. })));
}

/// A read shows deferred commits, and makes them durable first.
#[test]
fn deferred_commits_are_seen_by_all_reads() {
    let store = store();
    let later = Durability::Deferred(Duration::from_secs(60));
    for (i, seen) in [
        |store: &Store| store.read_available("log", ..).unwrap().count() as u64,
        |store: &Store| store.read_many(["none", "log"]).unwrap().pop().unwrap().count() as u64,
        |store: &Store| store.bounds_many(["log", "none"]).unwrap()[0].unwrap().next,
        |store: &Store| store.get_bounds("log").unwrap().unwrap().next,
        |store: &Store| store.last("log").unwrap().unwrap().seq + 1,
    ]
    .into_iter()
    .enumerate()
    {
        let ticket = store.append_with("log", "entry", later).unwrap();
        assert_eq!(seen(&store), i as u64 + 1);
        assert!(ticket.is_durable(), "call {i} showed what a power cut may take back");
    }
}
