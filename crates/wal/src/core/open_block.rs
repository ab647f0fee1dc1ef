//! The open block: records are appended to it until it is closed.

use std::sync::Arc;
use std::time::Duration;

use brooklet_io::{AlignedBuf, Reservation};

use crate::block_handle::{Block, Kept};
use crate::format::HEADER;
use crate::seal::Pool;

/// Bytes that a record needs besides its content: the record's length, which has 30 bits.
pub(super) const FRAME: usize = 5;

pub(crate) struct OpenBlock {
    pub block: Arc<Block>,
    pub buf: AlignedBuf,
    pub records: u32,
    /// Time at which the first record was appended.
    pub appended: Duration,
    /// Time at which the block's write must start, and the shortest time limit of the block's
    /// records.
    pub deadline: Duration,
    pub within: Duration,
}

impl OpenBlock {
    pub fn new(pool: &Pool, seq: u64, kept: Kept) -> Self {
        let mut buf = pool.take(HEADER);
        buf.set_len(HEADER);
        Self {
            block: Arc::new(Block::new(seq, kept)),
            buf,
            records: 0,
            appended: Duration::ZERO,
            deadline: Duration::MAX,
            within: Duration::MAX,
        }
    }

    /// Returns whether a record of `bound` bytes may be appended: the block stays within its size,
    /// or the record is its first.
    pub fn fits(&self, bound: usize, block_size: usize) -> bool {
        let end = self.buf.len() + bound + FRAME;
        end <= self.buf.capacity() && (end <= block_size || self.records == 0)
    }

    pub fn make_room(&mut self, pool: &Pool, bound: usize) {
        if self.buf.room() < bound + FRAME {
            self.buf = pool.take(HEADER + bound + FRAME);
            self.buf.set_len(HEADER);
        }
    }

    /// Appends a record of at most `bound` bytes with its frame; returns the offset of its bytes in
    /// the payload.
    pub fn push(&mut self, bound: usize, encode: impl FnOnce(&mut dyn FnMut(&[u8]))) -> usize {
        // The length is known only after encoding: leave room for it.
        let frame = self.buf.len();
        let width = length_width(bound);
        self.buf.extend(&[0; FRAME][..width]);
        let offset = self.buf.len();
        encode(&mut |bytes| self.buf.extend(bytes));
        let len = self.buf.len() - offset;
        assert!(len <= bound, "a record of {len} bytes was said to have at most {bound}");
        self.buf.overwrite(frame, &padded_length(len, width)[..width]);
        self.records += 1;
        offset - HEADER
    }

    /// Appends the frame of a record, its `head`, and room for `len` further bytes. The owner of
    /// the reservation writes these bytes later.
    pub fn push_reserved(&mut self, head: &[u8], len: usize) -> (usize, RecordReservation) {
        let width = length_width(head.len() + len);
        self.buf.extend(&padded_length(head.len() + len, width)[..width]);
        let offset = self.buf.len();
        self.buf.extend(head);
        self.block.begin_writing();
        // SAFETY: while records are appended to the block, the buffer is only moved and extended.
        // The thread that takes the block waits until `is_being_filled` returns `false`, and `stop`
        // keeps the buffers of blocks that nobody will take.
        let reservation = unsafe { self.buf.reservation(len) };
        self.records += 1;
        (offset - HEADER, RecordReservation { reservation: Some(reservation), block: self.block.clone() })
    }
}

/// A record's place in a block. Its owner writes the record while others append behind it.
pub(crate) struct RecordReservation {
    reservation: Option<Reservation>,
    block: Arc<Block>,
}

impl RecordReservation {
    pub fn fill(mut self, record: &[u8]) {
        self.reservation.take().expect("filled once").fill(record);
    }
}

impl Drop for RecordReservation {
    fn drop(&mut self) {
        self.block.end_writing();
    }
}

/// Returns the number of bytes that encode the length of a record of up to `bound` bytes.
fn length_width(bound: usize) -> usize {
    if bound < 1 << 21 { 3 } else { FRAME }
}

/// Returns the length of a record as a varint, padded with continuation bits to `width` bytes; the
/// other bytes are zero.
fn padded_length(len: usize, width: usize) -> [u8; FRAME] {
    let more = |i: usize| if i + 1 < width { 0x80 } else { 0 };
    std::array::from_fn(|i| if i < width { (len >> (7 * i)) as u8 & 0x7f | more(i) } else { 0 })
}
