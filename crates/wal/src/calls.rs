//! User code: callbacks and wakers, and the threads that run them.
//!
//! User code may take long, wait, panic, append, or close the log. So it never runs under a lock of
//! the log, nor on a thread that another thread waits for:
//!
//! - With a committer, a separate thread calls everything. It starts with the first call. Only the
//!   committer wakes tasks itself: a waker is quick, and a task then waits for no other thread. If
//!   a waker would wait all the same, that call fails
//!   ([`WalError::WouldWait`](crate::WalError::WouldWait)).
//! - Without a committer, the thread that drives the log calls: while it holds no lock (see
//!   [`Hush`]), and never inside another call.
//!
//! A panic in a call is logged, and the others are called.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use brooklet_io::Process;
use brooklet_io::panics::caught;
use brooklet_io::seeded::bug;

use crate::error::WalError;
use crate::sync::thread::{self, Builder, JoinHandle, ThreadId};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A function that receives the result of a block.
pub(crate) type Callback = Box<dyn FnOnce(Result<(), WalError>) + Send>;

/// The calls for some blocks that have ended.
pub(crate) struct Call {
    pub tasks: Vec<Waker>,
    pub callbacks: Vec<Callback>,
    pub result: Result<(), WalError>,
}

impl Call {
    fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.callbacks.is_empty()
    }

    fn run(self) {
        let Self { tasks, callbacks, result } = self;
        wake_all(tasks);
        callbacks.into_iter().for_each(|callback| guarded(|| callback(result.clone())));
    }
}

/// Takes the tasks out of `calls`, for a thread that wakes these tasks itself.
pub(crate) fn take_tasks(calls: &mut [Call]) -> Vec<Waker> {
    calls.iter_mut().flat_map(|call| call.tasks.drain(..)).collect()
}

pub(crate) fn wake_all(tasks: Vec<Waker>) {
    tasks.into_iter().for_each(|waker| guarded(|| waker.wake()));
}

/// Runs user code: a panic in one call must not prevent the other calls.
pub(crate) fn guarded(call: impl FnOnce()) {
    if bug("panic-of-a-callback-escapes") {
        return call();
    }
    if let Err(error) = caught("a callback or a waker", call) {
        tracing::error!("{error}");
    }
}

/// Pending calls, and the thread that runs them.
pub(crate) struct Calls {
    state: Mutex<State>,
    /// Signals that a call is pending, or that no more will follow.
    more: Condvar,
    process: Process,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Call>,
    /// Number of drivers that have ended blocks, or will end blocks now, and have not put their
    /// callbacks into `waiting`.
    expected: usize,
    thread: Option<JoinHandle<()>>,
    /// Whether that thread runs the pending calls.
    served: bool,
    /// Whether the thread ends once no call is pending.
    ended: bool,
    /// The thread that runs calls in place.
    caller: Option<ThreadId>,
    /// Number of guards that forbid calls in place.
    hushed: usize,
}

/// A guard under which the log runs no callback in place: its owner holds a lock that a callback
/// may need. If a thread runs the callbacks, the guard changes nothing.
#[must_use = "callbacks wait until it is dropped"]
pub struct Hush<'a>(&'a Calls);

/// A guard that announces callbacks of ended blocks: [`join`](Calls::join) waits for them.
#[must_use = "nobody waits for the callbacks once it is dropped"]
pub(crate) struct Expected<'a>(&'a Arc<Calls>);

impl Calls {
    pub fn new(process: Process) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), more: Condvar::new(), process })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing is called under the lock")
    }

    /// Announces callbacks. The caller does this before another thread can see that the log has
    /// ended.
    pub fn expect(self: &Arc<Self>) -> Expected<'_> {
        self.state().expected += 1;
        Expected(self)
    }

    /// Takes calls. With `beside`, a separate thread runs them, even if the log has ended
    /// meanwhile.
    fn hand(self: &Arc<Self>, calls: Vec<Call>, beside: bool) {
        let mut state = self.state();
        state.expected -= 1;
        state.waiting.extend(calls.into_iter().filter(|call| !call.is_empty()));
        if state.waiting.is_empty() {
            return self.more.notify_all();
        }
        if beside && !state.served {
            let calls = self.clone();
            let thread = Builder::new().name("brooklet-call".into()).spawn(move || calls.run());
            let thread = thread.inspect_err(|error| {
                tracing::error!(%error, "the log could not start a thread for callbacks; the thread that drives the log calls them");
            });
            state.thread = thread.ok();
            state.served = state.thread.is_some();
        }
        if state.served {
            self.more.notify_all();
        } else {
            drop(state);
            self.call_here();
        }
    }

    /// Runs the pending calls, unless another thread does so already, or a guard forbids it.
    fn call_here(&self) {
        let mut state = self.state();
        let calling = state.caller.is_some() && !bug("callback-within-a-callback");
        let hushed = state.hushed > 0 && !bug("callback-under-a-lock");
        if calling || hushed || state.served {
            return;
        }
        state.caller = Some(thread::current().id());
        while let Some(call) = state.waiting.pop_front() {
            drop(state);
            call.run();
            state = self.state();
        }
        state.caller = None;
        self.more.notify_all();
    }

    /// Runs the calls on the separate thread.
    fn run(&self) {
        let mut state = self.state();
        loop {
            if let Some(call) = state.waiting.pop_front() {
                drop(state);
                call.run();
                state = self.state();
            } else if state.ended && state.expected == 0 {
                state.served = false;
                return self.more.notify_all();
            } else {
                state = self.more.wait(state).expect("nothing is called under the lock");
            }
        }
    }

    /// Lets the thread end, once it has run the pending calls.
    pub fn end(&self) {
        self.state().ended = true;
        self.more.notify_all();
    }

    /// Returns once everything has been called and the thread has ended; immediately if a callback
    /// makes this call.
    pub fn join(&self) {
        self.end();
        let me = thread::current().id();
        let mut state = self.state();
        let thread = state.thread.as_ref().map(|thread| thread.thread().id());
        if thread == Some(me) || state.caller == Some(me) {
            return;
        }
        let early = bug("closing-overtakes-callbacks");
        while state.served || (state.caller.is_some() || state.expected > 0) && !early {
            state = self.more.wait(state).expect("nothing is called under the lock");
        }
        let thread = state.thread.take();
        drop(state);
        if let Some(thread) = thread {
            // The thread catches all panics of calls, so it cannot have panicked itself.
            let _ = thread.join();
        }
        self.call_here();
    }

    pub fn hush(&self) -> Hush<'_> {
        if self.process.is_here() {
            self.state().hushed += 1;
        }
        Hush(self)
    }
}

impl Expected<'_> {
    /// Hands over the announced calls.
    pub fn hand(self, calls: Vec<Call>, beside: bool) {
        self.0.hand(calls, beside);
        std::mem::forget(self);
    }
}

impl Drop for Expected<'_> {
    fn drop(&mut self) {
        self.0.state().expected -= 1;
        self.0.more.notify_all();
    }
}

impl Drop for Hush<'_> {
    fn drop(&mut self) {
        if self.0.process.is_here() {
            self.0.state().hushed -= 1;
            self.0.call_here();
        }
    }
}

impl std::fmt::Debug for Hush<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hush")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    fn call(callback: impl FnOnce() + Send + 'static) -> Call {
        Call { tasks: Vec::new(), callbacks: vec![Box::new(|_| callback())], result: Ok(()) }
    }

    #[test]
    fn callbacks_that_come_late_have_a_thread_of_their_own() {
        let calls = Calls::new(Process::current());
        let expected = calls.expect();
        calls.end();
        let (sender, receiver) = mpsc::channel();
        expected.hand(vec![call(move || sender.send(thread::current().id()).unwrap())], true);
        assert_ne!(receiver.recv().unwrap(), thread::current().id());
        calls.join();
    }

    #[test]
    fn joining_waits_for_callbacks_that_are_announced() {
        let calls = Calls::new(Process::current());
        let expected = calls.expect();
        let (sender, receiver) = mpsc::channel();
        let (calls_of_joiner, joined) = (calls.clone(), sender.clone());
        let joiner = Builder::new().spawn(move || {
            calls_of_joiner.join();
            joined.send("joined").unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "nothing is called yet");
        expected.hand(vec![call(move || sender.send("called").unwrap())], true);
        joiner.unwrap().join().unwrap();
        assert_eq!(receiver.iter().collect::<Vec<_>>(), ["called", "joined"]);
    }

    #[test]
    fn an_announcement_that_comes_to_nothing_is_not_waited_for() {
        let calls = Calls::new(Process::current());
        drop(calls.expect());
        calls.join();
    }
}
