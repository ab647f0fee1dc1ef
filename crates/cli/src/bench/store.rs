//! `brooklet bench`: the store beside the device it stands on, measured in the same run.
//!
//! Machines are noisy, so every figure is the median of several rounds, each round measures the
//! device and the store one after the other, and what counts is the ratio. The payloads are JSON
//! deltas of 64 to 512 bytes, except where the table says otherwise.

use std::fmt::{self, Display};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brooklet::io::{AlignedBuf, FileOptions, FileVolume, OpenMode, Persist, Rng, Volume, read_exact_at};
use brooklet::{Options, Store};
use serde::Serialize;

use super::load::delta;
use super::plain::{DEVICE_BYTES, PlainGroupCommit};
use super::table::{Mark, median, paired};
use crate::device::Device;
use crate::failure::Failure;
use crate::output::Output;

/// Arguments of `brooklet bench` without more words.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the files, which are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Rounds of each measurement; the median counts
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Part of the names of the measurements to run
    #[arg(long)]
    only: Option<String>,
    /// Used by the command itself: fill a ring at this path, then die without closing it
    #[arg(long, hide = true)]
    fill: Option<PathBuf>,
}

/// One line of the table.
#[derive(Serialize)]
struct Row {
    name: &'static str,
    unit: &'static str,
    store: f64,
    limit: f64,
    /// What the limit is.
    against: &'static str,
    ratio: f64,
    holds: bool,
    #[serde(skip)]
    mark: Mark,
}

impl Row {
    fn new(
        (name, unit): (&'static str, &'static str),
        (store, limit): (f64, f64),
        against: &'static str,
        mark: Mark,
    ) -> Self {
        let ratio = store / limit;
        let holds = mark.holds(store, ratio);
        Self { name, unit, store, limit, against, ratio, holds, mark }
    }
}

/// Runs the measurements and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    if let Some(path) = &args.fill {
        return fill_and_die(path);
    }
    let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
    let mut device = Device::new(&dir.path().join("device"), DEVICE_BYTES)?;
    let rounds = args.rounds.max(1);
    type Measure = fn(&Path, &mut Device, usize) -> Result<Row, Failure>;
    let measures: [(&str, Measure); 5] = [
        ("lone", lone_writer),
        ("waiting", waiting_writers),
        ("many", not_waiting_json),
        ("noise", not_waiting_noise),
        ("open", recovery),
    ];
    let mut rows = Vec::new();
    for (name, measure) in measures {
        if args.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            eprintln!("measuring: {name}");
            rows.push(measure(dir.path(), &mut device, rounds)?);
        }
    }
    let info = device.volume.info();
    out.put(&Table { device: info.durable_by, direct: info.direct, rounds, rows })
}

/// What the command prints.
#[derive(Serialize)]
struct Table {
    device: &'static str,
    direct: bool,
    rounds: usize,
    rows: Vec<Row>,
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, direct, rounds, rows } = self;
        writeln!(f, "direct I/O: {direct}, durable by {device}; medians of {rounds} rounds")?;
        write!(f, "{:<58} {:>12} {:>12}  {:>6}  mark", "", "store", "limit", "ratio")?;
        for r in rows {
            let verdict = if r.holds { "holds" } else { "missed" };
            let name = format!("{} [{}]", r.name, r.unit);
            let (store, limit, ratio, mark) = (r.store, r.limit, r.ratio, r.mark);
            write!(f, "\n{name:<58} {store:>12.2} {limit:>12.2}  {ratio:>6.2}  {mark}: {verdict}")?;
            write!(f, "\n{:<58} limit: {}", "", r.against)?;
        }
        Ok(())
    }
}

/// Median latency of the device's durable 4 KiB writes, in microseconds.
fn write_latency(device: &mut Device, n: usize) -> Result<f64, Failure> {
    let mut times = Vec::with_capacity(n);
    for _ in 0..n {
        let start = Instant::now();
        device.write()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}

fn open(path: &Path) -> Result<Store, Failure> {
    Ok(Options::new().open(path)?)
}

fn lone_writer(dir: &Path, device: &mut Device, rounds: usize) -> Result<Row, Failure> {
    let store = open(&dir.join("lone"))?;
    let mut rng = Rng::new(2);
    let mut payload = Vec::new();
    let figures = paired(rounds, |_| {
        let (mut acks, mut writes) = (Vec::new(), Vec::new());
        // In small turns, so that both meet the same weather.
        for _ in 0..20 {
            writes.push(write_latency(device, 100)?);
            for _ in 0..100 {
                delta(&mut rng, &mut payload);
                let start = Instant::now();
                store.append(format!("log/{}", rng.below(100_000)), &payload)?.wait()?;
                acks.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok((median(acks), median(writes)))
    })?;
    Ok(Row::new(
        ("one writer that waits for each ack, p50", "us"),
        figures,
        "the device's durable 4 KiB write, p50",
        Mark::AtMost(1.25),
    ))
}

const WRITERS: usize = 256;
const SPAN: Duration = Duration::from_millis(1500);

/// Runs `append` on many threads for a while; returns the calls a second.
fn storm(append: impl Fn(u64, &[u8]) -> Result<(), Failure> + Sync) -> Result<f64, Failure> {
    let start = Instant::now();
    let total = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let append = &append;
            move || -> Result<u64, Failure> {
                let mut rng = Rng::new(thread as u64);
                let mut payload = Vec::new();
                let mut n = 0;
                while start.elapsed() < SPAN {
                    delta(&mut rng, &mut payload);
                    append(rng.below(100_000), &payload)?;
                    n += 1;
                }
                Ok(n)
            }
        };
        let threads: Vec<_> = (0..WRITERS).map(|t| scope.spawn(work(t))).collect();
        threads.into_iter().map(|t| t.join().expect("a writer panicked")).sum::<Result<u64, Failure>>()
    })?;
    Ok(total as f64 / start.elapsed().as_secs_f64())
}

fn waiting_writers(dir: &Path, _: &mut Device, rounds: usize) -> Result<Row, Failure> {
    let store = open(&dir.join("waiting"))?;
    let plain = PlainGroupCommit::new(&dir.join("plain"))?;
    let figures = paired(rounds, |_| {
        let ours = storm(|log, payload| Ok(store.append(format!("log/{log}"), payload)?.wait()?))?;
        let plain = storm(|_, payload| plain.append(payload))?;
        Ok((ours, plain))
    })?;
    Ok(Row::new(
        ("256 writers that wait", "appends/s"),
        figures,
        "the plainest group commit on the same device",
        Mark::AtLeast(0.6),
    ))
}

const MANY: usize = 100_000;

fn not_waiting_json(dir: &Path, device: &mut Device, rounds: usize) -> Result<Row, Failure> {
    let mut rng = Rng::new(3);
    let mut payload = Vec::new();
    let payloads: Vec<Vec<u8>> = (0..MANY)
        .map(|_| {
            delta(&mut rng, &mut payload);
            payload.clone()
        })
        .collect();
    not_waiting(dir, device, rounds, "100,000 appends of 64-512 B JSON, then one wait", &payloads)
}

fn not_waiting_noise(dir: &Path, device: &mut Device, rounds: usize) -> Result<Row, Failure> {
    let mut rng = Rng::new(4);
    let payloads: Vec<Vec<u8>> =
        (0..MANY).map(|_| (0..64 + rng.below(449)).map(|_| rng.next() as u8).collect()).collect();
    not_waiting(dir, device, rounds, "100,000 appends of 64-512 B noise, then one wait", &payloads)
}

fn not_waiting(
    dir: &Path,
    device: &mut Device,
    rounds: usize,
    name: &'static str,
    payloads: &[Vec<u8>],
) -> Result<Row, Failure> {
    let keys: Vec<String> = (0..10_000).map(|i| format!("log/{i}")).collect();
    let bytes: usize = payloads.iter().map(Vec::len).sum();
    let path = dir.join("many");
    let figures = paired(rounds, |_| {
        // As much as the payloads take, in blocks of a size that a virtual disk takes in one piece.
        let block = AlignedBuf::zeroed(256 << 10);
        let start = Instant::now();
        for i in 0..bytes.div_ceil(block.len()) {
            device.volume.write_at((i * block.len()) as u64 % DEVICE_BYTES, &block, Persist::Durable)?;
        }
        let limit = MANY as f64 / start.elapsed().as_secs_f64() / 1e6;
        let store = open(&path)?;
        let start = Instant::now();
        let mut last = None;
        for (i, payload) in payloads.iter().enumerate() {
            last = Some(store.append(&keys[i % keys.len()], payload)?);
        }
        last.expect("there are payloads").wait()?;
        let ours = MANY as f64 / start.elapsed().as_secs_f64() / 1e6;
        drop(store);
        std::fs::remove_file(&path)?;
        Ok((ours, limit))
    })?;
    Ok(Row::new((name, "million/s"), figures, "durable 256 KiB writes of the same bytes", Mark::Reach(1.5)))
}

const RING: u64 = 256 << 20;

fn fill_and_die(path: &Path) -> Result<(), Failure> {
    let options = Options::new().ring_size(RING).memory_budget(1 << 40).threads(false);
    let store = options.open(path)?;
    let mut rng = Rng::new(5);
    let mut payloads = vec![Vec::new(); 500];
    while store.info()?.wal.used < RING * 80 / 100 {
        for payload in &mut payloads {
            payload.resize(64 + rng.below(449) as usize, 0);
            payload.iter_mut().for_each(|b| *b = rng.next() as u8);
        }
        for payload in &payloads {
            drop(store.append(format!("log/{}", rng.below(100_000)), payload)?);
        }
        store.flush()?;
    }
    std::process::abort();
}

fn recovery(dir: &Path, _: &mut Device, rounds: usize) -> Result<Row, Failure> {
    let path = dir.join("open");
    let status = std::process::Command::new(std::env::current_exe()?)
        .args(["bench", "--fill"])
        .arg(&path)
        .stderr(std::process::Stdio::null())
        .status()?;
    if status.success() {
        return Err(Failure::from(std::io::Error::other("the filling process did not die as it should")));
    }
    let figures = paired(rounds, |_| {
        let volume = FileVolume::open(&path, OpenMode::ReadOnly, FileOptions::default())?;
        let mut buf = AlignedBuf::zeroed(1 << 20);
        let start = Instant::now();
        for offset in (0..RING).step_by(1 << 20) {
            read_exact_at(&volume, offset, &mut buf)?;
        }
        let limit = RING as f64 / 1e6 / start.elapsed().as_secs_f64();
        drop(volume);
        let start = Instant::now();
        let store = Options::new().read_only(true).memory_budget(1 << 40).open(&path)?;
        let ours = store.info()?.recovery.bytes_read as f64 / 1e6 / start.elapsed().as_secs_f64();
        Ok((ours, limit))
    })?;
    Ok(Row::new(
        ("opening after a kill, 256 MiB ring 80% full of noise", "MB/s"),
        figures,
        "reading the same bytes in order",
        Mark::AtLeast(0.5),
    ))
}
