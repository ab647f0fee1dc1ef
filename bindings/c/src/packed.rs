//! Packed operations, entries and logs: many of them in one buffer, for callers to whom a call is
//! expensive.
//!
//! Numbers are in the byte order of the machine. Heads need no alignment.

use std::ffi::c_void;
use std::ptr;
use std::task::Waker;

use brooklet::{Commit, LogInfo, TailEvent};

use crate::arguments::{bytes, free, give, give_handle, object_mut, retention};
use crate::commit::brooklet_commit;
use crate::error::{
    BROOKLET_END, BROOKLET_OK, BROOKLET_TIMEOUT, Failure, brooklet_error, brooklet_status, call, call_for,
};
use crate::queue::{Poster, brooklet_queue};
use crate::read::{brooklet_entries, brooklet_logs, entries_of};
use crate::store::{brooklet_store, of};
use crate::tail::{brooklet_tail, brooklet_tail_event, told};

/// The kind of a packed operation.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum brooklet_operation_kind {
    /// Appends an entry: `number` bytes of payload follow the key.
    BROOKLET_APPEND = 0,
    /// Appends an entry, as for `BROOKLET_APPEND`, and trims all entries before it.
    BROOKLET_SNAPSHOT = 1,
    /// Drops the entries before `number`.
    BROOKLET_TRIM = 2,
    /// Drops the entries from `number` on.
    BROOKLET_TRUNCATE = 3,
    /// Deletes the log.
    BROOKLET_DELETE = 4,
    /// Expects that the next entry gets `number`.
    BROOKLET_EXPECT_NEXT = 5,
    /// Expects that the log does not exist.
    BROOKLET_EXPECT_ABSENT = 6,
    /// Makes the log begin at `number`, which may be past its end; see `brooklet_commit_begin_at`.
    BROOKLET_BEGIN_AT = 7,
    /// Drops all entries except the last `number`.
    BROOKLET_KEEP_LAST = 8,
    /// Sets how many entries, bytes and nanoseconds the log keeps: three numbers of 64 bits follow
    /// the key; `UINT64_MAX` is no limit. `number` is 24.
    BROOKLET_RETAIN = 9,
}

use brooklet_operation_kind::*;

/// The head of a packed operation. The key follows it, then the payload, then the next operation.
#[repr(C)]
pub struct brooklet_operation {
    /// A `brooklet_operation_kind`.
    pub kind: u32,
    /// Bytes of the key.
    pub key_len: u32,
    /// The number that the kind needs, or the bytes of its payload.
    pub number: u64,
}

/// The head of a packed entry. The payload follows it, then the next entry.
#[repr(C)]
pub struct brooklet_packed_entry {
    /// The number of the entry.
    pub seq: u64,
    /// Bytes of the payload.
    pub len: u64,
}

/// The head of a packed log. The key follows it, then the next log.
#[repr(C)]
pub struct brooklet_packed_log {
    /// The number of its first entry.
    pub first: u64,
    /// The number that its next entry will get.
    pub next: u64,
    /// Bytes of the key.
    pub key_len: u64,
}

/// Takes so many bytes from the front of `bytes`.
fn split<'a>(bytes: &mut &'a [u8], len: u64) -> Result<&'a [u8], Failure> {
    let cut = usize::try_from(len).ok().and_then(|len| bytes.split_at_checked(len));
    let (front, rest) = cut.ok_or(Failure::Argument("the packed operations end within an operation"))?;
    *bytes = rest;
    Ok(front)
}

fn number(bytes: &mut &[u8]) -> Result<u64, Failure> {
    let mut eight = [0; 8];
    eight.copy_from_slice(split(bytes, 8)?);
    Ok(u64::from_ne_bytes(eight))
}

fn short(bytes: &mut &[u8]) -> Result<u32, Failure> {
    let mut four = [0; 4];
    four.copy_from_slice(split(bytes, 4)?);
    Ok(u32::from_ne_bytes(four))
}

/// Adds packed operations to a commit.
pub(crate) fn add_operations(commit: &mut Commit, mut packed: &[u8]) -> Result<(), Failure> {
    let rest = &mut packed;
    while !rest.is_empty() {
        let (kind, key_len, value) = (short(rest)?, short(rest)?, number(rest)?);
        let key = split(rest, key_len.into())?;
        match kind {
            kind if kind == BROOKLET_APPEND as u32 => commit.append(key, split(rest, value)?),
            kind if kind == BROOKLET_SNAPSHOT as u32 => commit.snapshot(key, split(rest, value)?),
            kind if kind == BROOKLET_TRIM as u32 => commit.trim(key, value),
            kind if kind == BROOKLET_TRUNCATE as u32 => commit.truncate(key, value),
            kind if kind == BROOKLET_DELETE as u32 => commit.delete(key),
            kind if kind == BROOKLET_EXPECT_NEXT as u32 => commit.expect_next(key, value),
            kind if kind == BROOKLET_EXPECT_ABSENT as u32 => commit.expect_absent(key),
            kind if kind == BROOKLET_BEGIN_AT as u32 => commit.begin_at(key, value),
            kind if kind == BROOKLET_KEEP_LAST as u32 => commit.keep_last(key, value),
            kind if kind == BROOKLET_RETAIN as u32 => {
                commit.set_retention(key, retention(number(rest)?, number(rest)?, number(rest)?))
            }
            _ => return Err(Failure::Argument("a packed operation has an unknown kind")),
        };
    }
    Ok(())
}

/// Adds packed operations to a commit (see `brooklet_operation`).
///
/// # Safety
/// `commit` is a commit that was not freed; `operations` is valid for reading `len` bytes; `error`
/// is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_add(
    commit: *mut brooklet_commit,
    operations: *const c_void,
    len: usize,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let add = || {
        // SAFETY: the caller's promise.
        let (commit, operations) =
            unsafe { (object_mut(commit, "the commit is NULL")?, bytes(operations, len)?) };
        add_operations(&mut commit.commit, operations)?;
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, add) }
}

/// The caller's buffer, as it fills.
struct Buffer {
    place: *mut u8,
    size: usize,
    used: usize,
    count: usize,
    /// The bytes that an item needs that found no room in the empty buffer.
    needs: usize,
}

impl Buffer {
    /// Takes the caller's buffer, and reports that it is empty: a call may copy nothing.
    ///
    /// # Safety
    /// `used` and `count` are null or valid for writing.
    unsafe fn empty(
        place: *mut c_void,
        size: usize,
        used: *mut usize,
        count: *mut usize,
    ) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        unsafe {
            give(used, 0);
            give(count, 0);
        }
        match (place.is_null(), size) {
            (true, 1..) => Err(Failure::Argument("the buffer is NULL, but its size is not 0")),
            (_, size) => Ok(Self { place: place.cast(), size, used: 0, count: 0, needs: 0 }),
        }
    }

    /// Copies an item that consists of a head and a body, and returns whether there was room for
    /// it.
    ///
    /// # Safety
    /// The place is valid for writing `size` bytes.
    unsafe fn push(&mut self, head: &[u8], body: &[u8]) -> bool {
        let len = head.len() + body.len();
        if len > self.size - self.used {
            self.needs = len;
            return false;
        }
        // SAFETY: the caller's promise; both have room.
        unsafe {
            let place = self.place.add(self.used);
            ptr::copy_nonoverlapping(head.as_ptr(), place, head.len());
            ptr::copy_nonoverlapping(body.as_ptr(), place.add(head.len()), body.len());
        }
        self.used += len;
        self.count += 1;
        true
    }

    /// # Safety
    /// As for [`push`](Self::push).
    unsafe fn push_entry(&mut self, seq: u64, payload: &[u8]) -> bool {
        let head = [seq, payload.len() as u64].map(u64::to_ne_bytes);
        // SAFETY: the caller's promise.
        unsafe { self.push(head.as_flattened(), payload) }
    }

    /// # Safety
    /// As for [`push`](Self::push).
    unsafe fn push_log(&mut self, log: &LogInfo) -> bool {
        let head = [log.bounds.first, log.bounds.next, log.key.len() as u64].map(u64::to_ne_bytes);
        // SAFETY: the caller's promise.
        unsafe { self.push(head.as_flattened(), &log.key) }
    }

    /// # Safety
    /// As for [`push`](Self::push).
    unsafe fn push_entries(&mut self, entries: &mut brooklet_entries) -> Result<brooklet_status, Failure> {
        // SAFETY: the caller's promise.
        match entries.lend_while(|seq, payload| unsafe { self.push_entry(seq, payload) }) {
            Ok(all) => Ok(if all { BROOKLET_END } else { BROOKLET_OK }),
            Err(error) if self.count == 0 => Err(error),
            Err(error) => {
                entries.keep(Err(error));
                Ok(BROOKLET_OK)
            }
        }
    }

    /// Reports how far the buffer is filled.
    ///
    /// # Safety
    /// `used` and `count` are null or valid for writing.
    unsafe fn report(&self, used: *mut usize, count: *mut usize) {
        // SAFETY: the caller's promise.
        unsafe {
            give(used, if self.count == 0 { self.needs } else { self.used });
            give(count, self.count);
        }
    }
}

/// Copies entries into the caller's buffer, each behind a `brooklet_packed_entry`: as many as find
/// room. Stores the number of entries at `count`, and their bytes at `used`. Returns `BROOKLET_END`
/// if the last entry was copied, `BROOKLET_OK` if more may follow. If not even the next entry finds
/// room, `count` is 0 and `used` the size that the entry needs. An error comes after the entries
/// before it.
///
/// # Safety
/// `entries` was not freed, and no other thread uses it; `buffer` is valid for writing `size`
/// bytes; `used`, `count` and `error` are NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_entries_fill(
    entries: *mut brooklet_entries,
    buffer: *mut c_void,
    size: usize,
    used: *mut usize,
    count: *mut usize,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let fill = || {
        // SAFETY: the caller's promise.
        let mut buffer = unsafe { Buffer::empty(buffer, size, used, count) }?;
        // SAFETY: the caller's promise.
        unsafe {
            let entries = object_mut(entries, "the entries are NULL")?;
            let status = buffer.push_entries(entries)?;
            buffer.report(used, count);
            Ok(status)
        }
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, fill) }
}

/// Reads a log as `brooklet_read` does, and fills the buffer as `brooklet_entries_fill` does, in
/// one call. Stores the rest at `entries`: NULL together with `BROOKLET_END`, if all was copied.
///
/// # Safety
/// As for `brooklet_read` and `brooklet_entries_fill`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_read_fill(
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    from: u64,
    to: u64,
    available: bool,
    buffer: *mut c_void,
    size: usize,
    used: *mut usize,
    count: *mut usize,
    entries: *mut *mut brooklet_entries,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let fill = || {
        // SAFETY: the caller's promise.
        let mut buffer = unsafe { Buffer::empty(buffer, size, used, count) }?;
        let mut status = BROOKLET_OK;
        // SAFETY: the caller's promise.
        unsafe {
            let (store, key) = (of(store)?, bytes(key, key_len)?);
            give_handle(entries, || {
                let mut entries = entries_of(store, key, (from, to), available)?;
                status = buffer.push_entries(&mut entries)?;
                Ok(entries)
            })?;
            if status == BROOKLET_END {
                free(entries.replace(ptr::null_mut()));
            }
            buffer.report(used, count);
        }
        Ok(status)
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(entries, error, fill) }
}

/// Copies logs into the caller's buffer, each as a `brooklet_packed_log` and its key. Otherwise as
/// `brooklet_entries_fill`.
///
/// # Safety
/// As for `brooklet_entries_fill`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_logs_fill(
    logs: *mut brooklet_logs,
    buffer: *mut c_void,
    size: usize,
    used: *mut usize,
    count: *mut usize,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let fill = || {
        // SAFETY: the caller's promise.
        let mut buffer = unsafe { Buffer::empty(buffer, size, used, count) }?;
        // SAFETY: the caller's promise.
        let logs = unsafe { object_mut(logs, "the logs are NULL") }?;
        let mut status = BROOKLET_END;
        while let Some(item) = logs.next() {
            // SAFETY: the caller's promise.
            let push = |log| unsafe { buffer.push_log(log) };
            if !item.as_ref().is_ok_and(push) {
                match item {
                    Err(error) if buffer.count == 0 => return Err(error),
                    item => logs.keep(item),
                }
                status = BROOKLET_OK;
                break;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { buffer.report(used, count) };
        Ok(status)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, fill) }
}

/// Copies the next entries of a tail into the caller's buffer, as `brooklet_entries_fill` does, and
/// never waits. If an event of another kind follows the entries, the call stores it at `event`, and
/// otherwise an event of the kind `BROOKLET_TAIL_ENTRY`. If there is neither, the call returns
/// `BROOKLET_TIMEOUT`, and the queue gets a completion with `tag` once it is worth another call.
/// Another call on the tail may revoke this completion. Errors are those of `brooklet_tail_next`.
///
/// # Safety
/// `tail` and `queue` were not freed, and no other thread uses the tail; `buffer` is valid for
/// writing `size` bytes; `used`, `count`, `event` and `error` are NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_tail_fill(
    tail: *mut brooklet_tail,
    queue: *const brooklet_queue,
    tag: u64,
    buffer: *mut c_void,
    size: usize,
    used: *mut usize,
    count: *mut usize,
    event: *mut brooklet_tail_event,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let fill = || {
        // SAFETY: the caller's promise.
        let mut buffer = unsafe { Buffer::empty(buffer, size, used, count) }?;
        // SAFETY: the caller's promise.
        let (tail, poster) = unsafe { (object_mut(tail, "the tail is NULL")?, Poster::of(queue)?) };
        let waker = poster.waker(tag);
        tail.step(|tail| {
            let mut other = None;
            while other.is_none() {
                // Only the first event is worth a notice.
                let waker = if buffer.count == 0 { &waker } else { Waker::noop() };
                match tail.poll(waker) {
                    Ok(Some(TailEvent::Entry(entry))) => {
                        // SAFETY: the caller's promise.
                        if !unsafe { buffer.push_entry(entry.seq, &entry.payload) } {
                            tail.kept = Some(TailEvent::Entry(entry));
                            break;
                        }
                    }
                    Ok(None) if buffer.count == 0 => return Ok(BROOKLET_TIMEOUT),
                    Ok(None) => break,
                    Ok(Some(event)) => other = Some(event),
                    // The tail returns its error again.
                    Err(_) if buffer.count > 0 => break,
                    Err(error) => return Err(error),
                }
            }
            let entries = brooklet_tail_event::entries();
            // SAFETY: the caller's promise.
            unsafe {
                buffer.report(used, count);
                give(event, other.map_or(Ok(entries), |other| told(other, &mut None))?);
            }
            Ok(BROOKLET_OK)
        })
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, fill) }
}
