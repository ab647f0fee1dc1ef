//! A completion queue: a thread, or an event loop, takes the ends of many writes from it.
//!
//! The queue has a descriptor that is readable while completions wait: a pipe with one byte in it.
//! So `poll`, `epoll`, `kqueue` and `select` can wait for it.

use std::collections::VecDeque;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use brooklet::Error;
use brooklet_io::Process;

use crate::arguments::{free, give, give_handle, object, time};
use crate::error::{BROOKLET_OK, BROOKLET_TIMEOUT, Failure, brooklet_error, brooklet_status, call, call_for};
use crate::grouping::Groups;

/// The end of a write.
#[repr(C)]
pub struct brooklet_completion {
    /// The number that the caller gave with the write, or the number of a group of writes
    /// (`brooklet_queue_append`).
    pub tag: u64,
    /// How many writes ended: 1, or the writes of the group.
    pub writes: u64,
    /// `BROOKLET_OK` if the write is acknowledged.
    pub status: brooklet_status,
    /// The error, or NULL. The caller frees it.
    pub error: *mut brooklet_error,
}

/// A queue of completions. Many threads may use it. It belongs to the process that made it: a child
/// of a fork shares the descriptor, and would take what its parent waits for, so calls in the child
/// return `BROOKLET_STOPPED`.
pub struct brooklet_queue {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    process: Process,
    /// The descriptor of the pipe's reader, which `waiting` owns.
    readable: RawFd,
    waiting: Mutex<Waiting>,
    came: Condvar,
    pub groups: Mutex<Groups>,
    /// Whether groups are completed on request only.
    pub on_request: AtomicBool,
}

/// The end of a write, or of the writes of a group.
pub(crate) struct Ended {
    pub tag: u64,
    pub writes: u64,
    pub result: Result<(), Failure>,
}

struct Waiting {
    completions: VecDeque<Ended>,
    /// Whether the pipe has its byte.
    has_byte: bool,
    /// Both ends of the pipe, which has one byte while completions wait.
    reader: PipeReader,
    writer: PipeWriter,
}

impl Shared {
    /// Refuses a call in a child of a fork, before it takes a lock: a thread of the parent may have
    /// held the lock when the child began.
    fn here(&self) -> Result<(), Failure> {
        if self.process.is_here() { Ok(()) } else { Err(Error::Forked.into()) }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn post(&self, ended: Ended) {
        let mut waiting = self.waiting();
        if !waiting.has_byte {
            // The pipe is empty, so this does not wait. If it fails, a thread that waits in
            // `brooklet_queue_take` still gets the completion, and the next one tries again.
            waiting.has_byte = waiting.writer.write(&[1]).is_ok();
        }
        waiting.completions.push_back(ended);
        drop(waiting);
        self.came.notify_one();
    }
}

/// Returns what a queue of this process shares with its writes.
///
/// # Safety
/// `queue` is null, or a queue that is not freed as long as the result is used.
pub(crate) unsafe fn here<'a>(queue: *const brooklet_queue) -> Result<&'a Arc<Shared>, Failure> {
    // SAFETY: the caller's promise.
    let queue = unsafe { object(queue, "the queue is NULL") }?;
    queue.shared.here()?;
    Ok(&queue.shared)
}

/// What puts completions into a queue.
pub(crate) struct Poster(Arc<Shared>);

impl Poster {
    /// # Safety
    /// `queue` is null or a queue that was not freed.
    pub unsafe fn of(queue: *const brooklet_queue) -> Result<Self, Failure> {
        // SAFETY: the caller's promise.
        Ok(Self(unsafe { here(queue) }?.clone()))
    }

    pub fn post(&self, tag: u64, result: Result<(), Failure>) {
        self.0.post(Ended { tag, writes: 1, result });
    }

    /// Returns the waker of a wait: it puts a completion with this tag into the queue.
    pub fn waker(self, tag: u64) -> Waker {
        Waker::from(Arc::new(Notice { poster: self, tag }))
    }
}

/// Puts a completion into a queue when a tail or a wait has something new.
struct Notice {
    poster: Poster,
    tag: u64,
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.poster.post(self.tag, Ok(()));
    }
}

/// Makes a queue. Free it with `brooklet_queue_free`.
///
/// # Safety
/// `queue` is valid for writing; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_queue_new(
    queue: *mut *mut brooklet_queue,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let make = || {
        let (reader, writer) =
            std::io::pipe().map_err(|error| Failure::Io("making the pipe of a queue", error))?;
        let readable = reader.as_raw_fd();
        let waiting = Mutex::new(Waiting { completions: VecDeque::new(), has_byte: false, reader, writer });
        let (process, came, groups) = (Process::current(), Condvar::new(), Mutex::default());
        let on_request = AtomicBool::new(false);
        let shared = Shared { process, readable, waiting, came, groups, on_request };
        Ok(brooklet_queue { shared: Arc::new(shared) })
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(queue, error, || give_handle(queue, make).map(|()| BROOKLET_OK)) }
}

/// Frees a queue. Completions that come later are lost; their writes are not. NULL is allowed.
///
/// # Safety
/// `queue` is NULL or a queue that was not freed; no call uses it now or later.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_queue_free(queue: *mut brooklet_queue) {
    // SAFETY: the caller's promise.
    unsafe { free(queue) };
}

/// Returns a descriptor that is readable while completions wait; -1 for NULL, and in a child of a
/// fork. It belongs to the queue: wait for it with `poll` or `epoll`, and neither read nor close
/// it.
///
/// # Safety
/// `queue` is NULL or a queue that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_queue_fd(queue: *const brooklet_queue) -> i32 {
    // SAFETY: the caller's promise.
    let queue = unsafe { queue.as_ref() }.filter(|queue| queue.shared.here().is_ok());
    queue.map_or(-1, |queue| queue.shared.readable)
}

/// Puts a completion with this `tag` into the queue, so that a thread which waits in
/// `brooklet_queue_take` returns.
///
/// # Safety
/// `queue` is a queue that was not freed; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_queue_post(
    queue: *const brooklet_queue,
    tag: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let post = || {
        // SAFETY: the caller's promise.
        unsafe { Poster::of(queue) }?.post(tag, Ok(()));
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, post) }
}

/// Takes completions, in the order of their ends: at least one and at most `most`. Waits for the
/// first one for `timeout` nanoseconds; 0 does not wait. Returns `BROOKLET_TIMEOUT` if none came.
/// Stores how many it took at `count`.
///
/// # Safety
/// `queue` is a queue that was not freed; `completions` is valid for writing `most` completions;
/// `count` is valid for writing; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_queue_take(
    queue: *const brooklet_queue,
    completions: *mut brooklet_completion,
    most: usize,
    timeout: u64,
    count: *mut usize,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let take = || {
        // SAFETY: the caller's promise.
        let shared = unsafe {
            give(count, 0);
            here(queue)?
        };
        if completions.is_null() || count.is_null() || most == 0 {
            return Err(Failure::Argument("there is no place for a completion"));
        }
        let taken = shared.take(most, timeout);
        if taken.is_empty() {
            return Ok(BROOKLET_TIMEOUT);
        }
        // SAFETY: the caller's promise.
        unsafe { give(count, taken.len()) };
        for (at, Ended { tag, writes, result }) in taken.into_iter().enumerate() {
            let failed = result.err().map(brooklet_error::from);
            let status = failed.as_ref().map_or(BROOKLET_OK, brooklet_error::status);
            let error = failed.map_or(ptr::null_mut(), |failed| Box::into_raw(Box::new(failed)));
            // SAFETY: the caller's promise; `at` is below `most`.
            unsafe { completions.add(at).write(brooklet_completion { tag, writes, status, error }) };
        }
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, take) }
}

impl Shared {
    /// Takes up to `most` completions, and waits for the first.
    fn take(&self, most: usize, timeout: u64) -> Vec<Ended> {
        let mut waiting = self.waiting();
        if waiting.completions.is_empty() && timeout > 0 {
            let is_empty = |waiting: &mut Waiting| waiting.completions.is_empty();
            waiting = match time(timeout) {
                None => self.came.wait_while(waiting, is_empty).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let waited = self.came.wait_timeout_while(waiting, timeout, is_empty);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        let count = waiting.completions.len().min(most);
        let taken: Vec<_> = waiting.completions.drain(..count).collect();
        if !taken.is_empty() {
            if !waiting.completions.is_empty() {
                self.came.notify_one();
            } else if std::mem::take(&mut waiting.has_byte) {
                // The byte is there, so this does not wait.
                let _ = waiting.reader.read(&mut [0]);
            }
        }
        taken
    }
}
