//! Sorted entries in a block, and [`Spot`], a position among them. `format.rs` describes the
//! layout.
//!
//! A search looks at the restart points, whose keys are whole, and then entry by entry. It trusts
//! no stored number: every number is checked at its use, and every step advances by at least the
//! three bytes of an entry's head.

use std::cmp::Ordering;
use std::ops::Range;

use bytes::Bytes;

use crate::error::{Result, damaged};
use crate::format::{APART, POINTER, Ptr, RESTART_EVERY, put_varint, take_varint, u32_at};
use crate::limits::MAX_KEY;

/// A builder of a block, entry by entry.
#[derive(Debug, Default)]
pub(crate) struct BlockBuilder {
    data: Vec<u8>,
    restarts: Vec<u32>,
    entries: usize,
    last: Vec<u8>,
}

impl BlockBuilder {
    pub fn entries(&self) -> usize {
        self.entries
    }

    /// Returns the length that [`finish`](Self::finish) would give, in bytes.
    pub fn len(&self) -> usize {
        self.data.len() + 4 * self.restarts.len() + 4
    }

    /// Length of a block without entries, in bytes.
    pub const EMPTY: usize = 4;

    /// Returns the most bytes that an entry adds.
    pub fn most(key: &[u8], value: &[u8]) -> usize {
        Self::most_len(key.len(), value.len())
    }

    /// Returns the most bytes that an entry with a key and a value of these lengths adds.
    pub fn most_len(key: usize, value: usize) -> usize {
        3 * 5 + 4 + key + value
    }

    /// Returns the key added last.
    pub fn last(&self) -> &[u8] {
        &self.last
    }

    pub fn add(&mut self, key: &[u8], value: &[u8]) {
        let shared = if self.entries.is_multiple_of(RESTART_EVERY) {
            self.restarts.push(u32::try_from(self.data.len()).expect("blocks are bounded"));
            0
        } else {
            shared_len(key, &self.last)
        };
        let rest = &key[shared..];
        self.data.reserve(3 * 5 + rest.len() + value.len());
        if shared | rest.len() | value.len() < 0x80 {
            // Each of these is a varint of one byte.
            self.data.extend_from_slice(&[shared as u8, rest.len() as u8, value.len() as u8]);
        } else {
            put_varint(&mut self.data, shared as u64);
            put_varint(&mut self.data, rest.len() as u64);
            put_varint(&mut self.data, value.len() as u64);
        }
        self.data.extend_from_slice(rest);
        self.data.extend_from_slice(value);
        self.last.truncate(shared);
        self.last.extend_from_slice(rest);
        self.entries += 1;
    }

    /// Completes the block. [`reset`](Self::reset) begins the next.
    pub fn finish(&mut self) -> &[u8] {
        self.end(0)
    }

    /// Completes a block whose last value is the [list](crate::apart) of a long value.
    pub fn finish_apart(&mut self) -> &[u8] {
        self.end(APART)
    }

    fn end(&mut self, flag: u32) -> &[u8] {
        for restart in &self.restarts {
            self.data.extend_from_slice(&restart.to_le_bytes());
        }
        self.data.extend_from_slice(&(self.restarts.len() as u32 | flag).to_le_bytes());
        &self.data
    }

    pub fn reset(&mut self) {
        self.data.clear();
        self.restarts.clear();
        self.entries = 0;
    }
}

/// Returns the length of the common prefix of two keys, in bytes.
#[inline]
pub(crate) fn shared_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let (words, rest) = a[..len].as_chunks::<8>();
    for ((a, b), at) in words.iter().zip(b.as_chunks::<8>().0).zip((0..).step_by(8)) {
        let differ = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differ != 0 {
            return at + differ.trailing_zeros() as usize / 8;
        }
    }
    let at = len - rest.len();
    at + rest.iter().zip(&b[at..]).take_while(|(a, b)| a == b).count()
}

/// A decoded block. Cheap to clone; values share its memory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    data: Bytes,
    /// The end of the entries and the start of the restart points; 0 only in the default block,
    /// which means no block.
    end: usize,
    restarts: usize,
    /// Whether its last value is a list of pieces.
    apart: bool,
    /// Offset of its frame in the file.
    at: u64,
}

/// A value as stored in a block.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub bytes: Bytes,
    /// Whether the bytes are a list of pieces, and not the value.
    pub apart: bool,
    /// Offset of the block in the file.
    pub at: u64,
}

/// The places of the parts of one entry in the block.
struct Entry {
    shared: usize,
    key: Range<usize>,
    value: Range<usize>,
}

impl Block {
    /// Creates a block from the decoded frame at byte `at` of the file.
    pub fn new(data: Bytes, at: u64) -> Result<Block> {
        let Some(count_at) = data.len().checked_sub(4) else {
            return damaged(at, "the block is too short");
        };
        let count = u32_at(&data, count_at);
        let (restarts, apart) = ((count & !APART) as usize, count & APART != 0);
        let end = match restarts.checked_mul(4).and_then(|bytes| count_at.checked_sub(bytes)) {
            Some(end) if restarts > 0 => end,
            _ => return damaged(at, "the block has no room for its restart points"),
        };
        let block = Block { data, end, restarts, apart, at };
        let ascend = (1..restarts).all(|index| block.restart(index - 1) < block.restart(index));
        if block.restart(0) != 0 || !ascend || block.restart(restarts - 1) >= end {
            return block.damaged("the restart points are not in order");
        }
        Ok(block)
    }

    pub fn at(&self) -> u64 {
        self.at
    }

    /// Returns whether `ptr` points to this block.
    pub fn is(&self, ptr: Ptr) -> bool {
        self.end > 0 && self.at == ptr.offset
    }

    /// Returns the bytes of memory that the block holds.
    pub fn memory(&self) -> usize {
        self.data.len()
    }

    fn damaged<T>(&self, what: &'static str) -> Result<T> {
        damaged(self.at, what)
    }

    fn restart(&self, index: usize) -> usize {
        debug_assert!(index < self.restarts);
        u32_at(&self.data, self.end + 4 * index) as usize
    }

    #[inline]
    fn entry(&self, mut at: usize) -> Result<Entry> {
        let entries = &self.data[..self.end];
        let head = entries.get(at..).and_then(<[u8]>::first_chunk::<3>);
        let (shared, unshared, value) = match head {
            // Usually, each of these is a varint of one byte.
            Some(&[shared, unshared, value]) if shared | unshared | value < 0x80 => {
                at += 3;
                (usize::from(shared), usize::from(unshared), usize::from(value))
            }
            _ => {
                let mut number =
                    || take_varint(entries, &mut at).and_then(|number| usize::try_from(number).ok());
                match (number(), number(), number()) {
                    (Some(shared), Some(unshared), Some(value)) => (shared, unshared, value),
                    _ => return self.damaged("an entry's head is cut off"),
                }
            }
        };
        let ends = at.checked_add(unshared).and_then(|key| Some((key, key.checked_add(value)?)));
        match ends {
            Some((key, value)) if value <= self.end && shared.saturating_add(unshared) <= MAX_KEY => {
                Ok(Entry { shared, key: at..key, value: key..value })
            }
            _ => self.damaged("an entry does not fit the block"),
        }
    }

    /// Returns the index of the last restart point whose key is at most `key`.
    fn search(&self, key: &[u8]) -> Result<Option<usize>> {
        let (mut low, mut high) = (0, self.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            let entry = self.entry(self.restart(middle))?;
            if entry.shared != 0 {
                return self.damaged("a restart point shares its key");
            }
            if self.data[entry.key] <= *key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low.checked_sub(1))
    }

    fn stored(&self, value: Range<usize>) -> Stored {
        let apart = self.apart && value.end == self.end;
        Stored { bytes: self.data.slice(value), apart, at: self.at }
    }

    /// Returns the value of the last entry whose key is at most `key`, and whether the keys are
    /// equal.
    pub fn floor(&self, key: &[u8]) -> Result<Option<(Stored, bool)>> {
        let found = self.floor_place(key)?;
        Ok(found.map(|(value, exact)| (self.stored(value), exact)))
    }

    /// Returns the value of the last entry of an index block whose key is at most `key`, as a
    /// pointer.
    pub fn floor_ptr(&self, key: &[u8]) -> Result<Option<Ptr>> {
        self.floor_place(key)?.map(|(value, _)| self.ptr(value)).transpose()
    }

    fn ptr(&self, value: Range<usize>) -> Result<Ptr> {
        match <&[u8; POINTER]>::try_from(&self.data[value]) {
            Ok(ptr) => Ok(Ptr::decode(ptr)),
            Err(_) => self.damaged("an index entry is no pointer"),
        }
    }

    /// Returns the place of the value of the last entry whose key is at most `key`, and whether the
    /// keys are equal.
    ///
    /// Keys ascend. So for an entry whose key is not greater, the length of its common prefix with
    /// `key` is enough. If the next entry shares more bytes with that entry than this length, it is
    /// less than `key`. If it shares fewer bytes, it is greater.
    fn floor_place(&self, key: &[u8]) -> Result<Option<(Range<usize>, bool)>> {
        let Some(index) = self.search(key)? else { return Ok(None) };
        let mut entry = self.entry(self.restart(index))?;
        // The search found that this entry is not greater.
        let mut common = shared_len(&self.data[entry.key.clone()], key);
        let mut len = entry.key.len();
        while entry.value.end < self.end {
            let next = self.entry(entry.value.end)?;
            if next.shared > len {
                return self.damaged("an entry shares more bytes than the key before it has");
            }
            if next.shared < common {
                break;
            }
            len = next.shared + next.key.len();
            if next.shared == common {
                let (tail, wanted) = (&self.data[next.key.clone()], &key[common..]);
                let more = shared_len(tail, wanted);
                if more < tail.len() && wanted.get(more).is_none_or(|byte| tail[more] > *byte) {
                    break;
                }
                common += more;
            }
            entry = next;
        }
        let exact = common == key.len() && entry.shared + entry.key.len() == common;
        Ok(Some((entry.value, exact)))
    }

    /// Checks everything that readers assume: keys ascend, and restart points are at the required
    /// entries. Calls `each` for every entry in order.
    pub fn check(&self, mut each: impl FnMut(&Spot) -> Result<()>) -> Result<()> {
        let mut spot = Spot::default();
        spot.enter(self.clone());
        let (mut last, mut count) = (Vec::new(), 0);
        while spot.step()? {
            if count > 0 && last.as_slice() >= spot.key() {
                return self.damaged("keys do not ascend");
            }
            last.clear();
            last.extend_from_slice(spot.key());
            if count % RESTART_EVERY == 0 {
                let index = count / RESTART_EVERY;
                if index >= self.restarts || self.restart(index) != spot.start || spot.shared != 0 {
                    return self.damaged("a restart point is not at its entry");
                }
            }
            count += 1;
            each(&spot)?;
        }
        if count.div_ceil(RESTART_EVERY) != self.restarts {
            return self.damaged("the block has more restart points than entries");
        }
        Ok(())
    }
}

/// The target of a move in a block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim<'k> {
    First,
    Last,
    /// The last entry whose key is at most this key.
    AtMost(&'k [u8]),
}

/// A position in a block: at an entry, or before the first entry right after
/// [`enter`](Spot::enter).
#[derive(Debug, Default)]
pub(crate) struct Spot {
    block: Block,
    key: Vec<u8>,
    /// The current entry is at `start..next`, `value` within; all 0 before the first entry.
    start: usize,
    next: usize,
    value: Range<usize>,
    /// Number of bytes that the key of the current entry shares with the key before.
    shared: usize,
}

impl Spot {
    pub fn enter(&mut self, block: Block) {
        self.block = block;
        self.rest_at(0);
    }

    pub fn block(&self) -> &Block {
        &self.block
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Returns the value as stored in the block.
    pub fn stored(&self) -> Stored {
        self.block.stored(self.value.clone())
    }

    /// Returns the value of an index block, as a pointer.
    pub fn ptr(&self) -> Result<Ptr> {
        self.block.ptr(self.value.clone())
    }

    /// Moves as `aim` says. If every key is over [`Aim::AtMost`], moves to the first entry and
    /// returns `false`.
    pub fn aim(&mut self, aim: Aim<'_>) -> Result<bool> {
        match aim {
            Aim::First => self.rest_at(0),
            Aim::Last => {
                self.rest_at(self.block.restart(self.block.restarts - 1));
                while self.step()? {}
                return Ok(true);
            }
            Aim::AtMost(key) => {
                if let Some(index) = self.block.search(key)? {
                    self.rest_at(self.block.restart(index));
                    self.step()?;
                    while self.next < self.block.end {
                        let entry = self.block.entry(self.next)?;
                        if self.compare(&entry, key)? == Ordering::Greater {
                            break;
                        }
                        self.take(entry)?;
                    }
                    return Ok(true);
                }
                self.rest_at(0);
            }
        }
        self.step()?;
        Ok(matches!(aim, Aim::First))
    }

    /// Moves to the next entry; at the last, stays and returns `false`.
    #[inline]
    pub fn step(&mut self) -> Result<bool> {
        if self.next >= self.block.end {
            return Ok(false);
        }
        let entry = self.block.entry(self.next)?;
        self.take(entry)?;
        Ok(true)
    }

    /// Moves to the previous entry; at the first entry, stays and returns `false`. Reads forward
    /// from the restart point before, which has the nearest whole key.
    pub fn back(&mut self) -> Result<bool> {
        let here = self.start;
        if here == 0 {
            return Ok(false);
        }
        let (mut low, mut high) = (0, self.block.restarts);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.block.restart(middle) < here { low = middle + 1 } else { high = middle }
        }
        self.rest_at(self.block.restart(low.saturating_sub(1)));
        // Without a limit, a block of few restart points would make the way back quadratic.
        for _ in 0..RESTART_EVERY {
            if self.next >= here || !self.step()? {
                break;
            }
        }
        if self.next < here {
            return self.block.damaged("too many entries follow a restart point");
        }
        if self.next != here || self.start >= here {
            return self.block.damaged("a restart point is not at an entry");
        }
        Ok(true)
    }

    /// Moves to the place before the entry at `at`, which is a restart point.
    fn rest_at(&mut self, at: usize) {
        self.key.clear();
        (self.start, self.next, self.value, self.shared) = (at, at, 0..0, 0);
    }

    fn take(&mut self, entry: Entry) -> Result<()> {
        if entry.shared > self.key.len() {
            return self.block.damaged("an entry shares more bytes than the key before it has");
        }
        self.key.truncate(entry.shared);
        self.key.extend_from_slice(&self.block.data[entry.key]);
        (self.start, self.next, self.value, self.shared) =
            (self.next, entry.value.end, entry.value, entry.shared);
        Ok(())
    }

    /// Compares the key of the next entry with `key`, without joining its parts.
    fn compare(&self, entry: &Entry, key: &[u8]) -> Result<Ordering> {
        let Some(shared) = self.key.get(..entry.shared) else {
            return self.block.damaged("an entry shares more bytes than the key before it has");
        };
        let unshared = &self.block.data[entry.key.clone()];
        Ok(match key.split_at_checked(shared.len()) {
            Some((head, tail)) => shared.cmp(head).then_with(|| unshared.cmp(tail)),
            None => shared.cmp(key), // longer than `key`: never equal
        })
    }
}

#[cfg(test)]
mod tests;
