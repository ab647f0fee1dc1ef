//! A log as the server sees it: the durable entries of the store, and the committed entries that
//! are not durable yet.
//!
//! The store shows durable entries only. A command must see newer entries at once. So each log with
//! recent writes keeps its newest entries here until they are durable: the entries from `solid` on.
//! Entries below `solid` are read from the store, in spite of pending commits: trims remove only
//! entries that `first` hides, and a truncation or a deletion lowers `solid` to its cut.

use std::collections::VecDeque;
use std::ops::Range;

use brooklet::{Bounds, Error, Store};
use bytes::Bytes;

use super::batch::{Batch, Op};
use super::draft::UNCOMMITTED;
use super::names::LogKey;

/// A log of a key.
#[derive(Clone, Debug, Default)]
pub struct Body {
    is_there: bool,
    first: u64,
    next: u64,
    solid: u64,
    /// Entries from `solid` on, each with the epoch of its commit.
    tail: VecDeque<(u64, Bytes)>,
}

impl Body {
    /// A missing log.
    pub const NONE: Self = Self { is_there: false, first: 0, next: 0, solid: 0, tail: VecDeque::new() };

    /// Creates a log from the store's bounds.
    pub fn of(bounds: Option<Bounds>) -> Self {
        let Bounds { first, next } = bounds.unwrap_or_default();
        Self { is_there: bounds.is_some(), first, next, solid: next, tail: VecDeque::new() }
    }

    /// Returns the same log without its entries.
    pub fn emptied(&self) -> Self {
        Self { is_there: self.is_there, ..Self::NONE }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> u64 {
        self.next - self.first
    }

    /// Returns whether the log has no entries.
    pub fn is_empty(&self) -> bool {
        self.first == self.next
    }

    /// Returns whether the log exists, possibly without entries.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// Returns the number of the first entry.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number of the next entry.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the allocated memory, in bytes.
    pub fn memory(&self) -> usize {
        self.tail.capacity() * size_of::<(u64, Bytes)>()
    }

    /// Drops the entries that the store shows now: those of commits up to `durable`.
    pub fn settle(&mut self, durable: u64) {
        while self.tail.front().is_some_and(|(epoch, _)| *epoch <= durable) {
            self.tail.pop_front();
            self.solid += 1;
        }
        if self.tail.is_empty() {
            self.tail = VecDeque::new();
        }
    }

    /// Sets the epoch of the entries that were not committed.
    pub fn date(&mut self, epoch: u64) {
        let new = self.tail.iter_mut().rev().take_while(|(at, _)| *at == UNCOMMITTED);
        new.for_each(|(at, _)| *at = epoch);
    }

    /// Returns an entry.
    pub fn get(&self, store: &Store, key: &[u8], seq: u64) -> Result<Bytes, Error> {
        if seq >= self.solid {
            return Ok(self.tail[(seq - self.solid) as usize].1.clone());
        }
        let mut entries = store.read(key, seq..=seq)?;
        Ok(entries.next().expect("a range of one")?.payload)
    }

    /// Returns the entries of a range within the log, in order.
    pub fn iter(
        &self,
        store: &Store,
        key: &[u8],
        range: Range<u64>,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Bytes, Error>> + use<'_>, Error> {
        let below = range.start..range.end.min(self.solid);
        let stored = if below.is_empty() { None } else { Some(store.read(key, below)?) };
        let stored = stored.into_iter().flatten().map(|entry| entry.map(|entry| entry.payload));
        let pending = range.start.max(self.solid)..range.end;
        Ok(stored.chain(pending.map(|seq| Ok(self.pending(seq).clone()))))
    }

    fn pending(&self, seq: u64) -> &Bytes {
        &self.tail[(seq - self.solid) as usize].1
    }

    /// Appends entries.
    pub fn push(&mut self, batch: &mut Batch, key: LogKey, payloads: impl IntoIterator<Item = Bytes>) {
        let (epoch, before, tail) = (batch.epoch, self.tail.len(), &mut self.tail);
        batch.append(key, payloads.into_iter().inspect(|payload| tail.push_back((epoch, payload.clone()))));
        let added = self.tail.len() - before;
        self.next += added as u64;
        self.is_there |= added > 0;
    }

    /// Replaces an entry, if this takes no other entry to be written; returns whether it did.
    pub fn replace(&mut self, batch: &mut Batch, key: &LogKey, seq: u64, payload: &Bytes) -> bool {
        let is_replaced = batch.replace(key, self.next - seq, payload);
        if is_replaced {
            self.tail[(seq - self.solid) as usize].1 = payload.clone();
        }
        is_replaced
    }

    /// Drops the entries before `before`.
    pub fn trim(&mut self, batch: &mut Batch, key: LogKey, before: u64) {
        if before > self.first {
            assert!(before <= self.next, "a trim to {before} of a log that ends at {}", self.next);
            self.first = before;
            batch.push(key, Op::Trim(before));
        }
    }

    /// Drops the entries from `from` on.
    pub fn truncate(&mut self, batch: &mut Batch, key: LogKey, from: u64) {
        if from < self.next {
            assert!(from >= self.first, "a truncation to {from} of a log that begins at {}", self.first);
            let left = self.next - batch.take_back(&key, self.next - from);
            self.next = from;
            self.tail.truncate(from.saturating_sub(self.solid) as usize);
            self.solid = self.solid.min(from);
            if from < left {
                batch.push(key, Op::Truncate(from));
            }
        }
    }

    /// Deletes the log.
    pub fn delete(&mut self, batch: &mut Batch, key: LogKey) {
        if self.is_there {
            *self = Self::default();
            batch.push(key, Op::Delete);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Any operations, with what was committed becoming durable at any time after: what is read is
    /// what a plain list has.
    #[test]
    fn what_is_on_its_way_is_read_like_what_is_there() {
        let mut seed = 7_u64;
        let mut draw = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % n
        };
        for round in 0..30 {
            let store = Store::in_memory(round).unwrap();
            let key = LogKey::from_slice(b"log");
            let (mut body, mut plain) = (Body::of(None), Vec::<Bytes>::new());
            let (mut epoch, mut durable, mut waiting) = (0_u64, 0, Vec::new());
            for step in 0..200_u64 {
                epoch += 1;
                let mut batch = Batch::of(epoch);
                let len = plain.len() as u64;
                match draw(8) {
                    0 => {
                        let n = draw(len + 1);
                        body.trim(&mut batch, key.clone(), body.first() + n);
                        plain.drain(..n as usize);
                    }
                    1 => {
                        let n = draw(len + 1);
                        body.truncate(&mut batch, key.clone(), body.next() - n);
                        plain.truncate((len - n) as usize);
                    }
                    2 if draw(4) == 0 => {
                        body.delete(&mut batch, key.clone());
                        plain.clear();
                    }
                    _ => {
                        let payload = Bytes::from(step.to_string());
                        body.push(&mut batch, key.clone(), [payload.clone()]);
                        plain.push(payload);
                    }
                }
                if !batch.is_empty() {
                    waiting.push((epoch, batch.commit(&store).unwrap()));
                }
                if draw(5) == 0 {
                    for (epoch, ticket) in waiting.drain(..) {
                        ticket.wait().unwrap();
                        durable = epoch;
                    }
                }
                if draw(3) == 0 {
                    body.settle(durable);
                }
                let (first, next) = (body.first(), body.next());
                assert_eq!(
                    body.iter(&store, &key, first..next).unwrap().collect::<Result<Vec<_>, _>>().unwrap(),
                    plain,
                    "round {round} step {step}"
                );
                if !plain.is_empty() {
                    let i = draw(plain.len() as u64);
                    assert_eq!(body.get(&store, &key, first + i).unwrap(), plain[i as usize]);
                }
            }
        }
    }
}
