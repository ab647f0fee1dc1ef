//! Errors: a status, a message and the details of a failed call.

use std::any::Any;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use brooklet::error::Found;
use brooklet::{Error, ErrorKind};

/// The result of a call. Negative values are not errors.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum brooklet_status {
    /// Nothing came within the time that the caller gave.
    BROOKLET_TIMEOUT = -2,
    /// There is no further entry or log.
    BROOKLET_END = -1,
    /// The call succeeded.
    BROOKLET_OK = 0,
    /// The call is wrong: change it.
    BROOKLET_INVALID = 1,
    /// The log or the range does not exist.
    BROOKLET_NOT_FOUND = 2,
    /// Another commit was first: read the log again and retry.
    BROOKLET_CONFLICT = 3,
    /// The call was cancelled.
    BROOKLET_CANCELLED = 4,
    /// The store cannot be opened with these arguments.
    BROOKLET_CANNOT_OPEN = 5,
    /// Data is damaged: restore it.
    BROOKLET_DAMAGED = 6,
    /// No room: free some room and retry.
    BROOKLET_FULL = 7,
    /// The call would have to wait: retry later.
    BROOKLET_BUSY = 8,
    /// The store does not accept writes any more: open it again.
    BROOKLET_STOPPED = 9,
    /// The operating system refused an operation.
    BROOKLET_IO = 10,
    /// The library has a fault: report it. The store may still be used.
    BROOKLET_INTERNAL = 11,
}

pub(crate) use brooklet_status::*;

impl From<ErrorKind> for brooklet_status {
    fn from(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::Invalid => BROOKLET_INVALID,
            ErrorKind::NotFound => BROOKLET_NOT_FOUND,
            ErrorKind::Conflict => BROOKLET_CONFLICT,
            ErrorKind::Cancelled => BROOKLET_CANCELLED,
            ErrorKind::CannotOpen => BROOKLET_CANNOT_OPEN,
            ErrorKind::Damaged => BROOKLET_DAMAGED,
            ErrorKind::Full => BROOKLET_FULL,
            ErrorKind::Busy => BROOKLET_BUSY,
            ErrorKind::Stopped => BROOKLET_STOPPED,
            ErrorKind::Io => BROOKLET_IO,
            _ => BROOKLET_INTERNAL,
        }
    }
}

/// The reason why a call failed. Free it with `brooklet_error_free`.
pub struct brooklet_error {
    status: brooklet_status,
    message: CString,
    /// The end of the log, if the store told it.
    next: Option<u64>,
    /// The first entry of the log, if the store told it.
    first: Option<u64>,
    /// Whether the store is closed.
    closed: bool,
}

/// A failure within this library.
pub(crate) enum Failure {
    Store(Error),
    /// An argument is wrong.
    Argument(&'static str),
    Io(&'static str, std::io::Error),
    Panicked(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Store(error)
    }
}

impl From<Failure> for brooklet_error {
    fn from(failure: Failure) -> Self {
        let (mut next, mut first) = (None, None);
        let closed = matches!(failure, Failure::Store(Error::Closed));
        let (status, message) = match failure {
            Failure::Store(error) => {
                match &error {
                    Error::Conflict { found: Found::Next(end), .. } => next = Some(*end),
                    Error::OutOfRange { first: begin, next: end, .. } => {
                        (first, next) = (Some(*begin), Some(*end));
                    }
                    _ => {}
                }
                (error.kind().into(), error.to_string())
            }
            Failure::Argument(message) => (BROOKLET_INVALID, message.to_owned()),
            Failure::Io(doing, error) => (BROOKLET_IO, format!("{doing}: {error}")),
            Failure::Panicked(message) => {
                (BROOKLET_INTERNAL, format!("the library has a fault, please report it: {message}"))
            }
        };
        // A key in a message is text already; a NUL byte would end the message.
        let message = CString::new(message.replace('\0', "\\0")).unwrap_or_default();
        Self { status, message, next, first, closed }
    }
}

impl brooklet_error {
    pub(crate) fn status(&self) -> brooklet_status {
        self.status
    }
}

fn panic_text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}

/// Runs the body of a call: a panic ends here, because it must not pass through C.
pub(crate) fn contained<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Failure::Panicked(panic_text(panic))))
}

/// Runs the body of a call, and stores its error at `error`, unless `error` is null.
///
/// # Safety
/// `error` is null, or valid for writing.
pub(crate) unsafe fn call(
    error: *mut *mut brooklet_error,
    work: impl FnOnce() -> Result<brooklet_status, Failure>,
) -> brooklet_status {
    let (status, failed) = match contained(work) {
        Ok(status) => (status, ptr::null_mut()),
        Err(failure) => {
            let failed = brooklet_error::from(failure);
            (failed.status, Box::into_raw(Box::new(failed)))
        }
    };
    if !error.is_null() {
        // SAFETY: the caller's promise.
        unsafe { error.write(failed) };
    } else if !failed.is_null() {
        // SAFETY: it was made above, and nobody else has it.
        drop(unsafe { Box::from_raw(failed) });
    }
    status
}

/// Runs the body of a call that stores a new handle at `place`. If the call fails, whichever
/// argument is wrong, no old handle stays there to be freed twice.
///
/// # Safety
/// `place` and `error` are null, or valid for writing.
pub(crate) unsafe fn call_for<T>(
    place: *mut *mut T,
    error: *mut *mut brooklet_error,
    work: impl FnOnce() -> Result<brooklet_status, Failure>,
) -> brooklet_status {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(ptr::null_mut()) };
    }
    // SAFETY: the caller's promise.
    unsafe { call(error, work) }
}

/// Returns the status of an error; `BROOKLET_OK` for NULL.
///
/// # Safety
/// `error` is NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_error_status(error: *const brooklet_error) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.map_or(BROOKLET_OK, brooklet_error::status)
}

/// Returns the message of an error, as UTF-8: the failure, its place and the remedy. Valid until
/// the error is freed. The empty text for NULL.
///
/// # Safety
/// `error` is NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_error_message(error: *const brooklet_error) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.map_or(c"".as_ptr(), |error| error.message.as_ptr())
}

/// Returns whether the error names the end of the log (`next`: the number that the next entry will
/// get), and stores it at `next`. So a caller that lost against another writer
/// (`BROOKLET_CONFLICT`), or asked for an entry outside of the log (`BROOKLET_NOT_FOUND`), need not
/// ask for the bounds. `next` may be NULL.
///
/// # Safety
/// `error` is NULL or an error that was not freed; `next` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_error_next(error: *const brooklet_error, next: *mut u64) -> bool {
    // SAFETY: the caller's promise.
    let told = unsafe { error.as_ref() }.and_then(|error| error.next);
    // SAFETY: the caller's promise.
    unsafe { store_at(next, told) }
}

/// Returns whether the error names the first entry that the log still has, and stores its number at
/// `first`. `first` may be NULL.
///
/// # Safety
/// `error` is NULL or an error that was not freed; `first` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_error_first(error: *const brooklet_error, first: *mut u64) -> bool {
    // SAFETY: the caller's promise.
    let told = unsafe { error.as_ref() }.and_then(|error| error.first);
    // SAFETY: the caller's promise.
    unsafe { store_at(first, told) }
}

/// Returns whether the call failed because the store is closed: by `brooklet_close`, and not by a
/// failure.
///
/// # Safety
/// `error` is NULL or an error that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_error_is_closed(error: *const brooklet_error) -> bool {
    // SAFETY: the caller's promise.
    unsafe { error.as_ref() }.is_some_and(|error| error.closed)
}

/// # Safety
/// `place` is null, or valid for writing.
unsafe fn store_at(place: *mut u64, value: Option<u64>) -> bool {
    if let (Some(value), false) = (value, place.is_null()) {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
    value.is_some()
}

/// Frees an error. NULL is allowed.
///
/// # Safety
/// `error` is NULL or an error that was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_error_free(error: *mut brooklet_error) {
    if !error.is_null() {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(error) });
    }
}
