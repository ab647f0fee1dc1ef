//! The rehearsal of a long commit: the append step without its end.
//!
//! Each try of a commit takes the state's lock, and a refused try has taken it for nothing. For a
//! commit of many operations, that is long. So the operations of a long commit are rehearsed in
//! portions first, and other commits have their turns between two portions. A rehearsal finds all
//! logs, so that they are in memory afterwards, and adds up the room that the commit needs. It
//! leaves nothing else behind.

use brooklet_wal::Wal;

use crate::model::commit::Op;
use crate::state::StoreState;
use crate::state::admission::SpaceRequest;
use crate::state::append::Retry;
use crate::state::retention::CommitClock;

/// The room that a commit needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    space: SpaceRequest,
    /// The maximum bytes of the record.
    record: usize,
}

impl Needs {
    /// Of a commit without operations.
    pub const NONE: Self = Self { space: SpaceRequest { claim: 0, largest: 0, freeing: true }, record: 0 };

    /// Adds the needs of more operations of the commit.
    pub fn add(&mut self, more: Self) {
        self.space.claim += more.space.claim;
        self.space.largest = self.space.largest.max(more.space.largest);
        self.space.freeing &= more.space.freeing;
        self.record += more.record;
    }

    /// Returns the bytes that the commit may take in the heap.
    #[cfg(test)]
    pub fn claim(&self) -> u64 {
        self.space.claim
    }
}

impl StoreState {
    /// Rehearses some operations of a commit: returns their needs, or the reason why an append of
    /// these operations alone would not come as far as that.
    pub fn rehearse(&mut self, ops: &[Op<'_>], moment: &CommitClock<'_>) -> Result<Needs, Retry> {
        if ops.iter().any(|op| self.spaces.is_in_memory(op.key)) {
            return Err(Retry::InMemory);
        }
        self.begin_plan();
        let needs = self.plan(ops, moment).map(|()| {
            let space = self.space_request(ops, self.is_freeing(ops));
            Needs { space, record: self.record_bound(ops) }
        });
        self.undo(ops);
        needs
    }

    /// Checks whether a commit with these needs finds room now.
    pub fn has_room(&self, wal: &Wal, needs: &Needs) -> Result<(), Retry> {
        self.admit(needs.space)?;
        wal.admits(needs.record, needs.space.freeing).map_err(Retry::from)
    }
}
