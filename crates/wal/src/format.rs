//! The block: the content of one write to the ring. This is the only description of its bytes.
//!
//! ```text
//! offset size field      meaning                                                    (little endian)
//!      0    4 magic      "BRKB"
//!      4    2 version    format version, 2; version 1 had the codecs 0 and 1 and is read still
//!      6    1 codec      0 payload as it is, 1 LZ4 block, 2 zstd frame
//!      7    1 -          zero
//!      8    8 store      identity of the store, so that another store's blocks are never taken for ours
//!     16    8 epoch      grows with every opening of the store
//!     24    8 seq        block number, 1 more than the block before
//!     32    8 position   where the block starts in the endless ring (offset in the zone = position mod size)
//!     40    8 lsn        log position of the payload's first byte, counted in payload bytes before compression
//!     48    8 acked      every block up to this number was on stable media when this block was sealed
//!     56    8 previous   header checksum of the block before
//!     64    4 records    records in the payload
//!     68    4 raw_len    payload bytes before compression
//!     72    4 stored_len payload bytes as stored
//!     76    4 -          zero
//!     80    8 payload    XXH3-64 of the stored payload
//!     88    8 header     XXH3-64 of bytes 0..88
//!     96    . payload    records, each: length (varint), bytes
//!      .    . padding    up to a multiple of the sector size
//! ```
//!
//! A block is *valid at position p* if its header checksum holds, `store` is the log's own, and
//! `position` is p. A block *follows* another block if it also continues that block's `seq`, `lsn`
//! and `previous`, its epoch is not smaller, and its payload checksum holds. A block never crosses
//! the end of the ring: a block that does not fit starts at the next lap, and a reader derives that
//! from the block's length.

use brooklet_io::SECTOR;
use twox_hash::XxHash3_64;

/// The most that a number of a block, a place in the log or a position may be.
const MOST: u64 = u64::MAX / 2;

/// Bytes of a block's header.
pub const HEADER: usize = 96;
/// The format version this crate writes.
pub const VERSION: u16 = 2;
const MAGIC: [u8; 4] = *b"BRKB";

/// The encoding of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Codec {
    /// The payload as it is.
    #[default]
    Raw = 0,
    /// An LZ4 block: fast.
    Lz4 = 1,
    /// A zstd frame of level 1: smaller, at two thirds of the speed. Needs the feature `zstd`.
    Zstd = 2,
}

impl Codec {
    /// The strongest codec of this build.
    pub const STRONGEST: Codec = if cfg!(feature = "zstd") { Codec::Zstd } else { Codec::Lz4 };

    /// Returns whether this build has the codec.
    pub(crate) fn is_built_in(self) -> bool {
        self <= Self::STRONGEST
    }

    pub(crate) fn stronger(self) -> Self {
        if self == Codec::Raw { Codec::Lz4 } else { Codec::Zstd }
    }

    pub(crate) fn weaker(self) -> Self {
        if self == Codec::Zstd { Codec::Lz4 } else { Codec::Raw }
    }
}

/// A block's header; the table at the head of this module describes the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the table at the head of the module tells each")]
pub struct Header {
    pub codec: Codec,
    pub store: u64,
    pub epoch: u64,
    pub seq: u64,
    pub position: u64,
    pub lsn: u64,
    pub acked: u64,
    pub previous: u64,
    pub records: u32,
    pub raw_len: u32,
    pub stored_len: u32,
    pub payload_sum: u64,
}

/// Returns the XXH3-64 checksum of `bytes`.
pub fn checksum(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// Returns the bytes that a block takes in the ring.
pub fn disk_len(stored_len: usize) -> usize {
    (HEADER + stored_len).next_multiple_of(SECTOR)
}

impl Header {
    /// Writes the header into `out[..HEADER]` and returns its checksum, which the next block
    /// stores.
    pub fn encode(&self, out: &mut [u8]) -> u64 {
        out[..HEADER].fill(0);
        out[0..4].copy_from_slice(&MAGIC);
        out[4..6].copy_from_slice(&VERSION.to_le_bytes());
        out[6] = self.codec as u8;
        let words = [self.store, self.epoch, self.seq, self.position, self.lsn, self.acked, self.previous];
        for (i, word) in words.iter().enumerate() {
            out[8 + i * 8..16 + i * 8].copy_from_slice(&word.to_le_bytes());
        }
        out[64..68].copy_from_slice(&self.records.to_le_bytes());
        out[68..72].copy_from_slice(&self.raw_len.to_le_bytes());
        out[72..76].copy_from_slice(&self.stored_len.to_le_bytes());
        out[80..88].copy_from_slice(&self.payload_sum.to_le_bytes());
        let sum = checksum(&out[..88]);
        out[88..96].copy_from_slice(&sum.to_le_bytes());
        sum
    }

    /// Reads a header whose checksum holds; returns it with that checksum. Returns `None` for any
    /// other bytes.
    pub fn decode(bytes: &[u8]) -> Option<(Header, u64)> {
        if bytes.len() < HEADER || bytes[0..4] != MAGIC {
            return None;
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let half = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let sum = word(88);
        if checksum(&bytes[..88]) != sum {
            return None;
        }
        let codec = match (u16::from_le_bytes([bytes[4], bytes[5]]), bytes[6]) {
            (1..=VERSION, 0) => Codec::Raw,
            (1..=VERSION, 1) => Codec::Lz4,
            (2..=VERSION, 2) => Codec::Zstd,
            _ => return None,
        };
        let header = Header {
            codec,
            store: word(8),
            epoch: word(16),
            seq: word(24),
            position: word(32),
            lsn: word(40),
            acked: word(48),
            previous: word(56),
            records: half(64),
            raw_len: half(68),
            stored_len: half(72),
            payload_sum: word(80),
        };
        // These numbers count up from 0. A larger one was forged, and sums with it might overflow.
        let counts = [header.seq, header.position, header.lsn, header.acked];
        counts.iter().all(|count| *count <= MOST).then_some((header, sum))
    }

    /// Returns the bytes that the block takes in the ring.
    pub fn disk_len(&self) -> usize {
        disk_len(self.stored_len as usize)
    }
}

/// Appends a variable-length integer: seven bits a byte, low bits first; the top bit is set if more
/// bytes follow.
pub fn put_varint(out: &mut impl FnMut(&[u8]), mut value: u64) {
    let mut bytes = [0; 10];
    let mut n = 0;
    while value >= 0x80 {
        bytes[n] = value as u8 | 0x80;
        value >>= 7;
        n += 1;
    }
    bytes[n] = value as u8;
    out(&bytes[..=n]);
}

/// Takes a variable-length integer from the front of `bytes`; `None` if it is cut short or exceeds
/// 64 bits.
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0u64;
    for (i, &byte) in bytes.iter().enumerate().take(10) {
        let bits = u64::from(byte & 0x7f);
        if i == 9 && bits > 1 {
            return None;
        }
        value |= bits << (7 * i);
        if byte & 0x80 == 0 {
            *bytes = &bytes[i + 1..];
            return Some(value);
        }
    }
    None
}

/// The records of a payload with their offsets, in order. The first malformed record is an inner
/// `None`, and ends the iteration.
pub struct Records<'a> {
    payload: &'a [u8],
    rest: &'a [u8],
}

impl<'a> Records<'a> {
    /// Creates an iterator over `payload`.
    pub fn new(payload: &'a [u8]) -> Self {
        Self { payload, rest: payload }
    }
}

impl<'a> Iterator for Records<'a> {
    /// Offset of the record in the payload, in bytes, and its content.
    type Item = Option<(usize, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let mut rest = self.rest;
        let record = take_varint(&mut rest).and_then(|len| rest.get(..usize::try_from(len).ok()?));
        let Some(record) = record else {
            self.rest = &[];
            return Some(None);
        };
        let offset = self.payload.len() - rest.len();
        self.rest = &rest[record.len()..];
        Some(Some((offset, record)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Header {
        Header {
            codec: Codec::Lz4,
            store: 0x1122_3344_5566_7788,
            epoch: 3,
            seq: 17,
            position: 1 << 20,
            lsn: 99_000,
            acked: 16,
            previous: 0xdead_beef,
            records: 4,
            raw_len: 800,
            stored_len: 300,
            payload_sum: 42,
        }
    }

    #[test]
    fn numbers_that_no_log_reaches_are_refused() {
        let set: [fn(&mut Header, u64); 4] =
            [|h, n| h.seq = n, |h, n| h.position = n, |h, n| h.lsn = n, |h, n| h.acked = n];
        for set in set {
            for (number, is_header) in [(MOST, true), (MOST + 1, false), (u64::MAX, false)] {
                let (mut header, mut bytes) = (sample(), [0; HEADER]);
                set(&mut header, number);
                header.encode(&mut bytes);
                assert_eq!(Header::decode(&bytes).is_some(), is_header, "{header:?}");
            }
        }
    }

    #[test]
    fn a_header_survives_the_round_trip_and_no_flipped_bit() {
        let mut bytes = [0; HEADER];
        let sum = sample().encode(&mut bytes);
        assert_eq!(Header::decode(&bytes), Some((sample(), sum)));
        for bit in 0..HEADER * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn varints_round_trip_and_refuse_what_is_cut_or_too_long() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(&mut |b| bytes.extend_from_slice(b), value);
            let mut rest = &bytes[..];
            assert_eq!((take_varint(&mut rest), rest.len()), (Some(value), 0));
            assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take_varint(&mut &[0xff; 11][..]), None);
        assert_eq!(take_varint(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]), None);
    }

    #[test]
    fn records_stop_at_the_first_malformed_one() {
        let payload = [2, b'a', b'b', 0, 5, b'x'];
        let got: Vec<_> = Records::new(&payload).collect();
        assert_eq!(got, vec![Some((1, &b"ab"[..])), Some((4, &b""[..])), None]);
    }
}
