//! A bloom filter in lines of 64 bytes: a look-up touches one cache line. It has no false
//! negatives.
//!
//! The filter is cut into parts by key. So a look-up reads one part if the whole filter is too
//! large to keep; and a builder, which does not know the number of later items, can give each part
//! the right size and drop its hashes.
//!
//! Which bits: `h = mix(hash)`; the line is `h * lines >> 64`. From `w = mix(h)` on, each probe
//! takes the 9 low bits of `w` as a bit of the line (bit `b` is bit `b % 8` of byte `b / 8`) and
//! shifts them out; every 7 probes `w = mix(w)` of the word before shifting. `mix` is the finalizer
//! of splitmix64, so that callers need not hash well.

use std::mem;

use bytes::Bytes;
use twox_hash::XxHash3_64;

use crate::block::BlockBuilder;
use crate::error::{Result, damaged};
use crate::format::{FRAME_HEAD, POINTER, Ptr, u32_at, u64_at};
use crate::notes::{self, Note, Noted};

const HEAD: usize = 16;
/// Bytes of the offset of the pages.
const OFFSET: usize = 8;
const LINE: usize = 64;
const MOST_PROBES: u32 = 16;
const PROBES_PER_WORD: u32 = 7;
/// Bytes of the lines of a full part, and of its list of pages: a look-up reads at most these
/// bytes, in about the time of a single sector.
const PART: usize = 16 << 10;
/// Bytes of these that a full part with notes leaves to the list of its pages.
const LIST: usize = PART / 24;

pub(crate) fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// Returns the hash of a key that a [`FileBuilder`](crate::FileBuilder) puts into the filter, for
/// [`Reader::may_contain`](crate::Reader::may_contain): XXH3-64 with the filter's seed.
pub fn key_hash(seed: u64, key: &[u8]) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, key)
}

/// Returns the line of an item among `lines` lines, and the item's bits in that line, as `(byte,
/// mask)`.
#[inline]
fn bits(hash: u64, lines: usize, probes: u32) -> (usize, impl Iterator<Item = (usize, u8)>) {
    let hash = mix(hash);
    let line = ((u128::from(hash) * lines as u128) >> 64) as usize;
    let mut word = hash;
    let bits = (0..probes).map(move |probe| {
        if probe % PROBES_PER_WORD == 0 {
            word = mix(word);
        }
        let bit = (word >> (9 * (probe % PROBES_PER_WORD))) as usize & 511;
        (bit / 8, 1 << (bit % 8))
    });
    (line, bits)
}

/// Builds a part from `hashes`, with `bits_per_item` bits for each hash.
fn build(hashes: &[u64], bits_per_item: usize) -> Vec<u8> {
    let probes = (bits_per_item.saturating_mul(69) / 100).clamp(1, MOST_PROBES as usize) as u32; // ln 2: half are set
    let lines = hashes.len().saturating_mul(bits_per_item).div_ceil(8 * LINE).clamp(1, PART / LINE);
    let mut out = vec![0; HEAD + lines * LINE];
    out[..4].copy_from_slice(&probes.to_le_bytes());
    out[8..16].copy_from_slice(&(hashes.len() as u64).to_le_bytes());
    for &hash in hashes {
        let (line, bits) = bits(hash, lines, probes);
        bits.for_each(|(byte, mask)| out[HEAD + line * LINE + byte] |= mask);
    }
    out
}

/// A part of the filter as it will be stored.
#[derive(Debug)]
pub(crate) struct Part {
    /// The first key of the part.
    pub first: Vec<u8>,
    pub bytes: Vec<u8>,
    /// Whether the part has pages of notes. `bytes` then ends with their offset.
    pub noted: bool,
}

impl Part {
    /// Adds to the offset of the pages.
    pub fn move_pages(&mut self, by: u64) {
        if self.noted {
            let at = self.bytes.len() - OFFSET;
            let offset = u64_at(&self.bytes, at) + by;
            self.bytes[at..].copy_from_slice(&offset.to_le_bytes());
        }
    }
}

/// A builder of filter parts from items in key order.
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    bits_per_item: usize,
    /// Items of the next key, and their notes.
    waiting: Vec<u64>,
    waiting_notes: Vec<Note>,
    /// Whether a waiting item has two notes, or another one has none. Their part has no notes then.
    waiting_is_mixed: bool,
    /// Items of the current part, their notes, and the first key of the part.
    hashes: Vec<u64>,
    notes: Vec<Note>,
    is_mixed: bool,
    first: Vec<u8>,
    parts: Vec<Part>,
    /// Pages of complete parts, until the packer takes them, and the number of parts whose pages it
    /// took.
    pages: Vec<u8>,
    placed: usize,
    /// Stored bytes of these parts, and the most bytes of their entries in the directory.
    closed: u64,
    firsts: u64,
}

impl FilterBuilder {
    pub fn new(bits_per_item: u32) -> Self {
        let bits_per_item = bits_per_item as usize;
        Self {
            bits_per_item,
            waiting: Vec::new(),
            waiting_notes: Vec::new(),
            waiting_is_mixed: false,
            hashes: Vec::new(),
            notes: Vec::new(),
            is_mixed: false,
            first: Vec::new(),
            parts: Vec::new(),
            pages: Vec::new(),
            placed: 0,
            closed: 0,
            firsts: 0,
        }
    }

    pub fn add(&mut self, hash: u64) {
        if self.bits_per_item > 0 && self.waiting.last() != Some(&hash) {
            self.waiting.push(hash);
        }
    }

    /// Adds a note for the item that was just added.
    pub fn add_note(&mut self, hash: u128, note: u32) {
        if self.bits_per_item > 0 {
            self.waiting_notes.push((hash, note));
            self.waiting_is_mixed |= self.waiting_notes.len() != self.waiting.len();
        }
    }

    /// Sets the key of the items that were added since the last key.
    pub fn key(&mut self, key: &[u8]) {
        // A repeated item needs no second place, unless a part begins with this key.
        let again = self.waiting.len() == 1
            && self.hashes.last() == self.waiting.last()
            && self.waiting_notes.is_empty();
        if self.waiting.is_empty() || again {
            return self.waiting.clear();
        }
        let lines = if self.waiting_notes.is_empty() { PART } else { PART - LIST };
        let items = (lines * 8 / self.bits_per_item).max(1);
        if self.hashes.len() + self.waiting.len() > items && !self.hashes.is_empty() {
            self.close();
        }
        if self.hashes.is_empty() {
            self.first = key.to_vec();
        }
        self.take_waiting();
    }

    /// Adds the waiting items to the current part.
    fn take_waiting(&mut self) {
        self.hashes.append(&mut self.waiting);
        self.notes.append(&mut self.waiting_notes);
        self.is_mixed |= mem::take(&mut self.waiting_is_mixed);
    }

    fn close(&mut self) {
        let (first, mut bytes) = (mem::take(&mut self.first), build(&self.hashes, self.bits_per_item));
        // An item without a note would seem to be absent.
        let is_mixed = mem::take(&mut self.is_mixed);
        let noted = self.notes.len() == self.hashes.len() && !is_mixed;
        if noted {
            let (lines, offset) = (bytes.len(), self.pages.len() as u64);
            notes::build(&mut self.notes, &mut self.pages, &mut bytes);
            let listed = (bytes.len() - lines) / notes::LISTED;
            bytes[4..8].copy_from_slice(&(listed as u32).to_le_bytes());
            bytes.extend_from_slice(&offset.to_le_bytes());
        }
        self.closed += (FRAME_HEAD + bytes.len()) as u64;
        self.firsts += BlockBuilder::most_len(first.len(), POINTER) as u64;
        self.parts.push(Part { first, bytes, noted });
        self.hashes.clear();
        self.notes.clear();
    }

    /// Returns the most bytes of the filter and its directory, after `hashes` more items of a key
    /// of `key` bytes, each with a note if other items have notes or `noted` is set.
    pub fn most(&self, key: usize, hashes: usize, noted: bool) -> u64 {
        let items = self.hashes.len() + self.waiting.len() + hashes;
        if self.bits_per_item == 0 || items == 0 && self.parts.is_empty() {
            return 0;
        }
        let part = FRAME_HEAD + HEAD + LINE;
        // The waiting items may begin another part.
        let open = 2 * part + items.saturating_mul(self.bits_per_item).div_ceil(8);
        let pointer = |first: usize| BlockBuilder::most_len(first, POINTER) as u64;
        let directory = (FRAME_HEAD + BlockBuilder::EMPTY) as u64
            + self.firsts
            + pointer(self.first.len())
            + pointer(key);
        let noted = noted || !self.notes.is_empty() || !self.waiting_notes.is_empty();
        // The waiting items may begin another part, with its own last page.
        let notes = if noted { notes::most(items) + notes::most(1) + 2 * OFFSET as u64 } else { 0 };
        self.closed + open as u64 + notes + directory
    }

    /// Moves the pages of complete parts to the end of `frames`, which begins at byte `base` of the
    /// output.
    pub fn take_pages(&mut self, frames: &mut Vec<u8>, base: u64) {
        if self.pages.is_empty() {
            return;
        }
        // Parts that are complete since the last call count the offsets of their pages from 0.
        let by = base + frames.len() as u64;
        self.parts[self.placed..].iter_mut().for_each(|part| part.move_pages(by));
        self.placed = self.parts.len();
        frames.append(&mut self.pages);
    }

    /// Ends the last part. Items without a key belong to it.
    pub fn end(&mut self) {
        self.take_waiting();
        if !self.hashes.is_empty() {
            self.close();
        }
    }

    /// Returns the parts.
    pub fn finish(mut self) -> Vec<Part> {
        self.end();
        self.parts
    }
}

/// A part of a filter. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    /// The lines, then the list of the pages of notes.
    data: Bytes,
    lines: u32,
    probes: u32,
    items: u64,
    /// The byte of the file at which the pages begin.
    pages: u64,
}

impl Filter {
    /// Creates a part from the decoded frame at byte `at` of the file.
    pub fn new(mut data: Bytes, at: u64) -> Result<Filter> {
        if data.len() < HEAD + LINE {
            return damaged(at, "the filter's length is impossible");
        }
        let (probes, pages, items) = (u32_at(&data, 0), u32_at(&data, 4), u64_at(&data, 8));
        let offset = if pages > 0 { OFFSET } else { 0 };
        let list = (pages as usize).saturating_mul(notes::LISTED).saturating_add(offset);
        let lines = (data.len() - HEAD).checked_sub(list).filter(|&lines| lines > 0);
        let Some(lines) = lines.filter(|lines| lines.is_multiple_of(LINE)) else {
            return damaged(at, "the filter's length is impossible");
        };
        if !(1..=MOST_PROBES).contains(&probes) {
            return damaged(at, "the filter's probes are impossible");
        }
        let pages = if offset > 0 { u64_at(&data, data.len() - offset) } else { 0 };
        data.truncate(data.len() - offset);
        Ok(Filter { data: data.split_off(HEAD), lines: (lines / LINE) as u32, probes, items, pages })
    }

    pub fn may_contain(&self, hash: u64) -> bool {
        let (line, mut bits) = bits(hash, self.lines as usize, self.probes);
        let line: &[u8; LINE] = self.data[line * LINE..][..LINE].try_into().expect("a whole line");
        bits.all(|(byte, mask)| line[byte] & mask != 0)
    }

    /// Returns the page that may hold the note of an item with this hash. `Err` is the answer that
    /// needs no page.
    pub fn page_of(&self, hash: u128) -> std::result::Result<Ptr, Noted> {
        notes::find(self.list(), self.pages, hash)
    }

    /// Returns the pointers to the pages of notes.
    pub fn pages(&self) -> impl Iterator<Item = Ptr> {
        notes::pages(self.list(), self.pages)
    }

    fn list(&self) -> &[u8] {
        &self.data[self.lines as usize * LINE..]
    }

    /// Returns the number of hashes that the part was built from.
    pub fn items(&self) -> u64 {
        self.items
    }

    /// Returns the bytes of memory that the part holds.
    pub fn memory(&self) -> usize {
        HEAD + self.data.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_yes_to_all_items_and_seldom_to_others() {
        for (bits_per_item, most) in [(1, 100_000), (10, 1_500), (12, 700), (40, 10)] {
            let hashes: Vec<u64> = (0..3_000).collect(); // as badly hashed as can be
            let filter = Filter::new(build(&hashes, bits_per_item).into(), 0).unwrap();
            assert!(hashes.iter().all(|&hash| filter.may_contain(hash)));
            let wrong = (20_000..120_000).filter(|&hash| filter.may_contain(hash)).count();
            assert!(wrong <= most, "{wrong} of 100000 others pass at {bits_per_item} bits");
        }
    }

    /// Every part has enough bits for its items. A part with too many items would let every item
    /// pass.
    #[test]
    fn a_filter_is_cut_into_parts_by_key() {
        let mut builder = FilterBuilder::new(12);
        for n in 0..40_000u32 {
            builder.add(u64::from(n));
            builder.add(u64::from(n)); // once counts
            builder.key(&n.to_be_bytes());
            builder.key(b"a key of no items");
        }
        let parts = builder.finish();
        assert_eq!(parts.len(), 4);
        let mut next = 0;
        for Part { first, bytes, noted } in parts {
            assert_eq!(first, (next as u32).to_be_bytes());
            assert!(bytes.len() <= HEAD + PART && !noted);
            let filter = Filter::new(bytes.into(), 0).unwrap();
            let items = next..next + filter.items();
            assert!(items.clone().all(|hash| filter.may_contain(hash)));
            let wrong = (100_000..200_000).filter(|&hash| filter.may_contain(hash)).count();
            assert!(wrong < 700, "{wrong} of 100000 others pass");
            next = items.end;
        }
        assert_eq!(next, 40_000);
    }

    #[test]
    fn an_item_of_two_keys_is_in_the_parts_of_both() {
        let mut builder = FilterBuilder::new(40);
        let items = PART as u64 * 8 / 40;
        for item in 0..items {
            builder.add(item);
            builder.key(&item.to_be_bytes());
        }
        builder.add(items - 1);
        builder.key(b"again, and no more");
        builder.add(items - 1);
        builder.add(items);
        builder.key(b"begins a part");
        let parts = builder.finish();
        assert_eq!(parts.len(), 2);
        let filter = Filter::new(parts[1].bytes.clone().into(), 0).unwrap();
        assert!(parts[1].first == b"begins a part" && filter.may_contain(items - 1) && filter.items() == 2);
    }

    /// The numbers of items and notes are equal, and yet the first item would seem to be absent.
    #[test]
    fn an_item_without_a_note_beside_one_with_two_leaves_the_part_without_notes() {
        let build = |notes: &[(u64, Option<u128>)]| {
            let mut builder = FilterBuilder::new(10);
            for (item, note) in notes {
                builder.add(*item);
                note.iter().for_each(|hash| builder.add_note(*hash, 7));
            }
            builder.key(b"k");
            let [Part { noted, .. }] = builder.finish().try_into().unwrap();
            noted
        };
        assert!(build(&[(1, Some(1)), (2, Some(2))]));
        for notes in [[(1, None), (2, Some(2)), (2, Some(2))], [(2, Some(2)), (2, Some(2)), (1, None)]] {
            assert!(!build(&notes), "{notes:?}");
        }
    }

    #[test]
    fn items_without_a_key_belong_to_the_last_part() {
        let mut builder = FilterBuilder::new(10);
        builder.add(1);
        builder.key(b"k");
        builder.add(2);
        let [Part { first, bytes, .. }] = builder.finish().try_into().unwrap();
        let filter = Filter::new(bytes.into(), 0).unwrap();
        assert!(first == b"k" && filter.may_contain(1) && filter.may_contain(2));
        assert!(FilterBuilder::new(10).finish().is_empty());
    }

    #[test]
    fn impossible_filters_are_refused() {
        for (len, probes) in [(0, 7), (HEAD, 7), (HEAD + LINE - 1, 7), (HEAD + LINE, 0), (HEAD + LINE, 17)] {
            let mut data = vec![0; len];
            if let Some(head) = data.get_mut(..1) {
                head[0] = probes;
            }
            assert!(Filter::new(data.into(), 0).is_err());
        }
    }
}
