//! Looks for entries of a stream by their ids.

use std::collections::VecDeque;

use brooklet::{Error, Store};

use super::cache::SlotId;
use super::stream::{Entry, Id, Stream};
use super::{Keyspace, names};

/// Most entries that one look reads ahead, and most bytes of them, about.
const AHEAD: u64 = 512;
const AHEAD_BYTES: usize = 256 << 10;

/// Entries that were read ahead: ids in order that are near to each other cost no search each.
#[derive(Default)]
pub struct Finder {
    /// The entries, without a gap.
    ahead: VecDeque<Entry>,
    /// Number of the entry behind them.
    next: u64,
    /// Number of entries of the last read.
    size: u64,
}

impl Finder {
    fn covers(&self, id: Id) -> bool {
        let ends = self.ahead.front().zip(self.ahead.back());
        ends.is_some_and(|(first, last)| first.id <= id && id <= last.id)
    }

    /// Reads up to `size` entries from a number on.
    fn read(
        &mut self,
        stream: &Stream,
        store: &Store,
        log: &[u8],
        from: u64,
        size: u64,
    ) -> Result<(), Error> {
        let end = stream.seqs().end;
        let seqs = from.min(end)..from.saturating_add(size).min(end);
        let start = seqs.start;
        self.ahead = stream.entries(store, log, seqs, AHEAD_BYTES)?;
        (self.next, self.size) = (start + self.ahead.len() as u64, size);
        Ok(())
    }

    /// Returns the entry with an id, if it is there and not deleted.
    fn find(&mut self, stream: &Stream, store: &Store, log: &[u8], id: Id) -> Result<Option<Entry>, Error> {
        let is_behind = self.ahead.back().is_some_and(|last| last.id < id);
        if is_behind && self.next >= stream.seqs().start {
            self.read(stream, store, log, self.next, (2 * self.size).min(AHEAD))?;
        }
        if !self.covers(id) {
            let seq = stream.seek(store, log, id)?;
            self.read(stream, store, log, seq, 1)?;
        }
        while self.ahead.front().is_some_and(|first| first.id < id) {
            self.ahead.pop_front();
        }
        let found = self.ahead.front().filter(|first| first.id == id && !stream.kept.gone.contains(&id));
        Ok(found.cloned())
    }
}

impl Keyspace {
    /// Returns the entry of a stream with an id, if it is there and not deleted.
    pub fn find_entry(&self, finder: &mut Finder, id: SlotId, entry: Id) -> Result<Option<Entry>, Error> {
        let Some(stream) = self.stream(id) else { return Ok(None) };
        finder.find(stream, &self.store, &names::entries(self.key(id)), entry)
    }

    /// Returns the number of the first entry of a stream's log that is not deleted; the end of the
    /// log if there is none.
    pub fn first_left(&self, id: SlotId) -> Result<u64, Error> {
        let Some(stream) = self.stream(id) else { return Ok(0) };
        let (log, seqs) = (names::entries(self.key(id)), stream.seqs());
        let (mut first, mut size) = (seqs.start, 1);
        while first < seqs.end {
            let next = first..seqs.end.min(first + size);
            let entries = stream.entries(&self.store, &log, next, AHEAD_BYTES)?;
            let gone = entries.iter().take_while(|entry| stream.kept.gone.contains(&entry.id)).count();
            first += gone as u64;
            if gone < entries.len() {
                return Ok(first);
            }
            if size == AHEAD {
                break;
            }
            size = (2 * size).min(AHEAD);
        }
        // Of many, few are read: all entries up to a number are deleted if as many ids are gone.
        let gone: Vec<Id> = stream.kept.gone.iter().copied().collect();
        let mut end = seqs.end;
        while first < end {
            let middle = first + (end - first) / 2;
            let entry = stream.entry(&self.store, &log, middle)?.id;
            let gone_up_to = gone.partition_point(|gone| *gone <= entry) as u64;
            if gone_up_to > middle - seqs.start { first = middle + 1 } else { end = middle }
        }
        Ok(first)
    }
}
