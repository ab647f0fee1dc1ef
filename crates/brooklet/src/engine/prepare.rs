//! Prepares long commits, so that other commits hardly wait for them.
//!
//! The state appends a commit under its lock, as one. A commit of many operations is therefore
//! [rehearsed](crate::state::rehearsal) in portions first, and waits for the room that it needs.
//! Afterwards it is appended at the first try, as a rule, and holds the lock once.
//!
//! The logs of the commit take much of the memory budget. If they were added while a checkpoint
//! runs, all others would wait for the end of that checkpoint. So the preparation begins after it,
//! and the next checkpoint begins later than usual: behind the commit.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Inner;
use crate::engine::append::{Attempt, Patience, Tried};
use crate::error::Error;
use crate::memtable::Memtable;
use crate::model::commit::Op;
use crate::state::StoreState;
use crate::state::append::Retry;
use crate::state::rehearsal::Needs;
use crate::state::retention::CommitClock;
use crate::sync::atomic::Ordering;
use crate::sync::thread;

/// Operations from which on a commit is a long one.
const LONG: usize = 4_000;

/// Operations that are rehearsed under one lock: some tenths of a millisecond.
const PORTION: usize = 1_000;

/// Most turns of some milliseconds in which a commit waits for a checkpoint. If the heap is full,
/// the checkpoint may itself wait for commits that free space.
const TURNS: u32 = 500;

/// The rest between two portions. Whoever waits for the lock gets it meanwhile.
const REST: Duration = Duration::from_micros(20);

/// Most times that a commit is rehearsed.
const ROUNDS: usize = 3;

impl Inner {
    /// Prepares a commit, if it is a long one: brings its logs to memory, and waits for the room
    /// that it needs. The needs are rounded up, so a failure says nothing of the commit.
    ///
    /// The caller must have [checked](Self::check) the operations.
    pub fn prepare(&self, ops: &[Op<'_>]) {
        if ops.len() < LONG {
            return;
        }
        let prepared =
            self.writable().and_then(|wal| Attempt::new(self, wal, ops, None, Patience::Prepared).prepare());
        if let Err(error) = prepared {
            tracing::debug!(%error, "a long commit was not prepared");
        }
    }

    /// Returns the bytes of the active memtable beyond which a checkpoint is due.
    pub(super) fn memory_before_checkpoint(&self) -> usize {
        let budget = self.options.memory_budget;
        if self.preparing.load(Ordering::Relaxed) > 0 { budget / 8 * 7 } else { budget / 2 }
    }
}

/// Counts a preparation while it exists.
struct Preparing<'a>(&'a Inner);

impl<'a> Preparing<'a> {
    fn begin(inner: &'a Inner) -> Self {
        inner.preparing.fetch_add(1, Ordering::Relaxed);
        Self(inner)
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        self.0.preparing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> Attempt<'a> {
    /// Prepares the commit.
    fn prepare(&mut self) -> Result<(), Error> {
        if self.inner.options.threads {
            self.wait_for_checkpoint()?;
        }
        let _preparing = Preparing::begin(self.inner);
        for _ in 0..ROUNDS {
            let generation = self.inner.state().generation();
            let mut needs = Needs::NONE;
            for ops in self.ops.chunks(PORTION) {
                let Some(more) = self.rehearse(ops)? else { return Ok(()) };
                needs.add(more);
                if self.inner.options.threads {
                    thread::park_timeout(REST);
                }
            }
            let ready = self.until(|attempt, state| {
                state.has_room(attempt.wal, &needs)?;
                Ok(state.generation() == generation)
            })?;
            if let Tried::Done(true) = ready {
                break;
            }
            // A checkpoint has begun: the logs are not in the active memtable any more.
        }
        Ok(())
    }

    /// Waits for the end of a checkpoint that runs, or that memory or the ring needs before they
    /// have room for the commit. If others write so fast that the next one runs already, the commit
    /// waits no longer. A commit that only frees space does not wait: the checkpoint may need it.
    fn wait_for_checkpoint(&mut self) -> Result<(), Error> {
        let payloads: usize = self.ops.iter().map(|op| op.key.len() + op.action.payload_len()).sum();
        let logs: usize = self.ops.iter().map(|op| Memtable::cost_of_log(op.key)).sum();
        let memory = (self.inner.options.memory_budget / 8 * 7).saturating_sub(payloads + logs);
        let ring = (self.inner.ring.limit() / 2).saturating_sub(payloads as u64);
        let begun = self.inner.state().generation();
        let turns = Cell::new(0);
        let is_ready = |attempt: &mut Self, state: &mut StoreState| {
            let inner = attempt.inner;
            let is_full = state.active.bytes() > memory || inner.used.load(Ordering::Relaxed) > ring;
            let is_due = is_full && state.active.claim() > 0 && state.generation() == begun;
            let is_over = state.frozen.is_none() && !is_due || state.generation() > begun + 1;
            if is_over || turns.replace(turns.get() + 1) == TURNS || state.frees(attempt.ops) {
                return Ok(());
            }
            inner.wanted.fetch_or(state.frozen.is_none(), Ordering::Relaxed);
            inner.held_back.store(true, Ordering::Relaxed);
            Err(Retry::Checkpoint)
        };
        self.until(is_ready).map(drop)
    }

    /// Rehearses some operations. Returns `None` if only the commit as a whole can end them, or
    /// find out why they are refused.
    fn rehearse(&mut self, ops: &'a [Op<'a>]) -> Result<Option<Needs>, Error> {
        loop {
            let mut state = self.inner.state();
            if !self.learn(&mut state) {
                drop(state);
                self.wait_for_import::<()>()?;
                continue;
            }
            let clock = CommitClock::new(&*self.inner.options.clock);
            let unknown = match state.rehearse(ops, &clock) {
                Ok(needs) => return Ok(Some(needs)),
                Err(Retry::Unknown(unknown)) => unknown,
                Err(_) => return Ok(None),
            };
            let runs = Arc::clone(&state.runs);
            drop(state);
            self.looked = true;
            self.look_up_logs(ops, runs, &unknown)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;
    use crate::model::commit::Action;
    use crate::{Options, Store};

    fn store() -> Store {
        let options = Options::new().ring_size(4 << 20).memory_budget(8 << 20).threads(false).rng_seed(5);
        options.create_on(Arc::new(MemVolume::new(1))).unwrap()
    }

    /// The needs of all portions are at least those of the commit, and little more.
    #[test]
    fn portions_need_about_as_much_as_the_commit() {
        let store = store();
        let inner = store.inner();
        let key = |n: usize| format!("log/{}", n / 2);
        let keys: Vec<String> = (0..2 * LONG).map(key).collect();
        let ops: Vec<Op<'_>> =
            keys.iter().map(|key| Op { key: key.as_bytes(), action: Action::Append(b"payload") }).collect();
        let claims = inner.state().claims();
        let mut attempt = Attempt::new(inner, inner.writable().unwrap(), &ops, None, Patience::Room);
        let mut needs = Needs::NONE;
        for ops in ops.chunks(PORTION) {
            needs.add(attempt.rehearse(ops).unwrap().expect("nothing is in the way"));
        }
        drop(attempt);
        assert_eq!(inner.state().claims(), claims);
        drop(store.write(&ops, None, true).unwrap());
        let claimed = inner.state().claims() - claims;
        let excess = needs.claim() - claimed;
        assert!(claimed > 0 && excess < claimed / 100, "{claimed} and {excess}");
    }

    /// The logs rest in a run, and the ring must grow for the commit.
    #[test]
    fn a_prepared_commit_appends_at_the_first_try() {
        let volume = MemVolume::new(1);
        let options = || {
            let options = Options::new().ring_size(4 << 20).with_first_ring(128 << 10);
            options.memory_budget(8 << 20).max_payload(9 << 10).threads(false).rng_seed(5)
        };
        let store = options().create_on(Arc::new(volume.clone())).unwrap();
        let keys: Vec<String> = (0..2 * LONG).map(|n| format!("log/{n}")).collect();
        let ops: Vec<Op<'_>> =
            keys.iter().map(|key| Op { key: key.as_bytes(), action: Action::Append(b"payload") }).collect();
        drop(store.write(&ops, None, true).unwrap());
        store.checkpoint().unwrap();
        store.close().unwrap();
        drop(store);
        let store = options().open_on(Arc::new(volume)).unwrap();
        let inner = store.inner();
        let at_once = || inner.append(&ops, None, Patience::None);
        assert!(matches!(at_once(), Ok(Tried::MustRead)));
        inner.prepare(&ops);
        assert!(matches!(at_once(), Ok(Tried::Done(_))));
    }

    #[test]
    fn a_checkpoint_begins_later_while_a_commit_is_prepared() {
        let store = store();
        let inner = store.inner();
        let budget = inner.options.memory_budget;
        assert_eq!(inner.memory_before_checkpoint(), budget / 2);
        let (first, second) = (Preparing::begin(inner), Preparing::begin(inner));
        drop(first);
        assert_eq!(inner.memory_before_checkpoint(), budget / 8 * 7);
        drop(second);
        assert_eq!(inner.memory_before_checkpoint(), budget / 2);
    }
}
