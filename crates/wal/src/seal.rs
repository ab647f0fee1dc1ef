//! Sealing: converts the appended bytes into the bytes to write.
//!
//! Works outside every lock. [`Sealed::stamp`] adds the fields that depend on the order of blocks
//! (position, chain, acknowledged number) when the block is placed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use brooklet_io::{AlignedBuf, Process, SECTOR};
use bytes::Bytes;

use crate::compress::{self, may_shrink};
use crate::format::{Codec, HEADER, Header, checksum, disk_len};

/// A pool of buffers of a block's size: reused buffers cost a busy log no page faults.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Size of a new buffer, in bytes; buffers of other sizes are from earlier block sizes.
    capacity: AtomicUsize,
    spare: Mutex<Spare>,
    process: Process,
}

#[derive(Debug, Default)]
struct Spare {
    bufs: VecDeque<AlignedBuf>,
    bytes: usize,
}

/// Most bytes of spare buffers: for the blocks that fill, are compressed and are in flight.
const SPARE: usize = 16 << 20;

/// Returns the room for a block of `block_size` bytes, even if a codec makes it longer.
fn capacity(block_size: usize) -> usize {
    (HEADER + compress::bound(block_size)).next_multiple_of(SECTOR)
}

impl Pool {
    pub fn new(block_size: usize) -> Arc<Self> {
        Arc::new(Self {
            capacity: capacity(block_size).into(),
            spare: Mutex::default(),
            process: Process::current(),
        })
    }

    /// Sets the size of blocks from now on, in bytes.
    pub fn set_block_size(&self, block_size: usize) {
        self.capacity.store(capacity(block_size), Ordering::Relaxed);
    }

    /// Returns an empty buffer with room for `len` bytes.
    pub fn take(&self, len: usize) -> AlignedBuf {
        let wanted = len.max(self.capacity.load(Ordering::Relaxed));
        let mut spare = self.spare.lock().expect("no panics");
        // The buffer that was returned last is the likeliest to be in the processor's cache.
        let fits = |buf: &AlignedBuf| (wanted..2 * wanted).contains(&buf.capacity());
        let buf = spare.bufs.iter().rposition(fits).and_then(|at| spare.bufs.remove(at));
        let Some(buf) = buf else {
            drop(spare);
            return AlignedBuf::new(wanted);
        };
        spare.bytes -= buf.capacity();
        buf
    }

    fn give(&self, mut buf: AlignedBuf) {
        if !self.process.is_here() {
            // A fork may have copied the lock while another thread held it: skip the pool.
            return;
        }
        buf.clear();
        let mut spare = self.spare.lock().expect("no panics");
        spare.bytes += buf.capacity();
        spare.bufs.push_back(buf);
        while spare.bytes > SPARE {
            let old = spare.bufs.pop_front().expect("the bytes are those of the buffers");
            spare.bytes -= old.capacity();
        }
    }

    /// Shares a buffer's bytes; the buffer returns to the pool when the last reference is dropped.
    pub fn share(self: &Arc<Self>, buf: AlignedBuf) -> Bytes {
        Bytes::from_owner(Pooled { buf: Some(buf), pool: self.clone() })
    }
}

struct Pooled {
    buf: Option<AlignedBuf>,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Pooled {
    fn as_ref(&self) -> &[u8] {
        self.buf.as_deref().unwrap_or_default()
    }
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(buf) = self.buf.take() {
            self.pool.give(buf);
        }
    }
}

/// The compression of a block at sealing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Compress the block with this codec if it shrinks.
    Compress(Codec),
    /// Store the block as it is, but find out whether it would shrink.
    Ask,
    /// Store the block as it is.
    None,
}

/// A compressed block with its checksum, waiting for its place.
pub(crate) struct Sealed {
    out: AlignedBuf,
    /// The payload for readers; `None` if the stored bytes are the payload.
    data: Option<Bytes>,
    codec: Codec,
    raw_len: usize,
    stored_len: usize,
    payload_sum: u64,
    records: u32,
    shrinks: Option<bool>,
}

/// Compresses the payload in `buf[HEADER..]` if that saves at least a sector in sixteen.
///
/// Readers share the memory of a block, unless most of that memory would be unused.
pub(crate) fn seal(pool: &Arc<Pool>, buf: AlignedBuf, records: u32, effort: Effort) -> Sealed {
    let raw = &buf[HEADER..];
    let raw_len = raw.len();
    let (shrunk, shrinks) = match effort {
        Effort::Compress(codec) => {
            let shrunk = try_compress(pool, codec, raw);
            let shrinks = shrunk.is_some();
            (shrunk.map(|out| (out, codec)), Some(shrinks))
        }
        Effort::Ask => (None, Some(raw_len > SECTOR && may_shrink(raw))),
        Effort::None => (None, None),
    };
    let lies_idle = raw_len < buf.capacity() / 2;
    let (out, data, codec) = match shrunk {
        Some((out, codec)) if lies_idle => {
            let data = Bytes::copy_from_slice(&buf[HEADER..]);
            pool.give(buf);
            (out, Some(data), codec)
        }
        Some((out, codec)) => (out, Some(pool.share(buf).slice(HEADER..HEADER + raw_len)), codec),
        None => {
            let data = lies_idle.then(|| Bytes::copy_from_slice(&buf[HEADER..]));
            (buf, data, Codec::Raw)
        }
    };
    let stored_len = out.len() - HEADER;
    let payload_sum = checksum(&out[HEADER..]);
    let mut sealed = Sealed { out, data, codec, raw_len, stored_len, payload_sum, records, shrinks };
    sealed.out.pad();
    sealed
}

/// Compresses a payload if that saves at least a sector in sixteen.
fn try_compress(pool: &Pool, codec: Codec, raw: &[u8]) -> Option<AlignedBuf> {
    let as_is = disk_len(raw.len());
    if as_is <= SECTOR || !may_shrink(raw) {
        return None;
    }
    let mut out = pool.take(HEADER + compress::bound(raw.len()));
    let len = compress::compress(codec, raw, &mut out.whole_mut()[HEADER..]).unwrap_or(raw.len());
    if disk_len(len) + as_is / 16 > as_is {
        pool.give(out);
        return None;
    }
    out.set_len(HEADER + len);
    Some(out)
}

impl Sealed {
    /// Returns the bytes that the block takes in the ring.
    pub fn disk_len(&self) -> usize {
        self.out.len()
    }

    pub fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// Returns the bytes of the stored payload.
    pub fn stored_len(&self) -> usize {
        self.stored_len
    }

    /// Returns whether the payload shrinks, if that is known.
    pub fn shrinks(&self) -> Option<bool> {
        self.shrinks
    }

    /// Writes the header, given the fields that place the block. Returns its checksum, the bytes to
    /// write, and the payload for readers.
    pub fn stamp(mut self, pool: &Arc<Pool>, place: Header) -> (u64, Bytes, Bytes) {
        let header = Header {
            codec: self.codec,
            records: self.records,
            raw_len: self.raw_len as u32,
            stored_len: self.stored_len as u32,
            payload_sum: self.payload_sum,
            ..place
        };
        let sum = header.encode(&mut self.out);
        let written = pool.share(self.out);
        let data = self.data.unwrap_or_else(|| written.slice(HEADER..HEADER + self.raw_len));
        (sum, written, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compress::open;

    fn filled(pool: &Arc<Pool>, payload: &[u8]) -> AlignedBuf {
        let mut buf = pool.take(HEADER + payload.len());
        buf.resize(HEADER);
        buf.extend(payload);
        buf
    }

    fn place() -> Header {
        Header { store: 1, epoch: 1, seq: 1, ..Header::default() }
    }

    #[test]
    fn what_is_sealed_opens_to_the_same_payload() {
        let pool = Pool::new(64 << 10);
        let mut rng = brooklet_io::Rng::new(3);
        let noise: Vec<u8> = (0..50_000).map(|_| rng.next() as u8).collect();
        for (payload, effort, codec) in [
            (vec![7; 50_000], Effort::Compress(Codec::Lz4), Codec::Lz4),
            (vec![7; 50_000], Effort::Compress(Codec::Zstd), Codec::Zstd),
            (vec![7; 50_000], Effort::Ask, Codec::Raw),
            (noise, Effort::Compress(Codec::Lz4), Codec::Raw),
            (vec![7; 100], Effort::Compress(Codec::Zstd), Codec::Raw),
            (vec![], Effort::None, Codec::Raw),
        ] {
            // Foreign code is beyond miri, and optional.
            if codec == Codec::Zstd && (cfg!(miri) || !codec.is_built_in()) {
                continue;
            }
            let (sum, bytes, data) = seal(&pool, filled(&pool, &payload), 9, effort).stamp(&pool, place());
            assert_eq!(&data[..], &payload[..]);
            let (header, again) = Header::decode(&bytes).expect("valid");
            assert_eq!((header.codec, header.records, sum), (codec, 9, again));
            let stored = &bytes[HEADER..HEADER + header.stored_len as usize];
            assert_eq!(checksum(stored), header.payload_sum);
            assert_eq!(open(header.codec, stored, header.raw_len as usize).as_deref(), Some(&payload[..]));
        }
    }

    #[test]
    fn buffers_come_back_to_the_pool() {
        let pool = Pool::new(4096);
        let address = {
            let buf = pool.take(100);
            let address = buf.as_ptr();
            drop(pool.share(buf).slice(0..0));
            address
        };
        assert_eq!(pool.take(100).as_ptr(), address);
    }
}
