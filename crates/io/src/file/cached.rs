//! Reads by way of the page cache, beside the direct ones: for what is small, asked for singly, and
//! maybe again.
//!
//! They go through a second handle of the same open file, without the direct flag and for reading
//! only, so that the page cache never holds anything of ours that is yet to be written. Direct
//! writes make the kernel drop the pages they pass over; where it cannot, a page stays as it was.
//! So what these reads give may be older than the file, and whoever asks has to have a way to see
//! that (a checksum), and reads again then by [`FileInner::read_at`].
//!
//! The handle is one that the kernel opens anew for the descriptor at hand: whatever became of the
//! name, it is the same file. It takes no lock and claims no device; the first one does. Where
//! direct writes and the page cache are not known to agree (FUSE, a network), there is none.

#[cfg(target_os = "linux")]
use std::fs::File;
#[cfg(target_os = "linux")]
use std::io::IoSliceMut;
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
use super::inner::retry;

#[cfg(target_os = "linux")]
impl FileInner {
    /// Opens the second handle, where it serves: a volume that is not direct uses the page cache
    /// anyway.
    pub(super) fn open_cached(&mut self) -> std::io::Result<()> {
        if !self.direct || self.strange_file_system()?.is_some() {
            return Ok(());
        }
        match File::open(format!("/proc/self/fd/{}", self.file.as_raw_fd())) {
            Ok(file) => {
                // Who looks something up wants nothing of its neighbourhood. Without the advice it
                // reads more, no worse.
                let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
                self.cached = Some(file);
            }
            Err(e) => {
                self.note(format!("look-ups pass the page cache by: opening the file again failed: {e}"))
            }
        }
        Ok(())
    }

    /// As [`Volume::read_cached`](crate::Volume::read_cached).
    pub(super) fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(file) = &self.cached else { return false };
        // What is there takes no wait; only the rest is a read of the device.
        let there = || {
            let found =
                rustix::io::preadv2(file, &mut [IoSliceMut::new(&mut *buf)], offset, ReadWriteFlags::NOWAIT);
            Ok(found?)
        };
        if retry(there).is_ok_and(|found| found == buf.len()) {
            self.counters.cached_read();
            return true;
        }
        let read = retry(|| file.read_at(buf, offset));
        self.counters.read(&read);
        read.is_ok_and(|read| read == buf.len())
    }
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
