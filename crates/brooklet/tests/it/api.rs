//! The public API in its details: ranges of every kind, tickets of every kind, what is shown for
//! debugging, options.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{Bounds, Commit, Durability, Error, Options, Store};

fn manual() -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).clock(clock).rng_seed(3)
}

/// A log of entries 2 to 9, half of them in a run.
fn store() -> Store {
    let store = manual().create_on(Arc::new(MemVolume::new(3))).unwrap();
    store.append_many("log", (0..5u8).map(|n| [n])).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.append_many("log", (5..10u8).map(|n| [n])).unwrap().wait().unwrap();
    store.trim("log", 2).unwrap().wait().unwrap();
    store
}

#[test]
fn ranges_of_every_kind_are_those_of_a_slice() {
    let store = store();
    let read = |range: (Bound<u64>, Bound<u64>)| -> Vec<u64> {
        let entries: Result<Vec<_>, _> = store.read("log", range).unwrap().collect();
        let entries = entries.unwrap();
        assert!(entries.iter().all(|entry| entry.payload == [entry.seq as u8][..]));
        entries.iter().map(|entry| entry.seq).collect()
    };
    let all: Vec<u64> = (2..10).collect();
    assert_eq!(read((Bound::Unbounded, Bound::Unbounded)), all);
    assert_eq!(read((Bound::Included(4), Bound::Included(6))), [4, 5, 6]);
    assert_eq!(read((Bound::Excluded(4), Bound::Excluded(7))), [5, 6]);
    assert_eq!(read((Bound::Excluded(1), Bound::Included(9))), all);
    assert_eq!(read((Bound::Excluded(9), Bound::Unbounded)), [] as [u64; 0]);
    for (range, asked) in [
        ((Bound::Excluded(u64::MAX), Bound::Unbounded), u64::MAX),
        ((Bound::Included(2), Bound::Included(u64::MAX)), u64::MAX),
        ((Bound::Included(6), Bound::Excluded(5)), 5),
    ] {
        let error = store.read("log", range).unwrap_err();
        assert!(
            matches!(error, Error::OutOfRange { asked: a, first: 2, next: 10, .. } if a == asked),
            "{error}"
        );
    }
}

#[test]
fn entries_say_what_is_still_to_come_from_either_end() {
    let store = store();
    let mut entries = store.read("log", ..).unwrap();
    assert_eq!((entries.range(), entries.size_hint()), (2..10, (0, Some(8))));
    assert_eq!(entries.next().unwrap().unwrap().seq, 2);
    assert_eq!(entries.next_back().unwrap().unwrap().seq, 9);
    assert_eq!(entries.range(), 3..9);
    assert_eq!(format!("{entries:?}"), "Entries(\"log\" 3..9)");
    assert_eq!(format!("{:?} {store:?}", store.scan("lo").unwrap()), "Logs(\"lo…\") Store(memory)");
}

/// A deferred commit is acknowledged at once, in all three ways of asking; it is durable only
/// later.
#[test]
fn a_deferred_ticket_is_acknowledged_at_once() {
    let store = store();
    let mut commit = Commit::new();
    commit.append("log", b"later").durability(Durability::Deferred(Duration::from_secs(3600)));
    let ticket = store.commit(&commit).unwrap();
    assert_eq!((ticket.seq(), ticket.is_durable()), (10, false));
    ticket.wait().unwrap();
    let (sender, told) = channel();
    ticket.on_done(move |result| sender.send(result.is_ok()).unwrap());
    assert_eq!(told.try_recv(), Ok(true));
    let mut awaited = std::pin::pin!(ticket.clone());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(awaited.as_mut().poll(&mut context).is_ready());
    assert!(!ticket.is_durable());
    ticket.wait_durable().unwrap();
    assert!(ticket.is_durable());
}

#[test]
fn a_log_that_was_emptied_exists_and_goes_on() {
    let store = store();
    store.keep_last("log", 0).unwrap().wait().unwrap();
    let bounds = store.bounds("log").unwrap();
    assert_eq!((bounds, bounds.is_empty(), bounds.len()), (Bounds { first: 10, next: 10 }, true, 0));
    assert_eq!(store.read("log", ..).unwrap().count(), 0);
    assert_eq!(store.append("log", b"x").unwrap().seq(), 10);
}

#[test]
fn every_option_that_makes_no_sense_is_named_with_what_would() {
    for (options, says) in [
        (manual().ring_size(1000), "a ring of 1000 bytes: use a multiple of 4096, at least 65536"),
        (manual().ring_size(1 << 41), "use at most 1099511627776"),
        (manual().depth(2000), "2000 writes in flight: use 1 to 1024"),
        (manual().block_size(17 << 20), "use 4 KiB to 16 MiB"),
        (manual().memory_budget(1000), "a memory budget of 1000 bytes: use at least 64 KiB"),
    ] {
        let error = options.open("/nowhere/at/all").unwrap_err();
        assert!(matches!(error, Error::InvalidOptions(_)) && error.to_string().contains(says), "{error}");
    }
}

/// The time an append may rest is the caller's to choose: nobody waits, and yet it becomes durable
/// by itself.
#[test]
fn what_nobody_waits_for_becomes_durable_within_its_time() {
    let options = Options::default().ring_size(1 << 20).max_payload(1 << 10).linger(Duration::from_millis(2));
    let store = options.create_on(Arc::new(MemVolume::new(3))).unwrap();
    let ticket = store.append("log", b"x").unwrap();
    let (sender, told) = channel();
    ticket.on_done(move |result| sender.send(result.is_ok()).unwrap());
    assert_eq!(told.recv_timeout(Duration::from_secs(120)), Ok(true));
    assert!(ticket.is_durable());
}

/// With the defaults, at a path.
#[test]
fn a_store_is_opened_by_its_path_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    Store::open(&path).unwrap().append("log", b"x").unwrap().wait().unwrap();
    let store = Store::open(&path).unwrap();
    assert_eq!(store.bounds("log").unwrap().next, 1);
    assert_eq!(store.info().unwrap().ring_size, 64 << 20);
}

/// The memory stays within its budget without anybody writing on: what was appended while a
/// checkpoint went on is written by another right behind it.
#[test]
fn what_comes_during_a_checkpoint_starts_the_next_by_itself() {
    let options = manual().ring_size(1 << 20).memory_budget(256 << 10);
    let store = options.create_on(Arc::new(MemVolume::new(3))).unwrap();
    let memory = || store.info().unwrap().memtable_bytes;
    let fill_up_to = |bytes: usize| {
        while memory() <= bytes {
            store.append("log", [7; 4000]).unwrap().wait().unwrap();
        }
    };
    fill_up_to(128 << 10);
    store.append("log", "which notices").unwrap().wait().unwrap();
    assert!(store.step().unwrap(), "a checkpoint begins");
    fill_up_to(memory() + (128 << 10));
    assert_eq!(store.info().unwrap().maintenance.checkpoints, 0, "it still goes on");
    while store.step().unwrap() {}
    assert_eq!((memory() < 64 << 10, store.info().unwrap().maintenance.checkpoints), (true, 2));
}

#[test]
fn what_goes_on_by_itself_is_told() {
    let store = manual().ring_size(1 << 20).create_on(Arc::new(MemVolume::new(3))).unwrap();
    let told = || store.info().map(|info| (info.checkpointing, info.compacting)).unwrap();
    let mut seen = vec![told()];
    for _ in 0..13 {
        store.append("log", [7; 4000]).unwrap().wait().unwrap();
        store.checkpoint().unwrap();
        while store.step().unwrap() {
            seen.push(told());
        }
    }
    assert_eq!((seen[0], seen.last()), ((false, false), Some(&(false, false))));
    assert!(seen.contains(&(false, true)), "thirteen runs are too many: {seen:?}");
    let memory = manual().ring_size(1 << 20).memory_budget(64 << 10);
    let store = memory.create_on(Arc::new(MemVolume::new(3))).unwrap();
    for _ in 0..12 {
        store.append("log", [7; 4000]).unwrap().wait().unwrap();
    }
    assert!(store.step().unwrap() && store.info().unwrap().checkpointing);
    while store.step().unwrap() {}
    assert!(!store.info().unwrap().checkpointing);
}

/// A caller that has seen enough ends a check, which is no finding.
#[test]
fn a_check_is_cancelled_by_its_caller() {
    let volume = Arc::new(MemVolume::new(7));
    let store = manual().create_on(volume.clone()).unwrap();
    store.append("log", vec![1; 5000]).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.close().unwrap();
    let mut reports = 0;
    let cancelled = brooklet::check_volume(volume.clone(), |_| {
        reports += 1;
        std::ops::ControlFlow::Break(())
    });
    assert!(matches!(cancelled, Err(Error::Cancelled { .. })) && reports == 1, "{cancelled:?}");
    assert!(brooklet::check_volume(volume, brooklet::Progress::ignore).unwrap().is_sound());
}

/// A commit owns what it is given, and may be used again.
#[test]
fn a_commit_owns_its_keys_and_payloads() {
    let store = manual().create_on(Arc::new(MemVolume::new(7))).unwrap();
    let mut commit = Commit::new();
    for round in 0..3u64 {
        assert!(commit.is_empty());
        for n in 0..9 {
            commit
                .append(format!("log/{n}"), format!("{round} of {n}"))
                .expect_next(format!("log/{n}"), round);
        }
        store.commit(&commit).unwrap().wait().unwrap();
        commit.clear();
    }
    let last = store.read("log/8", ..).unwrap().last().unwrap().unwrap();
    assert_eq!((last.seq, &last.payload[..]), (2, &b"2 of 8"[..]));
}
