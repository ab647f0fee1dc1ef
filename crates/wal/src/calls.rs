//! User code: callbacks and wakers, and where it runs.
//!
//! It may take long, wait, panic, append, or close the log. So it never runs under a lock of the log, nor on a thread that
//! somebody needs in order to go on:
//!
//! - Where a committer runs, everything is called on a thread of its own, which is started when there is something to
//!   call. The committer alone wakes tasks itself: a waker is quick, and a task waits for no other thread then. Where a
//!   waker would wait all the same, the call that waits is refused ([`WalError::WouldWait`](crate::WalError::WouldWait)).
//! - Where none runs, the thread that drives the log calls: once it holds no lock (see [`Hush`]), and never inside another
//!   call.
//!
//! A panic in a call is logged, and the others are called.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use brooklet_io::Process;
use brooklet_io::panics::caught;
use brooklet_io::seeded::bug;

use crate::error::WalError;
use crate::listeners::Callback;
use crate::sync::thread::{self, Builder, JoinHandle};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// What is to be called as some blocks have ended.
pub(crate) struct Call {
    pub tasks: Vec<Waker>,
    pub callbacks: Vec<Callback>,
    pub result: Result<(), WalError>,
}

impl Call {
    fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.callbacks.is_empty()
    }

    fn wake(&mut self) {
        self.tasks.drain(..).for_each(|waker| guarded(|| waker.wake()));
    }

    fn run(mut self) {
        self.wake();
        let Self { callbacks, result, .. } = self;
        callbacks.into_iter().for_each(|callback| guarded(|| callback(result.clone())));
    }
}

/// Calls what is not ours: a panic of one must not keep the others from being called.
pub(crate) fn guarded(call: impl FnOnce()) {
    if bug("panic-of-a-callback-escapes") {
        return call();
    }
    if let Err(error) = caught("a callback or a waker", call) {
        tracing::error!("{error}");
    }
}

/// What waits to be called, and who calls it.
pub(crate) struct Calls {
    state: Mutex<State>,
    /// There is something to call, or there will be no more.
    more: Condvar,
    process: Process,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Call>,
    thread: Option<JoinHandle<()>>,
    /// That thread looks after what waits.
    served: bool,
    /// No thread is started any more.
    ended: bool,
    /// Somebody calls in place.
    calling: bool,
    /// How many forbid that.
    hushed: usize,
}

/// While it lives, this log calls nothing in place: its owner holds a lock that a callback may ask for. Where there is a
/// thread that calls, nothing changes.
#[must_use = "callbacks wait until it is dropped"]
pub struct Hush<'a>(&'a Calls);

impl Calls {
    pub fn new(process: Process) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), more: Condvar::new(), process })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing is called under the lock")
    }

    /// Takes what is to be called: for a thread of its own if `beside` says so.
    pub fn hand(self: &Arc<Self>, call: Call, beside: bool) {
        if call.is_empty() {
            return;
        }
        let mut state = self.state();
        state.waiting.push_back(call);
        if beside && !state.ended && state.thread.is_none() {
            let calls = self.clone();
            let thread = Builder::new().name("brooklet-call".into()).spawn(move || calls.run());
            let thread = thread.inspect_err(|error| {
                tracing::error!(%error, "no thread for callbacks: they are called where the log is driven");
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

    /// Wakes tasks in place: on the committer's thread.
    pub fn wake_here(call: &mut Call) {
        call.wake();
    }

    /// Calls what waits, unless somebody does that already, or it is forbidden.
    fn call_here(&self) {
        let mut state = self.state();
        let calling = state.calling && !bug("callback-within-a-callback");
        let hushed = state.hushed > 0 && !bug("callback-under-a-lock");
        if calling || hushed || state.served {
            return;
        }
        state.calling = true;
        while let Some(call) = state.waiting.pop_front() {
            drop(state);
            call.run();
            state = self.state();
        }
        state.calling = false;
    }

    /// The thread's way.
    fn run(&self) {
        let mut state = self.state();
        loop {
            if let Some(call) = state.waiting.pop_front() {
                drop(state);
                call.run();
                state = self.state();
            } else if state.ended {
                state.served = false;
                return self.more.notify_all();
            } else {
                state = self.more.wait(state).expect("nothing is called under the lock");
            }
        }
    }

    /// Lets the thread end, once it has called what waits.
    pub fn end(&self) {
        self.state().ended = true;
        self.more.notify_all();
    }

    /// Returns once everything has been called, and the thread is gone; at once where this is called from that thread.
    pub fn join(&self) {
        self.end();
        let me = thread::current().id();
        let mut state = self.state();
        if state.thread.as_ref().is_some_and(|thread| thread.thread().id() == me) {
            return;
        }
        while state.served {
            state = self.more.wait(state).expect("nothing is called under the lock");
        }
        let thread = state.thread.take();
        drop(state);
        if let Some(thread) = thread {
            // What it calls cannot make it panic.
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
