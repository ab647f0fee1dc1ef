//! The contents of a disk: on the medium, and in the volatile cache in front of the medium.
//!
//! Invariants:
//! - `durable` and `cache` have the same length. Reads return the bytes of `cache`; the bytes of
//!   `durable` surely survive a power cut.
//! - `durable` with `pending` applied in order is `cache`, except where a failed flush has dropped
//!   pending writes. As on Linux, dropped writes stay readable and never become durable, even if a
//!   later flush succeeds.
//! - No pending write overlaps a later durable write: the durable write has superseded it.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;

use super::pages::Pages;
use crate::{Persist, Rng, SECTOR};

pub(super) struct Media {
    durable: Pages,
    cache: Pages,
    /// The length that surely survives a power cut. A growth becomes durable with a flush, or with
    /// durable bytes behind it.
    durable_len: usize,
    pending: Vec<Pending>,
    /// Writes that were submitted and have not completed, by ticket.
    in_flight: BTreeMap<u64, Pending>,
}

/// A write that is only in the cache, or in flight.
#[derive(Clone)]
struct Pending {
    start: usize,
    data: Bytes,
}

impl Pending {
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.data.len()
    }

    fn starts_in(&self, range: &Range<u64>) -> bool {
        range.contains(&(self.start as u64))
    }
}

/// The effect of a power cut on a pending write.
#[derive(Clone, Copy)]
pub(super) struct Tearing {
    /// Size of the pieces that are kept or lost, in bytes.
    pub piece: usize,
    /// Whether a piece may become garbage.
    pub garbage: bool,
}

impl Media {
    /// Creates media that durably hold `image`.
    pub fn new(image: Pages) -> Self {
        let durable_len = image.len();
        let (pending, in_flight) = (Vec::new(), BTreeMap::new());
        Self { cache: image.clone(), durable: image, durable_len, pending, in_flight }
    }

    /// Returns the bytes that reads see.
    pub fn image(&self) -> &Pages {
        &self.cache
    }

    /// Returns the bytes that surely survive a power cut.
    pub fn durable(&self) -> &Pages {
        &self.durable
    }

    /// Returns the length, in bytes.
    pub fn len(&self) -> usize {
        self.cache.len()
    }

    /// Returns the number of writes that a power cut now may lose or tear.
    pub fn at_risk(&self) -> usize {
        self.pending.len() + self.in_flight.len()
    }

    /// Returns whether `len` bytes at `offset` are inside the disk.
    pub fn holds(&self, offset: u64, len: usize) -> bool {
        offset.checked_add(len as u64).is_some_and(|end| end <= self.cache.len() as u64)
    }

    pub fn grow(&mut self, size: usize) {
        self.cache.resize(size);
        self.durable.resize(size);
    }

    pub fn truncate(&mut self, size: usize) {
        self.supersede(size..usize::MAX);
        self.in_flight.retain(|_, write| write.range().end <= size);
        self.cache.resize(size);
        self.durable.resize(size);
        self.durable_len = self.durable_len.min(size);
    }

    /// Flips bit `bit` of byte `byte`, in the cache, on the medium and in pending writes.
    pub fn flip(&mut self, byte: usize, bit: u8) {
        self.cache.flip(byte, bit);
        self.durable.flip(byte, bit);
        for write in self.pending.iter_mut().filter(|write| write.range().contains(&byte)) {
            let mut data = write.data.to_vec();
            data[byte - write.start] ^= 1 << bit;
            write.data = data.into();
        }
    }

    /// Registers a write in flight, if the write is inside the disk.
    pub fn begin(&mut self, ticket: u64, offset: u64, data: Bytes) {
        // A write past the end fails later, in `Disk::write`.
        if self.holds(offset, data.len()) {
            self.in_flight.insert(ticket, Pending { start: offset as usize, data });
        }
    }

    /// Forgets a write in flight.
    pub fn end(&mut self, ticket: u64) {
        self.in_flight.remove(&ticket);
    }

    /// Returns the media after the writing process was killed: each write in flight either reaches
    /// the cache or is lost.
    pub fn killed(&self, rng: &mut Rng) -> Self {
        let mut left = Self {
            durable: self.durable.clone(),
            cache: self.cache.clone(),
            durable_len: self.durable_len,
            pending: self.pending.clone(),
            in_flight: BTreeMap::new(),
        };
        for write in self.in_flight.values().filter(|_| rng.percent(50)) {
            left.pend(write.start, &write.data);
        }
        left
    }

    /// Makes every write in flight a pending write, which may still arrive.
    pub fn pend_in_flight(&mut self) {
        self.pending.extend(std::mem::take(&mut self.in_flight).into_values());
    }

    /// Carries out a write.
    pub fn land(&mut self, start: usize, data: &[u8], persist: Persist) {
        match persist {
            Persist::Cached => self.pend(start, data),
            Persist::Durable => {
                self.supersede(start..start + data.len());
                self.cache.write(start, data);
                self.durable.write(start, data);
                self.durable_len = self.durable_len.max(start + data.len());
            }
        }
    }

    /// Carries out a write in the cache only.
    pub fn pend(&mut self, start: usize, data: &[u8]) {
        if !data.is_empty() {
            self.cache.write(start, data);
            self.pending.push(Pending { start, data: Bytes::copy_from_slice(data) });
        }
    }

    /// Makes the pending writes that start in `range` durable, and the length if the end is there.
    pub fn flush(&mut self, range: &Range<u64>) {
        if range.contains(&(self.len() as u64).saturating_sub(1)) {
            self.durable_len = self.len();
        }
        for write in self.pending.extract_if(.., |write| write.starts_in(range)) {
            self.durable.write(write.start, &write.data);
        }
    }

    /// Drops about half of the pending writes that start in `range`.
    pub fn fail_flush(&mut self, range: &Range<u64>, rng: &mut Rng) {
        self.pending.retain(|write| !write.starts_in(range) || rng.percent(50));
    }

    /// Returns a random image that a power cut now could leave.
    pub fn crash(&self, rng: &mut Rng, Tearing { piece, garbage }: Tearing) -> Pages {
        let mut image = self.durable.clone();
        let mut writes: Vec<&Pending> = self.pending.iter().chain(self.in_flight.values()).collect();
        let grown = self.len() - self.durable_len;
        let mut kept_growth = grown;
        match rng.below(4) {
            0 => kept_growth = 0,
            1 => {
                for write in writes {
                    image.write(write.start, &write.data);
                }
            }
            _ => {
                // The share of kept pieces differs from crash to crash, so that a single loss and a
                // single survivor both occur.
                let kept = 10 + rng.below(81);
                while !writes.is_empty() {
                    let write = writes.swap_remove(rng.below(writes.len() as u64) as usize);
                    for (nth, new) in write.data.chunks(piece).enumerate() {
                        let at = write.start + nth * piece;
                        if rng.percent(2) && garbage {
                            let noise: Vec<u8> = new.iter().map(|_| rng.next() as u8).collect();
                            image.write(at, &noise);
                        } else if rng.percent(kept) {
                            image.write(at, new);
                        }
                    }
                }
                if grown > 0 && rng.percent(50) {
                    kept_growth = rng.below((grown / SECTOR) as u64 + 1) as usize * SECTOR;
                }
            }
        }
        image.resize(self.durable_len + kept_growth);
        image
    }

    /// Removes `range` from the pending writes.
    fn supersede(&mut self, range: Range<usize>) {
        let overlaps = |write: &Pending| write.start < range.end && range.start < write.range().end;
        if !self.pending.iter().any(overlaps) {
            return;
        }
        for write in std::mem::take(&mut self.pending) {
            if !overlaps(&write) {
                self.pending.push(write);
                continue;
            }
            let Range { start, end } = write.range();
            if start < range.start {
                self.pending.push(Pending { start, data: write.data.slice(..range.start - start) });
            }
            if range.end < end {
                self.pending.push(Pending { start: range.end, data: write.data.slice(range.end - start..) });
            }
        }
    }
}
