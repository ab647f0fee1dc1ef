//! Callbacks: Python code that a thread of the store runs.
//!
//! A thread that is not Python's must not enter an interpreter that ends. So the end of the
//! interpreter closes a gate, and waits for the callbacks that run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use brooklet::Error;
use pyo3::prelude::*;

use crate::error::exception;

struct Gate {
    state: Mutex<State>,
    idle: Condvar,
}

struct State {
    closed: bool,
    running: usize,
}

static GATE: Gate = Gate { state: Mutex::new(State { closed: false, running: 0 }), idle: Condvar::new() };

/// A callback that runs.
struct Running;

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self) -> Option<Running> {
        let mut state = self.state();
        if state.closed {
            return None;
        }
        state.running += 1;
        Some(Running)
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let ended = self.idle.wait_while(state, |state| state.running > 0);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        GATE.state().running -= 1;
        GATE.idle.notify_all();
    }
}

/// Calls `callback` with the exception of a write, or None. An exception of its own goes to
/// `sys.unraisablehook`.
pub fn call(callback: &Py<PyAny>, result: Result<(), Error>) {
    let Some(_running) = GATE.enter() else { return };
    Python::try_attach(|py| {
        let failed = result.err().map(|error| exception(py, &error).into_value(py));
        if let Err(error) = callback.call1(py, (failed,)) {
            error.write_unraisable(py, Some(callback.bind(py)));
        }
    });
}

/// Waits for the callbacks that run, and lets no further one begin. For the end of the interpreter.
#[pyfunction]
pub fn end_callbacks(py: Python<'_>) {
    py.detach(|| GATE.close());
}
