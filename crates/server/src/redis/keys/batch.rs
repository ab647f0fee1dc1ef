//! The operations of a command or a transaction on logs: collected, then committed as one.

use brooklet::{Commit, Error, Store, Ticket};
use bytes::Bytes;

use super::names::LogKey;

/// An operation on a log.
#[derive(Clone, Debug)]
pub enum Op {
    /// Appends an entry.
    Append(Bytes),
    /// Appends an entry, and drops all earlier entries.
    Snapshot(Bytes),
    /// Drops the entries before this number.
    Trim(u64),
    /// Drops the entries from this number on.
    Truncate(u64),
    /// Deletes the log.
    Delete,
}

/// The operations of one commit.
#[derive(Debug, Default)]
pub struct Batch {
    /// Epoch of the commit.
    pub epoch: u64,
    /// Operations with their logs, in order.
    pub ops: Vec<(LogKey, Op)>,
    /// Size of the appended entries of these operations, in bytes.
    pub size: u64,
}

impl Batch {
    /// Adds an operation.
    pub fn push(&mut self, key: LogKey, op: Op) {
        if let Op::Append(payload) | Op::Snapshot(payload) = &op {
            self.size += payload.len() as u64;
        }
        self.ops.push((key, op));
    }

    /// Removes all operations.
    pub fn clear(&mut self) {
        self.ops.clear();
        self.size = 0;
    }

    /// Commits all operations.
    pub fn commit(&self, store: &Store) -> Result<Ticket, Error> {
        // Most commands append one entry.
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
