//! Times a store of very many logs: making it, opening it, appends and reads of logs at rest, and
//! an opening after a kill.
//!
//! ```sh
//! cargo run --release -p brooklet --example many -- STORE LOGS [CACHE_MIB]
//! ```
//!
//! CACHE_MIB is the memory for look-ups (64). A look-up of a log needs a filter of each run; all
//! filters together take 1.5 bytes a log, and the cache for the bounds of logs takes half of the
//! memory.
//!
//! Where the file STORE is not there: makes LOGS logs of one entry of 64 to 512 bytes in it. Where
//! it is: opens it and does the rest. The last step ends the process as a kill does; the next run
//! then opens what it left.

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brooklet::io::Rng;
use brooklet::{Commit, Error, Options, Store};

/// Appends of a commit that fills.
const COMMIT: u64 = 1000;
/// Threads that wait for each append.
const THREADS: u64 = 64;
/// Seconds of each load of appends.
const SECONDS: u64 = 5;
/// Look-ups, and reads of whole logs.
const LOOKED_UP: u64 = 200_000;
const READ: u64 = 20_000;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path, logs, rest @ ..] = &args[..] else { panic!("give the path of a store and a number of logs") };
    let (path, logs) = (Path::new(path), logs.parse().expect("a number of logs"));
    let cache: usize = rest.first().map_or(64, |cache| cache.parse().expect("a number of MiB"));
    let open = || Options::new().cache_budget(cache << 20).open(path);
    if !path.exists() {
        return fill(&open()?, logs);
    }
    let store = timed("opened", 1, open)?;
    tell(&store);
    for pass in ["first", "second"] {
        let mut rng = Rng::new(5);
        timed(&format!("bounds of logs at random, {pass} time"), LOOKED_UP, || {
            (0..LOOKED_UP).try_for_each(|_| store.bounds(key(rng.below(logs))).map(drop))
        })?;
    }
    for pass in ["first", "second"] {
        let mut rng = Rng::new(7);
        timed(&format!("logs at random, read whole, {pass} time"), READ, || {
            (0..READ).try_for_each(|_| {
                let mut entries = store.read(key(rng.below(logs)), ..)?;
                entries.try_for_each(|entry| entry.map(drop))
            })
        })?;
    }
    appends(&store, logs)?;
    tell(&store);
    let mut rng = Rng::new(13);
    for _ in 0..300_000 {
        drop(store.append(key(rng.below(logs)), payload(&mut rng))?);
    }
    store.flush()?;
    println!("the process ends without closing the store");
    std::io::stdout().flush().expect("it is open");
    std::process::abort();
}

fn key(n: u64) -> String {
    format!("doc/{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn payload(rng: &mut Rng) -> Vec<u8> {
    let len = 64 + rng.below(449) as usize;
    let mut text = format!("{{\"op\":\"update\",\"at\":{},\"fields\":{{", rng.next());
    while text.len() < len {
        text += &format!("\"field{}\":{},", rng.below(40), rng.below(100_000));
    }
    text.truncate(len);
    text.into_bytes()
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn fill(store: &Store, logs: u64) -> Result<(), Error> {
    let mut rng = Rng::new(1);
    let start = Instant::now();
    let payloads: Vec<Vec<u8>> = (0..60_000).map(|_| payload(&mut rng)).collect();
    timed("created, a log each", logs, || {
        for from in (0..logs).step_by(COMMIT as usize) {
            let mut commit = Commit::new();
            for log in from..(from + COMMIT).min(logs) {
                commit.append(key(log), payloads[log as usize % payloads.len()].as_slice());
            }
            drop(store.commit(&commit)?);
            if from % 10_000_000 == 0 {
                println!("{from} logs after {:.0?}", start.elapsed());
            }
        }
        store.flush()
    })?;
    tell(store);
    timed("closed", 1, || store.close())
}

/// Appends by threads that wait for each, to all logs at random.
#[expect(clippy::disallowed_methods, reason = "it measures")]
fn appends(store: &Store, logs: u64) -> Result<(), Error> {
    let (ended, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let write = |thread: u64| -> Result<(), Error> {
            let mut rng = Rng::new(100 + thread);
            while !ended.load(Ordering::Relaxed) {
                store.append(key(rng.below(logs)), payload(&mut rng))?.wait()?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || write(thread))).collect();
        std::thread::sleep(Duration::from_secs(SECONDS));
        ended.store(true, Ordering::Relaxed);
        threads.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    println!("{THREADS} waiting threads: {} appends/s", count.into_inner() / SECONDS);
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn timed<T>(what: &str, times: u64, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let (start, before) = (Instant::now(), processor());
    let done = work()?;
    let (all, cpu) = (start.elapsed(), (processor() - before) / times);
    println!("{what:45} {:>10.1?} each, {cpu:>6} ns of the processor; {all:.1?}", all / times as u32);
    Ok(done)
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
        "{} runs of {} MiB; filters {}, indexes {}, blocks {} KiB; written {} MiB by maintenance",
        info.runs.len(),
        info.runs.iter().map(|run| run.bytes).sum::<u64>() >> 20,
        found.filter_bytes >> 10,
        found.index_bytes >> 10,
        found.block_bytes >> 10,
        info.maintenance.heap_written_bytes >> 20,
    );
}
