//! `bench import`: logs that come in past the log, beside appending the same entries, and beside
//! writing their bytes.

use std::path::{Path, PathBuf};

use brooklet::{Options, Store};

use super::codex::{mix, timed, touch, write_plain};
use super::load::{Payloads, deltas_of_200, keystrokes};
use super::row::{Rounds, Row, Table};
use super::system::Cpu;
use super::table::Mark;
use crate::failure::{Failure, Kind};
use crate::output::Output;
use crate::size::{count, size};

/// Arguments of `brooklet bench import`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the stores, up to 1 KiB per entry; the stores are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Number of entries to import; also as 1e6
    #[arg(long, default_value = "10e6", value_parser = count)]
    entries: u64,
    /// Rounds of each measurement; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Bytes of memory for sorting (K, M and G are understood)
    #[arg(long, default_value = "1G", value_parser = size)]
    memory: u64,
    /// Part of the names of the sections to run: keystrokes, deltas, one a log
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// What is imported: entries whose logs are drawn at random.
struct Load {
    entries: u64,
    logs: u64,
    payloads: Payloads,
}

impl Load {
    /// Gives each entry's log and payload.
    fn each(&self, mut take: impl FnMut(&[u8], &[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        let mut key = *b"log/0000000000000000";
        for at in 0..self.entries {
            // With as many logs as entries, each has one.
            let log = if self.logs == self.entries { at } else { mix(at) % self.logs };
            hex(mix(log << 1), &mut key[4..]);
            take(&key, &self.payloads[at as usize % self.payloads.len()])?;
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        let all: usize = self.payloads.iter().map(|payload| payload.len()).sum();
        self.entries * all as u64 / self.payloads.len() as u64
    }
}

fn hex(number: u64, out: &mut [u8]) {
    for (i, digit) in out.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * i)) as usize & 15];
    }
}

/// The name, what is imported, and how many entries a log has on average.
type Section = (&'static str, fn() -> Payloads, u64);

const SECTIONS: &[Section] = &[
    ("keystrokes, 100 a log", keystrokes, 100),
    ("deltas of 200 bytes, 100 a log", deltas_of_200, 100),
    ("deltas of 200 bytes, one a log", deltas_of_200, 1),
];

/// Measures, and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let only = args.only.as_deref().unwrap_or_default();
    let chosen: Vec<_> = SECTIONS.iter().filter(|(name, ..)| name.contains(only)).collect();
    if chosen.is_empty() {
        let names = SECTIONS.iter().map(|(name, ..)| *name).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(Kind::Usage, format!("there is no section {only}: choose from {names}")));
    }
    let mut rows = Vec::new();
    for (name, payloads, each) in chosen {
        let logs = (args.entries / each).max(1);
        let load = Load { entries: args.entries, logs, payloads: payloads() };
        rows.extend(measure(name, &args, &load)?);
    }
    out.put(&Table::new(args.entries, args.rounds, args.memory, rows))
}

fn measure(section: &'static str, args: &Args, load: &Load) -> Result<Vec<Row>, Failure> {
    let mut unsorted = Rounds::new(section, "in any order", "s");
    let mut copied = Rounds::new(section, "from another store", "s");
    let mut device = Rounds::new(section, "from another store", "s");
    for round in 0..args.rounds {
        eprintln!("measuring: {section}, round {} of {}", round + 1, args.rounds);
        let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
        let store = |name: &str| Options::new().open(dir.path().join(name));
        let (plain, ()) = timed(0, || write_plain(&dir.path().join("plain"), load.bytes()))?;
        std::fs::remove_file(dir.path().join("plain"))?;
        let appended = store("appended")?;
        touch(args.memory as usize);
        let (append, ()) = timed(0, || append(&appended, load))?;
        appended.close()?;
        drop(appended);
        std::fs::remove_file(dir.path().join("appended"))?;
        let imported = store("imported")?;
        touch(args.memory as usize);
        let cpu = Cpu::now();
        let (import, bytes) = timed(0, || import(&imported, load, args.memory as usize, dir.path()))?;
        unsorted.note("cores", cpu.and_then(Cpu::process_since).map(|used| used.as_secs_f64() / import));
        unsorted.note("MB", bytes as f64 / 1e6);
        unsorted.pair(import, append);
        let (view, target) = (imported.view()?, store("copied")?);
        let (copy, copy_bytes) = timed(0, || Ok(target.import().view(&view, "")?.bytes))?;
        copied.pair(copy, append);
        device.pair(copy, plain);
        device.note("MB", copy_bytes as f64 / 1e6);
    }
    Ok(vec![
        unsorted.row("appending the same entries, until they are durable", Mark::AtMost(0.2)),
        copied.row("appending the same entries, until they are durable", Mark::AtMost(0.2)),
        device.row("writing the bytes of the payloads", None),
    ])
}

fn append(store: &Store, load: &Load) -> Result<(), Failure> {
    load.each(|key, payload| store.append(key, payload).map(drop).map_err(Failure::from))?;
    Ok(store.flush()?)
}

fn import(store: &Store, load: &Load, memory: usize, scratch: &Path) -> Result<u64, Failure> {
    let mut import = store.import().memory(memory).unsorted(scratch)?;
    load.each(|key, payload| Ok(import.append(key, payload)?))?;
    Ok(import.finish()?.bytes)
}
