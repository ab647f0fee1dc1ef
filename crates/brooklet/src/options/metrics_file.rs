//! The place of a metrics file.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use crate::error::Error;

/// The first bytes of each metrics file.
const HEAD: &[u8] = b"# HELP brooklet_";

/// Refuses a path at which there is anything but metrics: the path may be mistyped, and the file
/// there would be replaced, and removed at the end. An empty file is fine, and so is the beginning
/// of metrics that a killed process left.
pub(crate) fn refuse_others(path: &Path) -> Result<(), Error> {
    // A path that cannot be looked at is reported by the first write.
    let Ok(found) = fs::metadata(path) else { return Ok(()) };
    let is_metrics = || -> io::Result<bool> {
        let mut head = Vec::new();
        File::open(path)?.take(HEAD.len() as u64).read_to_end(&mut head)?;
        Ok(HEAD.starts_with(&head))
    };
    // A store that was closed meanwhile has removed its metrics.
    let is_metrics = if found.is_file() { is_metrics() } else { Ok(false) };
    let why = match is_metrics {
        Ok(true) => return Ok(()),
        Ok(false) => "is not a metrics file".into(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => format!("cannot be read to see whether it is a metrics file ({error})"),
    };
    let what = format!("{} {why}, and would be replaced: name another path", path.display());
    Err(Error::InvalidOptions(what))
}
