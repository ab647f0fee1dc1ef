//! The folder of a trial of the store. It stays if the trial may have found a fault.

use std::fs::remove_dir_all;
use std::path::{Path, PathBuf};

use tempfile::Builder;

use crate::failure::{Failure, Kind};

/// A folder that only [`end`](Self::end) removes: a panic leaves it, too.
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder in `parent`, with a name that begins with `prefix`.
    pub fn new(parent: &Path, prefix: &str) -> Result<Self, Failure> {
        let made = Builder::new().prefix(prefix).tempdir_in(parent);
        let made = made.map_err(Failure::io(format!("making a directory in {}", parent.display())))?;
        Ok(Self(made.keep()))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Removes the folder at the end of the trial, unless it is evidence: `found` says whether the
    /// report of the trial has a fault.
    pub fn end<T>(self, done: &Result<T, Failure>, found: impl FnOnce(&T) -> bool) {
        if done.as_ref().map_or_else(may_be_fault, found) {
            eprintln!("brooklet: the store is left in {}", self.0.display());
        } else {
            // A folder that cannot be removed changes no result.
            let _ = remove_dir_all(&self.0);
        }
    }
}

/// Returns whether a fault of the store may be the reason of a failure.
fn may_be_fault(failure: &Failure) -> bool {
    !matches!(failure.kind, Kind::Usage | Kind::Full | Kind::PipeClosed)
}
