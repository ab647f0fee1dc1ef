//! The promises of a store, and their check: compares the victims' lines of all rounds with the
//! recovered store.
//!
//! An entry is promised once its acknowledgement has left the victim, or once a recovery has shown
//! it. What must hold after each cut, for every log:
//!
//! - acknowledged <= recovered <= submitted;
//! - the entries are in order, without a gap, and equal the written entries, byte for byte;
//! - an entry that was found once stays the same: no entry of a later round replaces it;
//! - a log and its twin, which are written in the same commits, have the same bounds.

use std::collections::BTreeMap;

use brooklet::{Bounds, Store};

use crate::story::{KEPT, payload, round_of, twin};

/// A promise was broken.
#[derive(Debug, thiserror::Error)]
#[error("LOST: {0}")]
pub struct Lost(pub String);

/// The promises of a store's life.
#[derive(Clone, Default)]
pub struct Oracle {
    logs: BTreeMap<String, Log>,
    round: u32,
    /// Number of recorded acknowledgements.
    pub acknowledged: u64,
    /// Reason why the last victim's store stopped, if it did.
    pub stopped: Option<String>,
}

/// One log.
#[derive(Clone, Default)]
struct Log {
    /// Highest first number that was found.
    first: u64,
    /// Round of each entry, as far as entries were found.
    rounds: Vec<u32>,
    /// Least next number, by the acknowledgements.
    acknowledged: u64,
    /// Largest next number, by the submissions.
    submitted: u64,
}

impl Oracle {
    /// Begins a round; returns its number.
    pub fn begin(&mut self) -> u32 {
        self.round += 1;
        self.stopped = None;
        self.round
    }

    /// Records the output of a victim. Ignores an incomplete last line.
    pub fn take(&mut self, output: &[u8]) {
        for line in output.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n").and_then(|line| str::from_utf8(line).ok()) else {
                continue;
            };
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            if word == "stopped" {
                self.stopped = Some(rest.to_owned());
                continue;
            }
            let Some((name, Ok(seq))) = rest.split_once(' ').map(|(name, seq)| (name, seq.parse::<u64>()))
            else {
                continue;
            };
            let with_twin = name.starts_with('w').then(|| twin(name));
            for name in [Some(name.to_owned()), with_twin].into_iter().flatten() {
                let log = self.logs.entry(name).or_default();
                match word {
                    "try" => log.submitted = log.submitted.max(seq + 1),
                    "ack" => log.acknowledged = log.acknowledged.max(seq + 1),
                    _ => {}
                }
            }
            self.acknowledged += u64::from(word == "ack");
        }
    }

    /// Returns an error if an entry was promised.
    pub fn expects_nothing(&self) -> anyhow::Result<()> {
        match self.logs.iter().find(|(_, log)| log.acknowledged > 0) {
            Some((name, _)) => lost(format!("there is no store, and entries of {name} were promised")),
            None => Ok(()),
        }
    }

    /// Compares a store with the promises; returns the number of entries read. The found entries
    /// are promised from now on.
    pub fn audit(&mut self, store: &Store) -> anyhow::Result<u64> {
        let mut entries = 0;
        let mut bounds = BTreeMap::new();
        for found in store.scan("")? {
            let found = found?;
            let name = String::from_utf8(found.key)?;
            let log = self.logs.entry(name.clone()).or_default();
            log.check_bounds(&name, found.bounds)?;
            entries += log.check_entries(&name, found.bounds, self.round, store)?;
            bounds.insert(name, found.bounds);
        }
        for (name, log) in &mut self.logs {
            let there = bounds.get(name).copied().unwrap_or_default();
            let must = log.acknowledged.max(log.rounds.len() as u64);
            if there.next < must {
                return lost(format!(
                    "{name} goes on at {}, but entry {} was promised",
                    there.next,
                    must - 1
                ));
            }
            if name.starts_with('w') && !name.ends_with("twin") {
                let other = bounds.get(&twin(name)).copied().unwrap_or_default();
                if other != there {
                    return lost(format!("half a commit: {name} has {there:?}, its twin {other:?}"));
                }
            }
            // The round of entries that were added and trimmed between two audits is unknown, and
            // is never compared.
            log.rounds.resize(there.next as usize, self.round);
            (log.first, log.acknowledged, log.submitted) = (there.first, there.next, there.next);
        }
        Ok(entries)
    }
}

impl Log {
    fn check_bounds(&self, name: &str, found: Bounds) -> anyhow::Result<()> {
        if found.next > self.submitted {
            return lost(format!(
                "{name}: {found:?} holds more than was written, {} entries",
                self.submitted
            ));
        }
        // Deferred entries are never trimmed.
        let most = if name.starts_with('d') { 0 } else { self.first.max(found.next.saturating_sub(KEPT)) };
        if !(self.first..=most).contains(&found.first) {
            return lost(format!("{name}: {found:?} has a wrong head; it was {} before", self.first));
        }
        Ok(())
    }

    fn check_entries(&self, name: &str, found: Bounds, round: u32, store: &Store) -> anyhow::Result<u64> {
        let mut seq = found.first;
        for entry in store.read(name, ..)? {
            let entry = entry?;
            let Some(written) = round_of(&entry.payload)
                .filter(|written| entry.seq == seq && entry.payload == payload(name, seq, *written))
            else {
                return lost(format!("{name}: entry {} is not what was written as {seq}", entry.seq));
            };
            let owner = self.rounds.get(seq as usize).copied();
            if written != owner.unwrap_or(round) {
                return lost(format!(
                    "{name}: entry {seq} is of round {written}, not of {owner:?} or {round}"
                ));
            }
            seq += 1;
        }
        if seq != found.next {
            return lost(format!("{name} ends at {seq} instead of {}", found.next));
        }
        Ok(found.next - found.first)
    }
}

fn lost<T>(what: String) -> anyhow::Result<T> {
    Err(Lost(what).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A store that holds `count` entries of a log of round 1.
    fn store(log: &str, count: u64) -> Store {
        let store = Store::in_memory(1).unwrap();
        for seq in 0..count {
            store.append(log, payload(log, seq, 1)).unwrap().wait().unwrap();
        }
        store
    }

    fn oracle(lines: &str) -> Oracle {
        let mut oracle = Oracle::default();
        oracle.begin();
        oracle.take(lines.as_bytes());
        oracle
    }

    #[track_caller]
    fn broken(oracle: &mut Oracle, store: &Store, how: &str) {
        let error = oracle.audit(store).unwrap_err().downcast::<Lost>().unwrap();
        assert!(error.to_string().contains(how), "{error}");
    }

    #[test]
    fn what_was_promised_and_is_there_passes() {
        let mut oracle = oracle("try u/1 0\nack u/1 0\ntry u/1 1\nack u/1 1");
        assert_eq!(oracle.acknowledged, 1, "a line that was cut off is none");
        assert_eq!(oracle.audit(&store("u/1", 2)).unwrap(), 2);
        assert_eq!(oracle.audit(&store("u/1", 2)).unwrap(), 2);
    }

    #[test]
    fn what_is_missing_is_told() {
        broken(&mut oracle("try u/1 0\nack u/1 0\n"), &store("u/2", 0), "entry 0 was promised");
        // What one recovery has shown no later one may miss.
        let mut oracle = oracle("try u/1 1\n");
        oracle.audit(&store("u/1", 2)).unwrap();
        broken(&mut oracle, &store("u/1", 1), "entry 1 was promised");
    }

    #[test]
    fn what_was_never_written_is_told() {
        broken(&mut oracle("try u/1 0\n"), &store("u/1", 2), "more than was written");
        let other = store("u/1", 1);
        other.append("u/1", payload("u/1", 5, 1)).unwrap().wait().unwrap();
        broken(&mut oracle("try u/1 1\n"), &other, "not what was written");
    }

    #[test]
    fn half_a_commit_and_another_round_are_told() {
        broken(&mut oracle("try w0/1 0\n"), &store("w0/1", 1), "half a commit");
        let mut oracle = oracle("try u/1 0\n");
        oracle.begin();
        broken(&mut oracle, &store("u/1", 1), "is of round 1");
    }
}
