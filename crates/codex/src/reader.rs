//! Reading a codex.
//!
//! A read descends from the root, through one index block a level, to one data block. Index blocks are kept up to a
//! bound; the filter is kept once asked. Data blocks are not kept: that is the caller's cache, or the cursor's place.

use std::collections::BTreeMap;
use std::io;
use std::sync::{OnceLock, PoisonError, RwLock};

use bytes::Bytes;

use crate::block::{Aim, Block, Spot};
use crate::cursor::Cursor;
use crate::error::{Error, Result, damaged};
use crate::filter::Filter;
use crate::format::{FOOTER, Footer, Ptr, decode_frame, u64_at};
use crate::source::Source;

/// What [`Reader::set_index_cache`] is at first: the lowest index level of some 10 GiB of data.
const INDEX_CACHE: usize = 32 << 20;

/// Reads a codex from a [`Source`]. Shared freely between threads; a read blocks no other.
///
/// Every read gives [`Error::Damaged`] where the file does not hold what was written, and [`Error::Io`] where the source
/// fails.
#[derive(Debug)]
pub struct Reader<S: Source> {
    source: S,
    footer: Footer,
    footer_at: u64,
    footer_sum: u64,
    filter: OnceLock<Option<Filter>>,
    index: RwLock<IndexCache>,
}

impl<S: Source> Reader<S> {
    /// Opens the codex of `len` bytes in `source`. Reads the footer only. `footer_sum` is what
    /// [`Summary::footer_sum`](crate::Summary::footer_sum) said, where the caller kept it: with it, any other codex in
    /// the place of this one is noticed.
    ///
    /// # Errors
    /// [`Error::Newer`]; [`Error::NotACodex`], which is [`Error::Damaged`] where `footer_sum` is given; [`Error::Io`].
    pub fn open(source: S, len: u64, footer_sum: Option<u64>) -> Result<Self> {
        let Some(footer_at) = len.checked_sub(FOOTER as u64) else {
            return if footer_sum.is_some() {
                damaged(0, "the file is cut short")
            } else {
                Err(Error::NotACodex)
            };
        };
        let data = fetch(&source, footer_at, FOOTER)?;
        let Ok(data) = <&[u8; FOOTER]>::try_from(&data[..]) else {
            return damaged(footer_at, "the source gave another length than asked for");
        };
        let footer = Footer::decode(data, footer_at, footer_sum)?;
        let index = IndexCache { blocks: BTreeMap::new(), memory: 0, most: INDEX_CACHE };
        Ok(Reader {
            source,
            footer,
            footer_at,
            footer_sum: u64_at(data, FOOTER - 8),
            filter: OnceLock::new(),
            index: RwLock::new(index),
        })
    }

    /// Holds the index blocks that are kept to `bytes` of memory, 32 MiB at first. The lowest level goes first.
    pub fn set_index_cache(&mut self, bytes: usize) {
        let index = self.index.get_mut().unwrap_or_else(PoisonError::into_inner);
        index.most = bytes;
        index.shrink();
    }

    /// The identity given by [`BuilderOptions::id`](crate::BuilderOptions::id).
    pub fn id(&self) -> u64 {
        self.footer.id
    }

    /// How many entries there are.
    pub fn entries(&self) -> u64 {
        self.footer.entries
    }

    /// How many data blocks there are.
    pub fn blocks(&self) -> u64 {
        self.footer.blocks
    }

    /// All data blocks before compressing, in bytes.
    pub fn raw_bytes(&self) -> u64 {
        self.footer.raw_bytes
    }

    /// Length of the file, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "of the file, which is never empty")]
    pub fn len(&self) -> u64 {
        self.footer_at + FOOTER as u64
    }

    /// The footer's checksum, as in [`Summary::footer_sum`](crate::Summary::footer_sum).
    pub fn footer_sum(&self) -> u64 {
        self.footer_sum
    }

    /// The source it reads from.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// The metadata given to [`Builder::finish_with`](crate::Builder::finish_with), read anew each time; `None` where
    /// none was.
    ///
    /// # Errors
    /// As any read.
    pub fn metadata(&self) -> Result<Option<Bytes>> {
        self.footer.metadata.some().map(|ptr| self.load(ptr, self.footer_at)).transpose()
    }

    /// Whether `hash` may have been given to [`Builder::add_filter`](crate::Builder::add_filter): `false` is certain,
    /// `true` is not. Always `true` without a filter. The first call reads the filter, which is then kept.
    ///
    /// # Errors
    /// As any read.
    pub fn may_contain(&self, hash: u64) -> Result<bool> {
        let filter = match self.filter.get() {
            Some(filter) => filter,
            None => {
                let filter = self.load_filter()?; // twice at worst, where two threads come first
                self.filter.get_or_init(|| filter)
            }
        };
        Ok(filter.as_ref().is_none_or(|filter| filter.may_contain(hash)))
    }

    /// The value of `key`. It shares the memory of its decoded block, which it keeps alive.
    ///
    /// # Errors
    /// As any read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        let Some((mut ptr, mut limit)) = self.root() else {
            return Ok(None);
        };
        let mut spot = Spot::default();
        for _ in 0..self.levels() {
            spot.enter(self.index_block(ptr, limit)?);
            if !spot.aim(Aim::AtMost(key))? {
                return Ok(None);
            }
            (ptr, limit) = (spot.ptr()?, spot.block().at());
        }
        spot.enter(self.block(ptr, limit)?);
        Ok((spot.aim(Aim::AtMost(key))? && spot.key() == key).then(|| spot.value()))
    }

    /// A cursor that borrows this reader. [`Cursor::new`] makes one that shares it.
    pub fn cursor(&self) -> Cursor<&Self> {
        Cursor::new(self)
    }

    /// Memory held by the filter and the index blocks, in bytes.
    pub fn memory(&self) -> usize {
        let filter = self.filter.get().and_then(Option::as_ref).map_or(0, Filter::memory);
        filter + self.index.read().unwrap_or_else(PoisonError::into_inner).memory
    }

    pub(crate) fn footer(&self) -> &Footer {
        &self.footer
    }

    pub(crate) fn footer_at(&self) -> u64 {
        self.footer_at
    }

    pub(crate) fn levels(&self) -> usize {
        self.footer.levels as usize
    }

    /// Where the root is, and the byte it has to end by.
    pub(crate) fn root(&self) -> Option<(Ptr, u64)> {
        Some((self.footer.root.some()?, self.footer_at))
    }

    /// Reads a block from the source. `limit` is the byte it has to end by: that of whatever points to it.
    pub(crate) fn block(&self, ptr: Ptr, limit: u64) -> Result<Block> {
        Block::new(self.load(ptr, limit)?, ptr.offset)
    }

    /// Like [`block`](Self::block), from the cache where it is there.
    pub(crate) fn index_block(&self, ptr: Ptr, limit: u64) -> Result<Block> {
        let kept = self.index.read().unwrap_or_else(PoisonError::into_inner).blocks.get(&ptr.offset).cloned();
        if let Some(block) = kept {
            return Ok(block);
        }
        let block = self.block(ptr, limit)?;
        self.index.write().unwrap_or_else(PoisonError::into_inner).keep(&block);
        Ok(block)
    }

    pub(crate) fn load_filter(&self) -> Result<Option<Filter>> {
        let filter = |ptr: Ptr| Filter::new(self.load(ptr, self.footer_at)?, ptr.offset);
        self.footer.filter.some().map(filter).transpose()
    }

    fn load(&self, ptr: Ptr, limit: u64) -> Result<Bytes> {
        if ptr.end() > limit {
            return damaged(ptr.offset, "a pointer leads out of its bounds");
        }
        decode_frame(&fetch(&self.source, ptr.offset, ptr.len as usize)?, ptr)
    }
}

/// Reads from the source. Its end is damage: whoever asks knows the file to be longer.
fn fetch(source: &impl Source, offset: u64, len: usize) -> Result<Bytes> {
    source.read(offset, len).or_else(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(offset, "the file is cut short"),
        _ => Err(error.into()),
    })
}

/// Index blocks by offset. Where room is short the first go: the levels lie bottom up in the file, so that those are of
/// the lowest level, and the root stays.
#[derive(Debug)]
struct IndexCache {
    blocks: BTreeMap<u64, Block>,
    memory: usize,
    most: usize,
}

impl IndexCache {
    fn keep(&mut self, block: &Block) {
        if self.blocks.insert(block.at(), block.clone()).is_none() {
            self.memory += block.memory();
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        while self.memory > self.most {
            let Some((_, block)) = self.blocks.pop_first() else { break };
            self.memory -= block.memory();
        }
    }
}

#[cfg(test)]
mod tests;
