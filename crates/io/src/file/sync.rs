//! One sync for many callers.
//!
//! A caller needs a sync that begins after its request: a running sync may have missed recent
//! writes. So while one sync runs, all new callers wait together, and the next sync, run by any of
//! them, serves them all.
//!
//! Invariants:
//! - Syncs run one by one, numbered from 1; `ended` is `started`, or one less while a sync runs.
//! - A failure counts for the sync that failed and for all later syncs, which do not run: the
//!   kernel reports a failed write-back once, to one of the users of the open file, and then
//!   forgets the failure. (The standard library repeats an interrupted call, which is safe: an
//!   interrupted call has reported nothing.)

use std::io;
use std::sync::PoisonError;

use super::inner::copy;
use crate::seeded::bug;
use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct SharedSync {
    state: Mutex<State>,
    /// Notified when a sync ends.
    over: Condvar,
}

#[derive(Debug, Default)]
struct State {
    started: u64,
    ended: u64,
    /// Number of callers that wait for another caller's sync.
    waiting: usize,
    failure: Option<Failure>,
}

#[derive(Debug)]
struct Failure {
    /// The first sync for which the failure counts.
    sync: u64,
    error: io::Error,
}

impl State {
    /// Returns the error of sync number `sync` if that sync failed, or can never run.
    fn check(&self, sync: u64) -> io::Result<()> {
        match &self.failure {
            Some(failure) if failure.sync <= sync && !bug("file-failed-sync-is-forgotten") => {
                Err(copy(&failure.error))
            }
            _ => Ok(()),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        // A sync that runs now may have missed the failure.
        let sync = self.ended + 1;
        self.failure.get_or_insert_with(|| Failure { sync, error: copy(error) });
    }
}

impl SharedSync {
    /// Returns the result of a sync that began after this call, once that sync has ended. Calls
    /// `sync` if this thread runs that sync.
    pub(super) fn sync(&self, sync: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state();
        let mine = state.started + 1;
        loop {
            state.check(mine)?;
            if state.ended >= mine {
                return Ok(());
            }
            if state.started == state.ended {
                break;
            }
            state.waiting += 1;
            state = self.over.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.started += 1;
        drop(state);
        let result = sync();
        let mut state = self.state();
        if let Err(e) = result {
            state.fail(&e);
        }
        state.ended += 1;
        if state.waiting > 0 {
            self.over.notify_all();
        }
        state.check(mine)
    }

    /// Makes every sync that has not ended fail with `error`.
    pub(super) fn fail(&self, error: &io::Error) {
        self.state().fail(error);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.state().waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One who was served by a good sync may be slow to look, and find that a later one has failed
    /// meanwhile.
    #[test]
    fn a_failure_does_not_count_for_earlier_syncs() {
        let mut state = State { started: 3, ended: 2, ..State::default() };
        state.fail(&io::ErrorKind::Other.into());
        state.fail(&io::ErrorKind::StorageFull.into());
        state.check(2).unwrap();
        for sync in [3, 4, 9] {
            assert_eq!(state.check(sync).unwrap_err().kind(), io::ErrorKind::Other, "the first one stays");
        }
    }
}
