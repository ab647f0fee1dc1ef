//! A store: opening, closing, and writes of one operation.

use std::ffi::{c_char, c_void};
use std::time::Duration;

use brooklet::{Error, Store, Ticket};

use crate::arguments::{bytes, free, give, give_handle, object, path, retention, time};
use crate::error::{BROOKLET_OK, BROOKLET_TIMEOUT, Failure, brooklet_error, brooklet_status, call, call_for};
use crate::options::brooklet_options;
use crate::ticket::brooklet_ticket;

/// An open store. Many threads may use it.
pub struct brooklet_store {
    pub(crate) store: Store,
}

/// Returns the store of a handle.
///
/// # Safety
/// `store` is null, or valid for as long as the result is used.
pub(crate) unsafe fn of<'a>(store: *const brooklet_store) -> Result<&'a Store, Failure> {
    // SAFETY: the caller's promise.
    unsafe { object(store, "the store is NULL") }.map(|store| &store.store)
}

/// Returns the version of the library, such as "0.1.0". Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn brooklet_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// Opens the store at `path`, or creates it. `options` may be NULL. Close the store with
/// `brooklet_close`, then free it with `brooklet_store_free`.
///
/// # Safety
/// `path` is a text that ends with NUL; `options` is NULL or valid; `store` is valid for writing;
/// `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_open(
    path: *const c_char,
    options: *const brooklet_options,
    store: *mut *mut brooklet_store,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let open = || {
        // SAFETY: the caller's promise.
        let (path, given) = unsafe { (self::path(path)?, options.as_ref()) };
        let options = given.map(|given| given.options.clone()).unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { give_handle(store, || Ok(brooklet_store { store: options.open(path)? })) }?;
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(store, error, open) }
}

/// Closes the store: waits until all commits are on stable media. Later writes return
/// `BROOKLET_STOPPED`. `brooklet_store_free` releases the file. A second call does nothing.
///
/// With `BROOKLET_FULL`, a space in memory found no room for its dump, and the store stays open:
/// make room, and call this again. `brooklet_store_free` closes the store all the same, and leaves
/// the space as in its last dump.
///
/// # Safety
/// `store` is a store that was not freed; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_close(
    store: *mut brooklet_store,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { on(store, error, |store| store.close()) }
}

/// Frees a store, and closes it before if it is open; errors of that are lost. NULL is allowed.
///
/// # Safety
/// `store` is NULL or a store that was not freed. No other call uses it now or later. Tickets,
/// iterators and queues may be freed later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_store_free(store: *mut brooklet_store) {
    // SAFETY: the caller's promise.
    unsafe { free(store) };
}

/// # Safety
/// `store` is null or valid; `error` is null or valid for writing.
unsafe fn on(
    store: *const brooklet_store,
    error: *mut *mut brooklet_error,
    work: impl FnOnce(&Store) -> Result<(), Error>,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { call(error, || work(of(store)?).map_err(Failure::from).map(|()| BROOKLET_OK)) }
}

/// Waits until every commit so far is on stable media, deferred ones too.
///
/// # Safety
/// `store` is a store that was not freed; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_flush(
    store: *const brooklet_store,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { on(store, error, Store::flush) }
}

/// Moves all entries from the ring into runs.
///
/// # Safety
/// `store` is a store that was not freed; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_checkpoint(
    store: *const brooklet_store,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { on(store, error, Store::checkpoint) }
}

/// Runs a write of one operation, and gives its ticket to the caller.
///
/// # Safety
/// `store` is null or valid; `key` is null or valid for reading `key_len` bytes; `ticket` and
/// `error` are null or valid for writing.
unsafe fn write(
    store: *const brooklet_store,
    (key, key_len): (*const c_void, usize),
    ticket: *mut *mut brooklet_ticket,
    error: *mut *mut brooklet_error,
    work: impl FnOnce(&Store, &[u8]) -> Result<Ticket, Failure>,
) -> brooklet_status {
    let write = || {
        // SAFETY: the caller's promise.
        let (store, key) = unsafe { (of(store)?, bytes(key, key_len)?) };
        // SAFETY: the caller's promise.
        unsafe { give_handle(ticket, || Ok(brooklet_ticket { ticket: work(store, key)? })) }?;
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(ticket, error, write) }
}

/// Appends an entry to a log; the first entry creates the log. The ticket has the entry's number,
/// and shows when the entry is on stable media. May wait for room: `brooklet_try_commit` does not.
///
/// # Safety
/// `store` is a store that was not freed; `key` and `payload` are valid for reading so many bytes;
/// `ticket` is valid for writing; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_append(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    payload: *const c_void,
    payload_len: usize,
    ticket: *mut *mut brooklet_ticket,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        write(store, (key, key_len), ticket, error, |store, key| {
            Ok(store.append(key, bytes(payload, payload_len)?)?)
        })
    }
}

/// Appends an entry, and waits until it is on stable media. Stores the entry's number at `seq`,
/// which may be NULL.
///
/// # Safety
/// As for `brooklet_append`; `seq` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_append_wait(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    payload: *const c_void,
    payload_len: usize,
    seq: *mut u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let append = || {
        // SAFETY: the caller's promise.
        let (store, key, payload) =
            unsafe { (of(store)?, bytes(key, key_len)?, bytes(payload, payload_len)?) };
        let ticket = store.append(key, payload)?;
        ticket.wait()?;
        // SAFETY: the caller's promise.
        unsafe { give(seq, ticket.seq()) };
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, append) }
}

/// Appends an entry that holds the whole state of the log, and trims all entries before it, in one
/// step.
///
/// # Safety
/// As for `brooklet_append`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_snapshot(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    payload: *const c_void,
    payload_len: usize,
    ticket: *mut *mut brooklet_ticket,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        write(store, (key, key_len), ticket, error, |store, key| {
            Ok(store.snapshot(key, bytes(payload, payload_len)?)?)
        })
    }
}

/// Trims a log: drops the entries before number `before`.
///
/// # Safety
/// As for `brooklet_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_trim(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    before: u64,
    ticket: *mut *mut brooklet_ticket,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { write(store, (key, key_len), ticket, error, |store, key| Ok(store.trim(key, before)?)) }
}

/// Truncates a log: drops the entries from number `from` on.
///
/// # Safety
/// As for `brooklet_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_truncate(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    from: u64,
    ticket: *mut *mut brooklet_ticket,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { write(store, (key, key_len), ticket, error, |store, key| Ok(store.truncate(key, from)?)) }
}

/// Deletes a log. A later append creates it anew, from entry 0 on.
///
/// # Safety
/// As for `brooklet_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_delete(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    ticket: *mut *mut brooklet_ticket,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { write(store, (key, key_len), ticket, error, |store, key| Ok(store.delete(key)?)) }
}

/// Sets how much a log keeps: so many entries, bytes, and nanoseconds since the append.
/// `UINT64_MAX` means no limit.
///
/// # Safety
/// As for `brooklet_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_set_retention(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    entries: u64,
    bytes: u64,
    age: u64,
    ticket: *mut *mut brooklet_ticket,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let retention = retention(entries, bytes, age);
    // SAFETY: the caller's promise.
    unsafe {
        write(store, (key, key_len), ticket, error, |store, key| Ok(store.set_retention(key, retention)?))
    }
}

/// Waits until a log has entry `next - 1` on stable media. Returns `BROOKLET_TIMEOUT` if that does
/// not come within `timeout` nanoseconds.
///
/// # Safety
/// As for `brooklet_append`, without a payload and a ticket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_wait_for(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    next: u64,
    timeout: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let wait = || {
        // SAFETY: the caller's promise.
        let (store, key) = unsafe { (of(store)?, bytes(key, key_len)?) };
        let timeout = time(timeout).unwrap_or(Duration::MAX);
        let came = store.wait_for(key, next, timeout)?;
        Ok(if came { BROOKLET_OK } else { BROOKLET_TIMEOUT })
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, wait) }
}
