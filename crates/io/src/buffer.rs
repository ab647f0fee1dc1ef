//! Memory that direct I/O accepts: aligned to [`SECTOR`], of fixed capacity, zeroed at creation.
//!
//! Invariants: `ptr` came from the global allocator with `layout(capacity)` and is freed once, by
//! `drop`; all `capacity` bytes are initialised from the start; `len <= capacity`.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use bytes::Bytes;

use crate::stream;

/// Alignment, in bytes, of every offset, length and buffer address: the largest logical block size
/// in common use.
pub const SECTOR: usize = 4096;

/// A byte buffer whose address and capacity are multiples of [`SECTOR`].
///
/// The buffer derefs to its first `len` bytes and grows into its capacity by
/// [`extend`](Self::extend) and [`resize`](Self::resize); it never reallocates.
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

/// A range of an [`AlignedBuf`] that one thread writes while others append behind it.
#[derive(Debug)]
pub struct Reservation {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the caller that made the reservation promised that nobody else touches its bytes.
unsafe impl Send for Reservation {}

impl Reservation {
    /// Writes the bytes of the range.
    ///
    /// # Panics
    /// If `data` and the range differ in length.
    pub fn fill(self, data: &[u8]) {
        assert!(data.len() == self.len, "{} bytes for a hole of {}", data.len(), self.len);
        // SAFETY: the buffer is alive and nobody touches these bytes, as promised to
        // `AlignedBuf::reservation`; `data` is borrowed, so it does not overlap them.
        unsafe { stream::copy(data.as_ptr(), self.at.as_ptr(), self.len) };
    }
}

// SAFETY: the buffer owns its memory, and shares it only through references.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; there is no interior mutability.
unsafe impl Sync for AlignedBuf {}

fn layout(capacity: usize) -> Layout {
    Layout::from_size_align(capacity, SECTOR).expect("a buffer fits the address space")
}

impl AlignedBuf {
    /// Creates an empty buffer with room for at least `capacity` bytes (at least one sector), all
    /// zero.
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.max(1).next_multiple_of(SECTOR);
        let layout = layout(capacity);
        // SAFETY: the layout's size is not zero.
        let Some(ptr) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        Self { ptr, capacity, len: 0 }
    }

    /// Creates a buffer of `len` zero bytes.
    pub fn zeroed(len: usize) -> Self {
        let mut buf = Self::new(len);
        buf.len = len;
        buf
    }

    /// Returns the length of the buffer, in bytes. Does not touch the slice, whose bytes a
    /// [`Reservation`] may be filling.
    #[expect(clippy::len_without_is_empty, reason = "the slice has it")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of bytes that the buffer can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of bytes that still fit.
    pub fn room(&self) -> usize {
        self.capacity - self.len
    }

    /// Appends `data`.
    ///
    /// # Panics
    /// If `data` does not fit.
    pub fn extend(&mut self, data: &[u8]) {
        assert!(data.len() <= self.room(), "{} bytes do not fit in {}", data.len(), self.room());
        // SAFETY: the buffer owns the bytes from `len` on, and the assertion checks their number.
        // `data` is borrowed from elsewhere, because `&mut self` is unique. Only the new bytes are
        // touched: a `Reservation` before them may be filled at the same time.
        unsafe { self.ptr.as_ptr().add(self.len).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        self.len += data.len();
    }

    /// Overwrites the bytes from `at` on with `data`.
    ///
    /// # Panics
    /// If `data` passes the end.
    pub fn overwrite(&mut self, at: usize, data: &[u8]) {
        assert!(at <= self.len && data.len() <= self.len - at, "{} bytes at {at} pass the end", data.len());
        // SAFETY: within the length, as asserted; otherwise as for `extend`.
        unsafe { self.ptr.as_ptr().add(at).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
    }

    /// Appends a reservation of `len` bytes that its holder writes later.
    ///
    /// # Panics
    /// If the bytes do not fit.
    ///
    /// # Safety
    /// Until the reservation is dropped, the buffer must not be dropped, cleared or dereferenced;
    /// it may be moved, [`extend`](Self::extend)ed, and [overwritten](Self::overwrite) elsewhere.
    pub unsafe fn reservation(&mut self, len: usize) -> Reservation {
        assert!(len <= self.room(), "{len} bytes do not fit in {}", self.room());
        // SAFETY: within the capacity, as asserted.
        let at = unsafe { self.ptr.add(self.len) };
        self.len += len;
        Reservation { at, len }
    }

    /// Sets the length, in bytes; added bytes are zero.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
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

    /// Returns the whole capacity, including bytes past the length (zero, or left over from earlier
    /// use).
    pub fn whole_mut(&mut self) -> &mut [u8] {
        // SAFETY: `ptr` is valid for `capacity` initialised bytes, and `&mut self` makes the access
        // unique.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.capacity) }
    }

    /// Sets the length after bytes were written through [`whole_mut`](Self::whole_mut).
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "length {len} is over the capacity {}", self.capacity);
        self.len = len;
    }

    /// Rounds the length up to a whole number of sectors, and fills with zeros.
    pub fn pad(&mut self) {
        self.resize(self.len.next_multiple_of(SECTOR));
    }

    /// Converts the buffer into shared, immutable bytes without copying.
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
    fn a_hole_is_filled_while_the_buffer_grows() {
        let mut buf = AlignedBuf::new(SECTOR);
        buf.extend(b"before ");
        // SAFETY: the buffer is only extended until the thread that fills the hole has ended.
        let reservation = unsafe { buf.reservation(4) };
        std::thread::scope(|scope| {
            scope.spawn(move || reservation.fill(b"hole"));
            buf.extend(b" behind");
            assert_eq!(buf.len(), 18);
        });
        assert_eq!(&buf[..], b"before hole behind");
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
