//! `probe`: measures a disk, and prints the settings that follow.

mod advice;
mod curves;
mod guard;
pub mod measure;
pub mod plan;
mod report;

mod timer;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use brooklet::io::{Durable, FileOptions, Volume};

use crate::failure::Failure;
use crate::output::{Output, progress};
use crate::plot::{free_to_write, write_new};
use crate::signals;
use crate::size::size;
use crate::time;
use guard::{Ground, LEAST};
use measure::{Area, Cell, Samples};
use plan::{Budget, PASSES, plan};
use report::{Blocks, Report};
use timer::{Timer, WAITS};

#[derive(clap::Args)]
pub struct Args {
    /// A directory on the disk, or a block device
    ///
    /// In a directory the probe works on files of its own, and removes them at the end, even if it
    /// is killed (on Linux; elsewhere a killed probe leaves files named brooklet-probe-*). A device
    /// must be unused and blank: the first --size bytes and the last MiB read as zeros. The probe
    /// blanks the device at the end, also after Ctrl-C. If the probe is killed, or stopped by a
    /// second Ctrl-C, noise is left in the first --size bytes. Zero those bytes again (`blkdiscard
    /// --zeroout --length BYTES DEVICE`), or let `format --force` overwrite them.
    #[arg(value_name = "PATH|DEVICE")]
    path: PathBuf,
    /// Time of the measurement in seconds or with a unit (ms, s, m), about; a slow disk may need
    /// twice as long
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    /// Bytes that the probe may overwrite again and again (K, M and G are understood); in a
    /// directory at most a quarter of the free space
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = footprint)]
    size: u64,
    /// Measure only reads, of a file or device with any contents; write nothing
    #[arg(long)]
    read_only: bool,
    /// A new file for the curves, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    time::seconds(text, range).ok_or_else(|| "use 0.1 to 3600".to_owned())
}

fn footprint(text: &str) -> Result<u64, String> {
    let bytes = size(text)?;
    if (LEAST..=64 << 30).contains(&bytes) { Ok(bytes) } else { Err("use 4M to 64G".to_owned()) }
}

/// Measures, and prints the results.
pub fn run(args: Args, out: &mut Output) -> Result<(), Failure> {
    if let Some(file) = &args.plot {
        free_to_write(file)?;
    }
    signals::listen()?;
    let start = Instant::now();
    // Both ways to make writes durable are measured; what the volume would choose does not matter
    // here.
    let options = FileOptions { durable: Durable::Dsync, ..FileOptions::default() };
    let mut ground = Ground::take(&args.path, args.size, args.read_only, options)?;
    let measured = measure(&mut ground, args.seconds);
    let what = ground.what;
    let volume = ground.volume.info();
    // First of all: whatever was measured, the place is as it was found.
    ground.give_back()?;
    let Measured { bytes, cells, timers, skipped } = measured?;
    let report = Report {
        path: args.path.display().to_string(),
        what,
        backend: volume.backend,
        direct: volume.direct,
        device: volume.device.map(|device| Blocks {
            logical_block: device.logical_block,
            physical_block: device.physical_block,
        }),
        durable_by: volume.durable_by,
        fallbacks: volume.fallbacks,
        bytes,
        seconds: start.elapsed().as_secs_f64(),
        skipped,
        settings: advice::advise(&cells),
        cells,
        timers,
    };
    if let Some(file) = &args.plot {
        write_new(file, &curves::picture(&report).to_string())?;
    }
    out.put(&report)
}

struct Measured {
    bytes: u64,
    cells: Vec<Cell>,
    timers: Vec<Timer>,
    skipped: usize,
}

/// Measures everything there is to measure, several times, each in an equal share of the time.
fn measure(ground: &mut Ground, time: Duration) -> Result<Measured, Failure> {
    let budget = Budget::new(time);
    let writes = ground.what != guard::What::ReadOnly;
    let mut area = Area::new(&ground.volume, ground.bytes);
    if writes {
        area.fill(time / 5).map_err(Failure::io("filling the part to be measured"))?;
        signals::check()?;
    }
    let spots = plan(writes, area.bytes(), ground.plain.as_ref().map(|plain| plain.room()));
    let mut shares = PASSES * (WAITS.len() + spots.len());
    let bar = progress(shares as u64, "probing");
    let mut timers = Vec::new();
    for wait in WAITS {
        let slice = budget.slice(shares).map(|slice| slice * PASSES as u32);
        timers.extend(slice.into_iter().flat_map(|slice| timer::measure(wait, slice)));
        signals::check()?;
        shares -= PASSES;
        bar.inc(PASSES as u64);
    }
    let mut passes: Vec<Vec<Samples>> = spots.iter().map(|_| Vec::new()).collect();
    for _ in 0..PASSES {
        for (&spot, passes) in spots.iter().zip(&mut passes) {
            if let Some(slice) = budget.slice(shares) {
                let doing =
                    format!("measuring {:?} of {} bytes, {} at once", spot.way, spot.size, spot.depth);
                passes.push(area.measure(spot, slice, ground.plain.as_mut()).map_err(Failure::io(doing))?);
                signals::check()?;
            }
            shares -= 1;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let cells: Vec<Cell> =
        spots.iter().zip(&passes).filter_map(|(&spot, passes)| Cell::new(spot, passes)).collect();
    Ok(Measured { bytes: area.bytes(), skipped: spots.len() - cells.len(), cells, timers })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_sane_ranges() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "1e9", "x", "inf"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(footprint("16M"), Ok(16 << 20));
        assert!(footprint("1M").is_err() && footprint("65G").is_err());
    }
}
