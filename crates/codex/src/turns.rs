//! Parallel work whose results are taken in order.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::error::Result;

/// Most results that wait for their turn, for each worker.
const WAITING: usize = 2;

/// Runs `work` for each number below `count`, on `workers` threads at once, and passes the results
/// to `take`, in order. Each worker has its own `W`. Stops at the first error.
pub(crate) fn in_turns<T: Send, W: Default>(
    count: usize,
    workers: usize,
    work: impl Fn(usize, &mut W) -> Result<T> + Sync,
    take: impl FnMut(T) -> Result<()> + Send,
) -> Result<()> {
    let workers = workers.clamp(1, count.max(1));
    let turns = Turns {
        state: Mutex::new(State { given: 0, taken: 0, done: BTreeMap::new(), taking: false, over: None }),
        changed: Condvar::new(),
        count,
        ahead: workers * (1 + WAITING),
        take: Mutex::new(take),
    };
    let run = || {
        let mut own = W::default();
        while let Some(number) = turns.next() {
            // If the work panics, the others must not wait for its turn.
            let over = EndsAll(&turns);
            let done = work(number, &mut own);
            std::mem::forget(over);
            turns.put(number, done);
        }
    };
    thread::scope(|scope| {
        // If the system provides no thread, the others do the work.
        (1..workers).for_each(|_| drop(thread::Builder::new().spawn_scoped(scope, run)));
        run();
    });
    turns.state.into_inner().unwrap_or_else(PoisonError::into_inner).over.unwrap_or(Ok(()))
}

struct Turns<T, F> {
    state: Mutex<State<T>>,
    changed: Condvar,
    count: usize,
    /// Most results by which the work may be ahead of the taking.
    ahead: usize,
    take: Mutex<F>,
}

struct State<T> {
    given: usize,
    taken: usize,
    done: BTreeMap<usize, T>,
    taking: bool,
    /// Set to stop the work early.
    over: Option<Result<()>>,
}

/// Ends all the work when it is dropped.
struct EndsAll<'a, T, F: FnMut(T) -> Result<()>>(&'a Turns<T, F>);

impl<T, F: FnMut(T) -> Result<()>> Drop for EndsAll<'_, T, F> {
    fn drop(&mut self) {
        self.0.end(Ok(()));
    }
}

impl<T, F: FnMut(T) -> Result<()>> Turns<T, F> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next number to work on; waits if the taking is far behind.
    fn next(&self) -> Option<usize> {
        let waits = |state: &mut State<T>| {
            state.over.is_none() && state.given < self.count && state.given >= state.taken + self.ahead
        };
        let mut state = self.changed.wait_while(self.state(), waits).unwrap_or_else(PoisonError::into_inner);
        (state.over.is_none() && state.given < self.count).then(|| {
            state.given += 1;
            state.given - 1
        })
    }

    /// Stores a result until its turn, and takes all results whose turn it is, unless another
    /// thread does so already.
    fn put(&self, number: usize, done: Result<T>) {
        let mut state = self.state();
        match done {
            Ok(done) => drop(state.done.insert(number, done)),
            Err(error) => {
                drop(state);
                return self.end(Err(error));
            }
        }
        while !state.taking && state.over.is_none() {
            let turn = state.taken;
            let Some(done) = state.done.remove(&turn) else { return };
            state.taking = true;
            drop(state);
            let over = EndsAll(self);
            let taken = (self.take.lock().unwrap_or_else(PoisonError::into_inner))(done);
            std::mem::forget(over);
            state = self.state();
            state.taking = false;
            match taken {
                Ok(()) => state.taken += 1,
                Err(error) => {
                    drop(state);
                    return self.end(Err(error));
                }
            }
            self.changed.notify_all();
        }
    }

    fn end(&self, how: Result<()>) {
        let mut state = self.state();
        state.over.get_or_insert(how);
        drop(state);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::Error;

    #[test]
    fn results_are_taken_in_order() {
        for workers in 1..5 {
            let mut taken = Vec::new();
            in_turns(
                100,
                workers,
                |number, _: &mut ()| Ok(number * number),
                |square| {
                    taken.push(square);
                    Ok(())
                },
            )
            .unwrap();
            assert_eq!(taken, (0..100).map(|number| number * number).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_error_ends_the_work() {
        let worked = AtomicUsize::new(0);
        let work = |number, _: &mut ()| {
            worked.fetch_add(1, Ordering::Relaxed);
            if number == 5 { Err(Error::Cancelled) } else { Ok(number) }
        };
        assert!(matches!(in_turns(1000, 3, work, |_| Ok(())), Err(Error::Cancelled)));
        assert!(worked.load(Ordering::Relaxed) < 20);
        let refused = in_turns(
            1000,
            3,
            |number, _: &mut ()| Ok(number),
            |number| {
                if number == 7 { Err(Error::Cancelled) } else { Ok(()) }
            },
        );
        assert!(matches!(refused, Err(Error::Cancelled)));
    }

    #[test]
    #[should_panic(expected = "scoped thread panicked")]
    fn a_panic_leaves_nobody_waiting() {
        let panics = |number, _: &mut ()| {
            if thread::current().name().is_none() {
                panic!("in a worker");
            }
            Ok(number)
        };
        while in_turns(1000, 2, panics, |_| Ok(())).is_ok() {}
    }
}
