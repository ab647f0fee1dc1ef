//! A codex file that is mapped into memory.

#![expect(unsafe_code, reason = "mapping a file is unsafe, as others may change it")]

use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use memmap2::Mmap;

use crate::source::Source;

/// A file in memory, as far as the system keeps it there: a read costs a copy, and no call of the
/// system.
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
/// The file must not be cut short while it is mapped: reading behind its end then ends the process
/// by a signal. Files that a [`FileBuilder`](crate::FileBuilder) replaces are not cut, but live on
/// until nobody holds them. Bytes that somebody changes meanwhile are noticed, as those of any
/// source are.
#[derive(Debug)]
pub struct Map {
    map: Mmap,
}

impl Map {
    /// Maps the file `path`.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: nothing borrows from the map for longer than it takes to copy from it, and
        // whoever gets the copy takes any bytes. Where the file is changed meanwhile, the copy has
        // some of either, which its checksum tells.
        let map = unsafe { Mmap::map(&file) }?;
        #[cfg(unix)]
        // Most reads are of single blocks; where that is not known to the system, it reads more.
        let _ = map.advise(memmap2::Advice::Random);
        Ok(Map { map })
    }

    /// Length of the file, in bytes.
    pub fn len(&self) -> u64 {
        self.map.len() as u64
    }

    /// Whether the file is empty.
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
