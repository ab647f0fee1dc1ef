//! The remains of backups that were given up: objects of their uploads, and in a folder the files
//! that a process was writing when it was killed.
//!
//! The record of a backup is created once, and names its own upload of that number. So once the
//! record exists, no backup can ever refer to another upload of the same number.

use std::fs::DirEntry;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::bucket::Bucket;
use crate::error::Error;
use crate::objects::Listed;
use crate::record::{BACKUPS, BUNDLES, COMMITS, Upload};

/// Number of objects that are deleted at a time.
const AT_ONCE: usize = 1000;

/// Age from which on nobody writes a file any more.
const OLD: Duration = Duration::from_secs(24 * 3600);

/// Removes the remains at the number of a backup, and at that of the backup `before`, until `go_on`
/// returns `Break`. Returns whether that succeeded; the backup is whole without it.
pub(crate) fn remove(
    bucket: &Bucket,
    before: Option<Upload>,
    made: Upload,
    go_on: &mut dyn FnMut() -> ControlFlow<()>,
) -> bool {
    let removed = remove_uploads(bucket, before, made, go_on);
    if let Some(folder) = bucket.folder() {
        remove_staged(folder);
    }
    match removed {
        Ok(objects) => {
            if objects > 0 {
                tracing::info!(objects, "the archive removed objects of backups that were given up");
            }
            true
        }
        Err(error) => {
            tracing::debug!(%error, "objects of backups that were given up stay until a later backup");
            false
        }
    }
}

fn remove_uploads(
    bucket: &Bucket,
    before: Option<Upload>,
    made: Upload,
    go_on: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<usize, Error> {
    let first = before.map_or(made.number, |before| before.number);
    let is_left_over = |object: &Listed| {
        let of = [before, Some(made)].into_iter().flatten();
        let mut of = of.filter(|upload| object.number(BUNDLES) == Some(upload.number));
        of.any(|upload| !object.name.starts_with(&upload.folder()))
    };
    let mut found = bucket.list_behind(BUNDLES, Some(&format!("{BUNDLES}/{first:020}")))?;
    found.retain(is_left_over);
    let names: Vec<String> = found.into_iter().map(|object| object.name).collect();
    names.chunks(AT_ONCE).try_for_each(|names| match go_on() {
        ControlFlow::Continue(()) => bucket.delete(names),
        ControlFlow::Break(()) => Err(Error::Cancelled { what: "the removal of objects" }),
    })?;
    Ok(names.len())
}

/// Removes old files that a killed process was writing: a file gets the name of its object once it
/// is whole. Lists do not show such files.
fn remove_staged(folder: &Path) {
    let mut folders: Vec<PathBuf> = [BACKUPS, BUNDLES, COMMITS].map(|name| folder.join(name)).into();
    while let Some(folder) = folders.pop() {
        let mut is_changed = false;
        for found in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            match found.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(found.path()),
                Ok(kind) if kind.is_file() && is_staged(&found) && is_old(&found) => {
                    is_changed |= std::fs::remove_file(found.path()).is_ok();
                }
                _ => {}
            }
        }
        if is_changed {
            // A folder with something in it stays.
            let _ = std::fs::remove_dir(&folder);
        }
    }
}

/// Returns whether a file has the name of one that is not whole: that of its object, `#`, and a
/// number.
fn is_staged(found: &DirEntry) -> bool {
    let name = found.file_name();
    let number = name.to_str().and_then(|name| name.split_once('#')).map(|(_, number)| number);
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
}

fn is_old(found: &DirEntry) -> bool {
    let written = found.metadata().and_then(|found| found.modified()).ok();
    written.and_then(|written| written.elapsed().ok()).is_some_and(|age| age >= OLD)
}
