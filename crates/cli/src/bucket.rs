//! Buckets that a command reads, and paths that may not be there.

use std::path::Path;

use brooklet_archive::Bucket;

use crate::failure::{Failure, Kind};

/// Opens a bucket for reading. A folder that does not exist is not made.
pub fn open_to_read(address: &str) -> Result<Bucket, Failure> {
    if !address.contains("://") && !is_there(Path::new(address))? {
        let what = format!("{address} holds no backups: there is no such folder; check the address");
        return Err(Failure::new(Kind::NotFound, what));
    }
    Ok(Bucket::open(address)?)
}

/// Returns whether there is a file or a folder. An error of the system is no sign that there is
/// none.
pub fn is_there(path: &Path) -> Result<bool, Failure> {
    path.try_exists().map_err(|error| {
        Failure::new(Kind::CannotOpen, format!("looking for {} failed: {error}", path.display()))
    })
}
