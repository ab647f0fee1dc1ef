//! Views: a whole store as it is at one moment, while it is written to, checkpointed and merged.

use crate::common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Commit, Error, Options, Retention, Store, View};
use common::{Log, Logs, contents, seen, walked};

fn options() -> Options {
    Options::new().ring_size(1 << 20).max_payload(64 << 10)
}

/// Does something to a few logs, long and short, so that all that a log may be is there.
fn write(store: &Store, rng: &mut Rng) {
    for _ in 0..60 {
        let key = format!("log/{}", rng.below(12));
        let payload = vec![rng.below(256) as u8; rng.below(9_000) as usize];
        let exists = store.exists(&key).unwrap();
        let ticket = match rng.below(9) {
            0 if exists => store.delete(&key),
            1 if exists => store.keep_last(&key, rng.below(5)),
            2 if exists => store.truncate(
                &key,
                store.bounds(&key).unwrap().next.saturating_sub(1).max(store.bounds(&key).unwrap().first),
            ),
            3 => store.set_retention(&key, Retention::new().entries(4 + rng.below(9))),
            4 => store.snapshot(&key, &payload),
            _ => store.append(&key, &payload),
        };
        ticket.unwrap().wait().unwrap();
    }
}

#[test]
fn what_comes_later_changes_nothing() {
    let store = options().create_on(Arc::new(MemVolume::new(7))).unwrap();
    let mut rng = Rng::new(11);
    let mut views: Vec<(View, Logs)> = Vec::new();
    for round in 0..12 {
        write(&store, &mut rng);
        let expected = contents(&store).unwrap();
        let view = store.view().unwrap();
        assert!(views.last().is_none_or(|(before, _)| before.lsn() < view.lsn()));
        views.push((view, expected));
        match round % 3 {
            0 => store.compact().unwrap(),
            1 => store.checkpoint().unwrap(),
            _ => {}
        }
        for (view, expected) in &views {
            assert_eq!(seen(view), *expected);
        }
    }
    let prefixed = walked(&views[5].0, "log/1");
    let expected = views[5].1.iter().filter(|(key, _)| key.starts_with(b"log/1"));
    assert!(prefixed.iter().eq(expected) && prefixed.len() > 1);
    assert!(matches!(views[0].0.read("absent", ..), Err(Error::UnknownLog { .. })));
    assert!(matches!(views[0].0.bounds(""), Err(Error::InvalidKey { .. })));
}

/// What a view reads from stays, and is given back with it.
#[test]
fn space_is_given_back_with_the_view() {
    let store = options().create_on(Arc::new(MemVolume::new(7))).unwrap();
    for n in 0..200u64 {
        store.append("log", vec![(n * n) as u8; 20_000]).unwrap().wait().unwrap();
    }
    let view = store.view().unwrap();
    let runs = |store: &Store| store.info().unwrap().runs.iter().map(|run| run.bytes).sum::<u64>();
    let used = |store: &Store| {
        let info = store.info().unwrap();
        info.size - info.heap_offset - info.heap_free
    };
    store.delete("log").unwrap().wait().unwrap();
    store.compact().unwrap();
    let held = used(&store);
    assert_eq!(walked(&view, "")[&b"log"[..]].entries.len(), 200);
    drop(view);
    store.append("other", b"x").unwrap().wait().unwrap();
    store.compact().unwrap();
    assert!(used(&store) < held && runs(&store) < 20_000, "{} of {held}", used(&store));
}

/// Commits that change two logs at once are seen whole or not at all, and what was acknowledged
/// before is there.
#[test]
fn views_of_a_busy_store_lie_between_commits() {
    const PAIRS: u64 = 8;
    let store = options().memory_budget(256 << 10).create_on(Arc::new(MemVolume::new(7))).unwrap();
    let (acked, over) =
        (Arc::new([const { AtomicU64::new(0) }; PAIRS as usize]), Arc::new(AtomicBool::new(false)));
    std::thread::scope(|scope| {
        for pair in 0..PAIRS {
            let (store, acked, over) = (&store, &acked, &over);
            scope.spawn(move || {
                let (left, right) = (format!("left/{pair}"), format!("right/{pair}"));
                for n in 1u64.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let payload = [&n.to_be_bytes()[..], &vec![n as u8; 100 + n as usize % 900]].concat();
                    let mut commit = Commit::new();
                    commit.append(&left, &payload).append(&right, &payload);
                    match n % 50 {
                        0 => commit.delete(&left).delete(&right),
                        n if n % 7 == 0 => commit.keep_last(&left, 2).keep_last(&right, 2),
                        _ => &mut commit,
                    };
                    store.commit(&commit).unwrap().wait().unwrap();
                    acked[pair as usize].store(n, Ordering::Release);
                }
            });
        }
        let mut held = Vec::new();
        for round in 0..30 {
            let before: Vec<u64> = acked.iter().map(|n| n.load(Ordering::Acquire)).collect();
            let view = store.view().unwrap();
            if round % 4 == 0 {
                store.compact().unwrap();
            }
            let logs = seen(&view);
            for pair in 0..PAIRS {
                let side = |name: &str| logs.get(format!("{name}/{pair}").as_bytes());
                assert_eq!(side("left"), side("right"), "of pair {pair}");
                let Some(log) = side("left") else { continue };
                let n = u64::from_be_bytes(log.entries.last().unwrap()[..8].try_into().unwrap());
                // It is new with each fiftieth commit.
                assert_eq!(log.next(), n % 50);
                assert!(n >= before[pair as usize], "{n} of {}", before[pair as usize]);
            }
            held.push((view, logs));
            if held.len() > 3 {
                let (view, logs) = held.remove(0);
                assert_eq!(seen(&view), logs);
            }
        }
        over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_store_that_is_only_read_has_views_of_what_is_in_its_ring_too() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s.brooklet");
    let store = options().open(&path).unwrap();
    let mut rng = Rng::new(3);
    write(&store, &mut rng);
    store.checkpoint().unwrap();
    write(&store, &mut rng);
    let expected = contents(&store).unwrap();
    store.abandon();
    let store = options().read_only(true).open(&path).unwrap();
    let (one, other) = (store.view().unwrap(), store.view().unwrap());
    assert_eq!((seen(&one), one.lsn()), (expected.clone(), other.lsn()));
    assert_eq!(seen(&other), expected);
    assert_eq!(contents(&store).unwrap(), expected);
    // What the checkpoint had written, and nothing since.
    let empty = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    assert_eq!(seen(&empty.view().unwrap()), BTreeMap::new());
}

/// Age is looked at as the view is taken.
#[test]
fn entries_grow_too_old_for_views_that_are_taken_later() {
    let clock = Arc::new(ManualClock::default());
    let store = options()
        .threads(false)
        .clock(clock.clone())
        .rng_seed(1)
        .create_on(Arc::new(MemVolume::new(7)))
        .unwrap();
    store.set_retention("log", Retention::new().age(Duration::from_secs(60))).unwrap().wait().unwrap();
    // More than one chunk of a run holds.
    let old = vec![vec![b'o'; 2_000]; 40];
    store.append_many("log", &old).unwrap().wait().unwrap();
    clock.advance(Duration::from_secs(50));
    store.append("log", "new").unwrap().wait().unwrap();
    let early = store.view().unwrap();
    clock.advance(Duration::from_secs(40));
    let late = store.view().unwrap();
    let all = [old, vec![b"new".to_vec()]].concat();
    assert_eq!(seen(&early)[&b"log"[..]], Log { first: 0, entries: all });
    assert_eq!(seen(&late)[&b"log"[..]], Log { first: 40, entries: vec![b"new".to_vec()] });
}
