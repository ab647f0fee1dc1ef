//! The arguments of calls: pointers of the caller, checked for NULL.

use std::ffi::{CStr, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use brooklet::Retention;

use crate::error::Failure;

/// A time without end, in nanoseconds.
pub(crate) const FOREVER: u64 = u64::MAX;

/// The bound of a commit that is not deferred, also in a deferred space.
pub(crate) const DURABLE: u64 = u64::MAX - 1;

/// Returns the object of a handle.
///
/// # Safety
/// `handle` is null, or valid for as long as the result is used.
pub(crate) unsafe fn object<'a, T>(handle: *const T, is_null: &'static str) -> Result<&'a T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_ref() }.ok_or(Failure::Argument(is_null))
}

/// Returns the object of a handle that only this thread uses.
///
/// # Safety
/// `handle` is null, or valid and unshared for as long as the result is used.
pub(crate) unsafe fn object_mut<'a, T>(handle: *mut T, is_null: &'static str) -> Result<&'a mut T, Failure> {
    // SAFETY: the caller's promise.
    unsafe { handle.as_mut() }.ok_or(Failure::Argument(is_null))
}

/// Returns the caller's bytes; a null pointer of length 0 means no bytes.
///
/// # Safety
/// `data` is null, or valid for reading `len` bytes for as long as the result is used.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    match (data.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Failure::Argument("a pointer to bytes is NULL, but their length is not 0")),
        (false, len) if len > isize::MAX as usize => {
            Err(Failure::Argument("a length is over the largest object: is it negative?"))
        }
        // SAFETY: the caller's promise; the length was checked.
        (false, len) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
    }
}

/// Returns the caller's path.
///
/// # Safety
/// `path` is null, or a text that ends with NUL and stays for as long as the result is used.
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path, Failure> {
    if path.is_null() {
        return Err(Failure::Argument("the path is NULL"));
    }
    // SAFETY: the caller's promise.
    Ok(Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes())))
}

/// Stores a result for the caller, unless the place is null.
///
/// # Safety
/// `place` is null, or valid for writing.
pub(crate) unsafe fn give<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// Stores a new handle for the caller, in the body of a [`call_for`](crate::error::call_for) it.
///
/// # Safety
/// `place` is null, or valid for writing.
pub(crate) unsafe fn give_handle<T>(
    place: *mut *mut T,
    make: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::Argument("the place for the new handle is NULL"));
    }
    let made = make()?;
    // SAFETY: the caller's promise.
    unsafe { place.write(Box::into_raw(Box::new(made))) };
    Ok(())
}

/// Frees a handle; null is allowed.
///
/// # Safety
/// `handle` is null, or came from [`give_handle`] and is not used afterwards.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: the caller's promise.
        let object = unsafe { Box::from_raw(handle) };
        // A panic of a destructor must not pass through C.
        let _ = crate::error::contained(move || {
            drop(object);
            Ok(())
        });
    }
}

/// Returns a time in nanoseconds; `None` if it has no end.
pub(crate) fn time(nanoseconds: u64) -> Option<Duration> {
    (nanoseconds != FOREVER).then(|| Duration::from_nanos(nanoseconds))
}

/// Returns the limits of a log; `FOREVER` is no limit.
pub(crate) fn retention(entries: u64, bytes: u64, age: u64) -> Retention {
    let mut retention = Retention::new();
    if entries != FOREVER {
        retention = retention.entries(entries);
    }
    if bytes != FOREVER {
        retention = retention.bytes(bytes);
    }
    if age != FOREVER {
        retention = retention.age(Duration::from_nanos(age));
    }
    retention
}
