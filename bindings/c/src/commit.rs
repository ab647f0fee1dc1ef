//! Commits: operations on many logs that happen all or not at all.

use std::ffi::c_void;
use std::time::Duration;

use brooklet::{Commit, Durability};

use crate::arguments::{bytes, free, give_handle, object, object_mut, retention};
use crate::error::{BROOKLET_OK, Failure, brooklet_error, brooklet_status, call, call_for};
use crate::store::{brooklet_store, of};
use crate::ticket::brooklet_ticket;

/// Operations that are committed together. The order of the operations is the order of the calls.
pub struct brooklet_commit {
    pub(crate) commit: Commit,
}

/// Returns an empty commit. Free it with `brooklet_commit_free`.
#[unsafe(no_mangle)]
pub extern "C" fn brooklet_commit_new() -> *mut brooklet_commit {
    Box::into_raw(Box::new(brooklet_commit { commit: Commit::new() }))
}

/// Frees a commit. NULL is allowed.
///
/// # Safety
/// `commit` is NULL or a commit that was not freed; it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_free(commit: *mut brooklet_commit) {
    // SAFETY: the caller's promise.
    unsafe { free(commit) };
}

/// Removes all operations, so that the commit and its memory can be used again.
///
/// # Safety
/// `commit` is NULL (the call then does nothing) or a commit that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_clear(commit: *mut brooklet_commit) {
    // SAFETY: the caller's promise.
    if let Some(commit) = unsafe { commit.as_mut() } {
        commit.commit.clear();
    }
}

/// Adds an operation on a log.
///
/// # Safety
/// `commit` is null or valid; `key` is null or valid for reading `key_len` bytes; `error` is null
/// or valid for writing.
unsafe fn add(
    commit: *mut brooklet_commit,
    (key, key_len): (*const c_void, usize),
    error: *mut *mut brooklet_error,
    how: impl FnOnce(&mut Commit, &[u8]) -> Result<(), Failure>,
) -> brooklet_status {
    let add = || {
        // SAFETY: the caller's promise.
        let (commit, key) = unsafe { (object_mut(commit, "the commit is NULL")?, bytes(key, key_len)?) };
        how(&mut commit.commit, key)?;
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call(error, add) }
}

/// Appends an entry to a log.
///
/// # Safety
/// `commit` is a commit that was not freed; `key` and `payload` are valid for reading so many
/// bytes; `error` is NULL or valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_append(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    payload: *const c_void,
    payload_len: usize,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.append(key, bytes(payload, payload_len)?);
            Ok(())
        })
    }
}

/// Appends an entry that holds the whole state of a log, and trims all entries before it.
///
/// # Safety
/// As for `brooklet_commit_append`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_snapshot(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    payload: *const c_void,
    payload_len: usize,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.snapshot(key, bytes(payload, payload_len)?);
            Ok(())
        })
    }
}

/// Trims a log: drops the entries before number `before`.
///
/// # Safety
/// As for `brooklet_commit_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_trim(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    before: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.trim(key, before);
            Ok(())
        })
    }
}

/// Drops all entries of a log except the last `n`.
///
/// # Safety
/// As for `brooklet_commit_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_keep_last(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    n: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.keep_last(key, n);
            Ok(())
        })
    }
}

/// Sets how many entries, bytes and nanoseconds a log keeps. `UINT64_MAX` is no limit.
///
/// # Safety
/// As for `brooklet_commit_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_set_retention(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    entries: u64,
    bytes: u64,
    age: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.set_retention(key, retention(entries, bytes, age));
            Ok(())
        })
    }
}

/// Truncates a log: drops the entries from number `from` on.
///
/// # Safety
/// As for `brooklet_commit_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_truncate(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    from: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.truncate(key, from);
            Ok(())
        })
    }
}

/// Makes a log begin at number `first`: drops the entries before it. If the log ends before
/// `first`, it is empty afterwards, and its next entry gets that number. Creates the log if it does
/// not exist.
///
/// # Safety
/// As for `brooklet_commit_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_begin_at(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    first: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.begin_at(key, first);
            Ok(())
        })
    }
}

/// Deletes a log.
///
/// # Safety
/// As for `brooklet_commit_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_delete(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.delete(key);
            Ok(())
        })
    }
}

/// Expects that the next entry of a log gets number `next`. Otherwise the commit has no effect, and
/// returns `BROOKLET_CONFLICT`.
///
/// # Safety
/// As for `brooklet_commit_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_expect_next(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    next: u64,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.expect_next(key, next);
            Ok(())
        })
    }
}

/// Expects that a log does not exist. Otherwise the commit has no effect, and returns
/// `BROOKLET_CONFLICT`.
///
/// # Safety
/// As for `brooklet_commit_append`, without a payload.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_expect_absent(
    commit: *mut brooklet_commit,
    key: *const c_void,
    key_len: usize,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    // SAFETY: the caller's promise.
    unsafe {
        add(commit, (key, key_len), error, |commit, key| {
            commit.expect_absent(key);
            Ok(())
        })
    }
}

/// Has the store acknowledge the commit at once, and write it to stable media within `bound`
/// nanoseconds. A power cut or a kill may lose the last acknowledged commits of this time.
///
/// # Safety
/// `commit` is NULL (the call then does nothing) or a commit that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_defer(commit: *mut brooklet_commit, bound: u64) {
    // SAFETY: the caller's promise.
    if let Some(commit) = unsafe { commit.as_mut() } {
        commit.commit.durability(Durability::Deferred(Duration::from_nanos(bound)));
    }
}

/// Has the store acknowledge the commit once it is on stable media, also in a deferred space.
///
/// # Safety
/// `commit` is NULL (the call then does nothing) or a commit that was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_durable(commit: *mut brooklet_commit) {
    // SAFETY: the caller's promise.
    if let Some(commit) = unsafe { commit.as_mut() } {
        commit.commit.durability(Durability::Durable);
    }
}

/// Commits the operations. The ticket has the numbers of the appended entries. The commit stays as
/// it is, and may be committed again. With `wait` false, a call that would have to wait for room
/// returns `BROOKLET_BUSY`.
///
/// # Safety
/// `store` and `commit` were not freed; `ticket` is valid for writing; `error` is NULL or valid for
/// writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn brooklet_commit_to(
    commit: *const brooklet_commit,
    store: *const brooklet_store,
    wait: bool,
    ticket: *mut *mut brooklet_ticket,
    error: *mut *mut brooklet_error,
) -> brooklet_status {
    let commit = || {
        // SAFETY: the caller's promise.
        let (store, commit) = unsafe { (of(store)?, &object(commit, "the commit is NULL")?.commit) };
        let write = || if wait { store.commit(commit) } else { store.try_commit(commit) };
        // SAFETY: the caller's promise.
        unsafe { give_handle(ticket, || Ok(brooklet_ticket { ticket: write()? })) }?;
        Ok(BROOKLET_OK)
    };
    // SAFETY: the caller's promise.
    unsafe { call_for(ticket, error, commit) }
}
