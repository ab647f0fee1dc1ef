//! Results: the named tuples of `brooklet._types`.

use brooklet::{Bounds, Entry, LogInfo, StoreInfo, TailEvent};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyType};

use crate::error::invalid;

/// A class of `brooklet._types`, looked up once.
struct Class {
    name: &'static str,
    found: PyOnceLock<Py<PyType>>,
}

impl Class {
    const fn new(name: &'static str) -> Self {
        Self { name, found: PyOnceLock::new() }
    }

    fn get<'py>(&self, py: Python<'py>) -> PyResult<&Bound<'py, PyType>> {
        self.found.import(py, "brooklet._types", self.name)
    }
}

static ENTRY: Class = Class::new("Entry");
static BOUNDS: Class = Class::new("Bounds");
static LOG_INFO: Class = Class::new("LogInfo");
static INFO: Class = Class::new("Info");
static TRIMMED: Class = Class::new("Trimmed");
static TRUNCATED: Class = Class::new("Truncated");
static DELETED: Class = Class::new("Deleted");

/// A result of the store that Python has a named tuple for. Python runs handlers of signals while
/// it makes one, and these may raise exceptions: no result is taken before it has its tuple.
pub trait Named {
    fn named<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

impl Named for Entry {
    fn named<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        ENTRY.get(py)?.call1((self.seq, PyBytes::new(py, &self.payload)))
    }
}

impl Named for Bounds {
    fn named<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        BOUNDS.get(py)?.call1((self.first, self.next))
    }
}

impl Named for LogInfo {
    fn named<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        LOG_INFO.get(py)?.call1((PyBytes::new(py, &self.key), self.bounds.named(py)?))
    }
}

impl Named for StoreInfo {
    fn named<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let fields = PyDict::new(py);
        fields.set_item("format", self.format)?;
        fields.set_item("epoch", self.epoch)?;
        fields.set_item("size", self.size)?;
        fields.set_item("heap_free", self.heap_free)?;
        fields.set_item("ring_size", self.ring_size)?;
        fields.set_item("ring_in_use", self.ring_in_use)?;
        fields.set_item("memtable_logs", self.memtable_logs)?;
        fields.set_item("memtable_bytes", self.memtable_bytes)?;
        fields.set_item("runs", self.runs.len())?;
        fields.set_item("run_bytes", self.runs.iter().map(|run| run.bytes).sum::<u64>())?;
        fields.set_item("checkpointing", self.checkpointing)?;
        fields.set_item("compacting", self.compacting)?;
        fields.set_item("stopped", self.stopped.is_some())?;
        INFO.get(py)?.call((), Some(&fields))
    }
}

impl Named for TailEvent {
    fn named<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            TailEvent::Entry(entry) => entry.named(py),
            TailEvent::Trimmed(range) => TRIMMED.get(py)?.call1((range.start, range.end)),
            TailEvent::Truncated { next } => TRUNCATED.get(py)?.call1((*next,)),
            TailEvent::Deleted => DELETED.get(py)?.call0(),
            _ => Err(invalid(py, "the event is newer than this library")),
        }
    }
}
