//! Tails: readers that follow a log.

use std::sync::{Arc, Mutex};

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
    failed: bool,
}

impl Tail {
    pub fn new(tail: brooklet::Tail) -> Self {
        Self { state: Mutex::new(State { tail, failed: false }) }
    }
}

#[pymethods]
impl Tail {
    /// The number of the next entry that the tail returns.
    #[getter]
    fn position(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(locked(py, &self.state)?.tail.position())
    }

    /// Returns the next event, or None if the tail would wait for it.
    fn try_next<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = locked(py, &self.state)?;
        let tail = &mut state.tail;
        let event = py.detach(|| tail.try_next()).or_raise(py)?;
        event.map(|event| event.named(py)).transpose()
    }

    /// Returns the next event. Waits for `timeout` seconds at most, and then returns None.
    fn next_timeout<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<Seconds>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = locked(py, &self.state)?;
        let tail = &mut state.tail;
        let event = wait(py, timeout, |time| tail.next_timeout(time))?;
        event.map(|event| event.named(py)).transpose()
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut state = locked(py, &self.state)?;
        if state.failed {
            return Ok(None);
        }
        let mut failed = false;
        let tail = &mut state.tail;
        let event = wait(py, None, |time| tail.next_timeout(time).inspect_err(|_| failed = true));
        state.failed = failed;
        event?.map(|event| event.named(py)).transpose()
    }
}

/// A tail for coroutines, which a port polls.
#[pyclass(frozen, module = "brooklet")]
pub struct TailStream {
    pub stream: Arc<Mutex<brooklet::TailStream>>,
    /// The number of the wait that a port has.
    pub waits: Mutex<Option<u64>>,
}

impl TailStream {
    pub fn new(tail: brooklet::Tail) -> Self {
        Self { stream: Arc::new(Mutex::new(tail.into_stream())), waits: Mutex::new(None) }
    }
}
