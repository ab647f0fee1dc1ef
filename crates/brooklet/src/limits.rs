//! The limits on user data.

/// Longest key, in bytes.
pub const MAX_KEY: usize = 1024;

/// Greatest number at which a log may [begin](crate::Store::begin_at). No log reaches the end of
/// the numbers by its appends.
pub const MAX_SEQ: u64 = 1 << 62;
