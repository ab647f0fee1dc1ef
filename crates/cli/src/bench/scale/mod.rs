//! `bench scale`: the store from few logs to many, under a steady load and at full throttle, with
//! checkpoints and compaction going on. What should be flat in the number of logs is shown to be,
//! or not.
//!
//! Each number of logs has a store of its own, which goes through the same stations; [`point`]
//! tells them in order. The device is measured before and after, on a quiet store.
//!
//! `subject` is the store and its logs, `steady` and `throttle` are the loads, `windows` tells when
//! the store was at work by itself, `restart` has the processes that are killed or gauged, `points`
//! keeps what was found, `report` judges and prints, `curves` draws.

mod curves;
mod points;
mod report;
mod restart;
mod steady;
mod subject;
mod throttle;
mod windows;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::Volume;

use crate::bench::load::{Payloads, deltas};
use crate::bench::plain::DEVICE_BYTES;
use crate::bench::wal::ring;
use crate::device::Device;
use crate::failure::Failure;
use crate::latency::{Latencies, latencies, micros, record};
use crate::output::Output;
use crate::plot::{free_to_write, write_new};
use crate::size::count;
use crate::time;
use points::{Points, Settings};
use report::{Point, Table};
use steady::steady;
use subject::{BUDGET, Load, Subject, options};
use throttle::{full, waiting};

/// Arguments of `brooklet bench scale`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the stores, one after another; the stores are removed at the end; a million
    /// logs take some GB
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Numbers of logs, ascending: up to 1e8, which takes some ten GB and an hour
    #[arg(long, value_name = "N,N,...", default_value = "1e3,1e4,1e5,1e6", value_delimiter = ',', value_parser = count)]
    logs: Vec<u64>,
    /// Time of each steady load, in seconds or with a unit (ms, s, m); the load at full throttle
    /// takes half as long; a whole run takes some ten times as long for each number of logs
    #[arg(long, value_name = "TIME", default_value = "20", value_parser = seconds)]
    seconds: Duration,
    /// Appends per second of the steady loads
    #[arg(long, default_value_t = 16_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: u32,
    /// Size of the stores' rings in bytes (K, M and G are understood)
    #[arg(long, default_value = "256M", value_parser = ring)]
    ring_size: u64,
    /// A file for the results, one line for each number of logs; a run skips the numbers that are
    /// in the file, so a long run may be resumed, or done in parts
    #[arg(long, value_name = "FILE")]
    points: Option<PathBuf>,
    /// A new file for the curves, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Used by the command itself: fill the ring of the store at this path, then die without
    /// closing it
    #[arg(long, hide = true)]
    fill: Option<PathBuf>,
    /// Used by the command itself: measure the memory that the store at this path takes
    #[arg(long, hide = true)]
    gauge: Option<PathBuf>,
    /// Used by the command itself: time to leave the store alone before that measurement
    #[arg(long, hide = true, default_value = "0", value_parser = left_alone)]
    left_alone: Duration,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(10)..=Duration::from_secs(600);
    time::seconds(text, range).ok_or_else(|| "use 0.01 to 600".to_owned())
}

fn left_alone(text: &str) -> Result<Duration, String> {
    time::seconds(text, Duration::ZERO..=AGED).ok_or_else(|| "use 0 to 100".to_owned())
}

/// Runs the measurements and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let largest = args.logs.iter().copied().max().expect("clap asks for one");
    if let Some(path) = &args.fill {
        return restart::fill_and_die(path, args.ring_size, largest);
    }
    if let Some(path) = &args.gauge {
        return out.document(&restart::gauge(path, args.ring_size, largest, args.left_alone)?);
    }
    if let Some(file) = &args.plot {
        free_to_write(file)?;
    }
    let settings = Settings { rate: args.rate, seconds: args.seconds.as_secs_f64(), ring: args.ring_size };
    let mut points = Points::open(args.points.as_deref(), settings)?;
    let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
    let ground = &mut Ground {
        device: Device::new(&dir.path().join("device"), DEVICE_BYTES)?,
        payloads: deltas(),
        empty: restart::memory(&dir.path().join("empty"), args.ring_size, 1, Duration::ZERO)?.resident,
        rate: f64::from(args.rate),
        span: args.seconds,
        ring: args.ring_size,
    };
    for logs in args.logs {
        if !points.has(logs) {
            points.add(point(ground, &dir.path().join("store"), logs)?)?;
        }
    }
    let device = ground.device.volume.info();
    let table = Table::new(&device, ground.rate, ground.span, ground.ring, points.all());
    if let Some(file) = &args.plot {
        write_new(file, &curves::picture(&table).to_string())?;
    }
    out.put(&table)
}

/// What all numbers of logs are measured with.
struct Ground {
    device: Device,
    payloads: Payloads,
    /// Bytes that a process with an empty store occupies, where the system tells.
    empty: Option<u64>,
    rate: f64,
    span: Duration,
    ring: u64,
}

/// Longest wait for checkpoints and compactions to come to rest between two stations.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the store is left alone before its space is looked at.
const IDLE: Duration = Duration::from_secs(60);
/// How long nobody looks anything up before the memory is looked at that this leaves: as long as it
/// takes all to go.
const AGED: Duration = Duration::from_secs(100);

/// Takes a store with so many logs through all stations.
#[expect(clippy::too_many_lines, reason = "one station after the other, each a line or two")]
fn point(ground: &mut Ground, path: &Path, logs: u64) -> Result<Point, Failure> {
    let begin = Instant::now();
    let told = |station: &str| eprintln!("{logs} logs, {:.0} s: {station}", begin.elapsed().as_secs_f64());
    let (rate, span, idle, ring) = (ground.rate, ground.span, IDLE.min(3 * ground.span), ground.ring);
    let mut writes = latencies();
    device(&mut ground.device, span / 10, &mut writes)?;

    told("filling");
    let (subject, filled) = Subject::fill(path, ring, logs, &ground.payloads)?;
    subject.settle(PATIENCE)?;
    told("just reopened");
    let mut subject = subject.reopened(ring)?;
    let rested_waiting = Some(waiting(&mut subject, Load::Spread, span / 2)?);
    subject.settle(PATIENCE)?;
    let mut subject = subject.reopened(ring)?;
    let rested_in_flight = Some(full(&mut subject, Load::Spread, span / 2)?);
    subject.settle(PATIENCE)?;
    let steadily = |subject: &mut Subject<'_>, load, name| {
        told(&format!("{rate} appends/s, {name}"));
        let steady = steady(subject, load, rate, span)?;
        subject.settle(PATIENCE).map(|()| steady)
    };
    let at_work = steadily(&mut subject, Load::AtWork, "logs at work")?;
    let spread = steadily(&mut subject, Load::Spread, "spread over all logs")?;
    let throttle = |subject: &mut Subject<'_>, load, name| {
        told(&format!("full throttle, {name}"));
        let full = full(subject, load, span / 2)?;
        subject.settle(PATIENCE).map(|()| full)
    };
    let full_at_work = throttle(&mut subject, Load::AtWork, "logs at work")?;
    let full_spread = throttle(&mut subject, Load::Spread, "spread over all logs")?;
    let creates = throttle(&mut subject, Load::Create, "creating logs")?;
    let written = subject.written()?;
    let amplification = written as f64 / subject.appended as f64;
    let budgets = subject.appended as f64 / BUDGET as f64;
    let snapshots = throttle(&mut subject, Load::Snapshot, "snapshots that trim")?;
    let snapshot_amplification = (subject.written()? - written) as f64 / snapshots.bytes as f64;

    told(&format!("left alone for {:.0} s", idle.as_secs_f64()));
    thread::sleep(idle);
    let mut live = subject.live()?;
    let space_idle = subject.on_disk()? as f64 / live as f64;
    subject.store.checkpoint()?;
    subject.settle(PATIENCE)?;
    let all_logs = subject.logs();
    let runs = subject.store.info()?.runs.len();
    subject.store.close()?;
    drop(subject);

    told("memory, and kills");
    let memory = restart::memory(path, ring, logs, AGED.min(5 * span))?;
    let restart = restart::restart(path, ring, logs)?;
    live += restart.bytes;
    told("compacting");
    let store = options(ring).open(path)?;
    store.compact()?;
    let space_compacted = subject::on_disk(path, &store)? as f64 / live as f64;
    store.close()?;
    drop(store);
    std::fs::remove_file(path)?;
    device(&mut ground.device, span / 10, &mut writes)?;
    let per_log = |bytes: u64| bytes as f64 / all_logs as f64;
    let resident = |now: Option<u64>| Some(per_log(now?.saturating_sub(ground.empty?)));
    Ok(Point {
        logs,
        all_logs,
        runs,
        device_p50: micros(&writes, 0.5),
        device_p99: micros(&writes, 0.99),
        device_p999: micros(&writes, 0.999),
        filled,
        rested_waiting,
        rested_in_flight,
        at_work,
        spread,
        full_at_work,
        full_spread,
        creates,
        snapshots,
        amplification,
        budgets,
        snapshot_amplification,
        space_idle,
        space_compacted,
        memory_told: per_log(memory.told),
        memory_resident: resident(memory.resident),
        memory_rested: per_log(memory.rested),
        memory_rested_resident: resident(memory.rested_resident),
        restart_s: restart.seconds,
        restart_cpu_s: restart.cpu,
        seconds: begin.elapsed().as_secs_f64(),
    })
}

/// Adds latencies of the device's durable 4 KiB writes, one after another.
fn device(device: &mut Device, span: Duration, writes: &mut Latencies) -> Result<(), Failure> {
    let begin = Instant::now();
    while begin.elapsed() < span {
        let start = Instant::now();
        device.write()?;
        record(writes, start.elapsed());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_sane_ranges() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(["0", "601", "x"].iter().all(|wrong| seconds(wrong).is_err()));
    }
}
