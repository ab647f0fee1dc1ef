//! A steady load: appends that are due at fixed times, however the store gets on.
//!
//! An append's latency counts from when it was due, not from when it was sent: who has to wait
//! before he can send waits all the same.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::exact_timers;
use serde::{Deserialize, Serialize};

use super::subject::{Load, Subject, write};
use super::windows::{Windows, watch};
use crate::bench::flying::Stop;
use crate::bench::system::reads;
use crate::failure::Failure;
use crate::latency::{latencies, micros, record};

const THREADS: usize = 4;

/// An append: when it was due, and how long after that it was acknowledged.
type Sample = (Duration, Duration);

/// How a steady load got on. Times in microseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Steady {
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    pub max: f64,
    /// Of what was due or on its way while a checkpoint or a compaction went on, and of the rest.
    pub p999_busy: Option<f64>,
    pub p999_quiet: Option<f64>,
    /// The share of the time in which one went on. These three unknown: none.
    pub busy: Option<f64>,
    pub checkpoints: u64,
    pub compactions: u64,
    /// Half of the appends were sent so long after they were due.
    pub sent_late_p50: f64,
    /// The share of the appends that were sent within twice the time; the others count as if they
    /// had been acknowledged then.
    pub sent: f64,
    /// Calls by which the process read, for each append. Unknown: none.
    pub reads: Option<f64>,
}

/// Offers `rate` appends a second for `span`.
pub fn steady(subject: &mut Subject<'_>, load: Load, rate: f64, span: Duration) -> Result<Steady, Failure> {
    let (before, read) = (subject.store.info()?.maintenance, reads());
    let begin = Instant::now();
    let ended = AtomicBool::new(false);
    let (offered, windows) = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(begin, &ended));
        let ends = Stop(&ended);
        let offer = |thread| {
            let subject = &*subject;
            move || offer(subject, load, rate, (begin, span), thread)
        };
        let running: Vec<_> = (0..THREADS).map(|thread| scope.spawn(offer(thread))).collect();
        let offered: Result<Vec<Offered>, Failure> =
            running.into_iter().map(|thread| thread.join().expect("a writer panicked")).collect();
        drop(ends);
        let windows = watching.join().expect("the watcher panicked");
        offered.map(|offered| (offered, windows))
    })?;
    let info = subject.store.info()?;
    let after = info.maintenance;
    // Without either, maintenance has only looked whether there is something to do.
    let worked = after != before || info.checkpointing || info.compacting;
    let windows = if worked { windows } else { windows.map(|_| Windows::default()) };
    let bytes = offered.iter().map(|offered| offered.bytes).sum();
    let read = reads().zip(read).map(|(now, before)| now - before);
    let writes: u64 = offered.iter().map(|offered| offered.samples.len() as u64).sum();
    subject.count(load, writes, bytes);
    Ok(Steady {
        checkpoints: after.checkpoints - before.checkpoints,
        compactions: after.compactions - before.compactions,
        reads: read.map(|read| read as f64 / writes as f64),
        ..sum_up(&offered, windows.as_ref(), begin.elapsed())
    })
}

/// What a thread offered.
struct Offered {
    samples: Vec<Sample>,
    /// How late those that were sent were sent.
    late: Vec<Duration>,
    bytes: u64,
}

fn offer(
    subject: &Subject<'_>,
    load: Load,
    rate: f64,
    (begin, span): (Instant, Duration),
    thread: usize,
) -> Result<Offered, Failure> {
    exact_timers();
    let mut keys = subject.keys(load, thread);
    let mut payloads = subject.payloads_from(thread * 7919);
    let room = (rate * span.as_secs_f64()) as usize / THREADS + 1;
    let samples: Arc<Mutex<Vec<Sample>>> = Arc::new(Mutex::new(Vec::with_capacity(room)));
    let mut late = Vec::with_capacity(room);
    let mut bytes = 0;
    for i in (thread..).step_by(THREADS) {
        let due = Duration::from_secs_f64(i as f64 / rate);
        if due >= span && i >= THREADS {
            break;
        }
        thread::sleep(due.saturating_sub(begin.elapsed()));
        let now = begin.elapsed();
        if now > 2 * span + Duration::from_secs(1) {
            samples.lock().expect("no panics").push((due, now - due));
            continue;
        }
        late.push(now.saturating_sub(due));
        let payload = payloads.next().expect("endless");
        bytes += payload.len() as u64;
        let samples = samples.clone();
        write(&subject.store, load, &keys(), payload)?.on_done(move |done| {
            if done.is_ok() {
                let took = begin.elapsed().saturating_sub(due);
                samples.lock().expect("no panics").push((due, took));
            }
        });
    }
    subject.store.flush()?;
    // The last callbacks may still be at it.
    while Arc::strong_count(&samples) > 1 {
        thread::sleep(Duration::from_millis(1));
    }
    let samples = std::mem::take(&mut *samples.lock().expect("no panics"));
    Ok(Offered { samples, late, bytes })
}

fn sum_up(offered: &[Offered], windows: Option<&Windows>, took: Duration) -> Steady {
    let (mut all, mut busy, mut quiet, mut late) = (latencies(), latencies(), latencies(), latencies());
    for &(due, took) in offered.iter().flat_map(|offered| &offered.samples) {
        record(&mut all, took);
        if let Some(windows) = windows {
            record(if windows.meet(due, due + took) { &mut busy } else { &mut quiet }, took);
        }
    }
    offered.iter().flat_map(|offered| &offered.late).for_each(|&time| record(&mut late, time));
    let p999 = |some: &crate::latency::Latencies| (!some.is_empty()).then(|| micros(some, 0.999));
    Steady {
        p50: micros(&all, 0.5),
        p99: micros(&all, 0.99),
        p999: micros(&all, 0.999),
        max: all.max() as f64 / 1e3,
        p999_busy: p999(&busy),
        p999_quiet: p999(&quiet),
        busy: windows.map(|windows| windows.total().as_secs_f64() / took.as_secs_f64()),
        checkpoints: 0,
        compactions: 0,
        sent_late_p50: micros(&late, 0.5),
        sent: late.len() as f64 / all.len() as f64,
        reads: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_meets_a_checkpoint_is_told_apart() {
        let at = Duration::from_millis;
        let windows = Windows::from(vec![(at(10), at(20))]);
        // Due before and acknowledged in it; due in it; on both sides of it; before; after.
        let samples = vec![(at(9), at(2)), (at(15), at(1)), (at(5), at(40)), (at(1), at(1)), (at(21), at(3))];
        let offered = [Offered { samples, late: vec![at(0); 4], bytes: 0 }];
        let steady = sum_up(&offered, Some(&windows), at(100));
        assert_eq!((steady.p999_busy.unwrap() / 1e3).round(), 40.0);
        assert_eq!((steady.p999_quiet.unwrap() / 1e3).round(), 3.0);
        assert_eq!(((steady.busy.unwrap() * 1e3).round(), steady.sent), (100.0, 0.8));
        assert_eq!((steady.max / 1e3).round(), 40.0);
        let untold = sum_up(&offered, None, at(100));
        assert_eq!((untold.busy, untold.p999_busy, untold.p999_quiet), (None, None, None));
    }
}
