//! Tails: readers that follow a log.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_core::Stream as _;
use napi::bindgen_prelude::AsyncTask;
use napi_derive::napi;

use crate::call::{Call, Value, call};
use crate::failure::Failure;
use crate::rows::Rows;

/// Most bytes of events that are returned at once, and most events.
const MOST_BYTES: usize = 256 << 10;
const MOST: usize = 1024;

/// How long a tail that had returned all events finds the next ones in memory. Older ones may be in
/// the file only.
const FRESH: Duration = Duration::from_millis(100);

#[expect(clippy::disallowed_methods, reason = "the age of entries is in the time of the machine")]
fn now() -> Instant {
    Instant::now()
}

/// A tail, and the failure that follows the events that it returned.
pub struct Following {
    /// The tail, until it is left.
    stream: Option<brooklet::TailStream>,
    failed: Option<Failure>,
    /// The time when the tail had returned all events, if the last call found no further one.
    caught_up: Option<Instant>,
}

impl Following {
    /// Returns the events that are there; none after the end of the tail.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Rows, Failure>> {
        if let Some(failure) = self.failed.take() {
            return Poll::Ready(Err(failure));
        }
        self.caught_up = None;
        let mut rows = Rows::default();
        let Some(stream) = &mut self.stream else { return Poll::Ready(Ok(rows)) };
        for _ in 0..MOST {
            let added = match Pin::new(&mut *stream).poll_next(context) {
                Poll::Pending => {
                    self.caught_up = Some(now());
                    if rows.is_empty() {
                        return Poll::Pending;
                    }
                    break;
                }
                Poll::Ready(None) => break,
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

    /// Returns whether the next events may be old ones, which are read from the file.
    fn is_behind(&self) -> bool {
        self.caught_up.is_none_or(|at| at.elapsed() > FRESH)
    }
}

/// A tail. A thread of the pool reads its old events, and a port polls it for the new ones.
#[napi]
pub struct Tail {
    pub(crate) following: Arc<Mutex<Following>>,
}

#[napi]
impl Tail {
    /// Returns whether the next events are to be read, before a port polls the tail.
    #[napi]
    pub fn is_behind(&self) -> bool {
        held(&self.following).is_behind()
    }

    /// Reads the events that are there; none if there are none, or at the end of the tail.
    #[napi]
    pub fn read(&self) -> AsyncTask<Call<Rows>> {
        let following = self.following.clone();
        call(move || match poll(&following, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(read) => read,
            Poll::Pending => Ok(Rows::default()),
        })
    }

    /// Releases what the tail keeps of the store, on a thread of the pool, where another one may
    /// read.
    #[napi]
    pub fn end(&self) -> AsyncTask<Call<bool>> {
        let following = self.following.clone();
        call(move || {
            held(&following).stream = None;
            Ok(true)
        })
    }
}

/// A tail that a thread of the pool has begun.
pub struct Begun(pub brooklet::Tail);

impl Value for Begun {
    type Js = Tail;

    fn js(self) -> Tail {
        let following = Following { stream: Some(self.0.into_stream()), failed: None, caught_up: None };
        Tail { following: Arc::new(Mutex::new(following)) }
    }
}

/// Polls a tail, for a port or for a read.
pub fn poll(following: &Mutex<Following>, context: &mut Context<'_>) -> Poll<Result<Rows, Failure>> {
    held(following).poll(context)
}

fn held(following: &Mutex<Following>) -> MutexGuard<'_, Following> {
    following.lock().unwrap_or_else(PoisonError::into_inner)
}
