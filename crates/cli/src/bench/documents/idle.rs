//! The memory of documents that nobody uses, measured in a process of its own: what a process has
//! freed would hide what it takes.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use brooklet::Store;
use brooklet::io::Rng;
use serde::{Deserialize, Serialize};

use super::offered::make;
use super::{name, open};
use crate::bench::row::{Rounds, Row};
use crate::bench::system::resident;
use crate::bench::table::Mark;
use crate::failure::Failure;

/// Documents that are loaded, so that the store has in memory what it keeps of its runs.
const LOADED: u64 = 10_000;
/// Memory for documents: that of an idle document is none of it.
const CACHE: usize = 1 << 20;

/// How long a store is left alone: until the blocks that it read have left its cache. Filters and
/// indexes stay for longer.
const REST: Duration = Duration::from_secs(30);

/// Memory of a process with an open store, in bytes.
#[derive(Serialize, Deserialize)]
pub struct Memory {
    /// Resident memory right after the loads, where the system returns it.
    used: Option<u64>,
    /// The same, once nobody has used the store for a while.
    resident: Option<u64>,
    /// Filters and indexes of the runs, as the store counts them.
    counted: u64,
}

/// Makes documents, and measures the memory of a process that has loaded a few of them, and rests.
pub fn memory(dir: &Path, idle: u64, span: Duration) -> Result<Row, Failure> {
    eprintln!("making {idle} documents");
    let (full, empty) = (dir.join("idle"), dir.join("empty"));
    for (path, count) in [(&full, idle), (&empty, 1)] {
        let store = Store::open(path)?;
        make(&open(&store, CACHE)?, count)?;
        store.compact()?;
        store.close()?;
    }
    let rest = REST.min(2 * span);
    let (full, empty) = (in_process(&full, idle, rest)?, in_process(&empty, 1, rest)?);
    let beyond = |full: Option<u64>, empty: Option<u64>| {
        full.zip(empty).map(|(full, empty)| full.saturating_sub(empty) as f64 / idle as f64)
    };
    let mut row = Rounds::new("documents at rest", format!("memory of one of {idle} idle documents"), "B");
    row.alone(beyond(full.resident, empty.resident).unwrap_or(f64::NAN));
    row.note("right after loads, with the blocks that these read", beyond(full.used, empty.used));
    row.note("filters and indexes", full.counted as f64 / idle as f64);
    row.note("seconds of rest", rest.as_secs_f64());
    Ok(row.row("resident memory beyond that of a store with one document", Mark::Within(4.0)))
}

/// Runs this program on the store at `path`.
fn in_process(path: &Path, idle: u64, rest: Duration) -> Result<Memory, Failure> {
    let (idle, rest) = (idle.to_string(), rest.as_secs_f64().to_string());
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--json", "bench", "documents", "--idle", &idle, "--rest", &rest, "--gauge"]).arg(path);
    let output = command.stderr(Stdio::null()).output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let text = String::from_utf8_lossy(&output.stdout);
        Failure::from(io::Error::other(format!("a process of the bench ended by {}: {text}", output.status)))
    })
}

/// Measures this process, once it has loaded documents from all over the store, and after a rest.
pub fn gauge(path: &Path, idle: u64, rest: Duration) -> Result<Memory, Failure> {
    let store = Store::open(path)?;
    let documents = open(&store, CACHE)?;
    let mut rng = Rng::new(6);
    for _ in 0..LOADED.min(idle) {
        documents.get(name(rng.below(idle)))?;
    }
    let (used, info) = (resident(), store.info()?);
    thread::sleep(rest);
    let counted = info.runs.iter().map(|run| run.memory_bytes as u64).sum();
    Ok(Memory { used, resident: resident(), counted })
}
