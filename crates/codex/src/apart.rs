//! Long values, stored outside their block in pieces: reading whole values and parts. `format.rs`
//! describes the layout.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use crate::block::Stored;
use crate::error::{Result, damaged};
use crate::format::{PIECE, Ptr, take_varint, u32_at, u64_at};
use crate::limits::MAX_VALUE;
use crate::reader::Reader;
use crate::source::Source;

/// Bytes of a list's record of one piece.
const LISTED: usize = 12;

/// The location of a long value.
pub(crate) struct List {
    len: u64,
    listed: Bytes,
    /// Start of the first piece, and end of the last: the start of the block that has the list.
    start: u64,
    end: u64,
}

impl List {
    /// Returns the list that is stored in place of a value; `None` if the value itself is stored.
    pub fn of(stored: &Stored) -> Result<Option<List>> {
        if !stored.apart {
            return Ok(None);
        }
        let (end, mut at) = (stored.at, 0);
        let stored = &stored.bytes;
        let len = take_varint(stored, &mut at).filter(|&len| len <= MAX_VALUE as u64);
        let listed = stored.slice(at..);
        let Some(len) = len.filter(|&len| listed.len() as u64 == len.div_ceil(PIECE as u64) * LISTED as u64)
        else {
            return damaged(end, "a list of pieces has the wrong length");
        };
        let frames: u64 = listed.chunks_exact(LISTED).map(|piece| u64::from(u32_at(piece, 0))).sum();
        match end.checked_sub(frames) {
            Some(start) => Ok(Some(List { len, listed, start, end })),
            None => damaged(end, "the pieces of a value begin before the file"),
        }
    }

    pub fn start(&self) -> u64 {
        self.start
    }

    /// Reads all pieces, and discards them.
    pub fn check<S: Source>(&self, reader: &Reader<S>) -> Result<()> {
        let load = |ptr| reader.load(ptr, self.end);
        self.each(load, 0..self.len.div_ceil(PIECE as u64) as usize, |_, _| {})
    }

    /// Reads the whole value; `load` returns the content of a frame.
    pub fn value(&self, load: impl Fn(Ptr) -> Result<Bytes>) -> Result<Bytes> {
        self.part(load, 0..self.len)
    }

    /// Reads `range` of the value; the range must be within the value.
    fn part(&self, load: impl Fn(Ptr) -> Result<Bytes>, range: Range<u64>) -> Result<Bytes> {
        // A list may claim more bytes than exist: the output grows with the bytes read.
        let mut out =
            BytesMut::with_capacity(((self.end - self.start).min(range.end - range.start)) as usize);
        let pieces = range.start / PIECE as u64..range.end.div_ceil(PIECE as u64);
        self.each(load, pieces.start as usize..pieces.end as usize, |base, raw| {
            let end = (range.end - base).min(raw.len() as u64) as usize;
            out.extend_from_slice(&raw[range.start.saturating_sub(base) as usize..end]);
        })?;
        Ok(out.freeze())
    }

    /// Reads some pieces, and passes each to `each` with its offset in the value.
    fn each(
        &self,
        load: impl Fn(Ptr) -> Result<Bytes>,
        pieces: Range<usize>,
        mut each: impl FnMut(u64, &[u8]),
    ) -> Result<()> {
        let mut offset = self.start;
        for (index, listed) in self.listed.chunks_exact(LISTED).enumerate().take(pieces.end) {
            let ptr = Ptr { offset, len: u32_at(listed, 0), sum: u64_at(listed, 4) };
            offset += u64::from(ptr.len);
            if index < pieces.start {
                continue;
            }
            let (raw, base) = (load(ptr)?, (index * PIECE) as u64);
            if raw.len() as u64 != (self.len - base).min(PIECE as u64) {
                return damaged(ptr.offset, "a piece of a value has the wrong length");
            }
            each(base, &raw);
        }
        Ok(())
    }
}

impl<S: Source> Reader<S> {
    /// Returns bytes `range` of the value of `key`, cut off at the end of the value; `None` if the
    /// key does not exist. For a value stored outside its block
    /// ([`BuilderOptions::apart_from`](crate::BuilderOptions::apart_from)), reads only the pieces
    /// that overlap the range, 64 KiB each.
    ///
    /// ```
    /// # use brooklet_codex::*;
    /// # let mut builder = Builder::new(Vec::new(), BuilderOptions::default());
    /// builder.add(b"film", &vec![7; 10 << 20])?;
    /// # let (summary, file) = builder.finish()?;
    /// # let reader = Reader::open(Bytes::from(file), summary.len, None)?;
    /// assert_eq!(reader.value_len(b"film")?, Some(10 << 20));
    /// assert_eq!(reader.get_part(b"film", 5_000_000..5_000_003)?.as_deref(), Some(&[7, 7, 7][..]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Io`](crate::Error::Io).
    pub fn get_part(&self, key: &[u8], range: Range<u64>) -> Result<Option<Bytes>> {
        self.find(key)?.map(|stored| self.part_of(&stored, range)).transpose()
    }

    /// Returns the length of the value of `key`, in bytes; `None` if the key does not exist.
    ///
    /// # Errors
    /// [`Error::Damaged`](crate::Error::Damaged), [`Error::Io`](crate::Error::Io).
    pub fn value_len(&self, key: &[u8]) -> Result<Option<u64>> {
        self.find(key)?.map(|stored| Self::len_of(&stored)).transpose()
    }

    pub(crate) fn value_of(&self, stored: Stored) -> Result<Bytes> {
        match List::of(&stored)? {
            Some(list) => list.value(|ptr| self.load(ptr, list.end)),
            None => Ok(stored.bytes),
        }
    }

    pub(crate) fn len_of(stored: &Stored) -> Result<u64> {
        Ok(List::of(stored)?.map_or(stored.bytes.len() as u64, |list| list.len))
    }

    pub(crate) fn part_of(&self, stored: &Stored, range: Range<u64>) -> Result<Bytes> {
        let within = |len: u64| {
            let end = range.end.min(len);
            range.start.min(end)..end
        };
        match List::of(stored)? {
            Some(list) => list.part(|ptr| self.load(ptr, list.end), within(list.len)),
            None => {
                let range = within(stored.bytes.len() as u64);
                Ok(stored.bytes.slice(range.start as usize..range.end as usize))
            }
        }
    }
}
