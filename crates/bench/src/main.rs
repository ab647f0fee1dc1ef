//! `brooklet-peers`: Brooklet and other stores side by side, on the same workloads in one run.
//!
//! `plan` has the workloads and the marks, `run` has child processes carry them out, `works` is
//! what a child does, `stores` holds the stores behind one trait, `batch` is the group commit for
//! those that have none, `promise` lets tasks await what callbacks tell, `table` sums up.

mod batch;
mod outcome;
mod payloads;
mod peer;
mod plan;
mod promise;
mod run;
mod stores;
mod system;
mod table;
mod word;
mod works;

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};

use outcome::Result;
use stores::Kind;

/// Brooklet and other stores side by side: the same workloads, durable acknowledgements, one run.
#[derive(Parser)]
struct Args {
    /// Where to make the files; they are removed at the end.
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Only the workloads whose name holds one of these (a list with commas).
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only these stores (a list with commas).
    #[arg(long, value_delimiter = ',')]
    stores: Vec<Kind>,
    /// Rounds of each measurement; the median counts.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of each measurement that has no end of its own.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Prints JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Used by the command itself: a step of a workload.
    #[arg(long, hide = true)]
    child: Option<String>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    if let Some(task) = &args.child {
        let told =
            serde_json::from_str(task).map_err(outcome::Error::from).and_then(|task| works::run(&task));
        println!("{}", serde_json::to_string(&told.map_err(|error| error.to_string()))?);
        return Ok(());
    }
    let dir = tempfile::Builder::new().prefix("brooklet-peers-").tempdir_in(&args.dir)?;
    let caveats = caveats(dir.path())?;
    let stores = if args.stores.is_empty() { Kind::value_variants().to_vec() } else { args.stores };
    let mut bench = run::Bench::new(dir.path(), stores.clone(), args.rounds);
    let mut rows = Vec::new();
    for work in plan::works(args.seconds) {
        if args.only.is_empty() || args.only.iter().any(|only| work.name.contains(only.as_str())) {
            let rounds = bench.work(&work);
            rows.extend(table::Row::of(&work, &rounds));
        }
    }
    let table = table::Table::new(args.rounds, args.seconds, &stores, caveats, rows);
    if args.json {
        println!("{}", serde_json::to_string(&table)?);
    } else {
        print!("{table}");
    }
    Ok(())
}

/// What is to be known of the place before the figures are believed.
fn caveats(dir: &Path) -> Result<Vec<String>> {
    let mut caveats = vec![
        "bytes on the device are the device's own count, and whatever else writes to it counts too: the least of the rounds \
         is told"
            .to_owned(),
        "cold means that the system had forgotten the files; the disk and what lies behind it may remember them".to_owned(),
    ];
    system::sync(dir)?;
    let Some(before) = system::device_bytes(dir) else {
        caveats.push("the device under this directory does not tell what is written to it".to_owned());
        return Ok(caveats);
    };
    std::thread::sleep(Duration::from_secs(1));
    let others = system::device_bytes(dir).unwrap_or(before) - before;
    caveats.push(format!("before the run, others made the device write {} KiB in a second", others >> 10));
    Ok(caveats)
}
