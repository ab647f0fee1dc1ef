//! Reading records back while the log goes on.
//!
//! A reader walks the blocks from its start to what was durable when it was made, as recovery does:
//! whatever does not bear its checksums, or does not continue the block before, is not taken. It
//! holds no lock, so a trim may overtake it and its blocks be written over; that shows, because the
//! log knows of a trim before it frees the ring.

use std::collections::VecDeque;
use std::iter::FusedIterator;

use bytes::Bytes;

use super::error::LogError;
use super::record;
use super::{Log, Lsn};
use crate::error::WalError;
use crate::map::Layout;
use crate::recover::{Start, Walk};
use crate::ring::Cursor;

/// The records of a log, in order, up to what was durable when it was made: see [`Log::recover`].
///
/// It reads a few megabytes ahead, and holds those and a block, whatever the size of the ring. The
/// bytes of a record share the memory of its block; copy what is to be kept for long.
///
/// After an error there is no more.
pub struct Reader<'a> {
    log: &'a Log,
    state: State<'a>,
    /// Where it ends.
    end: Cursor,
    /// The records of the last block that are to come.
    records: VecDeque<(Lsn, Bytes)>,
    /// LSN of the next record to give.
    next: Lsn,
}

enum State<'a> {
    /// The log is another process's: there is nothing to read.
    Refused,
    Fresh {
        layout: Layout,
        start: Start,
        limit: u64,
    },
    Walking(Box<Walk<'a>>),
    Ended,
}

impl State<'_> {
    fn fresh(layout: Layout, start: Cursor, end: Cursor) -> Self {
        // The end of what is durable is the end of this walk; no epoch that it meets is from the
        // future.
        let start = Start { cursor: start, acked: end.seq - 1, clean: true, epoch: u64::MAX };
        State::Fresh { layout, start, limit: end.position }
    }
}

impl<'a> Reader<'a> {
    /// A reader of the records from `next` on, which lie at `start` or behind, up to `end`.
    pub(crate) fn new(log: &'a Log, layout: Layout, (start, end): (Cursor, Cursor), next: Lsn) -> Self {
        Self { log, state: State::fresh(layout, start, end), end, records: VecDeque::new(), next }
    }

    /// A reader that gives nothing but an error.
    pub(crate) fn refusing(log: &'a Log) -> Self {
        let (state, end, next) = (State::Refused, Cursor::default(), Lsn::default());
        Self { log, state, end, records: VecDeque::new(), next }
    }

    /// Starts again nearer to the next record, if a trim that keeps it has freed the blocks before,
    /// where the walk was.
    fn start_again(&mut self) -> bool {
        let State::Walking(walk) = &self.state else { return false };
        let index = self.log.tracker.lock();
        let start = index.locate(self.next);
        let freed = walk.found.next.seq < index.trim_point().seq && start.seq < self.end.seq;
        if freed {
            self.state = State::fresh(self.log.layout(), start, self.end);
        }
        freed
    }

    /// Reads the next block.
    fn read(&mut self) -> Result<bool, LogError> {
        if let State::Fresh { layout, start, limit } = self.state {
            self.state = State::Walking(Box::new(Walk::new(self.log.volume(), layout, start, limit)?));
        }
        let State::Walking(walk) = &mut self.state else { return Ok(false) };
        let Some((block, header)) = walk.next()? else { return Ok(false) };
        record::decode(header.lsn, block.data(), &mut self.records).map_err(|(lsn, what)| {
            let Cursor { seq, position, .. } = block.cursors().0;
            WalError::Damaged { seq, position, lsn, what: what.into() }
        })?;
        Ok(true)
    }
}

impl Iterator for Reader<'_> {
    type Item = Result<(Lsn, Bytes), LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Err(error) = self.log.wal.here()
            && !matches!(self.state, State::Ended)
        {
            self.state = State::Ended;
            return Some(Err(error.into()));
        }
        loop {
            if let Some((lsn, record)) = self.records.pop_front() {
                if lsn < self.next {
                    continue;
                }
                self.next = Lsn(lsn.0 + 1);
                return Some(Ok((lsn, record)));
            }
            match self.read() {
                Ok(true) => {}
                Ok(false) => {
                    self.state = State::Ended;
                    return None;
                }
                Err(error) => {
                    self.records.clear();
                    let (lsn, first) = (self.next, self.log.first());
                    if first <= lsn && self.start_again() {
                        continue;
                    }
                    self.state = State::Ended;
                    return Some(Err(if first > lsn { LogError::Trimmed { lsn, first } } else { error }));
                }
            }
        }
    }
}

impl FusedIterator for Reader<'_> {}
