//! Reading ahead, for a reader that goes through a file from front to back: one large read instead
//! of many small reads.

use bytes::Bytes;

use crate::error::Result;
use crate::format::Ptr;
use crate::source::Source;
use crate::source::fetch;

/// Minimum and maximum bytes of one read; the size doubles from one read to the next.
const STRIDE: [usize; 2] = [64 << 10, 256 << 10];
/// Maximum bytes between two blocks that count as consecutive: sometimes an index block is between
/// data blocks, or the pages of notes of a part of the filter.
const GAP: u64 = 192 << 10;

/// The bytes that a cursor has read ahead.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Offset of `bytes` in the file.
    at: u64,
    bytes: Bytes,
    /// End of the last requested frame; 0 before the first.
    end: u64,
    stride: usize,
}

impl Ahead {
    /// Returns the frame at `ptr` of a file of `len` bytes; never reads past the end of the file.
    /// If the frame follows the frame before, reads more.
    pub fn frame(&mut self, source: &impl Source, ptr: Ptr, len: u64) -> Result<Bytes> {
        let follows = self.end > 0 && ptr.offset >= self.end && ptr.offset - self.end <= GAP;
        self.end = ptr.end();
        if let Some(frame) = self.held(ptr) {
            return Ok(frame);
        }
        self.bytes = Bytes::new();
        let [least, most] = STRIDE;
        self.stride = if follows { (2 * self.stride).clamp(least, most) } else { 0 };
        let wanted = (self.stride as u64).min(len - ptr.offset) as usize;
        if wanted > ptr.len as usize && !source.is_memory() {
            // If the longer read fails, the requested frame may still be readable.
            if let Ok(bytes) = source.read(ptr.offset, wanted) {
                (self.at, self.bytes) = (ptr.offset, bytes);
            }
        }
        self.held(ptr).map_or_else(|| fetch(source, ptr.offset, ptr.len as usize), Ok)
    }

    fn held(&self, ptr: Ptr) -> Option<Bytes> {
        let from = usize::try_from(ptr.offset.checked_sub(self.at)?).ok()?;
        let to = from.checked_add(ptr.len as usize)?;
        (to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use super::*;

    /// A source that records reads, and fails if a read passes a certain byte.
    struct Told {
        file: Bytes,
        bad: u64,
        reads: Mutex<Vec<(u64, usize)>>,
    }

    impl Source for Told {
        fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            self.reads.lock().unwrap().push((offset, len));
            if offset + len as u64 > self.bad {
                Err(io::Error::other("bad"))
            } else {
                self.file.read(offset, len)
            }
        }
    }

    fn told(len: usize, bad: u64) -> Told {
        let file = (0..len).map(|at| (at / 7) as u8).collect();
        Told { file, bad, reads: Mutex::default() }
    }

    fn take(ahead: &mut Ahead, source: &Told, offset: u64, len: u32) -> Result<()> {
        let frame = ahead.frame(source, Ptr { offset, len, sum: 0 }, source.file.len() as u64)?;
        assert_eq!(frame, source.file.read(offset, len as usize).unwrap());
        Ok(())
    }

    #[test]
    fn who_goes_on_reads_ever_more_at_once() {
        let (source, mut ahead) = (told(8 << 20, u64::MAX), Ahead::default());
        for offset in (0..8 << 20).step_by(4096) {
            take(&mut ahead, &source, offset, 4000).unwrap();
        }
        let reads = source.reads.into_inner().unwrap();
        assert_eq!(reads[..3], [(0, 4000), (4096, 64 << 10), (17 * 4096, 128 << 10)]);
        assert!(reads.len() < 40, "{reads:?}");
    }

    #[test]
    fn who_jumps_reads_what_is_wanted() {
        let (source, mut ahead) = (told(8 << 20, u64::MAX), Ahead::default());
        for offset in (0..32).rev().map(|at| at << 18) {
            take(&mut ahead, &source, offset, 4000).unwrap();
        }
        assert!(source.reads.into_inner().unwrap().iter().all(|(_, len)| *len == 4000));
    }

    #[test]
    fn what_cannot_be_read_ahead_does_not_matter_before_its_time() {
        let (source, mut ahead) = (told(1 << 20, 100_000), Ahead::default());
        let read = |ahead: &mut Ahead, at: u64| take(ahead, &source, at * 4096, 4096);
        (0..24).for_each(|at| read(&mut ahead, at).unwrap());
        assert!(read(&mut ahead, 24).is_err());
    }
}
