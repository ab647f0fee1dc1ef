//! The limits on user data.

/// Longest key, in bytes.
pub const MAX_KEY: usize = 1024;

/// Greatest number at which a log may [begin](crate::Store::begin_at). No log reaches the end of
/// the numbers by its appends.
pub const MAX_SEQ: u64 = 1 << 62;

/// Greatest number of the next entry of a log that enters a store as a whole. A log that began at
/// [`MAX_SEQ`] or below does not reach it.
pub(crate) const MAX_NEXT: u64 = 1 << 63;
