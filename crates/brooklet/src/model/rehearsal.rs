//! The rehearsal of a long commit: hints that the commit keeps, and that the append step checks.

use crate::model::Bounds;
use crate::model::pending::{Pending, Slot};

/// The rehearsal of a commit.
#[derive(Debug, Default)]
pub(crate) struct Rehearsal {
    /// Number of the operations of the commit.
    pub ops: usize,
    /// The needs of the rehearsed operations, rounded up.
    pub needs: Needs,
    /// The slots of the logs of the rehearsed operations, which are the first ones.
    pub slots: Vec<Slot>,
    /// The plan of the whole commit, if the commit is simple enough for one.
    pub plan: Option<Plan>,
}

/// The effects of a commit whose every operation has one effect, each on another log without
/// limits, and the record of these effects.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The effects of the operations, with offsets in the record.
    pub effects: Vec<Pending>,
    /// The log of each effect, as it was when the effect was planned.
    pub before: Vec<Before>,
    pub record: Vec<u8>,
}

/// The appended state of a log before a planned effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Before {
    pub bounds: Option<Bounds>,
    /// Whether the active memtable had an effect of the log.
    pub touched: bool,
}

/// The room that a commit needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub space: SpaceRequest,
    /// The maximum bytes of the record.
    pub record: usize,
    /// Bytes of all entries.
    pub entries: usize,
}

impl Default for Needs {
    /// Returns the needs of a commit without operations.
    fn default() -> Self {
        let space = SpaceRequest { claim: 0, largest: 0, freeing: true, little: true, frees_much: true };
        Self { space, record: 0, entries: 0 }
    }
}

/// The space in the heap that a commit needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SpaceRequest {
    /// The maximum bytes that the commit takes in runs.
    pub claim: u64,
    /// The maximum bytes of an entry of a run.
    pub largest: usize,
    /// Whether the commit only frees space.
    pub freeing: bool,
    /// Whether the commit only frees space, or room is short and it frees space and adds little.
    pub little: bool,
    /// Whether such a commit deletes a log, drops more entries than it adds, or limits what logs
    /// keep: any work that makes room for it is worthwhile.
    pub frees_much: bool,
}
