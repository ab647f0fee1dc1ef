//! Group commit for stores that have none: one transaction for what has gathered.
//!
//! Whoever waits and finds no transaction going on commits for all who have come so far, itself
//! included; then the first of those who came meanwhile takes over. So a thread alone commits
//! without a wake-up, and many share a sync. Operations that only leave a callback are committed by
//! a thread of their own when nobody waits.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::{self, JoinHandle, Thread};

use crate::outcome::{Done, Outcome, Result};
use crate::peer::{Op, Peer, Transactions};

/// A store of transactions that takes single operations.
pub struct Batched<T: Transactions> {
    shared: Arc<Shared<T>>,
    committer: JoinHandle<()>,
}

struct Shared<T> {
    store: T,
    state: Mutex<State>,
    /// For the committer: it is its turn, or the end.
    turn: Condvar,
}

#[derive(Default)]
struct State {
    queue: Vec<Job>,
    /// Somebody commits, or was told to.
    busy: bool,
    /// It is the committer who was told.
    committers_turn: bool,
    closed: bool,
}

struct Job {
    op: Op,
    then: Then,
}

enum Then {
    Call(Done),
    Wake(Arc<Waiter>),
}

const WAITS: u8 = 0;
const LEADS: u8 = 1;
const DONE: u8 = 2;

/// A thread that waits for its operation: for its end, or to be the next who commits.
struct Waiter {
    thread: Thread,
    word: AtomicU8,
    outcome: OnceLock<Outcome>,
}

impl Waiter {
    fn set(&self, word: u8) {
        self.word.store(word, Ordering::Release);
        self.thread.unpark();
    }
}

impl<T: Transactions> Batched<T> {
    /// Starts the committer.
    pub fn new(store: T) -> Self {
        let shared = Arc::new(Shared { store, state: Mutex::default(), turn: Condvar::new() });
        let committer = thread::spawn({
            let shared = shared.clone();
            move || shared.take_turns()
        });
        Self { shared, committer }
    }
}

impl<T: Transactions> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panics")
    }

    /// Commits whenever it is the committer's turn.
    fn take_turns(&self) {
        let mut state = self.state();
        loop {
            if state.committers_turn {
                state.committers_turn = false;
                self.lead(state);
                state = self.state();
            } else if state.closed {
                return;
            } else {
                state = self.turn.wait(state).expect("no panics");
            }
        }
    }

    /// Commits what has gathered, passes the lead on, and tells everybody.
    fn lead(&self, mut state: MutexGuard<'_, State>) {
        let jobs = std::mem::take(&mut state.queue);
        drop(state);
        let ops: Vec<Op> = jobs.iter().map(|job| job.op).collect();
        let outcome = self.store.commit(&ops).map_err(|error| Arc::from(error.to_string()));
        self.pass_on(self.state());
        for job in jobs {
            match job.then {
                Then::Call(done) => done(outcome.clone()),
                Then::Wake(waiter) => {
                    waiter.outcome.set(outcome.clone()).expect("an operation ends once");
                    waiter.set(DONE);
                }
            }
        }
    }

    fn pass_on(&self, mut state: MutexGuard<'_, State>) {
        let waiter = state.queue.iter().find_map(|job| match &job.then {
            Then::Wake(waiter) => Some(waiter.clone()),
            Then::Call(_) => None,
        });
        match waiter {
            Some(waiter) => waiter.set(LEADS),
            None if state.queue.is_empty() => state.busy = false,
            None => self.call_committer(&mut state),
        }
    }

    fn call_committer(&self, state: &mut State) {
        state.busy = true;
        state.committers_turn = true;
        self.turn.notify_one();
    }
}

impl<T: Transactions> Peer for Batched<T> {
    fn wait(&self, op: Op) -> Result<()> {
        let shared = &self.shared;
        if T::GROUPS {
            return shared.store.commit(&[op]);
        }
        let (word, outcome) = (AtomicU8::new(WAITS), OnceLock::new());
        let waiter = Arc::new(Waiter { thread: thread::current(), word, outcome });
        let mut state = shared.state();
        state.queue.push(Job { op, then: Then::Wake(waiter.clone()) });
        if !state.busy {
            state.busy = true;
            shared.lead(state);
        } else {
            drop(state);
            while waiter.word.load(Ordering::Acquire) == WAITS {
                thread::park();
            }
            if waiter.word.load(Ordering::Acquire) == LEADS {
                shared.lead(shared.state());
            }
        }
        // Whoever leads has its own operation in what it commits.
        Ok(waiter.outcome.get().expect("the operation has ended").clone().map_err(|why| why.to_string())?)
    }

    fn submit(&self, op: Op, done: Done) -> Result<()> {
        let mut state = self.shared.state();
        state.queue.push(Job { op, then: Then::Call(done) });
        if !state.busy {
            self.shared.call_committer(&mut state);
        }
        Ok(())
    }

    fn all(&self, ops: &[Op]) -> Result<()> {
        self.shared.store.commit(ops)
    }

    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        self.shared.store.read(log, visit)
    }

    fn settle(&self) -> Result<()> {
        self.shared.store.settle()
    }

    fn compact(&self) -> Result<()> {
        self.shared.store.compact()
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Self { shared, committer } = *self;
        shared.state().closed = true;
        shared.turn.notify_one();
        committer.join().map_err(|_| "the committer panicked")?;
        let shared = Arc::into_inner(shared).ok_or("the store is still in use")?;
        shared.store.close()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    /// Remembers what it was given; fails where it is told to.
    #[derive(Default)]
    struct Memory {
        commits: AtomicUsize,
        ops: Mutex<Vec<(u64, u64)>>,
    }

    impl Transactions for Arc<Memory> {
        fn commit(&self, ops: &[Op]) -> Result<()> {
            self.commits.fetch_add(1, Ordering::Relaxed);
            thread::yield_now();
            self.ops.lock().unwrap().extend(ops.iter().map(|op| (op.log, op.seq)));
            if ops.iter().any(|op| op.payload.is_empty()) { Err("told to fail".into()) } else { Ok(()) }
        }

        fn read(&self, _: u64, _: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
            Ok(())
        }
    }

    fn op(log: u64, seq: u64) -> Op {
        Op { log, seq, first: seq, payload: b"x" }
    }

    #[test]
    fn every_operation_ends_once_and_in_order_however_it_waits() {
        let memory = Arc::new(Memory::default());
        let store = Box::new(Batched::new(memory.clone()));
        let called = Arc::new(AtomicUsize::new(0));
        thread::scope(|scope| {
            for log in 0..8 {
                let (store, called) = (&store, &called);
                scope.spawn(move || {
                    for seq in 0..200 {
                        if seq % 3 == 0 {
                            let called = called.clone();
                            let count = move |outcome: Outcome| {
                                outcome.unwrap();
                                called.fetch_add(1, Ordering::Relaxed);
                            };
                            store.submit(op(log, seq), Box::new(count)).unwrap();
                        } else {
                            store.wait(op(log, seq)).unwrap();
                        }
                    }
                });
            }
        });
        store.close().unwrap();
        assert_eq!(called.load(Ordering::Relaxed), 8 * 67);
        let ops = memory.ops.lock().unwrap();
        for log in 0..8 {
            let seqs = ops.iter().filter(|op| op.0 == log).map(|op| op.1);
            assert!(seqs.eq(0..200), "log {log}");
        }
        assert!(memory.commits.load(Ordering::Relaxed) < 1600, "nothing was merged");
    }

    #[test]
    fn a_failure_is_told() {
        let store = Box::new(Batched::new(Arc::new(Memory::default())));
        let error = store.wait(Op { payload: b"", ..op(1, 1) }).unwrap_err();
        assert_eq!(error.to_string(), "told to fail");
        store.wait(op(1, 2)).unwrap();
        store.close().unwrap();
    }
}
