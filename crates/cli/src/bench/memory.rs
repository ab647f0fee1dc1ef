//! `bench memory`: logs that are kept in memory, appended to by one thread; and dumping and loading
//! them, beside writing and reading the same bytes.

use std::path::{Path, PathBuf};

use brooklet::io::{AlignedBuf, FileOptions, FileVolume, OpenMode, Volume};
use brooklet::{Class, MemoryConfig, Options, SpaceConfig, Store};

use super::codex::{mix, timed, touch, write_plain};
use super::load::{Payloads, deltas_of_200, keystrokes};
use super::row::{Rounds, Row, Table};
use super::table::Mark;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{count, size};

/// Arguments of `brooklet bench memory`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the stores, up to 1 KiB per entry; the stores are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Number of entries to append; also as 1e6
    #[arg(long, default_value = "5e6", value_parser = count)]
    entries: u64,
    /// Rounds of each measurement; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Bytes of memory of the space (K, M and G are understood)
    #[arg(long, default_value = "4G", value_parser = size)]
    memory: u64,
}

/// The name, what is appended, and to how many logs.
type Section = (&'static str, fn() -> Payloads, u64);

const SECTIONS: &[Section] = &[
    ("keystrokes, 1,000 logs", keystrokes, 1_000),
    ("keystrokes, 100,000 logs", keystrokes, 100_000),
    ("deltas of 200 bytes, 1,000 logs", deltas_of_200, 1_000),
    ("deltas of 200 bytes, 100,000 logs", deltas_of_200, 100_000),
];

/// Measures, and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for (section, payloads, logs) in SECTIONS {
        rows.extend(measure(section, &args, &payloads(), *logs)?);
    }
    out.put(&Table::new(args.entries, args.rounds, args.memory, rows))
}

fn measure(section: &'static str, args: &Args, payloads: &Payloads, logs: u64) -> Result<Vec<Row>, Failure> {
    let mut appending = Rounds::new(section, "appending, one thread", "/s");
    let mut dumping = Rounds::new(section, "dumping", "MB/s");
    let mut loading = Rounds::new(section, "opening the store", "MB/s");
    for round in 0..args.rounds {
        eprintln!("measuring: {section}, round {} of {}", round + 1, args.rounds);
        let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
        let path = dir.path().join("store");
        let store = Options::new().open(&path)?;
        let config = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(args.memory)));
        let space = store.create_space("memory", config)?;
        touch(args.memory as usize / 2);
        let (took, ()) = timed(0, || append(&store, payloads, logs, args.entries))?;
        appending.alone(args.entries as f64 / took);
        let used = space.info()?.memory.unwrap_or_default().used;
        appending.note("bytes of memory an entry", used as f64 / args.entries as f64);
        let (took, dumped) = timed(0, || Ok(space.dump()?))?;
        let (plain, ()) = timed(0, || write_plain(&dir.path().join("plain"), dumped.bytes))?;
        let speed = |seconds: f64| dumped.bytes as f64 / 1e6 / seconds;
        dumping.pair(speed(took), speed(plain));
        dumping.note("MB", dumped.bytes as f64 / 1e6);
        dumping.note("payloads MB/s", space.info()?.bytes.unwrap_or_default() as f64 / 1e6 / took);
        store.close()?;
        drop((space, store));
        let (took, store) = timed(0, || Ok(Options::new().open(&path)?))?;
        let (plain, ()) = timed(0, || read_plain(&dir.path().join("plain")))?;
        loading.pair(speed(took), speed(plain));
        store.close()?;
    }
    Ok(vec![
        appending.row("nothing: they do not go to the device", Mark::Reach(5e6)),
        dumping.row("writing as many bytes", Mark::AtLeast(0.7)),
        loading.row("reading as many bytes", Mark::AtLeast(0.7)),
    ])
}

fn append(store: &Store, payloads: &Payloads, logs: u64, entries: u64) -> Result<(), Failure> {
    // Whoever has a log has its key.
    let keys: Vec<String> = (0..logs).map(|log| format!("memory/{:012x}", mix(log) >> 16)).collect();
    for at in 0..entries {
        let key = &keys[(mix(at) % logs) as usize];
        store.append(key, &payloads[at as usize % payloads.len()])?.wait()?;
    }
    Ok(())
}

/// Reads a file from front to back, past the page cache where that can be.
fn read_plain(path: &Path) -> Result<(), Failure> {
    let volume = FileVolume::open(path, OpenMode::ReadOnly, FileOptions::default())?;
    let size = volume.size()?;
    let mut buf = AlignedBuf::zeroed(4 << 20);
    for at in (0..size).step_by(buf.len()) {
        let len = buf.len().min((size - at) as usize);
        buf.set_len(len);
        brooklet::io::read_exact_at(&volume, at, &mut buf)?;
    }
    Ok(())
}
