//! A store: opening, closing, writes and reads.

use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};

use brooklet::{Create, Error, Options, WaitingFor};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::argument::{Key, Payload, Seconds, range};
use crate::commit::{Commit, retention};
use crate::error::OrRaise;
use crate::pending::end_writes;
use crate::reach::Reach;
use crate::read::{Entries, Logs};
use crate::result::Named;
use crate::tail::{Tail, TailStream};
use crate::ticket::Ticket;
use crate::wait::{park, wait};

/// An open store. Many threads may use it.
#[pyclass(frozen, weakref, module = "brooklet")]
pub struct Store {
    /// The store, until it is closed.
    store: RwLock<Option<brooklet::Store>>,
}

impl Store {
    /// Returns a handle of the store, if it is open. The last handle closes the store, which takes
    /// time, and callbacks may need the interpreter: drop it in `detach`.
    pub fn handle(&self, py: Python<'_>) -> PyResult<brooklet::Store> {
        self.opened().or_raise(py)
    }

    fn opened(&self) -> Result<brooklet::Store, Error> {
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner).clone();
        store.ok_or(Error::Closed)
    }

    fn take(&self) -> Option<brooklet::Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn write(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&brooklet::Store) -> Result<brooklet::Ticket, Error> + Send,
    ) -> PyResult<Ticket> {
        self.ask(py, work).map(Ticket::from)
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&brooklet::Store) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let store = self.handle(py)?;
        let call = move || {
            let result = work(&store);
            drop(store);
            result
        };
        py.detach(call).or_raise(py)
    }

    fn waiting(&self, py: Python<'_>, key: &Key, next: u64) -> PyResult<WaitingFor> {
        self.ask(py, |store| Ok(store.wait_for_async(key, next)))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if let Some(store) = self.take() {
            Python::try_attach(|py| py.detach(|| drop(store)));
        }
    }
}

/// Opens the store at `path`, or creates it.
#[pyfunction]
#[pyo3(signature = (path, *, create = "if_missing", read_only = false, beside_writer = false, ring_size = None,
    ring_at = None, capacity = None, memory_budget = None, cache_budget = None, max_payload = None, linger = None,
    permissions = None))]
#[expect(clippy::too_many_arguments, reason = "they have names in Python")]
pub fn open(
    py: Python<'_>,
    path: PathBuf,
    create: &str,
    read_only: bool,
    beside_writer: bool,
    ring_size: Option<u64>,
    ring_at: Option<PathBuf>,
    capacity: Option<u64>,
    memory_budget: Option<usize>,
    cache_budget: Option<usize>,
    max_payload: Option<usize>,
    linger: Option<Seconds>,
    permissions: Option<u32>,
) -> PyResult<Store> {
    let create = match create {
        "never" => Create::Never,
        "if_missing" => Create::IfMissing,
        "new" => Create::New,
        _ => return Err(PyValueError::new_err("create is none of \"never\", \"if_missing\" and \"new\"")),
    };
    let mut options = Options::new().create(create).read_only(read_only).beside_writer(beside_writer);
    options = set(options, ring_size, Options::ring_size);
    options = set(options, ring_at, Options::ring_at);
    options = set(options, capacity, Options::capacity);
    options = set(options, memory_budget, Options::memory_budget);
    options = set(options, cache_budget, Options::cache_budget);
    options = set(options, max_payload, Options::max_payload);
    options = set(options, linger, |options, Seconds(time)| options.linger(time));
    options = set(options, permissions, Options::permissions);
    let store = py.detach(|| options.open(path)).or_raise(py)?;
    Ok(Store { store: RwLock::new(Some(store)) })
}

fn set<T>(options: Options, value: Option<T>, how: impl FnOnce(Options, T) -> Options) -> Options {
    match value {
        Some(value) => how(options, value),
        None => options,
    }
}

#[pymethods]
impl Store {
    /// Appends an entry to a log; the first entry creates the log. May wait for room.
    fn append(&self, py: Python<'_>, key: Key, payload: Payload) -> PyResult<Ticket> {
        self.write(py, |store| store.append(&key, &payload))
    }

    /// Appends entries to a log, all or none.
    fn append_many(&self, py: Python<'_>, key: Key, payloads: &Bound<'_, PyAny>) -> PyResult<Ticket> {
        let payloads: Vec<Payload> =
            payloads.try_iter()?.map(|payload| payload?.extract()).collect::<PyResult<_>>()?;
        self.write(py, |store| store.append_many(&key, &payloads))
    }

    /// Appends an entry that holds the whole state of a log, and trims all entries before it.
    fn snapshot(&self, py: Python<'_>, key: Key, payload: Payload) -> PyResult<Ticket> {
        self.write(py, |store| store.snapshot(&key, &payload))
    }

    /// Removes the entries of a log before number `before`.
    fn trim(&self, py: Python<'_>, key: Key, before: u64) -> PyResult<Ticket> {
        self.write(py, |store| store.trim(&key, before))
    }

    /// Removes all but the last `n` entries of a log.
    fn keep_last(&self, py: Python<'_>, key: Key, n: u64) -> PyResult<Ticket> {
        self.write(py, |store| store.keep_last(&key, n))
    }

    /// Has a log begin at number `first`.
    fn begin_at(&self, py: Python<'_>, key: Key, first: u64) -> PyResult<Ticket> {
        self.write(py, |store| store.begin_at(&key, first))
    }

    /// Removes the entries of a log from number `start` on.
    fn truncate(&self, py: Python<'_>, key: Key, start: u64) -> PyResult<Ticket> {
        self.write(py, |store| store.truncate(&key, start))
    }

    /// Deletes a log.
    fn delete(&self, py: Python<'_>, key: Key) -> PyResult<Ticket> {
        self.write(py, |store| store.delete(&key))
    }

    /// Has a log keep its newest entries only: so many, so many bytes, not older than `age`
    /// seconds.
    #[pyo3(signature = (key, *, entries = None, bytes = None, age = None))]
    fn set_retention(
        &self,
        py: Python<'_>,
        key: Key,
        entries: Option<u64>,
        bytes: Option<u64>,
        age: Option<Seconds>,
    ) -> PyResult<Ticket> {
        self.write(py, |store| store.set_retention(&key, retention(entries, bytes, age)))
    }

    /// Commits operations on many logs, all or none. May wait for room.
    fn commit(&self, py: Python<'_>, commit: &Commit) -> PyResult<Ticket> {
        let commit = &commit.commit;
        self.write(py, |store| store.commit(commit))
    }

    /// Commits like `commit`, and raises `BusyError` instead of waiting for room.
    fn try_commit(&self, py: Python<'_>, commit: &Commit) -> PyResult<Ticket> {
        let commit = &commit.commit;
        self.write(py, |store| store.try_commit(commit))
    }

    /// Reads the entries of a log from number `start` on and before `stop`. A number outside of the
    /// log is an error.
    #[pyo3(signature = (key, start = None, stop = None, *, reverse = false))]
    fn read(
        &self,
        py: Python<'_>,
        key: Key,
        start: Option<u64>,
        stop: Option<u64>,
        reverse: bool,
    ) -> PyResult<Entries> {
        let entries = self.ask(py, |store| store.read(&key, range(start, stop)))?;
        Ok(Entries::new(entries, reverse))
    }

    /// Reads like `read`, and leaves out the entries that the log does not have.
    #[pyo3(signature = (key, start = None, stop = None, *, reverse = false))]
    fn read_available(
        &self,
        py: Python<'_>,
        key: Key,
        start: Option<u64>,
        stop: Option<u64>,
        reverse: bool,
    ) -> PyResult<Entries> {
        let entries = self.ask(py, |store| store.read_available(&key, range(start, stop)))?;
        Ok(Entries::new(entries, reverse))
    }

    /// Returns the first entry of a log, or None.
    fn first<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.ask(py, |store| store.first(&key))?.map(|entry| entry.named(py)).transpose()
    }

    /// Returns the last entry of a log, or None.
    fn last<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.ask(py, |store| store.last(&key))?.map(|entry| entry.named(py)).transpose()
    }

    /// Returns the bounds of a log. An unknown log is an error.
    fn bounds<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, |store| store.bounds(&key))?.named(py)
    }

    /// Returns the bounds of a log, or None.
    fn get_bounds<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.ask(py, |store| store.get_bounds(&key))?.map(|bounds| bounds.named(py)).transpose()
    }

    /// Returns whether a log exists.
    fn exists(&self, py: Python<'_>, key: Key) -> PyResult<bool> {
        self.ask(py, |store| store.exists(&key))
    }

    /// Lists the logs whose keys start with `prefix`, from the key `start` on.
    #[pyo3(signature = (prefix = None, start = None))]
    fn scan(&self, py: Python<'_>, prefix: Option<Key>, start: Option<Key>) -> PyResult<Logs> {
        let bytes = |key: &Option<Key>| key.as_ref().map(|key| key.as_ref().to_vec()).unwrap_or_default();
        let (prefix, start) = (bytes(&prefix), bytes(&start));
        Ok(Logs::new(self.ask(py, |store| store.scan_from(prefix, start))?))
    }

    /// Follows a log from entry `start` on. The log may be created later.
    #[pyo3(signature = (key, start = 0))]
    fn tail(&self, py: Python<'_>, key: Key, start: u64) -> PyResult<Tail> {
        Ok(Tail::new(self.ask(py, |store| store.tail(&key, start))?))
    }

    /// Follows a log like `tail`, for coroutines.
    fn tail_stream(&self, py: Python<'_>, key: Key, start: u64) -> PyResult<TailStream> {
        Ok(TailStream::new(self.ask(py, |store| store.tail(&key, start))?))
    }

    /// Waits until the next number of a log is at least `next`, for `timeout` seconds at most.
    ///
    /// Returns whether the log has reached the number. Ctrl-C ends the wait.
    #[pyo3(signature = (key, next, timeout = None))]
    fn wait_for(&self, py: Python<'_>, key: Key, next: u64, timeout: Option<Seconds>) -> PyResult<bool> {
        // It counts what comes between two slices of the wait, and does not keep the store open.
        let mut waiting = self.waiting(py, &key, next)?;
        Ok(wait(py, timeout, |time| park(&mut waiting, time).transpose())?.is_some())
    }

    /// Waits like `wait_for`, for coroutines. The wait begins with the call.
    fn reach(&self, py: Python<'_>, key: Key, next: u64) -> PyResult<Reach> {
        self.waiting(py, &key, next).map(Reach::new)
    }

    /// Returns numbers about the store.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.ask(py, brooklet::Store::info)?.named(py)
    }

    /// Waits until every commit so far is on stable media, deferred ones too.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, brooklet::Store::flush)
    }

    /// Moves all entries from the ring into runs.
    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, brooklet::Store::checkpoint)
    }

    /// Waits until all commits are on stable media, and releases the file. A second call does
    /// nothing. If a space in memory has no room for its dump, the store is closed all the same,
    /// and the space stays as in its last dump.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(store) = self.take() else { return Ok(()) };
        let closed = py.detach(|| store.close());
        if !matches!(closed, Err(Error::Forked)) {
            end_writes(py);
        }
        // The file is released with the last handle.
        py.detach(|| drop(store));
        closed.or_raise(py)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_raised))]
    fn __exit__(&self, py: Python<'_>, _raised: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    fn __contains__(&self, py: Python<'_>, key: Key) -> PyResult<bool> {
        self.exists(py, key)
    }

    fn __repr__(&self) -> String {
        let store = self.store.read().unwrap_or_else(PoisonError::into_inner);
        store.as_ref().map_or("Store(closed)".into(), |store| format!("{store:?}"))
    }
}
