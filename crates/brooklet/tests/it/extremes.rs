//! Loads at the edge of what a store takes: nothing is lost, and memory keeps to its budget.

use std::sync::Arc;

use brooklet::io::{Clock, ManualClock, MemVolume, Rng, SystemClock};
use brooklet::{Commit, Error, Options, Store};

const LIMIT: usize = 64 << 10;

/// The least memory, for payloads as large as all of it.
fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    let options = Options::new().ring_size(1 << 20).max_payload(LIMIT).memory_budget(LIMIT);
    options.cache_budget(256 << 10).threads(false).clock(clock).rng_seed(1)
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

fn read(store: &Store, log: &str) -> Vec<Vec<u8>> {
    store.read(log, ..).unwrap().map(|entry| entry.unwrap().payload.to_vec()).collect()
}

fn check(store: Store, volume: Arc<MemVolume>) {
    store.close().unwrap();
    let report = brooklet::check_volume(volume, brooklet::Progress::ignore).unwrap();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn a_payload_at_the_limit_in_every_log() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    let name = |log: u64| format!("log/{log}");
    let mut most = 0;
    for log in 0..200 {
        store.append(name(log), noise(log, LIMIT)).unwrap().wait().unwrap();
        most = most.max(store.info().unwrap().memtable_bytes);
    }
    // A commit is let in while less than the budget is in use, and is taken whole.
    assert!(most <= 3 * LIMIT, "{most} bytes");
    let error = store.append("log/0", vec![0; LIMIT + 1]).unwrap_err();
    assert!(matches!(error, Error::PayloadTooLarge { len, limit: LIMIT } if len == LIMIT + 1), "{error}");
    for log in 0..200 {
        assert!(read(&store, &name(log)) == [noise(log, LIMIT)], "log {log}");
    }
    check(store, volume);
}

/// A log costs some hundred bytes in memory, however little it holds.
#[test]
fn the_least_memory_for_many_logs_of_next_to_nothing() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    let mut most = 0;
    for log in 0..20_000_u64 {
        drop(store.append(log.to_be_bytes(), []).unwrap());
        if log % 64 == 0 {
            most = most.max(store.info().unwrap().memtable_bytes);
        }
    }
    store.flush().unwrap();
    assert!(most <= 2 * LIMIT, "{most} bytes");
    assert_eq!(store.scan("").unwrap().map(|log| log.unwrap().bounds.len()).sum::<u64>(), 20_000);
    check(store, volume);
}

#[test]
fn deletes_of_logs_that_do_not_exist_are_refused_and_leave_nothing() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    store.append("log", b"kept").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    let before = store.info().unwrap().wal;
    for n in 0..5_000 {
        let error = store.delete(format!("none/{n}")).unwrap_err();
        assert!(matches!(error, Error::UnknownLog { .. }), "{error}");
        // Refused whole: what else was in the commit has no effect.
        let mut commit = Commit::new();
        let none = format!("none/{n}");
        commit.append("log", b"lost").delete(&none);
        assert!(matches!(store.commit(&commit), Err(Error::UnknownLog { .. })));
    }
    let after = store.info().unwrap();
    assert_eq!(after.wal.records, before.records, "nothing was written");
    assert!(after.memtable_bytes <= 2 * LIMIT, "{} bytes", after.memtable_bytes);
    assert_eq!(read(&store, "log"), [b"kept"]);
    check(store, volume);
}

/// Some minutes: `cargo test --release -p brooklet --test it extremes -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes"]
fn a_log_of_a_hundred_million_entries() {
    const ENTRIES: u64 = 100_000_000;
    let dir = tempfile::tempdir().unwrap();
    let open = || Options::new().ring_size(64 << 20).open(dir.path().join("store")).unwrap();
    let payload = |seq: u64| seq.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    let store = open();
    let clock = SystemClock::default();
    let began = clock.now();
    for first in (0..ENTRIES).step_by(1_000) {
        drop(store.append_many("long", (first..first + 1_000).map(payload)).unwrap());
        if first % 10_000_000 == 0 {
            println!("{first} entries after {:.1?}", clock.now() - began);
        }
    }
    store.close().unwrap();
    drop(store);
    println!("written after {:.1?}", clock.now() - began);
    let (store, began) = (open(), clock.now());
    assert_eq!(store.bounds("long").unwrap().next, ENTRIES);
    let mut rng = Rng::new(1);
    for _ in 0..10_000 {
        let seq = rng.below(ENTRIES);
        let entry = store.read("long", seq..=seq).unwrap().next().unwrap().unwrap();
        assert_eq!((entry.seq, &entry.payload[..]), (seq, &payload(seq)[..]));
    }
    println!("10,000 entries read in no order: {:.1?}", clock.now() - began);
    store.trim("long", ENTRIES - 1_000).unwrap().wait().unwrap();
    store.compact().unwrap();
    let (mut seq, info) = (ENTRIES - 1_000, store.info().unwrap());
    for entry in store.read("long", ..).unwrap() {
        assert_eq!(entry.unwrap().payload[..], payload(seq));
        seq += 1;
    }
    assert_eq!(seq, ENTRIES);
    println!("trimmed and compacted after {:.1?}: {} MiB", clock.now() - began, info.size >> 20);
    assert!(info.runs.iter().map(|run| run.bytes).sum::<u64>() < 1 << 20);
}
