//! What is measured, and how much time each measurement gets.

use std::time::{Duration, Instant};

use brooklet::io::SECTOR;
use serde::Serialize;

/// A way to write or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Direct writes at a depth, each on stable media by itself.
    Durable,
    /// As many direct writes as the depth says, then one flush for them all.
    Window,
    /// Direct reads in order, at a depth.
    Read,
    /// Appends to a plain file that is held open, a flush after each.
    Append,
    /// The same, a flush after every sixteen.
    AppendBatch,
    /// Open a plain file, append, flush, close.
    OpenAppend,
}

impl Way {
    /// All, in the order in which they are measured: what the settings follow from comes first.
    pub const ALL: [Way; 6] =
        [Way::Durable, Way::Window, Way::Read, Way::Append, Way::AppendBatch, Way::OpenAppend];

    /// Depths at which it is measured.
    pub fn depths(self) -> &'static [usize] {
        match self {
            Way::Durable | Way::Window | Way::Read => &[1, 2, 4, 8, 16],
            Way::AppendBatch => &[BATCH],
            Way::Append | Way::OpenAppend => &[1],
        }
    }

    /// Whether it is about a plain file of any length, and not a volume of aligned blocks.
    pub fn is_plain(self) -> bool {
        matches!(self, Way::Append | Way::AppendBatch | Way::OpenAppend)
    }
}

/// Appends between two flushes of [`Way::AppendBatch`].
pub const BATCH: usize = 16;

/// Times that each spot is measured, some time apart: whoever else uses the disk is not met in all
/// of them.
pub const PASSES: usize = 3;

/// Bytes of a write or read. Volumes take multiples of 4 KiB only.
pub const SIZES: [usize; 7] = [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// The largest of them.
pub const LARGEST: usize = SIZES[SIZES.len() - 1];

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The way.
    pub way: Way,
    /// Bytes of each write or read.
    pub size: usize,
    /// Writes or reads at once; for [`Way::AppendBatch`], appends to a flush.
    pub depth: usize,
}

/// All there is to measure: ways that write only where `writes`, sizes and depths for which `bytes`
/// have room.
pub fn plan(writes: bool, bytes: u64, plain: Option<u64>) -> Vec<Spot> {
    let mut spots = Vec::new();
    for way in Way::ALL.into_iter().filter(|way| writes || *way == Way::Read) {
        let room = if way.is_plain() { plain.unwrap_or(0) } else { bytes };
        for size in SIZES.into_iter().filter(|size| way.is_plain() || size.is_multiple_of(SECTOR)) {
            let depths = way.depths().iter().filter(|depth| (size * **depth) as u64 <= room);
            spots.extend(depths.map(|&depth| Spot { way, size, depth }));
        }
    }
    spots
}

/// The time given, divided among what is still to be done.
///
/// It is bounded by twice that, plus what was in flight when that ended: a measurement that
/// overruns its slice shortens the rest, down to one sample each, and past twice the time they are
/// skipped.
pub struct Budget {
    time: Duration,
    start: Instant,
}

impl Budget {
    /// So much, from now on.
    pub fn new(time: Duration) -> Self {
        Self { time, start: Instant::now() }
    }

    /// A share of what is left. Nothing is left of the time given: zero, which is enough for one
    /// sample. Nothing of twice that: none.
    pub fn slice(&self, shares: usize) -> Option<Duration> {
        let spent = self.start.elapsed();
        (spent < 2 * self.time).then(|| self.time.saturating_sub(spent) / shares.max(1) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_keeps_to_the_room_and_the_ways_there_are() {
        let all = plan(true, 256 << 20, Some(64 << 20));
        assert!(all.iter().all(|spot| spot.way.is_plain() || spot.size >= SECTOR));
        for way in Way::ALL {
            let smallest = if way.is_plain() { 7 } else { 6 };
            let planned = all.iter().filter(|spot| spot.way == way).count();
            assert_eq!(planned, smallest * way.depths().len(), "{way:?}");
        }
        let small = plan(true, 1 << 20, None);
        assert!(small.iter().all(|spot| !spot.way.is_plain() && spot.size * spot.depth <= 1 << 20));
        assert!(small.contains(&Spot { way: Way::Window, size: 64 << 10, depth: 16 }));
        assert!(plan(false, 256 << 20, Some(64 << 20)).iter().all(|spot| spot.way == Way::Read));
    }

    #[test]
    fn a_budget_is_shared_and_runs_out() {
        let budget = Budget::new(Duration::from_secs(100));
        let slice = budget.slice(10).unwrap();
        assert!(slice <= Duration::from_secs(10) && slice > Duration::from_secs(9), "{slice:?}");
        let at = |spent| Budget {
            time: Duration::from_secs(1),
            start: Instant::now() - Duration::from_millis(spent),
        };
        assert_eq!(at(1001).slice(7), Some(Duration::ZERO));
        assert_eq!(at(2000).slice(7), None);
    }
}
