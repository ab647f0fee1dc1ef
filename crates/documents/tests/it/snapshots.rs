//! Snapshots: when they are taken, what they drop, what a load reads.

use std::sync::Arc;
use std::time::Duration;

use brooklet::Store;
use brooklet::io::Clock;
use brooklet_documents::{Documents, Json, Options};
use serde_json::json;

use crate::common::{World, options, set, state};

/// Returns the numbers of the first and the next entry of a document's log.
fn bounds(store: &Store, name: &str) -> (u64, u64) {
    let bounds = store.bounds(format!("docs/d{name}")).unwrap();
    (bounds.first, bounds.next)
}

#[test]
fn a_snapshot_is_taken_after_a_number_of_updates() {
    let world = World::new(options().snapshot_updates(10).history(3));
    world.count_to("doc", 10);
    assert_eq!(world.documents.maintain(), 0);
    world.count_to("doc", 11);
    assert_eq!(world.documents.maintain(), 1);
    // Entry 11 is the snapshot of version 11, and three updates are before it.
    assert_eq!(bounds(&world.store, "doc"), (8, 12));
    world.count_to("doc", 30);
    assert_eq!(world.documents.maintain(), 1);
    assert_eq!(bounds(&world.store, "doc"), (28, 32));
    assert_eq!(world.documents.maintain(), 0);
}

#[test]
fn a_snapshot_is_taken_after_a_number_of_bytes() {
    let world = World::new(options().snapshot_bytes(2000));
    world.documents.create("doc", "c", &state(json!({}))).unwrap();
    let long = "x".repeat(300);
    let mut taken = 0;
    for version in 1..20 {
        let change = brooklet_documents::JsonChange::merge(json!({"a": long}));
        world.documents.patch("doc", version, format!("{version}"), &change).unwrap();
        taken += world.documents.maintain();
    }
    // An update has its change and its undo.
    assert!((4..=7).contains(&taken), "{taken} snapshots");
}

/// A clock on which each look takes a millisecond.
#[derive(Debug, Default)]
struct Slow(std::sync::atomic::AtomicU64);

impl Clock for Slow {
    fn now(&self) -> Duration {
        Duration::from_millis(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }

    fn wall(&self) -> Duration {
        Duration::ZERO
    }
}

#[test]
fn a_snapshot_is_taken_after_a_slow_load() {
    for (limit, taken) in [(1, 1), (2, 0)] {
        let slow =
            options().clock(Arc::new(Slow::default())).snapshot_load_time(Duration::from_millis(limit));
        let mut world = World::new(slow);
        world.count_to("doc", 5);
        world.reopen();
        assert_eq!(world.value("doc"), json!({"n": 5}));
        assert_eq!(world.documents.maintain(), taken);
        // A load without updates would not become faster.
        world.reopen();
        assert_eq!(world.value("doc"), json!({"n": 5}));
        assert_eq!(world.documents.maintain(), 0);
    }
}

#[test]
fn a_thread_takes_snapshots_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path().join("documents.brooklet")).unwrap();
    let options = Options::new("docs/").snapshot_updates(5).history(0);
    let documents = Documents::open(&store, Json::new(), options).unwrap();
    documents.create("doc", "c", &state(json!({"n": 1}))).unwrap();
    for version in 1..=5 {
        documents.patch("doc", version, format!("{version}"), &set(version + 1)).unwrap();
    }
    // The snapshot is entry 6.
    assert!(store.wait_for("docs/ddoc", 7, Duration::from_secs(60)).unwrap());
    assert_eq!(bounds(&store, "doc"), (6, 7));
    // The thread ends with the last handle.
    drop(documents.clone());
    drop(documents);
    store.close().unwrap();
}

#[test]
fn a_snapshot_without_news_only_drops_history() {
    let world = World::new(options());
    world.count_to("doc", 6);
    assert_eq!(world.documents.snapshot("doc", 4).unwrap(), 6);
    assert_eq!(bounds(&world.store, "doc"), (2, 7));
    assert_eq!(world.documents.snapshot("doc", 9).unwrap(), 6);
    assert_eq!(bounds(&world.store, "doc"), (2, 7));
    assert_eq!(world.documents.snapshot("doc", 1).unwrap(), 6);
    assert_eq!(bounds(&world.store, "doc"), (5, 7));
    assert_eq!(world.documents.at("doc", 5).unwrap().state.value(), &json!({"n": 5}));
    assert_eq!(world.documents.snapshot("doc", 0).unwrap(), 6);
    assert_eq!(bounds(&world.store, "doc"), (6, 7));
    world.count_to("doc", 8);
    assert!(world.documents.snapshot("none", 0).is_err());
}

/// A load reads the last snapshot and what follows, whatever is before it.
#[test]
fn a_load_reads_nothing_before_the_last_snapshot() {
    let mut world = World::new(options());
    world.count_to("doc", 6);
    world.documents.snapshot("doc", 100).unwrap();
    world.count_to("doc", 8);
    // The entries before the snapshot become something else: nothing reads them.
    let entries: Vec<_> =
        world.store.read("docs/ddoc", 6..).unwrap().map(|entry| entry.unwrap().payload).collect();
    assert_eq!(bounds(&world.store, "doc"), (1, 9));
    world.store.truncate("docs/ddoc", 1).unwrap().wait().unwrap();
    world.store.append_many("docs/ddoc", vec![b"damage"; 5]).unwrap().wait().unwrap();
    world.store.append_many("docs/ddoc", entries).unwrap().wait().unwrap();
    world.reopen();
    assert_eq!(world.value("doc"), json!({"n": 8}));
    world.count_to("doc", 9);
    assert!(world.documents.history("doc").unwrap().next().unwrap().is_err());
}

/// History that a call asked for is still there after the snapshots that come by themselves.
#[test]
fn history_that_was_asked_for_stays() {
    let mut world = World::new(options().history(3).snapshot_updates(10));
    world.count_to("doc", 40);
    world.documents.snapshot("doc", 30).unwrap();
    for head in [45, 60, 75] {
        world.count_to("doc", head);
        world.documents.maintain();
        assert_eq!(world.documents.at("doc", head - 30).unwrap().state.value(), &json!({"n": head - 30}));
        world.kill();
        world.count_to("doc", head);
    }
    // Until another call asks for less. The options are the least.
    world.documents.snapshot("doc", 1).unwrap();
    world.kill();
    world.count_to("doc", 86);
    assert_eq!(world.documents.maintain(), 1);
    assert!(world.documents.at("doc", 83).is_ok());
    assert!(world.documents.at("doc", 82).is_err());
}

/// Whoever asks for history right after a snapshot has nothing else to write.
#[test]
fn history_that_was_asked_for_without_news_stays() {
    let mut world = World::new(options().history(3).snapshot_updates(10));
    world.count_to("doc", 10);
    world.documents.snapshot("doc", 9).unwrap();
    world.documents.snapshot("doc", 20).unwrap();
    world.kill();
    world.count_to("doc", 21);
    assert_eq!(world.documents.maintain(), 1);
    for version in 1..=21 {
        assert_eq!(world.documents.at("doc", version).unwrap().state.value(), &json!({"n": version}));
    }
    world.documents.snapshot("doc", 5).unwrap();
    world.kill();
    world.count_to("doc", 32);
    assert_eq!(world.documents.maintain(), 1);
    assert!(world.documents.at("doc", 27).is_ok());
    assert!(world.documents.at("doc", 26).is_err());
}
