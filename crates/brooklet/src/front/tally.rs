//! The sizes of a log's entries, as far as they are known: what a limit of bytes takes to be applied.
//!
//! A tally knows the oldest entries that are kept (the *head*, read from the runs as they are about to go, each time as many
//! as are known, a chunk at least) and the newest (the *tail*: all that memory holds, and what is added). Between the two there may be a gap, of which
//! only runs know; what it holds together follows from the sum that the log's terms keep. So what is read of the runs is
//! in proportion to what goes, whatever the log holds. A tally is kept for one tier, and is no part of any format.

use std::collections::VecDeque;
use std::ops::Range;

use crate::error::{Error, KeyText};
use crate::model::{Bounds, Piece, resolve};
use crate::runs::RunSet;

/// Chunks that are read at once, at least, where all that the log keeps is to be counted.
const AT_ONCE: usize = 64;

/// Sizes that are to be looked up in the runs.
#[derive(Clone, Debug)]
pub(crate) struct Missing {
    /// Entries of which none is known; the runs hold them all.
    gap: Range<u64>,
    /// Whether the newest of them are wanted, or the oldest.
    newest: bool,
    /// At least so many of them: as many as are known on that side, so that however many it takes, there are few look-ups.
    least: usize,
}

/// Sizes that were looked up: of the entries from this number on.
pub(crate) type Sizes = (u64, Vec<u32>);

#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    head_from: u64,
    head: VecDeque<u32>,
    tail_from: u64,
    tail: VecDeque<u32>,
    /// The sum of the tail.
    tail_bytes: u64,
}

impl Tally {
    /// Knows nothing of the entries before `next`.
    pub fn new(next: u64) -> Self {
        Self { tail_from: next, ..Self::default() }
    }

    fn head_end(&self) -> u64 {
        self.head_from + self.head.len() as u64
    }

    fn tail_end(&self) -> u64 {
        self.tail_from + self.tail.len() as u64
    }

    fn gap(&self) -> Range<u64> {
        self.head_end()..self.tail_from
    }

    /// Entries join from `seq` on, in the place of any that are there.
    pub fn join(&mut self, seq: u64, sizes: impl IntoIterator<Item = u32>) {
        if seq > self.tail_end() {
            *self = Self::new(seq);
        }
        self.truncate(seq);
        for size in sizes {
            self.tail.push_back(size);
            self.tail_bytes += u64::from(size);
        }
    }

    /// Entries from `next` on go.
    pub fn truncate(&mut self, next: u64) {
        if next < self.tail_from {
            (self.tail_from, self.tail_bytes) = (next, 0);
            self.tail.clear();
            self.head.truncate(next.saturating_sub(self.head_from) as usize);
        }
        while self.tail_end() > next {
            let size = self.tail.pop_back().expect("it is longer than that");
            self.tail_bytes -= u64::from(size);
        }
    }

    /// Entries before `first` have gone for good.
    pub fn pruned(mut self, first: u64) -> Self {
        while self.head_from < first && self.head.pop_front().is_some() {
            self.head_from += 1;
        }
        if self.head.is_empty() {
            self.head_from = first;
        }
        while self.tail_from < first {
            let Some(size) = self.tail.pop_front() else { break };
            self.tail_from += 1;
            self.tail_bytes -= u64::from(size);
        }
        self.tail_from = if self.tail.is_empty() { self.tail_from.max(first) } else { self.tail_from };
        self
    }

    /// Takes down what was looked up.
    pub fn learn(&mut self, (from, sizes): &Sizes) {
        let gap = self.gap();
        let known = |seq: u64| sizes[(seq - from) as usize];
        let end = gap.end.min(from + sizes.len() as u64);
        if *from <= gap.start && gap.start < end {
            self.head.extend((gap.start..end).map(known));
        } else if *from < gap.end && end == gap.end {
            for size in (*from.max(&gap.start)..end).rev().map(known) {
                self.tail.push_front(size);
                self.tail_from -= 1;
                self.tail_bytes += u64::from(size);
            }
        }
    }

    /// The size of an entry.
    pub fn size(&self, seq: u64) -> Result<u64, Missing> {
        let place = |from: u64| seq.checked_sub(from).and_then(|at| usize::try_from(at).ok());
        let in_head = || self.head.get(place(self.head_from)?);
        let known = place(self.tail_from).map_or_else(in_head, |at| self.tail.get(at));
        known.map(|&size| size.into()).ok_or_else(|| self.missing(false))
    }

    fn missing(&self, newest: bool) -> Missing {
        let least = if newest { self.tail.len() } else { self.head.len() };
        Missing { gap: self.gap(), newest, least }
    }

    fn sum(&self, range: Range<u64>) -> Result<u64, Missing> {
        range.map(|seq| self.size(seq)).sum()
    }

    /// The bytes of a log that has the entries `bounds` and holds `held`, once it begins at `first`, or, for a truncation,
    /// ends at `next`.
    pub fn left(&self, bounds: Bounds, held: u64, first: u64, next: u64) -> Result<u64, Missing> {
        let (kept, gap) = (first..next, self.gap());
        let unknown = |range: &Range<u64>| {
            let (from, to) = (range.start.max(gap.start), range.end.min(gap.end));
            to.saturating_sub(from)
        };
        let gone = if next < bounds.next { next..bounds.next } else { bounds.first..first };
        let len = |range: &Range<u64>| range.end - range.start;
        let cost = |range: &Range<u64>| (unknown(range), len(range));
        if cost(&kept) <= cost(&gone) {
            // What is kept is at the other end of the log than what goes.
            let newest = next == bounds.next;
            self.sum(kept).map_err(|_| self.missing(newest))
        } else {
            let newest = next < bounds.next;
            let gone = self.sum(gone).map_err(|_| self.missing(newest))?;
            Ok(held.saturating_sub(gone))
        }
    }

    /// The bytes of the entries `bounds`, or of the newest of them that are more than `enough`; and the first of those.
    pub fn newest(&self, bounds: Bounds, enough: u64) -> Result<(u64, u64), Missing> {
        if self.tail_bytes <= enough && self.tail_from > bounds.first && !self.gap().is_empty() {
            return Err(self.missing(true));
        }
        let (mut sum, mut first) = (0, bounds.next);
        while first > bounds.first && sum <= enough {
            first -= 1;
            sum += self.size(first).map_err(|_| self.missing(true))?;
        }
        Ok((sum, first))
    }
}

impl Missing {
    /// Looks the sizes up, a chunk or some at a time.
    pub fn look(&self, runs: &RunSet, key: &[u8]) -> Result<Sizes, Error> {
        let Range { start, end } = self.gap;
        let heads = runs.heads(key, Some(start), end)?;
        let newer = Piece { bounds: Some(Bounds { first: start, next: end }), base: end };
        let parts = resolve(std::iter::once(newer).chain(heads.iter().map(|(_, head)| head.piece))).parts;
        // The entries of the chunk that holds `seq`, as far as they count.
        let chunk = |seq: u64| -> Result<Sizes, Error> {
            let lost =
                || Error::damaged(format!("log {}", KeyText::of(key)), format!("entry {seq} is in no run"));
            let (i, part) = parts.iter().find(|(_, part)| part.contains(&seq)).ok_or_else(lost)?;
            let (run, head) = &heads[i.checked_sub(1).ok_or_else(lost)?];
            let chunk =
                if head.chunk.range().contains(&seq) { head.chunk.clone() } else { run.chunk(key, seq)? };
            let range = chunk.range().start.max(part.start)..chunk.range().end.min(part.end);
            Ok((range.start, range.map(|seq| chunk.payload_bytes(seq).len() as u32).collect()))
        };
        if !self.newest {
            let (from, mut found) = chunk(start)?;
            while found.len() < self.least && from + (found.len() as u64) < end {
                found.extend(chunk(from + found.len() as u64)?.1);
            }
            return Ok((from, found));
        }
        let (mut from, sizes) = chunk(end - 1)?;
        let mut found = VecDeque::from(sizes);
        let mut chunks = 1;
        while from > start && (chunks < AT_ONCE || found.len() < self.least) {
            let (before, sizes) = chunk(from - 1)?;
            sizes.into_iter().rev().for_each(|size| found.push_front(size));
            (from, chunks) = (before, chunks + 1);
        }
        Ok((from, found.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever is truncated, appended, trimmed and learned: what is known is right, and sums come out.
    #[test]
    fn a_tally_knows_what_the_log_holds() {
        for seed in 0..300 {
            let mut rng = brooklet_io::Rng::new(seed);
            let mut log: Vec<u32> = (0..rng.below(60)).map(|_| rng.below(50) as u32).collect();
            let (mut first, mut stored) = (0, log.len() as u64);
            let mut tally = Tally::new(stored);
            for _ in 0..60 {
                let next = log.len() as u64;
                let bounds = Bounds { first, next };
                let held: u64 = log[first as usize..].iter().map(|&size| u64::from(size)).sum();
                let asked = first + rng.below(next - first + 1);
                let answer = |ask: &dyn Fn(&Tally) -> Result<u64, Missing>, tally: &mut Tally| loop {
                    match ask(tally) {
                        Ok(answer) => return answer,
                        Err(Missing { gap, newest, .. }) => {
                            assert!(!gap.is_empty() && gap.end <= stored, "seed {seed}: {gap:?}");
                            let some = |n: u64| n.min(gap.end - gap.start);
                            let facts = if newest {
                                gap.end - some(3)..gap.end
                            } else {
                                gap.start..gap.start + some(3)
                            };
                            tally.learn(&(
                                facts.start,
                                log[facts.start as usize..facts.end as usize].to_vec(),
                            ));
                        }
                    }
                };
                let sum = |from: u64, to: u64| {
                    log[from as usize..to as usize].iter().map(|&s| u64::from(s)).sum::<u64>()
                };
                match rng.below(6) {
                    0 => {
                        let size = rng.below(50) as u32;
                        tally.join(next, [size]);
                        log.push(size);
                    }
                    1 => {
                        let left = answer(&|t| t.left(bounds, held, first, asked), &mut tally);
                        assert_eq!(left, sum(first, asked), "seed {seed}");
                        tally.truncate(asked);
                        log.truncate(asked as usize);
                        stored = stored.min(asked);
                    }
                    2 => {
                        let left = answer(&|t| t.left(bounds, held, asked, next), &mut tally);
                        assert_eq!(left, sum(asked, next), "seed {seed}");
                        first = asked;
                        tally = tally.pruned(first);
                    }
                    3 => {
                        let enough = rng.below(300);
                        let at = answer(&|t| t.newest(bounds, enough).map(|(_, at)| at), &mut tally);
                        let newest = sum(at, next);
                        assert!(at == first || newest > enough && sum(at + 1, next) <= enough, "seed {seed}");
                    }
                    4 if asked < next => {
                        let size = answer(&|t| t.size(asked), &mut tally);
                        assert_eq!(size, u64::from(log[asked as usize]), "seed {seed}");
                    }
                    _ => tally = tally.pruned(first),
                }
            }
        }
    }
}
