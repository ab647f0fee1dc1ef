//! The byte formats on the medium. Only this module knows each byte.

pub mod commit_record;
pub mod manifest;
pub mod ring_label;
pub mod run_entry;
pub mod superblock;
