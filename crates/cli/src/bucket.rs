//! Buckets that a command reads, and paths that may not be there.

use std::path::Path;

use brooklet_archive::Bucket;

use crate::failure::{Failure, Kind};

/// Opens a bucket for reading. A folder that does not exist is not made.
pub fn open_to_read(address: &str) -> Result<Bucket, Failure> {
    if is_missing(address)? {
        let what = format!("{address} holds no backups: there is no such folder; check the address");
        return Err(Failure::new(Kind::NotFound, what));
    }
    Ok(Bucket::open(address)?)
}

/// Returns whether an address names a folder that is not there.
pub fn is_missing(address: &str) -> Result<bool, Failure> {
    let folder = match address.split_once("://") {
        Some(("file", path)) if path.starts_with('/') && !path.contains(['%', '?', '#']) => path,
        None if !address.starts_with("file:") => address,
        // A URL with escapes, or of another form, is left to the bucket.
        _ => return Ok(false),
    };
    Ok(!is_there(Path::new(folder))?)
}

/// Returns whether there is a file or a folder. An error of the system is no sign that there is
/// none.
pub fn is_there(path: &Path) -> Result<bool, Failure> {
    path.try_exists().map_err(|error| {
        Failure::new(Kind::CannotOpen, format!("looking for {} failed: {error}", path.display()))
    })
}
