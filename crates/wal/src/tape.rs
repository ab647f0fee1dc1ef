//! The ring read in sequence, ahead of who needs it: several large reads in flight.
//!
//! Invariants: `window` holds the bytes of positions `base..base + window.len()`; chunks are appended in order; a
//! chunk never straddles the end of a lap, nor of a span.

use std::collections::BTreeMap;
use std::io;

use brooklet_io::{AlignedBuf, Completion, Op, Queue, SECTOR, Volume, read_exact_at};

use crate::recover::Layout;

/// Bytes of one read.
const CHUNK: u64 = 1 << 20;
/// Reads in flight.
const AHEAD: usize = 4;

pub(crate) struct Tape<'a> {
    volume: &'a dyn Volume,
    layout: Layout,
    queue: Box<dyn Queue>,
    window: Vec<u8>,
    base: u64,
    from: u64,
    /// Next position to ask for, and the end of what may be asked for.
    ask: u64,
    limit: u64,
    /// Chunks that came before their turn, by position. An error counts only if the turn comes.
    early: BTreeMap<u64, io::Result<AlignedBuf>>,
    /// Chunks whose bytes are in the window, to be filled again: fresh memory would cost a page fault every 4 KiB.
    spare: Vec<AlignedBuf>,
    finished: Vec<Completion>,
}

impl<'a> Tape<'a> {
    /// A tape over the positions `from..limit` of a ring.
    pub fn new(volume: &'a dyn Volume, layout: Layout, from: u64, limit: u64) -> io::Result<Self> {
        let queue = volume.queue(AHEAD)?;
        let (early, finished) = (BTreeMap::new(), Vec::new());
        let (base, ask) = (from, from);
        let (window, spare) = (Vec::new(), Vec::new());
        Ok(Self { volume, layout, queue, window, base, from, ask, limit, early, spare, finished })
    }

    /// The first position past the tape.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.base + self.window.len() as u64 - self.from
    }

    /// The bytes from `position` on, at least `len` of them; `None` past the end of the tape.
    pub fn at(&mut self, position: u64, len: usize) -> io::Result<Option<&[u8]>> {
        assert!(position >= self.base, "a tape does not turn back");
        if position + len as u64 > self.limit {
            return Ok(None);
        }
        while self.base + (self.window.len() as u64) < position + len as u64 {
            self.advance()?;
        }
        Ok(Some(&self.window[(position - self.base) as usize..]))
    }

    /// Says that nothing before `position` is needed any more.
    pub fn release(&mut self, position: u64) {
        let done = (position - self.base) as usize;
        // Moving the rest down is worth it only when less is moved than dropped.
        if done > self.window.len() / 2 {
            self.window.drain(..done);
            self.base = position;
        }
    }

    /// Bytes of the chunk that starts at `position`.
    fn chunk_len(&self, position: u64) -> u64 {
        let map = &self.layout.map;
        (CHUNK - map.at(position) % CHUNK).min(map.piece(position)).min(self.limit - position)
    }

    fn advance(&mut self) -> io::Result<()> {
        while self.queue.in_flight() + self.early.len() < AHEAD && self.ask < self.limit {
            let len = self.chunk_len(self.ask);
            let offset = self.layout.offset(self.ask);
            let most = CHUNK.min(self.limit - self.from) as usize;
            let mut buf = self.spare.pop().unwrap_or_else(|| AlignedBuf::new(most));
            buf.set_len(len as usize);
            self.queue.submit(self.ask, Op::Read { offset, buf });
            self.ask += len;
        }
        let end = self.base + self.window.len() as u64;
        while !self.early.contains_key(&end) {
            self.queue.reap(true, &mut self.finished);
            for completion in std::mem::take(&mut self.finished) {
                let chunk = self.complete(completion.token, completion.result, completion.buf);
                self.early.insert(completion.token, chunk);
            }
        }
        let chunk = self.early.remove(&end).expect("just seen")?;
        self.window.extend_from_slice(&chunk);
        self.spare.push(chunk);
        Ok(())
    }

    /// Reads what a short transfer left of a chunk.
    fn complete(&self, at: u64, done: io::Result<usize>, buf: Option<AlignedBuf>) -> io::Result<AlignedBuf> {
        let done = done? / SECTOR * SECTOR;
        let mut buf = buf.ok_or_else(|| io::Error::other("a read lost its memory"))?;
        buf.set_len(self.chunk_len(at) as usize);
        let offset = self.layout.offset(at) + done as u64;
        read_exact_at(self.volume, offset, &mut buf[done..])?;
        Ok(buf)
    }
}
