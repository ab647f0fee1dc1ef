//! Calls of tasks that wait: one thread of the store makes them, one after another.
//!
//! A task must not block the thread that it shares with other tasks. Where a call would wait, the
//! task passes it to this thread, and is woken when the call has ended. The thread starts with the
//! first such call.
//!
//! While a call waits for room, later calls queue behind it. A call that only has to read the
//! volume holds up no other call but those that are in the queue, and those on one of its logs: the
//! commits of one task on one log have their order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::engine::Inner;
use crate::error::Error;
use crate::sync::{Mutex, Sleeper, held, thread};

/// A call that may wait.
pub(crate) type Call = Box<dyn FnOnce(&Arc<Inner>) + Send>;

/// The reason why a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitReason {
    Read,
    Room,
}

/// The calls that wait for their turn.
#[derive(Default)]
pub(crate) struct BlockingCalls {
    state: Mutex<State>,
    /// The thread that makes the calls.
    pub sleeper: Sleeper,
}

#[derive(Default)]
struct State {
    calls: VecDeque<Waiting>,
    /// Number of calls that wait for room, with the one that the thread makes now.
    for_room: usize,
    /// Number of these calls on each log, by the hash of its key: a collision only delays a call.
    on_logs: BTreeMap<u64, usize>,
    /// Whether the thread has ended.
    ended: bool,
}

struct Waiting {
    reason: WaitReason,
    /// Hashes of the keys of its logs.
    logs: Box<[u64]>,
    call: Call,
}

impl State {
    fn forget(&mut self, reason: WaitReason, logs: &[u64]) {
        self.for_room -= usize::from(reason == WaitReason::Room);
        for log in logs {
            if let Some(count) = self.on_logs.get_mut(log) {
                *count -= 1;
                if *count == 0 {
                    self.on_logs.remove(log);
                }
            }
        }
    }
}

/// Returns the hashes by which calls on the logs of these keys find each other.
pub(crate) fn hashes<'k>(keys: impl Iterator<Item = &'k [u8]>) -> Box<[u64]> {
    keys.map(XxHash3_64::oneshot).collect()
}

impl BlockingCalls {
    /// Returns why a call on some logs must queue, if it must: an earlier call waits for room, or
    /// is on one of these logs.
    pub fn must_queue<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) -> Option<WaitReason> {
        let state = held(&self.state);
        if state.for_room > 0 {
            return Some(WaitReason::Room);
        }
        let waits = |key| state.on_logs.contains_key(&XxHash3_64::oneshot(key));
        (!state.on_logs.is_empty() && keys.any(waits)).then_some(WaitReason::Read)
    }

    /// Returns whether this is the thread that makes the calls.
    pub fn is_here(&self) -> bool {
        self.sleeper.thread().is_some_and(|thread| thread.id() == thread::current().id())
    }

    /// Takes the next call; `None` if there is none now. `closing`: the thread then ends.
    fn next(&self, closing: bool) -> Option<Waiting> {
        let mut state = held(&self.state);
        let call = state.calls.pop_front();
        state.ended = call.is_none() && closing;
        call
    }

    /// Records that a call has been made.
    fn done(&self, reason: WaitReason, logs: &[u64]) {
        held(&self.state).forget(reason, logs);
    }
}

impl Inner {
    /// Queues a call on some logs, by [`hashes`] of their keys, for the thread that makes such
    /// calls.
    ///
    /// # Errors
    /// [`Error::Closed`], or the error that stopped the store; the call is dropped.
    pub fn call_blocking(
        self: &Arc<Self>,
        reason: WaitReason,
        logs: Box<[u64]>,
        call: Call,
    ) -> Result<(), Error> {
        let BlockingCalls { state, sleeper } = &self.blocking_calls;
        let mut queue = held(state);
        if queue.ended || self.is_closing() && sleeper.thread().is_none() {
            drop(queue);
            return Err(self.ended().unwrap_or(Error::Closed));
        }
        queue.for_room += usize::from(reason == WaitReason::Room);
        logs.iter().for_each(|log| *queue.on_logs.entry(*log).or_default() += 1);
        queue.calls.push_back(Waiting { reason, logs, call });
        if sleeper.thread().is_none() {
            let run = self.watched("the thread for calls that wait", |inner| inner.make_blocking_calls());
            let spawned = thread::Builder::new().name("brooklet-block".into()).spawn(run);
            let spawned = spawned.map_err(Error::io("starting a thread")).inspect_err(|_| {
                if let Some(Waiting { reason, logs, .. }) = queue.calls.pop_back() {
                    queue.forget(reason, &logs);
                }
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
                Some(Waiting { reason, logs, call }) => {
                    call(self);
                    self.blocking_calls.done(reason, &logs);
                }
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
