//! Options: how a store is opened.

use std::ffi::c_char;
use std::time::Duration;

use brooklet::{Create, Options};

use crate::arguments::{self, free, object_mut};
use crate::error::{BROOKLET_OK, Failure, brooklet_error, brooklet_status, call};

/// Options for `brooklet_open`.
pub struct brooklet_options {
    pub(crate) options: Options,
}

/// Returns new options with the default values. Free them with `brooklet_options_free`.
#[unsafe(no_mangle)]
pub extern "C" fn brooklet_options_new() -> *mut brooklet_options {
    Box::into_raw(Box::new(brooklet_options { options: Options::new() }))
}

/// Frees options. NULL is allowed.
///
/// # Safety
/// `options` is NULL or options that were not freed; they are not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_free(options: *mut brooklet_options) {
    // SAFETY: the caller's promise.
    unsafe { free(options) };
}

/// # Safety
/// `options` is null, or valid and used by this thread only.
unsafe fn set(options: *mut brooklet_options, how: impl FnOnce(Options) -> Options) {
    // SAFETY: the caller's promise.
    if let Some(given) = unsafe { options.as_mut() } {
        given.options = how(given.options.clone());
    }
}

/// Sets the size of the ring, in bytes: where commits are written first. Only a new store uses it.
///
/// # Safety
/// `options` is NULL (the call then does nothing) or options that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_ring_size(options: *mut brooklet_options, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe { set(options, |options| options.ring_size(bytes)) };
}

/// Sets the most bytes of the store.
///
/// # Safety
/// `options` is NULL (the call then does nothing) or options that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_capacity(options: *mut brooklet_options, bytes: u64) {
    // SAFETY: the caller's promise.
    unsafe { set(options, |options| options.capacity(bytes)) };
}

/// Gives the ring a file or a device of its own, at `path`. Each opening of the store names it.
///
/// # Safety
/// `options` is NULL or options that were not freed; `path` is a text that ends with NUL; `error`
/// is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_ring_at(
    options: *mut brooklet_options,
    path: *const c_char,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let set = || {
        // SAFETY: the caller's promise.
        let (path, given) = unsafe { (arguments::path(path)?, object_mut(options, "the options are NULL")?) };
        given.options = given.options.clone().ring_at(path);
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, set) }
}

/// Sets the most bytes of memory for entries that are not in runs yet.
///
/// # Safety
/// `options` is NULL (the call then does nothing) or options that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_memory_budget(options: *mut brooklet_options, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { set(options, |options| options.memory_budget(bytes)) };
}

/// Sets the most bytes of memory for look-ups and reads.
///
/// # Safety
/// `options` is NULL (the call then does nothing) or options that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_cache_budget(options: *mut brooklet_options, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { set(options, |options| options.cache_budget(bytes)) };
}

/// Sets the most bytes of one payload.
///
/// # Safety
/// `options` is NULL (the call then does nothing) or options that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_max_payload(options: *mut brooklet_options, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe { set(options, |options| options.max_payload(bytes)) };
}

/// Sets the permissions of a new file, such as 0600.
///
/// # Safety
/// `options` is NULL (the call then does nothing) or options that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_permissions(options: *mut brooklet_options, mode: u32) {
    // SAFETY: the caller's promise.
    unsafe { set(options, |options| options.permissions(mode)) };
}

/// Sets the longest time for which the store collects commits before it writes them.
///
/// # Safety
/// `options` is NULL (the call then does nothing) or options that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_linger(options: *mut brooklet_options, nanoseconds: u64) {
    // SAFETY: the caller's promise.
    unsafe { set(options, |options| options.linger(Duration::from_nanos(nanoseconds))) };
}

/// Opens the store for reading only. Nobody else may have the store open for writing.
///
/// # Safety
/// `options` is NULL (the call then does nothing) or options that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_read_only(options: *mut brooklet_options, on: bool) {
    // SAFETY: the caller's promise.
    unsafe { set(options, |options| options.read_only(on)) };
}

/// Opens the store for reading only, beside a process that has it open for writing. The reader sees
/// the entries that were on stable media when it opened the store.
///
/// # Safety
/// `options` is NULL (the call then does nothing) or options that were not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_beside_writer(options: *mut brooklet_options, on: bool) {
    // SAFETY: the caller's promise.
    unsafe { set(options, |options| options.beside_writer(on)) };
}

/// Decides about a path without a store: 0 fails, 1 creates a store (the default), 2 creates a
/// store and fails if there is one.
///
/// # Safety
/// `options` is NULL or options that were not freed; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_options_create(
    options: *mut brooklet_options,
    create: u32,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let set = || {
        let create = match create {
            0 => Create::Never,
            1 => Create::IfMissing,
            2 => Create::New,
            _ => return Err(Failure::Argument("create is none of 0, 1 and 2")),
        };
        // SAFETY: the caller's promise.
        let given = unsafe { object_mut(options, "the options are NULL") }?;
        given.options = given.options.clone().create(create);
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, set) }
}
