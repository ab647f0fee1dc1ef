//! Bytes in pages. Copies share a page until one of them writes to it. A disk after a power cut
//! differs in only a few pages, and simulations make many thousands of such copies.
//!
//! Invariant: the bytes of a page behind the end are zero.

use std::ops::Range;
use std::sync::Arc;

const PAGE: usize = 16 << 10;

/// A byte array in shared pages.
#[derive(Clone)]
pub(super) struct Pages {
    pages: Vec<Arc<[u8; PAGE]>>,
    len: usize,
}

impl Pages {
    pub fn new(bytes: &[u8]) -> Self {
        let mut pages = Self { pages: Vec::new(), len: 0 };
        pages.resize(bytes.len());
        pages.write(0, bytes);
        pages
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }

    /// Sets the length; added bytes are zero.
    pub fn resize(&mut self, len: usize) {
        let pages = len.div_ceil(PAGE);
        if pages > self.pages.len() {
            self.pages.resize(pages, Arc::new([0; PAGE]));
        }
        self.pages.truncate(pages);
        if len < self.len
            && let Some(last) = self.pages.last_mut().filter(|_| !len.is_multiple_of(PAGE))
        {
            Arc::make_mut(last)[len % PAGE..].fill(0);
        }
        self.len = len;
    }

    /// Copies the bytes from `start` on into `out`.
    ///
    /// # Panics
    /// If the range passes the end. The other methods panic likewise.
    pub fn read(&self, start: usize, out: &mut [u8]) {
        let mut done = 0;
        for (page, within) in self.places(start..start + out.len()) {
            let len = within.len();
            out[done..done + len].copy_from_slice(&self.pages[page][within]);
            done += len;
        }
    }

    pub fn write(&mut self, start: usize, data: &[u8]) {
        let mut done = 0;
        for (page, within) in self.places(start..start + data.len()) {
            let len = within.len();
            Arc::make_mut(&mut self.pages[page])[within].copy_from_slice(&data[done..done + len]);
            done += len;
        }
    }

    pub fn flip(&mut self, byte: usize, bit: u8) {
        assert!(byte < self.len, "there is no byte {byte}");
        Arc::make_mut(&mut self.pages[byte / PAGE])[byte % PAGE] ^= 1 << bit;
    }

    /// Returns the pages that `range` touches, and the part of each page.
    fn places(&self, range: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        assert!(range.end <= self.len, "{range:?} passes the end, {}", self.len);
        (range.start / PAGE..range.end.div_ceil(PAGE)).map(move |page| {
            let begin = page * PAGE;
            (page, range.start.max(begin) - begin..range.end.min(begin + PAGE) - begin)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    #[test]
    fn it_is_what_a_plain_vector_is_and_copies_stay_as_they_were() {
        let mut rng = Rng::new(1);
        let mut bytes = vec![0; 40_000];
        bytes.fill_with(|| rng.next() as u8);
        let mut pages = Pages::new(&bytes);
        let mut copies = Vec::new();
        for _ in 0..300 {
            copies.push((pages.clone(), bytes.clone()));
            match rng.below(4) {
                0 => {
                    let len = rng.below(100_000) as usize;
                    pages.resize(len);
                    bytes.resize(len, 0);
                }
                1 if !bytes.is_empty() => {
                    let (byte, bit) = (rng.below(bytes.len() as u64) as usize, rng.below(8) as u8);
                    pages.flip(byte, bit);
                    bytes[byte] ^= 1 << bit;
                }
                _ => {
                    let start = rng.below(bytes.len() as u64 + 1) as usize;
                    let end = start + rng.below((bytes.len() - start) as u64 + 1) as usize;
                    let data: Vec<u8> = (start..end).map(|_| rng.next() as u8).collect();
                    pages.write(start, &data);
                    bytes[start..end].copy_from_slice(&data);
                    let mut read = vec![0; end - start];
                    pages.read(start, &mut read);
                    assert_eq!(read, data);
                }
            }
            assert_eq!((pages.len(), pages.to_vec() == bytes), (bytes.len(), true));
        }
        assert!(copies.iter().all(|(pages, bytes)| pages.to_vec() == *bytes));
    }
}
