//! `bench tails`: from the append of an entry to the thread that follows its log; and the cost of
//! tails that wait.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::{Options, Store, Tail, TailEvent};

use super::load::{Payloads, keystrokes};
use super::row::{Rounds, Row, Table};
use super::system::{Cpu, resident};
use super::table::{Mark, median};
use crate::failure::Failure;
use crate::output::Output;
use crate::size::count;

/// Arguments of `brooklet bench tails`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the store, which is removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Number of entries to append in each measurement; also as 1e4
    #[arg(long, default_value = "2000", value_parser = count)]
    entries: u64,
    /// Number of tails that wait beside the writer; also as 1e5
    #[arg(long, default_value = "1e5", value_parser = count)]
    tails: u64,
    /// Rounds of each measurement; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
}

const SECTION: &str = "tails";

/// Number of threads that wait while nothing is appended, and for how long.
const IDLE: usize = 1_000;
const PAUSE: Duration = Duration::from_secs(2);

/// Measures, and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
    let (entries, rounds, tails) = (args.entries, args.rounds, args.tails);
    let rows = vec![
        woken(dir.path(), entries, rounds)?,
        beside(dir.path(), entries * 50, rounds, tails)?,
        idle(dir.path(), rounds)?,
    ];
    out.put(&Table::new(entries, rounds, 0, rows))
}

/// From the append to the acknowledgement, and to a thread that waits in a tail.
fn woken(dir: &Path, entries: u64, rounds: u64) -> Result<Row, Failure> {
    let store = Options::new().open(dir.join("woken"))?;
    let mut row = Rounds::new(SECTION, "append to a thread that follows the log, p50", "us");
    for round in 0..rounds {
        eprintln!("measuring: a woken tail, round {} of {rounds}", round + 1);
        let log = format!("log/{round}");
        let (seen, mut tail) = (channel(), store.tail(&log, 0)?);
        let (acks, wakes) = thread::scope(|scope| {
            let follower = scope.spawn(move || follow(&mut tail, entries, &seen.0));
            let times = append(&store, &log, entries, &seen.1);
            follower.join().expect("the follower panicked")?;
            times
        })?;
        row.pair(median(wakes), median(acks));
    }
    store.close()?;
    Ok(row.row("the acknowledgements of the same appends, p50", Mark::AtMost(1.5)))
}

fn follow(tail: &mut Tail, entries: u64, seen: &Sender<Instant>) -> Result<(), Failure> {
    for event in tail.take(entries as usize) {
        let TailEvent::Entry(_) = event? else { unreachable!("the log only grows") };
        // The writer ends first only after an error.
        let _ = seen.send(Instant::now());
    }
    Ok(())
}

/// Appends entries one by one, each after the last one was seen; returns the times in microseconds
/// until each was acknowledged, and until it was seen.
fn append(
    store: &Store,
    log: &str,
    entries: u64,
    seen: &Receiver<Instant>,
) -> Result<(Vec<f64>, Vec<f64>), Failure> {
    let (mut acks, mut wakes) = (Vec::new(), Vec::new());
    let payloads = keystrokes();
    for n in 0..entries as usize {
        let start = Instant::now();
        store.append(log, &payloads[n % payloads.len()])?.wait()?;
        acks.push(start.elapsed().as_secs_f64() * 1e6);
        let woken = seen.recv().expect("the follower ends last");
        wakes.push(woken.saturating_duration_since(start).as_secs_f64() * 1e6);
    }
    Ok((acks, wakes))
}

/// Counts the wake-ups of tasks.
#[derive(Default)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Appends in flight beside many tasks that wait in tails of other logs.
fn beside(dir: &Path, entries: u64, rounds: u64, tails: u64) -> Result<Row, Failure> {
    let store = Options::new().open(dir.join("beside"))?;
    let name = format!("appends in flight beside {tails} tails of other logs");
    let mut row = Rounds::new(SECTION, name, "/s");
    let (payloads, wakes) = (keystrokes(), Arc::new(Wakes::default()));
    let task = Waker::from(wakes.clone());
    for round in 0..rounds {
        eprintln!("measuring: appends beside waiting tails, round {} of {rounds}", round + 1);
        let alone = rate(&store, &payloads, entries)?;
        let before = resident();
        let mut waiting: Vec<_> =
            (0..tails).map(|n| store.tail(format!("waiting/{n:08}"), 0)).collect::<Result<_, _>>()?;
        for tail in &mut waiting {
            let poll = pin!(tail.next_async()).poll(&mut Context::from_waker(&task));
            assert!(poll.is_pending(), "its log does not exist");
        }
        let used = before.zip(resident()).map(|(before, now)| now.saturating_sub(before));
        row.note(
            "bytes of memory a tail",
            used.filter(|_| round == 0).map(|used| used as f64 / tails as f64),
        );
        row.pair(rate(&store, &payloads, entries)?, alone);
        row.note("wake-ups of the tails that wait", wakes.0.swap(0, Ordering::Relaxed) as f64);
        drop(waiting);
    }
    store.close()?;
    Ok(row.row("the same appends without tails", Mark::AtLeast(0.9)))
}

fn rate(store: &Store, payloads: &Payloads, entries: u64) -> Result<f64, Failure> {
    let start = Instant::now();
    for n in 0..entries as usize {
        drop(store.append(format!("log/{}", n % 1_000), &payloads[n % payloads.len()])?);
    }
    store.flush()?;
    Ok(entries as f64 / start.elapsed().as_secs_f64())
}

/// Processor time of the whole process while threads wait in tails, and nothing is appended.
fn idle(dir: &Path, rounds: u64) -> Result<Row, Failure> {
    let store = Options::new().open(dir.join("idle"))?;
    let name = format!("processor time of a store at rest beside {IDLE} threads that wait in tails");
    let mut row = Rounds::new(SECTION, name, "us/s");
    let used = |span: Duration| {
        let before = Cpu::now();
        thread::sleep(span);
        before.and_then(Cpu::process_since).map_or(0.0, |used| used.as_secs_f64() * 1e6 / span.as_secs_f64())
    };
    for round in 0..rounds {
        eprintln!("measuring: idle tails, round {} of {rounds}", round + 1);
        let tails: Vec<_> =
            (0..IDLE).map(|n| store.tail(format!("waiting/{n}"), 0)).collect::<Result<_, _>>()?;
        thread::scope(|scope| {
            for mut tail in tails {
                scope.spawn(move || tail.next_timeout(PAUSE * 3));
            }
            // The store ends its own work first.
            thread::sleep(PAUSE);
            row.alone(used(PAUSE));
        });
    }
    store.close()?;
    Ok(row.row("nothing: they are to use none", Mark::Within(1_000.0)))
}
