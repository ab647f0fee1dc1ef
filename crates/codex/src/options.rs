//! How a codex is built.

/// The smallest and largest target for a block: what is smaller is all overhead, what is larger is
/// slow to read in.
const BLOCK_SIZES: std::ops::RangeInclusive<usize> = 64..=16 << 20;

/// How to build a codex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuilderOptions {
    /// Target for a block before compressing, in bytes, held to 64 B ..= 16 MiB. A read takes in at
    /// least one block; a longer entry gets a block of its own. Default 16 KiB: a few device pages
    /// once compressed.
    pub block_size: usize,
    /// Compress blocks by LZ4, where that saves 1/16 or more. Where it does not, the blocks that
    /// follow go without trying, at most 15 of them. Default `true`.
    pub compress: bool,
    /// Bits of filter for each hash given to [`Builder::add_filter`](crate::Builder::add_filter); 0
    /// for no filter. Default 10: one in a hundred questions about absent items is answered
    /// "maybe". 12: one in two hundred.
    pub bits_per_item: u32,
    /// The caller's seed for those hashes, kept in the footer, so that nobody who cannot read the
    /// file can choose items that its filter takes for one another. Default 0.
    pub filter_seed: u64,
    /// The caller's identity for the file, kept in the footer. Default 0.
    pub id: u64,
    /// From so many bytes on, at least 1, a value lies apart from its block, in pieces of 64 KiB: a
    /// part of it is read without the rest ([`Reader::get_part`](crate::Reader::get_part)), and
    /// whoever looks for keys passes it by. Default 64 KiB; `usize::MAX` for never.
    pub apart_from: usize,
}

impl Default for BuilderOptions {
    fn default() -> Self {
        BuilderOptions {
            block_size: 16 << 10,
            compress: true,
            bits_per_item: 10,
            filter_seed: 0,
            id: 0,
            apart_from: 64 << 10,
        }
    }
}

impl BuilderOptions {
    /// These, within their limits.
    pub(crate) fn sound(self) -> Self {
        let block_size = self.block_size.clamp(*BLOCK_SIZES.start(), *BLOCK_SIZES.end());
        BuilderOptions { block_size, apart_from: self.apart_from.max(1), ..self }
    }
}

/// What becomes of entries with the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// They are an error: [`Error::Duplicate`](crate::Error::Duplicate), as soon as it is noticed.
    #[default]
    Refuse,
    /// The one that was given first stays.
    First,
    /// The one that was given last stays.
    Last,
}

/// How to build a codex file.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// How blocks, filter and footer are made. The filter, unless [`BuilderOptions::bits_per_item`]
    /// is 0, is of the [`key_hash`](crate::key_hash) of each key. Default: no filter, as a file by
    /// itself is mostly asked for what it has; blocks of 4 KiB, as that is what looking up a key
    /// costs; and else as in [`BuilderOptions`].
    pub blocks: BuilderOptions,
    /// Bytes of memory for entries that are being sorted, about; past that they go into a file at
    /// work beside the target. Index (a thousandth of the file, about) and filter come on top.
    /// Default 1 GiB.
    pub memory: usize,
    /// How many threads sort and pack. Default 0: as many as there are cores.
    pub threads: usize,
    /// What becomes of entries with the same key. Default [`Duplicates::Refuse`].
    pub duplicates: Duplicates,
    /// Whether a file that has the name already is replaced. Default `false`.
    pub replace: bool,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions {
            blocks: BuilderOptions { block_size: 4 << 10, bits_per_item: 0, ..BuilderOptions::default() },
            memory: 1 << 30,
            threads: 0,
            duplicates: Duplicates::default(),
            replace: false,
        }
    }
}
