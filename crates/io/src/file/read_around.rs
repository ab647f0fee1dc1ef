//! The decision whether a look-up that the page cache cannot answer reads the neighbouring bytes,
//! too.
//!
//! A device transfers 256 KiB in two or three times the time of 8 KiB. If a store is not much
//! larger than memory, the neighbours are needed soon. In a large store with random look-ups, they
//! are not. So the decision follows the use of earlier neighbours: a look-up that finds its bytes
//! in the page cache only because of a neighbour saves a read, and pays for two further reads of
//! neighbours.

use std::ops::Range;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Bytes that are read together, at a multiple of this number.
const AROUND: u64 = 256 << 10;
/// Number of remembered reads: they cover 512 MiB.
const REMEMBERED: usize = 2048;
/// Reads of neighbours without any use, before only every [`PROBE`]th read includes neighbours:
/// 32 MiB.
const TRUST: i32 = 128;
/// Reads of neighbours that one saved read pays for.
const PAYS: i32 = 2;
const PROBE: u32 = 16;
/// The pages of the system, as far as this decision needs to know.
const PAGE: u64 = 4096;

/// The neighbours that were read, and their use.
#[derive(Debug)]
pub(super) struct ReadAround {
    /// Each place has the number of a range plus one, and in the low bits the page in the range for
    /// which it was read.
    read: Box<[AtomicU64]>,
    trust: AtomicI32,
    distrusted: AtomicU32,
}

impl Default for ReadAround {
    fn default() -> Self {
        let read = (0..REMEMBERED).map(|_| AtomicU64::new(0)).collect();
        Self { read, trust: AtomicI32::new(TRUST), distrusted: AtomicU32::new(0) }
    }
}

/// The pages of a range.
const PAGES: u64 = AROUND / PAGE;

impl ReadAround {
    fn place(&self, offset: u64) -> &AtomicU64 {
        &self.read[(offset / AROUND) as usize % REMEMBERED]
    }

    /// Records that the page cache had the bytes at `offset`.
    pub fn found(&self, offset: u64) {
        let read = self.place(offset).load(Ordering::Relaxed);
        let is_neighbour = read / PAGES == offset / AROUND + 1 && read % PAGES != offset / PAGE % PAGES;
        // A concurrent change may get lost. The next look-ups make up for it.
        let trust = self.trust.load(Ordering::Relaxed);
        if is_neighbour && trust < TRUST {
            self.trust.store(trust + PAYS, Ordering::Relaxed);
        }
    }

    /// Records that the page cache did not have the bytes at `offset`. Returns the range to read,
    /// if neighbours are worth a read.
    pub fn missed(&self, offset: u64) -> Option<Range<u64>> {
        let trust = self.trust.load(Ordering::Relaxed);
        if trust <= 0 && !self.distrusted.fetch_add(1, Ordering::Relaxed).is_multiple_of(PROBE) {
            return None;
        }
        self.trust.store((trust - 1).max(0), Ordering::Relaxed);
        let range = offset / AROUND;
        self.place(offset).store((range + 1) * PAGES + offset / PAGE % PAGES, Ordering::Relaxed);
        Some(range * AROUND..(range + 1) * AROUND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;

    /// Looks up `count` random pages of `pages` pages, of which the page cache forgets none.
    /// Returns the number of look-ups that read neighbours, and of those that read alone.
    fn look_up(around: &ReadAround, pages: u64, count: u64) -> (u64, u64) {
        let (mut rng, mut cached) = (Rng::new(1), std::collections::BTreeSet::new());
        let (mut ranges, mut alone) = (0, 0);
        for _ in 0..count {
            let page = rng.below(pages);
            let offset = page * PAGE + rng.below(PAGE);
            if cached.contains(&page) {
                around.found(offset);
                continue;
            }
            match around.missed(offset) {
                Some(range) => {
                    assert!(range.contains(&offset) && range.start % AROUND == 0);
                    cached.extend(range.start / PAGE..range.end / PAGE);
                    ranges += 1;
                }
                None => {
                    cached.insert(page);
                    alone += 1;
                }
            }
        }
        (ranges, alone)
    }

    #[test]
    fn a_small_store_is_read_in_ranges() {
        let (ranges, alone) = look_up(&ReadAround::default(), 1000 * PAGES, 20_000);
        assert!((900..=1000).contains(&ranges) && alone < 200, "{ranges} ranges, {alone} alone");
    }

    #[test]
    fn a_large_store_is_read_as_asked() {
        let (ranges, alone) = look_up(&ReadAround::default(), 1_000_000 * PAGES, 20_000);
        assert!(ranges < 2 * TRUST as u64 + 20_000 / u64::from(PROBE), "{ranges} ranges, {alone} alone");
    }

    #[test]
    fn a_load_that_changes_is_noticed() {
        let around = ReadAround::default();
        look_up(&around, 1_000_000 * PAGES, 20_000);
        let (ranges, alone) = look_up(&around, 500 * PAGES, 20_000);
        assert!(ranges > 300 && alone < 5_000, "{ranges} ranges, {alone} alone");
    }

    /// The page that a range was read for does not count as a neighbour.
    #[test]
    fn the_same_page_again_proves_nothing() {
        let around = ReadAround::default();
        assert!(around.missed(5 * PAGE + 1).is_some());
        around.found(5 * PAGE + 9);
        assert_eq!(around.trust.load(Ordering::Relaxed), TRUST - 1);
        around.found(6 * PAGE);
        assert_eq!(around.trust.load(Ordering::Relaxed), TRUST - 1 + PAYS);
    }
}
