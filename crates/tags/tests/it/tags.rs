//! What tagged records promise, one thing at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Class, MemoryConfig, SpaceConfig, Store};
use brooklet_tags::{Error, MAX_ID, MAX_TAG, MAX_TAGS, Options, Query, Tags};

fn ids(query: Query) -> Vec<String> {
    query.run().unwrap().map(|found| String::from_utf8(found.unwrap().id).unwrap()).collect()
}

#[test]
fn bad_input_is_refused_and_changes_nothing() {
    let store = Store::in_memory(1).unwrap();
    for name in ["", "a/b", "a b", &"a".repeat(65)] {
        let error = Tags::open(&store, name, Options::new()).map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::InvalidName(_)), "{name}");
    }
    let tags = Tags::open(&store, "t", Options::new()).unwrap();
    let none = || Vec::<String>::new();
    assert!(matches!(tags.put("", none(), ""), Err(Error::InvalidId { len: 0 })));
    assert!(matches!(tags.put([7; MAX_ID + 1], none(), ""), Err(Error::InvalidId { .. })));
    assert!(matches!(tags.put("id", [""], ""), Err(Error::InvalidTag { len: 0 })));
    assert!(matches!(tags.put("id", [[7; MAX_TAG + 1]], ""), Err(Error::InvalidTag { .. })));
    let many = (0..=MAX_TAGS).map(|n| n.to_string());
    assert!(matches!(tags.put("id", many, ""), Err(Error::TooManyTags(n)) if n == MAX_TAGS + 1));
    let error = tags.put("id", ["a"], vec![7; 1 << 20]).unwrap_err();
    assert!(matches!(error, Error::Store(brooklet::Error::PayloadTooLarge { .. })), "{error}");
    assert!(matches!(tags.find().run(), Err(Error::EmptyQuery)));
    assert!(matches!(tags.find().none(["a"]).count(), Err(Error::EmptyQuery)));
    assert!(tags.get("id").unwrap().is_none() && tags.remove("id").unwrap().is_none() && tags.is_empty());
    // It goes on.
    tags.put([7; MAX_ID], [[7; MAX_TAG]], "").unwrap().wait().unwrap();
    assert_eq!((tags.count([7; MAX_TAG]).unwrap(), tags.count("other").unwrap()), (1, 0));
}

#[test]
fn a_record_may_bear_ten_thousand_tags() {
    let store = Store::in_memory(1).unwrap();
    let tags = Tags::open(&store, "t", Options::new().recent(5000)).unwrap();
    let many: Vec<String> = (0..10_000).map(|n| format!("tag {n:05}")).collect();
    tags.put("many", &many, "x").unwrap().wait().unwrap();
    tags.put("one", ["tag 09999"], "y").unwrap().wait().unwrap();
    assert_eq!(ids(tags.find().all(["tag 00000"])), ["many"]);
    assert_eq!(ids(tags.find().all(&many)), ["many"]);
    assert_eq!(ids(tags.find().prefix("tag 0999")), ["one", "many"]);
    assert_eq!(tags.get("many").unwrap().unwrap().tags.len(), 10_000);
    assert_eq!(tags.tags("").unwrap().count(), 10_000);
    tags.put("many", ["few"], "z").unwrap().wait().unwrap();
    assert_eq!(tags.tags("").unwrap().count(), 2);
}

/// A tag on every record, and ids that are replaced over and over: what counts no more is not told,
/// and its journal leaves.
#[test]
fn ids_are_replaced_over_and_over() {
    let store = Store::in_memory(1).unwrap();
    let tags = Tags::open(&store, "t", Options::new().recent(20_000)).unwrap();
    for n in 0..150_000u32 {
        let (id, parity) = (format!("{}", n % 10), if n % 2 == 0 { "even" } else { "odd" });
        drop(tags.put(&id, ["every", parity], n.to_le_bytes()).unwrap());
    }
    store.flush().unwrap();
    tags.settle().unwrap();
    assert_eq!((tags.len(), tags.count("every").unwrap(), tags.count("odd").unwrap()), (10, 10, 5));
    assert_eq!(ids(tags.find().all(["every"]).none(["odd"])), ["8", "6", "4", "2", "0"]);
    store.flush().unwrap();
    assert_eq!(store.scan("t/j/").unwrap().count(), 1);
    let again = Tags::open(&store, "t", Options::new()).unwrap();
    assert_eq!((again.len(), again.count("odd").unwrap()), (10, 5));
}

/// Records without a tag, and removals, are changes of which the next opening must not read ever
/// more.
#[test]
fn records_without_tags_are_settled() {
    for removes in [false, true] {
        let store = Store::in_memory(1).unwrap();
        let tags = Tags::open(&store, "t", Options::new().recent(100)).unwrap();
        for n in 0..150u32 {
            let id = n.to_string();
            tags.put(&id, Vec::<String>::new(), "x").unwrap().wait().unwrap();
            if removes && n < 70 {
                tags.remove(&id).unwrap().unwrap().wait().unwrap();
            }
            let changes = if removes { 2 * (n + 1) } else { n + 1 };
            assert!(changes < 110 || store.exists("t/w").unwrap(), "{changes} changes");
        }
        assert_eq!(tags.len(), if removes { 80 } else { 150 });
    }
}

/// A removal adds a note to the journal. In an earlier state, a full store refused it.
#[test]
fn a_full_store_takes_removals() {
    let options = brooklet::Options::new().ring_size(256 << 10).memory_budget(256 << 10);
    let options = options.max_payload(32 << 10);
    let options = options.threads(false).clock(Arc::new(ManualClock::default())).rng_seed(1);
    let store = options.capacity(4 << 20).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let tags = Tags::open(&store, "t", Options::new()).unwrap();
    let mut rng = Rng::new(1);
    let mut noise = || (0..8 << 10).map(|_| rng.next() as u8).collect::<Vec<_>>();
    let mut records = 0;
    while tags.put(format!("{records}"), ["tag"], noise()).is_ok() {
        records += 1;
    }
    // Not even the least of entries finds room now.
    while store.append("small", "x").is_ok() {}
    for n in 0..records {
        assert!(tags.remove(format!("{n}")).unwrap().is_some(), "{n} of {records}");
    }
    store.flush().unwrap();
    assert!(records > 100 && tags.is_empty());
}

/// Nothing is put while very many records are removed.
#[test]
fn removals_alone_are_settled() {
    let store = Store::in_memory(1).unwrap();
    let tags = Tags::open(&store, "t", Options::new().recent(100)).unwrap();
    let ids: Vec<String> = (0..90u32).map(|n| n.to_string()).collect();
    for id in &ids {
        tags.put(id, Vec::<String>::new(), "x").unwrap().wait().unwrap();
    }
    assert!(!store.exists("t/w").unwrap());
    for id in &ids {
        tags.remove(id).unwrap().unwrap().wait().unwrap();
    }
    assert!(store.exists("t/w").unwrap());
    assert!(tags.is_empty());
}

/// Writers, and somebody who asks: each sees what was acknowledged before, and each record once.
#[test]
fn who_asks_sees_what_was_acknowledged() {
    const WRITERS: usize = 4;
    let options = brooklet::Options::new().ring_size(4 << 20).max_payload(64 << 10);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let tags = Tags::open(&store, "t", Options::new().recent(500)).unwrap();
    let over = AtomicBool::new(false);
    let write = |writer: usize| {
        let mine = format!("writer={writer}");
        for n in 0..400u64 {
            let id = format!("{writer}/{}", n % 50);
            tags.put(&id, [mine.as_str(), "all"], n.to_string()).unwrap().wait().unwrap();
            assert_eq!(tags.count(&mine).unwrap(), (n + 1).min(50));
            let newest = tags.find().all([&mine]).limit(1).run().unwrap().next().unwrap().unwrap();
            assert_eq!((newest.id, &newest.payload[..]), (id.into_bytes(), n.to_string().as_bytes()));
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        scope.spawn(|| {
            let mut most = 0;
            while !over.load(Ordering::Relaxed) {
                let mut seen = ids(tags.find().all(["all"]));
                let count = seen.len();
                seen.sort();
                seen.dedup();
                assert_eq!(seen.len(), count, "each once");
                assert!(count >= most, "{count} after {most}: none is ever missing");
                most = count;
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        over.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|writer| writer.unwrap());
    });
    assert_eq!(tags.count("all").unwrap(), 50 * WRITERS as u64);
}

/// A record is replaced over and over, with another tag each time: who asks sees it once.
#[test]
fn a_record_that_is_replaced_meanwhile_is_found_and_counted_once() {
    let options = brooklet::Options::new().ring_size(4 << 20).max_payload(64 << 10);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let tags = Tags::open(&store, "t", Options::new().recent(1)).unwrap();
    let put = |n: u32| tags.put("x", ["same".to_string(), format!("v={n}")], "").unwrap().wait().unwrap();
    put(0);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| (1..500).for_each(&put));
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_eq!(ids(tags.find().prefix("v=")), ["x"]);
                let counted: Vec<_> = tags.tags("same").unwrap().map(Result::unwrap).collect();
                assert_eq!(counted, [(b"same".to_vec(), 1)]);
            }
        });
        let ended = writer.join();
        over.store(true, Ordering::Relaxed);
        ended.unwrap();
    });
}

/// Nobody has waited for the writes of a handle, and the next handle opens at once.
#[test]
fn an_opening_sees_what_is_on_its_way() {
    let options = brooklet::Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let tags = Tags::open(&store, "t", Options::new()).unwrap();
    drop(tags.put("1", ["a"], "x").unwrap());
    drop(tags);
    let tags = Tags::open(&store, "t", Options::new()).unwrap();
    tags.put("2", ["a"], "y").unwrap().wait().unwrap();
    assert_eq!(ids(tags.find().all(["a"])), ["2", "1"]);
}

#[test]
fn a_name_may_be_a_space_in_memory() {
    let store = Store::in_memory(1).unwrap();
    let config = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(16 << 20)));
    let space = store.create_space("t", config).unwrap();
    let tags = Tags::open(&store, "t", Options::new().recent(100)).unwrap();
    for n in 0..500 {
        let other = if n % 5 == 0 { "fifth" } else { "other" };
        tags.put(n.to_string(), ["a", other], "x").unwrap().wait().unwrap();
    }
    assert_eq!(tags.find().all(["a", "fifth"]).count().unwrap(), 100);
    space.configure(SpaceConfig::new()).unwrap();
    assert_eq!(tags.find().all(["a", "fifth"]).count().unwrap(), 100);
    tags.remove("0").unwrap().unwrap().wait().unwrap();
    assert_eq!(Tags::open(&store, "t", Options::new()).unwrap().count("fifth").unwrap(), 99);
}

#[test]
fn damage_is_told_with_its_log() {
    let store = Store::in_memory(1).unwrap();
    let tags = Tags::open(&store, "t", Options::new()).unwrap();
    tags.put("id", ["a"], "x").unwrap().wait().unwrap();
    tags.settle().unwrap();
    let spoil = |key: &str, what: &str, meet: &dyn Fn() -> Error| {
        store.append(key, [0x80]).unwrap().wait().unwrap();
        let said = meet().to_string();
        assert!(said.contains(key) && said.contains(what), "{said}");
        store.truncate(key, store.bounds(key).unwrap().next - 1).unwrap().wait().unwrap();
    };
    let find = || {
        let found = Tags::open(&store, "t", Options::new()).and_then(|tags| tags.find().all(["a"]).run());
        found.and_then(Iterator::collect::<Result<Vec<_>, _>>).unwrap_err()
    };
    spoil("t/t/a", "a block of ordinals", &find);
    spoil("t/r/id", "a record", &find);
    let open = || Tags::open(&store, "t", Options::new()).map(|_| ()).unwrap_err();
    spoil("t/w", "the watermark", &open);
    spoil("t/j/000000000000", "a change", &open);
    spoil("t/x/nonsense", "no window", &open);
}

/// The record of a removal that nobody has waited for comes back by a crash.
#[test]
fn a_removal_of_a_record_that_is_on_its_way_out_is_the_same_removal() {
    let volume = MemVolume::new(1);
    let options = || brooklet::Options::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let tags = Tags::open(&store, "t", Options::new()).unwrap();
    tags.put("id", ["a"], "x").unwrap().wait().unwrap();
    drop(tags.remove("id").unwrap().unwrap());
    // Nothing is acknowledged, so a crash takes the removal back.
    let crashed = options().open_on(Arc::new(volume.crashed(2))).unwrap();
    let back = Tags::open(&crashed, "t", Options::new()).unwrap();
    assert!(back.get("id").unwrap().is_some());
    tags.remove("id").unwrap().expect("the removal is not durable yet").wait().unwrap();
    assert!(tags.remove("id").unwrap().is_none());
    let crashed = options().open_on(Arc::new(volume.crashed(3))).unwrap();
    assert!(Tags::open(&crashed, "t", Options::new()).unwrap().get("id").unwrap().is_none());
}
