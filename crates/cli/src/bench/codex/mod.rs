//! `bench codex`: building sorted files and reading them, beside sorting and writing alone, and
//! beside the plain way.
//!
//! Machines are noisy: each figure is the median of several rounds, in each of which what is
//! measured and what it is compared with take turns. All have the entries in memory, and memory
//! enough to sort them there.

mod entries;
mod plain;

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use brooklet_codex::{Cache, Duplicates, FileBuilder, FileOptions, Map, Reader, Source, Summary};

use super::row::{Rounds, Row, Table};
use super::system::Cpu;
use super::table::Mark;
use crate::failure::{Failure, Kind};
use crate::output::Output;
use crate::size::{count, size};
pub use entries::mix;
use entries::{Entries, Numbers, Titles};
pub use plain::write as write_plain;

/// Arguments of `brooklet bench codex`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the files, up to 3 GiB; the files are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Number of entries of a file; also as 1e6
    #[arg(long, default_value = "13e6", value_parser = count)]
    entries: u64,
    /// Rounds of each measurement; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Bytes of memory for sorting (K, M and G are understood)
    #[arg(long, default_value = "3G", value_parser = size)]
    memory: u64,
    /// Part of the names of the sections to run: values of 8, values of 100, titles, reading
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
}

/// Where and how to measure.
struct Rig {
    dir: tempfile::TempDir,
    rounds: usize,
    memory: usize,
}

type Measure = fn(&Rig, usize) -> Result<Vec<Row>, Failure>;

const SECTIONS: &[(&str, Measure)] = &[
    ("values of 8", |rig, count| numbers(rig, "values of 8", &Numbers::new(count, 8))),
    ("values of 100", |rig, count| numbers(rig, "values of 100", &Numbers::new(count, 100))),
    // As many as the write-up had, to its 13 million.
    ("titles", |rig, count| titles(rig, &Titles::new(count + count / 20))),
    ("reading", |rig, count| reading(rig, &Numbers::new(count, 8))),
];

/// Measures, and prints the table.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let only = args.only.unwrap_or_default();
    let chosen: Vec<_> = SECTIONS.iter().filter(|(name, _)| name.contains(&only)).collect();
    if chosen.is_empty() {
        let names = SECTIONS.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(Kind::Usage, format!("there is no section {only}: choose from {names}")));
    }
    let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
    let rig = Rig { dir, rounds: args.rounds as usize, memory: args.memory as usize };
    let mut rows = Vec::new();
    for (name, measure) in chosen {
        eprintln!("measuring: {name}");
        rows.extend(measure(&rig, args.entries as usize)?);
    }
    out.put(&Table::new(args.entries, args.rounds, args.memory, rows))
}

impl Rig {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Builds a file of the entries, and says how long that took and what share of a core.
    fn build(&self, name: &str, entries: &impl Entries) -> Result<Built, Failure> {
        let path = self.path(name);
        let options = FileOptions {
            memory: self.memory,
            duplicates: Duplicates::Last,
            replace: true,
            ..FileOptions::default()
        };
        touch(self.memory);
        let (cpu, begun) = (Cpu::now(), Instant::now());
        let mut builder = FileBuilder::new(&path, options)?;
        for at in 0..entries.len() {
            let (key, value) = entries.get(at);
            builder.add(key.as_ref(), value.as_ref())?;
        }
        let summary = builder.finish()?;
        let took = begun.elapsed();
        let cores = cpu.and_then(Cpu::process_since).map(|used| used.as_secs_f64() / took.as_secs_f64());
        Ok(Built { path, summary, took: took.as_secs_f64(), cores })
    }
}

struct Built {
    path: PathBuf,
    summary: Summary,
    took: f64,
    /// Cores that were busy meanwhile.
    cores: Option<f64>,
}

/// Takes memory and gives it back, so that what follows does not pay for what it takes: a virtual
/// machine's memory is given to it by the host at the first touch, and again after it lay free for
/// some seconds, at ten times the price of a page.
pub fn touch(bytes: usize) {
    drop(std::hint::black_box(vec![1u8; bytes]));
}

/// Times something, in seconds, once so much memory was [touched](touch).
pub fn timed<T>(memory: usize, work: impl FnOnce() -> Result<T, Failure>) -> Result<(f64, T), Failure> {
    touch(memory);
    let begun = Instant::now();
    let done = work()?;
    Ok((begun.elapsed().as_secs_f64(), done))
}

/// Keys that are numbers, unsorted and sorted.
fn numbers(rig: &Rig, section: &'static str, entries: &Numbers) -> Result<Vec<Row>, Failure> {
    let mut unsorted = Rounds::new(section, "unsorted", "s");
    let mut store_args = Rounds::new(section, "unsorted", "s");
    let mut sorted = Rounds::new(section, "sorted", "s");
    let in_order = entries.sorted();
    for _ in 0..rig.rounds {
        let mut halves = plain::halves(entries);
        let (sort, ()) = timed(rig.memory, || {
            plain::sort(&mut halves);
            Ok(())
        })?;
        drop(halves);
        let (write, ()) = timed(rig.memory, || plain::write(&rig.path("plain"), entries.bytes()))?;
        let any = rig.build("any", entries)?;
        let ascending = rig.build("sorted", &in_order)?;
        unsorted.pair(any.took, sort + write);
        unsorted.note("sort", sort);
        unsorted.note("write", write);
        unsorted.note("cores", any.cores);
        unsorted.note("MB", any.summary.len as f64 / 1e6);
        store_args.pair(any.took, ascending.took);
        sorted.pair(ascending.took, write);
        sorted.note("cores", ascending.cores);
    }
    Ok(vec![
        unsorted.row("sorting the keys by 2 threads, then writing the bytes", Mark::AtMost(1.5)),
        store_args.row("the same, sorted", Mark::AtMost(2.0)),
        sorted.row("writing the bytes", None).remark("mark: ratio at most 1.25, or a core busy"),
    ])
}

/// Titles, beside the way of the write-up that the codex comes from.
fn titles(rig: &Rig, entries: &Titles) -> Result<Vec<Row>, Failure> {
    let mut unsorted = Rounds::new("titles", "unsorted", "s");
    for _ in 0..rig.rounds {
        let (plain, ()) = timed(rig.memory, || plain::segments(&rig.path("plain"), entries))?;
        let any = rig.build("any", entries)?;
        unsorted.pair(any.took, plain);
        unsorted.note("cores", any.cores);
        unsorted.note("MB", any.summary.len as f64 / 1e6);
    }
    let against = "segments of a million, sorted while the next is taken in, then merged";
    Ok(vec![unsorted.row(against, Mark::AtMost(1.0 / 3.0))])
}

/// Reading single keys from a file that is in memory.
fn reading(rig: &Rig, entries: &Numbers) -> Result<Vec<Row>, Failure> {
    let built = rig.build("read", entries)?;
    let mut mapped = Rounds::new("reading", "single keys, mapped", "1/s");
    let mut cached = Rounds::new("reading", "single keys, with a cache of twice the file's size", "1/s");
    let len = built.summary.len;
    let file = Arc::new(File::open(&built.path)?);
    for round in 0..rig.rounds {
        let map = Reader::open(Map::open(&built.path)?, len, None)?;
        let cache = Arc::new(Cache::new(2 * len as usize));
        let read = Reader::open_with(file.clone(), len, None, cache)?;
        // Once through all of it, so that what can be in memory is.
        map.verify(brooklet_codex::Progress::ignore)?;
        (0..entries.len()).step_by(40).try_for_each(|at| look_up(&read, entries.get(at)))?;
        // Drawn before, since finding an entry among millions takes half as long as looking it up.
        let drawn = |nth: usize| entries.get(mix((nth ^ round << 40) as u64) as usize % entries.len());
        let drawn: Vec<_> = (0..DRAWN).map(drawn).collect();
        mapped.alone(per_second(&drawn, |entry| look_up(&map, entry))?);
        cached.alone(per_second(&drawn, |entry| look_up(&read, entry))?);
    }
    Ok(vec![mapped.row("none; one thread", Mark::Reach(1e6)), cached.row("none; one thread", None)])
}

/// So many entries are looked up, again and again.
const DRAWN: usize = 1 << 20;

type Drawn<'e> = ([u8; 16], &'e [u8]);

fn look_up<S: Source>(reader: &Reader<S>, (key, value): Drawn<'_>) -> Result<(), Failure> {
    match reader.get(&key)? {
        Some(found) if *found == *value => Ok(()),
        found => Err(Failure::no(format!("the value of {key:?} is {found:?}"))),
    }
}

/// How often something is done in a second, for each of some entries.
fn per_second<'e>(
    drawn: &[Drawn<'e>],
    mut each: impl FnMut(Drawn<'e>) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let (begun, mut done) = (Instant::now(), 0u64);
    for some in drawn.chunks(1000).cycle() {
        some.iter().try_for_each(|entry| each(*entry))?;
        done += some.len() as u64;
        if begun.elapsed() >= Duration::from_secs(2) {
            break;
        }
    }
    Ok(done as f64 / begun.elapsed().as_secs_f64())
}
