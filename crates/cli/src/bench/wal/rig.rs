//! What the sections measure with: the device, and logs beside it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use brooklet::io::{Durable, FileOptions, FileVolume, OpenMode, SECTOR, Volume};
use brooklet_wal::{Ack, Log, LogOptions, Lsn};

use crate::bench::system::Cpu;
use crate::failure::Failure;
use crate::latency::Latencies;
use crate::probe::measure::{Area, Cell};
use crate::probe::plan::{Spot, Way};

/// Bytes of the file that stands for the device.
const DEVICE_BYTES: u64 = 256 << 20;
/// Bytes of a log's ring where nothing else is said.
const RING: u64 = 128 << 20;
/// What lies before the ring on a log's volume.
const LABEL: u64 = 64 << 10;

/// The directory that is worked in, and the file in it that stands for the device.
pub struct Ground {
    dir: PathBuf,
    volume: FileVolume,
}

impl Ground {
    /// Makes the file.
    pub fn make(dir: &Path) -> Result<Self, Failure> {
        // Both ways to make writes durable are measured: each write by itself, and a flush for
        // several.
        let options = FileOptions { durable: Durable::Dsync, ..FileOptions::default() };
        let volume = FileVolume::open(&dir.join("device"), OpenMode::Create, options)?;
        volume.grow(DEVICE_BYTES)?;
        Ok(Self { dir: dir.to_owned(), volume })
    }
}

/// What every section is given.
pub struct Rig<'a> {
    ground: &'a Ground,
    /// Rounds of each measurement.
    pub rounds: usize,
    /// How long each side takes in a round.
    pub span: Duration,
    /// Bytes of the ring that is recovered.
    pub ring: u64,
    /// Where keystroke traces are.
    pub traces: Option<&'a Path>,
    device: Area<'a>,
    /// How the device writes most bytes in a second, durably and in order.
    pub best: Cell,
}

impl<'a> Rig<'a> {
    /// Fills the device's file, and finds out how it is written best.
    pub fn new(
        ground: &'a Ground,
        rounds: usize,
        span: Duration,
        ring: u64,
        traces: Option<&'a Path>,
    ) -> Result<Self, Failure> {
        let mut device = Area::new(&ground.volume, DEVICE_BYTES);
        device.fill(Duration::MAX)?;
        let best = best(&mut device, &[Way::Durable, Way::Window], span)?;
        Ok(Self { ground, rounds, span, ring, traces, device, best })
    }

    /// What the device is.
    pub fn volume(&self) -> &FileVolume {
        &self.ground.volume
    }

    /// The device's best durable bandwidth as of now, in MB/s.
    pub fn bandwidth(&mut self, slice: Duration) -> Result<f64, Failure> {
        let Cell { way, size, depth, .. } = self.best;
        Ok(self.device.measure(Spot { way, size, depth }, slice, None)?.mb_per_s())
    }

    /// The device's durable bandwidth with writes of this size and so many at once, in MB/s.
    pub fn bandwidth_with(&mut self, size: usize, depth: usize, slice: Duration) -> Result<f64, Failure> {
        let spot = Spot { way: Way::Durable, size, depth };
        Ok(self.device.measure(spot, slice, None)?.mb_per_s())
    }

    /// Latencies of the device's durable 4 KiB writes, one after another.
    pub fn writes(&mut self, slice: Duration) -> Result<Latencies, Failure> {
        let spot = Spot { way: Way::Durable, size: SECTOR, depth: 1 };
        Ok(self.device.measure(spot, slice, None)?.latencies().clone())
    }

    /// Where a file of this name goes.
    pub fn path(&self, name: &str) -> PathBuf {
        self.ground.dir.join(name)
    }

    /// A volume for a log with a ring of `ring` bytes, which has found out how it writes durably.
    pub fn new_volume(&self, name: &str, ring: u64) -> Result<Arc<FileVolume>, Failure> {
        let volume = FileVolume::open(&self.path(name), OpenMode::Create, FileOptions::default())?;
        volume.grow(LABEL + ring)?;
        volume.tune(LABEL..LABEL + (64 << 10))?;
        Ok(Arc::new(volume))
    }

    /// A new log.
    pub fn log(&self, name: &str, options: LogOptions) -> Result<Trimmed, Failure> {
        Trimmed::new(self.new_volume(name, RING)?, options)
    }

    /// Removes a file; what holds it open may go on.
    pub fn remove(&self, name: &str) -> Result<(), Failure> {
        Ok(std::fs::remove_file(self.path(name))?)
    }
}

/// The sizes and depths among which the best is looked for.
const SIZES: [usize; 7] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20];
const DEPTHS: [usize; 4] = [1, 2, 4, 8];
/// The longest look at one of them, which is to find the best, and no figure.
const LOOK: Duration = Duration::from_millis(25);
/// Passes over all of them.
const PASSES: usize = 3;

/// How an area is written or read with most bytes in a second.
pub fn best(area: &mut Area<'_>, ways: &[Way], span: Duration) -> Result<Cell, Failure> {
    let sizes = |way| SIZES.into_iter().flat_map(move |size| DEPTHS.map(|depth| Spot { way, size, depth }));
    let bytes = area.bytes();
    let spots: Vec<Spot> = ways.iter().copied().flat_map(sizes).collect();
    let spots: Vec<Spot> =
        spots.into_iter().filter(|spot| (spot.size * spot.depth) as u64 <= bytes).collect();
    let mut passes: Vec<Vec<_>> = spots.iter().map(|_| Vec::new()).collect();
    for _ in 0..PASSES {
        for (&spot, passes) in spots.iter().zip(&mut passes) {
            passes.push(area.measure(spot, (span / 16).min(LOOK), None)?);
        }
    }
    let cells = spots.iter().zip(&passes).filter_map(|(&spot, passes)| Cell::new(spot, passes));
    Ok(cells.max_by(|a, b| a.mb_per_s.total_cmp(&b.mb_per_s)).expect("the smallest of them fits"))
}

/// A log that is trimmed now and then by whoever appends, so that its ring never fills.
pub struct Trimmed {
    pub log: Log,
    pub volume: Arc<dyn Volume>,
    /// Bytes of the ring that the appends took at most.
    appended: AtomicU64,
}

/// After so many of them the ring is looked at.
const LOOK_AT_RING: u64 = 4 << 20;

impl Trimmed {
    /// A new log on a volume.
    pub fn new(volume: Arc<dyn Volume>, options: LogOptions) -> Result<Self, Failure> {
        let log = Log::create(volume.clone(), options.ring_size(RING).overwrite(true))?;
        Ok(Self { log, volume, appended: AtomicU64::new(0) })
    }

    /// Appends, waiting for room where there is none.
    pub fn append(&self, record: &[u8]) -> Result<(Lsn, Ack), Failure> {
        let appended = self.log.append(record)?;
        // One that is waited for takes sectors of its own.
        let most = (record.len().next_multiple_of(SECTOR) + SECTOR) as u64;
        let before = self.appended.fetch_add(most, Ordering::Relaxed);
        if before / LOOK_AT_RING != (before + most) / LOOK_AT_RING {
            let stats = self.log.stats();
            if stats.ring.used > RING / 4 {
                self.log.trim(stats.durable)?;
            }
        }
        Ok(appended)
    }
}

/// What one thread that does not wait brought about, while the log was at it all the time.
pub struct Flooded {
    /// Payload bytes.
    pub bytes: u64,
    /// Bytes that the volume took.
    pub written: u64,
    /// How long it took.
    pub took: Duration,
    /// Share of a core that the appending thread used, and all others of this process together.
    /// Unknown: none.
    pub cores: Option<(f64, f64)>,
}

impl Flooded {
    /// Payload bandwidth in MB/s.
    pub fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.took.as_secs_f64()
    }

    /// Bytes written for each byte of payload.
    pub fn written_per_byte(&self) -> f64 {
        self.written as f64 / self.bytes as f64
    }
}

/// Appends as fast as it goes, without waiting for acknowledgements, for as long as `more` says and
/// then for `span`; only that counts. `append` appends something and tells how many bytes.
pub fn flood(
    log: &Trimmed,
    mut more: impl FnMut(Duration) -> bool,
    span: Duration,
    mut append: impl FnMut() -> Result<usize, Failure>,
) -> Result<Flooded, Failure> {
    // The clock is looked at after so many bytes: each look costs as much as a small append.
    const LOOK: usize = 64 << 10;
    let mut some = || -> Result<u64, Failure> {
        let mut bytes = 0;
        while bytes < LOOK {
            bytes += append()?;
        }
        Ok(bytes as u64)
    };
    let start = Instant::now();
    while more(start.elapsed()) {
        some()?;
    }
    let (start, written, cpu) = (Instant::now(), log.volume.counts().written_bytes, Cpu::now());
    let mut bytes = 0;
    while start.elapsed() < span || bytes == 0 {
        bytes += some()?;
    }
    let took = start.elapsed();
    let written = log.volume.counts().written_bytes - written;
    let cores = cpu.and_then(|before| Some(before.shares(Cpu::now()?, took)));
    Ok(Flooded { bytes, written, took, cores })
}
