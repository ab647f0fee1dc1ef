//! Commits: operations on many logs that happen all or not at all.

use std::time::Duration;

use brooklet::{Durability, Retention};
use pyo3::prelude::*;

use crate::argument::{Key, Payload, Seconds};

/// Operations on many logs that happen all or not at all, in the order of the calls.
///
/// Each call returns the commit. The commit stays as it is after `Store.commit`, and may be
/// committed again.
///
/// >>> commit = brooklet.Commit().append("doc/7", b"an edit").append("feed", b"doc 7")
/// >>> store.commit(commit).seqs
/// [0, 0]
#[pyclass(module = "brooklet")]
#[derive(Default)]
pub struct Commit {
    pub commit: brooklet::Commit,
}

/// A call on a commit that returns the commit.
type Chained<'py> = PyRefMut<'py, Commit>;

#[pymethods]
impl Commit {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Removes all operations.
    fn clear(mut slf: Chained<'_>) -> Chained<'_> {
        slf.commit.clear();
        slf
    }

    /// Appends an entry to a log.
    fn append(mut slf: Chained<'_>, key: Key, payload: Payload) -> Chained<'_> {
        slf.commit.append(key, payload);
        slf
    }

    /// Appends an entry that holds the whole state of a log, and trims all entries before it.
    fn snapshot(mut slf: Chained<'_>, key: Key, payload: Payload) -> Chained<'_> {
        slf.commit.snapshot(key, payload);
        slf
    }

    /// Removes the entries of a log before number `before`.
    fn trim(mut slf: Chained<'_>, key: Key, before: u64) -> Chained<'_> {
        slf.commit.trim(key, before);
        slf
    }

    /// Removes all but the last `n` entries of a log.
    fn keep_last(mut slf: Chained<'_>, key: Key, n: u64) -> Chained<'_> {
        slf.commit.keep_last(key, n);
        slf
    }

    /// Has a log begin at number `first`.
    fn begin_at(mut slf: Chained<'_>, key: Key, first: u64) -> Chained<'_> {
        slf.commit.begin_at(key, first);
        slf
    }

    /// Removes the entries of a log from number `start` on.
    fn truncate(mut slf: Chained<'_>, key: Key, start: u64) -> Chained<'_> {
        slf.commit.truncate(key, start);
        slf
    }

    /// Deletes a log.
    fn delete(mut slf: Chained<'_>, key: Key) -> Chained<'_> {
        slf.commit.delete(key);
        slf
    }

    /// Has a log keep its newest entries only: so many, so many bytes, not older than `age`
    /// seconds.
    #[pyo3(signature = (key, *, entries = None, bytes = None, age = None))]
    fn set_retention(
        mut slf: Chained<'_>,
        key: Key,
        entries: Option<u64>,
        bytes: Option<u64>,
        age: Option<Seconds>,
    ) -> Chained<'_> {
        slf.commit.set_retention(key, retention(entries, bytes, age));
        slf
    }

    /// Expects that the next entry of a log gets number `next`: the commit is refused otherwise.
    fn expect_next(mut slf: Chained<'_>, key: Key, next: u64) -> Chained<'_> {
        slf.commit.expect_next(key, next);
        slf
    }

    /// Expects that a log does not exist: the commit is refused otherwise.
    fn expect_absent(mut slf: Chained<'_>, key: Key) -> Chained<'_> {
        slf.commit.expect_absent(key);
        slf
    }

    /// Has the commit acknowledged at once, and written to stable media within `seconds`.
    ///
    /// A power cut or a kill may lose the last commits of this time.
    fn defer(mut slf: Chained<'_>, seconds: Seconds) -> Chained<'_> {
        let Seconds(bound) = seconds;
        slf.commit.durability(Durability::Deferred(bound));
        slf
    }

    /// Has the commit acknowledged once it is on stable media.
    ///
    /// This also holds in a space whose commits are deferred.
    fn durable(mut slf: Chained<'_>) -> Chained<'_> {
        slf.commit.durability(Durability::Durable);
        slf
    }
}

/// Returns a retention of these limits.
pub fn retention(entries: Option<u64>, bytes: Option<u64>, age: Option<Seconds>) -> Retention {
    let mut retention = Retention::new();
    if let Some(most) = entries {
        retention = retention.entries(most);
    }
    if let Some(most) = bytes {
        retention = retention.bytes(most);
    }
    match age {
        Some(Seconds(Duration::MAX)) | None => retention,
        Some(Seconds(longest)) => retention.age(longest),
    }
}
