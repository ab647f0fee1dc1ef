//! Moving through a codex in key order, both ways.

use std::ops::{Deref, Range};

use bytes::Bytes;

use crate::ahead::Ahead;
use crate::block::{Aim, Spot};
use crate::error::{Error, Result, damaged};
use crate::format::Ptr;
use crate::prefetch::{DataBlock, Prefetch, Prefetched};
use crate::reader::Reader;
use crate::source::Source;

/// The position of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BeforeFirst,
    At,
    AfterLast,
    /// An error happened in the middle of a move; the stack below may be inconsistent.
    Lost,
}

/// A position in a codex: at an entry, before the first entry, or after the last entry. A new
/// cursor is before the first entry.
///
/// A cursor keeps one decoded data block: moves and seeks within that block read nothing. A cursor
/// that moves from block to block reads ahead, up to 256 KiB, unless the source is memory. Data
/// blocks of cursors do not enter the reader's [`Cache`](crate::Cache), so a long walk evicts
/// nothing from it. `R` is `&Reader<S>` for a cursor that borrows the reader, or for example
/// `Arc<Reader<S>>` for a cursor that shares it.
///
/// Each move returns whether the cursor is at an entry. After an error the position is lost, and
/// moves fail with [`Error::Lost`] until a seek succeeds.
///
/// ```
/// # use {brooklet_codex::*, std::sync::Arc};
/// # let mut builder = Builder::new(Vec::new(), BuilderOptions::default());
/// # for key in [b"a", b"c", b"e"] { builder.add(key, b"")?; }
/// # let (summary, file) = builder.finish()?;
/// let reader = Arc::new(Reader::open(Bytes::from(file), summary.len, None)?); // of the keys a, c, e
/// let mut cursor = Cursor::new(reader);
/// while cursor.next()? {
///     println!("{:?}: {:?}", cursor.key(), cursor.value()?);
/// }
/// assert!(!cursor.valid()); // after the last
/// assert!(cursor.prev()? && cursor.key() == b"e");
/// assert!(cursor.seek(b"b")? && cursor.key() == b"c"); // at or after
/// assert!(cursor.seek_le(b"b")? && cursor.key() == b"a"); // at or before
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Cursor<R> {
    reader: R,
    /// The way down, from the root; each spot is at the entry of the spot below it.
    index: Vec<Spot>,
    leaf: Spot,
    place: Place,
    ahead: Ahead,
    prefetched: Prefetched,
}

impl<S: Source> Reader<S> {
    /// Returns a cursor that borrows this reader. [`Cursor::new`] creates one that shares the
    /// reader.
    pub fn cursor(&self) -> Cursor<&Self> {
        Cursor::new(self)
    }
}

impl<S: Source, R: Deref<Target = Reader<S>>> Cursor<R> {
    /// Creates a cursor before the first entry. Reads nothing yet.
    pub fn new(reader: R) -> Self {
        let (index, leaf, ahead) = (Vec::new(), Spot::default(), Ahead::default());
        let prefetched = Prefetched::default();
        Cursor { reader, index, leaf, place: Place::BeforeFirst, ahead, prefetched }
    }

    /// Has the cursor take data blocks from `blocks`, where another cursor of the same codex put
    /// them. The cursor still reads the index, and the blocks that `blocks` lacks.
    pub fn prefetch(&mut self, blocks: Box<dyn Prefetch>) {
        self.prefetched = Prefetched(Some(blocks));
    }

    /// Moves to the first entry whose key is `key` or greater; after the last entry if no such
    /// entry exists.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`]. The other moves fail with the same errors.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Place::AfterLast, |cursor| {
            if !cursor.descend(0, Aim::AtMost(key))? || cursor.leaf.key() >= key {
                return Ok(Place::At); // the key itself, or the very first entry where that is greater
            }
            let place = cursor.forward()?;
            if place == Place::At && cursor.leaf.key() < key {
                return damaged(cursor.leaf.block().at(), "keys do not ascend");
            }
            Ok(place)
        })
    }

    /// Moves to the last entry whose key is `key` or less; before the first entry if no such entry
    /// exists.
    #[expect(clippy::missing_errors_doc, reason = "said at `seek`")]
    pub fn seek_le(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Place::BeforeFirst, |cursor| {
            Ok(if cursor.descend(0, Aim::AtMost(key))? { Place::At } else { Place::BeforeFirst })
        })
    }

    /// Moves to the first entry.
    #[expect(clippy::missing_errors_doc, reason = "said at `seek`")]
    pub fn seek_first(&mut self) -> Result<bool> {
        self.go(Place::AfterLast, |cursor| cursor.descend(0, Aim::First).map(|_| Place::At))
    }

    /// Moves to the last entry.
    #[expect(clippy::missing_errors_doc, reason = "said at `seek`")]
    pub fn seek_last(&mut self) -> Result<bool> {
        self.go(Place::BeforeFirst, |cursor| cursor.descend(0, Aim::Last).map(|_| Place::At))
    }

    /// Moves to the next entry. From before the first entry, moves to the first.
    #[expect(clippy::missing_errors_doc, reason = "said at `seek`")]
    #[expect(clippy::should_implement_trait, reason = "it lends the key, which an iterator cannot")]
    pub fn next(&mut self) -> Result<bool> {
        match self.place {
            Place::BeforeFirst => self.seek_first(),
            Place::At => self.go(Place::AfterLast, Self::forward),
            Place::AfterLast => Ok(false),
            Place::Lost => Err(Error::Lost),
        }
    }

    /// Moves to the previous entry. From after the last entry, moves to the last.
    #[expect(clippy::missing_errors_doc, reason = "said at `seek`")]
    pub fn prev(&mut self) -> Result<bool> {
        match self.place {
            Place::BeforeFirst => Ok(false),
            Place::At => self.go(Place::BeforeFirst, Self::backward),
            Place::AfterLast => self.seek_last(),
            Place::Lost => Err(Error::Lost),
        }
    }

    /// Returns a key at which the next data block begins: the block after the one that holds `key`,
    /// or would hold it. The returned key is at most the least key of the next block, and greater
    /// than all keys before that block. `None` if no later block exists. Reads no data block, so a
    /// caller can skip a damaged block. The position is lost, as after an error.
    ///
    /// ```
    /// # use {brooklet_codex::*, std::sync::Arc};
    /// # let mut builder = Builder::new(Vec::new(), BuilderOptions::default());
    /// # for key in [b"a", b"b", b"c"] { builder.add(key, &[7; 60_000])?; }
    /// # let (summary, file) = builder.finish()?;
    /// let reader = Arc::new(Reader::open(Bytes::from(file), summary.len, None)?); // a block for each of a, b, c
    /// let mut cursor = Cursor::new(reader);
    /// assert_eq!(cursor.next_block(b"a")?.as_deref(), Some(&b"b"[..]));
    /// assert_eq!(cursor.next_block(b"d")?, None);
    /// assert!(cursor.seek(b"b")?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Io`] of an index block. If an index block below the topmost
    /// one cannot be read, the call skips its data blocks.
    pub fn next_block(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.place = Place::Lost;
        if self.reader.root().is_none() {
            return Ok(None);
        }
        self.index.resize_with(self.reader.levels(), Spot::default);
        let mut entered = 0;
        while entered < self.index.len() {
            match self.enter_index(entered, Aim::AtMost(key)) {
                Ok(()) => entered += 1,
                Err(error) if entered == 0 => return Err(error),
                Err(_) => break,
            }
        }
        for depth in (0..entered).rev() {
            if self.index[depth].step()? {
                return Ok(Some(self.index[depth].key().to_vec()));
            }
        }
        Ok(None)
    }

    /// Moves to the first entry of the next data block. From before the first entry, moves to the
    /// first.
    #[expect(clippy::missing_errors_doc, reason = "said at `seek`")]
    pub fn skip_block(&mut self) -> Result<bool> {
        match self.place {
            Place::At => self.go(Place::AfterLast, Self::next_leaf),
            _ => self.next(),
        }
    }

    /// Returns the data block of the entry; `None` if the cursor is at no entry.
    pub fn block(&self) -> Option<DataBlock> {
        self.valid()
            .then(|| DataBlock { footer_sum: self.reader.footer_sum(), block: self.leaf.block().clone() })
    }

    /// Returns whether the cursor is at an entry.
    pub fn valid(&self) -> bool {
        self.place == Place::At
    }

    /// Returns the key of the entry; empty if the cursor is at no entry.
    pub fn key(&self) -> &[u8] {
        if self.valid() { self.leaf.key() } else { &[] }
    }

    /// Returns the value of the entry; empty if the cursor is at no entry. The value shares the
    /// memory of its decoded block. A long value, stored outside its block, is read and joined.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Io`], for a value stored outside its block.
    pub fn value(&self) -> Result<Bytes> {
        if self.valid() { self.reader.value_of(self.leaf.stored()) } else { Ok(Bytes::new()) }
    }

    /// Returns the length of the value of the entry, in bytes; 0 if the cursor is at no entry.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn value_len(&self) -> Result<u64> {
        if self.valid() { Reader::<S>::len_of(&self.leaf.stored()) } else { Ok(0) }
    }

    /// Returns bytes `range` of the value of the entry, as [`Reader::get_part`] does; empty if the
    /// cursor is at no entry.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn value_part(&self, range: Range<u64>) -> Result<Bytes> {
        if self.valid() { self.reader.part_of(&self.leaf.stored(), range) } else { Ok(Bytes::new()) }
    }

    /// Returns the byte offset of the entry's block in the codex; 0 if the cursor is at no entry.
    /// About all data before that offset has lesser keys.
    pub fn offset(&self) -> u64 {
        if self.valid() { self.leaf.block().at() } else { 0 }
    }

    /// Returns the reader of the cursor.
    pub fn reader(&self) -> &R {
        &self.reader
    }

    /// Does a move; in a codex without entries, the move ends at `empty`.
    fn go(&mut self, empty: Place, action: impl FnOnce(&mut Self) -> Result<Place>) -> Result<bool> {
        self.place = Place::Lost; // until the action says better
        self.place = if self.reader.root().is_none() { empty } else { action(self)? };
        Ok(self.valid())
    }

    fn forward(&mut self) -> Result<Place> {
        if self.leaf.step()? { Ok(Place::At) } else { self.next_leaf() }
    }

    /// Moves to the first entry of the next data block.
    fn next_leaf(&mut self) -> Result<Place> {
        for depth in (0..self.index.len()).rev() {
            if self.index[depth].step()? {
                let before = self.leaf.block().at();
                self.descend(depth + 1, Aim::First)?;
                return self.in_order(before < self.leaf.block().at());
            }
        }
        Ok(Place::AfterLast)
    }

    fn backward(&mut self) -> Result<Place> {
        if self.leaf.back()? {
            return Ok(Place::At);
        }
        for depth in (0..self.index.len()).rev() {
            if self.index[depth].back()? {
                let after = self.leaf.block().at();
                self.descend(depth + 1, Aim::Last)?;
                return self.in_order(self.leaf.block().at() < after);
            }
        }
        Ok(Place::BeforeFirst)
    }

    /// Checks that data blocks are in key order. Index blocks that share their children could make
    /// a walk endless in practice; this check visits each block once.
    fn in_order(&self, holds: bool) -> Result<Place> {
        if holds { Ok(Place::At) } else { damaged(self.leaf.block().at(), "data blocks are out of order") }
    }

    /// Enters the blocks from `depth` down to the leaf, with `aim` in each. Returns the result of
    /// the leaf. If the first key of all is over [`Aim::AtMost`], each block is entered at its
    /// first entry, and the leaf returns `false`.
    fn descend(&mut self, depth: usize, aim: Aim<'_>) -> Result<bool> {
        self.index.resize_with(self.reader.levels(), Spot::default);
        for depth in depth..self.index.len() {
            self.enter_index(depth, aim)?;
        }
        let (ptr, limit) = self.child(self.index.len())?;
        if !self.leaf.block().is(ptr) {
            let block = match self.prefetched.take(self.reader.footer_sum(), ptr.offset) {
                Some(block) => block,
                None => self.reader.block_ahead(ptr, limit, &mut self.ahead)?,
            };
            self.leaf.enter(block);
        }
        self.leaf.aim(aim)
    }

    /// Enters the index block at `depth`.
    fn enter_index(&mut self, depth: usize, aim: Aim<'_>) -> Result<()> {
        let (ptr, limit) = self.child(depth)?;
        let block = self.reader.index_block(ptr, limit, depth)?;
        self.index[depth].enter(block);
        self.index[depth].aim(aim).map(drop)
    }

    /// Returns the pointer to the block at `depth`, and the byte by which that block must end.
    fn child(&self, depth: usize) -> Result<(Ptr, u64)> {
        match depth.checked_sub(1) {
            Some(above) => Ok((self.index[above].ptr()?, self.index[above].block().at())),
            None => Ok(self.reader.root().expect("moves are made where there are entries")),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::block::BlockBuilder;
    use crate::format::{Footer, encode_frame, sum};

    fn put(file: &mut Vec<u8>, block: &mut BlockBuilder) -> Ptr {
        let mut frame = Vec::new();
        encode_frame(block.finish(), false, &mut frame);
        let ptr = Ptr { offset: file.len() as u64, len: frame.len() as u32, sum: sum(&frame) };
        file.extend_from_slice(&frame);
        ptr
    }

    /// Regression: forty levels whose blocks hold the same child twice, all with correct checksums.
    /// Without the check of the block order, a walk through these 3 KiB takes 2^40 steps.
    #[test]
    fn shared_children_do_not_keep_a_walk_going() {
        let mut file = Vec::new();
        let mut data = BlockBuilder::default();
        data.add(b"a", b"");
        let mut root = put(&mut file, &mut data);
        for _ in 0..40 {
            let mut index = BlockBuilder::default();
            index.add(b"a", &root.encode());
            index.add(b"b", &root.encode());
            root = put(&mut file, &mut index);
        }
        let footer = Footer { levels: 40, entries: 1, raw_bytes: 12, blocks: 1, root, ..Footer::default() };
        file.extend_from_slice(&footer.encode());
        let len = file.len() as u64;
        let reader = Reader::open(Bytes::from(file), len, None).unwrap();
        let mut cursor = reader.cursor();
        assert!(cursor.seek_first().unwrap());
        assert!(matches!(cursor.next(), Err(Error::Damaged { .. })));
        assert!(cursor.seek_last().unwrap());
        assert!(matches!(cursor.prev(), Err(Error::Damaged { .. })));
    }

    /// An index that lies about the first key of a block: a seek never ends at a lesser key than
    /// the one it seeks. A listing that went on behind damage came out of order.
    #[test]
    fn a_seek_does_not_go_back() {
        let (mut file, mut index) = (Vec::new(), BlockBuilder::default());
        for (first, keys) in [(b"a", [b"a", b"c"]), (b"m", [b"b", b"n"])] {
            let mut data = BlockBuilder::default();
            keys.iter().for_each(|key| data.add(*key, b""));
            index.add(first, &put(&mut file, &mut data).encode());
        }
        let root = put(&mut file, &mut index);
        let footer = Footer { levels: 1, entries: 4, raw_bytes: 40, blocks: 2, root, ..Footer::default() };
        file.extend_from_slice(&footer.encode());
        let len = file.len() as u64;
        let reader = Reader::open(Bytes::from(file), len, None).unwrap();
        let mut cursor = reader.cursor();
        assert!(cursor.seek(b"bb").unwrap() && cursor.key() == b"c");
        assert!(matches!(cursor.seek(b"d"), Err(Error::Damaged { .. })));
        assert!(cursor.seek(b"n").unwrap() && cursor.key() == b"n");
    }
}
