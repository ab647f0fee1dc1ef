//! What happens in the middle of a step.

use brooklet::io::Rng;

/// What happens in the middle of a step, between two operations on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meanwhile {
    /// A power cut here is tried out, on a copy.
    Cut,
    /// The death of the process here is tried out, on a copy: what it wrote is there, durable or
    /// not.
    Kill,
    /// Other callers write, and wait where they may.
    Write(u64),
    /// Another caller reads a log.
    Read,
    /// The store's own work goes on.
    Work,
}

/// Before which operation on the disk something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Any.
    Anywhere,
    /// One on the superblock: while a checkpoint or a compaction takes effect.
    Superblock,
}

/// Something that happens in the middle of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupt {
    /// Operations on the disk before it, at least.
    pub after: u64,
    /// What the operation to come is on.
    pub place: Place,
    /// What.
    pub what: Meanwhile,
}

impl Interrupt {
    /// Draws one that comes after at most `spread` operations.
    pub fn draw(rng: &mut Rng, spread: u64, what: Meanwhile) -> Self {
        match rng.percent(30) {
            true => Self { after: rng.below(3), place: Place::Superblock, what },
            false => Self { after: rng.below(spread), place: Place::Anywhere, what },
        }
    }
}
