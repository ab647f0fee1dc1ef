//! Binding: joins the output of packers, and writes index, filter and footer after it.
//!
//! The binder keeps the index level above the data blocks as it will be stored, and writes it at
//! the end. It builds each higher level while it writes the level below, because the pointers are
//! known only then. A level of one block is the last: its block is the root.

use std::io;
use std::mem;

use crate::block::BlockBuilder;
use crate::error::{Result, check_len};
use crate::filter::Part;
use crate::format::{
    FOOTER, FRAME_HEAD, Footer, LISTS, NOTES, PLAIN, POINTER, Ptr, encode_frame, sum, u64_at,
};
use crate::limits::MAX_BLOCK;
use crate::options::BuilderOptions;
use crate::pack::Packed;

/// Minimum number of children of an index block, even with long keys, so that the number of levels
/// is finite.
const LEAST_CHILDREN: usize = 4;
/// Most bytes of the directory of the filter, which is one block. Tests have small files.
const MOST_DIRECTORY: usize = if cfg!(test) { 1 << 20 } else { MAX_BLOCK };

/// The state of a file before its end is written.
#[derive(Debug)]
pub(crate) struct Binder {
    options: BuilderOptions,
    index: Level,
    parts: Vec<Part>,
    pub entries: u64,
    pub raw_bytes: u64,
    pub blocks: u64,
    apart: bool,
}

impl Binder {
    pub fn new(options: BuilderOptions) -> Self {
        Binder {
            options,
            index: Level::default(),
            parts: Vec::new(),
            entries: 0,
            raw_bytes: 0,
            blocks: 0,
            apart: false,
        }
    }

    /// Adds packed blocks. Their pointers count from byte `base` of the file.
    pub fn push(&mut self, packed: &mut Packed, base: u64) {
        for (first, ptr) in packed.blocks.iter() {
            self.index.push(first, Ptr { offset: ptr.offset + base, ..ptr }, &self.options);
        }
        self.blocks += packed.blocks.len() as u64;
        self.entries += mem::take(&mut packed.entries);
        self.raw_bytes += mem::take(&mut packed.raw_bytes);
        packed.parts.iter_mut().for_each(|part| part.move_pages(base));
        self.parts.append(&mut packed.parts);
        self.apart |= packed.apart;
    }

    /// Returns the maximum bytes of the index after two more data blocks, whose first keys have up
    /// to `first` bytes.
    pub fn index_most(&self, first: usize) -> u64 {
        self.index.most(first)
    }

    /// Writes everything after the data blocks, and returns the summary of the file.
    pub fn finish<W: io::Write>(mut self, out: &mut Output<W>, metadata: &[u8]) -> Result<Summary> {
        let (root, levels) = self.write_index(out)?;
        let noted = self.parts.iter().any(|part| part.noted);
        let filter = self.write_filter(out)?;
        let mut meta = Ptr::NONE;
        if !metadata.is_empty() {
            meta = out.block(metadata, self.options.compress)?;
        }
        let footer = Footer {
            version: match (noted, self.apart) {
                (true, _) => NOTES,
                (false, true) => LISTS,
                (false, false) => PLAIN,
            },
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
        out.write(&footer)?;
        Ok(Summary {
            len: out.written,
            entries: self.entries,
            raw_bytes: self.raw_bytes,
            blocks: self.blocks,
            footer_sum: u64_at(&footer, FOOTER - 8),
        })
    }

    /// Writes the index, level by level; returns the pointer to the root and the number of levels.
    fn write_index<W: io::Write>(&mut self, out: &mut Output<W>) -> Result<(Ptr, u32)> {
        let (mut level, mut levels) = (mem::take(&mut self.index), 0);
        while level.children > 1 {
            level.close(&self.options);
            let mut above = Level::default();
            for (first, frame) in level.blocks {
                let ptr = out.frame(&frame)?;
                above.push(&first, ptr, &self.options);
            }
            (level, levels) = (above, levels + 1);
        }
        Ok((level.last, levels))
    }

    /// Writes the filter and returns the pointer to its directory.
    fn write_filter<W: io::Write>(&mut self, out: &mut Output<W>) -> Result<Ptr> {
        let parts = mem::take(&mut self.parts);
        if parts.is_empty() {
            return Ok(Ptr::NONE);
        }
        let mut directory = BlockBuilder::default();
        for Part { first, bytes, .. } in parts {
            let len = directory.len() + BlockBuilder::most_len(first.len(), POINTER);
            check_len("a file with a filter directory", len, MOST_DIRECTORY)?;
            directory.add(&first, &out.block(&bytes, false)?.encode());
        }
        out.block(directory.finish(), false)
    }
}

/// One level of the index: the full blocks, and the block that is filling.
#[derive(Debug, Default)]
struct Level {
    /// First key and frame of each block.
    blocks: Vec<(Vec<u8>, Vec<u8>)>,
    filling: BlockBuilder,
    first: Vec<u8>,
    children: u64,
    /// The child added last; the root, if it is the only child.
    last: Ptr,
    /// Bytes of the frames of full blocks, and the most bytes that their pointers can take in the
    /// level above.
    frames: u64,
    above: u64,
}

impl Level {
    /// Returns the most bytes that this level and all levels above take with two more children,
    /// whose first keys have up to `first` bytes.
    fn most(&self, first: usize) -> u64 {
        let frame = (FRAME_HEAD + BlockBuilder::EMPTY) as u64;
        let pointer = |first: usize| BlockBuilder::most_len(first, POINTER) as u64;
        // Each of the two children may get its own block.
        let this = self.frames + (FRAME_HEAD + self.filling.len()) as u64 + 2 * (pointer(first) + frame);
        let mut blocks = self.blocks.len() as u64 + 3;
        let above = self.above + pointer(self.first.len()) + 2 * pointer(first);
        let mut most = this;
        // The first keys of a level are a subset of the first keys of the level below.
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

/// An output that accepts no write after a failed one: the written part is unknown then.
#[derive(Debug)]
pub(crate) struct Output<W> {
    out: W,
    pub written: u64,
    failed: bool,
}

impl<W: io::Write> Output<W> {
    pub fn new(out: W) -> Self {
        Output { out, written: 0, failed: false }
    }

    /// Creates the output for a file of which `written` bytes are written already.
    pub fn at(out: W, written: u64) -> Self {
        Output { out, written, failed: false }
    }

    pub fn check(&self) -> Result<()> {
        if self.failed {
            return Err(io::Error::other("an earlier write failed; discard this file").into());
        }
        Ok(())
    }

    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        self.check()?;
        self.failed = true;
        self.out.write_all(data)?;
        self.failed = false;
        self.written += data.len() as u64;
        Ok(())
    }

    pub fn into_inner(self) -> W {
        self.out
    }

    fn block(&mut self, raw: &[u8], compress: bool) -> Result<Ptr> {
        let mut frame = Vec::new();
        encode_frame(raw, compress, &mut frame);
        self.frame(&frame)
    }

    fn frame(&mut self, frame: &[u8]) -> Result<Ptr> {
        let len = u32::try_from(frame.len()).expect("blocks are bounded");
        let ptr = Ptr { offset: self.written, len, sum: sum(frame) };
        self.write(frame)?;
        Ok(ptr)
    }
}

/// The summary of a finished codex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Summary {
    /// Length of the file, in bytes.
    pub len: u64,
    /// Number of entries.
    pub entries: u64,
    /// Size of the data blocks before compression, in bytes.
    pub raw_bytes: u64,
    /// Number of data blocks.
    pub blocks: u64,
    /// Checksum of the footer. It covers the whole file, through the checksums below it; see
    /// [`Reader::open`](crate::Reader::open).
    pub footer_sum: u64,
}

/// Files with correct checksums that no builder makes: only
/// [`Reader::verify`](crate::Reader::verify) detects them.
#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::pack::Packer;
    use crate::{Builder, Error, MAX_KEY, Reader, Verified};

    /// Data blocks as packers make them, and the binder of the file.
    struct Forger {
        packer: Packer,
        binder: Binder,
        out: Output<Vec<u8>>,
    }

    impl Forger {
        fn add(&mut self, key: &[u8]) {
            self.packer.add(key, &[7; 30]);
        }

        /// Adds a block of these keys, without values.
        fn add_block(&mut self, keys: &[&[u8]]) {
            self.close();
            keys.iter().for_each(|key| self.packer.add(key, b""));
            self.close();
        }

        /// Ends a block, and adds it to the file.
        fn close(&mut self) {
            self.packer.close();
            self.out.write(&self.packer.packed.frames).unwrap();
            self.binder.push(&mut self.packer.packed, 0);
            self.packer.taken();
        }
    }

    /// Verifies a file of several levels. `spoil` may damage the file in the middle.
    fn verify(spoil: impl FnOnce(&mut Forger)) -> Result<Verified> {
        let options = BuilderOptions { block_size: 64, ..Default::default() };
        let mut forger = Forger {
            packer: Packer::new(options.clone()),
            binder: Binder::new(options),
            out: Output::new(Vec::new()),
        };
        (0..100u8).for_each(|n| forger.add(&[1, n]));
        spoil(&mut forger);
        (100..200u8).for_each(|n| forger.add(&[1, n]));
        forger.close();
        let summary = forger.binder.finish(&mut forger.out, &[]).unwrap();
        let file = Bytes::from(forger.out.into_inner());
        Reader::open(file, summary.len, Some(summary.footer_sum))?.verify(crate::Progress::ignore)
    }

    #[track_caller]
    fn refused(because: &str, spoil: impl FnOnce(&mut Forger)) {
        match verify(spoil) {
            Err(Error::Damaged { what, .. }) => assert!(what.contains(because), "{what}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn verify_tells_what_checksums_cannot() {
        assert_eq!(verify(|_| {}).unwrap().entries, 200);
        refused("does not follow the previous block", |forger| {
            forger.close();
            forger.out.write(b"gap").unwrap();
            forger.packer.packed.frames.extend_from_slice(b"gap");
            forger.packer.taken();
        });
        refused("ascend from block to block", |forger| {
            forger.add_block(&[&[1, 99, 0], &[9]]);
        });
        refused("keys do not ascend", |forger| {
            forger.add_block(&[&[1, 99, 1], &[1, 99, 0]]);
        });
        refused("the key in the index", |forger| {
            forger.close();
            forger.add(&[1, 99, 5]);
            forger.packer.close();
            let (frames, ptr) = (forger.packer.packed.frames.clone(), forger.packer.packed.blocks.ptr(0));
            forger.out.write(&frames).unwrap();
            forger.packer.packed.blocks.clear();
            forger.packer.packed.blocks.push(&[1, 99, 4], ptr);
            forger.binder.push(&mut forger.packer.packed, 0);
            forger.packer.taken();
        });
        refused("counts", |forger| forger.binder.entries += 1);
        refused("counts", |forger| forger.binder.blocks += 1);
        refused("counts", |forger| forger.binder.raw_bytes += 1);
        refused("no pointer", |forger| {
            forger.close();
            forger.binder.index.filling.reset();
            forger.binder.index.filling.add(&forger.binder.index.first, b"not 20 bytes");
        });
    }

    /// Each item is in a part of its own, and each part begins with one of the longest keys.
    #[test]
    fn a_filter_whose_directory_is_no_block_is_refused() {
        let build = |keys: u8| {
            let options = BuilderOptions { bits_per_item: 1 << 20, ..Default::default() };
            let mut builder = Builder::new(Vec::new(), options);
            for n in 0..keys {
                builder.add_filter(n.into());
                builder.add(&[n; MAX_KEY], b"").unwrap();
            }
            builder.finish()
        };
        assert_eq!(build(10).unwrap().0.entries, 10);
        assert!(matches!(build(20), Err(Error::TooLarge { max: MOST_DIRECTORY, .. })));
    }
}
