//! Finds pages in the page cache: asks the kernel, without loading anything.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr;

use crate::SECTOR;

/// Returns whether the page of `file` that begins at `at` is in the page cache. `None` if the
/// kernel does not report it.
///
/// To a process that may not write to the file, the kernel reports that everything is cached.
pub(super) fn resident(file: &File, at: u64) -> Option<bool> {
    let at = libc::off_t::try_from(at).ok()?;
    // SAFETY: the kernel chooses the address of the new mapping, so the mapping overlaps no other.
    // Nothing is read or written through the mapping, so changes of the file do not matter. The
    // mapping is removed before this function returns.
    unsafe {
        let page =
            libc::mmap(ptr::null_mut(), SECTOR, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), at);
        if page == libc::MAP_FAILED {
            return None;
        }
        // The kernel writes one byte per page; the mapping has one page, or a part of a larger
        // page.
        let mut told = 0;
        let asked = libc::mincore(page, SECTOR, &raw mut told);
        libc::munmap(page, SECTOR);
        (asked == 0).then_some(told & 1 == 1)
    }
}
