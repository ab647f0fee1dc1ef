//! `bench archive`: backing a store up and restoring it, beside reading and writing the same bytes.

use std::ops::ControlFlow;
use std::path::PathBuf;

use brooklet::{Options, Store};
use brooklet_archive::{Archive, Archived, Bucket, Parts, Which};

use super::codex::{mix, timed, write_plain};
use super::load::deltas_of_200;
use super::row::{Rounds, Table};
use super::table::Mark;
use crate::failure::Failure;
use crate::output::Output;
use crate::size::{count, size};

/// Arguments of `brooklet bench archive`.
#[derive(clap::Args)]
pub struct Args {
    /// The folder of the stores, up to 1 KiB per log; the stores are removed at the end
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The place of the backups, such as s3://bucket/path; each round writes to its own folder
    /// there, which stays [default: a folder next to the stores]
    #[arg(long)]
    bucket: Option<String>,
    /// Number of logs to back up; also as 1e6
    #[arg(long, default_value = "1e6", value_parser = count)]
    logs: u64,
    /// Rounds of each measurement; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Bytes of memory for reading ahead (K, M and G are understood)
    #[arg(long, default_value = "128M", value_parser = size)]
    memory: u64,
}

/// Logs that are read of what was offloaded, and bytes of the cache on the local disk.
const READS: u64 = 1000;
const CACHE: u64 = 1 << 30;

/// What figures are compared with that are compared with nothing.
const NONE: &str = "none";

/// Measures, and prints the table.
#[expect(clippy::too_many_lines, reason = "one measurement after the other, on what the one before left")]
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    let mut puts = Rounds::new("archive", "PUT requests of all logs, new", "a GiB");
    let mut again = Rounds::new("archive", "PUT requests of all logs, changed", "a GiB");
    let mut archived = Rounds::new("archive", "all logs, new", "s");
    let mut restored = Rounds::new("restore", "all logs", "s");
    let mut one = Rounds::new("restore", "one log", "ms");
    let mut cold = Rounds::new("offloaded", "reading a log", "ms");
    let mut warm = Rounds::new("offloaded", "reading it again", "ms");
    for round in 0..args.rounds {
        eprintln!("measuring: round {} of {}", round + 1, args.rounds);
        let dir = tempfile::Builder::new().prefix("brooklet-bench-").tempdir_in(&args.dir)?;
        let place = match &args.bucket {
            Some(bucket) => format!("{bucket}/{}", dir.path().file_name().unwrap_or_default().display()),
            None => dir.path().join("bucket").display().to_string(),
        };
        let bucket = Bucket::open(&place)?;
        let store = Options::new().open(dir.path().join("store"))?;
        let mut archive = Archive::new(bucket.clone(), dir.path().join("note"), "bench")?;
        append(&store, args.logs, 1)?;
        store.checkpoint()?;
        let before = bucket.costs();
        let (took, first) = timed(0, || back_up(&mut archive, &store))?;
        let costs = bucket.costs();
        let per_gib = |puts: u64, sent: u64| puts as f64 * (1u64 << 30) as f64 / sent.max(1) as f64;
        puts.alone(per_gib(costs.puts - before.puts, costs.sent - before.sent));
        puts.note("PUT", (costs.puts - before.puts) as f64);
        puts.note("MB", first.bytes as f64 / 1e6);
        let (disk, ()) = timed(0, || write_plain(&dir.path().join("plain"), first.bytes))?;
        std::fs::remove_file(dir.path().join("plain"))?;
        archived.pair(took, disk);

        let backup = bucket.backup(Which::Latest)?;
        let (link, _) = timed(0, || Ok(backup.verify(brooklet::Progress::ignore)))?;
        let (took, _) = timed(0, || {
            let view = bucket.backup(Which::Latest)?.view(args.memory as usize)?;
            let go_on = |_| ControlFlow::Continue(());
            Ok(Options::new().copy(dir.path().join("restored"), &view, go_on)?)
        })?;
        restored.pair(took, link.max(disk));
        restored.note("link, s", link);
        restored.note("disk, s", disk);
        let single = Options::new().open(dir.path().join("single"))?;
        let before = bucket.costs().gets;
        let (took, _) = timed(0, || {
            let view = bucket.backup(Which::Latest)?.view(args.memory as usize)?;
            Ok(single.import().log(&view, key(args.logs / 2))?)
        })?;
        one.alone(took * 1e3);
        one.note("GET", (bucket.costs().gets - before) as f64);

        append(&store, args.logs, 1)?;
        store.checkpoint()?;
        let before = bucket.costs();
        let second = back_up(&mut archive, &store)?;
        let costs = bucket.costs();
        again.alone(per_gib(costs.puts - before.puts, costs.sent - before.sent));
        again.note("PUT", (costs.puts - before.puts) as f64);
        again.note("MB", second.new_bytes as f64 / 1e6);

        // What is being merged does not go.
        store.compact()?;
        back_up(&mut archive, &store)?;
        archive.offload(&store, 0, brooklet::Progress::ignore)?;
        store.close()?;
        drop(store);
        let parts = Parts::new(&bucket, args.memory as usize).cache(&dir, CACHE)?;
        let store =
            Options::new().offload_reader(move |name| parts.open(name)).open(dir.path().join("store"))?;
        for figure in [&mut cold, &mut warm] {
            let before = bucket.costs().gets;
            let (took, _) = timed(0, || {
                (0..READS).try_for_each(|at| {
                    let log = key(mix(at) % args.logs);
                    Ok(store.read(log, ..)?.try_for_each(|entry| entry.map(drop))?)
                })
            })?;
            figure.alone(took * 1e3 / READS as f64);
            figure.note("GET", (bucket.costs().gets - before) as f64);
        }
    }
    let most = Mark::Within(200.0);
    let rows = vec![
        puts.row(NONE, most),
        again.row(NONE, most),
        archived.row("writing the bytes of the runs to the disk", None),
        restored.row("the longer of reading all objects and writing the bytes", Mark::AtMost(1.3)),
        one.row(NONE, None),
        cold.row(NONE, None),
        warm.row(NONE, None),
    ];
    out.put(&Table::new(args.logs, args.rounds, args.memory, rows))
}

fn key(at: u64) -> String {
    format!("log/{:016x}", mix(at))
}

fn append(store: &Store, logs: u64, each: u64) -> Result<(), Failure> {
    let payloads = deltas_of_200();
    for at in 0..logs * each {
        drop(store.append(key(at % logs), &payloads[at as usize % payloads.len()])?);
    }
    Ok(store.flush()?)
}

fn back_up(archive: &mut Archive, store: &Store) -> Result<Archived, Failure> {
    Ok(archive.backup(store, brooklet::Progress::ignore)?)
}
