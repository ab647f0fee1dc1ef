//! The promises to the writers of a full store, by their lines, and the check of these promises.
//!
//! Each writer has its own logs. They must hold the acknowledged commits and, after a kill,
//! possibly the first of the waiting commits, in the order of their submission.

use std::collections::BTreeMap;

use anyhow::Context;
use brooklet::Store;

use super::logs::{Logs, Op, read};
use super::writer::{Line, prefix};
use crate::oracle::Lost;

/// The promises to all writers.
#[derive(Default)]
pub struct Promises {
    writers: BTreeMap<usize, Writer>,
    /// Lines of the current process's writers.
    pub said: Said,
}

/// The promises to one writer.
#[derive(Default)]
struct Writer {
    kept: Logs,
    /// Commits that wait for an acknowledgement.
    waiting: Vec<Vec<Op>>,
}

/// The sums of one process's lines.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// Number of acknowledged operations.
    pub acknowledged: u64,
    /// Number of commits refused for lack of room.
    pub refused: u64,
    /// Bytes of acknowledged payloads.
    pub bytes: u64,
    /// Number of reported compaction steps.
    pub merged: u64,
    /// Number of writers that have finished.
    pub done: usize,
    /// Reason why the store stopped, or another error.
    pub stopped: Option<String>,
}

impl Promises {
    /// Begins a new process.
    pub fn begin(&mut self) {
        self.said = Said::default();
    }

    /// Records a line. Returns an error if the line breaks a promise.
    pub fn take(&mut self, line: Line) -> anyhow::Result<()> {
        match line {
            Line::Try(id, ops) => self.writers.entry(id).or_default().waiting.push(ops),
            Line::Kept(id) => {
                let writer = self.writers.entry(id).or_default();
                for op in writer.waiting.drain(..).flatten() {
                    self.said.bytes += op.bytes();
                    op.apply(&mut writer.kept);
                    self.said.acknowledged += 1;
                }
            }
            Line::Refused(id, why) => {
                let ops = self.writers.entry(id).or_default().waiting.pop().context("nothing was tried")?;
                self.said.refused += 1;
                if ops.iter().all(Op::frees) {
                    return lost(format!("what only frees was refused ({why}): {:?}", ops[0]));
                }
            }
            Line::Merged => self.said.merged += 1,
            Line::Done => self.said.done += 1,
            Line::Stopped(why) => self.said.stopped = Some(why),
        }
        Ok(())
    }

    /// Returns the size of the kept payloads, in bytes.
    pub fn bytes(&self) -> u64 {
        self.writers.values().flat_map(|writer| writer.kept.values()).map(|log| log.bytes()).sum()
    }

    /// Compares a store with the promises; the found entries are promised from now on. Returns the
    /// number of entries read.
    pub fn audit(&mut self, store: &Store) -> anyhow::Result<u64> {
        let mut entries = 0;
        let mut logs = 0;
        for (id, writer) in &mut self.writers {
            let found = read(store, &prefix(*id)).or_else(|error| {
                if error.is::<brooklet::Error>() { Err(error) } else { lost(error.to_string()) }
            })?;
            let mut waiting = std::mem::take(&mut writer.waiting).into_iter();
            while found != writer.kept {
                let Some(ops) = waiting.next() else { return lost(difference(&writer.kept, &found)) };
                ops.iter().for_each(|op| op.apply(&mut writer.kept));
            }
            entries += found.values().map(|log| log.marks.len() as u64).sum::<u64>();
            logs += found.len();
        }
        let others = store.scan("")?.count() - logs;
        if others > 0 {
            return lost(format!("{others} logs are there that nobody wrote"));
        }
        Ok(entries)
    }
}

/// Describes the first log that differs from the expected log, with all waiting commits applied.
fn difference(kept: &Logs, found: &Logs) -> String {
    let differs = kept.keys().chain(found.keys()).find(|name| kept.get(*name) != found.get(*name));
    let Some(name) = differs else { return "the same, and yet not".into() };
    format!("{name} should be {:?}, and is {:?}", kept.get(name), found.get(name))
}

pub(super) fn lost<T>(what: String) -> anyhow::Result<T> {
    Err(Lost(what).into())
}

#[cfg(test)]
mod tests {
    use super::super::logs::{Act, commit};
    use super::*;

    fn op(seq: u64, frees: bool) -> Op {
        let act = if frees { Act::Delete } else { Act::Append(8 << 48 | seq) };
        Op { log: prefix(1) + "log", act }
    }

    /// What is found after two appends were acknowledged and two more waited, where the store has
    /// `entries`.
    fn audit(entries: u64) -> anyhow::Result<u64> {
        let mut promises = Promises::default();
        let lines = [0, 1].map(|n| Line::Try(1, vec![op(n, false)]));
        let later = [2, 3].map(|n| Line::Try(1, vec![op(n, false)]));
        lines.into_iter().chain([Line::Kept(1)]).chain(later).try_for_each(|line| promises.take(line))?;
        let store = Store::in_memory(1)?;
        for n in 0..entries {
            commit(&store, &[op(n, false)])?.wait()?;
        }
        promises.audit(&store)
    }

    #[test]
    fn what_was_acknowledged_and_maybe_some_of_the_rest_is_there() {
        assert_eq!([2, 3, 4].map(|entries| audit(entries).unwrap()), [2, 3, 4]);
        for entries in [0, 1, 5] {
            let error = audit(entries).unwrap_err();
            assert!(error.is::<Lost>(), "{entries}: {error}");
        }
    }

    #[test]
    fn an_append_may_be_refused_and_a_delete_may_not() {
        let mut promises = Promises::default();
        let mut refused = |op: Op| {
            promises.take(Line::Try(1, vec![op])).unwrap();
            promises.take(Line::Refused(1, "full".into()))
        };
        refused(op(0, false)).unwrap();
        assert!(refused(op(0, true)).unwrap_err().is::<Lost>());
    }
}
