//! The interruptions of a step.

use brooklet::io::Rng;

/// The event of an interruption, between two operations on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// A power cut, tried on a copy of the disk.
    Cut,
    /// A kill of the process, tried on a copy of the disk: its writes exist, durable or not.
    Kill,
    /// Other callers write, and wait if they may.
    Write(u64),
    /// Another caller reads a log.
    Read,
    /// The store's own work continues.
    Work,
}

/// The kind of operation on the disk before which an interruption occurs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Any operation.
    Anywhere,
    /// An operation on the superblock: while a checkpoint or a compaction takes effect.
    Superblock,
}

/// An interruption of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Least number of operations on the disk before the interruption.
    pub after: u64,
    /// Kind of the next operation.
    pub place: Place,
    /// Event of the interruption.
    pub what: Meanwhile,
}

impl Interrupt {
    /// Draws an interruption after at most `spread` operations.
    pub fn draw(rng: &mut Rng, spread: u64, what: Meanwhile) -> Self {
        match rng.percent(30) {
            true => Self { after: rng.below(3), place: Place::Superblock, what },
            false => Self { after: rng.below(spread), place: Place::Anywhere, what },
        }
    }
}
