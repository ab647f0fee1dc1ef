//! Cuts sealed blocks into payloads of objects: after a time, or after a number of bytes.
//!
//! ```text
//! payload of blocks (little endian): for each block its length (4), then its bytes
//! ```

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};

use crate::fields::Defect;

/// Bytes of a block's length in a payload.
pub(crate) const LENGTH: usize = 4;

/// When a payload is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cuts {
    /// Time after the first block of the payload.
    pub time: Duration,
    /// Size of the payload in bytes.
    pub bytes: usize,
}

impl Default for Cuts {
    /// 10 milliseconds, or 4 MiB.
    fn default() -> Self {
        Self { time: Duration::from_millis(10), bytes: 4 << 20 }
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
    /// The collected blocks, and when the first of them came.
    open: Option<(Duration, Cut)>,
    data: BytesMut,
}

impl Cutter {
    /// Returns an empty cutter.
    pub fn new(cuts: Cuts) -> Self {
        Self { cuts, open: None, data: BytesMut::new() }
    }

    /// Returns the number of collected bytes.
    pub fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Takes a sealed block from `begin` to `end` of the store's log, of less than 4 GiB.
    pub fn push(&mut self, begin: u64, end: u64, block: &[u8], now: Duration) {
        self.data.put_u32_le(u32::try_from(block.len()).expect("a block has less than 4 GiB"));
        self.data.put_slice(block);
        let (_, cut) = self.open.get_or_insert((now, Cut { begin, end, payload: Bytes::new() }));
        cut.end = end;
    }

    /// Returns when the next cut is due, if blocks wait for it.
    pub fn due(&self) -> Option<Duration> {
        let (since, _) = self.open.as_ref()?;
        Some(if self.data.len() >= self.cuts.bytes { *since } else { *since + self.cuts.time })
    }

    /// Returns a payload if a cut is due.
    pub fn cut(&mut self, now: Duration) -> Option<Cut> {
        if self.due()? > now { None } else { self.flush() }
    }

    /// Returns a payload of all collected blocks.
    pub fn flush(&mut self) -> Option<Cut> {
        let (_, mut cut) = self.open.take()?;
        cut.payload = self.data.split().freeze();
        Some(cut)
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
