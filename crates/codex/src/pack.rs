//! Packing: converts sorted entries into frames of data blocks and parts of the filter.
//!
//! A packer knows nothing of earlier and later entries. So one packer may pack the entries of a
//! file, block after block, or the entries may be cut into ranges that several threads pack. A
//! [`Binder`](crate::binder::Binder) joins these.

use std::mem;
use std::ops::Range;

use crate::block::BlockBuilder;
use crate::filter::{FilterBuilder, Part};
use crate::format::{FRAME_HEAD, PIECE, Ptr, encode_frame, put_varint, sum};
use crate::options::BuilderOptions;

/// Bytes of a list's entry for one piece.
const LISTED: usize = 12;
/// After this many blocks in a row that did not shrink, the wait for the next trial grows no more.
const MOST_MISSES: u32 = 4;

/// The packed output, in order.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    /// Frames of data blocks and pieces.
    pub frames: Vec<u8>,
    pub blocks: Blocks,
    /// The indexes of the blocks that begin ranges. The last may be the index of the next block to
    /// pack.
    pub cuts: Vec<usize>,
    /// Parts of the filter.
    pub parts: Vec<Part>,
    pub entries: u64,
    pub raw_bytes: u64,
    /// Whether a value is stored outside its block.
    pub apart: bool,
}

impl Packed {
    /// Adds everything of later output except the blocks.
    pub fn absorb(&mut self, mut other: Packed) {
        self.parts.append(&mut other.parts);
        self.entries += other.entries;
        self.raw_bytes += other.raw_bytes;
        self.apart |= other.apart;
    }
}

/// Data blocks: the first key and the place of each.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    firsts: Vec<u8>,
    /// For each block, the end of its first key in `firsts`, and its pointer.
    blocks: Vec<(usize, Ptr)>,
}

impl Blocks {
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    pub fn first(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.blocks[before].0);
        &self.firsts[start..self.blocks[index].0]
    }

    pub fn ptr(&self, index: usize) -> Ptr {
        self.blocks[index].1
    }

    pub fn push(&mut self, first: &[u8], ptr: Ptr) {
        self.firsts.extend_from_slice(first);
        self.blocks.push((self.firsts.len(), ptr));
    }

    /// Returns the first of some blocks whose first key does not fulfil `is`. The first keys of all
    /// blocks before it fulfil `is`.
    pub fn partition(&self, blocks: Range<usize>, is: impl Fn(&[u8]) -> bool) -> usize {
        let (mut low, mut high) = (blocks.start, blocks.end);
        while low < high {
            let middle = low + (high - low) / 2;
            if is(self.first(middle)) { low = middle + 1 } else { high = middle }
        }
        low
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Ptr)> {
        (0..self.len()).map(|index| (self.first(index), self.ptr(index)))
    }

    pub fn clear(&mut self) {
        self.firsts.clear();
        self.blocks.clear();
    }
}

/// Decides whether to try to compress the next block. A block that does not shrink costs the time
/// of the trial, and its neighbours are usually similar. So after a failed trial, the next block is
/// not tried; after more failed trials in a row, the next 3, 7, and at most 15 blocks.
#[derive(Debug, Default)]
struct Habit {
    misses: u32,
    skip: u32,
}

impl Habit {
    fn tries(&mut self) -> bool {
        let tries = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        tries
    }

    fn learn(&mut self, saved: bool) {
        self.misses = if saved { 0 } else { (self.misses + 1).min(MOST_MISSES) };
        self.skip = (1 << self.misses) - 1;
    }
}

/// A packer of entries, whose keys must ascend.
#[derive(Debug)]
pub(crate) struct Packer {
    options: BuilderOptions,
    block: BlockBuilder,
    first: Vec<u8>,
    filter: FilterBuilder,
    habit: Habit,
    /// The packed output. The owner may take it away at any time.
    pub packed: Packed,
    /// Bytes of frames that were taken away so far.
    taken: u64,
}

impl Packer {
    /// Creates a packer. The options must be in their limits: [`BuilderOptions::sound`].
    pub fn new(options: BuilderOptions) -> Self {
        Packer {
            block: BlockBuilder::default(),
            first: Vec::new(),
            filter: FilterBuilder::new(options.bits_per_item),
            habit: Habit::default(),
            packed: Packed::default(),
            taken: 0,
            options,
        }
    }

    /// Returns the key of the entry added last.
    pub fn last(&self) -> &[u8] {
        self.block.last()
    }

    /// Adds a hash to the filter, for the key that is added next.
    pub fn add_filter(&mut self, hash: u64) {
        self.filter.add(hash);
    }

    /// Adds a note for an item that is added to the filter, too, for the key that is added next.
    pub fn add_note(&mut self, hash: u128, note: u32) {
        self.filter.add_note(hash, note);
    }

    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        if value.len() >= self.options.apart_from {
            return self.add_apart(key, value);
        }
        self.begin(key, value.len());
        self.block.add(key, value);
        self.filter_key(key);
        self.packed.entries += 1;
    }

    /// Sets the key of the filter's next items. The pages of notes that are complete follow the
    /// last frame.
    fn filter_key(&mut self, key: &[u8]) {
        self.filter.key(key);
        self.filter.take_pages(&mut self.packed.frames, self.taken);
    }

    /// Adds an entry whose value is stored in pieces before its block. The block ends with this
    /// entry.
    fn add_apart(&mut self, key: &[u8], value: &[u8]) {
        let most = list_most(value.len());
        let mut list = Vec::with_capacity(most);
        self.begin(key, most);
        put_varint(&mut list, value.len() as u64);
        for piece in value.chunks(PIECE) {
            let ptr = self.frame(piece);
            list.extend_from_slice(&ptr.len.to_le_bytes());
            list.extend_from_slice(&ptr.sum.to_le_bytes());
        }
        self.block.add(key, &list);
        self.packed.entries += 1;
        self.packed.apart = true;
        self.close_with(true);
        // Pages must not come between the pieces and their block.
        self.filter_key(key);
    }

    /// Makes sure that an entry with this key and a value of `len` bytes fits into the current
    /// block.
    fn begin(&mut self, key: &[u8], len: usize) {
        let most = BlockBuilder::most_len(key.len(), len);
        if self.block.entries() > 0 && self.block.len() + most > self.options.block_size {
            self.close();
        }
        if self.block.entries() == 0 {
            self.first.clear();
            self.first.extend_from_slice(key);
        }
    }

    /// Ends the current block, if there is one.
    pub fn close(&mut self) {
        if self.block.entries() > 0 {
            self.close_with(false);
        }
    }

    fn close_with(&mut self, apart: bool) {
        let mut block = mem::take(&mut self.block);
        let raw = if apart { block.finish_apart() } else { block.finish() };
        self.packed.raw_bytes += raw.len() as u64;
        let ptr = self.frame(raw);
        self.packed.blocks.push(&self.first, ptr);
        block.reset();
        self.block = block;
    }

    /// Appends a frame, compressed if recent blocks shrank.
    fn frame(&mut self, raw: &[u8]) -> Ptr {
        let (start, tries) = (self.packed.frames.len(), self.options.compress && self.habit.tries());
        let saved = encode_frame(raw, tries, &mut self.packed.frames);
        if tries {
            self.habit.learn(saved);
        }
        let frame = &self.packed.frames[start..];
        let len = u32::try_from(frame.len()).expect("blocks are bounded");
        Ptr { offset: self.taken + start as u64, len, sum: sum(frame) }
    }

    /// Drops the frames and blocks, after the owner has stored them. Offsets of later frames count
    /// from their end.
    pub fn taken(&mut self) {
        self.taken += self.packed.frames.len() as u64;
        self.packed.frames.clear();
        self.packed.blocks.clear();
    }

    /// Begins a range: later entries are packed independently of earlier entries.
    pub fn begin_range(&mut self) {
        self.end_range();
        self.packed.cuts.push(self.packed.blocks.len());
    }

    /// Ends the current range, and its part of the filter.
    pub fn end_range(&mut self) {
        self.close();
        self.habit = Habit::default();
        if self.options.bits_per_item > 0 {
            let mut filter = mem::replace(&mut self.filter, FilterBuilder::new(self.options.bits_per_item));
            filter.end();
            filter.take_pages(&mut self.packed.frames, self.taken);
            self.packed.parts.extend(filter.finish());
        }
    }

    /// Returns the packed output.
    pub fn finish(mut self) -> Packed {
        self.end_range();
        self.packed
    }

    /// Returns the most bytes that the current block and one more entry take in frames, and the
    /// most bytes that the filter takes with `hashes` more hashes for that entry, with notes if
    /// `noted` is set.
    pub fn most(&self, key: usize, value: usize, hashes: usize, noted: bool) -> (u64, u64) {
        let (mut entry, mut pieces) = (value, 0);
        if value >= self.options.apart_from {
            entry = list_most(value);
            pieces = value + value.div_ceil(PIECE) * FRAME_HEAD;
        }
        let empty = FRAME_HEAD + BlockBuilder::EMPTY;
        let frames = self.block.len() + FRAME_HEAD + empty + BlockBuilder::most_len(key, entry) + pieces;
        (frames as u64, self.filter.most(key, hashes, noted))
    }

    /// Returns the first key of the current block.
    pub fn first(&self) -> &[u8] {
        &self.first
    }
}

/// Returns the most bytes of the list for a value of `value` bytes.
fn list_most(value: usize) -> usize {
    10 + value.div_ceil(PIECE) * LISTED
}
