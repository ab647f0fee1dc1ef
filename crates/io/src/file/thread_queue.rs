//! A queue of operations on threads, if io_uring is not available.
//!
//! Invariants:
//! - An operation is in exactly one place: `todo`, a worker, or `done`. `in_flight` counts all
//!   three.
//! - The number of workers never exceeds the largest number of operations in flight so far: an idle
//!   queue costs nothing, and a lightly used queue costs one thread.
//! - Workers end only when the queue is closed and `todo` is empty: dropping the queue completes
//!   all operations.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::inner::FileInner;
use crate::panics::caught;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::{Completion, Op, Queue};

pub(crate) struct ThreadQueue {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    depth: usize,
    in_flight: usize,
}

struct Shared {
    file: Arc<FileInner>,
    state: Mutex<State>,
    /// Notified when `todo` gets an operation, or when the queue closes.
    work: Condvar,
    /// Notified when `done` gets a completion, or when the queue's owner is woken.
    finished: Condvar,
}

#[derive(Default)]
struct State {
    todo: VecDeque<(u64, Op)>,
    done: Vec<Completion>,
    /// Whether the waker was called, and no wait has ended by that call yet.
    woken: bool,
    closed: bool,
}

impl ThreadQueue {
    pub(crate) fn new(file: Arc<FileInner>, depth: usize) -> Self {
        let shared = Shared { file, state: Mutex::default(), work: Condvar::new(), finished: Condvar::new() };
        Self { shared: Arc::new(shared), workers: Vec::new(), depth, in_flight: 0 }
    }
}

impl Queue for ThreadQueue {
    fn submit(&mut self, token: u64, mut op: Op) {
        assert!(self.in_flight < self.depth, "more than {} operations in flight", self.depth);
        op.prepare();
        self.in_flight += 1;
        if self.workers.len() < self.in_flight {
            let shared = Arc::clone(&self.shared);
            match Builder::new().name("brooklet-io".into()).spawn(move || shared.work()) {
                Ok(worker) => self.workers.push(worker),
                // The existing workers suffice. Without any worker, this thread carries out the
                // operation.
                Err(e) if self.workers.is_empty() => {
                    tracing::warn!("no thread for I/O, so it is done in place: {e}");
                    let result = self.shared.file.perform(&mut op);
                    self.shared.state().done.push(op.complete(token, result));
                    return;
                }
                Err(_) => {}
            }
        }
        self.shared.state().todo.push_back((token, op));
        self.shared.work.notify_one();
    }

    fn reap(&mut self, wait: bool, out: &mut Vec<Completion>) {
        let mut state = self.shared.state();
        while wait && self.in_flight > 0 && state.done.is_empty() {
            state = self.shared.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        self.in_flight -= state.done.len();
        out.append(&mut state.done);
    }

    fn wait(&mut self, patience: Duration) {
        let mut state = self.shared.state();
        if self.in_flight > 0 && state.done.is_empty() && !state.woken {
            let waited = self.shared.finished.wait_timeout(state, patience);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.woken = false;
    }

    fn waker(&self) -> Waker {
        self.shared.clone().into()
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            // A worker that panicked has reported the panic already.
            let _ = worker.join();
        }
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.state().woken = true;
        self.finished.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut state = self.state();
        loop {
            if let Some((token, mut op)) = state.todo.pop_front() {
                drop(state);
                // A panic must still complete the operation: otherwise the owner would wait
                // forever.
                let done = caught("a thread for I/O", || self.file.perform(&mut op));
                let result = done.and_then(|result| result);
                state = self.state();
                state.done.push(op.complete(token, result));
                self.finished.notify_one();
            } else if state.closed {
                return;
            } else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::tests::{a_file, a_wait_ends_by_time_and_by_its_waker};

    #[test]
    fn waits_end() {
        let (file, _dir) = a_file();
        let mut queue = ThreadQueue::new(file.inner.clone(), 1);
        queue.in_flight = 1;
        a_wait_ends_by_time_and_by_its_waker(&mut queue);
    }
}
