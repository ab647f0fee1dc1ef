//! Tickets: the promise of a write.

use pyo3::prelude::*;

use crate::argument::Seconds;
use crate::callback::call;
use crate::error::OrRaise;
use crate::wait::wait;

/// The promise of a write: the numbers of its entries at once, its durability later.
///
/// A thread waits for it (`wait`), a coroutine awaits it. Dropping it does not cancel the write.
#[pyclass(frozen, module = "brooklet")]
pub struct Ticket {
    pub ticket: brooklet::Ticket,
}

#[pymethods]
impl Ticket {
    /// The number of the appended entry, or of the first one; 0 if the write appended none.
    #[getter]
    fn seq(&self) -> u64 {
        self.ticket.seq()
    }

    /// The numbers of all appended entries, in the order of the operations.
    #[getter]
    fn seqs(&self) -> Vec<u64> {
        self.ticket.seqs().to_vec()
    }

    /// Whether the write is acknowledged or has failed.
    #[getter]
    fn is_done(&self) -> bool {
        self.ticket.has_ended()
    }

    /// Whether the write is on stable media.
    #[getter]
    fn is_durable(&self) -> bool {
        self.ticket.is_durable()
    }

    /// Waits until the write is acknowledged: on stable media, or at once for a deferred commit.
    ///
    /// Waits for `timeout` seconds at most, and returns whether the write is acknowledged. The
    /// write continues. Ctrl-C ends the wait.
    #[pyo3(signature = (timeout = None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Seconds>) -> PyResult<bool> {
        let step = |time| Ok(self.ticket.wait_timeout(time)?.then_some(()));
        Ok(wait(py, timeout, step)?.is_some())
    }

    /// Waits until the write is on stable media, also for a deferred commit.
    fn wait_durable(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.ticket.wait_durable()).or_raise(py)
    }

    /// Calls `callback` once, with None, or with the exception if the write has failed.
    ///
    /// Callbacks run one after another on a thread of the store; or at once on this thread, if the
    /// write has ended. An exception in a callback goes to `sys.unraisablehook`.
    fn on_done(&self, py: Python<'_>, callback: Py<PyAny>) {
        py.detach(|| self.ticket.on_done(move |result| call(&callback, result)));
    }

    /// Waits in a coroutine, and blocks no thread meanwhile.
    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let waits = slf.py().import("brooklet._aio")?.call_method1("acknowledged", (slf,))?;
        waits.call_method0("__await__")
    }

    fn __repr__(&self) -> String {
        let is_done = if self.ticket.has_ended() { "True" } else { "False" };
        format!("Ticket(seqs={:?}, is_done={is_done})", self.ticket.seqs())
    }
}

impl From<brooklet::Ticket> for Ticket {
    fn from(ticket: brooklet::Ticket) -> Self {
        Self { ticket }
    }
}
