//! The size of a file, and its space. Growing allocates the new space; a write never grows the
//! file. Other files may take space that was released in the middle, so that space must be
//! allocated again before use.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
use rustix::io::Errno;

use super::inner::{FileInner, is_refusal, retry};
use crate::SECTOR;
use crate::seeded::bug;

impl FileInner {
    pub(super) fn grow(&self, size: u64) -> io::Result<()> {
        let _resizing = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_writable()?;
        let old = self.size();
        if size <= old {
            return Ok(());
        }
        if self.device.is_some() {
            let message = format!("{} has {old} bytes and cannot grow to {size}", self.path.display());
            return Err(io::Error::new(io::ErrorKind::StorageFull, message));
        }
        self.check_file()?;
        self.check_limit(size)?;
        let mut grown = retry(|| allocate(&self.file, old, size - old));
        if grown.as_ref().is_err_and(is_refusal) {
            let why = grown.expect_err("it was refused");
            self.note_once(format!("space is not allocated in advance: {why}"));
            grown = self.file.set_len(size);
        }
        if let Err(e) = grown {
            // A failed allocation may leave some space allocated, and may have made the file
            // longer.
            if let Err(e) = self.file.set_len(old) {
                tracing::warn!(path = %self.path.display(), "space from a failed growth stays allocated: {e}");
            }
            return Err(e);
        }
        self.size.store(size, Ordering::Release);
        Ok(())
    }

    pub(super) fn shrink(&self, size: u64) -> io::Result<()> {
        let _resizing = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_writable()?;
        let old = self.size();
        if self.device.is_some() || size >= old {
            return Ok(());
        }
        self.check_file()?;
        // The size shrinks first, so that no concurrent write can make the file longer again.
        self.size.store(size, Ordering::Release);
        self.file.set_len(size).inspect_err(|_| self.size.store(old, Ordering::Release))
    }

    pub(super) fn allocate_range(&self, range: Range<u64>) -> io::Result<()> {
        let _resizing = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_inside(&range)?;
        // Holes are punched only on Linux. On other systems, allocating may cut the file behind the
        // range.
        if self.device.is_some() || cfg!(not(target_os = "linux")) || bug("file-hole-is-room") {
            return Ok(());
        }
        // The common case, at each opening: the range has no holes.
        #[cfg(target_os = "linux")]
        if !super::holes::has_hole(&self.file, &range) {
            return Ok(());
        }
        let made = retry(|| allocate(&self.file, range.start, range.end - range.start));
        match made {
            // XFS requires free space for the whole range, even if most of the range is allocated
            // already.
            #[cfg(target_os = "linux")]
            Err(error) if error.kind() == io::ErrorKind::StorageFull => self.write_holes(range),
            #[cfg(target_os = "linux")]
            Err(error) if is_refusal(&error) => match self.write_holes(range) {
                // As in `grow`: if the file system does not report holes, a later write reports
                // missing room.
                Err(error) if is_refusal(&error) => Ok(()),
                written => written,
            },
            made => made,
        }
    }

    pub(super) fn punch(&self, range: Range<u64>) -> io::Result<bool> {
        let _resizing = self.resize.lock().unwrap_or_else(PoisonError::into_inner);
        self.check_inside(&range)?;
        if self.device.is_some() || !self.gives_back.load(Ordering::Relaxed) {
            return Ok(false);
        }
        match retry(|| deallocate(&self.file, range.start, range.end - range.start)) {
            Err(error) if is_refusal(&error) => {
                self.gives_back.store(false, Ordering::Relaxed);
                self.note(format!("the file system does not take back space in the middle: {error}"));
                Ok(false)
            }
            punched => punched.map(|()| true),
        }
    }

    fn check_inside(&self, range: &Range<u64>) -> io::Result<()> {
        assert!(range.start.is_multiple_of(SECTOR as u64) && range.end.is_multiple_of(SECTOR as u64));
        self.check_writable()?;
        self.check_file()?;
        if range.start < range.end && range.end <= self.size() {
            return Ok(());
        }
        let message = format!("{range:?} is not inside the volume, which ends at {}", self.size());
        Err(io::Error::new(io::ErrorKind::InvalidInput, message))
    }
}

#[cfg(target_os = "linux")]
fn deallocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    use rustix::fs::FallocateFlags;
    Ok(rustix::fs::fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, len)?)
}

#[cfg(not(target_os = "linux"))]
fn deallocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(rustix::io::Errno::NOSYS.into())
}

#[cfg(any(target_os = "linux", target_os = "macos"))]
fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    Ok(rustix::fs::fallocate(file, rustix::fs::FallocateFlags::empty(), offset, len)?)
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
fn allocate(_file: &File, _offset: u64, _len: u64) -> io::Result<()> {
    Err(Errno::NOSYS.into())
}
