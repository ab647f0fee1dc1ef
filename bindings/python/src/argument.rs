//! Arguments: keys, payloads and times, as callers in Python pass them.

use std::ops::Bound as End;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyMemoryView, PyString};

/// A key: `str`, which stands for its UTF-8 bytes, or any object with bytes.
pub enum Key {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        match self {
            Key::Text(text) => text.as_bytes(),
            Key::Bytes(bytes) => bytes,
        }
    }
}

impl<'py> FromPyObject<'_, 'py> for Key {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        match object.cast::<PyString>() {
            Ok(text) => Ok(Key::Text(PyBackedStr::try_from(text.to_owned())?)),
            Err(_) => bytes_of(&object, "a key is str or bytes-like").map(Key::Bytes),
        }
    }
}

/// A payload: any object with bytes.
pub struct Payload(PyBackedBytes);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for Payload {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        bytes_of(&object, "a payload is bytes-like").map(Payload)
    }
}

/// Returns the bytes of an object: those of `bytes` as they are, those of any other buffer as a
/// copy, because another thread may change them.
fn bytes_of(object: &Bound<'_, PyAny>, expected: &str) -> PyResult<PyBackedBytes> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(bytes.clone().into());
    }
    let Ok(view) = PyMemoryView::from(object) else {
        let found = object.get_type().name()?;
        let advice = if object.is_instance_of::<PyString>() { ": encode it" } else { "" };
        return Err(PyTypeError::new_err(format!("{expected}, not {found}{advice}")));
    };
    let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    view.call_method0("release")?;
    Ok(copy.into())
}

/// Seconds.
pub struct Seconds(pub Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let seconds: f64 = object.extract()?;
        if seconds.is_nan() || seconds < 0.0 {
            return Err(PyValueError::new_err(format!("{seconds} is no time: use seconds, 0 or more")));
        }
        // More than a duration can be is for ever.
        Ok(Seconds(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)))
    }
}

/// Returns the numbers from `start` on and before `stop`; `None` does not bound them.
pub fn range(start: Option<u64>, stop: Option<u64>) -> (End<u64>, End<u64>) {
    (start.map_or(End::Unbounded, End::Included), stop.map_or(End::Unbounded, End::Excluded))
}
