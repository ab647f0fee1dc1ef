//! The identity of this process: detects a handle that was inherited through a `fork`.
//!
//! A forked child has a copy of all memory, and none of the threads: locks that other threads held
//! stay locked, and the parent also writes all pending data of the copy. So the opener of a
//! resource stores the process, and checks it before each use.
//!
//! The process id does not suffice: a system call for it takes as long as a whole append in memory,
//! and a descendant may have the id of an ended ancestor. Instead, the kernel wipes a page in the
//! child (`MADV_WIPEONFORK`, Linux 4.14). The page holds the number of a generation. If it holds
//! zero, the process is new, and takes the next number, which no ancestor had. If the kernel has no
//! such page, the process id is used.

use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::seeded::bug;

/// The identity of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// Returns the identity of this process.
    #[inline]
    pub fn current() -> Self {
        static PAGE: OnceLock<Option<Page>> = OnceLock::new();
        Self(PAGE.get_or_init(Page::new).as_ref().map_or_else(|| std::process::id().into(), Page::generation))
    }

    /// Returns whether this is the stored process, and not a fork of it.
    #[inline]
    pub fn is_here(self) -> bool {
        self == Self::current() || bug("fork-goes-unnoticed")
    }
}

/// A word on a page that a fork wipes. Never unmapped.
struct Page(NonNull<AtomicU64>);

// SAFETY: the word is atomic, and stays where it is until the process ends.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    #[cfg(all(target_os = "linux", not(miri)))]
    fn new() -> Option<Self> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        const LEN: usize = 4096;
        // SAFETY: a new mapping, at an address of the kernel's choice, touches no memory that is in
        // use.
        let page = unsafe {
            mmap_anonymous(std::ptr::null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let page = page.ok()?;
        // SAFETY: the mapping is ours alone, and the advice changes nothing in this process.
        let wiped = unsafe { madvise(page, LEN, Advice::LinuxWipeOnFork) };
        // If the advice fails, the page stays mapped and unused; this happens at most once per
        // process.
        wiped.ok().and_then(|()| NonNull::new(page.cast())).map(Self)
    }

    #[cfg(not(all(target_os = "linux", not(miri))))]
    fn new() -> Option<Self> {
        None
    }

    #[inline]
    fn generation(&self) -> u64 {
        // SAFETY: the page is never unmapped, the start of a page is aligned, and zero is a valid
        // number.
        let word = unsafe { self.0.as_ref() };
        match word.load(Ordering::Relaxed) {
            0 => Self::begin(word),
            generation => generation,
        }
    }

    /// Takes the next number.
    #[cold]
    fn begin(word: &AtomicU64) -> u64 {
        // A child inherits this counter, so its next number is larger than the number of every
        // ancestor.
        static LAST: AtomicU64 = AtomicU64::new(0);
        let next = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        // Another thread may have stored a number first.
        word.compare_exchange(0, next, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|first| first, |_| next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_itself() {
        let here = Process::current();
        assert!(here.is_here() && Process::current() == here);
        let there = std::thread::scope(|scope| scope.spawn(Process::current).join().unwrap());
        assert_eq!(there, here, "whichever thread asks");
        assert!(!Process(here.0 + 1).is_here());
    }

    #[test]
    fn a_page_that_was_wiped_gives_a_number_that_was_never_given() {
        let Some(page) = Page::new() else { return println!("skipped: no such page here") };
        let first = page.generation();
        assert_eq!(page.generation(), first);
        // SAFETY: as in `generation`.
        unsafe { page.0.as_ref() }.store(0, Ordering::Relaxed);
        assert!(page.generation() > first);
    }
}
