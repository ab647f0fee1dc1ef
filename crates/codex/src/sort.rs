//! Entries in memory, in the order in which they come, and their sort.
//!
//! An entry is stored as the lengths of its key and its value, both varints, then the key and the
//! value. For sorting, a slot holds eight bytes of each key, as a number, after the common prefix
//! of all keys: these bytes alone order most entries. Sorted entries are stored in order, one after
//! another, so that a merge reads forward.

use std::mem;

use crate::arena::Arena;
use crate::block::shared_len;
use crate::error::{Error, Result};
use crate::format::{put_varint, sum, take_varint};
use crate::options::Duplicates;

/// Average bytes of keys and values in a range, which is packed alone. Tests use many ranges.
pub(crate) const RANGE: usize = if cfg!(test) { 4 << 10 } else { 1 << 20 };
/// Most entries of a segment: their slots stay within a core's cache during sorting.
const MOST_ENTRIES: u64 = 160_000;
/// Approximate number of slots in a bucket.
const IN_BUCKET: usize = 16;
/// One entry in this many is marked, for finding keys.
const MARK_EVERY: usize = 64;

/// Returns whether a range begins with this entry. The entry alone decides, so the same entries
/// form the same ranges in any order, and with any number of entries in memory together.
#[inline]
pub(crate) fn is_cut(key: &[u8], value_len: usize) -> bool {
    let size = (key.len() + value_len) as u64;
    sum(key) < size.saturating_mul(u64::MAX / RANGE as u64)
}

/// An entry in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry<'a> {
    pub key: &'a [u8],
    pub value: &'a [u8],
    /// The whole entry as stored, including its lengths.
    pub whole: &'a [u8],
}

#[inline]
pub(crate) fn put_entry(out: &mut Arena, key: &[u8], value: &[u8]) {
    out.reserve(key.len() + value.len() + 20);
    if key.len() | value.len() < 0x80 {
        out.extend(&[key.len() as u8, value.len() as u8]);
    } else {
        let mut lens = Vec::with_capacity(20);
        put_varint(&mut lens, key.len() as u64);
        put_varint(&mut lens, value.len() as u64);
        out.extend(&lens);
    }
    out.extend(key);
    out.extend(value);
}

/// Returns the entry that begins at byte `start`.
#[inline]
pub(crate) fn entry_at(bytes: &[u8], start: usize) -> Entry<'_> {
    let bytes = &bytes[start..];
    let (mut at, key, value);
    if bytes[0] | bytes[1] < 0x80 {
        (at, key, value) = (2, bytes[0] as usize, bytes[1] as usize);
    } else {
        at = 0;
        let mut number = || take_varint(bytes, &mut at).expect("an entry lies here") as usize;
        (key, value) = (number(), number());
    }
    let (key_end, end) = (at + key, at + key + value);
    Entry { key: &bytes[at..key_end], value: &bytes[key_end..end], whole: &bytes[..end] }
}

/// The place of an entry, and the bytes of its key after the common prefix of all keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub prefix: u64,
    pub place: u64,
}

/// Returns the first eight bytes of a key as a number. The numbers of ascending keys ascend or are
/// equal.
#[inline]
pub(crate) fn prefix(key: &[u8]) -> u64 {
    match key.first_chunk() {
        Some(head) => u64::from_be_bytes(*head),
        None => {
            let mut head = [0; 8];
            head[..key.len()].copy_from_slice(key);
            u64::from_be_bytes(head)
        }
    }
}

/// Sorts slots by their prefixes, with spare memory. Distributes the slots into buckets by the
/// highest bits in which prefixes differ, a few slots to each if prefixes are spread evenly, and
/// then sorts each bucket.
pub(crate) fn sort_slots(slots: &mut Vec<Slot>, spare: &mut Vec<Slot>) {
    let prefixes = || slots.iter().map(|slot| slot.prefix);
    let (Some(least), Some(most)) = (prefixes().min(), prefixes().max()) else { return };
    let bits = (slots.len() / IN_BUCKET).checked_ilog2().unwrap_or(0);
    let shift = (u64::BITS - (most - least).leading_zeros()).saturating_sub(bits);
    // A few slots have one bucket, at any distance between their prefixes.
    let bucket = |slot: &Slot| (slot.prefix - least).checked_shr(shift).unwrap_or(0) as usize;
    let mut ends = vec![0u32; bucket(&Slot { prefix: most, place: 0 }) + 2];
    slots.iter().for_each(|slot| ends[bucket(slot) + 1] += 1);
    (1..ends.len()).for_each(|at| ends[at] += ends[at - 1]);
    spare.clear();
    spare.resize(slots.len(), Slot { prefix: 0, place: 0 });
    for slot in slots.iter() {
        let end = &mut ends[bucket(slot)];
        spare[*end as usize] = *slot;
        *end += 1;
    }
    mem::swap(slots, spare);
    let mut start = 0;
    for &end in &ends[..ends.len() - 1] {
        slots[start..end as usize].sort_unstable_by_key(|slot| slot.prefix);
        start = end as usize;
    }
}

/// Sorts slots that are sorted by prefix: slots with equal prefixes by their keys, and slots with
/// equal keys by their places.
pub(crate) fn settle<'a>(slots: &mut [Slot], key: impl Fn(Slot) -> &'a [u8]) {
    for group in slots.chunk_by_mut(|a, b| a.prefix == b.prefix) {
        if group.len() > 1 {
            group.sort_unstable_by(|a, b| key(*a).cmp(key(*b)).then(a.place.cmp(&b.place)));
        }
    }
}

/// Returns the rule for an entry whose key came before; an error if duplicates are refused.
pub(crate) fn settled(rule: Duplicates, key: &[u8]) -> Result<Duplicates> {
    if rule == Duplicates::Refuse { Err(Error::Duplicate { key: key.to_vec() }) } else { Ok(rule) }
}

/// A segment: entries in the order in which they came.
#[derive(Debug)]
pub(crate) struct Segment {
    bytes: Arena,
    entries: u64,
    /// Whether each key is greater than the key before.
    ascending: bool,
    /// While `ascending`: the offset of the last entry, and of the entries that begin ranges.
    last: usize,
    cuts: Vec<usize>,
}

impl Default for Segment {
    fn default() -> Self {
        Segment { bytes: Arena::default(), entries: 0, ascending: true, last: 0, cuts: Vec::new() }
    }
}

/// Memory of a sort, for reuse.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub bytes: Arena,
    pub slots: Vec<Slot>,
    pub spare: Vec<Slot>,
}

impl Segment {
    /// Creates an empty segment in the memory of another segment, unless that memory is too small
    /// or more than four times too large.
    pub fn within(mut bytes: Arena, room: usize) -> Self {
        bytes.truncate(0);
        if bytes.room() < room || bytes.room() > 4 * room {
            bytes = Arena::with_room(room);
        }
        Segment { bytes, ..Segment::default() }
    }

    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        let at = self.bytes.len();
        if self.ascending {
            self.ascending = self.entries == 0 || entry_at(&self.bytes, self.last).key < key;
            self.last = at;
            if self.ascending && is_cut(key, value.len()) {
                self.cuts.push(at);
            }
        }
        put_entry(&mut self.bytes, key, value);
        self.entries += 1;
    }

    /// Returns whether an entry of `more` bytes would exceed `room` bytes. An empty segment is
    /// never full.
    #[inline]
    pub fn is_full(&self, more: usize, room: usize) -> bool {
        (self.bytes.len() + more > room || self.entries == MOST_ENTRIES) && self.entries > 0
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn entries(&self) -> u64 {
        self.entries
    }

    pub fn is_ascending(&self) -> bool {
        self.ascending
    }

    /// Returns the last key. The segment must be ascending and not empty.
    pub fn last(&self) -> &[u8] {
        entry_at(&self.bytes, self.last).key
    }

    /// Returns the first key. The segment must not be empty.
    pub fn first(&self) -> &[u8] {
        entry_at(&self.bytes, 0).key
    }

    /// Returns the offset of the last range of an ascending segment; `None` if the segment is a
    /// single range.
    pub fn last_range(&self) -> Option<usize> {
        self.cuts.last().copied().filter(|&cut| cut > 0)
    }

    /// Splits an ascending segment at the beginning of its last range, and returns the rest in the
    /// memory `bytes`.
    pub fn split_off(&mut self, cut: usize, bytes: Arena, room: usize) -> Segment {
        let mut tail = Segment::within(bytes, room);
        tail.bytes.reserve(self.bytes.len() - cut);
        tail.bytes.extend(&self.bytes[cut..]);
        let end = |bytes: &[u8], at: usize| {
            let entries = Entries { bytes, at, end: bytes.len() };
            entries.fold((at, 0), |(_, count), (at, _)| (at, count + 1))
        };
        (tail.last, tail.entries) = end(&tail.bytes, 0);
        tail.cuts.push(0);
        self.cuts.pop();
        self.bytes.truncate(cut);
        self.last = end(&self.bytes, self.cuts.last().copied().unwrap_or(0)).0;
        self.entries -= tail.entries;
        tail
    }

    /// Returns the entries of an ascending segment. The flag of each entry is set if the entry
    /// begins a range.
    pub fn ranges(&self) -> impl Iterator<Item = (Entry<'_>, bool)> {
        let mut cuts = self.cuts.iter().copied().peekable();
        let entries = Entries { bytes: &self.bytes, at: 0, end: self.bytes.len() };
        entries.map(move |(at, entry)| (entry, cuts.next_if_eq(&at).is_some()))
    }

    pub fn into_bytes(self) -> Arena {
        self.bytes
    }

    /// Sorts the entries with scratch memory, and keeps one entry of each key.
    pub fn sort(self, rule: Duplicates, scratch: &mut Scratch) -> Result<Sorted> {
        if self.ascending {
            return Ok(Sorted::of(self.bytes, self.entries));
        }
        let slots = &mut scratch.slots;
        slots.clear();
        slots.reserve(self.entries as usize);
        let all = Entries { bytes: &self.bytes, at: 0, end: self.bytes.len() };
        let shared = all.shared();
        slots.extend(all.map(|(at, entry)| Slot { prefix: prefix(&entry.key[shared..]), place: at as u64 }));
        sort_slots(slots, &mut scratch.spare);
        let entry = |slot: Slot| entry_at(&self.bytes, slot.place as usize);
        settle(slots, |slot| entry(slot).key);
        let mut sorted = Sorted { bytes: Arena::with_room(self.bytes.len()), ..Sorted::default() };
        for (index, &slot) in slots.iter().enumerate() {
            let here = entry(slot);
            if index > 0 && slots[index - 1].prefix == slot.prefix && entry(slots[index - 1]).key == here.key
            {
                match settled(rule, here.key)? {
                    Duplicates::Last => sorted.pop(),
                    _ => continue,
                }
            }
            sorted.push(here);
        }
        scratch.bytes = self.bytes;
        Ok(sorted)
    }
}

/// An iterator over consecutive entries, each with its offset.
#[derive(Clone, Copy)]
struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Entries<'a> {
    /// Returns the length of the common prefix of all keys, in bytes.
    fn shared(self) -> usize {
        let mut keys = self.map(|(_, entry)| entry.key);
        let Some(first) = keys.next() else { return 0 };
        let mut shared = first.len();
        for key in keys {
            if shared == 0 {
                break;
            }
            shared = shared_len(key, &first[..shared]);
        }
        shared
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (usize, Entry<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        (self.at < self.end).then(|| {
            let (at, entry) = (self.at, entry_at(self.bytes, self.at));
            self.at += entry.whole.len();
            (at, entry)
        })
    }
}

/// Entries with ascending keys.
#[derive(Debug, Default)]
pub(crate) struct Sorted {
    bytes: Arena,
    entries: u64,
    last: usize,
    /// The offset of every 64th entry.
    marks: Vec<usize>,
    /// The offsets of the entries that begin ranges.
    cuts: Vec<usize>,
}

impl Sorted {
    /// Creates the result from entries that are sorted already.
    fn of(bytes: Arena, entries: u64) -> Self {
        let mut sorted = Sorted::default();
        for (at, entry) in (Entries { bytes: &bytes, at: 0, end: bytes.len() }) {
            sorted.note(at, entry);
        }
        debug_assert_eq!(sorted.entries, entries);
        Sorted { bytes, ..sorted }
    }

    fn push(&mut self, entry: Entry<'_>) {
        let at = self.bytes.len();
        self.bytes.extend(entry.whole);
        self.note(at, entry);
    }

    fn note(&mut self, at: usize, entry: Entry<'_>) {
        if (self.entries as usize).is_multiple_of(MARK_EVERY) {
            self.marks.push(at);
        }
        if is_cut(entry.key, entry.value.len()) {
            self.cuts.push(at);
        }
        self.last = at;
        self.entries += 1;
    }

    /// Removes the entry pushed last.
    fn pop(&mut self) {
        self.bytes.truncate(self.last);
        self.entries -= 1;
        self.marks.pop_if(|mark| *mark == self.last);
        self.cuts.pop_if(|cut| *cut == self.last);
    }

    /// Returns the bytes of memory that the entries hold.
    pub fn memory(&self) -> usize {
        self.bytes.room() + (self.marks.capacity() + self.cuts.capacity()) * size_of::<usize>()
    }

    /// Returns the first and the last key; `None` if there are no entries.
    pub fn ends(&self) -> Option<(&[u8], &[u8])> {
        (self.entries > 0).then(|| (entry_at(&self.bytes, 0).key, entry_at(&self.bytes, self.last).key))
    }

    /// Returns the keys of the entries that begin ranges.
    pub fn cuts(&self) -> impl Iterator<Item = &[u8]> {
        self.cuts.iter().map(|&at| entry_at(&self.bytes, at).key)
    }

    /// Returns the entries from `from` on and before `to`, each with its offset.
    pub fn range(&self, from: Option<&[u8]>, to: Option<&[u8]>) -> impl Iterator<Item = (usize, Entry<'_>)> {
        let at = from.map_or(0, |from| self.place_of(from));
        Entries { bytes: &self.bytes, at, end: to.map_or(self.bytes.len(), |to| self.place_of(to)) }
    }

    pub fn entry(&self, place: usize) -> Entry<'_> {
        entry_at(&self.bytes, place)
    }

    /// Returns the offset of the first entry whose key is `key` or greater.
    fn place_of(&self, key: &[u8]) -> usize {
        let after = self.marks.partition_point(|&mark| entry_at(&self.bytes, mark).key < key);
        let at = after.checked_sub(1).map_or(0, |before| self.marks[before]);
        let mut entries = Entries { bytes: &self.bytes, at, end: self.bytes.len() };
        entries.find(|(_, entry)| entry.key >= key).map_or(self.bytes.len(), |(at, _)| at)
    }
}
