//! The rehearsal of a long commit: the append step without its end.
//!
//! Each try of a commit takes the state's lock, and a refused try has taken it for nothing. For a
//! commit of many operations, that is long. So the operations of a long commit are rehearsed in
//! portions first, and other commits have their turns between two portions. A rehearsal finds all
//! logs, so that they are in memory afterwards, and adds up the room that the commit needs. It
//! leaves nothing else behind.
//!
//! The commit remembers its [`Rehearsal`]. It then finds its logs without a search, and waits for
//! room before its work and not after it.

use crate::model::commit::Op;
use crate::model::rehearsal::Rehearsal;
use crate::state::StoreState;
use crate::state::append::Retry;
use crate::state::retention::CommitClock;

impl StoreState {
    /// Rehearses the next operations of a commit, or returns the reason why an append of these
    /// operations alone would not come as far as that.
    pub fn rehearse(
        &mut self,
        ops: &[Op<'_>],
        moment: &CommitClock<'_>,
        rehearsal: &mut Rehearsal,
    ) -> Result<(), Retry> {
        if ops.iter().any(|op| self.spaces.is_in_memory(op.key)) {
            return Err(Retry::InMemory);
        }
        self.begin_plan();
        let planned = self.plan(ops, &[], moment);
        if planned.is_ok() {
            self.add_needs(ops, &mut rehearsal.needs);
            rehearsal.slots.extend(&self.slots);
        }
        self.undo(ops);
        planned
    }
}
