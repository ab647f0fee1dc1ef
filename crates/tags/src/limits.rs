//! The limits of names, ids and tags.

/// Most bytes of a name.
pub const MAX_NAME: usize = 64;

/// Most bytes of an id.
pub const MAX_ID: usize = 512;

/// Most bytes of a tag.
pub const MAX_TAG: usize = 512;

/// Most tags of a record.
pub const MAX_TAGS: usize = 1 << 16;
