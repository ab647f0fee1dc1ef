//! Waits of coroutines until a log has reached a number.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use brooklet::WaitingFor;
use pyo3::prelude::*;

use crate::error::OrRaise;
use crate::wait::held;

/// A wait until a log has reached a number, which a port polls after another thread has looked for
/// the number.
#[pyclass(frozen, module = "brooklet")]
pub struct Reach {
    pub waiting: Arc<Mutex<WaitingFor>>,
}

impl Reach {
    pub fn new(waiting: WaitingFor) -> Self {
        Self { waiting: Arc::new(Mutex::new(waiting)) }
    }
}

#[pymethods]
impl Reach {
    /// Returns whether the log has reached the number already.
    fn look(&self, py: Python<'_>) -> PyResult<bool> {
        let look = || {
            let mut waiting = held(&self.waiting);
            match Pin::new(&mut *waiting).poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(reached) => reached.map(|()| true),
                Poll::Pending => Ok(false),
            }
        };
        py.detach(look).or_raise(py)
    }
}
