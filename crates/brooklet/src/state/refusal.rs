//! The blocks on which a refusal depends.
//!
//! A refusal reports a fact about a log, such as its next number, or that it does not exist. The
//! caller acts on this fact as on a read. For example, a client that repeats a commit after a lost
//! answer, and gets a conflict, assumes that its first commit is stored. A refusal is therefore
//! returned only after every commit that it depends on is durable, so that a power failure cannot
//! undo them.

use std::collections::BTreeSet;

use crate::error::Error;
use crate::model::commit::Op;
use crate::state::{PendingBlock, StoreState};

impl StoreState {
    /// Returns the last block that is not durable yet and on which refusing `ops` with `error`
    /// depends, if any.
    pub fn rests_on(&self, ops: &[Op<'_>], error: &Error) -> Option<u64> {
        match error {
            Error::Conflict { .. } | Error::UnknownLog { .. } | Error::OutOfRange { .. } => {
                self.last_pending_on(ops)
            }
            // The totals of a space depend on all of its logs.
            Error::QuotaReached { .. } => self.pending.back().map(|pending| pending.block.seq()),
            _ => None,
        }
    }

    /// Returns the last block that is not durable yet and that changes a log of `ops`. Looks at
    /// each effect once: a long commit may be refused while another one on its logs is in flight.
    fn last_pending_on(&self, ops: &[Op<'_>]) -> Option<u64> {
        let mut moving = BTreeSet::new();
        for (memtable, generation) in self.memtables().zip((0..=self.generation).rev()) {
            let slots = ops.iter().filter_map(|op| memtable.find(op.key));
            let slots = slots.filter(|slot| memtable.log(*slot).in_flight > 0);
            moving.extend(slots.map(|slot| (generation, slot)));
        }
        if moving.is_empty() {
            return None;
        }
        let changes = |block: &&PendingBlock| {
            block.effects.iter().any(|effect| moving.contains(&(block.generation, effect.slot)))
        };
        self.pending.iter().rev().find(changes).map(|pending| pending.block.seq())
    }
}
