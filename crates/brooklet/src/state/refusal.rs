//! The blocks on which a refusal depends.
//!
//! A refusal reports a fact about a log, such as its next number, or that it does not exist. The
//! caller acts on this fact as on a read. For example, a client that repeats a commit after a lost
//! answer, and gets a conflict, assumes that its first commit is stored. A refusal is therefore
//! returned only after every commit that it depends on is durable, so that a power failure cannot
//! undo them.

use crate::error::Error;
use crate::model::commit::Op;
use crate::state::StoreState;

impl StoreState {
    /// Returns the last block that is not durable yet and on which refusing `ops` with `error`
    /// depends, if any.
    pub fn rests_on(&self, ops: &[Op<'_>], error: &Error) -> Option<u64> {
        match error {
            Error::Conflict { .. } | Error::UnknownLog { .. } | Error::OutOfRange { .. } => {
                ops.iter().filter_map(|op| self.pending_on(op.key)).max()
            }
            // The totals of a space depend on all of its logs.
            Error::QuotaReached { .. } => self.pending.back().map(|pending| pending.block.seq()),
            _ => None,
        }
    }

    /// Returns the last block that is not durable yet and that changes a log.
    fn pending_on(&self, key: &[u8]) -> Option<u64> {
        let memtables = self.memtables().zip((0..=self.generation).rev());
        let moving = memtables.filter_map(|(memtable, generation)| {
            let slot = memtable.find(key)?;
            (memtable.log(slot).in_flight > 0).then_some((slot, generation))
        });
        let last = |(slot, generation)| {
            let blocks = self.pending.iter().rev().filter(move |block| block.generation == generation);
            let mut changing =
                blocks.filter(move |block| block.effects.iter().any(|effect| effect.slot == slot));
            changing.next().map(|pending| pending.block.seq())
        };
        moving.filter_map(last).max()
    }
}
