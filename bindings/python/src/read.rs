//! Reads: the entries of a log, and the logs of a store.

use std::collections::VecDeque;
use std::sync::Mutex;

use brooklet::{Entry, Error, LogInfo};
use pyo3::prelude::*;
use pyo3::types::PyList;

use crate::error::OrRaise;
use crate::result::Named;
use crate::wait::locked;

/// Most items, and most of their bytes, that are read at once. The first batch is smaller.
const MOST: usize = 256;
const MOST_BYTES: usize = 256 << 10;
const FIRST: usize = 8;

/// Bytes of an item.
trait Size {
    fn size(&self) -> usize;
}

impl Size for Entry {
    fn size(&self) -> usize {
        self.payload.len()
    }
}

impl Size for LogInfo {
    fn size(&self) -> usize {
        self.key.len()
    }
}

/// An iterator of the store. It reads batches, so that it releases the interpreter's lock once for
/// many items.
struct Ahead<I, T> {
    items: I,
    /// Items of the last batch that were not returned.
    ready: VecDeque<T>,
    /// The error behind them.
    failed: Option<Error>,
    batch: usize,
    over: bool,
}

impl<T: Size + Named + Send, I: Iterator<Item = Result<T, Error>> + Send> Ahead<I, T> {
    fn new(items: I) -> Self {
        Self { items, ready: VecDeque::new(), failed: None, batch: FIRST, over: false }
    }

    fn fill(&mut self) {
        let mut bytes = 0;
        while !self.over && self.ready.len() < self.batch && bytes < MOST_BYTES {
            match self.items.next() {
                Some(Ok(item)) => {
                    bytes += item.size();
                    self.ready.push_back(item);
                }
                Some(Err(error)) => (self.failed, self.over) = (Some(error), true),
                None => self.over = true,
            }
        }
        self.batch = MOST.min(self.batch * 4);
    }

    fn next<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.ready.is_empty() && !self.over {
            py.detach(|| self.fill());
        }
        let Some(item) = self.ready.front() else {
            return self.failed.take().map_or(Ok(()), Err).or_raise(py).map(|()| None);
        };
        let named = item.named(py)?;
        self.ready.pop_front();
        Ok(Some(named))
    }

    /// Returns the next batch; an empty one at the end.
    fn take<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        if self.ready.is_empty() && !self.over {
            py.detach(|| self.fill());
        }
        if self.ready.is_empty() {
            self.failed.take().map_or(Ok(()), Err).or_raise(py)?;
        }
        let named = self.ready.iter().map(|item| item.named(py)).collect::<PyResult<Vec<_>>>()?;
        let batch = PyList::new(py, named)?;
        self.ready.clear();
        Ok(batch)
    }
}

type Items<T> = Box<dyn Iterator<Item = Result<T, Error>> + Send>;

/// The entries of a log, as they were when the read began.
#[pyclass(frozen, module = "brooklet")]
pub struct Entries {
    ahead: Mutex<Ahead<Items<Entry>, Entry>>,
}

impl Entries {
    pub fn new(entries: brooklet::Entries, reverse: bool) -> Self {
        let items: Items<Entry> = if reverse { Box::new(entries.rev()) } else { Box::new(entries) };
        Self { ahead: Mutex::new(Ahead::new(items)) }
    }
}

#[pymethods]
impl Entries {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        locked(py, &self.ahead)?.next(py)
    }

    /// Returns the next entries; none at the end.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        locked(py, &self.ahead)?.take(py)
    }
}

/// The logs of a store, in the order of their keys.
#[pyclass(frozen, module = "brooklet")]
pub struct Logs {
    ahead: Mutex<Ahead<brooklet::Logs, LogInfo>>,
}

impl Logs {
    pub fn new(logs: brooklet::Logs) -> Self {
        Self { ahead: Mutex::new(Ahead::new(logs)) }
    }
}

#[pymethods]
impl Logs {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        locked(py, &self.ahead)?.next(py)
    }

    /// Returns the next logs; none at the end.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        locked(py, &self.ahead)?.take(py)
    }
}
