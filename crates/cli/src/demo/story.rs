//! The entries of the victim, and the entries that must exist afterwards. Both processes derive all
//! of them from a log's number, an entry's number and the round. So the victim reports nothing but
//! acknowledgements.
//!
//! - Step `seq` of a log adds entry `seq`; whether it is an append, a snapshot or an append with a
//!   trim depends on the log and `seq` alone. So a log's first entry follows from its next number.
//! - A commit is a step of one log, or of two logs at once; then each entry names the other.

use brooklet::io::Rng;
use brooklet::{Bounds, Commit};

/// Logs that are written.
pub const LOGS: u32 = 10_000;
/// Entries that a trimming step keeps before its own.
const KEPT: u64 = 3;
/// Bytes of an entry before its filling.
const HEADER: usize = 28;
/// Where an entry that was committed alone has its partner.
const ALONE: u32 = u32::MAX;

/// The key of a log.
pub fn key(log: u32) -> String {
    format!("note/{log:05}")
}

/// An entry of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The log.
    pub log: u32,
    /// The entry's number.
    pub seq: u64,
}

enum Kind {
    Append,
    Snapshot,
    AppendAndTrim,
}

impl Step {
    fn rng(self, round: u32) -> Rng {
        Rng::new(u64::from(self.log) << 40 ^ self.seq << 8 ^ u64::from(round))
    }

    fn kind(self) -> Kind {
        match self.rng(u32::MAX).below(20) {
            0 => Kind::Snapshot,
            1..4 if self.seq >= KEPT => Kind::AppendAndTrim,
            _ => Kind::Append,
        }
    }

    /// Adds the step to a commit; `payload` is what [`payload`](Self::payload) gave.
    pub fn put<'a>(self, key: &'a str, payload: &'a [u8], commit: &mut Commit) {
        match self.kind() {
            Kind::Append => commit.append(key, payload),
            Kind::Snapshot => commit.snapshot(key, payload),
            Kind::AppendAndTrim => commit.append(key, payload).trim(key, self.seq - KEPT),
        };
    }

    /// The entry: who it is, the other half of its commit, and some filling.
    pub fn payload(self, round: u32, partner: Option<Step>) -> Vec<u8> {
        let mut rng = self.rng(round);
        let len = if rng.percent(2) { rng.below(20_000) } else { 20 + rng.below(300) } as usize;
        let other = partner.unwrap_or(Step { log: ALONE, seq: 0 });
        let mut payload = Vec::with_capacity(HEADER + len);
        payload.extend(self.log.to_le_bytes());
        payload.extend(self.seq.to_le_bytes());
        payload.extend(round.to_le_bytes());
        payload.extend(other.log.to_le_bytes());
        payload.extend(other.seq.to_le_bytes());
        payload.extend((0..len).map(|_| b"etaoin shrdlu,.\n"[rng.below(16) as usize]));
        payload
    }
}

/// A log as it must be once it has `next` entries behind it.
pub fn bounds_at(log: u32, next: u64) -> Bounds {
    let mut first = 0;
    for seq in 0..next {
        match (Step { log, seq }).kind() {
            Kind::Append => {}
            Kind::Snapshot => first = seq,
            Kind::AppendAndTrim => first = first.max(seq - KEPT),
        }
    }
    Bounds { first, next }
}

/// Checks an entry byte by byte; returns its round and the other half of its commit.
pub fn check(step: Step, payload: &[u8]) -> Option<(u32, Option<Step>)> {
    let u32_at = |at: usize| Some(u32::from_le_bytes(payload.get(at..at + 4)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
    let (round, other) = (u32_at(12)?, Step { log: u32_at(16)?, seq: u64_at(20)? });
    let partner = (other.log != ALONE).then_some(other);
    (step.payload(round, partner) == payload).then_some((round, partner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use brooklet::Store;

    #[test]
    fn a_log_is_what_its_next_number_says() {
        let store = Store::in_memory(1).unwrap();
        for seq in 0..200 {
            let (step, key) = (Step { log: 7, seq }, key(7));
            let payload = step.payload(2, None);
            let mut commit = Commit::new();
            step.put(&key, &payload, &mut commit);
            store.commit(&commit).unwrap().wait().unwrap();
            assert_eq!(store.bounds(&key).unwrap(), bounds_at(7, seq + 1));
        }
    }

    #[test]
    fn a_changed_entry_is_noticed() {
        let (step, partner) = (Step { log: 7, seq: 5 }, Step { log: 9, seq: 1 });
        let mut payload = step.payload(1, Some(partner));
        assert_eq!(check(step, &payload), Some((1, Some(partner))));
        assert_eq!(check(partner, &payload), None);
        *payload.last_mut().unwrap() ^= 1;
        assert_eq!(check(step, &payload), None);
        assert_eq!(check(step, &payload[..20]), None);
    }
}
