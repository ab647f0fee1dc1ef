//! Checking a whole codex.
//!
//! The walk goes down from the root, in key order, and holds one block a level. Each level must be
//! without gaps; each level, the filter, the metadata and the footer must follow the part before.
//! So every byte of the file is under a checksum that held, and no block is read twice, for any
//! pointers.

use std::ops::ControlFlow;

use crate::ahead::Ahead;
use crate::apart::List;
use crate::block::{Block, Spot};
use crate::error::{Error, Result, damaged};
use crate::format::{Footer, NOTES, Ptr};
use crate::notes;
use crate::progress::Progress;
use crate::reader::{Reader, read_footer};
use crate::source::Source;

/// The result of a successful [`Reader::verify`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Verified {
    /// Number of entries.
    pub entries: u64,
    /// Number of data blocks.
    pub blocks: u64,
    /// Number of index blocks.
    pub index_blocks: u64,
    /// Number of hashes that the filter was built from.
    pub filter_items: u64,
    /// Number of items of the filter that have a note.
    pub notes: u64,
    /// Number of bytes read: the whole file.
    pub bytes: u64,
}

impl<S: Source> Reader<S> {
    /// Reads the whole file from the source, without the cache, and checks it: all checksums, the
    /// order of the keys, the statements of index and footer about the data, and that no byte is
    /// left over. Calls `progress` after each block.
    ///
    /// # Errors
    /// [`Error::Damaged`] with the offset of the first damage; [`Error::Io`]; [`Error::Cancelled`]
    /// if `progress` returns `Break`.
    pub fn verify(&self, progress: impl FnMut(Progress) -> ControlFlow<()>) -> Result<Verified> {
        self.verify_each(progress, |_, _| {})
    }

    /// Checks the whole file like [`verify`](Self::verify), and passes each entry to `entry` in key
    /// order, once its block is checked: the key, and the value unless it is stored outside its
    /// block.
    #[expect(clippy::missing_errors_doc, reason = "said at `verify`")]
    pub fn verify_each(
        &self,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
        mut entry: impl FnMut(&[u8], Option<&[u8]>),
    ) -> Result<Verified> {
        // Read again, because the footer from `open` says nothing about the file now.
        let (footer, ..) = read_footer(self.source(), self.len(), Some(self.footer_sum()))?;
        let mut walk = Walk {
            reader: self,
            levels: vec![None; self.levels() + 1],
            last: None,
            found: Verified { entries: 0, blocks: 0, index_blocks: 0, filter_items: 0, notes: 0, bytes: 0 },
            raw_bytes: 0,
            pages: self.page_spans(&footer)?,
            ahead: Ahead::default(),
            progress: &mut progress,
            entry: &mut entry,
        };
        if let Some((root, limit)) = self.root() {
            walk.block(self.levels(), root, limit, None)?;
        }
        walk.skip_pages();
        if !walk.pages.is_empty() {
            return damaged(walk.pages[0].0, "pages of notes do not lie between data blocks");
        }
        let mut end = 0;
        for span in walk.levels.iter().flatten() {
            end = follows(end, span.0)?.max(span.1);
        }
        if let Some(root) = footer.filter.some() {
            end = walk.filter(root, end)?;
        }
        if let (Some(ptr), Some(_)) = (self.footer().metadata.some(), self.metadata()?) {
            follows(end, ptr.offset)?;
            end = ptr.end();
            walk.done(ptr.len.into())?;
        }
        follows(end, self.footer_at())?;
        walk.done(self.len() - self.footer_at())?;
        let (found, raw_bytes) = (walk.found, walk.raw_bytes);
        if (found.entries, found.blocks, raw_bytes) != (footer.entries, footer.blocks, footer.raw_bytes) {
            return damaged(self.footer_at(), "the footer's counts are not those of the data");
        }
        Ok(found)
    }
}

impl<S: Source> Reader<S> {
    /// Returns the first byte and the end of the pages of each part of the filter, the last part
    /// first.
    fn page_spans(&self, footer: &Footer) -> Result<Vec<(u64, u64)>> {
        let mut spans = Vec::new();
        let Some(root) = footer.filter.some().filter(|_| footer.version >= NOTES) else {
            return Ok(spans);
        };
        let mut spot = Spot::default();
        spot.enter(self.block(root, self.footer_at())?);
        while spot.step()? {
            let part = self.filter_part(spot.ptr()?, root.offset)?;
            let ends = part.pages().map(|page| (page.offset, page.end()));
            spans.extend(ends.reduce(|(start, _), (_, end)| (start, end)));
        }
        spans.reverse();
        Ok(spans)
    }
}

fn follows(end: u64, start: u64) -> Result<u64> {
    if start == end {
        Ok(end)
    } else {
        damaged(end.min(start), "parts of the file do not follow one another")
    }
}

/// A receiver of entries: key, and value unless it is stored outside its block.
type Visit<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

struct Walk<'a, S: Source> {
    reader: &'a Reader<S>,
    /// First byte and end of the part of each level seen so far, from the data up.
    levels: Vec<Option<(u64, u64)>>,
    /// The last key seen.
    last: Option<Vec<u8>>,
    found: Verified,
    raw_bytes: u64,
    /// First byte and end of the pages of each part of the filter, the last part first.
    pages: Vec<(u64, u64)>,
    /// Reads ahead of data blocks, which follow one another.
    ahead: Ahead,
    progress: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    entry: &'a mut Visit<'a>,
}

impl<S: Source> Walk<'_, S> {
    /// Checks a block and all blocks below it; at most as deep as the footer's levels. `first` is
    /// the first key that the parent block states.
    fn block(&mut self, level: usize, ptr: Ptr, limit: u64, first: Option<&[u8]>) -> Result<()> {
        if level == 0 {
            let block = self.reader.block_ahead(ptr, limit, &mut self.ahead)?;
            // Pieces directly before the block belong to it.
            let start = self.data(&block, first)?;
            self.span(level, start, ptr.end())?;
            self.done(ptr.end() - start)?;
            return Ok(());
        }
        let block = self.reader.block(ptr, limit)?;
        self.span(level, ptr.offset, ptr.end())?;
        self.done(ptr.len.into())?;
        self.index(level, &block, first)
    }

    /// Extends the span of a level; the new part must follow the span.
    fn span(&mut self, level: usize, start: u64, end: u64) -> Result<()> {
        if level == 0 {
            self.skip_pages();
        }
        let span = self.levels[level].get_or_insert((start, start));
        if span.1 != start {
            return damaged(start, "a block does not follow the previous block");
        }
        span.1 = end;
        Ok(())
    }

    /// Extends the span of the data by the pages of notes that follow it.
    fn skip_pages(&mut self) {
        let span = self.levels[0].get_or_insert((0, 0));
        while let Some((_, end)) = self.pages.pop_if(|pages| pages.0 == span.1) {
            span.1 = end;
        }
    }

    /// Checks a data block, and the pieces of a value before it; returns the start of these pieces.
    fn data(&mut self, block: &Block, first: Option<&[u8]>) -> Result<u64> {
        let (mut entries, mut end, mut start) = (0, Vec::new(), block.at());
        block.check(|spot| {
            let stored = spot.stored();
            (self.entry)(spot.key(), (!stored.apart).then_some(&stored.bytes[..]));
            if let Some(list) = List::of(&stored)? {
                start = list.start();
                list.check(self.reader)?;
            }
            if entries == 0 {
                if first.is_some_and(|first| first != spot.key()) {
                    return damaged(block.at(), "the block does not begin with the key in the index");
                }
                if self.last.as_deref().is_some_and(|last| last >= spot.key()) {
                    return damaged(block.at(), "keys do not ascend from block to block");
                }
            }
            entries += 1;
            end.clear();
            end.extend_from_slice(spot.key());
            Ok(())
        })?;
        self.last = Some(end);
        self.found.entries += entries;
        self.found.blocks += 1;
        self.raw_bytes += block.memory() as u64;
        Ok(start)
    }

    fn index(&mut self, level: usize, block: &Block, mut first: Option<&[u8]>) -> Result<()> {
        self.found.index_blocks += 1;
        block.check(|spot| {
            if first.take().is_some_and(|first| first != spot.key()) {
                return damaged(block.at(), "the block does not begin with the key in the index");
            }
            self.block(level - 1, spot.ptr()?, block.at(), Some(spot.key()))
        })
    }

    /// Checks the filter, which must begin at `end`, and returns its end.
    fn filter(&mut self, root: Ptr, end: u64) -> Result<u64> {
        let footer_at = self.reader.footer_at();
        if self.reader.footer().version == 1 {
            self.part(root, footer_at, end)?;
            return Ok(root.end());
        }
        let (directory, mut at) = (self.reader.block(root, footer_at)?, end);
        directory.check(|spot| {
            let ptr = spot.ptr()?;
            self.part(ptr, root.offset, at)?;
            at = ptr.end();
            Ok(())
        })?;
        follows(at, root.offset)?;
        self.done(root.len.into())?;
        Ok(root.end())
    }

    fn part(&mut self, ptr: Ptr, limit: u64, end: u64) -> Result<()> {
        follows(end, ptr.offset)?;
        let filter = self.reader.filter_part(ptr, limit)?;
        self.found.filter_items = self.found.filter_items.saturating_add(filter.items());
        for page in filter.pages() {
            self.found.notes += notes::check_order(&self.reader.page(page)?, page.offset)?;
            self.done(page.len.into())?;
        }
        self.done(ptr.len.into())
    }

    fn done(&mut self, bytes: u64) -> Result<()> {
        self.found.bytes += bytes;
        let progress =
            Progress { entries: self.found.entries, bytes: self.found.bytes, ..Progress::default() };
        if (self.progress)(progress).is_break() { Err(Error::Cancelled) } else { Ok(()) }
    }
}
