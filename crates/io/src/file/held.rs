//! The files that this process has open as volumes, so that an error about a held lock can name
//! this process. Only messages depend on it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The identity of a file: its file system, and its number in that file system. A device has its
/// own number, under every name.
type Identity = (u64, u64);

/// Number of openings of each file, with the process that opened the file: a forked process has a
/// copy of the table, but did not open the files.
static HELD: Mutex<BTreeMap<(u32, Identity), usize>> = Mutex::new(BTreeMap::new());

/// Counts a file as open until it is dropped.
#[derive(Debug)]
pub(super) struct Held(u32, Identity);

impl Held {
    pub fn new(file: &File) -> io::Result<Self> {
        let key = (std::process::id(), identity(&file.metadata()?));
        *held().entry(key).or_default() += 1;
        Ok(Self(key.0, key.1))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A forked process did not open the file. Its copy of the lock may be held for ever.
        if self.0 != std::process::id() {
            return;
        }
        let mut held = held();
        if let Some(count) = held.get_mut(&(self.0, self.1)) {
            *count -= 1;
            if *count == 0 {
                held.remove(&(self.0, self.1));
            }
        }
    }
}

/// Returns whether this process has the file or device at `path` open as a volume, under any name.
pub fn is_open_here(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| held().contains_key(&(std::process::id(), identity(&found))))
}

fn held() -> MutexGuard<'static, BTreeMap<(u32, Identity), usize>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(found: &Metadata) -> Identity {
    if found.file_type().is_block_device() { (u64::MAX, found.rdev()) } else { (found.dev(), found.ino()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another thread of the parent may hold the table at the moment of the fork.
    #[test]
    fn a_forked_process_closes_files_without_the_table() {
        let _of_parent = held();
        drop(Held(0, (1, 2)));
    }
}
