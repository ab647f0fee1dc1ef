//! `bench wal`: the write-ahead log by itself, beside the device's own figures and the plainest
//! ways to do its work.
//!
//! Machines are noisy: every figure is the median of several rounds, in each of which the log and
//! what it is compared with take turns, and what counts is the median of the rounds' ratios. The
//! device is measured as `probe` does it.
//!
//! `rig` is what the sections work with, `report` what they give, `volumes` what stands in for
//! devices that are slow or watched. The sections: `latency`, `throttle`, `ladder`, `flight` (with
//! `tasks`), `codec`, `recovery`, `memory`.

mod codec;
mod flight;
mod ladder;
mod latency;
mod memory;
mod recovery;
mod report;
mod rig;
mod tasks;
mod throttle;
mod volumes;

use std::path::PathBuf;
use std::time::Duration;

use crate::bench::row::Row;
use crate::failure::{Failure, Kind};
use crate::output::Output;
use crate::size::size;
use crate::time;
use report::Table;
use rig::{Ground, Rig};

/// Arguments of `brooklet bench wal`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the files, about 1 GiB and the ring's size; the files are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Rounds of each measurement; the median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Time of each side of a measurement in a round, in seconds or with a unit (ms, s, m); with
    /// the default a whole run takes a few minutes
    #[arg(long, value_name = "TIME", default_value = "0.25", value_parser = seconds)]
    seconds: Duration,
    /// Part of the names of the sections to run: lone, throttle, offered, ladder, flight, shrink,
    /// codec, pace, recovery, memory
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// A directory of keystroke traces (see `replay`), for the section shrink
    #[arg(long, value_name = "DIR")]
    traces: Option<PathBuf>,
    /// Size of the recovered ring in bytes (K, M and G are understood)
    #[arg(long, default_value = "1G", value_parser = ring)]
    ring_size: u64,
    /// Used by the command itself: fill a ring at this path, then die without closing it
    #[arg(long, hide = true)]
    fill: Option<PathBuf>,
    /// Used by the command itself: measure the memory that a log at this path takes
    #[arg(long, hide = true)]
    gauge: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(1)..=Duration::from_secs(60);
    time::seconds(text, range).ok_or_else(|| "use 0.001 to 60".to_owned())
}

/// Parses the bytes of a ring.
pub fn ring(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    let fits = (8 << 20..=64 << 30).contains(&bytes) && bytes.is_multiple_of(1 << 20);
    if fits { Ok(bytes) } else { Err("use whole MiB, 8M to 64G".to_owned()) }
}

type Measure = fn(&mut Rig<'_>) -> Result<Vec<Row>, Failure>;

/// The sections in the order in which they are measured.
const SECTIONS: [(&str, Measure); 10] = [
    ("lone", latency::lone),
    ("pace", latency::pace),
    ("throttle", throttle::full),
    ("offered", throttle::offered),
    ("ladder", ladder::ladder),
    ("flight", flight::flight),
    ("codec", codec::codec),
    ("shrink", codec::shrink),
    ("recovery", recovery::recovery),
    ("memory", memory::memory),
];

/// Runs the measurements and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    if let Some(path) = &args.fill {
        return recovery::fill_and_die(path, args.ring_size);
    }
    if let Some(path) = &args.gauge {
        return out.raw(memory::gauge(path, args.seconds)?.to_string().as_bytes());
    }
    let chosen: Vec<_> = SECTIONS
        .into_iter()
        .filter(|(name, _)| args.only.as_ref().is_none_or(|only| name.contains(only.as_str())))
        .collect();
    if chosen.is_empty() {
        let names = SECTIONS.map(|(name, _)| name).join(", ");
        return Err(Failure::new(Kind::Usage, format!("no section has that name: choose from {names}")));
    }
    let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
    eprintln!("measuring: the device");
    let ground = Ground::make(dir.path())?;
    let mut rig =
        Rig::new(&ground, args.rounds as usize, args.seconds, args.ring_size, args.traces.as_deref())?;
    let mut rows = Vec::new();
    for (name, measure) in chosen {
        eprintln!("measuring: {name}");
        rows.extend(measure(&mut rig)?);
    }
    out.put(&Table::new(&rig, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_sane_ranges() {
        assert_eq!(seconds("0.25"), Ok(Duration::from_millis(250)));
        assert!(["0", "-1", "nan", "61", "x"].iter().all(|wrong| seconds(wrong).is_err()));
        assert_eq!(ring("1G"), Ok(1 << 30));
        assert!(["4M", "65G", "8388609", "x"].iter().all(|wrong| ring(wrong).is_err()));
    }
}
