//! The operations of a command or a transaction on logs: collected, then committed as one.

use brooklet::{Commit, Error, Store, Ticket};
use bytes::Bytes;

use super::names::LogKey;

/// One thing that is done to a log.
#[derive(Clone, Debug)]
pub enum Op {
    /// An entry is added.
    Append(Bytes),
    /// An entry is added, and those before it go.
    Snapshot(Bytes),
    /// Entries before this number go.
    Trim(u64),
    /// Entries from this number on go.
    Truncate(u64),
    /// The log goes.
    Delete,
}

/// Operations that are to be committed together.
#[derive(Debug, Default)]
pub struct Batch {
    /// The number that the commit will have.
    pub epoch: u64,
    /// Them, with their logs, in order.
    pub ops: Vec<(LogKey, Op)>,
}

impl Batch {
    /// Adds one.
    pub fn push(&mut self, key: LogKey, op: Op) {
        self.ops.push((key, op));
    }

    /// Bytes of the entries that are added.
    pub fn bytes(&self) -> u64 {
        let added = self.ops.iter().map(|(_, op)| match op {
            Op::Append(payload) | Op::Snapshot(payload) => payload.len() as u64,
            _ => 0,
        });
        added.sum()
    }

    /// Commits all of them.
    pub fn commit(&self, store: &Store) -> Result<Ticket, Error> {
        // Most commands are this one.
        if let [(key, Op::Append(payload))] = &self.ops[..] {
            return store.append(key, payload);
        }
        let mut commit = Commit::new();
        for (key, op) in &self.ops {
            match op {
                Op::Append(payload) => commit.append(key, payload),
                Op::Snapshot(payload) => commit.snapshot(key, payload),
                Op::Trim(before) => commit.trim(key, *before),
                Op::Truncate(from) => commit.truncate(key, *from),
                Op::Delete => commit.delete(key),
            };
        }
        store.commit(&commit)
    }
}
