//! `bench spaces`: what many spaces cost: to make one more, to commit, and to open.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use brooklet::{Options, SpaceConfig, Store};

use super::load::keystrokes;
use super::row::{Rounds, Row, Table};
use super::table::{Mark, median};
use crate::failure::Failure;
use crate::output::Output;
use crate::size::count;

/// Arguments of `brooklet bench spaces`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the stores, which are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Number of spaces, at least 2,000; also as 1e5
    #[arg(long, default_value = "1e5", value_parser = count)]
    spaces: u64,
    /// Number of entries to append in each measurement; also as 1e5
    #[arg(long, default_value = "2e5", value_parser = count)]
    entries: u64,
    /// Rounds of each measurement; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
}

const SECTION: &str = "spaces";

/// Number of spaces that are made in one measured stretch.
const STRETCH: u64 = 1_000;
/// Number of spaces of the other store.
const FEW: u64 = 100;

/// Measures, and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let Args { entries, rounds, .. } = args;
    let spaces = args.spaces.clamp(2 * STRETCH, 100_000);
    let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
    let (many, few) = (dir.path().join("many"), dir.path().join("few"));
    let mut rows = vec![make(&many, spaces)?];
    let store = Options::new().open(&few)?;
    for n in 0..FEW {
        store.create_space(&name(n), config(n))?;
    }
    for n in 0..spaces {
        drop(store.append(log(n, FEW), "first")?);
    }
    store.close()?;
    drop(store);
    rows.push(commit(&many, &few, spaces, entries, rounds)?);
    rows.push(open(&many, &few, spaces, rounds)?);
    out.put(&Table::new(entries, rounds, 0, rows))
}

/// The store counts the logs of one space in ten.
fn config(n: u64) -> SpaceConfig {
    if n.is_multiple_of(10) { SpaceConfig::new().max_logs(1_000_000) } else { SpaceConfig::new() }
}

fn name(n: u64) -> String {
    format!("tenant-{n:06}")
}

/// The key of log number `n` of a store whose logs are spread over this number of spaces.
fn log(n: u64, spaces: u64) -> String {
    format!("{}/{}", name(n % spaces), n / spaces)
}

/// The last spaces that are made, against the first ones. Each is durable when the call returns.
fn make(path: &Path, spaces: u64) -> Result<Row, Failure> {
    let store = Options::new().open(path)?;
    let mut row = Rounds::new(SECTION, format!("make one more space among {spaces}, p50"), "us");
    let stretch = |numbers: std::ops::Range<u64>| {
        let times = numbers.map(|n| {
            let start = Instant::now();
            store.create_space(&name(n), config(n))?;
            let took = start.elapsed().as_secs_f64() * 1e6;
            drop(store.append(log(n, spaces), "first")?);
            Ok(took)
        });
        times.collect::<Result<Vec<f64>, Failure>>().map(median)
    };
    eprintln!("measuring: {spaces} spaces are made");
    let first = stretch(0..STRETCH)?;
    if spaces > 2 * STRETCH {
        stretch(STRETCH..spaces - STRETCH)?;
    }
    row.pair(stretch(spaces - STRETCH..spaces)?, first);
    row.note("bytes written to the ring a space", Some(store.info()?.wal.raw_bytes as f64 / spaces as f64));
    store.close()?;
    Ok(row.row("the first 1,000", Mark::AtMost(1.5)))
}

/// Appends in flight to logs of all spaces, against the same appends to as many logs of few spaces.
fn commit(many: &Path, few: &Path, spaces: u64, entries: u64, rounds: u64) -> Result<Row, Failure> {
    let mut row = Rounds::new(SECTION, format!("appends in flight to logs of {spaces} spaces"), "/s");
    let stores = [Options::new().open(many)?, Options::new().open(few)?];
    // Otherwise a look-up of a log would ask more runs in one store than in the other.
    stores.iter().try_for_each(Store::compact)?;
    for round in 0..rounds {
        eprintln!("measuring: appends to logs of spaces, round {} of {rounds}", round + 1);
        row.pair(rate(&stores[0], spaces, spaces, entries)?, rate(&stores[1], spaces, FEW, entries)?);
    }
    stores.iter().try_for_each(Store::close)?;
    Ok(row.row("the same appends to as many logs of 100 spaces", Mark::AtLeast(0.9)))
}

fn rate(store: &Store, logs: u64, spaces: u64, entries: u64) -> Result<f64, Failure> {
    let payloads = keystrokes();
    let start = Instant::now();
    for n in 0..entries {
        // A stride that visits all logs in no order.
        let key = log(n * 7_919 % logs, spaces);
        drop(store.append(key, &payloads[n as usize % payloads.len()])?);
    }
    store.flush()?;
    Ok(entries as f64 / start.elapsed().as_secs_f64())
}

/// Opens both stores, which were closed in good order.
fn open(many: &Path, few: &Path, spaces: u64, rounds: u64) -> Result<Row, Failure> {
    let mut row = Rounds::new(SECTION, format!("open a store with {spaces} spaces"), "ms");
    let time = |path: &Path| {
        let start = Instant::now();
        let store = Options::new().open(path)?;
        let took: Duration = start.elapsed();
        store.close()?;
        Ok::<_, Failure>(took.as_secs_f64() * 1e3)
    };
    for round in 0..rounds {
        eprintln!("measuring: openings, round {} of {rounds}", round + 1);
        row.pair(time(many)?, time(few)?);
    }
    Ok(row.row("as many logs of 100 spaces", Mark::AtMost(1.5)))
}
