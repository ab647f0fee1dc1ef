//! Times look-ups and tells the memory they take, on a store of many logs that it makes.
//!
//! ```sh
//! cargo run --release -p brooklet --example lookups -- STORE [LOGS] [ENTRIES] [CACHE_MIB]
//! ```
//!
//! Where the file STORE is not there: makes LOGS logs (a million) of ENTRIES entries (1) of 64 to
//! 512 bytes in it, and merges them into one run. Where it is: looks logs up in no order, with a
//! cache of CACHE_MIB (64). So run it twice, for the memory of a process that has only looked up.

use std::path::Path;
use std::time::Instant;

use brooklet::io::Rng;
use brooklet::{Error, Options, Store};

const TOUCHED: u64 = 10_000;

fn main() -> Result<(), Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(default, |n| n.parse().expect("a number"));
    let path = Path::new(args.first().expect("the path of a store to make"));
    let (logs, entries, cache) = (number(1, 1_000_000), number(2, 1), number(3, 64));
    if !path.exists() {
        return fill(path, logs, entries);
    }
    let before = resident();
    let store = Options::new().cache_budget((cache as usize) << 20).open(path)?;
    tell(&store, logs, before, "opened");
    for pass in ["cold", "warm", "warm"] {
        let mut rng = Rng::new(5);
        timed(&format!("read whole logs, {pass}"), TOUCHED, || {
            for _ in 0..TOUCHED {
                for entry in store.read(key(rng.below(logs)), ..)? {
                    entry?;
                }
            }
            Ok(())
        })?;
        tell(&store, logs, before, pass);
    }
    timed("ask for logs that are not there", TOUCHED, || {
        (0..TOUCHED).for_each(|n| drop(store.bounds(format!("none/{n}"))));
        Ok(())
    })?;
    tell(&store, logs, before, "asked");
    for what in ["append to new logs", "append to the same again"] {
        timed(what, 10 * TOUCHED, || {
            (0..10 * TOUCHED).try_for_each(|n| store.append(format!("new/{n}"), [7; 100]).map(drop))
        })?;
    }
    let mut rng = Rng::new(9);
    timed("bounds of logs touched everywhere", logs.min(200_000), || {
        (0..logs.min(200_000)).try_for_each(|_| store.bounds(key(rng.below(logs))).map(drop))
    })?;
    tell(&store, logs, before, "touched");
    store.close()
}

fn key(n: u64) -> String {
    format!("document/{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn fill(path: &Path, logs: u64, entries: u64) -> Result<(), Error> {
    let store = Options::new().open(path)?;
    let mut rng = Rng::new(1);
    for n in 0..logs {
        for _ in 0..entries {
            let len = 64 + rng.below(449) as usize;
            let text =
                format!("{{\"op\":\"insert\",\"at\":{},\"by\":\"{:016x}\"}}", rng.below(9999), rng.next());
            let payload: Vec<u8> = text.bytes().cycle().take(len).collect();
            drop(store.append(key(n), payload)?);
        }
    }
    store.checkpoint()?;
    store.compact()?;
    store.close()
}

#[expect(clippy::disallowed_methods, reason = "it measures")]
fn timed(what: &str, times: u64, work: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let (start, before) = (Instant::now(), processor());
    work()?;
    let each = start.elapsed() / times as u32;
    println!("{what:40} {each:>10.1?} each, {:>6} ns of the processor", (processor() - before) / times);
    Ok(())
}

/// Time that this thread has had a processor, in nanoseconds, where the system tells: on a busy
/// machine, what it takes.
fn processor() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or_default()
}

fn tell(store: &Store, logs: u64, before: u64, when: &str) {
    let info = store.info().expect("the store is open");
    let (each, found) = (|bytes: u64| bytes as f64 / logs as f64, info.lookups);
    println!(
        "{when:10} {} runs; filters {:.2}, indexes {:.2}, resident {:.2} bytes a log; blocks {} KiB; \
         {} questions, {} misled; {} hits, {} misses of {} KiB",
        info.runs.len(),
        each(found.filter_bytes as u64),
        each(found.index_bytes as u64),
        each(resident().saturating_sub(before)),
        found.block_bytes >> 10,
        found.filter_questions,
        found.filter_false_positives,
        found.cache_hits,
        found.cache_misses,
        found.read_bytes >> 10,
    );
}

/// Bytes of memory that the process has, where the system tells.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4096
}
