//! Cuts sealed blocks into payloads of objects: after a time, or after a number of bytes. A payload
//! has no more bytes than that, unless it is one block: a request must end in time on a slow link.
//!
//! ```text
//! payload of blocks (little endian): for each block its length (4), then its bytes
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use crate::fields::Defect;

/// Bytes of a block's length in a payload.
pub(crate) const LENGTH: usize = 4;

/// When a payload is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cuts {
    /// Time after the first block of the payload; after the last cut, if that block came within
    /// this time of it. So the log of a busy store is cut once in this time, however long a request
    /// takes.
    pub time: Duration,
    /// Size of the payload in bytes. A longer payload is one block.
    pub bytes: usize,
}

impl Default for Cuts {
    /// 10 milliseconds, or 1 MiB: a second of a link with 8 Mbit/s.
    fn default() -> Self {
        Self { time: Duration::from_millis(10), bytes: 1 << 20 }
    }
}

/// A cut payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Begin of its blocks in the store's log.
    pub begin: u64,
    /// End of its blocks in the store's log.
    pub end: u64,
    /// The blocks, encoded.
    pub payload: Bytes,
}

/// Collects blocks until a cut is due.
#[derive(Debug)]
pub struct Cutter {
    cuts: Cuts,
    blocks: VecDeque<Collected>,
    data: BytesMut,
    /// When a cut that was due was made, last.
    last: Option<Duration>,
}

/// A block in the data of a cutter.
#[derive(Debug)]
struct Collected {
    begin: u64,
    end: u64,
    /// Bytes in the data.
    len: usize,
    /// When it came.
    at: Duration,
}

impl Cutter {
    /// Returns an empty cutter.
    pub fn new(cuts: Cuts) -> Self {
        Self { cuts, blocks: VecDeque::new(), data: BytesMut::new(), last: None }
    }

    /// Returns the number of collected bytes.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Takes a sealed block from `begin` to `end` of the store's log, of less than 4 GiB.
    pub fn push(&mut self, begin: u64, end: u64, block: &[u8], now: Duration) {
        self.data.put_u32_le(u32::try_from(block.len()).expect("a block has less than 4 GiB"));
        self.data.put_slice(block);
        self.blocks.push_back(Collected { begin, end, len: LENGTH + block.len(), at: now });
    }

    /// Returns when the next cut is due, if blocks wait for it.
    pub fn due(&self) -> Option<Duration> {
        let Cuts { time, bytes } = self.cuts;
        let since = self.blocks.front()?.at;
        if self.data.len() >= bytes {
            return Some(since);
        }
        // A block may be left from before the last cut.
        let busy = self.last.filter(|last| since < *last + time);
        Some(busy.map_or(since, |last| last.min(since)) + time)
    }

    /// Returns a payload if a cut is due. Another one may be due then.
    pub fn cut(&mut self, now: Duration) -> Option<Cut> {
        if self.due()? > now {
            return None;
        }
        self.last = Some(now);
        self.flush()
    }

    /// Returns the next payload, due or not: of all collected blocks, or of as many as it may have.
    pub fn flush(&mut self) -> Option<Cut> {
        let Collected { begin, mut end, len: mut bytes, .. } = self.blocks.pop_front()?;
        while let Some(next) = self.blocks.front()
            && bytes + next.len <= self.cuts.bytes
        {
            (end, bytes) = (next.end, bytes + next.len);
            self.blocks.pop_front();
        }
        Some(Cut { begin, end, payload: self.data.split_to(bytes).freeze() })
    }
}

/// Returns the number of blocks in a payload of a [`Cutter`].
pub(crate) fn count(payload: &Bytes) -> u64 {
    blocks(payload).expect("a cutter made the payload").len() as u64
}

/// Returns the blocks of a payload.
///
/// # Errors
/// A [`Defect`] if the payload does not consist of blocks.
pub fn blocks(payload: &Bytes) -> Result<Vec<Bytes>, Defect> {
    let (mut rest, mut blocks) = (payload.clone(), Vec::new());
    while !rest.is_empty() {
        let len = rest.first_chunk().ok_or("the length of a block is cut off")?;
        let len = u32::from_le_bytes(*len) as usize;
        let _ = rest.split_to(LENGTH);
        if len > rest.len() {
            return Err("a block is cut off".into());
        }
        blocks.push(rest.split_to(len));
    }
    Ok(blocks)
}
