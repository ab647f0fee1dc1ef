//! Which files this process has open as volumes, so that one who finds a lock held can be told that
//! it is held at home. Nothing but messages depends on it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What a file is known by: its file system and its number there; a device by its own number,
/// whatever its name.
type Identity = (u64, u64);

/// How often each is open, by the process that opened it: one that was forked off has the table,
/// and did not open them.
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
        let mut held = held();
        if let Some(count) = held.get_mut(&(self.0, self.1)) {
            *count -= 1;
            if *count == 0 {
                held.remove(&(self.0, self.1));
            }
        }
    }
}

/// Whether this very process has the file or device at `path` open as a volume, by whatever name.
pub fn is_open_here(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| held().contains_key(&(std::process::id(), identity(&found))))
}

fn held() -> MutexGuard<'static, BTreeMap<(u32, Identity), usize>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity(found: &Metadata) -> Identity {
    if found.file_type().is_block_device() { (u64::MAX, found.rdev()) } else { (found.dev(), found.ino()) }
}
