//! The codex format, version 4. Integers are little endian; a varint is a LEB128 u64; sums are
//! XXH3-64, seed 0.
//!
//! ```text
//! file     data blocks, in key order, from byte 0 on; pieces of a long value right before the block that lists them;
//!          the pages of notes of each part of the filter, in the order of the parts, before, between or after blocks
//!          index level 1, level 2, ..., each level in key order; a level is there while the one below has > 1 block
//!          filter: parts, in key order, then their directory; metadata (each may be missing)
//!          footer, the last 128 bytes. No gaps anywhere
//!
//! frame    how a block is stored
//!    0  1  codec: 0 as it is, 1 LZ4 block format
//!    1  4  raw length, in bytes, at most MAX_BLOCK
//!    5  .  stored bytes
//!
//! pointer  to a frame; all zero for none
//!    0  8  offset in the file
//!    8  4  length of the whole frame
//!   12  8  sum of the whole frame
//!
//! block    data or index
//!    .  .  entries: shared varint, unshared varint, value length varint, unshared key bytes, value.
//!          The key is the first `shared` bytes of the key before, then the unshared bytes
//!    .  4* restart points: offsets of entries with shared = 0, the first entry and each 16th after
//!   -4  4  how many restart points, at least 1; its highest bit is set where the last value is a list, see below
//!          In an index block, the key is the first key of the child, the value a pointer to the child.
//!
//! list     in the place of a long value, the last one of its block: where the value is
//!    .  .  length of the value, varint
//!    . 12* for each piece of 64 KiB of it, the last one shorter: length (4) and sum (8) of its frame. The frames follow
//!          one another, and end where the block begins
//!
//! filter   stored as it is. A part is about the items of the keys from its first key on, up to that of the next part
//! part
//!    0  4  probes for each item, 1 to 16
//!    4  4  pages of notes
//!    8  8  items
//!   16  .  lines of 64 bytes, at least one; `filter.rs` says which bits an item sets
//!    . 14* for each page of notes: the bits 96 to 128 of the least hash in it (4), records (2), sum of the page (8).
//!          The pages of a part follow one another
//!    .  8  offset of the first page. List and offset are there only if all items have a note
//! page     stored without a frame; at most 273 records, ascending by the hash bits
//!    . 15* for each item: bits 0 to 88 of its hash, big endian (11), its note (4). The hash is the caller's
//! directory
//!    .  .  a block, as above; the key is the first key of the part, the value a pointer to the part
//!
//! metadata the caller's bytes
//!
//! footer
//!    0  8  "BRKCODEX"
//!    8  4  version
//!   12  4  index levels; 0 where the root is a data block
//!   16  8  id, the caller's
//!   24  8  entries
//!   32  8  raw bytes of all data blocks
//!   40  8  data blocks
//!   48 20  pointer to the root, none where there are no entries
//!   68 20  pointer to the filter's directory
//!   88 20  pointer to the metadata
//!  108  8  seed, the caller's, by which it hashes the items of the filter
//!  116  4  zero
//!  120  8  sum of the 120 bytes before
//! ```
//!
//! Valid: the footer's sum holds (and is the one the caller expects), and each frame has the sum
//! that its pointer says. A child is before its parent, so no sequence of pointers is endless. A
//! later version keeps the place of the magic, the version and the sum, so a reader can distinguish
//! a newer file from a damaged file.
//!
//! Version 3 has no notes, and version 2 also no lists. Builders still write them if a file has
//! none of these.
//!
//! Version 1 is read, but no longer written. Its pointer to the filter is the pointer to the only
//! part, which has the items of all keys. It has no directory, and the seed is 0.

use bytes::Bytes;
use twox_hash::XxHash3_64;

use crate::error::{Error, Result, damaged};
use crate::limits::{MAX_BLOCK, VERSION};

/// The version that builders write if no value is long and no item has a note.
pub(crate) const PLAIN: u32 = 2;
/// The version that builders write if a value is long and no item has a note.
pub(crate) const LISTS: u32 = 3;
/// The first version with notes.
pub(crate) const NOTES: u32 = 4;
/// A limit that no file reaches: each level has at most half as many blocks as the level below, and
/// usually far fewer.
pub(crate) const MAX_LEVELS: u32 = 64;
pub(crate) const RESTART_EVERY: usize = 16;
/// A flag in the count of restart points: the last value of the block is a list.
pub(crate) const APART: u32 = 1 << 31;
/// Bytes of each piece of a long value, except the last piece.
pub(crate) const PIECE: usize = 64 << 10;
pub(crate) const FOOTER: usize = 128;
pub(crate) const POINTER: usize = 20;
const MAGIC: &[u8; 8] = b"BRKCODEX";
pub(crate) const FRAME_HEAD: usize = 5;
const RAW: u8 = 0;
const LZ4: u8 = 1;
/// Maximum raw bytes for one stored byte of LZ4. For a frame that claims more, the reader allocates
/// nothing.
const LZ4_MOST: usize = 255;
/// Minimum bytes of an entry: its head.
const LEAST_ENTRY: u64 = 3;

pub(crate) fn sum(data: &[u8]) -> u64 {
    XxHash3_64::oneshot(data)
}

pub(crate) fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(data[at..at + 2].try_into().expect("2 bytes"))
}

pub(crate) fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(data[at..at + 4].try_into().expect("4 bytes"))
}

pub(crate) fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"))
}

pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes a varint from `data` at `*at`, and advances `*at`. Returns `None` if the varint is cut off
/// or exceeds 64 bits.
#[inline]
pub(crate) fn take_varint(data: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *data.get(*at)?;
        *at += 1;
        if shift == 63 && byte > 1 {
            return None;
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A pointer to a frame, with the frame's checksum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ptr {
    pub offset: u64,
    pub len: u32,
    pub sum: u64,
}

impl Ptr {
    /// The pointer to no frame. A real frame is never empty.
    pub const NONE: Ptr = Ptr { offset: 0, len: 0, sum: 0 };

    pub fn some(self) -> Option<Ptr> {
        (self != Ptr::NONE).then_some(self)
    }

    /// Returns the offset of the first byte after the frame. The sum of a damaged pointer
    /// saturates, and is then out of any bounds.
    pub fn end(self) -> u64 {
        self.offset.saturating_add(u64::from(self.len))
    }

    pub fn encode(self) -> [u8; POINTER] {
        let mut out = [0; POINTER];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..12].copy_from_slice(&self.len.to_le_bytes());
        out[12..].copy_from_slice(&self.sum.to_le_bytes());
        out
    }

    pub fn decode(data: &[u8; POINTER]) -> Ptr {
        Ptr { offset: u64_at(data, 0), len: u32_at(data, 8), sum: u64_at(data, 12) }
    }
}

/// Appends `raw` to `out` as a frame. Compresses the block if this saves 1/16 or more: a smaller
/// saving is not worth the time of every reader. Returns whether the block is compressed.
pub(crate) fn encode_frame(raw: &[u8], compress: bool, out: &mut Vec<u8>) -> bool {
    assert!(raw.len() <= MAX_BLOCK, "a block of {} bytes is over the limit", raw.len());
    let head = |codec: u8| {
        let mut head = [codec, 0, 0, 0, 0];
        head[1..].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        head
    };
    let (start, data) = (out.len(), out.len() + FRAME_HEAD);
    if compress {
        out.resize(data + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
        let stored = lz4_flex::block::compress_into(raw, &mut out[data..]).expect("the output has room");
        if stored <= raw.len() - raw.len() / 16 && stored < raw.len() {
            out.truncate(data + stored);
            out[start..data].copy_from_slice(&head(LZ4));
            return true;
        }
        out.truncate(start);
    }
    out.extend_from_slice(&head(RAW));
    out.extend_from_slice(raw);
    false
}

/// Checks the frame of `ptr`, and returns its block.
pub(crate) fn decode_frame(frame: &Bytes, ptr: Ptr) -> Result<Bytes> {
    if frame.len() != ptr.len as usize {
        return damaged(ptr.offset, "the source returned another length than requested");
    }
    if frame.len() < FRAME_HEAD {
        return damaged(ptr.offset, "the block is shorter than its head");
    }
    if sum(frame) != ptr.sum {
        return damaged(ptr.offset, "the checksum of the block differs from the checksum in its parent");
    }
    let (raw_len, stored) = (u32_at(frame, 1) as usize, frame.slice(FRAME_HEAD..));
    match frame[0] {
        RAW if raw_len == stored.len() => Ok(stored),
        LZ4 if raw_len <= MAX_BLOCK && raw_len <= stored.len().saturating_mul(LZ4_MOST) => {
            let mut raw = vec![0; raw_len];
            match lz4_flex::block::decompress_into(&stored, &mut raw) {
                Ok(len) if len == raw_len => Ok(raw.into()),
                _ => damaged(ptr.offset, "the block does not decompress to its length"),
            }
        }
        RAW | LZ4 => damaged(ptr.offset, "the block's raw length is impossible"),
        _ => damaged(ptr.offset, "the block's codec is unknown"),
    }
}

/// Returns whether a frame that [`decode_frame`] accepted stores its block uncompressed. The block
/// then shares the frame's memory.
pub(crate) fn is_raw(frame: &[u8]) -> bool {
    frame[0] == RAW
}

/// The footer: the end of the file, with pointers to its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Format version, 1 to 4.
    pub version: u32,
    pub levels: u32,
    pub id: u64,
    pub entries: u64,
    pub raw_bytes: u64,
    pub blocks: u64,
    pub root: Ptr,
    pub filter: Ptr,
    pub metadata: Ptr,
    pub seed: u64,
}

impl Default for Footer {
    /// Returns the footer of a file without entries.
    fn default() -> Self {
        Footer {
            version: PLAIN,
            levels: 0,
            id: 0,
            entries: 0,
            raw_bytes: 0,
            blocks: 0,
            root: Ptr::NONE,
            filter: Ptr::NONE,
            metadata: Ptr::NONE,
            seed: 0,
        }
    }
}

impl Footer {
    pub fn encode(&self) -> [u8; FOOTER] {
        let mut out = Vec::with_capacity(FOOTER);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.levels.to_le_bytes());
        for number in [self.id, self.entries, self.raw_bytes, self.blocks] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for ptr in [self.root, self.filter, self.metadata] {
            out.extend_from_slice(&ptr.encode());
        }
        out.extend_from_slice(&self.seed.to_le_bytes());
        out.resize(FOOTER - 8, 0);
        out.extend_from_slice(&sum(&out).to_le_bytes());
        out.try_into().expect("fields make up the footer")
    }

    /// Decodes the footer at byte `offset`. `expected` is the checksum that the footer must have. A
    /// caller with an expected checksum knows that a codex was here, so other bytes are damage.
    pub fn decode(data: &[u8; FOOTER], offset: u64, expected: Option<u64>) -> Result<Footer> {
        let stored = u64_at(data, FOOTER - 8);
        if expected.is_some_and(|expected| stored != expected) {
            return damaged(
                offset,
                "the footer is not the expected one: another file, an older one, or damage",
            );
        }
        if &data[..8] != MAGIC && expected.is_none() {
            return Err(Error::NotACodex);
        }
        if sum(&data[..FOOTER - 8]) != stored {
            return damaged(offset, "the checksum of the footer does not match");
        }
        let version = match u32_at(data, 8) {
            version @ 1..=VERSION if &data[..8] == MAGIC => version,
            version if version > VERSION => return Err(Error::Newer { version }),
            _ => return damaged(offset, "the version of the footer is invalid"),
        };
        let ptr = |at: usize| Ptr::decode(data[at..at + POINTER].try_into().expect("20 bytes"));
        let footer = Footer {
            version,
            levels: u32_at(data, 12),
            id: u64_at(data, 16),
            entries: u64_at(data, 24),
            raw_bytes: u64_at(data, 32),
            blocks: u64_at(data, 40),
            root: ptr(48),
            filter: ptr(68),
            metadata: ptr(88),
            seed: if version == 1 { 0 } else { u64_at(data, 108) },
        };
        if footer.levels > MAX_LEVELS || (footer.root.some().is_none() && footer.levels > 0) {
            return damaged(offset, "the footer's index levels are impossible");
        }
        // Callers compute with these counts. The size of the data before the footer bounds them.
        let most = offset.saturating_mul(LZ4_MOST as u64);
        if footer.raw_bytes > most
            || footer.entries > footer.raw_bytes / LEAST_ENTRY
            || footer.blocks > offset
        {
            return damaged(offset, "the footer's counts are impossible");
        }
        Ok(footer)
    }
}

/// Returns an error if the frame of a pointer does not end by `limit`.
pub(crate) fn check_bounds(ptr: Ptr, limit: u64) -> Result<()> {
    if ptr.end() > limit { damaged(ptr.offset, "a pointer leads out of its bounds") } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn varints_come_back(value: u64) {
            let (mut out, mut at) = (Vec::new(), 0);
            put_varint(&mut out, value);
            prop_assert_eq!(take_varint(&out, &mut at), Some(value));
            prop_assert_eq!(at, out.len());
            prop_assert_eq!(take_varint(&out[..out.len() - 1], &mut 0), None);
        }

        #[test]
        fn frames_come_back(raw in proptest::collection::vec(0u8..4, 0..3000), compress: bool) {
            let mut out = Vec::new();
            encode_frame(&raw, compress, &mut out);
            let ptr = Ptr { offset: 9, len: out.len() as u32, sum: sum(&out) };
            prop_assert_eq!(decode_frame(&out.into(), ptr).unwrap(), raw);
        }

        /// A hostile file has correct checksums.
        #[test]
        fn hostile_frames_are_refused(codec in 0u8..3, claim: u32, bytes: Vec<u8>) {
            let mut out = vec![codec];
            out.extend_from_slice(&claim.to_le_bytes());
            out.extend_from_slice(&bytes);
            let ptr = Ptr { offset: 0, len: out.len() as u32, sum: sum(&out) };
            if let Ok(raw) = decode_frame(&out.into(), ptr) {
                prop_assert_eq!(raw.len(), claim as usize);
            }
        }
    }

    /// Regression: counts up to 2^64 in a footer with a correct checksum overflowed in callers.
    #[test]
    fn impossible_counts_are_refused() {
        let ptr = Ptr { offset: 0, len: 20, sum: 1 };
        let sound = Footer { entries: 3, raw_bytes: 9, blocks: 1, root: ptr, ..Footer::default() };
        assert!(Footer::decode(&sound.encode(), 20, None).is_ok());
        for footer in [
            Footer { raw_bytes: u64::MAX, ..sound },
            Footer { entries: 4, ..sound },
            Footer { blocks: u64::MAX, ..sound },
        ] {
            assert!(matches!(Footer::decode(&footer.encode(), 20, None), Err(Error::Damaged { .. })));
        }
    }

    #[test]
    fn a_newer_version_is_told_from_damage() {
        let footer = Footer { id: 1, seed: 9, ..Footer::default() };
        let mut data = footer.encode();
        assert_eq!(Footer::decode(&data, 0, None).unwrap(), footer);
        data[8] = VERSION as u8 + 1;
        assert!(matches!(Footer::decode(&data, 0, None), Err(Error::Damaged { .. })));
        let fixed = sum(&data[..FOOTER - 8]);
        data[FOOTER - 8..].copy_from_slice(&fixed.to_le_bytes());
        assert!(
            matches!(Footer::decode(&data, 0, None), Err(Error::Newer { version }) if version == VERSION + 1)
        );
        data[0] = b'X';
        assert!(matches!(Footer::decode(&data, 0, None), Err(Error::NotACodex)));
    }
}
