//! Whether the file is still there and whole. What lies in one that was deleted, replaced or cut
//! short is gone when it is closed, whatever a write or a flush says: so each write looks before
//! and after, which is one `fstat` each, and what others did by then is met before anything is
//! acknowledged.
//!
//! Both looks are needed. One before: a write behind a cut would make the file as long as it was.
//! One after: what went while the write was under way. A file that is renamed, and keeps a name,
//! keeps what it holds.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::inner::FileInner;
use crate::seeded::bug;

impl FileInner {
    /// Finds out whether the file is still there and whole, without waiting for whoever changes its
    /// size. What it finds is final: no write and no flush succeeds from then on.
    pub(crate) fn watch(&self) -> io::Result<()> {
        if self.device.is_some() || bug("file-is-not-watched") {
            return Ok(());
        }
        let before = self.size();
        let found = self.found()?;
        // The size falls before the file does, and rises after it: a file shorter than both is one
        // that others cut, unless it became smaller and larger between the two looks.
        if found.len() >= before.min(self.size()) && found.nlink() == self.links.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.check_file_between_resizes()
    }

    /// [`check_file`](Self::check_file), while nobody is about to change the size.
    pub(super) fn check_file_between_resizes(&self) -> io::Result<()> {
        let _resizing = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_file()
    }

    /// As [`watch`](Self::watch). Called under `resize`.
    pub(super) fn check_file(&self) -> io::Result<()> {
        if self.device.is_some() {
            return Ok(());
        }
        let found = self.found()?;
        let what = if found.len() < self.size() {
            format!("was cut from {} to {} bytes", self.size(), found.len())
        } else if self.lost_its_name(&found) {
            "was deleted or replaced".to_owned()
        } else {
            return Ok(());
        };
        let what = format!(
            "{} {what} by someone else while it was open; nothing more is written to it: bring the file back, and open it anew",
            self.path.display()
        );
        let _ = self.gone.set(what);
        self.still_there()
    }

    fn found(&self) -> io::Result<Metadata> {
        self.still_there()?;
        self.file.metadata()
    }

    /// The error of a look before this one, if it found something.
    fn still_there(&self) -> io::Result<()> {
        self.gone.get().map_or(Ok(()), |what| Err(io::Error::other(what.clone())))
    }

    /// Whether the name by which the file was opened is gone. Where it has fewer names than before,
    /// the one that went may be another: then its own still leads to it.
    fn lost_its_name(&self, found: &Metadata) -> bool {
        let (links, before) = (found.nlink(), self.links.load(Ordering::Relaxed));
        if links > before && before > 0 {
            self.links.store(links, Ordering::Relaxed);
        }
        if links >= before {
            return false;
        }
        let named = std::fs::metadata(&self.path);
        let is_it = named.is_ok_and(|named| (named.dev(), named.ino()) == (found.dev(), found.ino()));
        if is_it && links > 0 {
            self.links.store(links, Ordering::Relaxed);
        }
        links == 0 || !is_it
    }
}
