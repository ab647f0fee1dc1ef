//! What a writer does: operations that follow from the seed, the round and the writer's logs alone.
//! The process that is killed and the one that checks it both derive them, so that nothing but the
//! number of acknowledged operations passes between them.

use brooklet::ErrorKind;
use brooklet::io::Rng;

use super::log::{Log, Step};

/// The stamp of entries that must never be seen.
const NEVER: u32 = u32::MAX;
/// A log of more entries than this is cut.
const LONG: u32 = 48;

/// The key of a log. Logs that follow one another lie apart, and keys are of several lengths.
pub fn key(log: u32) -> String {
    format!("soak/{:08x}{}", log.wrapping_mul(0x9e37_79b1), &"-------"[..log as usize % 8])
}

/// A writer's own logs, and what it does to them.
pub struct Story {
    writer: u32,
    writers: u32,
    round: u16,
    rng: Rng,
    /// Log `i` of these is number `i * writers + writer` of all.
    pub logs: Vec<Log>,
}

/// A step of one of the writer's logs.
pub type Op = (u32, Step);

/// What a writer does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// All of it or nothing, safe at once or a little later.
    Commit { ops: Vec<Op>, deferred: bool },
    /// What the store must refuse so, without any effect.
    Refused { ops: Vec<Op>, with: ErrorKind },
    /// Reads a log and compares it.
    Look(u32),
    /// Makes everything durable.
    Flush,
}

impl Story {
    /// The story of one of several writers, over some logs, before its first round.
    pub fn new(writer: u32, writers: u32, logs: Vec<Log>) -> Self {
        Self { writer, writers, round: 0, rng: Rng::new(0), logs }
    }

    /// Begins a round.
    pub fn begin(&mut self, seed: u64, round: u16) {
        self.round = round;
        self.rng = Rng::new(seed ^ u64::from(round) << 40 ^ u64::from(self.writer) << 20);
        self.rng = Rng::new(self.rng.next());
    }

    /// The number among all logs.
    pub fn number(&self, own: u32) -> u32 {
        own * self.writers + self.writer
    }

    /// What comes next. It is still to be [applied](Self::apply).
    pub fn next(&mut self) -> Operation {
        let log = self.pick();
        let exists = self.logs[log as usize].exists;
        match self.rng.below(200) {
            0..6 => Operation::Look(log),
            6 => Operation::Flush,
            7..14 => self.refused(log),
            14..34 => {
                let mut logs: Vec<u32> = (0..1 + self.rng.below(6)).map(|_| self.pick()).collect();
                logs.push(log);
                logs.sort_unstable();
                logs.dedup();
                self.commit(|story| logs.into_iter().map(|log| (log, story.step(log))).collect())
            }
            34..46 => self.commit(|story| {
                let stamp = story.stamp(log);
                vec![(log, Step::Append(stamp)); 2 + story.rng.below(4) as usize]
            }),
            46..52 => self.commit(|story| {
                let (stamp, next) = (story.stamp(log), story.logs[log as usize].next);
                vec![(log, Step::Append(stamp)), (log, Step::Trim(next.saturating_sub(3)))]
            }),
            52..60 => self.commit(|story| {
                let expected =
                    if exists { Step::ExpectNext(story.logs[log as usize].next) } else { Step::ExpectAbsent };
                vec![(log, expected), (log, Step::Append(story.stamp(log)))]
            }),
            _ => self.commit(|story| vec![(log, story.step(log))]),
        }
    }

    /// Counts it as done.
    pub fn apply(&mut self, operation: &Operation) {
        let round = self.round;
        operation.done().iter().for_each(|&(log, step)| self.logs[log as usize].apply(step, round));
    }

    /// Takes a step of this round on another copy of a log.
    pub fn redo(&self, log: &mut Log, step: Step) {
        log.apply(step, self.round);
    }

    /// A few logs are busy, most are not.
    fn pick(&mut self) -> u32 {
        let all = self.logs.len() as u64;
        let among = if self.rng.percent(40) { all.div_ceil(1000) } else { all };
        self.rng.below(among) as u32
    }

    fn stamp(&self, log: u32) -> u32 {
        self.logs[log as usize].stamp_in(self.round)
    }

    fn commit(&mut self, ops: impl FnOnce(&mut Self) -> Vec<Op>) -> Operation {
        let ops = ops(self);
        Operation::Commit { ops, deferred: self.rng.percent(15) }
    }

    /// A step that the log can take.
    fn step(&mut self, log: u32) -> Step {
        let (stamp, &Log { exists, first, next, .. }) = (self.stamp(log), &self.logs[log as usize]);
        if !exists {
            return if self.rng.percent(20) { Step::Snapshot(stamp) } else { Step::Append(stamp) };
        }
        let rng = &mut self.rng;
        let mut within = |from: u32, to: u32| from + rng.below(u64::from(to - from) + 1) as u32;
        let what = if next - first > LONG { within(56, 92) } else { within(0, 99) };
        match what {
            0..65 => Step::Append(stamp),
            65..75 => Step::Snapshot(stamp),
            // Below its first, too: what is trimmed already stays so.
            75..83 => Step::Trim(within(first.saturating_sub(2), next)),
            83..90 => Step::KeepLast(within(0, 12)),
            90..96 => Step::Truncate(within(first.max(next.saturating_sub(4)), next)),
            _ => Step::Delete,
        }
    }

    fn refused(&mut self, log: u32) -> Operation {
        let &Log { exists, next, .. } = &self.logs[log as usize];
        let (other, never) = (self.pick(), Step::Append(NEVER));
        let (ops, with) = match self.rng.below(5) {
            0 => (vec![(log, Step::ExpectNext(next + 1)), (log, never), (other, never)], ErrorKind::Conflict),
            1 if exists => (vec![(log, Step::ExpectAbsent), (other, never)], ErrorKind::Conflict),
            1 => (vec![(log, Step::Delete)], ErrorKind::NotFound),
            2 => (vec![(log, Step::Trim(next + 1))], ErrorKind::NotFound),
            3 => (vec![(log, never), (log, Step::Truncate(next + 2))], ErrorKind::NotFound),
            _ => (vec![(log, Step::Truncate(next + 1))], ErrorKind::NotFound),
        };
        Operation::Refused { ops, with }
    }
}

impl Operation {
    /// The steps that take effect.
    pub fn done(&self) -> &[Op] {
        if let Operation::Commit { ops, .. } = self { ops } else { &[] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_tell_the_same_story() {
        let tell = |seed| {
            let mut story = Story::new(1, 2, vec![Log::filled(); 50]);
            let mut operations = Vec::new();
            for round in 1..4 {
                story.begin(seed, round);
                for _ in 0..2000 {
                    let operation = story.next();
                    story.apply(&operation);
                    operations.push(operation);
                }
            }
            operations
        };
        let operations = tell(3);
        assert!(operations == tell(3) && operations != tell(4));
        for what in [
            "Append",
            "Snapshot",
            "Trim",
            "KeepLast",
            "Truncate",
            "Delete",
            "ExpectNext",
            "ExpectAbsent",
            "deferred: true",
            "Conflict",
            "NotFound",
            "Look",
            "Flush",
        ] {
            assert!(
                operations.iter().any(|operation| format!("{operation:?}").contains(what)),
                "{what} never comes"
            );
        }
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::BTreeSet<String> = (0..100_000).map(key).collect();
        assert_eq!(keys.len(), 100_000);
    }
}
