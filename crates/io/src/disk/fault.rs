//! The faults of a disk, and their times.

use std::io;
use std::ops::Range;

use super::pages::Pages;

/// A fault of a [`Disk`](super::Disk). A fault replaces an earlier one of the same variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// After this many more writes and flushes, the power goes off during the next one. That
    /// operation fails with its effect left pending, and every later operation fails, including
    /// reads.
    PowerOffAfter(u64),
    /// After `operations` more writes and flushes, the next one fails. A failed write leaves any
    /// number of its sectors behind; a failed flush drops some of the writes that it should have
    /// made durable.
    ErrorAfter {
        /// Number of writes and flushes that still succeed.
        operations: u64,
        /// Kind of the error.
        kind: io::ErrorKind,
        /// Whether all later writes and flushes fail as well.
        sticky: bool,
    },
    /// After `flushes` more flushes, the next one fails, as for [`ErrorAfter`](Self::ErrorAfter).
    FlushErrorAfter {
        /// Number of flushes that still succeed.
        flushes: u64,
        /// Kind of the error.
        kind: io::ErrorKind,
        /// Whether all later flushes fail as well.
        sticky: bool,
    },
    /// After `changes` more changes of the size or of the holes, the next one fails without an
    /// effect.
    SizeErrorAfter {
        /// Number of changes that still succeed.
        changes: u64,
        /// Kind of the error.
        kind: io::ErrorKind,
        /// Whether all later changes fail as well.
        sticky: bool,
    },
    /// After `reads` more reads, the next one fails.
    ReadErrorAfter {
        /// Number of reads that still succeed.
        reads: u64,
        /// Kind of the error.
        kind: io::ErrorKind,
        /// Whether all later reads fail as well.
        sticky: bool,
    },
    /// After `reads` more reads, the next read that would differ returns the bytes from the time
    /// when this fault was added; beyond the end at that time, zeros. Later reads are right again.
    StaleReadAfter {
        /// Number of reads that are still right.
        reads: u64,
    },
    /// After `writes` more writes through a queue, the next one never ends.
    HangAfter {
        /// Number of writes that still end.
        writes: u64,
    },
    /// After `writes` more writes, the next one reports success and has a silent fault.
    LieAfter {
        /// Number of writes that are still right.
        writes: u64,
        /// Kind of the silent fault.
        fault: SilentFault,
    },
    /// The disk has room for this many bytes, without the bytes in holes. Growing, and filling
    /// holes, beyond that fails with [`io::ErrorKind::StorageFull`].
    Full(u64),
    /// Every failing operation panics from now on, as the code of a user's volume may.
    Panics,
    /// About every other read and write of more than one unit of alignment moves only a part.
    ShortTransfers,
}

/// A silent fault of a write, or of a read, that reports success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SilentFault {
    /// A read returns earlier bytes.
    Stale,
    /// A write leaves no trace: the earlier bytes stay.
    Lost,
    /// Only the first part of a write arrives.
    Shorn,
    /// A write arrives somewhere else.
    Misdirected,
    /// A write arrives with one bit wrong.
    Flipped,
}

/// A record of a write or a read with a silent fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentFaultRecord {
    /// Kind of the fault.
    pub fault: SilentFault,
    /// Intended target of the write, or source of the read, in bytes.
    pub meant: Range<u64>,
    /// Actual target of a misdirected write, in bytes.
    pub landed: Option<Range<u64>>,
}

/// The planned faults.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) power_off: Option<u64>,
    pub(super) error: Option<ErrorPlan>,
    pub(super) flush_error: Option<ErrorPlan>,
    pub(super) read_error: Option<ErrorPlan>,
    pub(super) size_error: Option<ErrorPlan>,
    pub(super) fault: Option<(u64, SilentFault)>,
    pub(super) full: Option<u64>,
    pub(super) short: bool,
    pub(super) panics: bool,
    /// Bytes of the next stale read, after some reads that are right.
    pub(super) stale: Option<(u64, Pages)>,
    pub(super) hang: Option<u64>,
}

impl Plan {
    /// Adds a fault; `image` is the current content of the disk.
    pub(super) fn add(&mut self, fault: Fault, image: &Pages) {
        match fault {
            Fault::PowerOffAfter(operations) => self.power_off = Some(operations),
            Fault::ErrorAfter { operations, kind, sticky } => {
                self.error = Some(ErrorPlan { operations, kind, sticky });
            }
            Fault::FlushErrorAfter { flushes, kind, sticky } => {
                self.flush_error = Some(ErrorPlan { operations: flushes, kind, sticky });
            }
            Fault::SizeErrorAfter { changes, kind, sticky } => {
                self.size_error = Some(ErrorPlan { operations: changes, kind, sticky });
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

    /// Returns whether an operation will still fail.
    pub(super) fn is_to_fail(&self) -> bool {
        self.power_off.is_some()
            || self.error.is_some()
            || self.flush_error.is_some()
            || self.read_error.is_some()
            || self.size_error.is_some()
    }

    /// Counts a write through a queue; returns whether it never ends.
    pub(super) fn hangs(&mut self) -> bool {
        let hangs = self.hang == Some(0);
        self.hang = if hangs { None } else { self.hang.map(|left| left - 1) };
        hangs
    }
}

/// Errors after some operations that succeed.
pub(super) struct ErrorPlan {
    operations: u64,
    kind: io::ErrorKind,
    sticky: bool,
}

impl ErrorPlan {
    /// Counts an operation; returns its error, if it is due.
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
