//! Sealing: from the bytes that boarded to the bytes that are written.
//!
//! Works outside every lock. What depends on the order of blocks (position, chain, acknowledged number) is added by
//! [`Sealed::stamp`] when the block is placed.

use std::sync::{Arc, Mutex};

use brooklet_io::{AlignedBuf, SECTOR};
use bytes::Bytes;

use crate::format::{Codec, HEADER, Header, checksum, disk_len};

/// Buffers of one block's size, used again so that a busy log does not fault fresh pages in.
#[derive(Debug)]
pub(crate) struct Pool {
    capacity: usize,
    spare: Mutex<Vec<AlignedBuf>>,
}

/// Most spare buffers kept: the blocks that fill, compress and fly, with some to spare.
const SPARE: usize = 32;

impl Pool {
    pub fn new(block_size: usize) -> Arc<Self> {
        // LZ4 can grow what it cannot shrink; the bound leaves room to find that out.
        let capacity =
            (HEADER + lz4_flex::block::get_maximum_output_size(block_size)).next_multiple_of(SECTOR);
        Arc::new(Self { capacity, spare: Mutex::default() })
    }

    /// An empty buffer with room for `len` bytes.
    pub fn take(&self, len: usize) -> AlignedBuf {
        let spare = if len <= self.capacity { self.spare.lock().expect("no panics").pop() } else { None };
        spare.unwrap_or_else(|| AlignedBuf::new(len.max(self.capacity)))
    }

    fn give(&self, mut buf: AlignedBuf) {
        buf.clear();
        let mut spare = self.spare.lock().expect("no panics");
        if buf.capacity() == self.capacity && spare.len() < SPARE {
            spare.push(buf);
        }
    }

    /// Shares a buffer's bytes; it comes back to the pool when the last reference is dropped.
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

/// A block compressed and summed, waiting for its place.
pub(crate) struct Sealed {
    out: AlignedBuf,
    /// The payload for readers; `None` where that is what is written.
    data: Option<Bytes>,
    codec: Codec,
    raw_len: usize,
    stored_len: usize,
    payload_sum: u64,
    records: u32,
}

/// Compresses the payload in `buf[HEADER..]` where that saves at least a sector in sixteen.
///
/// Readers share the memory of a block, unless most of that would lie idle.
pub(crate) fn seal(pool: &Arc<Pool>, buf: AlignedBuf, records: u32, compress: bool) -> Sealed {
    let raw_len = buf.len() - HEADER;
    let shrunk = if compress { try_compress(pool, &buf[HEADER..]) } else { None };
    let lies_idle = raw_len < buf.capacity() / 2;
    let (out, data, codec) = match shrunk {
        Some(out) if lies_idle => {
            let data = Bytes::copy_from_slice(&buf[HEADER..]);
            pool.give(buf);
            (out, Some(data), Codec::Lz4)
        }
        Some(out) => (out, Some(pool.share(buf).slice(HEADER..HEADER + raw_len)), Codec::Lz4),
        None => {
            let data = lies_idle.then(|| Bytes::copy_from_slice(&buf[HEADER..]));
            (buf, data, Codec::Raw)
        }
    };
    let stored_len = out.len() - HEADER;
    let payload_sum = checksum(&out[HEADER..]);
    let mut sealed = Sealed { out, data, codec, raw_len, stored_len, payload_sum, records };
    sealed.out.pad();
    sealed
}

fn try_compress(pool: &Pool, raw: &[u8]) -> Option<AlignedBuf> {
    let as_is = disk_len(raw.len());
    if as_is <= SECTOR {
        return None;
    }
    let mut out = pool.take(HEADER + lz4_flex::block::get_maximum_output_size(raw.len()));
    let len = lz4_flex::block::compress_into(raw, &mut out.whole_mut()[HEADER..]).unwrap_or(raw.len());
    if disk_len(len) + as_is / 16 > as_is {
        pool.give(out);
        return None;
    }
    out.set_len(HEADER + len);
    Some(out)
}

/// Restores a payload. `None` where the stored bytes are not what a block of this length could hold.
pub(crate) fn open(codec: Codec, stored: &[u8], raw_len: usize) -> Option<Bytes> {
    match codec {
        Codec::Raw => (stored.len() == raw_len).then(|| Bytes::copy_from_slice(stored)),
        // LZ4 gains at most a factor of 255, so a length beyond that is a lie and not worth the memory.
        Codec::Lz4 if raw_len / 255 <= stored.len() => {
            let raw = lz4_flex::block::decompress(stored, raw_len).ok()?;
            (raw.len() == raw_len).then(|| raw.into())
        }
        Codec::Lz4 => None,
    }
}

impl Sealed {
    /// Bytes the block takes in the ring.
    pub fn disk_len(&self) -> usize {
        self.out.len()
    }

    pub fn raw_len(&self) -> usize {
        self.raw_len
    }

    /// Writes the header, given the fields that place the block. Returns its checksum, the bytes to write, and the
    /// payload for readers.
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

    fn filled(pool: &Arc<Pool>, payload: &[u8]) -> AlignedBuf {
        let mut buf = pool.take(HEADER + payload.len());
        buf.resize(HEADER);
        buf.extend(payload);
        buf
    }

    fn place() -> Header {
        Header {
            codec: Codec::Raw,
            store: 1,
            epoch: 1,
            seq: 1,
            position: 0,
            lsn: 0,
            acked: 0,
            previous: 0,
            records: 0,
            raw_len: 0,
            stored_len: 0,
            payload_sum: 0,
        }
    }

    #[test]
    fn what_is_sealed_opens_to_the_same_payload() {
        let pool = Pool::new(64 << 10);
        let mut rng = brooklet_io::Rng::new(3);
        let noise: Vec<u8> = (0..50_000).map(|_| rng.next() as u8).collect();
        for (payload, codec) in [
            (vec![7; 50_000], Codec::Lz4),
            (noise, Codec::Raw),
            (vec![7; 100], Codec::Raw),
            (vec![], Codec::Raw),
        ] {
            let (sum, bytes, data) = seal(&pool, filled(&pool, &payload), 9, true).stamp(&pool, place());
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

    #[test]
    fn a_lying_length_is_refused_without_taking_the_memory() {
        assert_eq!(open(Codec::Lz4, &[0; 10], usize::MAX / 2), None);
        assert_eq!(open(Codec::Raw, &[0; 10], 11), None);
    }
}
