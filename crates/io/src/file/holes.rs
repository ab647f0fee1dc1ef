//! Fills the holes of a file: uses allocated space without data, without another allocation.

use std::fs::File;
use std::io;
use std::ops::Range;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::inner::FileInner;
use crate::{AlignedBuf, SECTOR};

/// Size of one write, in bytes.
const PIECE: usize = 64 << 10;

impl FileInner {
    /// Fills the holes in `range` with the bytes that they read as. This takes no room where space
    /// is allocated, and fails if no room is left.
    pub(super) fn write_holes(&self, range: Range<u64>) -> io::Result<()> {
        let mut buf = AlignedBuf::zeroed(PIECE);
        let mut at = range.start;
        while at < range.end {
            at = (next(&self.file, SeekFrom::Hole(at))? / SECTOR as u64 * SECTOR as u64).min(range.end);
            // A sector with some data is rewritten as a whole.
            let data = next(&self.file, SeekFrom::Data(at))?.max(at + 1).min(range.end);
            while at < data {
                let len = (data - at).next_multiple_of(SECTOR as u64).min(PIECE as u64) as usize;
                let read = self.read_at(at, &mut buf[..len])?;
                let written = self.write(at, &buf[..read / SECTOR * SECTOR])? / SECTOR * SECTOR;
                if written == 0 {
                    return Err(Errno::NOSPC.into());
                }
                at += written as u64;
            }
        }
        Ok(())
    }
}

/// Returns whether `range` may have a hole. If the file system reports no holes, any range may have
/// one.
pub(super) fn has_hole(file: &File, range: &Range<u64>) -> bool {
    !next(file, SeekFrom::Hole(range.start)).is_ok_and(|hole| hole >= range.end)
}

/// Returns the offset of the next data or hole, or `u64::MAX` if the file has no more of either.
fn next(file: &File, from: SeekFrom) -> io::Result<u64> {
    match rustix::fs::seek(file, from) {
        Err(Errno::NXIO) => Ok(u64::MAX),
        found => Ok(found?),
    }
}
