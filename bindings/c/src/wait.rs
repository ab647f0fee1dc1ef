//! Waits until a log has reached a number, which a queue reports.

use std::ffi::c_void;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use brooklet::WaitingFor;

use crate::arguments::{bytes, free, give_handle, object_mut};
use crate::error::{BROOKLET_OK, BROOKLET_TIMEOUT, Failure, brooklet_error, brooklet_status, call, call_for};
use crate::queue::{Poster, brooklet_queue};
use crate::store::{brooklet_store, of};

/// A wait until a log has reached a number, which blocks no thread.
pub struct brooklet_wait {
    waiting: WaitingFor,
    /// Whether the log has reached the number.
    reached: bool,
}

impl brooklet_wait {
    /// Returns whether the log has reached the number. The waker is called if it has not.
    fn poll(&mut self, waker: &Waker) -> Result<bool, Failure> {
        if !self.reached
            && let Poll::Ready(result) = Pin::new(&mut self.waiting).poll(&mut Context::from_waker(waker))
        {
            result?;
            self.reached = true;
        }
        Ok(self.reached)
    }
}

/// Begins to wait until a log has entry `next - 1` on stable media, as `brooklet_wait_for` does,
/// but without a thread: `brooklet_wait_poll` returns the outcome. The wait begins with this call:
/// an entry that comes later counts, also if the log drops it before the next call. The log may be
/// created later. Free the wait with `brooklet_wait_free`, which also cancels it.
///
/// # Safety
/// `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `wait` is
/// valid for writing; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_wait_open(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    next: u64,
    wait: *mut *mut brooklet_wait,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let open = || {
        // SAFETY: the caller's promise.
        let (store, key) = unsafe { (of(store)?, bytes(key, key_len)?) };
        let open = || {
            let mut wait = brooklet_wait { waiting: store.wait_for_async(key, next), reached: false };
            // A wrong call is refused here.
            wait.poll(Waker::noop())?;
            Ok::<_, Failure>(wait)
        };
        // SAFETY: the caller's promise.
        unsafe { give_handle(wait, open) }?;
        Ok::<_, Failure>(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(wait, error, open) }
}

/// Returns `BROOKLET_OK` if the log has reached the number of a wait, and never waits. If it has
/// not, the call returns `BROOKLET_TIMEOUT`, and the queue gets a completion with `tag` once it is
/// worth another call. Another call on the wait may revoke this completion. Returns
/// `BROOKLET_STOPPED` once the store is closed. Later calls return the same.
///
/// # Safety
/// `wait` and `queue` were not freed, and no other thread uses the wait; `error` is NULL or valid
/// for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_wait_poll(
    wait: *mut brooklet_wait,
    queue: *const brooklet_queue,
    tag: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let poll = || {
        // SAFETY: the caller's promise.
        let (wait, poster) = unsafe { (object_mut(wait, "the wait is NULL")?, Poster::of(queue)?) };
        let reached = wait.poll(&poster.waker(tag))?;
        Ok(if reached { BROOKLET_OK } else { BROOKLET_TIMEOUT })
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, poll) }
}

/// Frees a wait, and so ends it. NULL is allowed.
///
/// # Safety
/// `wait` is NULL or was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_wait_free(wait: *mut brooklet_wait) {
    // SAFETY: the caller's promise.
    unsafe { free(wait) };
}
