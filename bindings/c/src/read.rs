//! Reads: the entries and the bounds of a log, and the logs of a store.

use std::ffi::c_void;
use std::ptr;

use brooklet::{Entries, Entry, LogInfo, Logs, Store};

use crate::arguments::{bytes, free, give, give_handle, object_mut};
use crate::error::{BROOKLET_END, BROOKLET_OK, Failure, brooklet_error, brooklet_status, call, call_for};
use crate::store::{brooklet_store, of};

/// An entry. The payload is lent by the iterator that returned it.
#[repr(C)]
pub struct brooklet_entry {
    /// The number of the entry.
    pub seq: u64,
    /// The payload.
    pub payload: *const u8,
    /// Bytes of the payload.
    pub payload_len: usize,
}

impl brooklet_entry {
    pub(crate) fn of(entry: &Entry) -> Self {
        Self { seq: entry.seq, payload: entry.payload.as_ptr(), payload_len: entry.payload.len() }
    }
}

/// The entries of a log, as they were when the iterator was made.
pub struct brooklet_entries {
    /// `None` if `lent` is the only entry.
    entries: Option<Entries>,
    /// The entry that is lent to the caller.
    lent: Option<Entry>,
    /// An entry that no buffer had room for, or an error behind entries that a buffer has.
    kept: Option<Result<Entry, Failure>>,
    /// Whether the newest entry comes first.
    reversed: bool,
}

impl brooklet_entries {
    pub(crate) fn new(entries: Entries) -> Self {
        Self { entries: Some(entries), lent: None, kept: None, reversed: false }
    }

    /// Lends one entry, behind which no other comes.
    pub(crate) fn lending(entry: Entry) -> Self {
        Self { entries: None, lent: Some(entry), kept: None, reversed: false }
    }

    pub(crate) fn next(&mut self) -> Option<Result<Entry, Failure>> {
        self.lent = None;
        let next = || {
            let entries = self.entries.as_mut()?;
            let next = if self.reversed { entries.next_back() } else { entries.next() };
            next.map(|entry| entry.map_err(Failure::from))
        };
        self.kept.take().or_else(next)
    }

    /// Takes back an item, for the next call.
    pub(crate) fn keep(&mut self, item: Result<Entry, Failure>) {
        self.kept = Some(item);
    }

    /// Passes entries to `take` until it returns `false`; that entry stays the next one. Returns
    /// whether all entries were taken.
    pub(crate) fn lend_while(&mut self, mut take: impl FnMut(u64, &[u8]) -> bool) -> Result<bool, Failure> {
        while self.reversed || self.kept.is_some() {
            let Some(entry) = self.next().transpose()? else { return Ok(true) };
            if !take(entry.seq, &entry.payload) {
                self.keep(Ok(entry));
                return Ok(false);
            }
        }
        self.lent = None;
        let Some(entries) = &mut self.entries else { return Ok(true) };
        Ok(entries.lend_while(take)?)
    }
}

/// Returns the entries of a log from `from` on and before `to`.
pub(crate) fn entries_of(
    store: &Store,
    key: &[u8],
    (from, to): (u64, u64),
    available: bool,
) -> Result<brooklet_entries, Failure> {
    let entries = match (available, to) {
        (true, u64::MAX) => store.read_available(key, from..),
        (true, to) => store.read_available(key, from..to),
        (false, u64::MAX) => store.read(key, from..),
        (false, to) => store.read(key, from..to),
    };
    Ok(brooklet_entries::new(entries?))
}

/// Reads a log: its entries from number `from` on and before number `to` (`UINT64_MAX`: to the
/// end), those on stable media. With `available`, entries outside of the log are left out, and an
/// unknown log has none; otherwise they are an error.
///
/// # Safety
/// `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `entries` is
/// valid for writing; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_read(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    from: u64,
    to: u64,
    available: bool,
    entries: *mut *mut brooklet_entries,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let read = || {
        // SAFETY: the caller's promise.
        let (store, key) = unsafe { (of(store)?, bytes(key, key_len)?) };
        // SAFETY: the caller's promise.
        unsafe { give_handle(entries, || entries_of(store, key, (from, to), available)) }?;
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(entries, error, read) }
}

/// Stores the next entry at `entry`. Its payload is lent until the next call on `entries`. Returns
/// `BROOKLET_END` after the last entry.
///
/// # Safety
/// `entries` was not freed, and no other thread uses it; `entry` is valid for writing; `error` is
/// NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_entries_next(
    entries: *mut brooklet_entries,
    entry: *mut brooklet_entry,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let next = || {
        // SAFETY: the caller's promise.
        let entries = unsafe { object_mut(entries, "the entries are NULL") }?;
        let Some(next) = entries.next().transpose()? else { return Ok(BROOKLET_END) };
        // SAFETY: the caller's promise.
        unsafe { give(entry, brooklet_entry::of(entries.lent.insert(next))) };
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, next) }
}

/// Has the later calls return the newest entry first. Call it before the first entry is taken.
///
/// # Safety
/// `entries` was not freed, and no other thread uses it; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_entries_reverse(
    entries: *mut brooklet_entries,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let reverse = || {
        // SAFETY: the caller's promise.
        let entries = unsafe { object_mut(entries, "the entries are NULL") }?;
        entries.reversed = true;
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, reverse) }
}

/// Frees entries. NULL is allowed.
///
/// # Safety
/// `entries` is NULL or was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_entries_free(entries: *mut brooklet_entries) {
    // SAFETY: the caller's promise.
    unsafe { free(entries) };
}

/// Stores the number of the first entry of a log, and the number that its next entry will get.
/// Returns `BROOKLET_NOT_FOUND` if the log does not exist. `first` and `next` may be NULL.
///
/// # Safety
/// `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `first`,
/// `next` and `error` are NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_bounds(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    first: *mut u64,
    next: *mut u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let ask = || {
        // SAFETY: the caller's promise.
        let bounds = unsafe { of(store)?.bounds(bytes(key, key_len)?) }?;
        // SAFETY: the caller's promise.
        unsafe {
            give(first, bounds.first);
            give(next, bounds.next);
        }
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, ask) }
}

/// A log. The key is lent by the iterator that returned it.
#[repr(C)]
pub struct brooklet_log {
    /// The key of the log.
    pub key: *const u8,
    /// Bytes of the key.
    pub key_len: usize,
    /// The number of its first entry.
    pub first: u64,
    /// The number that its next entry will get.
    pub next: u64,
}

/// The logs of a store, in the order of their keys.
pub struct brooklet_logs {
    logs: Logs,
    /// The log that is lent to the caller.
    lent: Option<LogInfo>,
    /// A log that no buffer had room for, or an error behind logs that a buffer has.
    kept: Option<Result<LogInfo, Failure>>,
}

impl brooklet_logs {
    pub(crate) fn next(&mut self) -> Option<Result<LogInfo, Failure>> {
        self.lent = None;
        let next = || self.logs.next().map(|log| log.map_err(Failure::from));
        self.kept.take().or_else(next)
    }

    /// Takes back an item, for the next call.
    pub(crate) fn keep(&mut self, item: Result<LogInfo, Failure>) {
        self.kept = Some(item);
    }
}

/// Lists the logs whose keys start with `prefix`, from the key `from` on (NULL: from the first).
///
/// # Safety
/// `store` is a store that was not freed; `prefix` and `from` are valid for reading so many bytes;
/// `logs` is valid for writing; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_scan(
    store: *const brooklet_store,
    prefix: *const c_void,
    prefix_len: usize,
    from: *const c_void,
    from_len: usize,
    logs: *mut *mut brooklet_logs,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let scan = || {
        // SAFETY: the caller's promise.
        let (store, prefix, from) =
            unsafe { (of(store)?, bytes(prefix, prefix_len)?, bytes(from, from_len)?) };
        let scan = || Ok(brooklet_logs { logs: store.scan_from(prefix, from)?, lent: None, kept: None });
        // SAFETY: the caller's promise.
        unsafe { give_handle(logs, scan) }?;
        Ok::<_, Failure>(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(logs, error, scan) }
}

/// Stores the next log at `log`. Its key is lent until the next call on `logs`. Returns
/// `BROOKLET_END` after the last log.
///
/// # Safety
/// `logs` was not freed, and no other thread uses it; `log` is valid for writing; `error` is NULL
/// or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_logs_next(
    logs: *mut brooklet_logs,
    log: *mut brooklet_log,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let next = || {
        // SAFETY: the caller's promise.
        let logs = unsafe { object_mut(logs, "the logs are NULL") }?;
        let Some(next) = logs.next().transpose()? else { return Ok(BROOKLET_END) };
        let lent = logs.lent.insert(next);
        let found = brooklet_log {
            key: if lent.key.is_empty() { ptr::null() } else { lent.key.as_ptr() },
            key_len: lent.key.len(),
            first: lent.bounds.first,
            next: lent.bounds.next,
        };
        // SAFETY: the caller's promise.
        unsafe { give(log, found) };
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, next) }
}

/// Frees a list of logs. NULL is allowed.
///
/// # Safety
/// `logs` is NULL or was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_logs_free(logs: *mut brooklet_logs) {
    // SAFETY: the caller's promise.
    unsafe { free(logs) };
}
