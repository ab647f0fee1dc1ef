//! Sequential reading of the ring, ahead of the consumer, with several large reads in flight.
//!
//! Invariants: `window` holds the bytes of positions `base..base + window.len()`; chunks are
//! appended in order; no chunk crosses the end of a lap or of a span; the chunks in `early` and in
//! flight are between the window and `ask`.
//!
//! Memory: a few chunks, and the largest single request, for any size of the ring.
//!
//! If the device does not read a chunk, each of its sectors is read alone, once the caller asks for
//! it: a bad sector that nobody needs is in nobody's way.
//!
//! A reader that [passes over errors](ReadAhead::pass_over_errors) takes a sector that the device
//! does not read for zeros, which are part of no block, and remembers it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;

use brooklet_io::tether::is_gone;
use brooklet_io::{AlignedBuf, Completion, Op, Queue, SECTOR, Volume, read_exact_at};

use crate::map::Layout;

/// Size of one read, in bytes.
const CHUNK: u64 = 1 << 20;
/// Number of reads in flight.
const AHEAD: usize = 4;
/// Most sectors that a reader passes over. A disk may try for seconds to read one.
const MOST_UNREAD: usize = 256;

pub(crate) struct ReadAhead<'a> {
    volume: &'a dyn Volume,
    layout: Layout,
    queue: Box<dyn Queue>,
    window: Vec<u8>,
    base: u64,
    /// Next position to request, and the end of all requests.
    ask: u64,
    limit: u64,
    /// Size of the longest chunk, in bytes: the whole range may be shorter than one read.
    chunk: usize,
    /// Chunks that arrived early, by position. An error counts only when its chunk is next.
    early: BTreeMap<u64, io::Result<AlignedBuf>>,
    /// Chunks whose bytes are in the window, for reuse: fresh memory would cost a page fault every
    /// 4 KiB.
    spare: Vec<AlignedBuf>,
    finished: Vec<Completion>,
    /// The sector that was last read alone.
    sector: AlignedBuf,
    read: u64,
    /// The sectors of the window whose chunk the device did not read, and that nobody asked for.
    unasked: BTreeSet<u64>,
    /// Whether the device read any sector.
    reads: bool,
    /// The positions of the sectors that the device did not read, if the reader passes over them.
    unread: Option<BTreeSet<u64>>,
}

impl<'a> ReadAhead<'a> {
    /// Creates a reader over the positions `from..limit` of a ring.
    pub fn new(volume: &'a dyn Volume, layout: Layout, from: u64, limit: u64) -> io::Result<Self> {
        Ok(Self {
            volume,
            layout,
            queue: volume.queue(AHEAD)?,
            window: Vec::new(),
            base: from,
            ask: from,
            limit,
            chunk: CHUNK.min(limit - from) as usize,
            early: BTreeMap::new(),
            spare: Vec::new(),
            finished: Vec::new(),
            sector: AlignedBuf::zeroed(SECTOR),
            read: 0,
            unasked: BTreeSet::new(),
            reads: false,
            unread: None,
        })
    }

    /// Lets the reader go on where the device does not read a sector.
    pub fn pass_over_errors(&mut self) {
        self.unread.get_or_insert_default();
    }

    /// Returns whether the reader goes on where the device does not read a sector.
    pub fn passes_over_errors(&self) -> bool {
        self.unread.is_some()
    }

    /// Returns whether the reader passed over a sector in this range of positions.
    pub fn has_passed_over(&self, mut positions: Range<u64>) -> bool {
        positions.start = positions.start / SECTOR as u64 * SECTOR as u64;
        self.unread.as_ref().is_some_and(|unread| unread.range(positions).next().is_some())
    }

    /// Returns the number of sectors that the reader passed over, and the offset of the first of
    /// them on the volume.
    pub fn passed_over(&self) -> (u64, Option<u64>) {
        let Some(unread) = &self.unread else { return (0, None) };
        (unread.len() as u64, unread.first().map(|position| self.layout.offset(*position)))
    }

    /// Returns the error of a reader that may not pass over the block at `position`.
    pub fn unread_at(&self, position: u64) -> io::Error {
        let (offset, name) = (self.layout.offset(position), self.volume.info().name);
        io::Error::other(format!("the device does not read the next block, at offset {offset} of {name}"))
    }

    /// Returns an error if the device read none of the sectors that were asked for.
    pub fn expect_reads(&self) -> io::Result<()> {
        match self.passed_over() {
            (sectors, Some(offset)) if !self.reads => {
                let name = self.volume.info().name;
                let message = format!(
                    "the device reads no sector of the ring: none of {sectors} sectors, the first at offset \
                     {offset} of {name}"
                );
                Err(io::Error::other(message))
            }
            _ => Ok(()),
        }
    }

    /// Returns the first position past the reader.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Returns the bytes read so far, without chunks that are still early.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Returns the bytes of memory that the window has.
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.window.capacity()
    }

    /// Returns the bytes from `position` on, at least `len` of them; `None` past the end of the
    /// reader. Reads everything from the reader's current position: call [`seek`](Self::seek) first
    /// if `position` is far ahead.
    pub fn at(&mut self, position: u64, len: usize) -> io::Result<Option<&[u8]>> {
        assert!(position >= self.base, "a tape turns back only when it is told to");
        if position + len as u64 > self.limit {
            return Ok(None);
        }
        let end = (position - self.base) as usize + len;
        if self.window.capacity() < end {
            // A plain reservation would grow to twice the requested size, which may be a third of
            // the ring.
            self.window.reserve_exact(end + self.chunk - self.window.len());
        }
        while self.window.len() < end {
            self.advance()?;
        }
        self.read_unasked(position..position + len as u64)?;
        Ok(Some(&self.window[(position - self.base) as usize..]))
    }

    /// Returns the sector at `position`, at any distance, without moving the reader; `None` past
    /// its end.
    pub fn peek(&mut self, position: u64) -> io::Result<Option<&[u8]>> {
        let end = position + SECTOR as u64;
        if end <= self.ask || end > self.limit {
            return self.at(position, SECTOR);
        }
        self.read_alone(position)?;
        self.read += SECTOR as u64;
        Ok(Some(&self.sector))
    }

    /// Continues at `position`, ahead or back. Between the two positions, reads no more than was
    /// requested already.
    pub fn seek(&mut self, position: u64) {
        if !(self.base..=self.ask).contains(&position) {
            self.restart(position);
        }
    }

    /// Continues at `position`, and reads everything from there on again.
    pub fn restart(&mut self, position: u64) {
        // A read in flight has its position as its token, and that position may be requested again.
        while self.queue.in_flight() > 0 {
            self.queue.reap(true, &mut self.finished);
        }
        self.spare.extend(self.finished.drain(..).filter_map(|completion| completion.buf));
        self.spare.extend(std::mem::take(&mut self.early).into_values().flatten());
        self.window.clear();
        self.unasked.clear();
        (self.base, self.ask) = (position, position);
    }

    /// Releases the bytes before `position`.
    pub fn release(&mut self, position: u64) {
        let done = (position - self.base) as usize;
        // Moves the rest down only if fewer bytes are moved than dropped.
        if done > self.window.len() / 2 {
            self.window.drain(..done);
            self.base = position;
        }
    }

    /// Returns the size of the chunk that starts at `position`, in bytes.
    fn chunk_len(&self, position: u64) -> u64 {
        let map = &self.layout.map;
        (CHUNK - map.at(position) % CHUNK).min(map.piece(position)).min(self.limit - position)
    }

    fn advance(&mut self) -> io::Result<()> {
        while self.queue.in_flight() + self.early.len() < AHEAD && self.ask < self.limit {
            let len = self.chunk_len(self.ask);
            let offset = self.layout.offset(self.ask);
            let mut buf = self.spare.pop().unwrap_or_else(|| AlignedBuf::new(self.chunk));
            buf.set_len(len as usize);
            self.queue.submit(self.ask, Op::Read { offset, buf });
            self.ask += len;
        }
        let end = self.base + self.window.len() as u64;
        while !self.early.contains_key(&end) {
            assert!(self.queue.in_flight() > 0, "a chunk is waited for that is not on its way");
            self.queue.reap(true, &mut self.finished);
            for completion in std::mem::take(&mut self.finished) {
                let chunk = self.complete(completion.token, completion.result, completion.buf);
                self.early.insert(completion.token, chunk);
            }
        }
        let chunk = match self.early.remove(&end).expect("just seen") {
            Ok(chunk) => {
                self.reads = true;
                chunk
            }
            Err(error) if is_general(&error) => return Err(self.located(error, end, self.chunk_len(end))),
            Err(_) => self.zeros_until_asked(end),
        };
        self.window.extend_from_slice(&chunk);
        self.read += chunk.len() as u64;
        self.spare.push(chunk);
        Ok(())
    }

    /// Returns zeros for the chunk at `position`, whose sectors are then read alone.
    fn zeros_until_asked(&mut self, position: u64) -> AlignedBuf {
        let len = self.chunk_len(position);
        self.unasked.extend((position..position + len).step_by(SECTOR));
        let mut buf = AlignedBuf::new(self.chunk);
        buf.set_len(len as usize);
        buf
    }

    /// Reads the sectors at these positions of the window that nobody asked for before.
    fn read_unasked(&mut self, positions: Range<u64>) -> io::Result<()> {
        let first = positions.start / SECTOR as u64 * SECTOR as u64;
        while let Some(&at) = self.unasked.range(first..positions.end).next() {
            self.read_alone(at)?;
            self.unasked.remove(&at);
            let from = (at - self.base) as usize;
            self.window[from..from + SECTOR].copy_from_slice(&self.sector);
        }
        Ok(())
    }

    /// Reads the sector at `position` alone: zeros if the device does not read it, and the reader
    /// goes on.
    fn read_alone(&mut self, position: u64) -> io::Result<()> {
        if self.has_passed_over(position..position + 1) {
            self.sector.fill(0);
            return Ok(());
        }
        match read_exact_at(self.volume, self.layout.offset(position), &mut self.sector) {
            Ok(()) => self.reads = true,
            Err(error) => {
                self.pass_over(position, error)?;
                self.sector.fill(0);
            }
        }
        Ok(())
    }

    /// Remembers a sector that was not read because of `error`; returns the error if the reader
    /// does not go on.
    fn pass_over(&mut self, position: u64, error: io::Error) -> io::Result<()> {
        let goes_on = !is_general(&error);
        let error = self.located(error, position, SECTOR as u64);
        match &mut self.unread {
            Some(unread) if goes_on && unread.len() < MOST_UNREAD => {
                tracing::warn!(%error, "the device does not read a sector of the ring");
                unread.insert(position);
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Adds the place to the error of a read.
    fn located(&self, error: io::Error, position: u64, len: u64) -> io::Error {
        if is_gone(&error) {
            return error;
        }
        let (offset, name) = (self.layout.offset(position), self.volume.info().name);
        io::Error::new(error.kind(), format!("{error} ({len} bytes at offset {offset} of {name})"))
    }

    /// Reads the rest of a chunk after a short transfer.
    fn complete(&self, at: u64, done: io::Result<usize>, buf: Option<AlignedBuf>) -> io::Result<AlignedBuf> {
        let done = done? / SECTOR * SECTOR;
        let mut buf = buf.ok_or_else(|| io::Error::other("a read lost its memory"))?;
        buf.set_len(self.chunk_len(at) as usize);
        let offset = self.layout.offset(at) + done as u64;
        read_exact_at(self.volume, offset, &mut buf[done..])?;
        Ok(buf)
    }
}

/// Returns whether other sectors cannot be read either after this error.
fn is_general(error: &io::Error) -> bool {
    is_gone(error) || error.kind() == io::ErrorKind::UnexpectedEof
}

#[cfg(test)]
mod tests {
    use brooklet_io::{MemVolume, Rng};

    use super::*;
    use crate::map::Map;

    /// Wherever it is sent, and however often, it reads what lies there, with as many reads in
    /// flight and no more memory.
    #[test]
    fn a_tape_goes_ahead_and_back() {
        let size = 24 * CHUNK;
        let image: Vec<u8> = (0..size / 8).flat_map(|word| word.to_le_bytes()).collect();
        let volume = MemVolume::from_image(image, 1);
        let layout = Layout { zone: 0, store: 1, map: Map::new(size) };
        // From the middle of the ring, once round.
        let (from, limit) = (size / 2 + SECTOR as u64, size / 2 + SECTOR as u64 + size);
        let mut read_ahead = ReadAhead::new(&volume, layout, from, limit).unwrap();
        let mut rng = Rng::new(1);
        for _ in 0..300 {
            let position = from + rng.below(size / SECTOR as u64) * SECTOR as u64;
            let first = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap()) * 8;
            if position >= read_ahead.base {
                assert_eq!(first(read_ahead.peek(position).unwrap().unwrap()), position % size);
            }
            read_ahead.seek(position);
            let end = limit.min(position + rng.below(3 * CHUNK));
            for position in (position..end).step_by(SECTOR) {
                assert_eq!(first(read_ahead.at(position, 8).unwrap().unwrap()), position % size);
                read_ahead.release(position);
            }
            assert!(read_ahead.early.range(..read_ahead.base).next().is_none());
            assert!(
                read_ahead.queue.in_flight() + read_ahead.early.len() + read_ahead.spare.len() <= AHEAD + 1
            );
        }
    }
}
