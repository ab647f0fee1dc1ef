//! Errors: an exception of the class that its kind has in `brooklet._errors`.

use brooklet::error::Found;
use brooklet::{Error, ErrorKind};
use pyo3::prelude::*;

/// Turns the error of a result into an exception.
pub trait OrRaise<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for Result<T, Error> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}

/// Returns the exception for an error.
pub fn exception(py: Python<'_>, error: &Error) -> PyErr {
    made(py, class(error), &error.to_string(), error).unwrap_or_else(|failed| failed)
}

/// Returns the exception for a wrong call that the store does not know of.
pub fn invalid(py: Python<'_>, message: &str) -> PyErr {
    instance(py, "InvalidError", message).map_or_else(|failed| failed, PyErr::from_value)
}

fn instance<'py>(py: Python<'py>, class: &str, message: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("brooklet._errors")?.getattr(class)?.call1((message,))
}

fn made(py: Python<'_>, class: &str, message: &str, error: &Error) -> PyResult<PyErr> {
    let exception = instance(py, class, message)?;
    match error {
        Error::Conflict { found: Found::Next(next), .. } | Error::LogExists { next, .. } => {
            exception.setattr("next", next)?;
        }
        Error::OutOfRange { first, next, .. } => {
            exception.setattr("first", first)?;
            exception.setattr("next", next)?;
        }
        Error::Io { cause, .. } => exception.setattr("errno", cause.raw_os_error())?,
        _ => {}
    }
    Ok(PyErr::from_value(exception))
}

fn class(error: &Error) -> &'static str {
    match error {
        Error::Closed => return "ClosedError",
        Error::Forked => return "ForkedError",
        _ => {}
    }
    match error.kind() {
        ErrorKind::Invalid => "InvalidError",
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::Conflict => "ConflictError",
        ErrorKind::CannotOpen => "CannotOpenError",
        ErrorKind::Damaged => "DamagedError",
        ErrorKind::Full => "FullError",
        ErrorKind::Busy => "BusyError",
        ErrorKind::Stopped => "StoppedError",
        ErrorKind::Io => "IoError",
        _ => "Error",
    }
}
