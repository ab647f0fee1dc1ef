//! Moving through a codex in key order, both ways.

use std::ops::{Deref, Range};

use bytes::Bytes;

use crate::ahead::Ahead;
use crate::block::{Aim, Spot};
use crate::error::{Error, Result, damaged};
use crate::format::Ptr;
use crate::reader::Reader;
use crate::source::Source;

/// Where a cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    BeforeFirst,
    At,
    AfterLast,
    /// An error came in the middle of a move; the stack below may not fit together.
    Lost,
}

/// A place in a codex: at an entry, before the first, or after the last. It begins before the
/// first.
///
/// It keeps one decoded data block: moves and seeks within that read nothing. Where it goes on from
/// block to block it reads ahead, up to 256 KiB, unless the source is memory. Data blocks of
/// cursors do not enter the reader's [`Cache`](crate::Cache), so that a long walk drives nothing
/// out of it. `R` is `&Reader<S>` for a cursor that borrows, or say `Arc<Reader<S>>` for one that
/// shares.
///
/// Each move says whether it came to an entry. After an error the place is lost, and moves give
/// [`Error::Lost`] until a seek works.
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
    /// The way down, from the root; each stands at the entry of the one below it.
    index: Vec<Spot>,
    leaf: Spot,
    place: Place,
    ahead: Ahead,
}

impl<S: Source> Reader<S> {
    /// A cursor that borrows this reader. [`Cursor::new`] makes one that shares it.
    pub fn cursor(&self) -> Cursor<&Self> {
        Cursor::new(self)
    }
}

impl<S: Source, R: Deref<Target = Reader<S>>> Cursor<R> {
    /// A cursor before the first entry. Reads nothing yet.
    pub fn new(reader: R) -> Self {
        let (index, leaf, ahead) = (Vec::new(), Spot::default(), Ahead::default());
        Cursor { reader, index, leaf, place: Place::BeforeFirst, ahead }
    }

    /// Moves to the first entry whose key is `key` or greater; after the last where there is none.
    ///
    /// # Errors
    /// As any read of [`Reader`]; so for the other moves.
    pub fn seek(&mut self, key: &[u8]) -> Result<bool> {
        self.go(Place::AfterLast, |cursor| {
            if cursor.descend(0, Aim::AtMost(key))? && cursor.leaf.key() < key {
                return cursor.forward();
            }
            Ok(Place::At) // the key itself, or the very first entry where that is greater
        })
    }

    /// Moves to the last entry whose key is `key` or less; before the first where there is none.
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

    /// Moves to the next entry: the first one from before it, none after the last.
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

    /// Moves to the entry before: the last one from after it, none before the first.
    #[expect(clippy::missing_errors_doc, reason = "said at `seek`")]
    pub fn prev(&mut self) -> Result<bool> {
        match self.place {
            Place::BeforeFirst => Ok(false),
            Place::At => self.go(Place::BeforeFirst, Self::backward),
            Place::AfterLast => self.seek_last(),
            Place::Lost => Err(Error::Lost),
        }
    }

    /// Where the data block begins that comes after the one in which `key` is, or would be: a key
    /// that is not greater than any in there, and greater than all before. `None` where there is no
    /// later block. No data block is read; so who met a damaged one finds the way around it. The
    /// place is lost, as after an error.
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
    /// As any read, of an index block: where it is not the topmost one, what it leads to is passed
    /// over.
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

    /// Whether it is at an entry.
    pub fn valid(&self) -> bool {
        self.place == Place::At
    }

    /// The key of the entry; empty where it is at none.
    pub fn key(&self) -> &[u8] {
        if self.valid() { self.leaf.key() } else { &[] }
    }

    /// The value of the entry; empty where it is at none. It shares the memory of its decoded
    /// block, unless it is a long one that lies apart: that is read, and put together.
    ///
    /// # Errors
    /// As any read, where the value lies apart.
    pub fn value(&self) -> Result<Bytes> {
        if self.valid() { self.reader.value_of(self.leaf.stored()) } else { Ok(Bytes::new()) }
    }

    /// Length of the value of the entry, in bytes; 0 where it is at none.
    ///
    /// # Errors
    /// As any read.
    pub fn value_len(&self) -> Result<u64> {
        if self.valid() { Reader::<S>::len_of(&self.leaf.stored()) } else { Ok(0) }
    }

    /// Bytes `range` of the value of the entry, as [`Reader::get_part`] would read them; empty
    /// where it is at none.
    ///
    /// # Errors
    /// As any read.
    pub fn value_part(&self, range: Range<u64>) -> Result<Bytes> {
        if self.valid() { self.reader.part_of(&self.leaf.stored(), range) } else { Ok(Bytes::new()) }
    }

    /// Where in the codex the block of the entry begins: about all before it is of lesser keys. 0
    /// where it is at none.
    pub fn offset(&self) -> u64 {
        if self.valid() { self.leaf.block().at() } else { 0 }
    }

    /// The reader it moves through.
    pub fn reader(&self) -> &R {
        &self.reader
    }

    /// Does a move; in a codex without entries it ends up at `empty`.
    fn go(&mut self, empty: Place, action: impl FnOnce(&mut Self) -> Result<Place>) -> Result<bool> {
        self.place = Place::Lost; // until the action says better
        self.place = if self.reader.root().is_none() { empty } else { action(self)? };
        Ok(self.valid())
    }

    fn forward(&mut self) -> Result<Place> {
        if self.leaf.step()? {
            return Ok(Place::At);
        }
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

    /// Data blocks lie in key order. Where index blocks share their children, a walk could go on
    /// for as good as ever; this way it comes to each block once.
    fn in_order(&self, holds: bool) -> Result<Place> {
        if holds { Ok(Place::At) } else { damaged(self.leaf.block().at(), "data blocks are out of order") }
    }

    /// Enters the blocks from `depth` down to the leaf, moving as told in each. Says what the leaf
    /// said: where the first key of all is over [`Aim::AtMost`], all blocks are entered at their
    /// first entry, and so does the leaf.
    fn descend(&mut self, depth: usize, aim: Aim<'_>) -> Result<bool> {
        self.index.resize_with(self.reader.levels(), Spot::default);
        for depth in depth..self.index.len() {
            self.enter_index(depth, aim)?;
        }
        let (ptr, limit) = self.child(self.index.len())?;
        if !self.leaf.block().is(ptr) {
            self.leaf.enter(self.reader.block_ahead(ptr, limit, &mut self.ahead)?);
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

    /// Where the block at `depth` is, and the byte it has to end by.
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

    /// Forty levels whose blocks hold the same child twice, all checksums sound: 3 KiB that take
    /// 2^40 steps to walk through, where nothing minds that it comes to a data block again.
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
}
