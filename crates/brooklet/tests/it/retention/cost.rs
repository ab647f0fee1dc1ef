//! What limits cost: nothing where there are none, little where there are.

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume, Rng};
use brooklet::{Options, Retention};

use crate::retention::limits::bounds;
use crate::retention::random::options;

/// The sizes of what is dropped are read a chunk at a time, and each once for each checkpoint at
/// most: a busy log with more entries than memory holds does not look up for ever.
#[test]
fn a_limit_of_bytes_reads_no_more_than_what_goes() {
    let clock = Arc::new(ManualClock::default());
    let options = || {
        let options = Options::new().ring_size(4 << 20).memory_budget(4 << 20).max_payload(1 << 20);
        options.threads(false).clock(clock.clone()).rng_seed(1)
    };
    let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut rng = Rng::new(1);
    let mut payload = || -> Vec<u8> { (0..100).map(|_| rng.next() as u8).collect() };
    drop(store.set_retention("log", Retention::new().bytes(100 * 100_000)).unwrap());
    for _ in 0..1000 {
        let payloads: Vec<_> = (0..100).map(|_| payload()).collect();
        store.append_many("log", payloads).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(0, 100_000));
    let (before, written) = (store.info().unwrap().lookups, store.info().unwrap().maintenance.checkpoints);
    for n in 1..=10_000 {
        store.append("log", payload()).unwrap().wait().unwrap();
        if n % 1000 == 0 {
            store.checkpoint().unwrap();
            assert_eq!(store.bounds("log").unwrap(), bounds(n, 100_000 + n));
        }
    }
    let info = store.info().unwrap();
    let asked = info.lookups.filter_questions - before.filter_questions;
    let checkpoints = info.maintenance.checkpoints - written;
    // A million bytes go, 16 KiB at a time; each look-up asks each run once.
    let chunks = 1_000_000 / (16 << 10) + 2 * checkpoints;
    println!("{asked} runs asked for {chunks} chunks, with {} runs", info.runs.len());
    assert!(asked < chunks * 13 + 10 * 13, "{asked} runs were asked, for {chunks} chunks");
}

/// However much goes at once, or stays, few look-ups find out how large it is: a limit that is made
/// narrower, a trim.
#[test]
fn whatever_goes_at_once_takes_few_look_ups() {
    let clock = Arc::new(ManualClock::default());
    let options = Options::new().ring_size(8 << 20).memory_budget(32 << 20).max_payload(1 << 20);
    let store = options
        .threads(false)
        .clock(clock.clone())
        .rng_seed(1)
        .create_on(Arc::new(MemVolume::new(1)))
        .unwrap();
    let mut rng = Rng::new(1);
    for log in ["narrowed", "trimmed"] {
        drop(store.set_retention(log, Retention::new().bytes(1 << 30)).unwrap());
        for _ in 0..50 {
            let payloads: Vec<Vec<u8>> =
                (0..1000).map(|_| (0..100).map(|_| rng.next() as u8).collect()).collect();
            store.append_many(log, payloads).unwrap().wait().unwrap();
        }
    }
    store.checkpoint().unwrap();
    let questions = || {
        let info = store.info().unwrap();
        (info.lookups.filter_questions, info.runs.len() as u64)
    };
    let (before, runs) = questions();
    store.set_retention("narrowed", Retention::new().bytes(1000)).unwrap().wait().unwrap();
    assert_eq!(store.bounds("narrowed").unwrap(), bounds(49_990, 50_000));
    let (between, _) = questions();
    assert!(between - before <= 3 * runs, "{} questions to {runs} runs", between - before);
    store.trim("trimmed", 20_000).unwrap().wait().unwrap();
    store.set_retention("trimmed", Retention::new().bytes(30_000 * 100)).unwrap().wait().unwrap();
    assert_eq!(store.bounds("trimmed").unwrap(), bounds(20_000, 50_000));
    // Some 150 chunks, twice as many with each look-up.
    let (after, _) = questions();
    assert!(after - between <= 14 * runs, "{} questions to {runs} runs", after - between);
}

#[test]
fn logs_without_limits_write_what_they_wrote() {
    let clock = Arc::new(ManualClock::default());
    let sizes = |limited: bool| {
        let store = options(&clock, 1).create_on(Arc::new(MemVolume::new(1))).unwrap();
        if limited {
            let kept = Retention::new().age(std::time::Duration::from_secs(9));
            store.set_retention("other", kept).unwrap().wait().unwrap();
        }
        let before = store.info().unwrap().wal.raw_bytes;
        for _ in 0..10 {
            store.append("log", "entry").unwrap().wait().unwrap();
        }
        store.info().unwrap().wal.raw_bytes - before
    };
    assert_eq!(sizes(false), sizes(true));
    // Length of the record and its place in the block, tag, key, number, length, payload: as in
    // format 3.
    assert_eq!(sizes(false), 10 * (3 + 1 + 1 + 3 + 1 + 1 + 5));
}

/// Each effect of a commit was once held to write the log's terms, which the first alone does: the
/// first large commit after a checkpoint was too large.
#[test]
fn terms_count_once_for_each_log_of_a_commit() {
    let clock = Arc::new(ManualClock::default());
    let options = Options::new().ring_size(4 << 20).memory_budget(16 << 20).max_payload(64 << 10);
    let store = options
        .threads(false)
        .clock(clock.clone())
        .rng_seed(1)
        .create_on(Arc::new(MemVolume::new(1)))
        .unwrap();
    let hour = std::time::Duration::from_secs(3600);
    drop(store.set_retention("log", Retention::new().age(hour)).unwrap());
    for _ in 0..100 {
        clock.advance(hour / 100);
        store.append("log", "x").unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    store.append_many("log", ["y"; 1000]).unwrap().wait().unwrap();
}
