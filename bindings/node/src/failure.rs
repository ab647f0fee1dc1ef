//! Failures: the errors of the store, as the part in JavaScript makes errors of them.

use brooklet::error::Found;
use brooklet::{Error, ErrorKind};
use napi_derive::napi;

/// An error of the store.
#[napi(object)]
pub struct Failure {
    /// The kind, as the `code` of an error.
    pub code: String,
    /// Who did which, and why it failed.
    pub message: String,
    /// The first number of the log, if the error is about its bounds.
    pub first: Option<f64>,
    /// The next number of the log, if the error is about its bounds.
    pub next: Option<f64>,
    /// The number of the system's error.
    pub errno: Option<i32>,
}

impl Failure {
    fn new(code: &str, message: String) -> Self {
        Self { code: code.into(), message, first: None, next: None, errno: None }
    }

    /// Returns the failure for a number that JavaScript cannot represent.
    pub fn unsafe_number(message: String) -> Self {
        Self::new("BROOKLET_UNSAFE_NUMBER", message)
    }

    /// Returns the failure for a wrong call that the store does not know of.
    pub fn invalid(message: &str) -> Self {
        Self::new("BROOKLET_INVALID", message.into())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut failure = Self::new(code(&error), error.to_string());
        match &error {
            Error::Conflict { found: Found::Next(next), .. } | Error::LogExists { next, .. } => {
                failure.next = Some(*next as f64);
            }
            Error::OutOfRange { first, next, .. } => {
                failure.first = Some(*first as f64);
                failure.next = Some(*next as f64);
            }
            Error::Io { cause, .. } => failure.errno = cause.raw_os_error(),
            _ => {}
        }
        failure
    }
}

fn code(error: &Error) -> &'static str {
    match error {
        Error::Closed => return "BROOKLET_CLOSED",
        Error::Forked => return "BROOKLET_FORKED",
        _ => {}
    }
    match error.kind() {
        ErrorKind::Invalid => "BROOKLET_INVALID",
        ErrorKind::NotFound => "BROOKLET_NOT_FOUND",
        ErrorKind::Conflict => "BROOKLET_CONFLICT",
        ErrorKind::CannotOpen => "BROOKLET_CANNOT_OPEN",
        ErrorKind::Damaged => "BROOKLET_DAMAGED",
        ErrorKind::Full => "BROOKLET_FULL",
        ErrorKind::Busy => "BROOKLET_BUSY",
        ErrorKind::Stopped => "BROOKLET_STOPPED",
        ErrorKind::Io => "BROOKLET_IO",
        _ => "BROOKLET_ERROR",
    }
}
