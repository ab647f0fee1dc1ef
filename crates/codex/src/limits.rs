//! The newest version of the format, and the most that a file holds of a kind.

/// The last format version that is written and read.
pub const VERSION: u32 = 3;

/// The longest key, in bytes: 64 KiB.
pub const MAX_KEY: usize = 64 << 10;

/// The longest value, in bytes: 128 KiB less than a GiB.
pub const MAX_VALUE: usize = MAX_BLOCK - (128 << 10);

/// The longest metadata, in bytes: 1 MiB.
pub const MAX_METADATA: usize = 1 << 20;

/// The longest block before compressing: one entry of the longest key and value fits.
pub(crate) const MAX_BLOCK: usize = 1 << 30;
