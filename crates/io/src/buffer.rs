//! Memory that direct I/O accepts: aligned to [`SECTOR`], of fixed capacity, zeroed when made.
//!
//! Invariants: `ptr` came from the global allocator with `layout(capacity)` and is freed once, by `drop`;
//! all `capacity` bytes are initialised from the start; `len <= capacity`.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytes::Bytes;

use crate::SECTOR;

/// A byte buffer whose address and capacity are multiples of [`SECTOR`].
///
/// It derefs to its first `len` bytes and grows into its capacity by [`extend`](Self::extend) and
/// [`resize`](Self::resize); it never reallocates.
///
/// ```
/// let mut buf = brooklet_io::AlignedBuf::new(10_000);
/// assert_eq!(buf.capacity(), 12_288);
/// buf.extend(b"delta");
/// assert_eq!(&buf[..], b"delta");
/// ```
pub struct AlignedBuf {
    ptr: NonNull<u8>,
    capacity: usize,
    len: usize,
}

// SAFETY: the buffer owns its memory, and shares it only through references.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for AlignedBuf {}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, SECTOR).expect("a buffer fits the address space")
}

impl AlignedBuf {
    /// An empty buffer with room for at least `capacity` bytes (at least one sector), all zero.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1).next_multiple_of(SECTOR);
        let layout = layout(capacity);
        // SAFETY: the layout's size is not zero.
        let Some(ptr) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Self { ptr, capacity, len: 0 }
    }

    /// A buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::new(len);
        buf.len = len;
        buf
    }

    /// Bytes the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes that still fit.
    pub fn room(&self) -> usize {
        self.capacity - self.len
    }

    /// Appends `data`.
    ///
    /// # Panics
    /// If it does not fit.
    pub fn extend(&mut self, data: &[u8]) {
        let start = self.len;
        assert!(data.len() <= self.room(), "{} bytes do not fit in {}", data.len(), self.room());
        self.len += data.len();
        self[start..].copy_from_slice(data);
    }

    /// Sets the length; bytes that come into view are zero.
    ///
    /// # Panics
    /// If `len` is over the capacity.
    pub fn resize(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} is over the capacity {}", self.capacity);
        let old = self.len;
        self.len = len;
        if len > old {
            self[old..].fill(0);
        }
    }

    /// Empties the buffer.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// The whole capacity, including bytes past the length (left over from earlier use, or zero).
    pub fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: `ptr` is valid for `capacity` initialised bytes, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.capacity) }
    }

    /// Sets the length after bytes were put in place through [`whole_mut`](Self::whole_mut).
    ///
    /// # Panics
    /// If `len` is over the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} is over the capacity {}", self.capacity);
        self.len = len;
    }

    /// Rounds the length up to a whole number of sectors, filling with zeros.
    pub fn pad(&mut self) {
        self.resize(self.len.next_multiple_of(SECTOR));
    }

    /// Turns the buffer into shared, immutable bytes without copying.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `ptr` is valid for `capacity >= len` initialised bytes, owned by self.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`, and `&mut self` makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with the same layout, and dropped once.
        unsafe { dealloc(self.ptr.as_ptr(), layout(self.capacity)) }
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} of {} bytes)", self.len, self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_within_its_capacity_and_stays_aligned() {
        let mut buf = AlignedBuf::new(1);
        assert_eq!((buf.capacity(), buf.len(), buf.as_ptr() as usize % SECTOR), (SECTOR, 0, 0));
        buf.extend(&[7; 100]);
        buf.pad();
        assert_eq!(buf.len(), SECTOR);
        assert!(buf[..100].iter().all(|&b| b == 7) && buf[100..].iter().all(|&b| b == 0));
        buf.clear();
        buf.resize(200);
        assert!(buf.iter().all(|&b| b == 0), "bytes that come into view are zero");
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn refuses_what_does_not_fit() {
        AlignedBuf::new(SECTOR).extend(&[0; SECTOR + 1]);
    }

    #[test]
    fn freezing_keeps_the_memory_in_place() {
        let mut buf = AlignedBuf::new(10);
        buf.extend(b"abc");
        let address = buf.as_ptr();
        let bytes = buf.freeze();
        assert_eq!((bytes.as_ptr(), &bytes[..]), (address, &b"abc"[..]));
    }
}
