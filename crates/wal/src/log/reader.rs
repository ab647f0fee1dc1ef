//! Reading records while the log continues.
//!
//! A reader walks the blocks from its start to the durable end at its creation, as recovery does. A
//! block with a wrong checksum, or a block that does not continue the block before, is an error. A
//! reader holds no lock, so a trim may overtake it, and new blocks may overwrite its blocks. The
//! reader notices that, because the log records a trim before it frees the ring.

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

/// The records of a log, in order, up to the durable end at the reader's creation: see
/// [`Log::recover`].
///
/// A reader reads a few megabytes ahead, and holds these and one block, for any size of the ring.
/// The bytes of a record share the memory of its block; copy records that you keep for long.
///
/// The iteration ends after an error.
pub struct Reader<'a> {
    log: &'a Log,
    state: State<'a>,
    /// End of the records.
    end: Cursor,
    /// Remaining records of the last block.
    records: VecDeque<(Lsn, Bytes)>,
    /// LSN of the next record to return.
    next: Lsn,
}

enum State<'a> {
    /// The log belongs to another process: the reader returns an error.
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
        // The walk ends at the durable end, so it meets no block of a later epoch.
        let start = Start { cursor: start, acked: end.seq - 1, clean: true, epoch: u64::MAX };
        State::Fresh { layout, start, limit: end.position }
    }
}

impl<'a> Reader<'a> {
    /// Creates a reader of the records from `next` to `end`. Record `next` is in the block at
    /// `start` or behind that block.
    pub(crate) fn new(log: &'a Log, layout: Layout, (start, end): (Cursor, Cursor), next: Lsn) -> Self {
        Self { log, state: State::fresh(layout, start, end), end, records: VecDeque::new(), next }
    }

    /// Creates a reader that returns only an error.
    pub(crate) fn refusing(log: &'a Log) -> Self {
        let (state, end, next) = (State::Refused, Cursor::default(), Lsn::default());
        Self { log, state, end, records: VecDeque::new(), next }
    }

    /// Restarts near the next record, if the log still has that record, but has trimmed the blocks
    /// of the walk.
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
