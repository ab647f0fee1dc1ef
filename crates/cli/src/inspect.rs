//! The structure of a store, its checks and its upkeep: `inspect`, `check`, `checkpoint`,
//! `compact`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use brooklet::io::VolumeInfo;
use brooklet::{End, RunInfo, Store, StoreInfo};
use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;

use crate::beside::Reader;
use crate::colours::{bad, good, warning};
use crate::failure::{Failure, Kind};
use crate::logs::LogRow;
use crate::output::{Output, counted, progress};
use crate::signals;
use crate::store_args::StoreArgs;
use crate::time::Moment;

#[derive(Args)]
pub struct Inspect {
    /// The store: a file or a block device
    store: PathBuf,
    /// The key of one log, to show its bounds
    log: Option<OsString>,
}

#[derive(Args)]
pub struct Only {
    /// The store: a file or a block device
    store: PathBuf,
}

/// Prints the map of a store, or the bounds of a log.
pub fn inspect(args: Inspect, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let mut reader = Reader::open(&args.store, store_args)?;
    match args.log {
        Some(log) => {
            let log = log.as_bytes();
            let (bounds, retention) = reader.look(|store| Ok((store.bounds(log)?, store.retention(log)?)))?;
            out.put(&LogRow::new(log, bounds, retention))
        }
        None => {
            out.put(&Map::of(&reader.look(|store| Ok(store.info()?))?))?;
            reader
                .store()
                .damage()
                .first()
                .map_or(Ok(()), |damage| Err(Failure::new(Kind::Damaged, damage.to_string())))
        }
    }
}

/// Checks every checksum and invariant of a closed store.
pub fn check(args: Only, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    let bar = progress(0, "checking");
    let report = store_args.options()?.check(&args.store, |done| {
        bar.set_length(done.total_bytes.unwrap_or_default());
        bar.set_position(done.bytes);
        signals::go_on()
    })?;
    bar.finish_and_clear();
    let findings = report.findings.iter().map(|f| Finding { harmless: f.harmless, what: &f.what }).collect();
    let brooklet::CheckReport { blocks, runs, logs, entries, doubtful, .. } = report;
    out.put(&Checked { sound: report.is_sound(), blocks, runs, logs, entries, doubtful, findings })?;
    let count = report.findings.len();
    if report.is_sound() {
        Ok(())
    } else if report.findings.iter().all(|f| f.harmless) {
        Err(Failure::no(format!("defects found: {count}, all harmless; every log reads correctly")))
    } else {
        let left =
            format!("{logs} logs read correctly; `read`, `list` and `export` return the readable data");
        Err(Failure::no(format!("defects found: {count}; the store is damaged; {left}")))
    }
}

/// Writes recent entries to a run.
pub fn checkpoint(args: Only, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    upkeep(&args, store_args, out, Store::checkpoint)
}

/// Merges all runs into one.
pub fn compact(args: Only, store_args: &StoreArgs, out: &mut Output) -> Result<(), Failure> {
    upkeep(&args, store_args, out, Store::compact)
}

fn upkeep(
    args: &Only,
    store_args: &StoreArgs,
    out: &mut Output,
    work: impl FnOnce(&Store) -> Result<(), brooklet::Error>,
) -> Result<(), Failure> {
    let store = store_args.open(&args.store)?;
    work(&store)?;
    let info = store.info()?;
    store.close()?;
    out.put(&Kept {
        runs: info.runs.len(),
        run_bytes: info.runs.iter().map(|run| run.bytes).sum(),
        heap_free: info.heap_free,
        written_bytes: info.maintenance.heap_written_bytes,
    })
}

#[derive(Serialize)]
struct Kept {
    runs: usize,
    run_bytes: u64,
    heap_free: u64,
    written_bytes: u64,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [used, free, written] = [self.run_bytes, self.heap_free, self.written_bytes].map(HumanBytes);
        let runs = counted(self.runs as u64, "run");
        write!(f, "{runs} of {used} in all, {free} free in the heap, {written} written")
    }
}

#[derive(Serialize)]
struct Finding<'a> {
    harmless: bool,
    what: &'a str,
}

#[derive(Serialize)]
struct Checked<'a> {
    sound: bool,
    blocks: u64,
    runs: u64,
    logs: u64,
    entries: u64,
    doubtful: u64,
    findings: Vec<Finding<'a>>,
}

impl fmt::Display for Checked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let kind = if finding.harmless { warning("harmless") } else { bad("damage") };
            writeln!(f, "{kind}: {}", finding.what)?;
        }
        let Self { blocks, runs, logs, entries, .. } = self;
        let verdict = if self.sound { good("sound") } else { bad("not sound") };
        write!(f, "{verdict}: checked {}, {}, ", counted(*blocks, "ring block"), counted(*runs, "run"))?;
        write!(f, "{}, {}", counted(*logs, "log"), counted(*entries, "entry"))?;
        match self.doubtful {
            0 => Ok(()),
            n => write!(f, "; {n} more logs read as they were before the damage in the ring"),
        }
    }
}

/// A store, zone by zone.
#[derive(Serialize)]
struct Map<'a> {
    name: &'a str,
    id: String,
    format: u32,
    created: Moment,
    epoch: u64,
    generation: u64,
    size: u64,
    capacity: u64,
    volume: Volume<'a>,
    ring_volume: Option<Volume<'a>>,
    zones: [Zone; 3],
    ring: Ring,
    recent: Recent,
    runs: Vec<Run>,
}

#[derive(Serialize)]
struct Volume<'a> {
    name: &'a str,
    device: Option<Device>,
    backend: &'a str,
    direct: bool,
    durable_by: &'a str,
    fallbacks: &'a [String],
}

/// Bytes of a device's blocks.
#[derive(Serialize)]
struct Device {
    logical_block: u32,
    physical_block: u32,
}

impl<'a> From<&'a VolumeInfo> for Volume<'a> {
    fn from(info: &'a VolumeInfo) -> Self {
        let VolumeInfo { name, backend, direct, durable_by, fallbacks, .. } = info;
        let device = info.device.map(|device| Device {
            logical_block: device.logical_block,
            physical_block: device.physical_block,
        });
        Self { name, device, backend, direct: *direct, durable_by, fallbacks }
    }
}

#[derive(Serialize)]
struct Zone {
    zone: &'static str,
    offset: u64,
    size: u64,
    used: u64,
}

#[derive(Serialize)]
struct Ring {
    size: u64,
    next_position: u64,
    next_block: u64,
    epoch: u64,
    blocks: u64,
    ended: &'static str,
    dropped_blocks: u64,
    withheld_blocks: u64,
    unproven_blocks: u64,
}

#[derive(Serialize)]
struct Recent {
    logs: usize,
    bytes: usize,
}

#[derive(Serialize)]
struct Run {
    id: u64,
    level: u64,
    tables: usize,
    offset: u64,
    bytes: u64,
    offloaded: bool,
    raw_bytes: u64,
    logs: u64,
    entries: u64,
    dead: u64,
    merging: bool,
    memory_bytes: usize,
}

impl From<&RunInfo> for Run {
    fn from(run: &RunInfo) -> Self {
        let &RunInfo { id, level, tables, offset, bytes, offloaded, raw_bytes, .. } = run;
        let &RunInfo { logs, entries, dead, merging, memory_bytes, .. } = run;
        Self {
            id,
            level,
            tables,
            offset,
            bytes,
            offloaded,
            raw_bytes,
            logs,
            entries,
            dead,
            merging,
            memory_bytes,
        }
    }
}

impl<'a> Map<'a> {
    /// The map of a store that is open for reading: the ring's use is what recovery met there.
    fn of(info: &'a StoreInfo) -> Self {
        let recovery = &info.recovery;
        // The writer of the store may have shortened the file since it was opened here.
        let heap = info.size.saturating_sub(info.heap_offset);
        let zone = |zone, offset, size, used| Zone { zone, offset, size, used };
        let (ended, dropped_blocks) = match recovery.end {
            End::Clean => ("clean", 0),
            End::Open => ("open", 0),
            End::Torn(blocks) => ("torn", blocks),
        };
        Self {
            name: &info.volume.name,
            id: format!("{:032x}", info.id),
            format: info.format,
            created: Moment::whole_seconds(info.created),
            epoch: info.epoch,
            generation: info.generation,
            size: info.size,
            capacity: info.capacity,
            volume: Volume::from(&info.volume),
            ring_volume: info.ring_volume.as_ref().map(Volume::from),
            zones: [
                zone("superblock", 0, info.ring_offset, info.superblock_copies as u64 * 4096),
                zone("ring", info.ring_offset, info.ring_size, recovery.block_bytes),
                zone("heap", info.heap_offset, heap, heap.saturating_sub(info.heap_free)),
            ],
            ring: Ring {
                size: info.ring_in_use,
                next_position: recovery.next.position,
                next_block: recovery.next.seq,
                epoch: recovery.epoch,
                blocks: recovery.blocks,
                ended,
                dropped_blocks,
                withheld_blocks: recovery.withheld,
                unproven_blocks: recovery.unproven,
            },
            recent: Recent { logs: info.memtable_logs, bytes: info.memtable_bytes },
            runs: info.runs.iter().map(Run::from).collect(),
        }
    }
}

impl fmt::Display for Volume<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direct = if self.direct { "direct" } else { "through the page cache" };
        if let Some(Device { logical_block, physical_block }) = &self.device {
            write!(f, "block device of blocks of {logical_block} (physical {physical_block}) bytes, ")?;
        }
        write!(f, "{}, {direct}, durable by {}", self.backend, self.durable_by)?;
        self.fallbacks.iter().try_for_each(|line| write!(f, "\n           {line}"))
    }
}

impl fmt::Display for Map<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, id, format, created, epoch, generation, volume, ring, recent, .. } = self;
        let bytes = |n: u64| HumanBytes(n).to_string();
        writeln!(f, "{name}: {}, format {format}, id {id}", bytes(self.size))?;
        writeln!(
            f,
            "created    {created}, opened {epoch} times for writing, superblock generation {generation}"
        )?;
        if self.capacity > 0 {
            writeln!(f, "capacity   {}", bytes(self.capacity))?;
        }
        writeln!(f, "volume     {volume}")?;
        if let Some(apart) = &self.ring_volume {
            writeln!(f, "ring at    {}: {apart}", apart.name)?;
        }
        writeln!(f, "\n{:<10} {:>14} {:>12} {:>12}", "zone", "offset", "size", "used")?;
        for Zone { zone, offset, size, used } in &self.zones {
            writeln!(f, "{zone:<10} {offset:>14} {:>12} {:>12}", bytes(*size), bytes(*used))?;
        }
        let Ring {
            next_position,
            size,
            next_block,
            epoch,
            blocks,
            ended,
            dropped_blocks,
            withheld_blocks,
            unproven_blocks,
        } = ring;
        let size = HumanBytes(*size);
        writeln!(f, "\nring       {blocks} blocks of epochs up to {epoch}, in a ring that has {size} now")?;
        let ended = match *ended {
            "clean" => "closed cleanly".to_owned(),
            "open" => "not closed; nothing was being written".to_owned(),
            _ => format!("not closed; {dropped_blocks} unacknowledged blocks behind the end are dropped"),
        };
        writeln!(f, "           next block {next_block} at position {next_position}; {ended}")?;
        if *withheld_blocks > 0 {
            let why = "a power cut could discard them; an opening for writing makes them durable";
            writeln!(f, "           the last {withheld_blocks} blocks are not shown: {why}")?;
        }
        if *unproven_blocks > 0 {
            let what = "blocks are shown, and a power cut could discard them";
            writeln!(
                f,
                "           the last {unproven_blocks} {what}; an opening for writing makes them durable"
            )?;
        }
        write!(f, "recent     {} logs, {} of memory", recent.logs, bytes(recent.bytes as u64))?;
        if !self.runs.is_empty() {
            let head =
                ["run", "level", "tables", "offset", "bytes", "raw", "logs", "entries", "dead", "memory"];
            write!(f, "\n\n{}", head.map(|title| format!("{title:>11}")).concat())?;
        }
        for run in &self.runs {
            let Run { id, level, tables, offset, logs, entries, dead, .. } = run;
            let (size, raw, memory) =
                (bytes(run.bytes), bytes(run.raw_bytes), bytes(run.memory_bytes as u64));
            write!(
                f,
                "\n{id:>11}{level:>11}{tables:>11}{offset:>11}{size:>11}{raw:>11}{logs:>11}{entries:>11}{dead:>11}{memory:>11}"
            )?;
            if run.merging {
                write!(f, "  being merged")?;
            }
            if run.offloaded {
                write!(f, "  offloaded")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Its writer may have shortened the file since the store was opened, or others cut it.
    #[test]
    fn a_store_whose_file_became_shorter_has_a_map() {
        let mut info = Store::in_memory(1).unwrap().info().unwrap();
        info.heap_free = 1 << 20;
        for size in [info.heap_offset + 1, info.heap_offset, info.heap_offset - 1] {
            info.size = size;
            let [.., heap] = Map::of(&info).zones;
            assert_eq!((heap.size, heap.used), (size.saturating_sub(info.heap_offset), 0));
        }
    }
}
