//! Tickets: the promise of a write.

use std::ffi::c_void;
use std::ptr;

use brooklet::Ticket;

use crate::arguments::{free, give, object, time};
use crate::error::{
    BROOKLET_OK, BROOKLET_TIMEOUT, Failure, brooklet_error, brooklet_status, call, contained,
};
use crate::queue::{Poster, brooklet_queue};

/// The promise of a write: the numbers of its entries at once, its durability later. Freeing a
/// ticket does not cancel the write.
pub struct brooklet_ticket {
    pub(crate) ticket: Ticket,
}

/// # Safety
/// `ticket` is null, or valid for as long as the result is used.
unsafe fn of<'a>(ticket: *const brooklet_ticket) -> Result<&'a Ticket, Failure> {
    // SAFETY: the caller's promise.
    unsafe { object(ticket, "the ticket is NULL") }.map(|ticket| &ticket.ticket)
}

/// Frees a ticket. NULL is allowed.
///
/// # Safety
/// `ticket` is NULL or a ticket that was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_ticket_free(ticket: *mut brooklet_ticket) {
    // SAFETY: the caller's promise.
    unsafe { free(ticket) };
}

/// Returns the number of the appended entry, or of the first one if the write appended several; 0
/// if the write appended none.
///
/// # Safety
/// `ticket` is NULL (the call then returns 0) or a ticket that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_ticket_seq(ticket: *const brooklet_ticket) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { of(ticket) }.map_or(0, Ticket::seq)
}

/// Returns the numbers of all appended entries, in the order of the operations, and stores their
/// count at `count`. The numbers are lent until the ticket is freed.
///
/// # Safety
/// `ticket` is NULL or a ticket that was not freed; `count` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_ticket_seqs(
    ticket: *const brooklet_ticket,
    count: *mut usize,
) -> *const u64 {
    // SAFETY: the caller's promise.
    let seqs = unsafe { of(ticket) }.map_or(&[][..], Ticket::seqs);
    // SAFETY: the caller's promise.
    unsafe { give(count, seqs.len()) };
    if seqs.is_empty() { ptr::null() } else { seqs.as_ptr() }
}

/// Waits until the write is acknowledged: on stable media, or at once for a deferred commit.
/// Returns `BROOKLET_TIMEOUT` if that takes longer than `timeout` nanoseconds; the write continues.
///
/// # Safety
/// `ticket` is a ticket that was not freed; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_ticket_wait(
    ticket: *const brooklet_ticket,
    timeout: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let wait = || {
        // SAFETY: the caller's promise.
        let ticket = unsafe { of(ticket) }?;
        let came = match time(timeout) {
            Some(timeout) => ticket.wait_timeout(timeout)?,
            None => ticket.wait().map(|()| true)?,
        };
        Ok(if came { BROOKLET_OK } else { BROOKLET_TIMEOUT })
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, wait) }
}

/// Returns whether the write is acknowledged or has failed, without waiting; `true` for NULL.
///
/// # Safety
/// `ticket` is NULL or a ticket that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_ticket_is_done(ticket: *const brooklet_ticket) -> bool {
    // SAFETY: the caller's promise.
    unsafe { of(ticket) }.map_or(true, Ticket::has_ended)
}

/// Puts a completion with this `tag` into the queue when the write is acknowledged or has failed.
/// The ticket may be freed before.
///
/// # Safety
/// `ticket` and `queue` were not freed; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_ticket_notify(
    ticket: *const brooklet_ticket,
    queue: *const brooklet_queue,
    tag: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let notify = || {
        // SAFETY: the caller's promise.
        let (ticket, poster) = unsafe { (of(ticket)?, Poster::of(queue)?) };
        ticket.on_done(move |result| poster.post(tag, result.map_err(Failure::from)));
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, notify) }
}

/// A function that the caller registers: its `context`, the status of the write, and the error,
/// which is lent for the call, or NULL.
pub type brooklet_callback =
    Option<unsafe extern "C" fn(context: *mut c_void, status: brooklet_status, error: *const brooklet_error)>;

/// The context of a callback, which the caller passes to another thread.
struct Context(*mut c_void);

// SAFETY: the caller of `brooklet_ticket_on_done` promises that another thread may use it.
unsafe impl Send for Context {}

/// Calls `callback` once, when the write is acknowledged or has failed. Callbacks run one after
/// another on a thread of the store that does nothing else; or at once on this thread, if the write
/// has ended already. A callback may use the store, also wait and close it. The ticket may be freed
/// before.
///
/// # Safety
/// `ticket` was not freed; `callback` and `context` may be used by another thread until the
/// callback has returned; `callback` returns normally; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_ticket_on_done(
    ticket: *const brooklet_ticket,
    callback: brooklet_callback,
    context: *mut c_void,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let context = Context(context);
    let register = || {
        let callback = callback.ok_or(Failure::Argument("the callback is NULL"))?;
        // SAFETY: the caller's promise.
        let ticket = unsafe { of(ticket) }?;
        ticket.on_done(move |result| {
            let Context(context) = { context };
            let failed = result.err().map(|error| brooklet_error::from(Failure::from(error)));
            let status = failed.as_ref().map_or(BROOKLET_OK, brooklet_error::status);
            let failed = failed.as_ref().map_or(ptr::null(), ptr::from_ref);
            // A panic cannot come from C; the callback may call this library again.
            let _ = contained(|| {
                // SAFETY: the caller's promise.
                unsafe { callback(context, status, failed) };
                Ok(())
            });
        });
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, register) }
}
