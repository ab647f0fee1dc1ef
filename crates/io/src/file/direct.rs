//! Tests whether direct I/O is direct. Some file systems accept the flag and still use the page
//! cache: ext4 when it journals data, and tmpfs always. The page cache gives weaker guarantees:
//! after a failed write-back, it returns pages that are not on the medium.
//!
//! The test does not depend on the file system's name. The test reads or writes directly a sector
//! that is not in the page cache, and checks whether the sector is in the cache afterwards. If the
//! kernel does not report that, `statx` may help: a file system that supports direct I/O for a file
//! reports an alignment.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, AtFlags, SeekFrom, StatxFlags};

use super::inner::{is_refusal, retry};
use super::resident::resident;
use crate::{AlignedBuf, Rng, SECTOR, system_seed};

/// The result of the test.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Direct {
    /// Direct I/O bypasses the page cache.
    Real,
    /// Direct I/O does not bypass the page cache, for this reason.
    InName(&'static str),
    /// The test has no result.
    Unknown,
}

/// Most places to test: other users of the file may keep a page in the cache.
const PLACES: usize = 16;

/// Largest folio, in bytes. The cache drops whole folios.
const FOLIO: u64 = 4 << 20;

/// Tests whether I/O on `file`, which has the flag, bypasses the page cache. `may_write` allows
/// writing to an empty file.
pub(super) fn look(file: &File, size: u64, may_write: bool) -> io::Result<Direct> {
    let aligned = alignment(file);
    if aligned == Some(false) {
        return Ok(Direct::InName(
            "the file system does not support it for this file in units of 4096 bytes",
        ));
    }
    let kept = match size {
        0 if may_write => {
            let kept = stays_when_written(file);
            file.set_len(0)?;
            kept?
        }
        0 => None,
        size => stays_when_read(file, size)?,
    };
    Ok(match (kept, aligned) {
        (Some(true), _) => Direct::InName("its reads and writes stay in the page cache"),
        (Some(false), _) | (None, Some(true)) => Direct::Real,
        (None, _) => Direct::Unknown,
    })
}

/// Returns whether the file supports direct I/O of sectors, as `statx` reports. `None` if the
/// kernel (before Linux 6.1) or the file system does not report that.
fn alignment(file: &File) -> Option<bool> {
    let found = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let told = found.stx_mask & StatxFlags::DIOALIGN.bits() != 0;
    told.then(|| serves(found.stx_dio_offset_align, found.stx_dio_mem_align))
}

/// Returns whether direct I/O of sectors works with these alignments, in bytes, of offsets and of
/// memory. Both are 0 where it is not supported.
fn serves(offset: u32, memory: u32) -> bool {
    [offset, memory].into_iter().all(|align| (SECTOR as u32).is_multiple_of(align))
}

/// Writes the first sector of an empty file directly. Returns whether the sector is then in the
/// page cache; `None` if the kernel does not report that.
fn stays_when_written(file: &File) -> io::Result<Option<bool>> {
    let sector = AlignedBuf::zeroed(SECTOR);
    retry(|| file.write_at(&sector, 0))?;
    Ok(resident(file, 0))
}

/// Returns the first sector with data at `at` or behind it. A file system may read a hole without
/// the page cache, so a hole proves nothing.
fn data_behind(file: &File, at: u64) -> Option<u64> {
    let found = rustix::fs::seek(file, SeekFrom::Data(at)).ok()?;
    Some(found / SECTOR as u64 * SECTOR as u64)
}

/// Reads a sector directly that is not in the page cache. Returns whether the sector is then in the
/// page cache. `None` if the kernel does not report that, or if no sector can be tested.
fn stays_when_read(file: &File, size: u64) -> io::Result<Option<bool>> {
    let mut rng = Rng::new(system_seed());
    let mut sector = AlignedBuf::zeroed(SECTOR);
    for _ in 0..PLACES {
        let Some(at) = data_behind(file, rng.below(size)).or_else(|| data_behind(file, 0)) else { break };
        // Drops pages that other users left in the cache, if the kernel allows that.
        let _ = rustix::fs::fadvise(file, at / FOLIO * FOLIO, NonZeroU64::new(FOLIO), Advice::DontNeed);
        match resident(file, at) {
            None => return Ok(None),
            Some(true) => {}
            Some(false) => match retry(|| file.read_at(&mut sector, at)) {
                Ok(_) => return Ok(resident(file, at)),
                Err(error) if is_refusal(&error) => return Err(error),
                // The device does not read this sector: that says nothing of the others.
                Err(_) => {}
            },
        }
    }
    Ok(None)
}

#[cfg(test)]
pub(super) mod tests {
    use std::fs;
    use std::path::Path;

    use rustix::fs::OFlags;

    use super::*;
    use crate::file::tests::filled;
    use crate::{FileOptions, FileVolume, OpenMode, Persist, Volume, write_all_at};

    /// A directory of a file system that takes the flag and has no medium but the page cache.
    fn in_memory() -> Option<tempfile::TempDir> {
        let dir = tempfile::tempdir_in("/dev/shm").ok()?;
        let kind = rustix::fs::statfs(dir.path()).ok()?.f_type;
        let file = File::create(dir.path().join("probe")).ok()?;
        let takes_it = rustix::fs::fcntl_setfl(&file, OFlags::DIRECT).is_ok();
        (kind == 0x0102_1994 && takes_it).then_some(dir)
    }

    fn open(path: &Path, mode: OpenMode) -> FileVolume {
        FileVolume::open(path, mode, FileOptions::default()).unwrap()
    }

    #[test]
    pub fn what_has_no_medium_but_the_page_cache_is_buffered() {
        let Some(dir) = in_memory() else { return println!("skipped: /dev/shm takes no direct I/O") };
        let path = dir.path().join("v");
        let made = open(&path, OpenMode::Create);
        made.grow(1 << 20).unwrap();
        write_all_at(&made, 0, &filled(SECTOR, 1), Persist::Durable).unwrap();
        let check = |volume: FileVolume| {
            let info = volume.info();
            assert!(
                !info.direct && info.fallbacks.iter().any(|f| f.starts_with("buffered I/O: ")),
                "{info:?}"
            );
            assert!(info.durable_by == "write + fdatasync" && volume.inner.cached.is_none(), "{info:?}");
        };
        check(made);
        check(open(&path, OpenMode::ReadWrite));
        check(open(&path, OpenMode::ReadOnly));
        fs::write(&path, []).unwrap();
        check(open(&path, OpenMode::ReadWrite));
        assert_eq!(fs::metadata(&path).unwrap().len(), 0, "looking leaves nothing behind");
    }

    /// A volume writes sectors, from memory that is aligned to as much.
    #[test]
    fn direct_io_with_a_larger_alignment_than_a_sector_is_not_supported() {
        for (offset, memory) in [(1, 1), (512, 4), (512, 512), (4096, 4096)] {
            assert!(serves(offset, memory), "{offset} {memory}");
        }
        for (offset, memory) in [(0, 0), (8192, 512), (65_536, 4096), (512, 8192)] {
            assert!(!serves(offset, memory), "{offset} {memory}");
        }
    }

    /// Pages that others brought into the cache say nothing.
    #[test]
    fn what_is_direct_is_told_from_what_others_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("v");
        fs::write(&path, vec![1; 3 * SECTOR + 5]).unwrap();
        File::open(&path).unwrap().sync_all().unwrap();
        let file = File::open(&path).unwrap();
        if rustix::fs::fcntl_setfl(&file, OFlags::DIRECT).is_err() || alignment(&file) != Some(true) {
            return println!("skipped: the directory of temporary files is not known to take direct I/O");
        }
        for _ in 0..20 {
            assert_eq!(fs::read(&path).unwrap().len(), 3 * SECTOR + 5);
            let size = 3 * SECTOR as u64 + 5;
            assert!(stays_when_read(&file, size).unwrap() != Some(true));
            assert_eq!(look(&file, size, false).unwrap(), Direct::Real);
        }
        assert_eq!(open(&dir.path().join("new"), OpenMode::Create).size().unwrap(), 0);
    }
}
