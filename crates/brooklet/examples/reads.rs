//! Times reads of whole logs whose entries were appended in random order.
//!
//! ```sh
//! cargo run --release -p brooklet --example reads -- STORE [LOGS] [ENTRIES] [CACHE_MIB] [merge]
//! ```
//!
//! Where the file STORE is not there: makes LOGS logs (100,000) of ENTRIES entries (10) of 200
//! bytes in it. With `merge`, merges them into one run. Where it is: reads logs in random order,
//! with a cache of CACHE_MIB (64); then reads all of them in key order; then appends at a given
//! rate, alone and beside such a walk.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use brooklet::io::Rng;
use brooklet::{Error, Options, Store, View, WalkItem};

/// Logs of the smaller set, which are read several times.
const TOUCHED: u64 = 10_000;
/// Appends a second, how many of them come at once, and for how long.
const RATE: u64 = 16_000;
const BURST: u64 = 16;
const SECONDS: u64 = 8;
/// Bytes of an entry.
const ENTRY: usize = 200;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(default, |n| n.parse().expect("a number"));
    let path = Path::new(args.first().expect("the path of a store to make"));
    let (logs, entries, cache) = (number(1, 100_000), number(2, 10), number(3, 64));
    if !path.exists() {
        return fill(path, logs, entries, args.get(4).is_some_and(|word| word == "merge"));
    }
    let store = Options::new().cache_budget((cache as usize) << 20).open(path)?;
    tell(&store);
    for pass in ["first", "second", "third"] {
        let mut rng = Rng::new(5);
        timed(&format!("the same {TOUCHED} logs, {pass} time"), TOUCHED, || {
            (0..TOUCHED).try_for_each(|_| read(&store, rng.below(logs)))
        })?;
    }
    tell(&store);
    for pass in ["first", "second"] {
        let mut rng = Rng::new(7);
        timed(&format!("any logs, {pass} time"), logs, || {
            (0..logs).try_for_each(|_| read(&store, rng.below(logs)))
        })?;
    }
    tell(&store);
    let view = store.view()?;
    for _ in 0..3 {
        timed("all logs in key order, by a walk", logs, || walk(&view))?;
    }
    appends(&store, "alone")?;
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let walks = scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                walk(&view)?;
            }
            Ok(())
        });
        let appended = appends(&store, "beside walks");
        ended.store(true, Ordering::Relaxed);
        walks.join().expect("it does not panic").and(appended)
    })?;
    store.close()
}

/// Appends at [`RATE`] for [`SECONDS`], and prints the times from the moment that each append was
/// due to its acknowledgement.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn appends(store: &Store, how: &str) -> Result<(), Error> {
    let times = Arc::new(Mutex::new(Vec::new()));
    let (start, mut rng) = (Instant::now(), Rng::new(11));
    for n in 0..RATE * SECONDS {
        let due = start + Duration::from_nanos(n / BURST * BURST * 1_000_000_000 / RATE);
        if n % BURST == 0 {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let times = times.clone();
        let ticket = store.append(format!("paced/{}", rng.below(8_000)), payload(&mut rng))?;
        ticket.on_done(move |done| {
            assert!(done.is_ok());
            times.lock().expect("nobody panics").push(due.elapsed());
        });
    }
    store.flush()?;
    while times.lock().expect("nobody panics").len() < (RATE * SECONDS) as usize {
        std::thread::sleep(Duration::from_millis(1));
    }
    let mut times = std::mem::take(&mut *times.lock().expect("nobody panics"));
    times.sort_unstable();
    let [p50, p99, p999] = [500, 990, 999].map(|part| times[times.len() * part / 1000]);
    println!("{RATE} appends/s, {how}: p50 {p50:.1?}, p99 {p99:.1?}, p99.9 {p999:.1?}");
    Ok(())
}

fn walk(view: &View) -> Result<(), Error> {
    for walked in view.walk("")? {
        if let WalkItem::Entry(entry) = walked? {
            assert_eq!(entry.payload.len(), ENTRY);
        }
    }
    Ok(())
}

fn read(store: &Store, log: u64) -> Result<(), Error> {
    for entry in store.read(key(log), ..)? {
        assert_eq!(entry?.payload.len(), ENTRY);
    }
    Ok(())
}

fn key(n: u64) -> String {
    format!("document/{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn fill(path: &Path, logs: u64, entries: u64, merge: bool) -> Result<(), Error> {
    let store = Options::new().open(path)?;
    let mut rng = Rng::new(1);
    for seq in 0..entries {
        for n in 0..logs {
            // A prime that divides no number of logs: all logs, in another order.
            let log = (n * 7919 + seq * 104_729) % logs;
            drop(store.append(key(log), payload(&mut rng))?);
        }
    }
    if merge {
        store.checkpoint()?;
        store.compact()?;
    }
    store.close()
}

fn payload(rng: &mut Rng) -> Vec<u8> {
    let (player, at) = (rng.below(1_000_000), rng.next());
    let mut text = format!("{{\"op\":\"update\",\"player\":{player},\"at\":{at},\"fields\":{{");
    while text.len() < ENTRY {
        text += &format!("\"field{}\":{},", rng.below(40), rng.below(100_000));
    }
    text.truncate(ENTRY);
    text.into_bytes()
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn timed(what: &str, times: u64, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let (start, before) = (Instant::now(), processor());
    work()?;
    let each = start.elapsed() / times as u32;
    println!("{what:40} {each:>10.1?} each, {:>6} ns of the processor", (processor() - before) / times);
    Ok(())
}

/// Time that this thread has had a processor, in nanoseconds, where the system tells.
fn processor() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or_default()
}

fn tell(store: &Store) {
    let info = store.info().expect("the store is open");
    let found = info.lookups;
    println!(
        "{} runs of {} KiB; filters {}, indexes {}, blocks {} KiB; {} hits, {} misses of {} KiB",
        info.runs.len(),
        info.runs.iter().map(|run| run.bytes).sum::<u64>() >> 10,
        found.filter_bytes >> 10,
        found.index_bytes >> 10,
        found.block_bytes >> 10,
        found.cache_hits,
        found.cache_misses,
        found.read_bytes >> 10,
    );
}
