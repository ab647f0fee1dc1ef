//! The known sizes of a log's entries, which a limit of bytes needs.
//!
//! An `EntrySizes` knows the size of each entry in memory. Of entries that only runs hold, it knows
//! the looked-up sizes: single sizes of some entries that are about to be dropped, and sums of
//! others that had to be counted together. A query names the missing sizes, and never more than
//! necessary; `size_lookup.rs` reads them without the lock. The log's terms hold the total of its
//! bytes. The reads from runs are therefore proportional to the dropped entries, and the memory
//! used here is proportional to the memory of the log itself, however many bytes the log holds.
//! Runs and memtables may change during a look-up, because the sizes of entries do not change.
//!
//! An `EntrySizes` belongs to its log in the active memtable, and moves there from the frozen
//! memtable. It is not part of any format.
//!
//! Invariants:
//! 1. Spans ascend, and do not overlap. From `memory` on, they have no gaps; all entries before
//!    `memory` are in runs.
//! 2. No span begins before `recent` and ends after it, so that sizes can be forgotten once runs
//!    hold the entries.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

use crate::memtable::size_span::Span;
use crate::model::{Bounds, Effect};

/// Maximum number of spans of entries that only runs hold. Beyond it, spans are merged.
const MOST: usize = 32;

/// A query for sizes that must be looked up in the runs.
#[derive(Clone, Debug)]
pub(crate) struct SizeQuery {
    stamp: (u64, u64),
    /// Numbers of the entries to add up; runs hold them.
    pub range: Range<u64>,
    /// Whether to add up from the newest entry on, and not from the oldest.
    pub newest: bool,
    /// The sum ends once it exceeds this number of bytes. The last entries, which make the sum
    /// exceed it, are needed as single sizes. Of the entries before them, the sum is enough.
    pub enough: u64,
}

/// The result of a look-up.
#[derive(Debug)]
pub(crate) struct SizeAnswer {
    pub missing: SizeQuery,
    /// Adjacent spans, in the order in which they were read.
    pub spans: Vec<Span>,
}

#[derive(Debug)]
pub(crate) struct EntrySizes {
    /// The id of this `EntrySizes`, and the number of truncations of entries that only runs hold.
    /// The result of a look-up with another stamp is about other entries.
    stamp: (u64, u64),
    /// The stamp when the current commit began. Queries carry this stamp, because the truncations
    /// of the commit may be undone. No query asks for entries that the commit truncated.
    begun: (u64, u64),
    spans: VecDeque<Span>,
    /// The first entry that memory may hold, and the first entry that the active memtable may hold.
    memory: u64,
    recent: u64,
}

/// The truncated part of an `EntrySizes`.
#[derive(Debug)]
pub(crate) struct Cut {
    stamp: (u64, u64),
    /// The newest first.
    spans: Vec<Span>,
    memory: u64,
    recent: u64,
}

impl EntrySizes {
    /// Creates an `EntrySizes` without any size of the entries before `next`. `id` must be unique
    /// in the store.
    pub fn new(id: u64, next: u64) -> Self {
        Self { stamp: (id, 0), begun: (id, 0), spans: VecDeque::new(), memory: next, recent: next }
    }

    /// Returns the memory of these sizes, in bytes.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.spans.iter().map(Span::memory).sum::<usize>()
    }

    /// Applies an effect. `len` is the length of an appended entry, in bytes. Returns the truncated
    /// part.
    pub fn apply(&mut self, effect: Effect, len: u32) -> Option<Cut> {
        match effect {
            Effect::Append(seq) => self.join(seq, [len]),
            Effect::Truncate(next) => return Some(self.truncate(next)),
            Effect::Delete | Effect::Begin(_) => return Some(self.truncate(0)),
            _ => {}
        }
        None
    }

    /// Appends the sizes of entries from `seq` on, after all known entries.
    pub fn join(&mut self, seq: u64, sizes: impl IntoIterator<Item = u32>) {
        for (seq, size) in (seq..).zip(sizes) {
            match self.spans.back_mut().filter(|last| last.range.start >= self.recent) {
                Some(last) => last.push(size),
                None => self.spans.push_back(Span::each(seq, [size].into())),
            }
        }
    }

    /// Removes the entries from `next` on. `next` is 0 when the log is deleted, or empty and begins
    /// at another number.
    pub fn truncate(&mut self, next: u64) -> Cut {
        let Self { stamp, memory, recent, .. } = *self;
        let mut spans = Vec::new();
        while self.spans.back().is_some_and(|last| last.range.end > next) {
            let last = self.spans.pop_back().expect("just seen");
            match if last.range.start < next { last.split_off(next) } else { Err(last) } {
                Ok((kept, gone)) => {
                    self.spans.push_back(kept);
                    spans.push(gone);
                }
                Err(whole) => spans.push(whole),
            }
        }
        self.stamp.1 += u64::from(next < memory);
        (self.memory, self.recent) = (memory.min(next), recent.min(next));
        Cut { stamp, spans, memory, recent }
    }

    /// Restores the entries of the last truncation.
    pub fn restore(&mut self, cut: Cut) {
        (self.stamp, self.memory, self.recent) = (cut.stamp, cut.memory, cut.recent);
        for span in cut.spans.into_iter().rev() {
            let joins = |last: &&mut Span| {
                last.range.end == span.range.start
                    && [self.memory, self.recent].iter().all(|edge| *edge != span.range.start)
            };
            match self.spans.back_mut().filter(joins) {
                Some(last) => {
                    if let Err(span) = last.append(span) {
                        self.spans.push_back(span);
                    }
                }
                None => self.spans.push_back(span),
            }
        }
    }

    /// Begins a commit. Earlier commits are not undone any more, and the entries before `first`
    /// were trimmed.
    pub fn begin(&mut self, first: u64) {
        self.begun = self.stamp;
        while let Some(oldest) = self.spans.front_mut().filter(|oldest| oldest.range.start < first) {
            if oldest.range.end > first && oldest.prune(first) {
                break;
            }
            self.spans.pop_front();
        }
    }

    /// Begins a new active memtable at `next`. By now, runs hold all entries from before the frozen
    /// memtable.
    pub fn freeze(&mut self, next: u64) {
        let old = self.memory..self.recent;
        for span in self.spans.iter_mut().skip(1).filter(|span| old.contains(&span.range.start)) {
            span.forget_sizes();
        }
        (self.memory, self.recent) = (self.recent, next);
        self.tidy();
    }

    /// Merges the spans of entries that only runs hold, if there are more than [`MOST`]. The first
    /// span keeps its single sizes, because the oldest entries are dropped next.
    fn tidy(&mut self) {
        let past = self.spans.partition_point(|span| span.range.end <= self.memory);
        if past <= MOST {
            return;
        }
        let mut spans: VecDeque<Span> = VecDeque::new();
        for (i, mut span) in mem::take(&mut self.spans).into_iter().enumerate() {
            if i > 0 && i < past {
                span.forget_sizes();
            }
            match spans.back_mut().filter(|last| i > 1 && i < past && last.range.end == span.range.start) {
                Some(last) if last.is_sum() && span.is_sum() => {
                    *last = Span::sum(last.range.start..span.range.end, last.bytes + span.bytes);
                }
                _ => spans.push_back(span),
            }
        }
        self.spans = spans;
    }

    /// Sets the sizes of a memtable's entries from `seq` on. They replace the sizes that older
    /// memtables have from there on.
    pub fn hold(&mut self, seq: u64, sizes: impl IntoIterator<Item = u32>) {
        self.truncate(seq);
        if self.spans.back().map_or(self.memory, |last| last.range.end) < seq {
            // The entries in between were trimmed.
            *self = Self::new(self.stamp.0, seq);
        }
        self.join(seq, sizes);
    }

    /// Adds up the sizes of entries of `range`, from the newest or from the oldest on, until the
    /// sum exceeds `enough` bytes. Returns the place where the sum ended, and the sum in bytes.
    /// `Err` names the missing sizes.
    pub fn walk(&self, range: Range<u64>, newest: bool, enough: u64) -> Result<(u64, u64), SizeQuery> {
        let (mut rest, mut sum) = (range, 0);
        while rest.start < rest.end && sum <= enough {
            let at = if newest { rest.end - 1 } else { rest.start };
            let place = self.place(at);
            let span = self.spans.get(place).filter(|span| span.range.contains(&at));
            let whole = span.filter(|span| within(&span.range, &rest) && span.bytes <= enough - sum);
            let (counted, bytes) = match (whole, span.and_then(|span| span.size(at))) {
                (Some(span), _) => (span.len(), span.bytes),
                (None, Some(size)) => (1, size),
                (None, None) => {
                    let part = span.map_or_else(|| self.gap(place), |span| span.range.clone());
                    let range = part.start.max(rest.start)..part.end.min(rest.end);
                    return Err(SizeQuery { stamp: self.begun, range, newest, enough: enough - sum });
                }
            };
            sum += bytes;
            if newest {
                rest.end -= counted;
            } else {
                rest.start += counted;
            }
        }
        Ok((if newest { rest.end } else { rest.start }, sum))
    }

    /// Returns the index of the first span that ends after an entry.
    fn place(&self, seq: u64) -> usize {
        self.spans.partition_point(|span| span.range.end <= seq)
    }

    /// Returns the unknown entries directly before the span at index `place`.
    fn gap(&self, place: usize) -> Range<u64> {
        let before = place.checked_sub(1).map_or(0, |before| self.spans[before].range.end);
        before..self.spans.get(place).map_or(u64::MAX, |span| span.range.start)
    }

    /// Returns the bytes that a log keeps after a trim to `first`, or after a truncation to `next`.
    /// Before that, the log has the entries `bounds` and `held` bytes.
    pub fn left(&self, bounds: Bounds, held: u64, first: u64, next: u64) -> Result<u64, SizeQuery> {
        if (first, next) == (bounds.first, bounds.next) {
            return Ok(held);
        }
        let cuts = next < bounds.next;
        let kept = first..next;
        let gone = if cuts { next..bounds.next } else { bounds.first..first };
        let cost = |range: &Range<u64>| (self.unknown(range), range.end - range.start);
        // The kept entries and the dropped entries are at opposite ends of the log.
        if cost(&kept) <= cost(&gone) {
            self.walk(kept, !cuts, u64::MAX).map(|(_, kept)| kept)
        } else {
            self.walk(gone, cuts, u64::MAX).map(|(_, gone)| held.saturating_sub(gone))
        }
    }

    /// Returns the number of entries of `range` whose sizes must be looked up for their sum.
    fn unknown(&self, range: &Range<u64>) -> u64 {
        let known = |span: &Span| {
            let part = span.range.start.max(range.start)..span.range.end.min(range.end);
            let counts = !span.is_sum() || part == span.range;
            if counts { part.end.saturating_sub(part.start) } else { 0 }
        };
        range.end - range.start - self.spans.iter().map(known).sum::<u64>()
    }

    /// Stores looked-up sizes. The log has the entries `bounds` now, and `held` bytes, if those are
    /// counted.
    pub fn learn(&mut self, found: SizeAnswer, bounds: Bounds, held: Option<u64>) {
        if found.missing.stamp != self.stamp {
            return;
        }
        self.begin(bounds.first);
        self.tidy();
        let mut last: Option<Span> = None;
        for span in found.spans {
            // Other threads may have stored sizes and trimmed in the meantime.
            if span.range.start < bounds.first || !self.takes(&span.range) {
                continue;
            }
            last = match last {
                Some(last) if last.is_sum() && span.is_sum() && are_neighbours(&last.range, &span.range) => {
                    let range = last.range.start.min(span.range.start)..last.range.end.max(span.range.end);
                    Some(Span::sum(range, last.bytes + span.bytes))
                }
                last => {
                    last.into_iter().for_each(|last| self.insert(last, bounds, held));
                    Some(span)
                }
            };
        }
        last.into_iter().for_each(|last| self.insert(last, bounds, held));
    }

    /// Returns whether sizes of `range` are new: no size of these entries is known, or only the sum
    /// of a span that contains them.
    fn takes(&self, range: &Range<u64>) -> bool {
        let place = self.place(range.start);
        within(range, &self.gap(place)) && range.end <= self.memory
            || self.spans.get(place).is_some_and(|span| span.is_sum() && within(range, &span.range))
    }

    fn insert(&mut self, mut span: Span, bounds: Bounds, held: Option<u64>) {
        let place = self.place(span.range.start);
        let known = self.spans.get(place).filter(|known| known.range.start < span.range.end);
        let Some(known) = known.map(|known| (known.range.clone(), known.bytes)) else {
            if span.is_damaged() {
                let of = |what: fn(&Span) -> u64| self.spans.iter().map(what).sum::<u64>();
                let (bytes, entries) = (of(|span| span.bytes), of(Span::len));
                let bytes = held.unwrap_or_default().saturating_sub(bytes);
                span.take_share(bytes, bounds.len() - entries);
            }
            return self.spans.insert(place, span);
        };
        let (range, bytes) = known;
        if !within(&span.range, &range) {
            return;
        }
        if span.is_damaged() {
            span.take_share(bytes, range.end - range.start);
        }
        // The sum of the rest of the known span is known, if that rest is on one side.
        let bytes = bytes.saturating_sub(span.bytes);
        let (before, after) = (range.start..span.range.start, span.range.end..range.end);
        let one = before.is_empty() || after.is_empty();
        self.spans.remove(place);
        let rest = |range: Range<u64>| (one && !range.is_empty()).then(|| Span::sum(range, bytes));
        for part in [rest(after), Some(span), rest(before)].into_iter().flatten() {
            self.spans.insert(place, part);
        }
    }
}

fn within(inner: &Range<u64>, outer: &Range<u64>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

fn are_neighbours(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.end == b.start || b.end == a.start
}

#[cfg(test)]
mod tests;
