//! The files that this process has open as volumes, so that an error about a held lock can name
//! this process. Only messages depend on it.

use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread;

/// The identity of a file: its file system, and its number in that file system. A device has its
/// own number, under every name.
type Identity = (u64, u64);

/// Number of openings of each file, with the process that opened the file: a forked process has a
/// copy of the table, but did not open the files.
static HELD: Mutex<Table> = Mutex::new(BTreeMap::new());

type Table = BTreeMap<(u32, Identity), usize>;

/// Most tries to lock the table. Each user holds the lock for less than a microsecond.
const TRIES: u32 = 1000;

/// Counts a file as open until it is dropped. The number of the process is 0 if the file was not
/// counted.
#[derive(Debug)]
pub(super) struct Held(u32, Identity);

impl Held {
    pub fn new(file: &File) -> io::Result<Self> {
        Ok(Self::count(&HELD, identity(&file.metadata()?)))
    }

    fn count(table: &Mutex<Table>, identity: Identity) -> Self {
        let process = std::process::id();
        let Some(mut held) = lock(table) else { return Self(0, identity) };
        *held.entry((process, identity)).or_default() += 1;
        Self(process, identity)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A forked process did not open the file. What was not counted takes no other handle's
        // count away.
        if self.0 != std::process::id() {
            return;
        }
        let Some(mut held) = lock(&HELD) else { return };
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
    let is_held = |key| lock(&HELD).is_some_and(|held| held.contains_key(&key));
    std::fs::metadata(path).is_ok_and(|found| is_held((std::process::id(), identity(&found))))
}

/// Locks a table; `None` if the lock stays held. In a forked process, the copy of a lock is held
/// for ever if another thread of the parent held the lock at the fork.
fn lock<T>(table: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..TRIES {
        match table.try_lock() {
            Ok(held) => return Some(held),
            Err(TryLockError::Poisoned(held)) => return Some(held.into_inner()),
            Err(TryLockError::WouldBlock) => thread::yield_now(),
        }
    }
    None
}

fn identity(found: &Metadata) -> Identity {
    if found.file_type().is_block_device() { (u64::MAX, found.rdev()) } else { (found.dev(), found.ino()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Another thread of the parent may hold the table at the moment of the fork.
    #[test]
    fn a_forked_process_waits_for_no_copy_of_the_lock() {
        let table = Mutex::new(0);
        let of_parent = lock(&table);
        assert!(of_parent.is_some() && lock(&table).is_none());
        drop(of_parent);
        assert!(lock(&table).is_some());
    }

    /// In an earlier state its end took the count of another handle of the same file away.
    #[test]
    fn a_file_that_was_not_counted_takes_no_count_away() {
        let table = Mutex::new(Table::new());
        let taken = lock(&table);
        let uncounted = Held::count(&table, (1, 2));
        drop(taken);
        assert_eq!(uncounted.0, 0, "no process has this number");
        assert!(lock(&table).is_some_and(|held| held.is_empty()));
    }
}
