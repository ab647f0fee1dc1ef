//! One sync for many callers.
//!
//! A caller needs a sync that begins after its request: a running sync may have missed recent
//! writes. So while one sync runs, all new callers wait together, and the next sync, run by any of
//! them, serves them all.
//!
//! Invariants:
//! - Syncs go one by one and are numbered from 1; `ended` is `started`, or one less while one runs.
//! - A failure counts for the sync that met it and for all that come after, which are not even
//!   tried: the kernel reports a failed write-back once, to one of those who share the open file,
//!   and then forgets it. (The standard library repeats an interrupted call, which is safe: an
//!   interrupted call has reported nothing.)

use std::io;
use std::sync::PoisonError;

use super::inner::copy;
use crate::seeded::bug;
use crate::sync::{Condvar, Mutex, MutexGuard};

#[derive(Debug, Default)]
pub(super) struct SharedSync {
    state: Mutex<State>,
    /// A sync ended.
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
    /// Whether sync number `sync` failed, whether it has run or never will.
    fn check(&self, sync: u64) -> io::Result<()> {
        match &self.failure {
            Some(failure) if failure.sync <= sync && !bug("file-failed-sync-is-forgotten") => {
                Err(copy(&failure.error))
            }
            _ => Ok(()),
        }
    }

    fn fail(&mut self, error: &io::Error) {
        // Of the sync that runs it is not known what it would have found.
        let sync = self.ended + 1;
        self.failure.get_or_insert_with(|| Failure { sync, error: copy(error) });
    }
}

impl SharedSync {
    /// Returns once a sync that began after this call has ended, with its result. Calls `sync` if
    /// this thread is the one to carry it out.
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

    /// Makes every sync fail with `error` that has not ended.
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
