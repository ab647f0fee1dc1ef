//! The most that names, ids and tags may have.

/// The most bytes of a name, an id and a tag.
pub const MAX_NAME: usize = 64;

/// See above.
pub const MAX_ID: usize = 512;

/// See above.
pub const MAX_TAG: usize = 512;

/// The most tags of a record.
pub const MAX_TAGS: usize = 1 << 16;
