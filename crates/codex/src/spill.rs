//! The temporary file: sorted stretches of entries, in the order in which they were spilled.
//!
//! If all entries come in order, there is one stretch, which becomes the target file. Otherwise the
//! stretches are read back, range by range, and merged into another file.

use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::FileExt;

use bytes::Bytes;
use tempfile::NamedTempFile;

use crate::apart::List;
use crate::block::{Aim, Block, Spot};
use crate::error::{Result, damaged};
use crate::format::{Ptr, decode_frame};
use crate::pack::{Blocks, Packed};
use crate::write::Writer;

/// Sorted stretches in a file that is removed when this is dropped.
pub(crate) struct Spill {
    pub writer: Writer,
    pub blocks: Blocks,
    /// The blocks with which ranges begin.
    cuts: Vec<usize>,
    pub stretches: Vec<Stretch>,
}

/// A sorted stretch.
#[derive(Debug)]
pub(crate) struct Stretch {
    blocks: Range<usize>,
    /// Its first byte in the file.
    start: u64,
    last: Vec<u8>,
}

impl Spill {
    pub fn new(file: NamedTempFile) -> Self {
        Spill {
            writer: Writer::new(file),
            blocks: Blocks::default(),
            cuts: Vec::new(),
            stretches: Vec::new(),
        }
    }

    /// Begins a stretch: later appends belong to it.
    pub fn begin(&mut self) {
        let blocks = self.blocks.len();
        self.stretches.push(Stretch {
            blocks: blocks..blocks,
            start: self.writer.written(),
            last: Vec::new(),
        });
    }

    /// Writes packed blocks at the end.
    pub fn append(&mut self, packed: &Packed) -> Result<()> {
        let stretch = self.stretches.last_mut().expect("a stretch was begun");
        let (base, offset) = (self.blocks.len(), self.writer.written());
        self.cuts.extend(packed.cuts.iter().filter(|&&cut| cut < packed.blocks.len()).map(|cut| base + cut));
        for (first, ptr) in packed.blocks.iter() {
            self.blocks.push(first, Ptr { offset: ptr.offset + offset, ..ptr });
        }
        self.writer.write_all(&packed.frames)?;
        stretch.blocks.end = self.blocks.len();
        Ok(())
    }

    /// Ends the stretch; `last` is its last key.
    pub fn end(&mut self, last: Vec<u8>) {
        self.stretches.last_mut().expect("a stretch was begun").last = last;
    }

    /// Returns the keys with which ranges begin.
    pub fn cuts(&self) -> impl Iterator<Item = &[u8]> {
        self.cuts.iter().map(|&block| self.blocks.first(block))
    }

    /// Returns the first and the last key of a stretch; `None` if it is empty.
    pub fn ends<'a>(&'a self, stretch: &'a Stretch) -> Option<(&'a [u8], &'a [u8])> {
        (!stretch.blocks.is_empty()).then(|| (self.blocks.first(stretch.blocks.start), &*stretch.last))
    }

    /// Passes on the entries of a stretch from `from` on and before `to`.
    pub fn range(
        &self,
        stretch: &Stretch,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        mut each: impl FnMut(&[u8], &[u8]),
    ) -> Result<()> {
        let Stretch { blocks, start, .. } = stretch;
        let first = from.map_or(blocks.start, |from| {
            let after = self.blocks.partition(blocks.clone(), |first| first <= from);
            after.saturating_sub(1).max(blocks.start)
        });
        let end = to.map_or(blocks.end, |to| self.blocks.partition(blocks.clone(), |first| first < to));
        if first >= end {
            return Ok(());
        }
        // The pieces of a value are before its block.
        let begin = if first > blocks.start { self.blocks.ptr(first - 1).end() } else { *start };
        let read = self.read(begin..self.blocks.ptr(end - 1).end())?;
        let load = |ptr: Ptr| match ptr.offset.checked_sub(begin) {
            Some(at) => decode_frame(&read.slice(at as usize..at as usize + ptr.len as usize), ptr),
            None => damaged(ptr.offset, "a pointer leads out of its bounds"),
        };
        let mut spot = Spot::default();
        for block in first..end {
            let ptr = self.blocks.ptr(block);
            spot.enter(Block::new(load(ptr)?, ptr.offset)?);
            let mut there = match from.filter(|_| block == first) {
                Some(from) => !spot.aim(Aim::AtMost(from))? || spot.key() == from || spot.step()?,
                None => spot.step()?,
            };
            while there && to.is_none_or(|to| spot.key() < to) {
                let stored = spot.stored();
                match List::of(&stored)? {
                    Some(list) => each(spot.key(), &list.value(load)?),
                    None => each(spot.key(), &stored.bytes),
                }
                there = spot.step()?;
            }
        }
        Ok(())
    }

    fn read(&self, range: Range<u64>) -> io::Result<Bytes> {
        let mut data = vec![0; (range.end - range.start) as usize];
        self.writer.file().read_exact_at(&mut data, range.start)?;
        Ok(data.into())
    }
}
