//! Tails: readers that follow a log.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use brooklet::{Error, TailEvent};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;

use crate::argument::Seconds;
use crate::error::OrRaise;
use crate::result::Named;
use crate::wait::{held, locked, now, wait};

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

/// Most events that are taken for coroutines at once, and about the most bytes of their payloads.
const MOST: usize = 64;
const MOST_BYTES: usize = 256 << 10;

/// How long a tail that had returned all events finds the next ones in memory. Older ones may be in
/// the file only.
const FRESH: Duration = Duration::from_millis(100);

/// A tail for coroutines. A port polls it for new events; another thread reads the old ones.
#[pyclass(frozen, module = "brooklet")]
pub struct TailStream {
    pub following: Arc<Following>,
    /// The number of the wait that a port has.
    pub waits: Mutex<Option<u64>>,
    /// The process that made it: in a child of a fork, nobody ends a reading that has begun.
    process: u32,
}

/// A tail, and the events that came for a coroutine. An event stays here until the coroutine runs
/// and takes it: a task may be cancelled when its event is there and before the task runs.
pub struct Following {
    /// Held while events are taken, which may take time: not under the other lock, but for new
    /// events.
    tail: Mutex<brooklet::Tail>,
    came: Mutex<Came>,
}

/// The events that came.
#[derive(Default)]
struct Came {
    /// In their order; none after the end of the tail.
    ready: VecDeque<Result<Option<TailEvent>, Error>>,
    /// Whether an error has ended the tail.
    ended: bool,
    /// The time when the tail had returned all events, if no further one was found since.
    caught_up: Option<Instant>,
    /// Whether another thread reads, or will.
    reading: bool,
    /// Whether it reads now.
    reads: bool,
    /// The wait for the end of that reading.
    waker: Option<Waker>,
}

impl Came {
    /// Adds the events that `next` returns, until there are none or many.
    fn fill(&mut self, mut next: impl FnMut() -> Result<Option<TailEvent>, Error>) {
        self.caught_up = None;
        let mut bytes = 0;
        while self.ready.len() < MOST && bytes < MOST_BYTES {
            match next() {
                Ok(Some(event)) => {
                    if let TailEvent::Entry(entry) = &event {
                        bytes += entry.payload.len();
                    }
                    self.ready.push_back(Ok(Some(event)));
                }
                Ok(None) => {
                    self.caught_up = Some(now());
                    return;
                }
                Err(error) => {
                    self.ended = true;
                    self.ready.push_back(Err(error));
                    return;
                }
            }
        }
    }
}

impl Following {
    /// Returns whether an event is there to be taken. The waker is called if there is none yet.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut came = held(&self.came);
        if came.ready.is_empty() {
            if came.reading {
                came.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            if came.ended {
                came.ready.push_back(Ok(None));
            } else {
                let mut tail = held(&self.tail);
                came.fill(|| match pin!(tail.next_async()).poll(context) {
                    Poll::Ready(event) => event.map(Some),
                    Poll::Pending => Ok(None),
                });
            }
        }
        if came.ready.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Returns whether the caller has to read: the next events may be old ones. Until the end of
    /// that reading, polls wait for it.
    fn begin_reading(&self) -> bool {
        let mut came = held(&self.came);
        let is_behind = came.caught_up.is_none_or(|at| at.elapsed() > FRESH);
        let begins = is_behind && came.ready.is_empty() && !came.reading && !came.ended;
        came.reading |= begins;
        begins
    }

    /// Returns whether the caller is the one who reads. A reading that was given up may come late,
    /// and two at once would mix their events.
    fn enter(&self) -> bool {
        let mut came = held(&self.came);
        let enters = came.reading && !came.reads && !came.ended;
        came.reads |= enters;
        enters
    }

    /// Reads the events that are there.
    fn read(&self) {
        if !self.enter() {
            return;
        }
        let mut read = Came::default();
        let mut tail = held(&self.tail);
        read.fill(|| tail.try_next());
        drop(tail);
        let mut came = held(&self.came);
        came.ready.append(&mut read.ready);
        (came.ended, came.caught_up, came.reads) = (read.ended, read.caught_up, false);
        drop(came);
        self.end_reading();
    }

    /// Ends a reading, unless a thread reads now: that one ends it.
    fn end_reading(&self) {
        let mut came = held(&self.came);
        if came.reads {
            return;
        }
        came.reading = false;
        let waker = came.waker.take();
        drop(came);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl TailStream {
    pub fn new(tail: brooklet::Tail) -> Self {
        let following = Following { tail: Mutex::new(tail), came: Mutex::default() };
        Self { following: Arc::new(following), waits: Mutex::new(None), process: std::process::id() }
    }

    /// Refuses a call in a child of a fork, before it takes a lock that a thread of the parent may
    /// have held.
    fn here(&self) -> Result<(), Error> {
        if std::process::id() == self.process { Ok(()) } else { Err(Error::Forked) }
    }
}

#[pymethods]
impl TailStream {
    /// Whether the next event is there.
    #[getter]
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        self.here().or_raise(py)?;
        Ok(py.detach(|| !held(&self.following.came).ready.is_empty()))
    }

    /// Returns whether the caller has to read (`read`) on another thread, or to end the reading
    /// (`end_reading`).
    fn begin_reading(&self, py: Python<'_>) -> PyResult<bool> {
        self.here().or_raise(py)?;
        Ok(py.detach(|| self.following.begin_reading()))
    }

    /// Reads old events.
    fn read(&self, py: Python<'_>) {
        py.detach(|| self.following.read());
    }

    /// Ends a reading without `read`.
    fn end_reading(&self, py: Python<'_>) {
        py.detach(|| self.following.end_reading());
    }

    /// Takes the next event, which is there.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let event = py.detach(|| held(&self.following.came).ready.pop_front());
        match event.unwrap_or(Ok(None)).or_raise(py)? {
            Some(event) => event.named(py).inspect_err(|_| {
                py.detach(|| held(&self.following.came).ready.push_front(Ok(Some(event))));
            }),
            None => Err(PyStopAsyncIteration::new_err(())),
        }
    }
}
