//! The memory of documents that nobody uses, measured in a process of its own: what a process has
//! freed would hide what it takes.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};

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

/// Memory of a process with an open store, in bytes.
#[derive(Serialize, Deserialize)]
pub struct Memory {
    /// Resident memory, where the system returns it.
    resident: Option<u64>,
    /// Filters and indexes of the runs, as the store counts them.
    counted: u64,
}

/// Makes documents, and measures the memory of a process that has loaded a few of them.
pub fn memory(dir: &Path, idle: u64) -> Result<Row, Failure> {
    eprintln!("making {idle} documents");
    let (full, empty) = (dir.join("idle"), dir.join("empty"));
    for (path, count) in [(&full, idle), (&empty, 1)] {
        let store = Store::open(path)?;
        make(&open(&store, CACHE)?, count)?;
        store.compact()?;
        store.close()?;
    }
    let (full, empty) = (in_process(&full, idle)?, in_process(&empty, 1)?);
    let resident = full.resident.zip(empty.resident).map(|(full, empty)| full.saturating_sub(empty));
    let each = |bytes: u64| bytes as f64 / idle as f64;
    let mut row = Rounds::new("documents at rest", format!("memory of one of {idle} idle documents"), "B");
    row.alone(resident.map_or(f64::NAN, each));
    row.note("filters and indexes", each(full.counted));
    Ok(row.row("resident memory beyond that of a store with one document", Mark::Within(4.0)))
}

/// Runs this program on the store at `path`.
fn in_process(path: &Path, idle: u64) -> Result<Memory, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["--json", "bench", "documents", "--idle", &idle.to_string(), "--gauge"]).arg(path);
    let output = command.stderr(Stdio::null()).output()?;
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let text = String::from_utf8_lossy(&output.stdout);
        Failure::from(io::Error::other(format!("a process of the bench ended by {}: {text}", output.status)))
    })
}

/// Measures this process, once it has loaded documents from all over the store.
pub fn gauge(path: &Path, idle: u64) -> Result<Memory, Failure> {
    let store = Store::open(path)?;
    let documents = open(&store, CACHE)?;
    let mut rng = Rng::new(6);
    for _ in 0..LOADED.min(idle) {
        documents.get(name(rng.below(idle)))?;
    }
    let counted = store.info()?.runs.iter().map(|run| run.memory_bytes as u64).sum();
    Ok(Memory { resident: resident(), counted })
}
