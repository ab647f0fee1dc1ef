//! A draft of a commit: like [`brooklet::Commit`], but it owns its data.

use std::sync::Arc;

use brooklet::{Commit, Retention, Store, Ticket};
use bytes::Bytes;

use crate::http::reply::Refusal;

#[derive(Debug, Default)]
pub struct Draft {
    steps: Vec<(Arc<str>, Step)>,
}

#[derive(Debug)]
enum Step {
    ExpectNext(u64),
    Append(Bytes),
    Snapshot(Bytes),
    Delete,
    Retain(Retention),
}

impl Draft {
    pub fn expect_next(&mut self, key: impl Into<Arc<str>>, next: u64) {
        self.steps.push((key.into(), Step::ExpectNext(next)));
    }

    pub fn append(&mut self, key: impl Into<Arc<str>>, payload: impl Into<Bytes>) {
        self.steps.push((key.into(), Step::Append(payload.into())));
    }

    pub fn snapshot(&mut self, key: impl Into<Arc<str>>, payload: impl Into<Bytes>) {
        self.steps.push((key.into(), Step::Snapshot(payload.into())));
    }

    pub fn retain(&mut self, key: impl Into<Arc<str>>, retention: Retention) {
        self.steps.push((key.into(), Step::Retain(retention)));
    }

    pub fn delete(&mut self, key: impl Into<Arc<str>>) {
        self.steps.push((key.into(), Step::Delete));
    }

    /// May wait for room in the store.
    pub fn commit(&self, store: &Store) -> Result<Ticket, Refusal> {
        let mut commit = Commit::new();
        for (key, step) in &self.steps {
            let key = &**key;
            match step {
                Step::ExpectNext(next) => commit.expect_next(key, *next),
                Step::Append(payload) => commit.append(key, payload),
                Step::Snapshot(payload) => commit.snapshot(key, payload),
                Step::Retain(retention) => commit.set_retention(key, *retention),
                Step::Delete => commit.delete(key),
            };
        }
        Ok(store.commit(&commit)?)
    }
}
