//! The report of a probe, for people and for programs.

use std::fmt;

use serde::Serialize;

use super::advice::Setting;
use super::guard::What;
use super::measure::Cell;
use super::plan::{BATCH, SIZES, Way};
use super::timer::{Timer, Wait};

/// The report.
#[derive(Debug, Serialize)]
pub struct Report {
    pub path: String,
    pub what: What,
    /// How several operations in flight are carried out.
    pub backend: &'static str,
    /// Whether the page cache is bypassed.
    pub direct: bool,
    /// Of a block device.
    pub device: Option<Blocks>,
    /// How a write is made durable by itself.
    pub durable_by: &'static str,
    /// Why a better way is not in use.
    pub fallbacks: Vec<String>,
    /// Bytes that were written over and over, or read.
    pub bytes: u64,
    pub seconds: f64,
    /// Measurements that found no time left.
    pub skipped: usize,
    pub cells: Vec<Cell>,
    pub timers: Vec<Timer>,
    pub settings: Vec<Setting>,
}

/// The sizes of a block device's blocks, in bytes.
#[derive(Debug, Serialize)]
pub struct Blocks {
    /// Logical block size: the least write that the device accepts.
    pub logical_block: u32,
    /// Physical block size; smaller writes cause read-modify-write.
    pub physical_block: u32,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.what {
            What::Directory => "a directory, by files of its own",
            What::BlankDevice => "a blank device, blank again",
            What::ReadOnly => "reads only",
        };
        let path = if self.direct { "direct" } else { "through the page cache" };
        writeln!(f, "probed    {}: {what}", self.path)?;
        writeln!(f, "how       {path}, {}, durable by {}", self.backend, self.durable_by)?;
        if let Some(Blocks { logical_block, physical_block }) = self.device {
            writeln!(f, "blocks    {logical_block} bytes, physically {physical_block}")?;
        }
        for fallback in &self.fallbacks {
            writeln!(f, "          {fallback}")?;
        }
        writeln!(f, "in        {:.1} s, on {} MiB", self.seconds, self.bytes >> 20)?;
        if self.skipped > 0 {
            writeln!(f, "skipped   {} measurements for lack of time; use more --seconds", self.skipped)?;
        }
        for way in Way::ALL {
            self.table(f, way)?;
        }
        writeln!(f, "\n{:<37}{:>9} {:>9}", "Waking up, and how late", "p50 µs", "p99 µs")?;
        for timer in &self.timers {
            let wait = match timer.wait {
                Wait::Sleep => "slept".to_owned(),
                Wait::ExactSleep => "slept, exact timers".to_owned(),
                Wait::SleepThenSpin => format!("and spun for the last {:.0}", timer.spin_us),
            };
            let Timer { asked_us, p50_late_us, p99_late_us, .. } = timer;
            writeln!(f, "{asked_us:>6.0} µs  {wait:<25} {p50_late_us:>9.1} {p99_late_us:>9.1}")?;
        }
        self.settings(f)
    }
}

impl Report {
    /// What follows for a store here, if durable writes were measured.
    fn settings(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.cells.iter().any(|cell| matches!(cell.way, Way::Durable | Way::Window)) {
            return Ok(());
        }
        write!(f, "\nSettings that follow")?;
        for Setting { set, why } in &self.settings {
            write!(f, "\n  {set}\n      {why}")?;
        }
        let what = if self.settings.is_empty() { "nothing" } else { "nothing else" };
        write!(
            f,
            "\n  {what} to set: how writes become durable is found out at each opening, block size and depth under load"
        )
    }

    /// Of one way: the latencies of its least depth, and the bandwidths of all.
    fn table(&self, f: &mut fmt::Formatter<'_>, way: Way) -> fmt::Result {
        if self.cells.iter().all(|cell| cell.way != way) {
            return Ok(());
        }
        writeln!(f, "\n{}", self.heading(way))?;
        let depths = way.depths();
        write!(f, "{:>8} {:>9} {:>9}   ", "size", "p50 µs", "p99 µs")?;
        if depths.len() > 1 {
            write!(f, "MB/s at ")?;
            depths.iter().try_for_each(|depth| write!(f, "{depth:>8}"))?;
            writeln!(f)?;
        } else {
            writeln!(f, "{:>8}", "MB/s")?;
        }
        for size in SIZES {
            let cell = |depth| self.cells.iter().find(|c| (c.way, c.size, c.depth) == (way, size, depth));
            let Some(first) = cell(depths[0]) else { continue };
            write!(f, "{:>8} {:>9.1} {:>9.1}   ", size_name(size as f64), first.p50_us, first.p99_us)?;
            if depths.len() > 1 {
                write!(f, "{:8}", "")?;
            }
            for &depth in depths {
                match cell(depth) {
                    Some(cell) => write!(f, "{:>8.1}", cell.mb_per_s)?,
                    None => write!(f, "{:>8}", "-")?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }

    fn heading(&self, way: Way) -> String {
        match way {
            Way::Durable => {
                format!("Writes, each durable by itself ({}), by the number in flight", self.durable_by)
            }
            Way::Window => "Windows of several writes, then one flush; latencies of windows of one".into(),
            Way::Read => "Reads in order, by the number in flight".into(),
            Way::Append => "Appends to a plain file, held open, a flush after each".into(),
            Way::AppendBatch => {
                format!("The same, a flush after {BATCH}; latencies of {BATCH} and their flush")
            }
            Way::OpenAppend => "Open, append, flush, close".into(),
        }
    }
}

/// A size as people write it.
pub fn size_name(bytes: f64) -> String {
    match bytes as u64 {
        kib if kib < 1 << 20 => format!("{} KiB", kib >> 10),
        mib => format!("{} MiB", mib >> 20),
    }
}
