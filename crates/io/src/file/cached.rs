//! Reads through the page cache, in addition to direct reads: for single reads of small data that
//! may be repeated.
//!
//! These reads use a second handle of the same file, without the direct flag and for reading only,
//! so the page cache never holds unwritten data of the volume. Direct writes make the kernel drop
//! the pages that they cover; if the kernel cannot, a page stays as it was. So these reads may
//! return bytes that are older than the file. The caller must detect that (with a checksum), and
//! then read again with [`FileInner::read_at`].
//!
//! The kernel opens the second handle anew from the first descriptor: it is the same file, even if
//! its name has changed. The second handle takes no lock and claims no device; the first one does.
//! If direct writes and the page cache are not known to agree (FUSE, a network), there is no second
//! handle. `read_around.rs` decides whether a read includes the neighbouring bytes.

#[cfg(target_os = "linux")]
use std::fs::File;
#[cfg(target_os = "linux")]
use std::io::IoSliceMut;
#[cfg(target_os = "linux")]
use std::num::NonZero;
#[cfg(target_os = "linux")]
use std::ops::Range;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
#[cfg(target_os = "linux")]
use std::os::unix::fs::FileExt;

#[cfg(target_os = "linux")]
use rustix::fs::Advice;
#[cfg(target_os = "linux")]
use rustix::io::ReadWriteFlags;

use super::inner::FileInner;
#[cfg(target_os = "linux")]
use super::inner::{copy, retry};

#[cfg(target_os = "linux")]
impl FileInner {
    /// Opens the second handle, if the handle is useful: a volume without direct I/O uses the page
    /// cache anyway.
    pub(super) fn open_cached(&mut self) -> std::io::Result<()> {
        if !self.direct || self.strange_file_system()?.is_some() {
            return Ok(());
        }
        match File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd())) {
            Ok(file) => {
                // Without this advice, the kernel reads ahead as for a file that is read from the
                // beginning to the end.
                let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
                self.cached = Some(file);
            }
            Err(e) => {
                self.note(format!("look-ups bypass the page cache: opening the file again failed: {e}"))
            }
        }
        Ok(())
    }

    /// Reads like [`Volume::read_cached`](crate::Volume::read_cached).
    pub(super) fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(file) = &self.cached else { return false };
        // Bytes in the page cache need no wait; other bytes need a read of the device.
        let there = || {
            let found =
                rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut *buf)], offset, ReadWriteFlags::NOWAIT);
            Ok(found?)
        };
        if retry(there).is_ok_and(|found| found == buf.len()) {
            self.counters.cached_read();
            self.read_around.found(offset);
            return true;
        }
        let around = self.read_around.missed(offset).map(|range| range.start..range.end.min(self.size()));
        let around = around.filter(|range| range.start < range.end && will_need(file, range));
        let read = retry(|| file.read_at(buf, offset));
        let neighbours = around.map_or(0, |range| (range.end - range.start) as usize);
        self.counters.read(&read.as_ref().map(|read| neighbours.max(*read)).map_err(copy));
        read.is_ok_and(|read| read == buf.len())
    }
}

/// Has the kernel begin to read a range into the page cache. Returns whether it does.
#[cfg(target_os = "linux")]
fn will_need(file: &File, range: &Range<u64>) -> bool {
    let len = NonZero::new(range.end - range.start);
    rustix::fs::fadvise(file, range.start, len, Advice::WillNeed).is_ok()
}

#[cfg(not(target_os = "linux"))]
impl FileInner {
    pub(super) fn open_cached(&mut self) -> std::io::Result<()> {
        Ok(())
    }

    pub(super) fn read_cached(&self, _offset: u64, _buf: &mut [u8]) -> bool {
        false
    }
}
