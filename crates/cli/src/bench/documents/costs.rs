//! What documents cost beside the store: patches by threads that wait, beside appends of the same
//! bytes; the processor's time for a patch; loads, beside reads of the same entries.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brooklet::Store;
use brooklet::io::Rng;

use super::offered::make;
use super::{PREFIX, SNAPSHOT, delta, name, open};
use crate::bench::flying::on_threads;
use crate::bench::row::{Rounds, Row};
use crate::bench::system::Cpu;
use crate::bench::table::{Mark, median};
use crate::failure::Failure;

const SECTION: &str = "documents beside the store";
const THREADS: usize = 64;
/// How long each measurement takes that has no count.
const SPAN: Duration = Duration::from_secs(2);
/// Most documents that are patched for the processor's time, and patches of each in a round.
const HOT: u64 = 1_000;
const PATCHES: u64 = 50;
/// Most documents that are loaded in a round.
const LOADED: u64 = 400;

/// Threads that wait for each of their patches, and for appends of the same bytes.
pub fn waiting(path: &Path, documents: u64, rounds: u64) -> Result<Row, Failure> {
    let store = Store::open(path)?;
    let open = open(&store, 256 << 20)?;
    make(&open, documents)?;
    // The bytes of an update, as a log has them.
    open.patch(name(0), 1, "sample", &delta(&mut Rng::new(9)))?;
    let log = store.scan(PREFIX)?.next().transpose()?.expect("the documents have logs").key;
    let payload = store.last(&log)?.expect("it has an update").payload;
    // Each thread has documents of its own, so that no other thread changes their versions.
    let versions: Vec<AtomicU64> = (0..documents).map(|_| AtomicU64::new(1)).collect();
    versions[0].store(2, Ordering::Relaxed);
    let mut row = Rounds::new(SECTION, format!("{THREADS} threads that wait for each patch"), "/s");
    row.note("bytes of an update", payload.len() as f64);
    for round in 0..rounds {
        eprintln!("measuring: patches by threads that wait, round {} of {rounds}", round + 1);
        let patches = rate(|thread, stop| {
            let mut rng = Rng::new(round * 1000 + thread as u64);
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                let n = rng.below(documents / THREADS as u64) * THREADS as u64 + thread as u64;
                let version = &versions[n as usize];
                let request = format!("{round} {thread} {done}");
                let answer =
                    open.patch(name(n), version.load(Ordering::Relaxed), request, &delta(&mut rng))?;
                version.store(answer.version, Ordering::Relaxed);
                done += 1;
            }
            Ok(done)
        })?;
        let appends = rate(|thread, stop| {
            let mut rng = Rng::new(round * 1000 + thread as u64);
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                store.append(format!("bare/{}", rng.below(documents)), &payload)?.wait()?;
                done += 1;
            }
            Ok(done)
        })?;
        row.pair(patches, appends);
    }
    drop(open);
    store.close()?;
    Ok(row.row("appends of the same bytes by as many threads", Mark::AtLeast(0.6)))
}

fn rate(work: impl Fn(usize, &AtomicBool) -> Result<u64, Failure> + Sync) -> Result<f64, Failure> {
    let (done, took) = on_threads(THREADS, SPAN, work)?;
    Ok(done.into_iter().sum::<u64>() as f64 / took.as_secs_f64())
}

/// The processor's time for a patch of a document in memory, the store's threads included.
pub fn processor(path: &Path, documents: u64, rounds: u64) -> Result<Row, Failure> {
    let hot = documents.min(HOT);
    let patches = hot * PATCHES;
    let store = Store::open(path)?;
    let open = open(&store, 256 << 20)?;
    make(&open, hot)?;
    let mut versions = vec![1; hot as usize];
    let mut rng = Rng::new(3);
    let mut row = Rounds::new(SECTION, "a patch of a document in memory, processor", "us");
    for round in 0..rounds {
        eprintln!("measuring: the processor's time for a patch, round {} of {rounds}", round + 1);
        let changes: Vec<_> = (0..patches).map(|_| delta(&mut rng)).collect();
        let before = Cpu::now();
        for (n, change) in (0..).zip(&changes) {
            let version = &mut versions[(n % hot) as usize];
            *version = open.submit(name(n % hot), *version, format!("{round} {n}"), change)?.answer().version;
        }
        store.flush()?;
        let used = before.and_then(Cpu::process_since);
        row.alone(used.map_or(f64::NAN, |used| used.as_secs_f64() * 1e6 / patches as f64));
    }
    drop(open);
    store.close()?;
    Ok(row.row("none", Mark::Within(10.0)))
}

/// Loads of documents that have a snapshot and updates behind it, and reads of the same entries.
pub fn loads(path: &Path, documents: u64, rounds: u64) -> Result<Row, Failure> {
    // Half of them are loaded, and of the others the log is read.
    let each = 2 * documents.min(LOADED);
    let store = Store::open(path)?;
    {
        let open = open(&store, 256 << 20)?;
        make(&open, each * rounds)?;
        let mut rng = Rng::new(4);
        for version in 1..=SNAPSHOT - 1 {
            for n in 0..each * rounds {
                drop(open.submit(name(n), version, format!("{version}"), &delta(&mut rng))?);
            }
        }
        store.flush()?;
    }
    store.compact()?;
    store.close()?;
    drop(store);
    let mut row = Rounds::new(SECTION, format!("load a snapshot and {} updates, p50", SNAPSHOT - 1), "us");
    for round in 0..rounds {
        eprintln!("measuring: loads, round {} of {rounds}", round + 1);
        let store = Store::open(path)?;
        let open = open(&store, 256 << 20)?;
        let logs: Vec<_> = store.scan(PREFIX)?.map(|log| log.map(|log| log.key)).collect::<Result<_, _>>()?;
        let (mut loaded, mut read) = (Vec::new(), Vec::new());
        for n in each * round..each * (round + 1) {
            let start = Instant::now();
            if n.is_multiple_of(2) {
                open.get(name(n))?.expect("it was made");
                loaded.push(start.elapsed().as_secs_f64() * 1e6);
            } else {
                store.read(&logs[n as usize], ..)?.try_for_each(|entry| entry.map(drop))?;
                read.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        row.pair(median(loaded), median(read));
        drop(open);
        store.close()?;
    }
    Ok(row.row("reading as many entries of another document's log", Mark::AtMost(1.3)))
}
