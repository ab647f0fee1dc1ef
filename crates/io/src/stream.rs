//! Copying into memory that another processor reads next.
//!
//! The last reader of a block's buffer was the device that wrote the block, or, on a virtual disk,
//! a thread of the host on another core. Ordinary stores first fetch each line from that core's
//! cache, and then overwrite all of it. Streaming stores do not fetch; they copy up to five times
//! as fast while the disk is busy.

/// Copies `len` bytes from `from` to `to`.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    /// Bytes of a line of the cache.
    const LINE: usize = 64;
    const WIDE: usize = size_of::<__m128i>();

    let head = to.align_offset(LINE).min(len);
    let body = (len - head) / LINE * LINE;
    let tail = len - head - body;
    // SAFETY: head, body and tail are inside the `len` bytes at both places; the caller promises
    // that these bytes are valid and do not overlap. The body starts at a line in `to`, so its
    // stores are aligned. SSE2 is part of x86-64.
    unsafe {
        to.copy_from_nonoverlapping(from, head);
        for at in (head..head + body).step_by(LINE) {
            for part in (at..at + LINE).step_by(WIDE) {
                _mm_stream_si128(to.add(part).cast(), _mm_loadu_si128(from.add(part).cast()));
            }
        }
        to.add(head + body).copy_from_nonoverlapping(from.add(head + body), tail);
        // Nothing else orders streaming stores, not even the release of a lock.
        _mm_sfence();
    }
}

/// Copies `len` bytes from `from` to `to`.
///
/// # Safety
/// As for [`std::ptr::copy_nonoverlapping`].
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { to.copy_from_nonoverlapping(from, len) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_and_length_is_copied_and_nothing_else() {
        let from: Vec<u8> = (0..400).map(|i| i as u8 | 1).collect();
        for start in 0..70 {
            for len in (0..140).chain([256, 300]) {
                let mut to = vec![0; 400];
                // SAFETY: both are longer, and not the same.
                unsafe { copy(from[3..].as_ptr(), to[start..].as_mut_ptr(), len) };
                assert_eq!(to[start..start + len], from[3..3 + len]);
                assert!(to[..start].iter().chain(&to[start + len..]).all(|&byte| byte == 0));
            }
        }
    }
}
