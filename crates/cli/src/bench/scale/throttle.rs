//! Full throttle: appends a second, with a bounded number of them in flight, or by threads that
//! wait for each of their appends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::subject::{Load, Subject, write};
use crate::bench::flying::{Credits, on_threads};
use crate::bench::system::{Cpu, reads};
use crate::failure::Failure;

const THREADS: usize = 4;
/// Commits in flight of each of them: 1,024 together.
const EACH: usize = 256;
/// Threads that wait.
const WAITING: usize = 64;

/// What full throttle brought about.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Full {
    /// Appends a second.
    pub per_second: f64,
    /// Payload bytes.
    pub bytes: u64,
    /// Microseconds of processor time that the process used for each append, checkpoints and all.
    /// Unlike the rate this tells something on a machine that others use, too. Unknown: none.
    pub cpu_us: Option<f64>,
    /// Calls by which the process read, for each append. Unknown: none.
    pub reads: Option<f64>,
}

/// Appends as fast as it goes for `span`, told by callbacks.
pub fn full(subject: &mut Subject<'_>, load: Load, span: Duration) -> Result<Full, Failure> {
    measured(subject, load, THREADS, span, |subject, thread, stop| {
        let credits = Credits::new(EACH);
        let mut payloads = subject.payloads_from(thread * 7919);
        let mut keys = subject.keys(load, thread);
        let (mut writes, mut bytes) = (0, 0);
        while writes == 0 || !stop.load(Ordering::Relaxed) {
            for payload in payloads.by_ref().take(credits.take()) {
                let credits = credits.clone();
                // A store that stopped is told of by the next append or by the flush.
                write(&subject.store, load, &keys(), payload)?.on_done(move |_| credits.give());
                writes += 1;
                bytes += payload.len() as u64;
            }
        }
        Ok((writes, bytes))
    })
}

/// Appends for `span` by threads each of which waits for each of its appends.
pub fn waiting(subject: &mut Subject<'_>, load: Load, span: Duration) -> Result<Full, Failure> {
    measured(subject, load, WAITING, span, |subject, thread, stop| {
        let mut keys = subject.keys(load, thread);
        let (mut writes, mut bytes) = (0, 0);
        for payload in subject.payloads_from(thread * 7919) {
            write(&subject.store, load, &keys(), payload)?.wait()?;
            writes += 1;
            bytes += payload.len() as u64;
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok((writes, bytes))
    })
}

/// Runs a load on threads, each of which returns the number of its appends and of their bytes.
fn measured(
    subject: &mut Subject<'_>,
    load: Load,
    threads: usize,
    span: Duration,
    work: impl Fn(&Subject<'_>, usize, &AtomicBool) -> Result<(u64, u64), Failure> + Sync,
) -> Result<Full, Failure> {
    let (cpu, read) = (Cpu::now(), reads());
    let shared = &*subject;
    let (done, took) = on_threads(threads, span, |thread, stop| work(shared, thread, stop))?;
    subject.store.flush()?;
    let (writes, bytes) = done.into_iter().fold((0, 0), |(n, sum), (m, more)| (n + m, sum + more));
    subject.count(load, writes, bytes);
    let each = |sum: f64| sum / writes as f64;
    Ok(Full {
        per_second: writes as f64 / took.as_secs_f64(),
        bytes,
        cpu_us: cpu.and_then(Cpu::process_since).map(|time| each(time.as_secs_f64() * 1e6)),
        reads: reads().zip(read).map(|(now, before)| each((now - before) as f64)),
    })
}
