//! Calls of tasks that wait: one thread of the store makes them, one after another.
//!
//! A task must not block the thread that it shares with other tasks. Where a call would wait, the
//! task passes it to this thread, and is woken when the call has ended. The thread starts with the
//! first such call.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::Inner;
use crate::error::Error;
use crate::sync::{Mutex, Sleeper, held, thread};

/// A call that may wait.
pub(crate) type Call = Box<dyn FnOnce(&Arc<Inner>) + Send>;

/// The calls that wait for their turn.
#[derive(Default)]
pub(crate) struct BlockingCalls {
    state: Mutex<State>,
    /// The thread that makes the calls.
    pub sleeper: Sleeper,
}

#[derive(Default)]
struct State {
    calls: VecDeque<Call>,
    /// Whether the thread makes a call now.
    busy: bool,
    /// Whether the thread has ended.
    ended: bool,
}

impl BlockingCalls {
    /// Returns whether no call is pending: a later call then need not queue.
    pub fn is_idle(&self) -> bool {
        let state = held(&self.state);
        state.calls.is_empty() && !state.busy
    }

    /// Returns whether this is the thread that makes the calls.
    pub fn is_here(&self) -> bool {
        self.sleeper.thread().is_some_and(|thread| thread.id() == thread::current().id())
    }

    /// Takes the next call; `None` if there is none now. `closing`: the thread then ends.
    fn next(&self, closing: bool) -> Option<Call> {
        let mut state = held(&self.state);
        let call = state.calls.pop_front();
        (state.busy, state.ended) = (call.is_some(), call.is_none() && closing);
        call
    }
}

impl Inner {
    /// Queues a call for the thread that makes such calls.
    ///
    /// # Errors
    /// [`Error::Closed`]; the call is dropped.
    pub fn call_blocking(self: &Arc<Self>, call: Call) -> Result<(), Error> {
        let BlockingCalls { state, sleeper } = &self.blocking_calls;
        let mut queue = held(state);
        if queue.ended || self.is_closing() && sleeper.thread().is_none() {
            return Err(Error::Closed);
        }
        queue.calls.push_back(call);
        if sleeper.thread().is_none() {
            let run = self.watched("the thread for calls that wait", |inner| inner.make_blocking_calls());
            let spawned = thread::Builder::new().name("brooklet-block".into()).spawn(run);
            let spawned = spawned.map_err(Error::io("starting a thread")).inspect_err(|_| {
                queue.calls.pop_back();
            })?;
            sleeper.set_thread(spawned.thread());
            self.keep_thread(spawned);
        }
        drop(queue);
        sleeper.wake();
        Ok(())
    }

    /// Makes the calls until the store is closed, when they all fail.
    fn make_blocking_calls(self: &Arc<Self>) {
        let _ended = Ended(&self.blocking_calls);
        loop {
            let closing = self.is_closing();
            match self.blocking_calls.next(closing) {
                Some(call) => call(self),
                None if closing => return,
                None => self.blocking_calls.sleeper.sleep(None),
            }
        }
    }
}

/// Drops the pending calls when their thread ends, also after a panic.
struct Ended<'a>(&'a BlockingCalls);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        let mut state = held(&self.0.state);
        state.ended = true;
        let calls = std::mem::take(&mut state.calls);
        drop(state);
        // Dropping a call may run code of users.
        drop(calls);
    }
}
