//! Tails: readers that follow a log.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream as _;
use napi_derive::napi;

use crate::call::Value;
use crate::failure::Failure;
use crate::rows::Rows;

/// Most bytes of events that are returned at once, and most events.
const MOST_BYTES: usize = 256 << 10;
const MOST: usize = 1024;

/// A tail, and the failure that follows the events that it returned.
pub struct Following {
    stream: brooklet::TailStream,
    failed: Option<Failure>,
}

impl Following {
    /// Returns the events that are there; none after the end of the tail.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Rows, Failure>> {
        if let Some(failure) = self.failed.take() {
            return Poll::Ready(Err(failure));
        }
        let mut rows = Rows::default();
        for _ in 0..MOST {
            let added = match Pin::new(&mut self.stream).poll_next(context) {
                Poll::Pending if rows.is_empty() => return Poll::Pending,
                Poll::Pending | Poll::Ready(None) => break,
                Poll::Ready(Some(event)) => event.map_err(Failure::from).and_then(|event| rows.event(&event)),
            };
            match added {
                Err(failure) if rows.is_empty() => return Poll::Ready(Err(failure)),
                Err(failure) => {
                    self.failed = Some(failure);
                    break;
                }
                Ok(()) if rows.size() >= MOST_BYTES => break,
                Ok(()) => {}
            }
        }
        Poll::Ready(Ok(rows))
    }
}

/// A tail, which a port polls.
#[napi]
pub struct Tail {
    pub(crate) following: Arc<Mutex<Following>>,
}

/// A tail that a thread of the pool has begun.
pub struct Begun(pub brooklet::Tail);

impl Value for Begun {
    type Js = Tail;

    fn js(self) -> Tail {
        let following = Following { stream: self.0.into_stream(), failed: None };
        Tail { following: Arc::new(Mutex::new(following)) }
    }
}

/// Polls a tail that a port holds.
pub fn poll(following: &Mutex<Following>, context: &mut Context<'_>) -> Poll<Result<Rows, Failure>> {
    following.lock().unwrap_or_else(PoisonError::into_inner).poll(context)
}
