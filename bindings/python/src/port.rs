//! Ports: where the waits of one event loop end.
//!
//! A wait is a future of the store and one of `asyncio`. The store wakes a wait by its number,
//! from any thread: the number joins a list, and a pipe gets one byte if the list was empty. The
//! event loop watches the pipe, and polls all woken waits in one turn. So no thread of the store
//! runs Python code, and many ends cost one wake-up.

use std::io::Read;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use brooklet::Error;
use pyo3::intern;
use pyo3::prelude::*;

use crate::argument::{Key, Payload};
use crate::commit::Commit;
use crate::error::{exception, invalid};
use crate::pending::{LAST, Outcome, PORTS, Pending, Wait, Waking, Woken, Work};
use crate::reach::Reach;
use crate::store::Store;
use crate::tail::TailStream;
use crate::ticket::Ticket;
use crate::wait::held;

/// Where the waits of one event loop end.
#[pyclass(frozen, module = "brooklet")]
pub struct Port {
    woken: Arc<Mutex<Woken>>,
    pending: Arc<Pending>,
}

/// A wait that was polled.
type Polled = (Wait, Poll<Result<Outcome, Error>>);

impl Port {
    /// Begins a wait, and returns its number if it has not ended.
    fn begin(slf: &Bound<'_, Self>, work: Work, future: Py<PyAny>) -> PyResult<Option<u64>> {
        let (py, port) = (slf.py(), slf.get());
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let waker = Waker::from(Arc::new(Waking { woken: port.woken.clone(), wait: number }));
        let awaited = future.clone_ref(py);
        port.advance(py, vec![Wait { number, work, waker, future }])?;
        let may_end_early = held(&port.pending).get(&number).map(|wait| wait.work.may_end_early());
        if may_end_early == Some(true) {
            let leaving = Bound::new(py, Leaving { port: slf.clone().unbind(), wait: number })?;
            awaited.bind(py).call_method1(intern!(py, "add_done_callback"), (leaving,))?;
        }
        Ok(may_end_early.map(|_| number))
    }

    /// Ends a wait that has not ended. That cancels a commit that waits for room or for a read.
    fn forget(&self, py: Python<'_>, number: u64) {
        let left = held(&self.pending).remove(&number);
        if let Some(wait) = left {
            py.detach(|| drop(wait.work));
        }
    }

    /// Polls waits. Ends those that are ready, and keeps the others.
    fn advance(&self, py: Python<'_>, waits: Vec<Wait>) -> PyResult<()> {
        let polled = py.detach(|| -> Vec<Polled> {
            let poll = |mut wait: Wait| {
                let result = wait.work.poll(&mut Context::from_waker(&wait.waker));
                (wait, result)
            };
            waits.into_iter().map(poll).collect()
        });
        let (mut ended, mut settled) = (Vec::new(), Ok(()));
        for (wait, result) in polled {
            match result {
                Poll::Pending => drop(held(&self.pending).insert(wait.number, wait)),
                Poll::Ready(result) => {
                    // An error here must not lose the waits that follow.
                    settled = settled.and(settle(py, wait.future.bind(py), result));
                    ended.push(wait.work);
                }
            }
        }
        // The last handle of a store may be among them, and closing it takes time.
        py.detach(|| drop(ended));
        settled
    }
}

/// Ends a wait with its future. `asyncio` calls it when the future is done: nobody waits for a
/// future that was cancelled.
#[pyclass(frozen, module = "brooklet")]
struct Leaving {
    port: Py<Port>,
    wait: u64,
}

#[pymethods]
impl Leaving {
    fn __call__(&self, py: Python<'_>, _future: &Bound<'_, PyAny>) {
        self.port.get().forget(py, self.wait);
    }
}

/// Hands the result of a wait to its future.
fn settle(py: Python<'_>, future: &Bound<'_, PyAny>, result: Result<Outcome, Error>) -> PyResult<()> {
    if is_done(future)? {
        return Ok(());
    }
    let value = match result {
        Ok(Outcome::Seq(seq)) => seq.into_pyobject(py)?.into_any(),
        Ok(Outcome::Seqs(seqs)) => seqs.into_pyobject(py)?.into_any(),
        Ok(Outcome::Done) => py.None().into_bound(py),
        Err(error) => {
            let error = exception(py, &error);
            return future.call_method1(intern!(py, "set_exception"), (error,)).map(drop);
        }
    };
    future.call_method1(intern!(py, "set_result"), (value,)).map(drop)
}

fn is_done(future: &Bound<'_, PyAny>) -> PyResult<bool> {
    future.call_method0(intern!(future.py(), "done"))?.is_truthy()
}

#[pymethods]
impl Port {
    #[new]
    fn new() -> PyResult<Self> {
        let (reader, writer) = std::io::pipe()?;
        let woken = Arc::new(Mutex::new(Woken { waits: Vec::new(), has_byte: false, reader, writer }));
        let pending = Arc::new(Pending::default());
        let mut ports = held(&PORTS);
        ports.retain(|(_, port)| port.strong_count() > 0);
        ports.push((std::process::id(), Arc::downgrade(&pending)));
        Ok(Self { woken, pending })
    }

    /// The descriptor that is readable while woken waits are there.
    fn fileno(&self) -> i32 {
        held(&self.woken).reader.as_raw_fd()
    }

    /// Polls the woken waits.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        let woken = {
            let mut woken = held(&self.woken);
            if std::mem::take(&mut woken.has_byte) {
                // The byte is there, so this does not block.
                let _ = woken.reader.read(&mut [0]);
            }
            std::mem::take(&mut woken.waits)
        };
        let waits: Vec<Wait> = {
            let mut pending = held(&self.pending);
            woken.iter().filter_map(|number| pending.remove(number)).collect()
        };
        // A future that was cancelled gets nothing more: its event stays in the tail.
        let (mut cancelled, mut wanted) = (Vec::new(), Vec::with_capacity(waits.len()));
        for wait in waits {
            let over = is_done(wait.future.bind(py)).unwrap_or(false);
            if over {
                cancelled.push(wait)
            } else {
                wanted.push(wait)
            };
        }
        py.detach(|| drop(cancelled));
        self.advance(py, wanted)
    }

    /// Forgets all waits: their event loop is closed.
    fn clear(&self, py: Python<'_>) {
        let pending = std::mem::take(&mut *held(&self.pending));
        py.detach(|| drop(pending));
    }

    /// Appends, and ends `future` with the number when the entry is acknowledged.
    fn append(
        slf: &Bound<'_, Self>,
        store: &Store,
        key: Key,
        payload: Payload,
        future: Py<PyAny>,
    ) -> PyResult<()> {
        let store = store.handle(slf.py())?;
        let work = Work::Append(store.append_async(&key, &payload));
        slf.py().detach(|| drop(store));
        Self::begin(slf, work, future).map(drop)
    }

    /// Commits, and ends `future` with the numbers when the commit is acknowledged.
    fn commit(slf: &Bound<'_, Self>, store: &Store, commit: &Commit, future: Py<PyAny>) -> PyResult<()> {
        let store = store.handle(slf.py())?;
        let work = Work::Commit(store.commit_async(commit.commit.clone()));
        slf.py().detach(|| drop(store));
        Self::begin(slf, work, future).map(drop)
    }

    /// Ends `future` when a write is acknowledged.
    fn ticket(slf: &Bound<'_, Self>, ticket: &Ticket, future: Py<PyAny>) -> PyResult<()> {
        Self::begin(slf, Work::Ticket(ticket.ticket.clone()), future).map(drop)
    }

    /// Ends `future` when a log has reached a number.
    fn reach(slf: &Bound<'_, Self>, reach: &Reach, future: Py<PyAny>) -> PyResult<()> {
        Self::begin(slf, Work::Reach(reach.waiting.clone()), future).map(drop)
    }

    /// Ends `future` when a tail has its next event, which stays in the tail.
    fn tail(slf: &Bound<'_, Self>, tail: &TailStream, future: Py<PyAny>) -> PyResult<()> {
        let (py, pending) = (slf.py(), &slf.get().pending);
        let former = held(&tail.waits).take();
        let former = former.and_then(|number| held(pending).remove(&number));
        if let Some(wait) = former {
            let is_over = is_done(wait.future.bind(py));
            if !matches!(is_over, Ok(true)) {
                let number = wait.number;
                held(pending).insert(number, wait);
                *held(&tail.waits) = Some(number);
                is_over?;
                return Err(invalid(py, "another task waits for the tail: give each task its own"));
            }
            drop(wait);
        }
        let waits = Self::begin(slf, Work::Tail(tail.following.clone()), future)?;
        *held(&tail.waits) = waits;
        Ok(())
    }
}
