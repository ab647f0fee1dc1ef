//! The options of builders.

/// The smallest and largest target for a block: a smaller block is mostly overhead, and a larger
/// block takes long to read.
const BLOCK_SIZES: std::ops::RangeInclusive<usize> = 64..=16 << 20;

/// The options of a codex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuilderOptions {
    /// Target size of a block before compression, in bytes, clamped to 64 B ..= 16 MiB. A read
    /// fetches at least one block; a longer entry gets its own block. Default 16 KiB: a few device
    /// pages after compression.
    pub block_size: usize,
    /// Whether to compress blocks with LZ4. A block is compressed only if that saves 1/16 or more.
    /// After a block that did not shrink, the builder skips the attempt for at most 15 blocks.
    /// Default `true`.
    pub compress: bool,
    /// Filter bits for each hash given to [`Builder::add_filter`](crate::Builder::add_filter); 0
    /// for no filter. Default 10: the filter answers "maybe" for one in a hundred absent items.
    /// With 12, it does so for one in two hundred.
    pub bits_per_item: u32,
    /// The caller's seed for the filter hashes, stored in the footer. Without access to the file,
    /// nobody can choose items that the filter confuses with one another. Default 0.
    pub filter_seed: u64,
    /// The caller's identity of the file, stored in the footer. Default 0.
    pub id: u64,
    /// Length of a value, in bytes, from which the value is stored outside its block, in pieces of
    /// 64 KiB; at least 1. A reader can read a part of such a value without the rest
    /// ([`Reader::get_part`](crate::Reader::get_part)), and a search for keys skips it. Default 64
    /// KiB; `usize::MAX` for never.
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
    /// Returns these options, clamped to their limits.
    pub(crate) fn sound(self) -> Self {
        let block_size = self.block_size.clamp(*BLOCK_SIZES.start(), *BLOCK_SIZES.end());
        BuilderOptions { block_size, apart_from: self.apart_from.max(1), ..self }
    }
}

/// The treatment of entries with the same key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// A duplicate key causes [`Error::Duplicate`](crate::Error::Duplicate), as soon as the builder
    /// notices it.
    #[default]
    Refuse,
    /// The builder keeps the first entry of the key.
    First,
    /// The builder keeps the last entry of the key.
    Last,
}

/// The options of a [`FileBuilder`](crate::FileBuilder).
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// The options of blocks, filter and footer. Unless [`BuilderOptions::bits_per_item`] is 0, the
    /// filter holds the [`key_hash`](crate::key_hash) of each key. Default: no filter, because most
    /// look-ups in a single file find their key; blocks of 4 KiB, because a look-up reads one
    /// block; all else as in [`BuilderOptions`].
    pub blocks: BuilderOptions,
    /// Approximate memory for entries that are being sorted, in bytes. Further entries go into a
    /// temporary file in the folder of the target. The index (about a thousandth of the file) and
    /// the filter use memory in addition. Default 1 GiB.
    pub memory: usize,
    /// Number of threads that sort and pack, at most 1,024. Default 0: one for each core.
    pub threads: usize,
    /// The treatment of entries with the same key. Default [`Duplicates::Refuse`].
    pub duplicates: Duplicates,
    /// Whether the new file replaces an existing file of the same name. Default `false`.
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
