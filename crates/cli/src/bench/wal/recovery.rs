//! Recovery: opening a full ring after a kill, and reading all of it back.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use brooklet::io::{FileOptions, FileVolume, OpenMode};
use brooklet_wal::{Log, LogError, LogOptions, WalError};

use super::report::describe;
use super::rig::{Rig, best};
use crate::bench::load::noise;
use crate::bench::row::{Rounds, Row};
use crate::bench::table::Mark;
use crate::failure::Failure;
use crate::probe::measure::Area;
use crate::probe::plan::{Spot, Way};

const RECORD: usize = 64 << 10;

/// Fills a ring with noise, and dies without closing it.
pub fn fill_and_die(path: &Path, ring: u64) -> Result<(), Failure> {
    let volume = FileVolume::open(path, OpenMode::Create, FileOptions::default())?;
    let log = Log::create(Arc::new(volume), LogOptions::new().ring_size(ring))?;
    let noise = noise(8 << 20);
    let mut at = 0;
    loop {
        at = (at + RECORD + 8) % (noise.len() - RECORD);
        match log.try_append(&noise[at..at + RECORD]) {
            Ok(_) => {}
            Err(WalError::Busy) => log.flush()?,
            Err(WalError::Full { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    log.flush()?;
    std::process::abort();
}

/// Recovery of a full ring.
pub fn recovery(rig: &mut Rig<'_>) -> Result<Vec<Row>, Failure> {
    let path = rig.path("ring");
    let status = Command::new(std::env::current_exe()?)
        .args(["bench", "wal", "--ring-size", &rig.ring.to_string(), "--fill"])
        .arg(&path)
        .stderr(Stdio::null())
        .status()?;
    if status.success() || status.code().is_some() {
        return Err(Failure::from(std::io::Error::other("the filling process did not die as it should")));
    }
    let way = {
        let volume = FileVolume::open(&path, OpenMode::ReadOnly, FileOptions::default())?;
        best(&mut Area::new(&volume, rig.ring), &[Way::Read], rig.span)?
    };
    let mib = rig.ring >> 20;
    let mut open = Rounds::new("recovery", format!("opening a full ring of {mib} MiB after a kill"), "MB/s");
    let mut back = Rounds::new("recovery", "reading all records of the open log", "MB/s");
    for _ in 0..rig.rounds {
        let limit = {
            let volume = FileVolume::open(&path, OpenMode::ReadOnly, FileOptions::default())?;
            let spot = Spot { way: Way::Read, size: way.size, depth: way.depth };
            Area::new(&volume, rig.ring).measure(spot, 2 * rig.span, None)?.mb_per_s()
        };
        let volume = FileVolume::open(&path, OpenMode::ReadWrite, FileOptions::default())?;
        let start = Instant::now();
        let log = Log::open(Arc::new(volume), LogOptions::new())?;
        let used = log.stats().ring.used;
        open.pair(rate(used, start.elapsed()), limit);
        open.note("seconds", start.elapsed().as_secs_f64());
        let start = Instant::now();
        let read =
            log.recover().try_fold(0, |sum, record| Ok::<_, LogError>(sum + record?.1.len() as u64))?;
        back.pair(rate(read, start.elapsed()), limit);
        // As a crash would leave it: the next opening reads the whole ring again.
        log.abandon();
    }
    rig.remove("ring")?;
    let against = "reading the same bytes in order in the device's best way";
    let open = open.row(against, Mark::AtLeast(0.8)).remark(describe(&way));
    Ok(vec![open, back.row(against, None)])
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64()
}
