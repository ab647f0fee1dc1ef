//! The starts of a log's blocks, for trims and for readers that start in the middle.
//!
//! Invariants:
//! - Marks are in order, at most [`MARKS`] of them; the first is the trim point.
//! - All marks lie at or before `end`, the end of what is durable.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Lsn;
use crate::block_handle::Block;
use crate::ring::Cursor;
use crate::sink::{Sink, Waiters};
use crate::sync::{Mutex, MutexGuard};

/// The most blocks whose position is kept: 512 KiB of memory. In a ring with more blocks, the index
/// drops every second mark, and so on; trims then free the ring up to a block a little before the
/// requested one.
const MARKS: usize = 16_384;

#[derive(Debug)]
pub(crate) struct Index {
    marks: VecDeque<Cursor>,
    /// Distance between marks, in blocks.
    stride: u64,
    first: Lsn,
    end: Cursor,
}

impl Index {
    /// Creates the index of a log that is trimmed to `trim` and holds records from `first` on,
    /// without blocks.
    pub fn new(trim: Cursor, first: Lsn) -> Self {
        Self { marks: VecDeque::from([trim]), stride: 1, first, end: trim }
    }

    /// Returns the LSN of the first kept record.
    pub fn first(&self) -> Lsn {
        self.first
    }

    /// Returns the start of the first kept block.
    pub fn trim_point(&self) -> Cursor {
        self.marks[0]
    }

    /// Returns the end of the durable blocks.
    pub fn end(&self) -> Cursor {
        self.end
    }

    /// Adds a durable block that starts at `from` and ends at `to`.
    pub fn push(&mut self, from: Cursor, to: Cursor) {
        assert!(from.seq == self.end.seq, "blocks become durable in order");
        self.end = to;
        if !from.seq.is_multiple_of(self.stride) || self.marks.back().is_some_and(|last| last.seq == from.seq)
        {
            return;
        }
        if self.marks.len() == MARKS {
            self.stride *= 2;
            let (stride, trim) = (self.stride, self.marks[0].seq);
            self.marks.retain(|mark| mark.seq == trim || mark.seq.is_multiple_of(stride));
            if !from.seq.is_multiple_of(stride) {
                return;
            }
        }
        self.marks.push_back(from);
    }

    /// Returns the last mark at or before `lsn`: the record, and all behind it, lie there or later.
    pub fn locate(&self, lsn: Lsn) -> Cursor {
        if lsn.0 >= self.end.lsn {
            return self.end;
        }
        let behind = self.marks.partition_point(|mark| mark.lsn <= lsn.0);
        self.marks[behind.saturating_sub(1)]
    }

    /// Forgets trimmed blocks: the log now starts at `trim`, with record `first`.
    pub fn trim(&mut self, trim: Cursor, first: Lsn) {
        self.first = first;
        let gone = self.marks.partition_point(|mark| mark.seq <= trim.seq);
        self.marks.drain(..gone);
        self.marks.push_front(trim);
        if self.marks.len() < MARKS / 4 {
            self.stride = (self.stride / 2).max(1);
        }
    }
}

/// Keeps the index while the log is open: the log shows it every block that becomes durable.
#[derive(Debug)]
pub(crate) struct Tracker(Mutex<Index>);

impl Tracker {
    pub fn new(index: Index) -> Self {
        Self(Mutex::new(index))
    }

    pub fn lock(&self) -> MutexGuard<'_, Index> {
        self.0.lock().expect("the index does not panic")
    }
}

impl Sink for Tracker {
    fn durable(&self, blocks: &[Arc<Block>], _: &mut Waiters) {
        let mut index = self.lock();
        for block in blocks {
            let (from, to) = block.cursors();
            index.push(from, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(seq: u64) -> Cursor {
        Cursor { position: seq * 4096, seq, lsn: seq * 10, chain: seq }
    }

    fn filled(blocks: u64) -> Index {
        let mut index = Index::new(cursor(1), Lsn(10));
        (1..=blocks).for_each(|seq| index.push(cursor(seq), cursor(seq + 1)));
        index
    }

    #[test]
    fn the_block_that_holds_a_record_is_found() {
        let mut index = filled(100);
        for lsn in 10..1010 {
            assert_eq!(index.locate(Lsn(lsn)).seq, lsn / 10);
        }
        assert_eq!(index.locate(Lsn(1010)), cursor(101), "the end");
        index.trim(cursor(50), Lsn(505));
        assert_eq!((index.locate(Lsn(505)), index.locate(Lsn(510))), (cursor(50), cursor(51)));
        index.trim(cursor(101), Lsn(1010));
        assert_eq!(index.locate(Lsn(1010)), cursor(101));
        index.push(cursor(101), cursor(102));
        assert_eq!(index.locate(Lsn(1013)), cursor(101));
    }

    #[test]
    fn a_ring_of_many_blocks_is_marked_more_coarsely() {
        let mut index = filled(100_000);
        assert!(index.marks.len() <= MARKS && index.marks.len() > MARKS / 3);
        for seq in [1, 2, 17, 99, 12_345, 99_999, 100_000] {
            let found = index.locate(Lsn(seq * 10));
            assert!(found.seq <= seq && found.seq + 8 > seq, "{} for {seq}", found.seq);
        }
        let near = index.locate(Lsn(999_000));
        index.trim(near, Lsn(999_000));
        (100_001..200_000).for_each(|seq| index.push(cursor(seq), cursor(seq + 1)));
        assert!(index.marks.len() <= MARKS);
        assert_eq!(index.locate(Lsn(999_000)), near);
    }
}
