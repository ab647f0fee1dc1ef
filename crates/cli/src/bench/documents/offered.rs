//! The steady load: patches that are due at fixed times, however the store gets on. A patch's
//! latency counts from the time when it was due.
//!
//! One patch in a thousand is of an old version, and meets a conflict. One in a hundred is of a
//! document that is not in memory, which is loaded.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::Store;
use brooklet::io::{Rng, exact_timers};
use brooklet_documents::{Documents, Error, Json};

use super::{delta, first, name, open};
use crate::bench::plain::DEVICE_BYTES;
use crate::bench::row::{Rounds, Row};
use crate::bench::table::Mark;
use crate::device::Device;
use crate::failure::Failure;
use crate::latency::{Latencies, latencies, micros, record};

const SECTION: &str = "documents under a steady load";
const THREADS: u64 = 4;
/// Documents beside those at work, for each of them.
const COLD: u64 = 10;
/// Memory for documents: those at work fit, the others do not.
const CACHE: usize = 64 << 20;

/// What a thread offered.
struct Offered {
    /// Times from when a patch was due until it was acknowledged.
    times: Latencies,
    /// The same for patches of documents that had to be loaded.
    cold: Latencies,
    /// Times from when a patch was due until its thread ran: a part of the times above.
    late: Latencies,
    conflicts: u64,
}

/// The load, beside the device's durable writes before it and after it.
pub fn rows(dir: &Path, documents: u64, rate: u32, span: Duration) -> Result<Vec<Row>, Failure> {
    let store = Store::open(dir.join("offered"))?;
    let open = open(&store, CACHE)?;
    eprintln!("making {} documents", documents * (1 + COLD));
    make(&open, documents * (1 + COLD))?;
    let mut device = Device::new(&dir.join("device"), DEVICE_BYTES)?;
    let mut writes = latencies();
    alone(&mut device, &mut writes)?;
    eprintln!("measuring: {rate} patches/s for {} s", span.as_secs_f64());
    let loads = open.cache().loads;
    let begin = Instant::now();
    let offered: Result<Vec<Offered>, Failure> = thread::scope(|scope| {
        let offer = |thread| {
            let open = open.clone();
            move || offer(&open, documents, f64::from(rate), (begin, span), thread)
        };
        let running: Vec<_> = (0..THREADS).map(|thread| scope.spawn(offer(thread))).collect();
        running.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect()
    });
    let took = begin.elapsed();
    let (mut all, mut cold, mut late, mut conflicts) = (latencies(), latencies(), latencies(), 0);
    for offered in offered? {
        all.add(&offered.times).expect("the bounds are the same");
        cold.add(&offered.cold).expect("the bounds are the same");
        late.add(&offered.late).expect("the bounds are the same");
        conflicts += offered.conflicts;
    }
    alone(&mut device, &mut writes)?;
    let loads = open.cache().loads - loads;
    drop(open);
    store.close()?;
    let unit = micros(&writes, 0.5);
    let mut half = Rounds::new(SECTION, format!("{rate} patches/s over {documents} documents, p50"), "us");
    half.pair(micros(&all, 0.5), unit);
    half.note("p5", micros(&all, 0.05));
    half.note("of it until the thread ran, p50", micros(&late, 0.5));
    half.note("patches/s done", all.len() as f64 / took.as_secs_f64());
    half.note("conflicts", conflicts as f64);
    let mut most = Rounds::new(SECTION, "the same, p98", "us");
    most.pair(micros(&all, 0.98), unit);
    most.note("p99", micros(&all, 0.99));
    most.note("of it until the thread ran, p98", micros(&late, 0.98));
    most.note("the device, p98", micros(&writes, 0.98));
    most.note("documents loaded", loads as f64);
    if !cold.is_empty() {
        most.note("p50 of patches that load", micros(&cold, 0.5));
    }
    let against = "the device's durable 4 KiB write, one after another, p50";
    Ok(vec![half.row(against, Mark::AtMost(2.5)), most.row(against, Mark::AtMost(6.0))])
}

/// Adds latencies of the device's durable 4 KiB writes for two seconds.
fn alone(device: &mut Device, writes: &mut Latencies) -> Result<(), Failure> {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        let start = Instant::now();
        device.write()?;
        record(writes, start.elapsed());
    }
    Ok(())
}

/// Creates documents by threads that wait for each, so that the store writes them in groups.
pub fn make(documents: &Documents<Json>, count: u64) -> Result<(), Failure> {
    let made: Result<Vec<()>, Failure> = thread::scope(|scope| {
        let make = |thread: u64| {
            move || {
                let mut rng = Rng::new(thread);
                for n in (thread..count).step_by(64) {
                    documents.create(name(n), "made", &first(&mut rng).into())?;
                }
                Ok(())
            }
        };
        let running: Vec<_> = (0..64).map(|thread| scope.spawn(make(thread))).collect();
        running.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect()
    });
    made.map(drop)
}

/// Offers each patch of this thread at its time. Each thread has documents of its own, so that it
/// knows their versions.
fn offer(
    open: &Documents<Json>,
    documents: u64,
    rate: f64,
    (begin, span): (Instant, Duration),
    thread: u64,
) -> Result<Offered, Failure> {
    exact_timers();
    let mut rng = Rng::new(thread + 100);
    let own = documents / THREADS;
    let mut versions = vec![1u64; (own * (1 + COLD)) as usize];
    let measured = Arc::new(Mutex::new((latencies(), latencies())));
    let (mut late, mut conflicts) = (latencies(), 0);
    for i in (thread..).step_by(THREADS as usize) {
        let due = Duration::from_secs_f64(i as f64 / rate);
        // Who cannot keep up stops after twice the time.
        if due >= span || begin.elapsed() > 2 * span {
            break;
        }
        thread::sleep(due.saturating_sub(begin.elapsed()));
        record(&mut late, begin.elapsed().saturating_sub(due));
        let is_cold = rng.below(100) == 0;
        let n = if is_cold { own + rng.below(own * COLD) } else { rng.below(own) };
        let version = &mut versions[n as usize];
        let change = delta(&mut rng);
        if rng.below(1000) == 0 && *version > 1 {
            match open.submit(name(n * THREADS + thread), *version - 1, format!("late {i}"), &change) {
                Err(Error::Conflict { head, .. }) if head == *version => conflicts += 1,
                other => drop(other?),
            }
            continue;
        }
        let submitted = open.submit(name(n * THREADS + thread), *version, format!("patch {i}"), &change)?;
        *version = submitted.answer().version;
        let measured = measured.clone();
        let done = move |done: Result<(), brooklet::Error>| {
            if done.is_ok() {
                let took = begin.elapsed().saturating_sub(due);
                let mut measured = measured.lock().expect("no panics");
                record(if is_cold { &mut measured.1 } else { &mut measured.0 }, took);
            }
        };
        match submitted.ticket() {
            Some(ticket) => ticket.on_done(done),
            None => done(Ok(())),
        }
    }
    open.store().flush()?;
    // The last callbacks may still run.
    while Arc::strong_count(&measured) > 1 {
        thread::sleep(Duration::from_millis(1));
    }
    let (mut times, cold) =
        std::mem::replace(&mut *measured.lock().expect("no panics"), (latencies(), latencies()));
    times.add(&cold).expect("the bounds are the same");
    Ok(Offered { times, cold, late, conflicts })
}
