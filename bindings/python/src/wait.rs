//! Waits: without the interpreter's lock, and ended by Ctrl-C.
//!
//! Python runs the handlers of signals on its main thread, and only between two steps of its
//! programs. So the main thread waits in slices, and lets the handlers run after each. Other
//! threads wait at one go.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use brooklet::Error;
use pyo3::prelude::*;

use crate::argument::Seconds;
use crate::error::{OrRaise, invalid};

/// The longest time that a handler waits for.
const SLICE: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether this thread is Python's main thread, once asked, and the process: in a child of a
    /// fork, another thread is it.
    static IS_MAIN: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

fn is_main(py: Python<'_>) -> PyResult<bool> {
    let process = std::process::id();
    if let Some((asked, known)) = IS_MAIN.get()
        && asked == process
    {
        return Ok(known);
    }
    let threading = py.import("threading")?;
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    let is_main = main.eq(threading.call_method0("get_ident")?)?;
    IS_MAIN.set(Some((process, is_main)));
    Ok(is_main)
}

/// Waits by `step`, which waits for the time that it is given at most, until `step` returns
/// something. Returns `None` after `timeout`.
pub fn wait<T: Send>(
    py: Python<'_>,
    timeout: Option<Seconds>,
    mut step: impl FnMut(Duration) -> Result<Option<T>, Error> + Send,
) -> PyResult<Option<T>> {
    let most = if is_main(py)? { SLICE } else { Duration::MAX };
    // A time that is too far away is without end.
    let deadline = timeout.and_then(|timeout| now().checked_add(timeout.0));
    loop {
        let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now()));
        let came = py.detach(|| step(left.min(most))).or_raise(py)?;
        if came.is_some() || left <= most && deadline.is_some() {
            return Ok(came);
        }
        py.check_signals()?;
    }
}

/// Wakes a thread that parks.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future of the store for `time` at most. Returns `None` if it has not ended then.
pub fn park<F: Future + Unpin>(future: &mut F, time: Duration) -> Option<F::Output> {
    let waker = Waker::from(Arc::new(Parked(thread::current())));
    // A time that is too far away is without end.
    let deadline = now().checked_add(time);
    loop {
        if let Poll::Ready(output) = Pin::new(&mut *future).poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        match deadline.map(|deadline| deadline.saturating_duration_since(now())) {
            Some(Duration::ZERO) => return None,
            Some(left) => thread::park_timeout(left),
            None => thread::park(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "timeouts and ages are in the time of the machine")]
pub fn now() -> Instant {
    Instant::now()
}

/// Locks an iterator for a call. Another call that runs is an error, not a wait: it might last.
pub fn locked<'a, T>(py: Python<'_>, iterator: &'a Mutex<T>) -> PyResult<MutexGuard<'a, T>> {
    match iterator.try_lock() {
        Ok(guard) => Ok(guard),
        Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => {
            Err(invalid(py, "another thread uses the iterator: give each its own"))
        }
    }
}

pub fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
