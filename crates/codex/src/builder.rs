//! Writes a codex from sorted entries, front to back, in one pass: data blocks are written as they
//! fill.

use std::io;

use crate::binder::{Binder, Output, Summary};
use crate::error::{Error, Result, check_len};
use crate::format::FOOTER;
use crate::limits::{MAX_KEY, MAX_METADATA, MAX_VALUE};
use crate::options::BuilderOptions;
use crate::pack::Packer;

/// A builder of a codex from sorted entries. It writes to `W` from front to back.
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
    packer: Packer,
    binder: Binder,
    entries: u64,
}

impl<W: io::Write> Builder<W> {
    /// Creates a builder that writes to `out`, one block at a time. Writes nothing yet.
    pub fn new(out: W, options: BuilderOptions) -> Self {
        let options = options.sound();
        Builder {
            out: Output::new(out),
            packer: Packer::new(options.clone()),
            binder: Binder::new(options),
            entries: 0,
        }
    }

    /// Adds an entry. Its key must be greater than the key before, byte by byte; the empty key is
    /// the least key.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] and [`Error::TooLarge`] leave the builder as it was. After
    /// [`Error::Io`] every call fails.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        check_lens(key, value)?;
        if self.entries > 0 && key <= self.packer.last() {
            return Err(Error::OutOfOrder { entry: self.entries });
        }
        self.out.check()?;
        self.packer.add(key, value);
        self.entries += 1;
        if self.packer.packed.frames.is_empty() { Ok(()) } else { self.bind() }
    }

    /// Adds a hash to the filter, for the key that is added next. The hash is of that key, or of
    /// the part of the key that readers pass to [`may_contain`](crate::Reader::may_contain). Equal
    /// hashes in a row count once.
    pub fn add_filter(&mut self, hash: u64) {
        self.packer.add_filter(hash);
    }

    /// Adds an item to the filter like [`add_filter`](Self::add_filter), with a note that
    /// [`Reader::note`](crate::Reader::note) returns. `item` is the item's hash in the filter.
    /// `hash` identifies the item among the notes: of its 128 bits, 120 count, so it must be a hash
    /// that nobody can make collide. Use notes for all items of a file, or for none: a part of the
    /// filter in which an item has no note, or an item is there twice, has no notes. A note takes
    /// some 15 bytes of the file, and 32 bytes of memory until its part of the filter is complete.
    /// Without a filter, the call has no effect.
    pub fn add_note(&mut self, item: u64, hash: u128, note: u32) {
        self.packer.add_filter(item);
        self.packer.add_note(hash, note);
    }

    /// Returns the number of bytes written to the output so far. The finished file also holds the
    /// current block, the index and the filter.
    pub fn written(&self) -> u64 {
        self.out.written
    }

    /// Returns the most bytes that the file can have after one more entry and
    /// [`finish`](Self::finish). `key` and `value` are the lengths of that entry in bytes; `hashes`
    /// is the number of its filter hashes; `noted` says whether these hashes have notes. Use it to
    /// keep the file within a limit. The call reads nothing that was written.
    pub fn size_with(&self, key: usize, value: usize, hashes: usize, noted: bool) -> u64 {
        let (frames, filter) = self.packer.most(key, value, hashes, noted);
        let first = key.max(self.packer.first().len());
        self.out.written + frames + self.binder.index_most(first) + filter + FOOTER as u64
    }

    /// Completes the file. The caller flushes the output and makes it durable.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::TooLarge`] if the filter has so many parts, and keys so long, that
    /// its directory exceeds 1 GiB. Discard the file.
    pub fn finish(self) -> Result<(Summary, W)> {
        self.finish_with(&[])
    }

    /// Completes the file like [`finish`](Self::finish), with the caller's metadata for
    /// [`Reader::metadata`](crate::Reader::metadata); empty for none.
    ///
    /// # Errors
    /// The same errors as [`finish`](Self::finish), and [`Error::TooLarge`] if the metadata exceeds
    /// [`MAX_METADATA`] bytes. Discard the file.
    pub fn finish_with(mut self, metadata: &[u8]) -> Result<(Summary, W)> {
        check_len("the metadata", metadata.len(), MAX_METADATA)?;
        self.packer.end_range();
        self.bind()?;
        let summary = self.binder.finish(&mut self.out, metadata)?;
        Ok((summary, self.out.into_inner()))
    }

    /// Writes the packed frames, and adds their blocks to the binder.
    fn bind(&mut self) -> Result<()> {
        let packed = &mut self.packer.packed;
        self.out.write(&packed.frames)?;
        self.binder.push(packed, 0);
        self.packer.taken();
        Ok(())
    }
}

pub(crate) fn check_lens(key: &[u8], value: &[u8]) -> Result<()> {
    check_len("the key", key.len(), MAX_KEY)?;
    check_len("the value", value.len(), MAX_VALUE)
}
