//! Limits by themselves: what each keeps, what is refused, what becomes of a log's limits.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{Bounds, Commit, Error, Retention, Store};

use crate::retention::random::options;

pub fn store() -> (Store, Arc<ManualClock>, Arc<MemVolume>) {
    let (clock, volume) = (Arc::new(ManualClock::default()), Arc::new(MemVolume::new(1)));
    (options(&clock, 1).create_on(volume.clone()).unwrap(), clock, volume)
}

pub fn bounds(first: u64, next: u64) -> Bounds {
    Bounds { first, next }
}

#[test]
fn the_newest_entries_stay() {
    let (store, ..) = store();
    drop(store.set_retention("few", Retention::new().entries(3)).unwrap());
    drop(store.set_retention("none", Retention::new().entries(0)).unwrap());
    drop(store.set_retention("small", Retention::new().bytes(10)).unwrap());
    for n in 0..10u8 {
        drop(store.append("few", [n]).unwrap());
        drop(store.append("none", [n]).unwrap());
        store.append("small", vec![n; 3]).unwrap().wait().unwrap();
    }
    assert_eq!(store.bounds("few").unwrap(), bounds(7, 10));
    assert_eq!(store.bounds("none").unwrap(), bounds(10, 10));
    assert_eq!(store.bounds("small").unwrap(), bounds(7, 10), "three times three bytes");
    store.append("small", [7; 100]).unwrap().wait().unwrap();
    assert_eq!(store.bounds("small").unwrap(), bounds(10, 11), "the newest stays, however large");
    store.append("small", "").unwrap().wait().unwrap();
    assert_eq!(store.bounds("small").unwrap(), bounds(11, 12));
}

#[test]
fn limits_apply_to_what_is_there() {
    let (store, ..) = store();
    store.append_many("log", (0..500u32).map(|n| n.to_le_bytes())).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    drop(store.append_many("log", (0..10u32).map(|n| n.to_le_bytes())).unwrap());
    store.set_retention("log", Retention::new().bytes(1_000)).unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(260, 510));
    store.set_retention("log", Retention::new().entries(100)).unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(410, 510));
    // Lifted: everything is kept, and what is gone stays gone.
    store.set_retention("log", Retention::new()).unwrap().wait().unwrap();
    store.append_many("log", (0..500u32).map(|n| n.to_le_bytes())).unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(410, 1010));
    assert_eq!(store.retention("log").unwrap(), Retention::new());
}

#[test]
fn limits_belong_to_the_log() {
    let (mut store, clock, volume) = store();
    let kept = Retention::new().entries(5).bytes(1 << 20).age(Duration::from_secs(3600));
    store.set_retention("log", kept).unwrap().wait().unwrap();
    assert!(store.exists("log").unwrap(), "a retention creates the log");
    for round in 0..4 {
        store.append("log", "x").unwrap().wait().unwrap();
        assert_eq!(store.retention("log").unwrap(), kept, "round {round}");
        assert_eq!(store.scan("").unwrap().next().unwrap().unwrap().retention, kept);
        match round {
            0 => store.checkpoint().unwrap(),
            1 => store.compact().unwrap(),
            _ => {
                store.close().unwrap();
                store = options(&clock, round).open_on(volume.clone()).unwrap();
            }
        }
    }
    store.delete("log").unwrap().wait().unwrap();
    assert!(matches!(store.retention("log"), Err(Error::UnknownLog { .. })));
    store.append("log", "a new one").unwrap().wait().unwrap();
    assert_eq!(store.retention("log").unwrap(), Retention::new());
}

#[test]
fn nonsense_is_refused() {
    let (store, ..) = store();
    let most = 1 << 62;
    for wrong in [
        Retention::new().entries(most + 1),
        Retention::new().bytes(u64::MAX),
        Retention::new().age(Duration::ZERO),
        Retention::new().age(Duration::from_micros(1_500)),
        Retention::new().age(Duration::from_secs(31_557_600 * 1000 + 1)),
        Retention::new().age(Duration::MAX),
    ] {
        let refused = store.set_retention("log", wrong).map(|_| ()).unwrap_err();
        assert!(matches!(refused, Error::InvalidRetention(_)), "{wrong:?}: {refused}");
    }
    let (nothing, most) = (Retention::new(), Retention::new().entries(most).bytes(most));
    assert!(matches!(store.set_retention("log", nothing), Err(Error::UnknownLog { .. })), "nothing to lift");
    assert!(!store.exists("log").unwrap());
    let most = most.age(Duration::from_secs(31_557_600 * 1000));
    store.set_retention("log", most).unwrap().wait().unwrap();
    assert_eq!(store.retention("log").unwrap(), most);
    store.append("log", "x").unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(0, 1));
}

/// A commit that is refused counted its entries: later ones were dropped for bytes that were never
/// there.
#[test]
fn a_refused_commit_leaves_no_trace_in_what_is_counted() {
    let (store, ..) = store();
    drop(store.set_retention("log", Retention::new().bytes(100)).unwrap());
    store.append_many("log", [[1; 10]; 5]).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    for n in 0..20u64 {
        let mut commit = Commit::new();
        commit.append("log", [2; 30]).truncate("log", 2).append("log", [3; 90]).delete("log");
        commit.append("log", "anew").set_retention("log", Retention::new().bytes(5)).delete("no such log");
        assert!(store.commit(&commit).is_err());
        let mut commit = Commit::new();
        commit.append("log", [4; 90]).truncate("log", 99);
        assert!(store.commit(&commit).is_err());
        if n < 5 {
            store.append("log", [5; 10]).unwrap().wait().unwrap();
        }
        assert_eq!(store.bounds("log").unwrap(), bounds(0, 5 + (n + 1).min(5)), "{n}: all hundred bytes");
    }
    store.append("log", [5; 10]).unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(1, 11));
}

/// The store looks once for the logs and operations of a commit that need more than their effects.
#[test]
fn a_limit_or_an_expectation_is_found_among_other_operations() {
    let (store, ..) = store();
    store.append_many("old", [[1; 10]; 9]).unwrap().wait().unwrap();
    store.set_retention("small", Retention::new().bytes(20)).unwrap().wait().unwrap();
    for round in 0..3 {
        let mut commit = Commit::new();
        (0..9u8).for_each(|n| _ = commit.append(format!("log/{n}"), [n; 10]));
        commit.append("small", [7; 15]);
        store.commit(&commit).unwrap().wait().unwrap();
        assert_eq!(store.bounds("small").unwrap(), bounds(round, round + 1));
        store.checkpoint().unwrap();
    }
    let mut commit = Commit::new();
    commit.append("log/0", "x").set_retention("old", Retention::new().bytes(35));
    store.commit(&commit).unwrap().wait().unwrap();
    assert_eq!(store.bounds("old").unwrap(), bounds(6, 9));
    let mut commit = Commit::new();
    commit.append("log/0", "x").append("small", "x").expect_absent("old");
    assert!(matches!(store.commit(&commit), Err(Error::Conflict { .. })));
    assert_eq!(store.bounds("small").unwrap(), bounds(2, 3));
    assert_eq!(store.bounds("log/0").unwrap(), bounds(0, 4));
}
