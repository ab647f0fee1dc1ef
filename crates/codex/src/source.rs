//! Where a reader takes its bytes from.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

/// Random access to the bytes of a file: memory, a file, a range of a device, an object in a store.
pub trait Source: Send + Sync {
    /// Reads exactly `len` bytes from byte `offset` on.
    ///
    /// # Errors
    /// [`io::ErrorKind::UnexpectedEof`] where the source ends earlier; the reader reports that as damage. Any other
    /// error is passed on.
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes>;
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
}

impl<T: Source + ?Sized> Source for &T {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        (**self).read(offset, len)
    }
}
