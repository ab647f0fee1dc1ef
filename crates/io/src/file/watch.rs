//! Checks that the file still exists and is whole. The data of a file that was deleted, replaced or
//! cut short is lost when the file is closed, even after a successful write or flush. So each write
//! begins with a look, each durable write and each flush ends with another, and a change by others
//! is detected before anything is acknowledged.
//!
//! A look asks for no times of the file. Linux from 6.13 on gives the next write after an `fstat` a
//! new time of its own, so the file system would write the file's metadata beside each write.
//!
//! Both checks are needed. Before: a write behind the new end of a cut file would restore the
//! length of the file. After: the file may change during the write. A file that is renamed, and
//! keeps a name, keeps its data.

#[cfg(target_os = "linux")]
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::inner::FileInner;
#[cfg(target_os = "linux")]
use super::inner::is_refusal;
use crate::seeded::bug;

/// The properties of a file that a change by others would change.
struct Found {
    len: u64,
    links: u64,
}

impl FileInner {
    /// Checks that the file still exists and is whole, without waiting for a running resize. A
    /// failure is final: every later write and flush fails.
    pub(crate) fn watch(&self) -> io::Result<()> {
        if self.device.is_some() || bug("file-is-not-watched") {
            return Ok(());
        }
        let before = self.size();
        let found = self.found()?;
        // `size` shrinks before the file shrinks, and grows after the file grows. So a file shorter
        // than both sizes was cut by others, unless it shrank and grew between the two reads of
        // `size`.
        if found.len >= before.min(self.size()) && found.links == self.links.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.check_file_between_resizes()
    }

    /// Runs [`check_file`](Self::check_file), while no thread changes the size.
    pub(super) fn check_file_between_resizes(&self) -> io::Result<()> {
        let _resizing = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_file()
    }

    /// Checks the file like [`watch`](Self::watch). The caller holds `resize`.
    pub(super) fn check_file(&self) -> io::Result<()> {
        if self.device.is_some() {
            return Ok(());
        }
        let found = self.found()?;
        let what = if found.len < self.size() {
            format!("was cut from {} to {} bytes", self.size(), found.len)
        } else if self.lost_its_name(found.links)? {
            "was deleted or replaced".to_owned()
        } else {
            return Ok(());
        };
        let what = format!(
            "{} {what} by another process while it was open, and the volume writes no more: restore the file, then open it again",
            self.path.display()
        );
        let _ = self.gone.set(what);
        self.still_there()
    }

    fn found(&self) -> io::Result<Found> {
        self.still_there()?;
        #[cfg(target_os = "linux")]
        match look(&self.file) {
            Err(error) if is_refusal(&error) => {}
            found => return found,
        }
        let found = self.file.metadata()?;
        Ok(Found { len: found.len(), links: found.nlink() })
    }

    /// Returns the error of an earlier check that found a change.
    fn still_there(&self) -> io::Result<()> {
        self.gone.get().map_or(Ok(()), |what| Err(io::Error::other(what.clone())))
    }

    /// Returns whether the file's own name is gone. If the file has fewer names than before,
    /// another name may have been removed: then the path still names this file.
    fn lost_its_name(&self, links: u64) -> io::Result<bool> {
        let before = self.links.load(Ordering::Relaxed);
        if links > before && before > 0 {
            self.links.store(links, Ordering::Relaxed);
        }
        if links >= before {
            return Ok(false);
        }
        let own = self.file.metadata()?;
        let named = std::fs::metadata(&self.path);
        let is_it = named.is_ok_and(|named| (named.dev(), named.ino()) == (own.dev(), own.ino()));
        if is_it && links > 0 {
            self.links.store(links, Ordering::Relaxed);
        }
        Ok(links == 0 || !is_it)
    }
}

#[cfg(target_os = "linux")]
fn look(file: &File) -> io::Result<Found> {
    use rustix::fs::{AtFlags, StatxFlags, statx};
    let found = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::SIZE | StatxFlags::NLINK)?;
    Ok(Found { len: found.stx_size, links: found.stx_nlink.into() })
}
