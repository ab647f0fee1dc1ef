//! The rehearsal of a long commit: the append step without its end.
//!
//! Each try of a commit takes the state's lock, and a refused try has taken it for nothing. For a
//! commit of many operations, that is long. So the operations of a long commit are rehearsed in
//! portions first, and other commits have their turns between two portions. A rehearsal finds all
//! logs, so that they are in memory afterwards, and adds up the room that the commit needs. It
//! leaves nothing else behind.
//!
//! The commit remembers its [`Rehearsal`]. It then finds its logs without a search, and waits for
//! room before its work and not after it. A simple commit is appended by the
//! [plan](crate::state::plan) of its rehearsal.
//!
//! The state keeps the memory of its current commit for the next one. A long commit makes that tens
//! of megabytes, and to get them anew takes milliseconds under the lock. So the memory stays while
//! long commits come, and leaves with the first memtable that none of them came to.

use std::mem;

use crate::model::commit::Op;
use crate::model::rehearsal::Rehearsal;
use crate::state::StoreState;
use crate::state::append::Retry;
use crate::state::retention::CommitClock;

/// Number of operations, and of effects, whose memory always stays.
const KEPT: usize = 4_096;

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
        self.rehearsed = Some(self.generation);
        self.begin_plan();
        let planned = self.plan(ops, &[], moment);
        if planned.is_ok() {
            self.add_needs(ops, &mut rehearsal.needs);
            rehearsal.slots.extend(&self.slots);
            rehearsal.plan = rehearsal.plan.take().and_then(|plan| self.keep_plan(ops, plan));
        }
        self.undo(ops);
        planned
    }

    /// Takes the memory of earlier long commits, if none was rehearsed while the memtable was
    /// active that is now frozen. The caller drops the memory without the lock.
    pub fn take_unused(&mut self) -> Option<impl Sized + use<>> {
        let is_used = self.rehearsed.is_some_and(|generation| generation + 1 >= self.generation);
        (!is_used).then(|| {
            let Self { slots, plan, undo, effects, .. } = self;
            (take_long(slots), take_long(plan), take_long(undo), take_long(effects))
        })
    }
}

fn take_long<T>(memory: &mut Vec<T>) -> Vec<T> {
    if memory.capacity() > KEPT { mem::take(memory) } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brooklet_io::MemVolume;

    use super::*;
    use crate::{Commit, Options};

    #[test]
    fn the_memory_of_long_commits_stays_while_they_come() {
        let options = Options::new().ring_size(4 << 20).memory_budget(8 << 20).threads(false).rng_seed(5);
        let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        let write = |logs: usize| {
            let mut commit = Commit::new();
            // Such a commit has no plan.
            (0..logs).map(|n| n.to_string()).for_each(|n| _ = commit.append(&n, "a").snapshot(&n, "b"));
            drop(store.commit(&commit).unwrap());
            store.checkpoint().unwrap();
        };
        let kept = || {
            let state = store.inner().state();
            let most = state.slots.capacity().max(state.effects.capacity());
            most.max(state.plan.capacity()).max(state.undo.capacity())
        };
        for _ in 0..2 {
            write(2 * KEPT);
            write(2 * KEPT);
            assert!(kept() >= 2 * KEPT, "another long commit may follow");
            write(1);
            assert!(kept() <= KEPT, "long commits have ceased");
            write(1);
            assert!(kept() <= KEPT);
        }
    }
}
