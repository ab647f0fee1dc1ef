//! The most that users may store.

/// Longest key, in bytes.
pub const MAX_KEY: usize = 1024;
