//! A log as it must be: the model that soak keeps of each, in few bytes, since there are many.
//!
//! An entry's payload follows from the log, the entry's number and a *stamp*. The stamp of a log
//! changes with each round and with each time that numbers are given anew (truncate, delete), so
//! that no two payloads are ever the same though their numbers are. Entries of one stamp follow one
//! another: a log is a few *stretches*.

use std::io::{self, Read, Write};

use brooklet::Bounds;

/// What is done to a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Adds an entry with this stamp.
    Append(u32),
    /// Adds an entry with this stamp and drops all before it.
    Snapshot(u32),
    Trim(u32),
    KeepLast(u32),
    Truncate(u32),
    Delete,
    ExpectNext(u32),
    ExpectAbsent,
}

/// A log's bounds, and the stamps of its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub exists: bool,
    pub first: u32,
    pub next: u32,
    /// The stamp of what was written last: its round above, how often numbers were given anew in it
    /// below.
    stamp: u32,
    stretches: Vec<Stretch>,
}

/// Entries from `from` on have this stamp, up to the next stretch. Before the first one the stamp
/// is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    from: u32,
    stamp: u32,
}

impl Log {
    /// As the store is filled: one entry, of stamp 0.
    pub fn filled() -> Self {
        Self { exists: true, first: 0, next: 1, stamp: 0, stretches: Vec::new() }
    }

    /// The stamp of what is written in a round.
    pub fn stamp_in(&self, round: u16) -> u32 {
        if self.stamp >> 16 == u32::from(round) { self.stamp } else { u32::from(round) << 16 }
    }

    /// Takes a step in a round. It must be one that the store takes, too.
    pub fn apply(&mut self, step: Step, round: u16) {
        match step {
            Step::Append(stamp) => self.append(stamp),
            Step::Snapshot(stamp) => {
                self.append(stamp);
                self.trim(self.next - 1);
            }
            Step::Trim(before) => self.trim(before),
            Step::KeepLast(n) => self.trim(self.next.saturating_sub(n)),
            Step::Truncate(from) => {
                self.next = from;
                self.stretches.retain(|stretch| stretch.from < from);
                self.give_numbers_anew(round);
            }
            Step::Delete => {
                (self.exists, self.first, self.next) = (false, 0, 0);
                self.stretches = Vec::new();
                self.give_numbers_anew(round);
            }
            Step::ExpectNext(_) | Step::ExpectAbsent => {}
        }
    }

    fn append(&mut self, stamp: u32) {
        if self.stretches.last().map_or(0, |last| last.stamp) != stamp {
            self.stretches.push(Stretch { from: self.next, stamp });
        }
        self.stamp = stamp;
        self.exists = true;
        self.next += 1;
    }

    fn trim(&mut self, before: u32) {
        self.first = self.first.max(before);
        let gone = self.stretches.iter().skip(1).take_while(|stretch| stretch.from <= self.first).count();
        self.stretches.drain(..gone);
    }

    fn give_numbers_anew(&mut self, round: u16) {
        let stamp = self.stamp_in(round);
        self.stamp = stamp & !0xffff | (stamp + 1) & 0xffff;
    }

    /// Its bounds, as the store should tell them.
    pub fn bounds(&self) -> Option<Bounds> {
        self.exists.then_some(Bounds { first: self.first.into(), next: self.next.into() })
    }

    /// The stamps of its entries, in order.
    pub fn stamps(&self) -> Vec<u32> {
        let stamp_of =
            |seq| self.stretches.iter().rfind(|stretch| stretch.from <= seq).map_or(0, |s| s.stamp);
        (self.first..self.next).map(stamp_of).collect()
    }

    /// Hands it to another process.
    pub fn put(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { exists, first, next, stamp: _, stretches } = self;
        let words = [u32::from(*exists), *first, *next, stretches.len() as u32];
        let stretches = stretches.iter().flat_map(|stretch| [stretch.from, stretch.stamp]);
        words.into_iter().chain(stretches).try_for_each(|word| out.write_all(&word.to_le_bytes()))
    }

    /// Takes it over, for another round: stamps of earlier ones play no part.
    pub fn take(from: &mut impl Read) -> io::Result<Self> {
        let mut word = || {
            let mut bytes = [0; 4];
            from.read_exact(&mut bytes).map(|()| u32::from_le_bytes(bytes))
        };
        let (exists, first, next, stretches) = (word()? != 0, word()?, word()?, word()?);
        let stretches = (0..stretches).map(|_| Ok(Stretch { from: word()?, stamp: word()? }));
        Ok(Self { exists, first, next, stamp: 0, stretches: stretches.collect::<io::Result<_>>()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_come_again_have_other_stamps() {
        let mut log = Log::filled();
        let append = |log: &mut Log, round| log.apply(Step::Append(log.stamp_in(round)), round);
        append(&mut log, 1);
        append(&mut log, 1);
        assert_eq!(log.stamps(), [0, 1 << 16, 1 << 16]);
        log.apply(Step::Truncate(2), 1);
        append(&mut log, 1);
        assert_eq!(log.stamps(), [0, 1 << 16, 1 << 16 | 1]);
        append(&mut log, 2);
        assert_eq!((log.stamps().len(), log.stamps()[3]), (4, 2 << 16));
        log.apply(Step::Delete, 2);
        assert_eq!((log.bounds(), log.stamps()), (None, vec![]));
        append(&mut log, 2);
        assert_eq!((log.bounds(), log.stamps()), (Some(Bounds { first: 0, next: 1 }), vec![2 << 16 | 1]));
    }

    #[test]
    fn what_is_trimmed_is_forgotten() {
        let mut log = Log::filled();
        for round in 1..100 {
            log.apply(Step::Append(log.stamp_in(round)), round);
        }
        log.apply(Step::KeepLast(3), 99);
        assert_eq!((log.stamps(), log.stretches.len()), (vec![97 << 16, 98 << 16, 99 << 16], 3));
        log.apply(Step::Trim(5), 99);
        assert_eq!(log.first, 97, "what is trimmed already stays so");
        log.apply(Step::Snapshot(log.stamp_in(99)), 99);
        assert_eq!((log.stamps().len(), log.stretches.len()), (1, 1));
    }

    #[test]
    fn another_process_gets_the_same() {
        let mut log = Log::filled();
        (1..5).for_each(|round| log.apply(Step::Append(log.stamp_in(round)), round));
        log.apply(Step::Trim(2), 5);
        let mut bytes = Vec::new();
        log.put(&mut bytes).unwrap();
        let other = Log::take(&mut &bytes[..]).unwrap();
        assert_eq!((other.bounds(), other.stamps()), (log.bounds(), log.stamps()));
        assert!(Log::take(&mut &bytes[..bytes.len() - 1]).is_err());
    }
}
