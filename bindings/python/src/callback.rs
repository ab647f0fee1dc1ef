//! Callbacks: Python code that a thread of the store runs.
//!
//! A thread that is not Python's must not enter an interpreter that ends. So the end of the
//! interpreter closes a gate, and waits for the callbacks that run.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use brooklet::Error;
use pyo3::prelude::*;

use crate::error::exception;

/// How often the end of the interpreter looks whether the callbacks have ended.
const LOOK: Duration = Duration::from_millis(1);

/// One number, and no lock: a fork copies it at any moment. The upper 32 bits are the process,
/// then comes `CLOSED`, and the other bits count the callbacks that run. In a child of a fork the
/// gate is open, and no callback runs: the threads that ran those of the parent are not there.
struct Gate(AtomicU64);

const CLOSED: u64 = 1 << 31;

static GATE: Gate = Gate(AtomicU64::new(0));

/// A callback that runs, in this process. A callback may fork, and its copy ends in the child too.
struct Running(u32);

impl Gate {
    /// Changes the gate of this process, unless `next` returns `None`.
    fn change(&self, next: impl Fn(u64) -> Option<u64>) -> bool {
        let open = u64::from(std::process::id()) << 32;
        let own = |gate: u64| if gate >> 32 == open >> 32 { gate } else { open };
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |gate| next(own(gate))).is_ok()
    }

    fn enter(&self) -> Option<Running> {
        self.change(|gate| (gate & CLOSED == 0).then_some(gate + 1)).then(|| Running(std::process::id()))
    }

    fn close(&self) {
        self.change(|gate| Some(gate | CLOSED));
        while self.0.load(Ordering::SeqCst) & (CLOSED - 1) > 0 {
            sleep(LOOK);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a wait by a lock would not end in a child of a fork")]
fn sleep(time: Duration) {
    std::thread::sleep(time);
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.0 == std::process::id() {
            GATE.change(|gate| Some(gate - 1));
        }
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
