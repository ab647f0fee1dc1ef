//! Direct I/O and io_uring: used where they are reliable; chosen when the file is opened.

use std::io;
#[cfg(target_os = "linux")]
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

#[cfg(target_os = "linux")]
use rustix::fs::OFlags;

use super::FileOptions;
#[cfg(target_os = "linux")]
use super::direct::{self, Direct};
use super::inner::FileInner;
#[cfg(target_os = "linux")]
use super::inner::{is_refusal, retry};
#[cfg(all(target_os = "linux", feature = "io-uring"))]
use super::uring::UringQueue;
#[cfg(target_os = "linux")]
use crate::seeded::bug;
#[cfg(target_os = "linux")]
use crate::{AlignedBuf, SECTOR};

impl FileInner {
    pub(super) fn backend(&self) -> &'static str {
        if self.uring.load(Ordering::Relaxed) { "io_uring" } else { "threads" }
    }
}

#[cfg(target_os = "linux")]
impl FileInner {
    /// Switches direct I/O on. This happens after the open, because some file systems create the
    /// file and then refuse the flag.
    pub(super) fn choose_direct(&mut self, options: &FileOptions) -> io::Result<()> {
        if !options.direct {
            self.note("buffered I/O: the options ask for it".into());
            return Ok(());
        }
        let flags = rustix::fs::fcntl_getfl(&self.file)?;
        let mut probe = AlignedBuf::zeroed(SECTOR);
        let probed = rustix::fs::fcntl_setfl(&self.file, flags | OFlags::DIRECT)
            .map_err(io::Error::from)
            .and_then(|()| match retry(|| self.file.read_at(&mut probe, 0)) {
                // The device may not read this sector: a store has copies of it.
                Err(e) if !is_refusal(&e) => Ok(0),
                read => read,
            })
            // An empty file refuses no read, but may refuse the write of the test.
            .and_then(|_| self.look_whether_direct(flags));
        match probed {
            Err(e) if is_refusal(&e) => {
                rustix::fs::fcntl_setfl(&self.file, flags)?;
                self.note(format!("buffered I/O: direct I/O failed: {e}"));
                Ok(())
            }
            probed => probed,
        }
    }

    /// Keeps the direct flag if I/O with the flag is direct; otherwise removes the flag.
    fn look_whether_direct(&mut self, flags: OFlags) -> io::Result<()> {
        let may_write = self.check_writable().and_then(|()| self.check_limit(SECTOR as u64)).is_ok();
        // A device has no file system that could use the page cache instead.
        let found = match self.device {
            None => direct::look(&self.file, self.size(), may_write)?,
            Some(_) => Direct::Real,
        };
        match found {
            Direct::Real => {
                self.direct = true;
                let kind = rustix::fs::fstatfs(&self.file)?.f_type as u64;
                self.reads_medium = self.device.is_some() || !is_passed_on(kind);
            }
            _ if bug("file-direct-in-name-is-believed") => self.direct = true,
            Direct::InName(why) => {
                rustix::fs::fcntl_setfl(&self.file, flags)?;
                self.note(format!("buffered I/O: direct I/O has no effect: {why}"));
            }
            // Keeps the flag, which may help, but does not rely on it.
            Direct::Unknown => {
                self.note(
                    "buffered I/O: the system does not report whether direct I/O bypasses the page cache"
                        .into(),
                );
            }
        }
        Ok(())
    }

    pub(super) fn choose_backend(&mut self, options: &FileOptions) -> io::Result<()> {
        if !options.io_uring {
            self.note("queues use threads: the options ask for them".into());
            return Ok(());
        }
        if let Some(kind) = self.strange_file_system()? {
            // If FUSE carries out only a part of a direct write, the kernel's ring continues with
            // the rest by itself, but at the offset of the first part.
            self.note(format!("queues use threads: {kind} may misplace what io_uring writes"));
            return Ok(());
        }
        #[cfg(feature = "io-uring")]
        match UringQueue::probe(&self.file) {
            Ok(()) => *self.uring.get_mut() = true,
            Err(e) => self.note(format!("queues use threads: io_uring failed: {e}")),
        }
        #[cfg(not(feature = "io-uring"))]
        self.note("queues use threads: this build lacks the feature `io-uring`".into());
        Ok(())
    }

    /// Describes the file system, unless the volume is a device or the file system is known to
    /// carry out direct writes itself. FUSE, network file systems and layered file systems may
    /// ignore the durability that a flag or a ring requests; they must honour plain system calls.
    pub(super) fn strange_file_system(&self) -> io::Result<Option<String>> {
        /// Types of ext2 to ext4, XFS, Btrfs, F2FS, bcachefs, ZFS and tmpfs; see `statfs(2)`.
        const KNOWN: [u64; 7] =
            [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0xca45_1a4e, 0x2fc1_2fc1, 0x0102_1994];
        let kind = rustix::fs::fstatfs(&self.file)?.f_type as u64;
        let known = self.device.is_some() || KNOWN.contains(&kind);
        Ok((!known).then(|| format!("a file system of type {kind:#x}")))
    }
}

/// Returns whether file systems of this type pass requests on to another program or machine. It may
/// answer a direct read from a cache of its own, which can hold bytes that a failed flush dropped.
#[cfg(target_os = "linux")]
pub(super) fn is_passed_on(kind: u64) -> bool {
    /// Types of FUSE, NFS, CIFS, SMB 2, SMB, 9P, Ceph and AFS; see `statfs(2)`.
    const PASSED_ON: [u64; 8] =
        [0x6573_5546, 0x6969, 0xff53_4d42, 0xfe53_4d42, 0x517b, 0x0102_1997, 0x00c3_6400, 0x5346_414f];
    PASSED_ON.contains(&kind)
}

#[cfg(not(target_os = "linux"))]
impl FileInner {
    pub(super) fn choose_direct(&mut self, options: &FileOptions) -> io::Result<()> {
        #[cfg(target_os = "macos")]
        if options.direct {
            rustix::fs::fcntl_nocache(&self.file, true)?;
            self.direct = true;
            return Ok(());
        }
        if options.direct {
            self.note("buffered I/O: this system has no direct I/O".into());
        } else {
            self.note("buffered I/O: the options ask for it".into());
        }
        Ok(())
    }

    pub(super) fn choose_backend(&mut self, _options: &FileOptions) -> io::Result<()> {
        Ok(())
    }
}
