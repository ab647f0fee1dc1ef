//! The private functions that the fuzz targets use: they write and read the bytes of a block.

use bytes::Bytes;

pub use crate::format::{HEADER, disk_len};

use crate::compress;
use crate::format::{Codec, Header};
use crate::seal::{self, Effort, Pool};

/// Restores a payload, as recovery does.
pub fn open(codec: Codec, stored: &[u8], raw_len: usize) -> Option<Bytes> {
    compress::open(codec, stored, raw_len)
}

/// Returns a whole block as it is written to the ring, compressed with the codec of `place` if that
/// pays. Of the other fields of `place`, only those that place the block are used.
pub fn seal(payload: &[u8], records: u32, place: Header) -> Vec<u8> {
    let pool = Pool::new(payload.len());
    let mut buf = pool.take(HEADER + payload.len());
    buf.resize(HEADER);
    buf.extend(payload);
    let effort = if place.codec == Codec::Raw { Effort::None } else { Effort::Compress(place.codec) };
    seal::seal(&pool, buf, records, effort).stamp(&pool, place).1.to_vec()
}
