//! The name of a file that a command makes. The file gets the name once it is complete, in place of
//! any other file there.

use std::fs::metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::failure::{Failure, Kind};

/// Refuses a name that leads to a device, a pipe or a folder, or to a file that the command reads.
pub fn may_be_replaced<'a>(target: &Path, mut reads: impl Iterator<Item = &'a Path>) -> Result<(), Failure> {
    let Ok(found) = metadata(target) else { return Ok(()) };
    let is_found =
        |read: &Path| metadata(read).is_ok_and(|read| (read.dev(), read.ino()) == (found.dev(), found.ino()));
    let why = match found.is_file() {
        false => "is not a file",
        true if reads.any(is_found) => "is read by this command",
        true => return Ok(()),
    };
    let what = format!("{} {why}: choose another name", target.display());
    Err(Failure::new(Kind::Usage, what))
}
