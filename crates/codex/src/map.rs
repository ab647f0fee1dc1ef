//! A codex file that is mapped into memory.

#![expect(unsafe_code, reason = "mapping a file is unsafe, as others may change it")]

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use crate::source::Source;

/// A file mapped into memory. While the system keeps the file in memory, a read costs a copy and no
/// system call.
///
/// ```
/// use brooklet_codex::{FileBuilder, FileOptions, Map, Reader};
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("trees.codex");
/// # let mut builder = FileBuilder::new(&path, FileOptions::default())?;
/// # builder.add(b"ash", b"fraxinus")?;
/// # builder.finish()?;
/// let map = Map::open(&path)?;
/// let len = map.len();
/// let reader = Reader::open(map, len, None)?;
/// assert_eq!(reader.get(b"ash")?.as_deref(), Some(&b"fraxinus"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The file must not be cut short while it is mapped: a read past its end then kills the process by
/// a signal. A [`FileBuilder`](crate::FileBuilder) that replaces a file does not cut it: the old
/// file exists until its last user closes it. The reader notices bytes that change meanwhile, as
/// with any source.
#[derive(Debug)]
pub struct Map {
    map: Mmap,
}

impl Map {
    /// Maps the file `path`.
    ///
    /// # Errors
    /// The system's error from opening or mapping the file.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: nothing borrows from the map for longer than a copy takes, and users of the copy
        // accept any bytes. If the file changes meanwhile, the copy mixes old and new bytes, and
        // its checksum reveals that.
        let map = unsafe { Mmap::map(&file) }?;
        #[cfg(unix)]
        // Most reads are of single blocks; without this advice, the system reads more.
        let _ = map.advise(memmap2::Advice::Random);
        Ok(Map { map })
    }

    /// Returns the length of the file, in bytes.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Returns whether the file is empty.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

impl Source for Map {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        match start.checked_add(len) {
            Some(end) if end <= self.map.len() => Ok(Bytes::copy_from_slice(&self.map[start..end])),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn is_memory(&self) -> bool {
        true
    }
}
