//! Writes without tickets: in groups, with one completion for all writes that reach stable media
//! together; or with a wait in the same call.
//!
//! A caller with many writes under way needs no ticket for each, and takes one completion for a
//! block of the ring, where it would take thousands.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use brooklet::{Commit, Durability, Store, Ticket};

use crate::arguments::{DURABLE, FOREVER, bytes, give};
use crate::error::{BROOKLET_OK, Failure, brooklet_error, brooklet_status, call};
use crate::grouping::{Group, Groups};
use crate::packed::add_operations;
use crate::queue::{Ended, Shared, brooklet_queue, here};
use crate::store::{brooklet_store, of};

/// The most bytes of a commit whose memory a thread keeps for its next one.
const KEPT: usize = 64 << 10;

impl Shared {
    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the tag of the group of a write; 0 if the write is acknowledged already. The
    /// completion counts exactly the writes that got its tag, because the group takes no write once
    /// its end had the lock.
    fn join(self: &Arc<Self>, ticket: Ticket) -> u64 {
        if ticket.is_done() {
            return 0;
        }
        // The callback may run on this thread, so the lock is released before.
        let (tag, new) = self.joined(ticket);
        if let Some(group) = new {
            self.complete(group);
        }
        tag
    }

    /// Adds a write to its group. Returns the tag of the group, and the group if it is new and
    /// needs no request.
    fn joined(&self, ticket: Ticket) -> (u64, Option<Group>) {
        let mut groups = self.groups();
        let (tag, new) = groups.join(ticket);
        if !self.on_request.load(Ordering::Relaxed) {
            return (tag, new);
        }
        if let Some(group) = new {
            groups.keep(group);
        }
        (tag, None)
    }

    /// Has the queue get a completion when a group ends. The store hurries with such groups.
    fn complete(self: &Arc<Self>, group: Group) {
        // A queue that is freed needs no completion; a reference to it would keep it.
        let shared = Arc::downgrade(self);
        let Group { tag, ticket, writes } = group;
        ticket.on_done(move |result| {
            let Some(shared) = shared.upgrade() else { return };
            shared.groups().close(tag);
            let writes = writes.load(Ordering::Relaxed);
            shared.post(Ended { tag, writes, result: result.map_err(Failure::from) });
        });
    }

    /// Requests the completion of a group. Returns whether the group is acknowledged already: then
    /// no completion comes.
    fn request(self: &Arc<Self>, tag: u64) -> Result<bool, Failure> {
        let groups = self.groups();
        if !groups.has_made(tag) {
            return Err(Failure::Argument("the queue gave no write this tag"));
        }
        let kept = groups.kept(tag);
        drop(groups);
        let Some(group) = kept else { return Ok(true) };
        if group.ticket.has_ended() {
            // This does not wait any more.
            group.ticket.wait()?;
            return Ok(true);
        }
        self.complete(group);
        Ok(false)
    }

    fn request_all(self: &Arc<Self>) {
        let left = self.groups().not_acknowledged();
        left.into_iter().for_each(|group| self.complete(group));
    }
}

/// Calls `work` with an empty commit, whose memory the thread keeps for about `size` bytes.
fn with_commit<T>(size: usize, work: impl FnOnce(&mut Commit) -> T) -> T {
    thread_local! {
        static COMMIT: Cell<Commit> = Cell::default();
    }
    let mut commit = COMMIT.take();
    commit.clear();
    let done = work(&mut commit);
    if size <= KEPT {
        COMMIT.set(commit);
    }
    done
}

fn commit(store: &Store, commit: &Commit, wait: bool) -> Result<Ticket, Failure> {
    Ok(if wait { store.commit(commit) } else { store.try_commit(commit) }?)
}

/// Commits packed operations.
fn commit_packed(store: &Store, operations: &[u8], defer: u64, wait: bool) -> Result<Ticket, Failure> {
    with_commit(operations.len(), |built| {
        add_operations(built, operations)?;
        match defer {
            FOREVER => {}
            DURABLE => {
                built.durability(Durability::Durable);
            }
            bound => {
                built.durability(Durability::Deferred(Duration::from_nanos(bound)));
            }
        }
        commit(store, built, wait)
    })
}

/// Checks the place for numbers. A commit that was made must not be refused afterwards.
fn check_seqs(seqs: *mut u64, most: usize) -> Result<(), Failure> {
    match (seqs.is_null(), most) {
        (true, 1..) => Err(Failure::Argument("the place for numbers is NULL, but has room")),
        _ => Ok(()),
    }
}

/// Stores the numbers of a ticket's entries, `most` of them at most.
///
/// # Safety
/// `seqs` is valid for writing `most` numbers.
unsafe fn give_seqs(ticket: &Ticket, seqs: *mut u64, most: usize) {
    for (at, seq) in ticket.seqs().iter().take(most).enumerate() {
        // SAFETY: the caller's promise; `at` is below `most`.
        unsafe { seqs.add(at).write(*seq) };
    }
}

/// Appends an entry without a ticket. Stores the entry's number at `seq`, and at `group` the tag of
/// the completion that the queue gets when the entry is acknowledged or has failed. Writes that
/// reach stable media together have one such tag, and one completion, which counts them (`writes`).
/// The tag is 0 if the entry is acknowledged already: no completion follows. The other tags have
/// their highest bit set, so pass tags without that bit to `brooklet_ticket_notify`.
///
/// With `wait` false, a call that would have to wait for room returns `BROOKLET_BUSY`.
///
/// # Safety
/// `queue` and `store` were not freed; `key` and `payload` are valid for reading so many bytes;
/// `seq`, `group` and `error` are NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_queue_append(
    queue: *const brooklet_queue,
    store: *const brooklet_store,
    key: *const c_void,
    key_len: usize,
    payload: *const c_void,
    payload_len: usize,
    wait: bool,
    seq: *mut u64,
    group: *mut u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let append = || {
        // SAFETY: the caller's promise.
        let (queue, store) = unsafe { (here(queue)?, of(store)?) };
        // SAFETY: the caller's promise.
        let (key, payload) = unsafe { (bytes(key, key_len)?, bytes(payload, payload_len)?) };
        let ticket = if wait {
            store.append(key, payload)?
        } else {
            with_commit(payload_len, |one| commit(store, one.append(key, payload), false))?
        };
        // SAFETY: the caller's promise.
        unsafe {
            give(seq, ticket.seq());
            give(group, queue.join(ticket));
        }
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, append) }
}

/// Commits packed operations (see `brooklet_operation`) without a ticket. Stores the numbers of the
/// appended entries at `seqs`, `most_seqs` of them at most, and how many entries the commit
/// appended at `count`. `defer` is the bound of a deferred commit in nanoseconds (see
/// `brooklet_commit_defer`), `UINT64_MAX - 1` for a durable one (see `brooklet_commit_durable`), or
/// `UINT64_MAX`. The queue gets a completion as for `brooklet_queue_append`, which also explains
/// `wait` and `group`.
///
/// # Safety
/// `queue` and `store` were not freed; `operations` is valid for reading `len` bytes; `seqs` is
/// valid for writing `most_seqs` numbers; `count`, `group` and `error` are NULL or valid for
/// writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_queue_commit(
    queue: *const brooklet_queue,
    store: *const brooklet_store,
    operations: *const c_void,
    len: usize,
    defer: u64,
    wait: bool,
    seqs: *mut u64,
    most_seqs: usize,
    count: *mut usize,
    group: *mut u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let commit = || {
        check_seqs(seqs, most_seqs)?;
        // SAFETY: the caller's promise.
        let (queue, store) = unsafe { (here(queue)?, of(store)?) };
        // SAFETY: the caller's promise.
        let ticket = unsafe {
            let operations = bytes(operations, len)?;
            let ticket = commit_packed(store, operations, defer, wait)?;
            give_seqs(&ticket, seqs, most_seqs);
            ticket
        };
        // SAFETY: the caller's promise.
        unsafe {
            give(count, ticket.seqs().len());
            give(group, queue.join(ticket));
        }
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, commit) }
}

/// Has a queue complete groups of writes on request only (`brooklet_queue_request`). For a caller
/// that waits for few of its writes: the store then hurries with these, and writes the others in
/// larger blocks. Call it before the first write: after that, it does nothing.
///
/// # Safety
/// `queue` is NULL (the call then does nothing) or a queue that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_queue_on_request(queue: *const brooklet_queue) {
    // SAFETY: the caller's promise.
    let Ok(shared) = (unsafe { here(queue) }) else { return };
    let groups = shared.groups();
    // Earlier groups complete without requests.
    if groups.is_new() {
        shared.on_request.store(true, Ordering::Relaxed);
    }
}

/// Requests the completion of a group of writes: `group` is the tag that a write got from the
/// queue. Stores at `acknowledged` whether the group is acknowledged already: then no completion
/// comes. If its writes have failed already, the call returns their error, and no completion comes
/// either. With the tag 0, the call requests completions of all groups that are not acknowledged,
/// and stores false. A queue that is not on request, and a tag that no write of the queue got, are
/// `BROOKLET_INVALID`.
///
/// # Safety
/// `queue` is a queue that was not freed; `acknowledged` and `error` are NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_queue_request(
    queue: *const brooklet_queue,
    group: u64,
    acknowledged: *mut bool,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let request = || {
        // SAFETY: the caller's promise.
        let shared = unsafe { here(queue) }?;
        if !shared.on_request.load(Ordering::Relaxed) {
            return Err(Failure::Argument("the queue completes all groups without a request"));
        }
        let is_acknowledged = match group {
            0 => {
                shared.request_all();
                false
            }
            tag => shared.request(tag)?,
        };
        // SAFETY: the caller's promise.
        unsafe { give(acknowledged, is_acknowledged) };
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, request) }
}

/// Commits packed operations, as `brooklet_queue_commit` does, and waits until the commit is
/// acknowledged. The thread may write to the device itself: for one writer, nothing is faster.
///
/// # Safety
/// As for `brooklet_queue_commit`, without a queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_wait(
    store: *const brooklet_store,
    operations: *const c_void,
    len: usize,
    defer: u64,
    seqs: *mut u64,
    most_seqs: usize,
    count: *mut usize,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let commit = || {
        check_seqs(seqs, most_seqs)?;
        // SAFETY: the caller's promise.
        unsafe {
            let (store, operations) = (of(store)?, bytes(operations, len)?);
            let ticket = commit_packed(store, operations, defer, true)?;
            ticket.wait()?;
            give_seqs(&ticket, seqs, most_seqs);
            give(count, ticket.seqs().len());
        }
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, commit) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use brooklet::{Class, Options, SpaceConfig};

    use super::*;
    use crate::packed::brooklet_operation_kind::BROOKLET_APPEND;

    #[test]
    fn a_durable_commit_is_durable_in_a_deferred_space() {
        let folder = tempfile::tempdir().unwrap();
        let (path, copy) = (folder.path().join("store"), folder.path().join("copy"));
        let options = Options::new().ring_size(1 << 20).max_payload(1 << 16);
        let store = options.clone().open(&path).unwrap();
        let hour = Duration::from_secs(3600);
        store.create_space("deferred", SpaceConfig::new().class(Class::Deferred(hour))).unwrap();
        let key = b"deferred/log";
        let mut packed = Vec::new();
        packed.extend((BROOKLET_APPEND as u32).to_ne_bytes());
        packed.extend((key.len() as u32).to_ne_bytes());
        packed.extend(1u64.to_ne_bytes());
        packed.extend(key);
        packed.push(b'x');
        let Ok(ticket) = commit_packed(&store, &packed, u64::MAX - 1, true) else {
            panic!("the commit was refused");
        };
        ticket.wait().unwrap();
        // The copy is what a kill leaves now.
        fs::copy(&path, &copy).unwrap();
        assert!(options.open(&copy).unwrap().exists(key).unwrap());
    }
}
