//! The entries that are written to a store on a full disk, and the expected contents of its logs:
//! plain lists of marks. A payload follows from its mark, so a reader can verify it.

use std::collections::{BTreeMap, VecDeque};

use brooklet::io::Rng;
use brooklet::{Commit, Store};
use serde::{Deserialize, Serialize};

/// Identifies a payload: its length in the upper 16 bits, a random number below.
pub type Mark = u64;

/// Draws the mark of a payload of `len` bytes, at least 8.
pub fn mark(len: u64, rng: &mut Rng) -> Mark {
    len << 48 | rng.next() >> 16
}

/// Returns the payload of a mark: the mark, then bytes that do not compress.
pub fn payload(mark: Mark) -> Vec<u8> {
    let mut rng = Rng::new(mark);
    let len = (mark >> 48) as usize;
    let mut bytes = mark.to_le_bytes().to_vec();
    while bytes.len() < len {
        bytes.extend(rng.next().to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A log: its first number, and the marks of its entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Number of the first entry.
    pub first: u64,
    /// Marks of the entries.
    pub marks: VecDeque<Mark>,
}

impl Log {
    /// Returns the number of the next entry.
    pub fn next(&self) -> u64 {
        self.first + self.marks.len() as u64
    }

    /// Returns the size of the payloads, in bytes.
    pub fn bytes(&self) -> u64 {
        self.marks.iter().map(|mark| mark >> 48).sum()
    }

    fn trim(&mut self, before: u64) {
        let gone = before.saturating_sub(self.first).min(self.marks.len() as u64);
        self.first += gone;
        self.marks.drain(..gone as usize);
    }
}

/// Logs by name.
pub type Logs = BTreeMap<String, Log>;

/// An operation on a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Act {
    /// Appends an entry.
    Append(Mark),
    /// Appends an entry, and drops all earlier entries.
    Snapshot(Mark),
    /// Drops the entries before this number.
    Trim(u64),
    /// Drops all but this many of the last entries.
    KeepLast(u64),
    /// Drops the entries from this number on.
    Truncate(u64),
    /// Deletes the log.
    Delete,
}

/// One operation of a commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// Name of the log.
    pub log: String,
    /// Operation on the log.
    pub act: Act,
}

impl Op {
    /// Returns whether the operation only frees space: a full store must accept a commit of such
    /// operations.
    pub fn frees(&self) -> bool {
        !matches!(self.act, Act::Append(_) | Act::Snapshot(_))
    }

    /// Returns the size of the added payload, in bytes.
    pub fn bytes(&self) -> u64 {
        match self.act {
            Act::Append(mark) | Act::Snapshot(mark) => mark >> 48,
            _ => 0,
        }
    }

    /// Applies the operation to plain lists.
    pub fn apply(&self, logs: &mut Logs) {
        if self.act == Act::Delete {
            logs.remove(&self.log);
            return;
        }
        let log = logs.entry(self.log.clone()).or_default();
        match self.act {
            Act::Append(mark) => log.marks.push_back(mark),
            Act::Snapshot(mark) => {
                log.trim(log.next());
                log.marks.push_back(mark);
            }
            Act::Trim(before) => log.trim(before),
            Act::KeepLast(n) => log.trim(log.next().saturating_sub(n)),
            Act::Truncate(from) => log.marks.truncate(from.saturating_sub(log.first) as usize),
            Act::Delete => unreachable!("it is done above"),
        }
    }
}

/// Applies operations to a store, in one commit.
pub fn commit(store: &Store, ops: &[Op]) -> Result<brooklet::Ticket, brooklet::Error> {
    let payloads: Vec<Vec<u8>> = ops
        .iter()
        .map(|op| match op.act {
            Act::Append(mark) | Act::Snapshot(mark) => payload(mark),
            _ => Vec::new(),
        })
        .collect();
    let mut commit = Commit::new();
    for (Op { log, act }, payload) in ops.iter().zip(&payloads) {
        match *act {
            Act::Append(_) => commit.append(log, payload),
            Act::Snapshot(_) => commit.snapshot(log, payload),
            Act::Trim(before) => commit.trim(log, before),
            Act::KeepLast(n) => commit.keep_last(log, n),
            Act::Truncate(from) => commit.truncate(log, from),
            Act::Delete => commit.delete(log),
        };
    }
    store.commit(&commit)
}

/// Reads the logs whose names start with `prefix`; returns an error for an entry that cannot have
/// been written.
pub fn read(store: &Store, prefix: &str) -> anyhow::Result<Logs> {
    let mut logs = Logs::new();
    for found in store.scan(prefix)? {
        let found = found?;
        let name = String::from_utf8(found.key)?;
        let mut log = Log { first: found.bounds.first, marks: VecDeque::new() };
        for entry in store.read(&name, ..)? {
            let entry = entry?;
            let mark = entry.payload.first_chunk().copied().map_or(0, Mark::from_le_bytes);
            anyhow::ensure!(
                entry.seq == log.next() && entry.payload == payload(mark),
                "{name}: entry {} was never written like that, or is out of turn",
                entry.seq
            );
            log.marks.push_back(mark);
        }
        anyhow::ensure!(
            log.next() == found.bounds.next,
            "{name} ends at {}, not {:?}",
            log.next(),
            found.bounds
        );
        logs.insert(name, log);
    }
    Ok(logs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the lists say after each kind of operation is what a store says.
    #[test]
    fn lists_do_as_a_store_does() {
        let store = Store::in_memory(1).unwrap();
        let mut rng = Rng::new(1);
        let mut logs = Logs::new();
        for _ in 0..2_000 {
            let log = format!("log/{}", rng.below(4));
            let (first, next) = logs.get(&log).map_or((0, 0), |log| (log.first, log.next()));
            let between = first + rng.below(next - first + 1);
            let len = 8 + rng.below(50);
            let act = match rng.below(10) {
                0 if logs.contains_key(&log) => Act::Delete,
                1 if logs.contains_key(&log) => Act::Trim(between),
                2 if logs.contains_key(&log) => Act::Truncate(between),
                3 if logs.contains_key(&log) => Act::KeepLast(rng.below(6)),
                4 => Act::Snapshot(mark(len, &mut rng)),
                _ => Act::Append(mark(len, &mut rng)),
            };
            let op = Op { log, act };
            drop(commit(&store, std::slice::from_ref(&op)).unwrap());
            op.apply(&mut logs);
        }
        store.flush().unwrap();
        assert!(read(&store, "").unwrap() == logs);
    }
}
