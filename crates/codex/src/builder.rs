//! Writing a codex, front to back, in one pass.
//!
//! Data blocks go out as they fill. The level of the index above them is kept as it will be stored, and follows at the
//! end; each level above is made while the one below is written, as only then its pointers are known. A level of one
//! block ends that: the block is the root.

use std::io;
use std::mem;

use crate::block::BlockBuilder;
use crate::error::{Error, Result};
use crate::filter::FilterBuilder;
use crate::format::{
    FOOTER, FRAME_HEAD, Footer, MAX_KEY, MAX_METADATA, MAX_VALUE, POINTER, Ptr, VERSION, encode_frame, sum,
    u64_at,
};

/// The smallest and largest target for a block: what is smaller is all overhead, what is larger is slow to read in.
const BLOCK_SIZES: std::ops::RangeInclusive<usize> = 64..=16 << 20;
/// An index block has this many children at least, however long the keys, so that the levels come to an end.
const LEAST_CHILDREN: usize = 4;

/// How to build a codex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuilderOptions {
    /// Target for a block before compressing, in bytes, held to 64 B ..= 16 MiB. A read takes in at least one block; a
    /// longer entry gets a block of its own. Default 16 KiB: a few device pages once compressed.
    pub block_size: usize,
    /// Compress blocks by LZ4, where that saves 1/16 or more. Default `true`.
    pub compress: bool,
    /// Bits of filter for each hash given to [`Builder::add_filter`]; 0 for no filter. Default 10: one in a hundred
    /// questions about absent items is answered "maybe". 12: one in two hundred.
    pub bits_per_item: u32,
    /// The caller's seed for those hashes, kept in the footer, so that nobody who cannot read the file can choose items
    /// that its filter takes for one another. Default 0.
    pub filter_seed: u64,
    /// The caller's identity for the file, kept in the footer. Default 0.
    pub id: u64,
}

impl Default for BuilderOptions {
    fn default() -> Self {
        BuilderOptions { block_size: 16 << 10, compress: true, bits_per_item: 10, filter_seed: 0, id: 0 }
    }
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Length of the file, in bytes.
    pub len: u64,
    /// Entries.
    pub entries: u64,
    /// Data blocks before compressing, in bytes.
    pub raw_bytes: u64,
    /// Data blocks.
    pub blocks: u64,
    /// The footer's checksum. Covers the whole file by the checksums below it; see
    /// [`Reader::open`](crate::Reader::open).
    pub footer_sum: u64,
}

/// Builds a codex from sorted entries, writing to `W` from front to back.
///
/// ```
/// # use brooklet_codex::{Builder, BuilderOptions, Error};
/// let mut builder = Builder::new(Vec::new(), BuilderOptions::default());
/// builder.add(b"b", b"1")?;
/// assert!(matches!(builder.add(b"a", b"2"), Err(Error::OutOfOrder { entry: 1 }))); // refused; the rest is kept
/// let (summary, file) = builder.finish()?;
/// assert_eq!((summary.entries, summary.len), (1, file.len() as u64));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Builder<W: io::Write> {
    out: Output<W>,
    options: BuilderOptions,
    block: BlockBuilder,
    first: Vec<u8>,
    last: Vec<u8>,
    index: Level,
    filter: FilterBuilder,
    entries: u64,
    raw_bytes: u64,
    blocks: u64,
}

impl<W: io::Write> Builder<W> {
    /// A builder that writes to `out`, one block at a time. Nothing is written yet.
    pub fn new(out: W, options: BuilderOptions) -> Self {
        let block_size = options.block_size.clamp(*BLOCK_SIZES.start(), *BLOCK_SIZES.end());
        Builder {
            out: Output { out, written: 0, frame: Vec::new(), failed: false },
            filter: FilterBuilder::new(options.bits_per_item),
            options: BuilderOptions { block_size, ..options },
            block: BlockBuilder::default(),
            first: Vec::new(),
            last: Vec::new(),
            index: Level::default(),
            entries: 0,
            raw_bytes: 0,
            blocks: 0,
        }
    }

    /// Adds an entry. Its key must be greater than the one before, byte by byte; the empty key comes first.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] and [`Error::TooLarge`] leave the builder as it was. After [`Error::Io`] every call fails.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_len("the key", key.len(), MAX_KEY)?;
        check_len("the value", value.len(), MAX_VALUE)?;
        if self.entries > 0 && key <= self.last.as_slice() {
            return Err(Error::OutOfOrder { entry: self.entries });
        }
        self.out.check()?;
        if self.block.entries() > 0
            && self.block.len() + BlockBuilder::most(key, value) > self.options.block_size
        {
            self.close_block()?;
        }
        if self.block.entries() == 0 {
            self.first.clear();
            self.first.extend_from_slice(key);
        }
        self.block.add(key, value);
        self.filter.key(key);
        self.last.clear();
        self.last.extend_from_slice(key);
        self.entries += 1;
        Ok(())
    }

    /// Adds a hash to the filter, for the key that is added next: of that key, or of whatever part of it readers ask
    /// [`may_contain`](crate::Reader::may_contain) about. The same hash many times in a row counts once.
    pub fn add_filter(&mut self, hash: u64) {
        self.filter.add(hash);
    }

    /// Bytes handed to the output so far. The file will be longer by the current block, the index and the filter.
    pub fn written(&self) -> u64 {
        self.out.written
    }

    /// The most bytes that the file can have, if an entry with a key and a value of these lengths, and `hashes` for the
    /// filter, were added, and then it were [`finish`](Self::finish)ed. For who has only so much room: it is told at once,
    /// without looking at what was written.
    pub fn size_with(&self, key: usize, value: usize, hashes: usize) -> u64 {
        let open = self.block.len()
            + FRAME_HEAD
            + BlockBuilder::EMPTY
            + FRAME_HEAD
            + BlockBuilder::most_len(key, value);
        let first = key.max(self.first.len());
        self.out.written
            + open as u64
            + self.index.most(first)
            + self.filter.most(key, hashes)
            + FOOTER as u64
    }

    /// Completes the file. Flushing the output, and making it durable, is the caller's part.
    ///
    /// # Errors
    /// [`Error::Io`]: discard the file.
    pub fn finish(self) -> Result<(Summary, W)> {
        self.finish_with(&[])
    }

    /// Like [`finish`](Self::finish), with metadata of the caller's for [`Reader::metadata`](crate::Reader::metadata);
    /// empty for none.
    ///
    /// # Errors
    /// [`Error::TooLarge`] over [`MAX_METADATA`] bytes, [`Error::Io`]: discard the file.
    pub fn finish_with(mut self, metadata: &[u8]) -> Result<(Summary, W)> {
        check_len("the metadata", metadata.len(), MAX_METADATA)?;
        self.out.check()?;
        if self.block.entries() > 0 {
            self.close_block()?;
        }
        let (root, levels) = self.write_index()?;
        let filter = self.write_filter()?;
        let mut meta = Ptr::NONE;
        if !metadata.is_empty() {
            meta = self.out.block(metadata, self.options.compress)?;
        }
        let footer = Footer {
            version: VERSION,
            levels,
            id: self.options.id,
            entries: self.entries,
            raw_bytes: self.raw_bytes,
            blocks: self.blocks,
            root,
            filter,
            metadata: meta,
            seed: self.options.filter_seed,
        }
        .encode();
        self.out.write(&footer)?;
        let summary = Summary {
            len: self.out.written,
            entries: self.entries,
            raw_bytes: self.raw_bytes,
            blocks: self.blocks,
            footer_sum: u64_at(&footer, FOOTER - 8),
        };
        Ok((summary, self.out.out))
    }

    fn close_block(&mut self) -> Result<()> {
        let raw = self.block.finish();
        self.raw_bytes += raw.len() as u64;
        self.blocks += 1;
        let ptr = self.out.block(raw, self.options.compress)?;
        self.block.reset();
        self.index.push(&self.first, ptr, &self.options);
        Ok(())
    }

    /// Writes the index, level by level, and says where the root is and how many levels there are.
    fn write_index(&mut self) -> Result<(Ptr, u32)> {
        let (mut level, mut levels) = (mem::take(&mut self.index), 0);
        while level.children > 1 {
            level.close(&self.options);
            let mut above = Level::default();
            for (first, frame) in level.blocks {
                let ptr = self.out.frame(&frame)?;
                above.push(&first, ptr, &self.options);
            }
            (level, levels) = (above, levels + 1);
        }
        Ok((level.last, levels))
    }

    /// Writes the filter and says where its directory is.
    fn write_filter(&mut self) -> Result<Ptr> {
        let parts = mem::replace(&mut self.filter, FilterBuilder::new(0)).finish();
        if parts.is_empty() {
            return Ok(Ptr::NONE);
        }
        let mut directory = BlockBuilder::default();
        for (first, part) in parts {
            directory.add(&first, &self.out.block(&part, false)?.encode());
        }
        self.out.block(directory.finish(), false)
    }
}

fn check_len(what: &'static str, len: usize, max: usize) -> Result<()> {
    if len > max { Err(Error::TooLarge { what, len, max }) } else { Ok(()) }
}

/// One level of the index: the blocks that are full, and the one that is filling.
#[derive(Debug, Default)]
struct Level {
    /// First key and frame of each block.
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    filling: BlockBuilder,
    first: Vec<u8>,
    children: u64,
    /// The child added last; the root, where it is the only one.
    last: Ptr,
    /// Bytes of the frames of full blocks, and the most that the pointers to them can take in the level above.
    frames: u64,
    above: u64,
}

impl Level {
    /// The most bytes that this level and all above it take with two children more, whose first keys have up to `first`
    /// bytes.
    fn most(&self, first: usize) -> u64 {
        let frame = (FRAME_HEAD + BlockBuilder::EMPTY) as u64;
        let pointer = |first: usize| BlockBuilder::most_len(first, POINTER) as u64;
        // Each of the two may come to lie in a block of its own.
        let this = self.frames + (FRAME_HEAD + self.filling.len()) as u64 + 2 * (pointer(first) + frame);
        let mut blocks = self.blocks.len() as u64 + 3;
        let above = self.above + pointer(self.first.len()) + 2 * pointer(first);
        let mut most = this;
        // The first keys of a level are some of those of the level below.
        while blocks > 1 {
            let parents = blocks.div_ceil(LEAST_CHILDREN as u64);
            most += above + parents * frame;
            blocks = parents;
        }
        most
    }

    fn push(&mut self, first: &[u8], ptr: Ptr, options: &BuilderOptions) {
        let value = ptr.encode();
        let full = self.filling.len() + BlockBuilder::most(first, &value) > options.block_size;
        if full && self.filling.entries() >= LEAST_CHILDREN {
            self.close(options);
        }
        if self.filling.entries() == 0 {
            self.first = first.to_vec();
        }
        self.filling.add(first, &value);
        self.children += 1;
        self.last = ptr;
    }

    fn close(&mut self, options: &BuilderOptions) {
        let mut frame = Vec::new();
        encode_frame(self.filling.finish(), options.compress, &mut frame);
        frame.shrink_to_fit();
        self.filling.reset();
        self.frames += frame.len() as u64;
        self.above += BlockBuilder::most_len(self.first.len(), POINTER) as u64;
        self.blocks.push((mem::take(&mut self.first), frame));
    }
}

/// The output, which after a failed write takes no more: nobody knows what of it arrived.
#[derive(Debug)]
struct Output<W> {
    out: W,
    written: u64,
    /// The frame at work, kept for its memory.
    frame: Vec<u8>,
    failed: bool,
}

impl<W: io::Write> Output<W> {
    fn check(&self) -> Result<()> {
        if self.failed {
            return Err(io::Error::other("an earlier write failed; discard this file").into());
        }
        Ok(())
    }

    fn block(&mut self, raw: &[u8], compress: bool) -> Result<Ptr> {
        let mut frame = mem::take(&mut self.frame);
        encode_frame(raw, compress, &mut frame);
        let ptr = self.frame(&frame);
        self.frame = frame;
        ptr
    }

    fn frame(&mut self, frame: &[u8]) -> Result<Ptr> {
        let len = u32::try_from(frame.len()).expect("blocks are bounded");
        let ptr = Ptr { offset: self.written, len, sum: sum(frame) };
        self.write(frame)?;
        Ok(ptr)
    }

    fn write(&mut self, data: &[u8]) -> Result<()> {
        self.check()?;
        self.failed = true;
        self.out.write_all(data)?;
        self.failed = false;
        self.written += data.len() as u64;
        Ok(())
    }
}

/// Files with sound checksums that no builder should have made: only [`Reader::verify`](crate::Reader::verify) can tell.
#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{Reader, Verified};

    /// Verifies a file of several levels that `spoil` may do something to in the middle.
    fn verify(spoil: impl FnOnce(&mut Builder<Vec<u8>>)) -> Result<Verified> {
        let mut builder = Builder::new(Vec::new(), BuilderOptions { block_size: 64, ..Default::default() });
        (0..100u8).for_each(|n| builder.add(&[1, n], &[n; 30]).unwrap());
        spoil(&mut builder);
        (100..200u8).for_each(|n| builder.add(&[1, n], &[n; 30]).unwrap());
        let (summary, file) = builder.finish().unwrap();
        Reader::open(Bytes::from(file), summary.len, Some(summary.footer_sum))?.verify(&mut |_| {})
    }

    #[track_caller]
    fn refused(because: &str, spoil: impl FnOnce(&mut Builder<Vec<u8>>)) {
        match verify(spoil) {
            Err(Error::Damaged { what, .. }) => assert!(what.contains(because), "{what}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn verify_tells_what_checksums_cannot() {
        assert_eq!(verify(|_| {}).unwrap().entries, 200);
        refused("does not follow the one before", |builder| {
            builder.close_block().unwrap();
            builder.out.write(b"gap").unwrap();
        });
        refused("ascend from block to block", |builder| {
            builder.close_block().unwrap();
            builder.add(&[1, 99, 0], b"").unwrap();
            builder.add(&[9], b"").unwrap();
            builder.close_block().unwrap();
            builder.last.clear();
        });
        refused("keys do not ascend", |builder| {
            builder.close_block().unwrap();
            builder.add(&[1, 99, 1], b"").unwrap();
            builder.last.clear();
            builder.add(&[1, 99, 0], b"").unwrap();
        });
        refused("the key that the index says", |builder| builder.first = vec![1, 98, 9]);
        refused("counts", |builder| builder.entries += 1);
        refused("counts", |builder| builder.blocks += 1);
        refused("counts", |builder| builder.raw_bytes += 1);
        refused("no pointer", |builder| {
            builder.index.filling.reset();
            builder.index.filling.add(&builder.index.first, b"not 20 bytes");
        });
    }
}
