//! The newest version of the format, and the limits of a file.

/// The newest format version. Builders write it, and readers read it.
pub const VERSION: u32 = 4;

/// The longest key, in bytes: 64 KiB.
pub const MAX_KEY: usize = 64 << 10;

/// The longest value, in bytes: 128 KiB less than a GiB.
pub const MAX_VALUE: usize = MAX_BLOCK - (128 << 10);

/// The longest metadata, in bytes: 1 MiB.
pub const MAX_METADATA: usize = 1 << 20;

/// The longest block before compression, in bytes: an entry of the longest key and value fits.
pub(crate) const MAX_BLOCK: usize = 1 << 30;
