//! Reading a codex.
//!
//! A look-up descends from the root through one index block a level to one data block. A filter
//! look-up (`filter_lookup.rs`) reads the filter's directory and one part. The cache alone keeps
//! the blocks that were read: when the cache is full, a look-up costs one small read for each
//! block. For a file in memory, many look-ups bypass the index (`fences.rs`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::ahead::Ahead;
use crate::block::{Aim, Block, Spot, Stored};
use crate::cache::{Cache, Kept, Key};
use crate::class::Class;
use crate::directory::{Directory, Held};
use crate::error::{Error, Result, damaged};
use crate::fences::{Fences, Place};
use crate::format::{FOOTER, Footer, Ptr, check_bounds, decode_frame, is_raw, u64_at};
use crate::source::{Source, fetch};

/// Budget of a reader's own cache, in bytes.
const CACHE: usize = 32 << 20;
/// A file in memory gets fences after one look-up for every 8 of its blocks.
const FENCED: u64 = 8;
/// The cache also keeps a value by itself, if it is at most half of its block.
const VALUE_PART: usize = 2;

/// A reader of a codex in a [`Source`]. Threads may share it freely; no read blocks another.
///
/// Every read fails with [`Error::Damaged`] if the file does not hold the data that was written,
/// and with [`Error::Io`] if the source fails.
#[derive(Debug)]
pub struct Reader<S: Source> {
    pub(crate) source: S,
    pub(crate) footer: Footer,
    pub(crate) footer_at: u64,
    footer_sum: u64,
    pub(crate) cache: Arc<Cache>,
    /// The reader's number in the cache.
    pub(crate) number: u64,
    pub(crate) filter: Arc<Held>,
    /// Number of look-ups before the fences were made, and the fences.
    asked: AtomicU64,
    fences: OnceLock<Option<Fences>>,
}

impl<S: Source> Reader<S> {
    /// Opens the codex of `len` bytes in `source`, with its own cache of 32 MiB. Reads only the
    /// footer. `footer_sum` is the kept [`Summary::footer_sum`](crate::Summary::footer_sum): with
    /// it, the reader notices any other codex in place of this one.
    ///
    /// If the [source is memory](Source::is_memory), a reader with many look-ups uses 32 more bytes
    /// for each data block, up to 32 MiB.
    ///
    /// # Errors
    /// [`Error::Newer`]; [`Error::NotACodex`], or [`Error::Damaged`] in its place if `footer_sum`
    /// is given; [`Error::Io`].
    pub fn open(source: S, len: u64, footer_sum: Option<u64>) -> Result<Self> {
        Self::open_with(source, len, footer_sum, Arc::new(Cache::new(CACHE)))
    }

    /// Opens the codex like [`open`](Self::open), with the given cache. Dropping the reader removes
    /// its entries from `cache`.
    #[expect(clippy::missing_errors_doc, reason = "said at `open`")]
    pub fn open_with(source: S, len: u64, footer_sum: Option<u64>, cache: Arc<Cache>) -> Result<Self> {
        let (footer, footer_at, footer_sum) = read_footer(&source, len, footer_sum)?;
        let number = cache.join();
        let filter = Arc::<Held>::default();
        if footer.version == 1 {
            filter.put_directory(Directory::of_one(footer.filter, footer_at));
        }
        let (asked, fences) = (AtomicU64::new(0), OnceLock::new());
        Ok(Reader { source, footer, footer_at, footer_sum, cache, number, filter, asked, fences })
    }

    /// Returns the identity given by [`BuilderOptions::id`](crate::BuilderOptions::id).
    pub fn id(&self) -> u64 {
        self.footer.id
    }

    /// Returns the seed given by
    /// [`BuilderOptions::filter_seed`](crate::BuilderOptions::filter_seed).
    pub fn filter_seed(&self) -> u64 {
        self.footer.seed
    }

    /// Returns the format version of the file.
    pub fn version(&self) -> u32 {
        self.footer.version
    }

    /// Returns the number of entries.
    pub fn entries(&self) -> u64 {
        self.footer.entries
    }

    /// Returns the number of data blocks.
    pub fn blocks(&self) -> u64 {
        self.footer.blocks
    }

    /// Returns the size of all data blocks before compression, in bytes.
    pub fn raw_bytes(&self) -> u64 {
        self.footer.raw_bytes
    }

    /// Returns the length of the file, in bytes.
    #[expect(clippy::len_without_is_empty, reason = "of the file, which is never empty")]
    pub fn len(&self) -> u64 {
        self.footer_at + FOOTER as u64
    }

    /// Returns the footer's checksum, as in [`Summary::footer_sum`](crate::Summary::footer_sum).
    pub fn footer_sum(&self) -> u64 {
        self.footer_sum
    }

    /// Returns the source of the reader.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Returns the metadata given to [`Builder::finish_with`](crate::Builder::finish_with); `None`
    /// if none was given. Each call reads the metadata again.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn metadata(&self) -> Result<Option<Bytes>> {
        self.footer.metadata.some().map(|ptr| self.load(ptr, self.footer_at)).transpose()
    }

    /// Returns the value of `key`. The returned bytes share the memory of the cache, and may keep a
    /// whole decoded block alive.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        self.get_counted(key, &mut 0, true)
    }

    /// Returns the value of `key` like [`get`](Self::get). Adds one to `read` if the cache did not
    /// have the data block. `keep`: whether the cache keeps a small value; a caller that keeps the
    /// result of its look-up elsewhere needs no second copy.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn get_counted(&self, key: &[u8], read: &mut u64, keep: bool) -> Result<Option<Bytes>> {
        if self.source.is_memory() {
            return self.find(key)?.map(|stored| self.value_of(stored)).transpose();
        }
        let place = Key::of_value(self.number, self.footer.seed, key);
        let kept = self.cache.look(place, |kept| match kept {
            Kept::Value(its_key, value) if **its_key == *key => Some(value.clone()),
            _ => None,
        });
        if kept.is_some() {
            return Ok(kept);
        }
        let Some((block, was_read)) = self.descend(key)? else { return Ok(None) };
        let found = block.floor(key)?.and_then(|(stored, exact)| exact.then_some(stored));
        if let Some(ptr) = was_read {
            *read += 1;
            self.keep_found(keep.then_some((place, key)), (self.key(ptr), &block), found.as_ref());
        }
        found.map(|stored| self.value_of(stored)).transpose()
    }

    /// Caches the result of a look-up: a small value by itself, at its place, and a large value
    /// with its block.
    fn keep_found(&self, own: Option<(Key, &[u8])>, (at, block): (Key, &Block), found: Option<&Stored>) {
        let is_small = |stored: &Stored| stored.bytes.len() <= block.memory() / VALUE_PART;
        match found {
            Some(stored) if !stored.apart && !is_small(stored) => {
                self.cache.keep(at, Class::Data, Kept::Block(block.clone()));
            }
            _ => {
                if let (Some(stored), Some((place, key))) = (found.filter(|stored| !stored.apart), own) {
                    let value = Kept::Value(key.into(), Bytes::copy_from_slice(&stored.bytes));
                    self.cache.keep(place, Class::Value, value);
                }
                self.cache.keep_reread(at, Kept::Block(block.clone()));
            }
        }
    }

    /// Returns the last entry whose key is `key` or less, with its value as in [`get`](Self::get).
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn get_le(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Bytes)>> {
        let Some((block, read)) = self.descend(key)? else { return Ok(None) };
        if let Some(ptr) = read {
            self.cache.keep(self.key(ptr), Class::Data, Kept::Block(block.clone()));
        }
        let mut spot = Spot::default();
        spot.enter(block);
        if !spot.aim(Aim::AtMost(key))? {
            return Ok(None);
        }
        Ok(Some((spot.key().to_vec(), self.value_of(spot.stored())?)))
    }

    /// Returns the stored value of `key`.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Stored>> {
        let Some((block, _)) = self.descend(key)? else { return Ok(None) };
        Ok(block.floor(key)?.and_then(|(stored, exact)| exact.then_some(stored)))
    }

    /// Returns the only block that can hold `key`. If the block had to be read and may be kept,
    /// also returns its pointer. `None` if all keys are greater.
    fn descend(&self, key: &[u8]) -> Result<Option<(Block, Option<Ptr>)>> {
        match self.fences().map_or(Place::Unclear, |fences| fences.find(key)) {
            Place::In(ptr) => Ok(Some((self.block(ptr, ptr.end())?, None))),
            Place::Before => Ok(None),
            Place::Unclear => self.descend_by_index(key),
        }
    }

    /// Returns the fences of a file in memory, after enough look-ups that fences pay. If the fences
    /// cannot be made, the index reports the error.
    #[inline]
    fn fences(&self) -> Option<&Fences> {
        if !self.source.is_memory() {
            return None;
        }
        if let Some(fences) = self.fences.get() {
            return fences.as_ref();
        }
        let enough = Fences::suit(self.blocks())
            && self.asked.fetch_add(1, Ordering::Relaxed) == self.blocks() / FENCED;
        if enough {
            self.fences
                .get_or_init(|| {
                    Fences::new(self.root(), self.levels(), self.blocks(), |ptr, limit| {
                        self.block(ptr, limit)
                    })
                    .ok()
                })
                .as_ref()
        } else {
            None
        }
    }

    /// Does the same as `descend`, without the fences.
    pub(crate) fn descend_by_index(&self, key: &[u8]) -> Result<Option<(Block, Option<Ptr>)>> {
        let Some((mut ptr, mut limit)) = self.root() else { return Ok(None) };
        for depth in 0..self.levels() {
            let at = ptr.offset;
            let Some(child) = self.index_child(ptr, limit, depth, key)? else { return Ok(None) };
            (ptr, limit) = (child, at);
        }
        if self.source.is_memory() {
            return Ok(Some((self.block(ptr, limit)?, None)));
        }
        check_bounds(ptr, limit)?;
        if let Some(block) = self.kept(ptr) {
            return Ok(Some((block, None)));
        }
        Ok(Some((Block::new(self.load_own(ptr, limit)?, ptr.offset)?, Some(ptr))))
    }

    /// Returns the memory that the reader's filter and index blocks take in the cache now, in
    /// bytes.
    pub fn memory(&self) -> usize {
        self.cache.overhead_of(self.number)
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

    /// Returns the pointer to the root, and the byte by which the root must end.
    pub(crate) fn root(&self) -> Option<(Ptr, u64)> {
        Some((self.footer.root.some()?, self.footer_at))
    }

    /// Reads a block from the source. `limit` is the byte by which the block must end: the offset
    /// of the block that points to it.
    pub(crate) fn block(&self, ptr: Ptr, limit: u64) -> Result<Block> {
        Block::new(self.load(ptr, limit)?, ptr.offset)
    }

    /// Reads a block like [`block`](Self::block), for a caller that goes from block to block.
    pub(crate) fn block_ahead(&self, ptr: Ptr, limit: u64, ahead: &mut Ahead) -> Result<Block> {
        check_bounds(ptr, limit)?;
        let frame = ahead.frame(&self.source, ptr, self.footer_at)?;
        Block::new(decode_frame(&frame, ptr)?, ptr.offset)
    }

    /// Returns the index block at `depth` below the root.
    pub(crate) fn index_block(&self, ptr: Ptr, limit: u64, depth: usize) -> Result<Block> {
        check_bounds(ptr, limit)?;
        if let Some(block) = self.kept(ptr) {
            return Ok(block);
        }
        let block = Block::new(self.load_own(ptr, limit)?, ptr.offset)?;
        let lowest = depth > 0 && depth + 1 == self.levels();
        let class = if lowest { Class::Leaf } else { Class::Index };
        self.cache.keep(self.key(ptr), class, Kept::Block(block.clone()));
        Ok(block)
    }

    /// Returns the child of the index block at `depth` for `key`. Searches the block inside the
    /// cache, because cloning it takes most of the time.
    fn index_child(&self, ptr: Ptr, limit: u64, depth: usize, key: &[u8]) -> Result<Option<Ptr>> {
        check_bounds(ptr, limit)?;
        let kept = self.cache.look(self.key(ptr), |kept| match kept {
            Kept::Block(block) => Some(block.floor_ptr(key)),
            _ => None,
        });
        kept.unwrap_or_else(|| self.index_block(ptr, limit, depth)?.floor_ptr(key))
    }

    /// Returns a block that the cache keeps.
    fn kept(&self, ptr: Ptr) -> Option<Block> {
        self.cache.look(self.key(ptr), |kept| match kept {
            Kept::Block(block) => Some(block.clone()),
            _ => None,
        })
    }

    pub(crate) fn key(&self, ptr: Ptr) -> Key {
        Key { reader: self.number, offset: ptr.offset, sum: ptr.sum }
    }

    pub(crate) fn load(&self, ptr: Ptr, limit: u64) -> Result<Bytes> {
        decode_frame(&self.frame(ptr, limit)?, ptr)
    }

    /// Loads a block like [`load`](Self::load), but for the cache: through the source's cache, if
    /// it has one, and in its own memory, because a kept block must not hold more of the source's
    /// memory than the cache counts.
    pub(crate) fn load_own(&self, ptr: Ptr, limit: u64) -> Result<Bytes> {
        check_bounds(ptr, limit)?;
        self.cache.missed(ptr.len);
        // A wrong cached copy is no damage: only the file counts.
        let cached = self.source.read_cached(ptr.offset, ptr.len as usize);
        if let Some(raw) = cached.and_then(|frame| decode_frame(&frame, ptr).ok()) {
            return Ok(raw);
        }
        let frame = self.frame(ptr, limit)?;
        let raw = decode_frame(&frame, ptr)?;
        Ok(if is_raw(&frame) { Bytes::copy_from_slice(&raw) } else { raw })
    }

    pub(crate) fn frame(&self, ptr: Ptr, limit: u64) -> Result<Bytes> {
        check_bounds(ptr, limit)?;
        fetch(&self.source, ptr.offset, ptr.len as usize)
    }
}

impl<S: Source> Drop for Reader<S> {
    fn drop(&mut self) {
        self.cache.leave(self.number);
    }
}

/// Reads the footer; returns it, its offset and its checksum.
pub(crate) fn read_footer(
    source: &impl Source,
    len: u64,
    expected: Option<u64>,
) -> Result<(Footer, u64, u64)> {
    let Some(footer_at) = len.checked_sub(FOOTER as u64) else {
        return if expected.is_some() { damaged(0, "the file is cut short") } else { Err(Error::NotACodex) };
    };
    let data = fetch(source, footer_at, FOOTER)?;
    let Ok(data) = <&[u8; FOOTER]>::try_from(&data[..]) else {
        return damaged(footer_at, "the source returned another length than requested");
    };
    Ok((Footer::decode(data, footer_at, expected)?, footer_at, u64_at(data, FOOTER - 8)))
}

#[cfg(test)]
mod tests;
