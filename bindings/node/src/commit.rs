//! Commits: operations on many logs that happen all or not at all.

use std::time::Duration;

use brooklet::{Durability, Retention};
use napi_derive::napi;

use crate::number::whole;

/// Operations on many logs, in the order of the calls.
#[napi]
#[derive(Default)]
pub struct Commit {
    pub(crate) commit: brooklet::Commit,
}

#[napi]
impl Commit {
    #[napi(constructor)]
    pub fn new() -> Self {
        Self::default()
    }

    #[napi]
    pub fn append(&mut self, key: &[u8], payload: &[u8]) {
        self.commit.append(key, payload);
    }

    #[napi]
    pub fn snapshot(&mut self, key: &[u8], payload: &[u8]) {
        self.commit.snapshot(key, payload);
    }

    #[napi]
    pub fn trim(&mut self, key: &[u8], before: f64) {
        self.commit.trim(key, whole(before));
    }

    #[napi]
    pub fn keep_last(&mut self, key: &[u8], n: f64) {
        self.commit.keep_last(key, whole(n));
    }

    #[napi]
    pub fn begin_at(&mut self, key: &[u8], first: f64) {
        self.commit.begin_at(key, whole(first));
    }

    #[napi]
    pub fn truncate(&mut self, key: &[u8], start: f64) {
        self.commit.truncate(key, whole(start));
    }

    #[napi]
    pub fn delete(&mut self, key: &[u8]) {
        self.commit.delete(key);
    }

    /// The age is in milliseconds.
    #[napi]
    pub fn set_retention(&mut self, key: &[u8], entries: Option<f64>, bytes: Option<f64>, age: Option<f64>) {
        let mut retention = Retention::new();
        if let Some(most) = entries {
            retention = retention.entries(whole(most));
        }
        if let Some(most) = bytes {
            retention = retention.bytes(whole(most));
        }
        if let Some(longest) = age {
            retention = retention.age(Duration::from_millis(whole(longest)));
        }
        self.commit.set_retention(key, retention);
    }

    #[napi]
    pub fn expect_next(&mut self, key: &[u8], next: f64) {
        self.commit.expect_next(key, whole(next));
    }

    #[napi]
    pub fn expect_absent(&mut self, key: &[u8]) {
        self.commit.expect_absent(key);
    }

    /// The time is in milliseconds.
    #[napi]
    pub fn defer(&mut self, time: f64) {
        self.commit.durability(Durability::Deferred(Duration::from_millis(whole(time))));
    }

    #[napi]
    pub fn durable(&mut self) {
        self.commit.durability(Durability::Durable);
    }
}

/// Returns a commit that appends entries to a log: `payloads` has them one after another.
pub fn many(key: &[u8], payloads: &[u8], lengths: &[u32]) -> brooklet::Commit {
    let mut commit = brooklet::Commit::new();
    let mut rest = payloads;
    for length in lengths {
        let payload;
        (payload, rest) = cut(rest, *length);
        commit.append(key, payload);
    }
    commit
}

/// Returns the first `length` bytes, and the others.
pub fn cut(bytes: &[u8], length: u32) -> (&[u8], &[u8]) {
    bytes.split_at((length as usize).min(bytes.len()))
}
