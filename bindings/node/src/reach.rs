//! Waits until a log has reached a number.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use brooklet::{Error, WaitingFor};
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;

use crate::call::{Call, call};
use crate::failure::Failure;

/// The future of the store, or the reason why there is none.
pub type Reaching = Result<WaitingFor, Error>;

/// A wait until a log has reached a number, which a port polls after a thread of the pool has
/// looked for the number.
#[napi]
pub struct Reach {
    pub(crate) reaching: Arc<Mutex<Reaching>>,
}

impl Reach {
    pub fn new(reaching: Reaching) -> Self {
        Self { reaching: Arc::new(Mutex::new(reaching)) }
    }
}

#[napi]
impl Reach {
    /// Returns whether the log has reached the number already.
    #[napi]
    pub fn look(&self) -> AsyncTask<Call<bool>> {
        let reaching = self.reaching.clone();
        call(move || match poll(&reaching, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(reached) => reached.map(|()| true),
            Poll::Pending => Ok(false),
        })
    }

    /// Ends the wait: the store need not notify it any more.
    #[napi]
    pub fn end(&self) {
        let mut reaching = self.reaching.lock().unwrap_or_else(PoisonError::into_inner);
        *reaching = Err(Error::Closed);
    }
}

/// Returns once the log has reached the number.
pub fn poll(reaching: &Mutex<Reaching>, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
    match &mut *reaching.lock().unwrap_or_else(PoisonError::into_inner) {
        Ok(waiting) => Pin::new(waiting).poll(context).map_err(Failure::from),
        Err(error) => Poll::Ready(Err(error.clone().into())),
    }
}
