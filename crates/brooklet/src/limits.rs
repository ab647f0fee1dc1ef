//! The limits on user data.

/// Longest key, in bytes.
pub const MAX_KEY: usize = 1024;
