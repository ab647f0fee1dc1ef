//! Memory: what a log takes at full throttle, seen in a process that does nothing else.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brooklet::io::{FileOptions, FileVolume, OpenMode};
use brooklet_wal::LogOptions;

use super::rig::{Rig, Trimmed};
use super::throttle::Records;
use crate::bench::row::{Rounds, Row};
use crate::bench::system::resident;
use crate::bench::table::Mark;
use crate::failure::{Failure, Kind};

/// Bytes of a record.
const RECORD: usize = 64 << 10;
/// Records between two looks at the memory.
const LOOK: usize = 16;

/// What the log takes.
pub fn memory(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    if resident().is_none() {
        eprintln!("skipped: memory: the system does not tell how much this process occupies");
        return Ok(Vec::new());
    }
    let mut row = Rounds::new("memory", "ring, window and buffers at full throttle, 64 KiB records", "MiB");
    let path = rig.path("memory");
    for _ in 0..rig.rounds {
        let seconds = (2 * rig.span).as_secs_f64().min(60.0).to_string();
        let output = Command::new(std::env::current_exe()?)
            .args(["bench", "wal", "--seconds", &seconds, "--gauge"])
            .arg(&path)
            .stderr(Stdio::inherit())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let bytes: u64 = text.trim().parse().map_err(|_| gone())?;
        row.alone(bytes as f64 / f64::from(1 << 20));
        std::fs::remove_file(&path)?;
    }
    let against = "what it may be; resident memory of a process above what it was before";
    Ok(vec![row.row(against, Mark::Within(64.0))])
}

fn gone() -> Failure {
    Failure::new(Kind::Io, "the system no longer tells how much memory a process occupies")
}

/// Appends to a log at this path for a while. The most memory that it took, in bytes.
pub fn gauge(path: &Path, span: Duration) -> Result<u64, Failure> {
    let volume = FileVolume::open(path, OpenMode::Create, FileOptions::default())?;
    let mut records = Records::new(RECORD);
    let before = resident().ok_or_else(gone)?;
    let log = Trimmed::new(Arc::new(volume), LogOptions::new())?;
    let (begin, mut peak) = (Instant::now(), before);
    while begin.elapsed() < span || peak == before {
        for _ in 0..LOOK {
            log.append(records.next())?;
        }
        peak = peak.max(resident().ok_or_else(gone)?);
    }
    Ok(peak - before)
}
