//! What can go wrong with a disk, and when it is to.

use std::io;
use std::ops::Range;

use super::pages::Pages;

/// Something that goes wrong with a [`Disk`](super::Disk). A fault replaces an earlier one of the
/// same variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// After this many more writes and flushes the power goes off during the next one. That one
    /// fails with its effect left pending, and whatever follows, reads included, fails too.
    PowerOffAfter(u64),
    /// After `operations` more writes and flushes the next one fails. A failed write leaves any
    /// number of its sectors behind; a failed flush drops some of what it should have made durable.
    ErrorAfter {
        /// Writes and flushes that still succeed.
        operations: u64,
        /// The kind of the error.
        kind: io::ErrorKind,
        /// Whether all later writes and flushes fail as well.
        sticky: bool,
    },
    /// After `flushes` more flushes the next one fails, as for [`ErrorAfter`](Self::ErrorAfter).
    FlushErrorAfter {
        /// Flushes that still succeed.
        flushes: u64,
        /// The kind of the error.
        kind: io::ErrorKind,
        /// Whether all later flushes fail as well.
        sticky: bool,
    },
    /// After `reads` more reads the next one fails.
    ReadErrorAfter {
        /// Reads that still succeed.
        reads: u64,
        /// The kind of the error.
        kind: io::ErrorKind,
        /// Whether all later reads fail as well.
        sticky: bool,
    },
    /// After `reads` more reads the next one for which it makes a difference is answered with the
    /// bytes that were there when the disk was told of this fault; beyond its end then, with zeros.
    /// Later reads are right again.
    StaleReadAfter {
        /// Reads that are still right.
        reads: u64,
    },
    /// After `writes` more writes by way of a queue the next one never ends.
    HangAfter {
        /// Writes that still end.
        writes: u64,
    },
    /// After `writes` more writes the next one is answered as if all were well, and is not.
    LieAfter {
        /// Writes that are still carried out as they should be.
        writes: u64,
        /// What becomes of that one.
        fault: SilentFault,
    },
    /// The disk has room for so many bytes, those in holes not counted. Growing, and filling holes,
    /// beyond that fails with [`io::ErrorKind::StorageFull`].
    Full(u64),
    /// What fails from now on panics, as the code of a user's volume may.
    Panics,
    /// About every other read and write of more than one unit of alignment moves only a part.
    ShortTransfers,
}

/// What becomes of a write, or of a read, that is reported as done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentFault {
    /// A read gives what was there before.
    Stale,
    /// It leaves no trace: what was there before stays.
    Lost,
    /// Only its first part arrives.
    Shorn,
    /// It arrives somewhere else.
    Misdirected,
    /// It arrives with one bit wrong.
    Flipped,
}

/// A write or a read that a disk lied about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentFaultRecord {
    /// What became of it.
    pub fault: SilentFault,
    /// Where it should have gone, or was to come from, in bytes.
    pub meant: Range<u64>,
    /// Where it went instead, if it was misdirected.
    pub landed: Option<Range<u64>>,
}

/// What is to go wrong.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) power_off: Option<u64>,
    pub(super) error: Option<ErrorPlan>,
    pub(super) flush_error: Option<ErrorPlan>,
    pub(super) read_error: Option<ErrorPlan>,
    pub(super) fault: Option<(u64, SilentFault)>,
    pub(super) full: Option<u64>,
    pub(super) short: bool,
    pub(super) panics: bool,
    /// What the next stale read gives, after some that are right.
    pub(super) stale: Option<(u64, Pages)>,
    pub(super) hang: Option<u64>,
}

impl Plan {
    /// `image` is what the disk holds now.
    pub(super) fn add(&mut self, fault: Fault, image: &Pages) {
        match fault {
            Fault::PowerOffAfter(operations) => self.power_off = Some(operations),
            Fault::ErrorAfter { operations, kind, sticky } => {
                self.error = Some(ErrorPlan { operations, kind, sticky });
            }
            Fault::FlushErrorAfter { flushes, kind, sticky } => {
                self.flush_error = Some(ErrorPlan { operations: flushes, kind, sticky });
            }
            Fault::ReadErrorAfter { reads, kind, sticky } => {
                self.read_error = Some(ErrorPlan { operations: reads, kind, sticky });
            }
            Fault::LieAfter { writes, fault } => self.fault = Some((writes, fault)),
            Fault::Full(size) => self.full = Some(size),
            Fault::ShortTransfers => self.short = true,
            Fault::Panics => self.panics = true,
            Fault::StaleReadAfter { reads } => self.stale = Some((reads, image.clone())),
            Fault::HangAfter { writes } => self.hang = Some(writes),
        }
    }

    /// Whether an operation is still to fail.
    pub(super) fn is_to_fail(&self) -> bool {
        self.power_off.is_some()
            || self.error.is_some()
            || self.flush_error.is_some()
            || self.read_error.is_some()
    }

    /// Counts a write by way of a queue; whether it is the one that never ends.
    pub(super) fn hangs(&mut self) -> bool {
        let hangs = self.hang == Some(0);
        self.hang = if hangs { None } else { self.hang.map(|left| left - 1) };
        hangs
    }
}

/// Errors that come after some operations that succeed.
pub(super) struct ErrorPlan {
    operations: u64,
    kind: io::ErrorKind,
    sticky: bool,
}

impl ErrorPlan {
    /// Counts an operation; the error where it is this one's turn.
    pub(super) fn count(plan: &mut Option<ErrorPlan>) -> Result<(), io::ErrorKind> {
        match plan {
            Some(ErrorPlan { operations: 0, kind, sticky }) => {
                let kind = *kind;
                if !*sticky {
                    *plan = None;
                }
                Err(kind)
            }
            Some(plan) => {
                plan.operations -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}
