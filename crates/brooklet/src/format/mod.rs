//! The byte formats on the medium. Only this module knows each byte.

pub mod bounds_note;
pub mod commit_record;
pub mod log_hash;
pub mod manifest;
pub mod manifest_check;
pub mod ring_label;
pub mod run_entry;
pub mod superblock;
