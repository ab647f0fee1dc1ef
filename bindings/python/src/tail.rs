//! Tails: readers that follow a log.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use brooklet::{Error, TailEvent};
use futures_core::Stream as _;
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;

use crate::argument::Seconds;
use crate::error::OrRaise;
use crate::result::Named;
use crate::wait::{locked, wait};

/// A reader that follows a log: it returns every entry once, in order, when it is on stable media.
///
/// As an iterator it waits for the next event without end. Ctrl-C ends a wait. An error ends the
/// tail.
#[pyclass(frozen, module = "brooklet")]
pub struct Tail {
    state: Mutex<State>,
}

struct State {
    tail: brooklet::Tail,
    /// The next event, if it came and Python did not get it.
    kept: Option<TailEvent>,
    failed: bool,
}

impl State {
    /// Hands over the next event, which stays the next one if that fails.
    fn hand<'py>(
        &mut self,
        py: Python<'py>,
        event: Option<TailEvent>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.kept = event;
        let named = self.kept.as_ref().map(|event| event.named(py)).transpose()?;
        self.kept = None;
        Ok(named)
    }
}

impl Tail {
    pub fn new(tail: brooklet::Tail) -> Self {
        Self { state: Mutex::new(State { tail, kept: None, failed: false }) }
    }
}

#[pymethods]
impl Tail {
    /// The number of the next entry that the tail returns.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        let state = locked(py, &self.state)?;
        Ok(match &state.kept {
            Some(TailEvent::Entry(entry)) => entry.seq,
            _ => state.tail.position(),
        })
    }

    /// Returns the next event, or None if the tail would wait for it.
    fn try_next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = locked(py, &self.state)?;
        let mut event = state.kept.take();
        if event.is_none() {
            let tail = &mut state.tail;
            event = py.detach(|| tail.try_next()).or_raise(py)?;
        }
        state.hand(py, event)
    }

    /// Returns the next event. Waits for `timeout` seconds at most, and then returns None.
    fn next_timeout<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = locked(py, &self.state)?;
        let mut event = state.kept.take();
        if event.is_none() {
            let tail = &mut state.tail;
            event = wait(py, timeout, |time| tail.next_timeout(time))?;
        }
        state.hand(py, event)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = locked(py, &self.state)?;
        if state.failed {
            return Ok(None);
        }
        let mut event = state.kept.take();
        if event.is_none() {
            let mut failed = false;
            let tail = &mut state.tail;
            let next = wait(py, None, |time| tail.next_timeout(time).inspect_err(|_| failed = true));
            state.failed = failed;
            event = next?;
        }
        state.hand(py, event)
    }
}

/// A tail for coroutines, which a port polls.
#[pyclass(frozen, module = "brooklet")]
pub struct TailStream {
    pub following: Arc<Mutex<Following>>,
    /// The number of the wait that a port has.
    pub waits: Mutex<Option<u64>>,
}

/// A tail, and the event that came for a coroutine. The event stays here until the coroutine runs
/// and takes it: a task may be cancelled when its event is there and before the task runs.
pub struct Following {
    stream: brooklet::TailStream,
    /// The next event; none after the end of the tail.
    ready: Option<Result<Option<TailEvent>, Error>>,
}

impl Following {
    /// Returns whether an event is there to be taken.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.ready.is_none() {
            let event = std::task::ready!(Pin::new(&mut self.stream).poll_next(context));
            self.ready = Some(event.transpose());
        }
        Poll::Ready(())
    }
}

impl TailStream {
    pub fn new(tail: brooklet::Tail) -> Self {
        let following = Following { stream: tail.into_stream(), ready: None };
        Self { following: Arc::new(Mutex::new(following)), waits: Mutex::new(None) }
    }

    fn following(&self) -> MutexGuard<'_, Following> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl TailStream {
    /// Whether the next event is there.
    #[getter]
    fn is_ready(&self, py: Python<'_>) -> bool {
        py.detach(|| self.following().ready.is_some())
    }

    /// Takes the next event, which is there.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let event = py.detach(|| self.following().ready.take());
        match event.unwrap_or(Ok(None)).or_raise(py)? {
            Some(event) => event.named(py).inspect_err(|_| {
                // Another task may have made the next one ready meanwhile.
                py.detach(|| _ = self.following().ready.get_or_insert(Ok(Some(event))));
            }),
            None => Err(PyStopAsyncIteration::new_err(())),
        }
    }
}
