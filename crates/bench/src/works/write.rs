//! Writing: threads that wait for each operation, and all at once; `flight` has those who do not
//! wait on a thread.

use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::Rng;
use serde::{Deserialize, Serialize};

use super::{Figures, flight};
use crate::outcome::Result;
use crate::payloads::Payloads;
use crate::peer::{Op, Peer};
use crate::stores::Kind;
use crate::system;

/// Logs that are appended to.
pub const LOGS: u64 = 100_000;
/// Number of the first of other logs, which nobody touches while it is timed.
const OTHERS: u64 = 1 << 40;
/// Logs that are appended to and trimmed.
const HOT_LOGS: u64 = 1_000;
/// Every so many operations on a hot log, one is a snapshot that drops what was there.
const SNAPSHOT_EVERY: u64 = 16;

/// What is written, and how.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Few logs, with a snapshot now and then; many logs and appends only otherwise.
    pub hot: bool,
    /// Whether the logs lie where a store puts what rests, and not in its memory; never with hot
    /// ones.
    pub cold: bool,
    /// Who waits for what.
    pub how: How,
    /// For how long.
    pub until: Until,
    /// Number of the first log.
    pub first_log: u64,
    /// Whether what was written is brought to its place at the end.
    pub settle: bool,
}

/// Who waits for what.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum How {
    /// So many threads, each for each of its operations.
    Waiting(u64),
    /// One thread, which leaves callbacks, with so many operations in flight.
    Flight(usize),
    /// So many tasks on one thread, each of which awaits each of its operations.
    Tasks(u64),
    /// Everything is handed in, and waited for once.
    Bulk,
}

/// When writing ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Until {
    /// After so many seconds.
    Seconds(f64),
    /// After so many operations.
    Count(u64),
}

/// What was written.
pub struct Written {
    pub ops: u64,
    pub bytes: u64,
    pub took: Duration,
    /// Nanoseconds, where threads waited.
    pub latencies: Vec<u32>,
    /// Context switches of all threads meanwhile, the store's own included; `None` where the system
    /// does not tell.
    pub switches: Option<u64>,
}

/// Writes to a new store, from its opening to its closing.
pub fn measure(kind: Kind, dir: &Path, load: &Load, payloads: Payloads) -> Result<Figures> {
    let store = kind.open(dir)?;
    let present = |first_log: u64, seq: u64| {
        let op =
            |log| Op { log: first_log + log, seq, first: seq, payload: payloads.delta(log + seq * LOGS) };
        store.all(&(0..LOGS).map(op).collect::<Vec<_>>())
    };
    // Log files have been used before, where a store uses them again.
    for seq in 0..2 {
        present(OTHERS, seq)?;
        store.settle()?;
    }
    if !load.hot {
        present(0, 0)?;
    }
    if load.cold {
        store.settle()?;
    }
    let (written, on_device) = system::count_written(dir, || {
        let before = system::cpu();
        let written = write(&*store, load, payloads)?;
        if load.settle {
            store.settle()?;
        }
        store.close()?;
        Ok((written, system::cpu() - before))
    })?;
    let (mut written, cpu) = written;
    let mut figures = Figures::from([
        ("per second".to_owned(), written.ops as f64 / written.took.as_secs_f64()),
        ("cpu".to_owned(), cpu.as_secs_f64() * 1e6 / written.ops as f64),
    ]);
    if let Some(on_device) = on_device {
        figures.insert("written per byte".into(), on_device as f64 / written.bytes as f64);
    }
    if let Some(switches) = written.switches {
        figures.insert("switches".into(), switches as f64 / written.ops as f64);
    }
    written.latencies.sort_unstable();
    if let Some(last) = written.latencies.len().checked_sub(1) {
        for (name, per_mille) in [("p50", 500), ("p99", 990)] {
            figures.insert(name.into(), f64::from(written.latencies[last * per_mille / 1000]) / 1e3);
        }
    }
    Ok(figures)
}

/// Writes to a store.
pub fn write(store: &dyn Peer, load: &Load, payloads: Payloads) -> Result<Written> {
    match load.how {
        How::Waiting(threads) => waiting(store, load, threads, payloads),
        How::Flight(most) => flight::callbacks(store, load, most, payloads),
        How::Tasks(tasks) => flight::tasks(store, load, tasks, payloads),
        How::Bulk => bulk(store, load, payloads),
    }
}

/// The operations of one thread or task: each log is one's own.
pub struct Ops {
    rng: Rng,
    hot: bool,
    first_log: u64,
    thread: u64,
    threads: u64,
    /// The oldest and the next entry of each log.
    bounds: Vec<[u64; 2]>,
    payloads: Payloads,
    pub given: u64,
    pub bytes: u64,
}

impl Ops {
    pub fn new(load: &Load, thread: u64, threads: u64, payloads: Payloads) -> Self {
        let (logs, next) = match (load.hot, load.first_log) {
            (true, _) => (HOT_LOGS, 0),
            (false, 0) => (LOGS, 1),
            (false, _) => (LOGS, 0),
        };
        let bounds = vec![[0, next]; (logs / threads) as usize];
        let Load { hot, first_log, .. } = *load;
        Self { rng: Rng::new(thread), hot, first_log, thread, threads, bounds, payloads, given: 0, bytes: 0 }
    }

    pub fn next(&mut self) -> Op {
        let own = self.rng.below(self.bounds.len() as u64);
        let [oldest, next] = &mut self.bounds[own as usize];
        let (log, seq) = (self.first_log + self.thread + own * self.threads, *next);
        *next += 1;
        let i = self.thread * 7919 + self.given;
        let op = if self.hot && seq % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1 {
            let first = std::mem::replace(oldest, seq);
            Op { log, seq, first, payload: self.payloads.snapshot(i) }
        } else {
            Op { log, seq, first: seq, payload: self.payloads.delta(i) }
        };
        self.given += 1;
        self.bytes += op.payload.len() as u64;
        op
    }
}

impl Until {
    pub fn holds(self, begin: Instant, done: u64) -> bool {
        match self {
            Self::Seconds(seconds) => begin.elapsed().as_secs_f64() < seconds,
            Self::Count(count) => done < count,
        }
    }
}

/// What one thread of several did.
struct Part {
    ops: Ops,
    latencies: Vec<u32>,
    begin: Instant,
    end: Instant,
    switches: Option<u64>,
}

fn waiting(store: &dyn Peer, load: &Load, threads: u64, payloads: Payloads) -> Result<Written> {
    let barrier = Barrier::new(threads as usize);
    let before = system::switches_of_living();
    let work = |thread: u64| -> Result<Part> {
        let mut ops = Ops::new(load, thread, threads, payloads);
        let mut latencies = Vec::new();
        barrier.wait();
        let begin = Instant::now();
        let mut end = begin;
        while load.until.holds(begin, ops.given * threads) {
            store.wait(ops.next())?;
            let now = Instant::now();
            latencies.push(u32::try_from((now - end).as_nanos()).unwrap_or(u32::MAX));
            end = now;
        }
        // Who has ended is not counted with the living.
        Ok(Part { ops, latencies, begin, end, switches: system::switches_of_thread() })
    };
    let parts = thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        let parts = running.into_iter().map(|thread| thread.join().expect("a writer panicked"));
        parts.collect::<Result<Vec<_>>>()
    })?;
    let ended: Option<u64> = parts.iter().map(|part| part.switches).sum();
    let living = system::switches_since(before);
    // By the threads' own clocks: whoever starts them may get his turn when they are done.
    let begin = parts.iter().map(|part| part.begin).min().expect("there are threads");
    let end = parts.iter().map(|part| part.end).max().expect("there are threads");
    Ok(Written {
        ops: parts.iter().map(|part| part.ops.given).sum(),
        bytes: parts.iter().map(|part| part.ops.bytes).sum(),
        took: end - begin,
        latencies: parts.into_iter().flat_map(|part| part.latencies).collect(),
        switches: living.zip(ended).map(|(living, ended)| living + ended),
    })
}

fn bulk(store: &dyn Peer, load: &Load, payloads: Payloads) -> Result<Written> {
    let Until::Count(count) = load.until else {
        return Err("in bulk, a number of operations is given".into());
    };
    let mut ops = Ops::new(load, 0, 1, payloads);
    let all: Vec<Op> = (0..count).map(|_| ops.next()).collect();
    let (begin, before) = (Instant::now(), system::switches_of_living());
    store.all(&all)?;
    let took = begin.elapsed();
    let switches = system::switches_since(before);
    Ok(Written { ops: ops.given, bytes: ops.bytes, took, latencies: Vec::new(), switches })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(hot: bool) -> Load {
        Load { hot, cold: false, how: How::Bulk, until: Until::Count(1), first_log: 0, settle: false }
    }

    #[test]
    fn every_log_is_one_threads_and_its_entries_come_in_order() {
        let mut next = vec![1; LOGS as usize];
        for thread in 0..8 {
            let mut ops = Ops::new(&load(false), thread, 8, Payloads::new());
            for _ in 0..1000 {
                let op = ops.next();
                assert!(op.log % 8 == thread && !op.is_snapshot());
                assert_eq!(op.seq, next[op.log as usize]);
                next[op.log as usize] += 1;
            }
            assert_eq!((ops.given, ops.bytes), (1000, 200_000));
        }
    }

    #[test]
    fn a_snapshot_drops_all_that_is_left() {
        let mut ops = Ops::new(&load(true), 0, 1, Payloads::new());
        let mut first = vec![0; HOT_LOGS as usize];
        let mut snapshots = 0;
        for _ in 0..50_000 {
            let op = ops.next();
            if op.is_snapshot() {
                assert_eq!((op.first, op.seq % 16), (first[op.log as usize], 15));
                first[op.log as usize] = op.seq;
                snapshots += 1;
            }
        }
        assert!((2000..=3125).contains(&snapshots), "{snapshots}");
    }
}
