//! One log in memory: its entries, each preceded by its length, in chunks. Readers share all chunks
//! except the last.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use brooklet_wal::{put_varint, take_varint};
use bytes::Bytes;

use crate::model::Bounds;
use crate::model::retention_state::{RetentionState, shown};

/// Maximum bytes of a chunk, unless a single entry takes more.
pub(super) const CHUNK: usize = 16 << 10;
/// Minimum bytes of a chunk.
const LEAST: usize = 32;

/// Consecutive entries.
#[derive(Clone, Debug)]
struct Chunk {
    base: u64,
    entries: u32,
    bytes: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    bounds: Bounds,
    /// The newest entries. The first of them may have been trimmed.
    tail: Vec<u8>,
    tail_entries: u32,
    /// Fields that most logs do not need.
    more: Option<Box<More>>,
}

#[derive(Clone, Debug, Default)]
struct More {
    /// The entries before the tail.
    chunks: VecDeque<Chunk>,
    /// Bytes of these chunks.
    bytes: usize,
    terms: Option<Arc<RetentionState>>,
}

/// The state of a log at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Frozen {
    pub bounds: Bounds,
    pub terms: Option<Arc<RetentionState>>,
    chunks: Vec<Chunk>,
}

impl Log {
    /// Creates an existing log without entries. The first pushed entry gets the number `first`.
    pub fn empty_at(first: u64, terms: Option<Arc<RetentionState>>) -> Self {
        let mut log = Self { bounds: Bounds { first, next: first }, ..Self::default() };
        log.set_terms(terms);
        log
    }

    pub fn bounds(&self) -> Bounds {
        self.bounds
    }

    pub fn terms(&self) -> Option<&Arc<RetentionState>> {
        self.more.as_ref()?.terms.as_ref()
    }

    pub fn terms_mut(&mut self) -> &mut Option<Arc<RetentionState>> {
        &mut self.more.get_or_insert_default().terms
    }

    pub fn set_terms(&mut self, terms: Option<Arc<RetentionState>>) {
        if terms.is_some() || self.more.is_some() {
            *self.terms_mut() = terms;
        }
    }

    /// Returns the bounds that readers see at `now`.
    pub fn shown(&self, now: u64) -> Bounds {
        shown(self.bounds, self.terms().map(|terms| &**terms), now)
    }

    /// Returns the approximate memory of the log outside of its own struct, in bytes.
    pub fn memory(&self) -> usize {
        let more = self.more.as_ref().map_or(0, |more| {
            let terms = more.terms.as_ref().map_or(0, |terms| terms.bound());
            size_of::<More>() + more.bytes + more.chunks.capacity() * size_of::<Chunk>() + terms
        });
        self.tail.capacity() + more
    }

    /// Returns the bytes by which the list of chunks grows with the next chunk.
    pub fn growth_of_list(&self) -> usize {
        let full = self.more.as_ref().filter(|more| more.chunks.len() == more.chunks.capacity());
        full.map_or(0, |more| more.chunks.capacity() * size_of::<Chunk>())
    }

    /// Returns whether the log has a limit of age.
    pub fn is_aged(&self) -> bool {
        self.terms().is_some_and(|terms| terms.age.is_some())
    }

    /// Appends an entry.
    pub fn push(&mut self, payload: &[u8]) {
        let needed = varint_len(payload.len() as u64) + payload.len();
        if self.tail.capacity() - self.tail.len() < needed {
            self.grow(needed);
        }
        let tail = &mut self.tail;
        put_varint(&mut |bytes| tail.extend_from_slice(bytes), payload.len() as u64);
        tail.extend_from_slice(payload);
        self.tail_entries += 1;
        self.bounds.next += 1;
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        let len = self.tail.len();
        if len > 0 && len + needed > CHUNK {
            self.seal();
        }
        // A long log gets large chunks at once. The chunk of a short log doubles.
        let sealed = self.more.as_ref().map_or(0, |more| more.bytes);
        let wanted = (self.tail.len() + needed).max(self.tail.len() * 2).max(sealed / 8).max(LEAST);
        let capacity = if needed > CHUNK { needed } else { wanted.min(CHUNK) };
        self.tail.reserve_exact(capacity - self.tail.len());
    }

    /// Turns the tail into a chunk.
    fn seal(&mut self) {
        let bytes = std::mem::take(&mut self.tail).into();
        let chunk = self.tail_chunk(bytes);
        let more = self.more.get_or_insert_default();
        more.bytes += chunk.bytes.len();
        more.chunks.push_back(chunk);
        self.tail_entries = 0;
    }

    fn tail_base(&self) -> u64 {
        self.bounds.next - u64::from(self.tail_entries)
    }

    fn tail_chunk(&self, bytes: Bytes) -> Chunk {
        Chunk { base: self.tail_base(), entries: self.tail_entries, bytes }
    }

    /// Drops the entries before `first`, which must be within the bounds.
    pub fn trim(&mut self, first: u64) {
        debug_assert!((self.bounds.first..=self.bounds.next).contains(&first));
        self.bounds.first = first;
        if let Some(more) = &mut self.more {
            while more.chunks.front().is_some_and(|chunk| chunk.end() <= first) {
                more.bytes -= more.chunks.pop_front().map_or(0, |chunk| chunk.bytes.len());
            }
        }
        let base = self.tail_base();
        if first == self.bounds.next {
            self.drop_tail();
        } else if first > base && (first - base) * 2 >= u64::from(self.tail_entries) {
            // The tail is moved only if at least half of its entries were trimmed. So each entry is
            // moved a few times at most.
            let gone = (first - base) as u32;
            self.tail.drain(..offset_of(&self.tail, gone.into()));
            self.tail_entries -= gone;
        }
    }

    /// Drops the tail and frees its memory, which may be that of a large entry.
    fn drop_tail(&mut self) {
        (self.tail, self.tail_entries) = (Vec::new(), 0);
    }

    /// Gives the next entry of an empty log the number `next`, which must be at or past the end.
    pub fn begin(&mut self, next: u64) {
        debug_assert!(self.bounds.is_empty() && self.tail_entries == 0 && next >= self.bounds.next);
        self.bounds = Bounds { first: next, next };
    }

    /// Drops the entries from `next` on. `next` must be within the bounds.
    pub fn truncate(&mut self, next: u64) {
        debug_assert!((self.bounds.first..=self.bounds.next).contains(&next));
        let base = self.tail_base();
        if next > base {
            self.tail.truncate(offset_of(&self.tail, next - base));
            self.tail_entries = (next - base) as u32;
        } else if next == base {
            self.drop_tail();
        } else {
            self.drop_tail();
            let more = self.more.as_mut().expect("what is not in the tail is in chunks");
            while more.chunks.back().is_some_and(|chunk| chunk.end() > next) {
                let chunk = more.chunks.pop_back().expect("it was just seen");
                more.bytes -= chunk.bytes.len();
                if chunk.base < next {
                    self.tail_entries = (next - chunk.base) as u32;
                    self.tail.extend_from_slice(&chunk.bytes[..offset_of(&chunk.bytes, next - chunk.base)]);
                }
            }
        }
        self.bounds.next = next;
    }

    /// Returns the payload bytes of the entries of a range.
    pub fn sum(&self, range: Range<u64>) -> u64 {
        self.parts(range).flat_map(|(bytes, skip, take)| payloads(bytes).skip(skip).take(take)).map(len).sum()
    }

    /// Returns the first entry of `range` that has more than `enough` payload bytes before it in
    /// the range, or the end of the range. Also returns these bytes.
    pub fn walk(&self, range: Range<u64>, enough: u64) -> (u64, u64) {
        let (mut at, mut sum) = (range.start, 0);
        for payload in self.parts(range).flat_map(|(bytes, skip, take)| payloads(bytes).skip(skip).take(take))
        {
            if sum > enough {
                break;
            }
            sum += len(payload);
            at += 1;
        }
        (at, sum)
    }

    /// Returns the bytes of each chunk that holds entries of a range, the number of the chunk's
    /// entries before the range, and the number of its entries in the range.
    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (&[u8], usize, usize)> {
        let tail = (self.tail_base(), self.tail_entries, &self.tail[..]);
        let chunks = self.more.iter().flat_map(|more| &more.chunks);
        let chunks = chunks.map(|chunk| (chunk.base, chunk.entries, &chunk.bytes[..])).chain([tail]);
        chunks.filter_map(move |(base, entries, bytes)| {
            let (start, end) = (base.max(range.start), (base + u64::from(entries)).min(range.end));
            (start < end).then(|| (bytes, (start - base) as usize, (end - start) as usize))
        })
    }

    /// Returns the current state of the log, with the entries of `range`.
    pub fn freeze(&self, range: Range<u64>) -> Frozen {
        let within = |chunk: &&Chunk| chunk.base < range.end && range.start < chunk.end();
        let chunks = self.more.iter().flat_map(|more| &more.chunks);
        let mut chunks: Vec<Chunk> = chunks.filter(within).cloned().collect();
        if self.tail_base() < range.end && range.start < self.bounds.next {
            chunks.push(self.tail_chunk(Bytes::copy_from_slice(&self.tail)));
        }
        Frozen { bounds: self.bounds, terms: self.terms().cloned(), chunks }
    }

    /// Creates a log from a saved state. It takes no more memory than the saved log did: its last
    /// entries are the tail.
    pub fn thaw(Frozen { bounds, terms, mut chunks }: Frozen) -> Self {
        let last = chunks.pop_if(|chunk| chunk.end() == bounds.next);
        let (tail, tail_entries) =
            last.map_or_else(Default::default, |last| (last.bytes.to_vec(), last.entries));
        chunks.shrink_to_fit();
        let bytes = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        let is_plain = chunks.is_empty() && terms.is_none();
        let more = (!is_plain).then(|| Box::new(More { chunks: chunks.into(), bytes, terms }));
        Self { bounds, tail, tail_entries, more }
    }
}

impl Chunk {
    fn end(&self) -> u64 {
        self.base + u64::from(self.entries)
    }
}

impl Frozen {
    /// Returns the available payloads of `range`, sharing memory with the chunks.
    pub fn shared(&self, range: Range<u64>) -> impl Iterator<Item = Bytes> {
        self.parts(range).map(|(chunk, payload)| chunk.slice_ref(payload))
    }

    /// Returns the available payloads of `range`, borrowed.
    pub fn payloads(&self, range: Range<u64>) -> impl Iterator<Item = &[u8]> {
        self.parts(range).map(|(_, payload)| payload)
    }

    fn parts(&self, range: Range<u64>) -> impl Iterator<Item = (&Bytes, &[u8])> {
        self.chunks.iter().flat_map(move |chunk| {
            let start = range.start.saturating_sub(chunk.base) as usize;
            let end = range.end.saturating_sub(chunk.base).min(chunk.entries.into()) as usize;
            let wanted = payloads(&chunk.bytes).skip(start).take(end.saturating_sub(start));
            wanted.map(|payload| (&chunk.bytes, payload))
        })
    }
}

fn len(payload: &[u8]) -> u64 {
    payload.len() as u64
}

fn varint_len(n: u64) -> usize {
    (64 - (n | 1).leading_zeros() as usize).div_ceil(7)
}

/// Returns the offset of the entry after the first `entries` entries.
fn offset_of(bytes: &[u8], entries: u64) -> usize {
    payloads(bytes).take(entries as usize).map(|payload| varint_len(len(payload)) + payload.len()).sum()
}

fn payloads(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let len = take_varint(&mut bytes)?;
        let (payload, rest) = bytes.split_at(len as usize);
        bytes = rest;
        Some(payload)
    })
}

#[cfg(test)]
mod tests {
    use brooklet_io::Rng;

    use super::*;

    #[test]
    fn a_log_is_what_was_done_to_it() {
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let first = rng.below(3) * 1000;
            let (mut log, mut twin) = (Log::empty_at(first, None), VecDeque::new());
            let mut first = first;
            for _ in 0..rng.below(600) {
                let Bounds { first: was, next } = log.bounds();
                match rng.below(40) {
                    0 => {
                        first = was + rng.below(next - was + 1);
                        log.trim(first);
                        twin.drain(..(first - was) as usize);
                    }
                    1 => {
                        let to = was + rng.below(next - was + 1);
                        log.truncate(to);
                        twin.truncate((to - was) as usize);
                    }
                    2 => log = Log::thaw(log.freeze(was..next)),
                    3 => {
                        let from = was + rng.below(next - was + 1);
                        let to = from + rng.below(next - from + 1);
                        let sizes = twin.iter().map(|payload: &Vec<u8>| payload.len() as u64);
                        let sum = sizes.skip((from - was) as usize).take((to - from) as usize).sum::<u64>();
                        assert_eq!(log.sum(from..to), sum);
                        let (at, walked) = log.walk(from..to, sum / 2);
                        assert_eq!(walked, log.sum(from..at));
                        assert!(at == to || walked > sum / 2 && log.sum(from..at - 1) <= sum / 2);
                        let part = log.freeze(from..to);
                        let wanted = twin.iter().skip((from - was) as usize).take((to - from) as usize);
                        assert!(part.payloads(from..to).eq(wanted), "seed {seed}");
                    }
                    _ => {
                        let most = if rng.below(30) == 0 { 20_000 } else { 200 };
                        let payload = vec![seed as u8; rng.below(most) as usize];
                        log.push(&payload);
                        twin.push_back(payload);
                    }
                }
                let bounds = log.bounds();
                assert_eq!((bounds.first, bounds.len()), (first, twin.len() as u64));
            }
            let Bounds { first, next } = log.bounds();
            assert!(log.freeze(first..next).payloads(first..next).eq(twin.iter()), "seed {seed}");
        }
    }

    #[test]
    fn a_log_whose_head_is_trimmed_as_it_grows_stays_small() {
        let mut log = Log::default();
        for seq in 0..10_000 {
            log.push(&[7; 100]);
            log.trim(u64::saturating_sub(seq, 9));
        }
        assert!(log.memory() < 8 << 10, "{}", log.memory());
    }
}
