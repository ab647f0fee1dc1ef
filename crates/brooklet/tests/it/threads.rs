//! The real thing: threads, files, tasks and callbacks at once, on both backends, while checkpoints
//! and compactions go on.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use brooklet::io::{MemVolume, Rng};
use brooklet::{Durability, Error, Options, Store};

use crate::common::tasks::block_on;

fn payload(log: u64, seq: u64) -> Vec<u8> {
    format!("{log}:{seq}:").repeat(1 + (log as usize + seq as usize) % 40).into_bytes()
}

/// One writer's life: each log is its own, so its numbers are known.
fn write(store: &Store, writer: u64, rounds: u64, acked: &Arc<AtomicU64>) {
    let mut rng = Rng::new(writer);
    for _ in 0..rounds {
        let log = writer * 1000 + rng.below(50);
        let key = format!("log/{log}");
        let seq = store.bounds(&key).map_or(0, |b| b.next);
        let append = || store.append(&key, payload(log, seq)).unwrap();
        let acked = acked.clone();
        match rng.below(6) {
            0 => block_on(append()).unwrap(),
            1 => {
                let (done, told) = std::sync::mpsc::channel();
                append().on_done(move |result| done.send(result).unwrap());
                told.recv_timeout(Duration::from_secs(60)).expect("a callback is called").unwrap();
            }
            2 => {
                let ticket =
                    store.append_with(&key, payload(log, seq), Durability::Deferred(Duration::from_secs(9)));
                ticket.unwrap().wait().unwrap();
            }
            3 => store.snapshot(&key, payload(log, seq)).unwrap().wait().unwrap(),
            4 => {
                let ticket = append();
                let clone = ticket.clone();
                block_on(async { futures_join(ticket, clone).await }).unwrap();
            }
            _ => append().wait().unwrap(),
        }
        acked.fetch_add(1, Ordering::Relaxed);
        let newest = store.read(&key, ..).unwrap().next_back().unwrap().unwrap();
        assert_eq!(
            (newest.seq, &newest.payload[..]),
            (seq, &payload(log, seq)[..]),
            "one reads what one wrote"
        );
    }
}

/// Awaits a ticket and its clone in one task, as a `join!` would.
async fn futures_join(a: brooklet::Ticket, b: brooklet::Ticket) -> Result<(), Error> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut first, mut second) = (None, None);
    std::future::poll_fn(|context| {
        if first.is_none()
            && let Poll::Ready(done) = a.as_mut().poll(context)
        {
            first = Some(done);
        }
        if second.is_none()
            && let Poll::Ready(done) = b.as_mut().poll(context)
        {
            second = Some(done);
        }
        if first.is_some() && second.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    first.expect("ready").and(second.expect("ready"))
}

fn check_all(store: &Store) -> u64 {
    let mut entries = 0;
    for log in store.scan("log/").unwrap() {
        let log = log.unwrap();
        let number = std::str::from_utf8(&log.key[4..]).unwrap().parse().unwrap();
        let mut seq = log.bounds.first;
        for entry in store.read(&log.key, ..).unwrap() {
            let entry = entry.unwrap();
            assert_eq!(
                (entry.seq, &entry.payload[..]),
                (seq.max(entry.seq), &payload(number, entry.seq)[..])
            );
            seq = entry.seq + 1;
            entries += 1;
        }
    }
    entries
}

fn crowd(options: Options) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = || options.clone().ring_size(256 << 10).memory_budget(256 << 10).max_payload(16 << 10);
    let store = options().open(&path).unwrap();
    let acked = Arc::new(AtomicU64::new(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..12)
            .map(|w| {
                scope.spawn({
                    let (store, acked) = (&store, &acked);
                    move || write(store, w, 400, acked)
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                check_all(&store);
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                std::thread::park_timeout(Duration::from_millis(50));
                store.compact().unwrap();
            }
        });
        let ended: Vec<_> = writers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|w| w.expect("a writer panicked"));
    });
    assert_eq!(acked.load(Ordering::Relaxed), 12 * 400);
    let info = store.info().unwrap();
    assert!(info.maintenance.checkpoints > 1 && info.maintenance.compactions > 0, "{:?}", info.maintenance);
    let entries = check_all(&store);
    store.close().unwrap();
    assert!(matches!(store.append("log/1", b"x"), Err(Error::Closed)));
    drop(store);
    assert!(brooklet::check(&path, brooklet::Progress::ignore).unwrap().is_sound());
    assert_eq!(check_all(&options().open(&path).unwrap()), entries);
}

#[test]
fn a_crowd_on_the_best_backend() {
    crowd(Options::new());
}

#[test]
fn a_crowd_on_threads_and_the_page_cache() {
    crowd(Options::new().io_uring(false).direct(false));
}

#[test]
fn appends_that_nobody_waits_for_become_durable_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        Options::new().ring_size(1 << 20).max_payload(1 << 16).open(dir.path().join("store")).unwrap();
    let hour = Durability::Deferred(Duration::from_secs(3600));
    let patient = store.append_with("log", b"patient", hour).unwrap();
    drop(store.append("log", b"dropped").unwrap());
    // The dropped one is due within the linger, and everything before it with it.
    let mut waited = 0;
    while !patient.is_durable() {
        std::thread::park_timeout(Duration::from_millis(5));
        waited += 1;
        assert!(waited < 20_000, "it rests for ever");
    }
}

#[test]
fn the_last_handle_may_go_in_a_callback() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = || Options::new().ring_size(1 << 20).max_payload(1 << 16);
    for _ in 0..20 {
        let store = options().open(&path).unwrap();
        let ticket = store.append("log", b"x").unwrap();
        let (done, told) = std::sync::mpsc::channel();
        ticket.on_done(move |result| {
            drop(store);
            done.send(result).unwrap();
        });
        drop(ticket);
        told.recv_timeout(Duration::from_secs(60)).expect("the callback ends").unwrap();
    }
    let store = options().open(&path).unwrap();
    assert_eq!(store.bounds("log").unwrap().next, 20);
}

fn small(dir: &tempfile::TempDir) -> Store {
    let options = Options::new().ring_size(1 << 20).memory_budget(256 << 10).max_payload(1 << 16);
    options.open(dir.path().join("store")).unwrap()
}

/// Looks again and again, for a minute at most.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let (_nobody_sends, silence) = std::sync::mpsc::channel::<()>();
    for _ in 0..6000 {
        if holds() {
            return;
        }
        let _ = silence.recv_timeout(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

#[test]
fn checkpoints_that_a_caller_asks_for_are_merged_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let store = small(&dir);
    for n in 0..40 {
        drop(store.append(format!("log/{}", n % 7), b"x").unwrap());
        store.checkpoint().unwrap();
    }
    eventually("at most twelve runs are left", || store.info().unwrap().runs.len() <= 12);
    assert_eq!(store.scan("").unwrap().map(|log| log.unwrap().bounds.len()).sum::<u64>(), 40);
}

#[test]
fn commits_that_are_refused_do_not_fill_the_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = small(&dir);
    store.append("log", b"x").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    for n in 0..20_000 {
        assert!(matches!(store.trim(format!("none/{n}"), 1), Err(Error::UnknownLog { .. })));
    }
    // Each refusal leaves what was looked up behind; a checkpoint sweeps it out.
    eventually("the memory stays within its budget", || store.info().unwrap().memtable_bytes <= 256 << 10);
}

/// Found under the thread sanitizer, which held maintenance up: commits that came while a
/// checkpoint went on asked for none, and after it nobody did.
#[test]
fn what_comes_during_a_checkpoint_is_weighed_after_it() {
    let options = Options::new().ring_size(1 << 20).memory_budget(256 << 10).max_payload(1 << 16);
    let store = options.threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
    store.append("log", b"x").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    let refuse = |range: std::ops::Range<u32>| {
        for n in range {
            assert!(matches!(store.trim(format!("none/{n}"), 1), Err(Error::UnknownLog { .. })));
        }
    };
    refuse(0..2000);
    assert!(store.step().unwrap(), "a checkpoint begins");
    refuse(2000..4000);
    while store.step().unwrap() {}
    assert!(store.info().unwrap().memtable_bytes <= 128 << 10);
}
