//! The first and the last entry of a log, and whether the log exists.

use std::ffi::c_void;

use brooklet::{Entry, Store};

use crate::arguments::{bytes, give, give_handle};
use crate::error::{BROOKLET_END, BROOKLET_OK, Failure, brooklet_error, brooklet_status, call, call_for};
use crate::read::{brooklet_entries, brooklet_entry};
use crate::store::{brooklet_store, of};

/// Stores the entry that `find` finds at `entry`, and its owner at `entries`.
///
/// # Safety
/// As for [`brooklet_first`].
unsafe fn lend(
    (store, key, key_len): (*const brooklet_store, *const c_void, usize),
    entries: *mut *mut brooklet_entries,
    entry: *mut brooklet_entry,
    error: *mut *mut brooklet_error,
    find: impl FnOnce(&Store, &[u8]) -> Result<Option<Entry>, brooklet::Error>,
) -> brooklet_status {
    let lend = || {
        if entries.is_null() {
            return Err(Failure::Argument("the place for the new handle is NULL"));
        }
        // SAFETY: the caller's promise.
        let found = unsafe { find(of(store)?, bytes(key, key_len)?) }?;
        let Some(found) = found else { return Ok(BROOKLET_END) };
        // The payload stays where it is when its entry moves.
        let lent = brooklet_entry::of(&found);
        // SAFETY: the caller's promise.
        unsafe {
            give_handle(entries, || Ok(brooklet_entries::lending(found)))?;
            give(entry, lent);
        }
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(entries, error, lend) }
}

/// Stores the first entry of a log at `entry`. Its payload is lent until `entries` is freed.
/// Returns `BROOKLET_END`, and stores NULL at `entries`, if the log does not exist or has no entry.
///
/// # Safety
/// `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `entries` and
/// `entry` are valid for writing; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_first(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    entries: *mut *mut brooklet_entries,
    entry: *mut brooklet_entry,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { lend((store, key, key_len), entries, entry, error, |store, key| store.first(key)) }
}

/// Stores the last entry of a log at `entry`. Otherwise as `brooklet_first`.
///
/// # Safety
/// As for `brooklet_first`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_last(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    entries: *mut *mut brooklet_entries,
    entry: *mut brooklet_entry,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { lend((store, key, key_len), entries, entry, error, |store, key| store.last(key)) }
}

/// Stores at `exists` whether a log exists.
///
/// # Safety
/// `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `exists` is
/// valid for writing; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_exists(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    exists: *mut bool,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let ask = || {
        // SAFETY: the caller's promise.
        unsafe { give(exists, of(store)?.exists(bytes(key, key_len)?)?) };
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, ask) }
}
