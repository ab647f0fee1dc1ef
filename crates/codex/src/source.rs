//! Where a reader takes its bytes from.

use std::io;
use std::sync::Arc;

use crate::error::{Result, damaged};
use bytes::Bytes;

/// Random access to the bytes of a file: memory, a file, a range of a device, an object in a store.
pub trait Source: Send + Sync {
    /// Reads exactly `len` bytes from byte `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] where the source ends earlier; the reader reports that as
    /// damage. Any other error is passed on.
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// The same, of what is asked for singly and maybe again, by way of a cache that may fail, and
    /// may hold what the file was before: the reader looks whether it is what it should be, and
    /// else [`read`](Self::read)s. What is given must be in memory of its own, which the reader may
    /// keep. `None`, as by default, where there is no such cache.
    fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        let _ = (offset, len);
        None
    }

    /// Whether reading costs no more than looking into memory, so that data blocks that a
    /// [`Reader`](crate::Reader) would keep would be there twice. `false` by default.
    fn is_memory(&self) -> bool {
        false
    }
}

/// A file in memory; what is read shares its memory.
impl Source for Bytes {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let start = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
        match start.checked_add(len) {
            Some(end) if end <= self.len() => Ok(self.slice(start..end)),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// A file read by position, through the page cache.
#[cfg(unix)]
impl Source for std::fs::File {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        let mut data = vec![0; len];
        std::os::unix::fs::FileExt::read_exact_at(self, &mut data, offset)?;
        Ok(data.into())
    }
}

impl<T: Source + ?Sized> Source for Arc<T> {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        (**self).read(offset, len)
    }

    fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        (**self).read_cached(offset, len)
    }

    fn is_memory(&self) -> bool {
        (**self).is_memory()
    }
}

impl<T: Source + ?Sized> Source for &T {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        (**self).read(offset, len)
    }

    fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        (**self).read_cached(offset, len)
    }

    fn is_memory(&self) -> bool {
        (**self).is_memory()
    }
}

/// Reads from the source. Its end is damage: whoever asks knows the file to be longer.
pub(crate) fn fetch(source: &impl Source, offset: u64, len: usize) -> Result<Bytes> {
    source.read(offset, len).or_else(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(offset, "the file is cut short"),
        _ => Err(error.into()),
    })
}
