//! Tails: readers that follow a log.

use std::ffi::c_void;
use std::pin::pin;
use std::ptr;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brooklet::{Entry, Tail, TailEvent};

use crate::arguments::{bytes, free, give, give_handle, object_mut, time};
use crate::error::{
    BROOKLET_END, BROOKLET_OK, BROOKLET_TIMEOUT, Failure, brooklet_error, brooklet_status, call, call_for,
};
use crate::read::brooklet_entry;
use crate::store::{brooklet_store, of};

/// The kind of an event of a tail.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum brooklet_tail_kind {
    /// The next entry of the log, in `entry`.
    BROOKLET_TAIL_ENTRY = 0,
    /// The log dropped the entries from `from` on and before `to`, before the tail returned them.
    BROOKLET_TAIL_TRIMMED = 1,
    /// Entries from `from` on, which the tail may have returned, are no longer in the log. The tail
    /// goes on with an entry `from` that may be appended later.
    BROOKLET_TAIL_TRUNCATED = 2,
    /// The log was deleted. The tail goes on with entry 0 of a new log of the same key.
    BROOKLET_TAIL_DELETED = 3,
}

use brooklet_tail_kind::*;

/// One step of a tail.
#[repr(C)]
pub struct brooklet_tail_event {
    /// The kind of the event.
    pub kind: brooklet_tail_kind,
    /// The entry; its payload is lent until the next call on the tail.
    pub entry: brooklet_entry,
    /// The first number that the event is about.
    pub from: u64,
    /// The end of the numbers that the event is about.
    pub to: u64,
}

impl brooklet_tail_event {
    fn without_entry(kind: brooklet_tail_kind, from: u64, to: u64) -> Self {
        let entry = brooklet_entry { seq: 0, payload: ptr::null(), payload_len: 0 };
        Self { kind, entry, from, to }
    }

    /// The event that stands for entries in a buffer.
    pub(crate) fn entries() -> Self {
        Self::without_entry(BROOKLET_TAIL_ENTRY, 0, 0)
    }
}

/// A reader that follows a log.
pub struct brooklet_tail {
    pub(crate) tail: Tail,
    /// The entry that is lent to the caller.
    lent: Option<Entry>,
    /// An event that was taken from the tail, and not returned: no buffer had room for it.
    pub(crate) kept: Option<TailEvent>,
    /// Whether a call returned an error of the tail.
    failed: bool,
}

impl brooklet_tail {
    /// Returns the next event; `None` if the tail has to wait: the waker is then called.
    pub(crate) fn poll(&mut self, waker: &Waker) -> Result<Option<TailEvent>, Failure> {
        if let Some(kept) = self.kept.take() {
            return Ok(Some(kept));
        }
        match pin!(self.tail.next_async()).poll(&mut Context::from_waker(waker)) {
            Poll::Ready(event) => Ok(Some(event?)),
            Poll::Pending => Ok(None),
        }
    }

    /// Makes a step of the tail, unless an error has ended it.
    pub(crate) fn step(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<brooklet_status, Failure>,
    ) -> Result<brooklet_status, Failure> {
        if self.failed {
            return Ok(BROOKLET_END);
        }
        let result = step(self);
        self.failed = result.is_err();
        result
    }
}

/// Follows a log from entry `from` on: every entry once, in order, when it is on stable media. The
/// log may be created later.
///
/// # Safety
/// `store` is a store that was not freed; `key` is valid for reading `key_len` bytes; `tail` is
/// valid for writing; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_tail_open(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    from: u64,
    tail: *mut *mut brooklet_tail,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let open = || {
        // SAFETY: the caller's promise.
        let (store, key) = unsafe { (of(store)?, bytes(key, key_len)?) };
        let open =
            || Ok(brooklet_tail { tail: store.tail(key, from)?, lent: None, kept: None, failed: false });
        // SAFETY: the caller's promise.
        unsafe { give_handle(tail, open) }?;
        Ok::<_, Failure>(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(tail, error, open) }
}

/// Stores the next event at `event`. Waits for it for `timeout` nanoseconds (0: not at all), and
/// returns `BROOKLET_TIMEOUT` if none came. Returns `BROOKLET_STOPPED` once the store is closed,
/// and `BROOKLET_END` after any error.
///
/// # Safety
/// `tail` was not freed, and no other thread uses it; `event` is valid for writing; `error` is NULL
/// or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_tail_next(
    tail: *mut brooklet_tail,
    timeout: u64,
    event: *mut brooklet_tail_event,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let next = || {
        // SAFETY: the caller's promise.
        let tail = unsafe { object_mut(tail, "the tail is NULL") }?;
        tail.lent = None;
        tail.step(|tail| {
            let next = match time(timeout) {
                // A call that does not wait also reports that the store is closed.
                Some(Duration::ZERO) => tail.poll(Waker::noop())?,
                _ if tail.kept.is_some() => tail.kept.take(),
                timeout => tail.tail.next_timeout(timeout.unwrap_or(Duration::MAX))?,
            };
            let Some(next) = next else { return Ok(BROOKLET_TIMEOUT) };
            // SAFETY: the caller's promise.
            unsafe { give(event, told(next, &mut tail.lent)?) };
            Ok(BROOKLET_OK)
        })
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, next) }
}

pub(crate) fn told(event: TailEvent, lent: &mut Option<Entry>) -> Result<brooklet_tail_event, Failure> {
    let other = brooklet_tail_event::without_entry;
    Ok(match event {
        TailEvent::Entry(entry) => {
            let (from, to) = (entry.seq, entry.seq + 1);
            let entry = brooklet_entry::of(lent.insert(entry));
            brooklet_tail_event { kind: BROOKLET_TAIL_ENTRY, entry, from, to }
        }
        TailEvent::Trimmed(range) => other(BROOKLET_TAIL_TRIMMED, range.start, range.end),
        TailEvent::Truncated { next } => other(BROOKLET_TAIL_TRUNCATED, next, u64::MAX),
        TailEvent::Deleted => other(BROOKLET_TAIL_DELETED, 0, u64::MAX),
        _ => return Err(Failure::Argument("the event is newer than this library")),
    })
}

/// Returns the number of the next entry that the tail returns; 0 for NULL.
///
/// # Safety
/// `tail` is NULL or was not freed, and no other thread uses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_tail_position(tail: *const brooklet_tail) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { tail.as_ref() }.map_or(0, |tail| match &tail.kept {
        Some(TailEvent::Entry(entry)) => entry.seq,
        _ => tail.tail.position(),
    })
}

/// Frees a tail. NULL is allowed.
///
/// # Safety
/// `tail` is NULL or was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_tail_free(tail: *mut brooklet_tail) {
    // SAFETY: the caller's promise.
    unsafe { free(tail) };
}
