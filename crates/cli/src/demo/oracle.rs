//! The promises and their check: compares the acknowledgements of all rounds with the store after a
//! kill.
//!
//! An entry is promised once its acknowledgement has left the victim, or once it was found after a
//! kill. What must hold, for every log:
//!
//! - it goes on at or after every number that was promised, and begins where its next number says;
//! - the entries between come in order, without a gap, and equal the written bytes;
//! - an entry promised in one round was not written over in a later one;
//! - of the two halves of a commit there are both or none.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

use brooklet::{Bounds, Error, ErrorKind, Store};

use crate::demo::story::{LOGS, Step, bounds_at, check, key};

/// The promises, by log.
pub struct Oracle {
    /// For each round, the number that the log has to reach.
    promised: Vec<Vec<u64>>,
    /// Entries acknowledged in all.
    pub acknowledged: u64,
}

/// The findings.
#[derive(Default)]
pub struct Audit {
    /// Number of logs.
    pub logs: u64,
    /// Entries that were read.
    pub entries: u64,
    /// Commits over two entries of which both are there.
    pub pairs: u64,
    /// Promised entries that are not there.
    pub lost: u64,
    /// Defects.
    pub wrong: Vec<String>,
}

impl Oracle {
    /// No promises.
    pub fn new() -> Self {
        Self { promised: vec![Vec::new(); LOGS as usize], acknowledged: 0 }
    }

    /// Records a round's acknowledgements from the victim's output; returns their number. A last
    /// line that was cut off is none.
    pub fn take(&mut self, output: impl Read) -> std::io::Result<u64> {
        let before = self.acknowledged;
        self.promised.iter_mut().for_each(|rounds| rounds.push(0));
        let mut output = BufReader::with_capacity(64 << 10, output);
        let mut line = String::new();
        while output.read_line(&mut line)? > 0 && line.ends_with('\n') {
            let (log, seq) = line.trim_end().split_once(' ').expect("the victim prints pairs");
            let log: usize = log.parse().expect("the victim prints numbers");
            let seq: u64 = seq.parse().expect("the victim prints numbers");
            let promised = self.promised[log].last_mut().expect("the round has begun");
            *promised = (*promised).max(seq + 1);
            self.acknowledged += 1;
            line.clear();
        }
        Ok(self.acknowledged - before)
    }

    /// Compares the store with the promises. What is there is promised from now on.
    pub fn audit(&mut self, store: &Store) -> Result<Audit, Error> {
        let mut audit = Audit::default();
        let mut bounds = Vec::with_capacity(self.promised.len());
        let mut partners = BTreeMap::new();
        for (log, promised) in (0..).zip(&mut self.promised) {
            let found = bounds_of(store, log)?;
            audit.log(log, promised, found);
            if let Some(found) = found {
                audit.entries(store, log, promised, found, &mut partners)?;
            }
            let next = found.map_or(0, |found| found.next);
            promised.last_mut().into_iter().for_each(|last| *last = next);
            bounds.push(found.unwrap_or_default());
        }
        audit.pairs(&bounds, &partners);
        Ok(audit)
    }
}

type Partners = BTreeMap<(u32, u64), (u32, u64)>;

impl Audit {
    fn log(&mut self, log: u32, promised: &[u64], found: Option<Bounds>) {
        let must = promised.iter().copied().max().unwrap_or(0);
        let next = found.map_or(0, |found| found.next);
        if next < must {
            self.lost += must - next;
            self.wrong.push(format!(
                "the next entry of log {log} is {next}, but entry {} was acknowledged",
                must - 1
            ));
        }
        let wanted = bounds_at(log, next);
        if found.is_some_and(|found| found != wanted) {
            self.wrong.push(format!("log {log} holds {found:?} instead of {wanted:?}"));
        }
        self.logs += u64::from(found.is_some());
    }

    fn entries(
        &mut self,
        store: &Store,
        log: u32,
        promised: &[u64],
        found: Bounds,
        partners: &mut Partners,
    ) -> Result<(), Error> {
        let mut wanted = found.first;
        let mut last_round = 0;
        for entry in store.read(key(log), ..)? {
            let entry = entry?;
            let step = Step { log, seq: wanted };
            let Some((round, partner)) = check(step, &entry.payload).filter(|_| entry.seq == wanted) else {
                self.wrong
                    .push(format!("log {log}: entry {} is not what was written as {wanted}", entry.seq));
                return Ok(());
            };
            // Rounds count from 1.
            let owner = promised.iter().position(|next| wanted < *next).map_or(promised.len(), |i| i + 1);
            if round < last_round || round as usize > owner {
                self.wrong.push(format!("log {log}: entry {wanted} of round {round} is out of order"));
            }
            if let Some(partner) = partner {
                partners.insert((log, wanted), (partner.log, partner.seq));
            }
            last_round = round;
            wanted += 1;
        }
        if wanted != found.next {
            self.wrong.push(format!("log {log} ends at {wanted} instead of {}", found.next));
        }
        self.entries += wanted - found.first;
        Ok(())
    }

    fn pairs(&mut self, bounds: &[Bounds], partners: &Partners) {
        for (half, other) in partners {
            let there = partners.get(other) == Some(half);
            // The other half may have been there and be trimmed by now.
            let trimmed = bounds.get(other.0 as usize).is_some_and(|b| other.1 < b.first);
            if !there && !trimmed {
                self.wrong.push(format!("a commit is half applied: {half:?} exists, but not {other:?}"));
            }
            self.pairs += u64::from(there && half < other);
        }
    }
}

fn bounds_of(store: &Store, log: u32) -> Result<Option<Bounds>, Error> {
    match store.bounds(key(log)) {
        Ok(bounds) => Ok(Some(bounds)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brooklet::Commit;

    fn write(store: &Store, round: u32, steps: &[Step], partner: Option<Step>) {
        for step in steps {
            let (key, payload) = (key(step.log), step.payload(round, partner));
            let mut commit = Commit::new();
            step.put(&key, &payload, &mut commit);
            store.commit(&commit).unwrap().wait().unwrap();
        }
    }

    #[test]
    fn what_was_promised_and_is_there_passes() {
        let store = Store::in_memory(1).unwrap();
        write(&store, 1, &[Step { log: 3, seq: 0 }, Step { log: 3, seq: 1 }], None);
        let mut oracle = Oracle::new();
        assert_eq!(oracle.take(&b"3 0\n3"[..]).unwrap(), 1);
        let audit = oracle.audit(&store).unwrap();
        assert_eq!((audit.logs, audit.lost, audit.wrong.len()), (1, 0, 0), "{:?}", audit.wrong);
    }

    #[test]
    fn what_is_not_there_or_was_written_over_is_told() {
        let store = Store::in_memory(1).unwrap();
        write(&store, 2, &[Step { log: 3, seq: 0 }], None);
        let mut oracle = Oracle::new();
        oracle.take(&b"3 0\n4 1\n"[..]).unwrap();
        oracle.take(&b""[..]).unwrap();
        let audit = oracle.audit(&store).unwrap();
        assert_eq!((audit.lost, audit.wrong.len()), (2, 2), "{:?}", audit.wrong);
    }

    #[test]
    fn half_a_commit_is_told() {
        let store = Store::in_memory(1).unwrap();
        write(&store, 1, &[Step { log: 3, seq: 0 }], Some(Step { log: 4, seq: 0 }));
        let mut oracle = Oracle::new();
        oracle.take(&b""[..]).unwrap();
        let audit = oracle.audit(&store).unwrap();
        assert!(audit.wrong[0].starts_with("a commit is half applied: (3, 0)"), "{:?}", audit.wrong);
    }
}
