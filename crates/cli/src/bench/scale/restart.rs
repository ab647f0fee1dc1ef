//! Processes of their own: one that is killed with a full ring, and one whose memory is looked at.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use brooklet::io::Rng;
use serde::{Deserialize, Serialize};

use super::subject::{KILLED, key, options};
use crate::bench::load::noise;
use crate::bench::system::{Cpu, resident};
use crate::bench::table::median;
use crate::failure::Failure;

/// Kills, and openings after them, of which the middle one counts.
const OPENINGS: usize = 3;
/// Look-ups after which whatever a store keeps of its runs is in memory.
const LOOKUPS: u64 = 10_000;

/// Runs this program on the store at `path`, for what `flag` says.
fn this_program(flag: &[&str], path: &Path, ring: u64, logs: u64) -> Result<Output, Failure> {
    let mut command = Command::new(std::env::current_exe()?);
    let (ring, logs) = (ring.to_string(), logs.to_string());
    command.args(["--json", "bench", "scale", "--ring-size", &ring, "--logs", &logs]).args(flag).arg(path);
    Ok(command.stderr(Stdio::null()).output()?)
}

fn answer<T: for<'a> Deserialize<'a>>(output: &Output) -> Result<T, Failure> {
    serde_json::from_slice(&output.stdout).map_err(|_| {
        let text = String::from_utf8_lossy(&output.stdout);
        Failure::from(io::Error::other(format!("a process of the bench ended by {}: {text}", output.status)))
    })
}

/// Has a process fill four fifths of the ring with appends to up to `logs` logs, and die. The
/// payload bytes.
fn kill(path: &Path, ring: u64, logs: u64) -> Result<u64, Failure> {
    let output = this_program(&["--fill"], path, ring, logs)?;
    if output.status.code().is_some() {
        return Err(Failure::from(io::Error::other("the filling process did not die as it should")));
    }
    answer(&output)
}

/// The process that dies. Its payloads do not compress, so that as many logs as can be are in the
/// ring.
pub fn fill_and_die(path: &Path, ring: u64, logs: u64) -> Result<(), Failure> {
    let store = options(ring).memory_budget(1 << 40).threads(false).open(path)?;
    let mut rng = Rng::new(5);
    let noise = noise(1 << 20);
    let (mut i, mut bytes) = (0, 0);
    while store.info()?.wal.used < ring * 80 / 100 {
        for _ in 0..500 {
            let len = 64 + rng.below(449) as usize;
            let at = rng.below((noise.len() - len) as u64) as usize;
            drop(store.append(key(KILLED + i % logs), &noise[at..at + len])?);
            (i, bytes) = (i + 1, bytes + len as u64);
        }
        store.flush()?;
    }
    let mut out = io::stdout();
    writeln!(out, "{bytes}")?;
    out.flush()?;
    std::process::abort();
}

/// What it took to be back after a kill.
pub struct Restart {
    /// Payload bytes that were appended for it.
    pub bytes: u64,
    /// Seconds until the first append was acknowledged, and of processor time.
    pub seconds: f64,
    pub cpu: Option<f64>,
}

/// Kills the store with a full ring and opens it, several times.
pub fn restart(path: &Path, ring: u64, logs: u64) -> Result<Restart, Failure> {
    let (mut times, mut cpus, mut bytes) = (Vec::new(), Vec::new(), 0);
    for i in 0..OPENINGS {
        bytes += kill(path, ring, logs)?;
        let (start, cpu) = (Instant::now(), Cpu::now());
        let store = options(ring).open(path)?;
        store.append(format!("restart/{i}"), b"first")?.wait()?;
        times.push(start.elapsed().as_secs_f64());
        cpus.extend(cpu.and_then(Cpu::process_since).map(|time| time.as_secs_f64()));
        store.close()?;
    }
    let cpu = (!cpus.is_empty()).then(|| median(cpus));
    Ok(Restart { bytes, seconds: median(times), cpu })
}

/// Memory of an open store.
#[derive(Serialize, Deserialize)]
pub struct Memory {
    /// Bytes that the process occupies beyond what it did before, where the system tells.
    pub resident: Option<u64>,
    /// Bytes of filters and indexes that the store tells of.
    pub told: u64,
    /// The same, once it has been left alone; told is all that look-ups keep.
    pub rested_resident: Option<u64>,
    pub rested: u64,
}

/// Has a process open the store, look for some of its `logs`, and leave it alone for a while.
pub fn memory(path: &Path, ring: u64, logs: u64, left_alone: Duration) -> Result<Memory, Failure> {
    let left_alone = left_alone.as_secs_f64().to_string();
    answer(&this_program(&["--left-alone", &left_alone, "--gauge"], path, ring, logs)?)
}

/// The process whose memory counts.
pub fn gauge(path: &Path, ring: u64, logs: u64, left_alone: Duration) -> Result<Memory, Failure> {
    let before = resident();
    let store = options(ring).open(path)?;
    let mut rng = Rng::new(6);
    for _ in 0..LOOKUPS {
        let _known = store.exists(key(rng.below(logs)))?;
    }
    let more = || resident().zip(before).map(|(now, before)| now.saturating_sub(before));
    let (resident, info) = (more(), store.info()?);
    let told = info.runs.iter().map(|run| run.memory_bytes as u64).sum();
    thread::sleep(left_alone);
    let (rested_resident, lookups) = (more(), store.info()?.lookups);
    let rested = lookups.filter_bytes + lookups.index_bytes + lookups.block_bytes;
    Ok(Memory { resident, told, rested_resident, rested: rested as u64 })
}
