//! The sources of a reader's bytes.

use std::io;
use std::sync::Arc;

use crate::error::{Result, damaged};
use bytes::Bytes;

/// Random access to the bytes of a file: memory, a file, a range of a device, an object in a store.
pub trait Source: Send + Sync {
    /// Reads exactly `len` bytes from byte `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] if the source ends earlier; the reader reports that as
    /// damage. The reader passes on any other error.
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes>;

    /// Reads like [`read`](Self::read), but through a cache, for single reads that may be repeated.
    /// The cache may fail, and may hold earlier contents of the file: the reader checks the bytes,
    /// and calls [`read`](Self::read) if they are wrong. The returned bytes must have their own
    /// memory, because the reader may keep them. Returns `None` if no such cache exists, which is
    /// the default.
    fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        let _ = (offset, len);
        None
    }

    /// Returns whether a read costs no more than a memory access. If so, a
    /// [`Reader`](crate::Reader) keeps no data blocks, because memory would hold them twice.
    /// `false` by default.
    fn is_memory(&self) -> bool {
        false
    }
}

/// A file in memory; the returned bytes share its memory.
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

/// Reads from the source. Reports an early end as damage, because the caller knows the file to be
/// longer.
pub(crate) fn fetch(source: &impl Source, offset: u64, len: usize) -> Result<Bytes> {
    source.read(offset, len).or_else(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => damaged(offset, "the file is cut short"),
        _ => Err(error.into()),
    })
}
