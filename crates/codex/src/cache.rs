//! The memory of readers: one bounded cache for the blocks and filters of any number of readers.
//!
//! The policy is CLOCK with laps. Every entry is in a queue. If room is short, the entry at the
//! front is dropped, unless it has laps left: then it spends one lap and joins the end. A look-up
//! sets an entry's laps to one more than its class starts with. A data block starts with no laps,
//! so blocks that were read once go before blocks that were used again. A small value is kept by
//! itself, for four laps, because it takes a small part of the memory of its block. If room is
//! short, the block is then kept only after a second read (`reread.rs`): scattered values that are
//! used again need no block each, and look-ups of neighbours find the block. Filters and index
//! blocks stay longer than the blocks that they lead to, because each serves hundreds of blocks or
//! thousands of look-ups. The directories of filters go last. A look-up takes only a shared lock.
//! If room is not short, unused entries go with time, if a caller reports that time passes
//! ([`Cache::age`]).
//!
//! Invariants:
//! 1. The entries take no more than the budget, including [`ENTRY`] for each.
//! 2. A key is in the queue once if it is among the entries, and not otherwise.
//! 3. The counters match the contents, so reports need no walk over the entries.
//! 4. A reader's number is unique for the life of the cache: its entries are never taken for
//!    another reader's.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread;

use bytes::Bytes;
use hashbrown::HashMap;

use crate::block::Block;
use crate::class::{Class, stays};
use crate::directory::{Held, Piece};
use crate::filter::{key_hash, mix};
use crate::reread::Reread;

/// Memory of each entry without its content, in bytes.
const ENTRY: usize = 200;
/// Maximum number of shards, and minimum budget of each of several shards, in bytes: large enough
/// for any usual block.
const MOST_SHARDS: usize = 16;
/// Maximum turns of the queue for one new entry, before a used entry is dropped. Look-ups in the
/// shard wait meanwhile.
const MOST_TURNS: usize = 128;
const LEAST_SHARD: usize = 1 << 20;
/// Least turns of the queue under one lock while entries age. A turn takes some microseconds: entry
/// and piece are seldom in a cache of the processor.
const TURNS_OF_AGE: usize = 16;
/// Most locks of a shard while its entries age. Other threads run after each: if all processors are
/// busy, for some milliseconds. The caller may have other work, which waits meanwhile.
const STEPS_OF_AGE: usize = 64;
/// Most turns of the queue under one of these locks: look-ups in the shard wait for some
/// milliseconds. Further entries have their turns in the next pass.
const MOST_TURNS_OF_AGE: usize = 1024;

/// Memory for the blocks and filters of [`Reader`](crate::Reader)s, which may share it. The cache
/// holds a bounded number of bytes. When it is full, it drops the entries that are used least, and
/// readers read them again when needed.
///
/// ```
/// # use {brooklet_codex::*, std::sync::Arc};
/// # let (summary, file) = Builder::new(Vec::new(), BuilderOptions::default()).finish()?;
/// # let file = Bytes::from(file);
/// let cache = Arc::new(Cache::new(64 << 20));
/// let one = Reader::open_with(file.clone(), summary.len, None, cache.clone())?;
/// let other = Reader::open_with(file, summary.len, None, cache.clone())?;
/// assert!(cache.stats().bytes() <= 64 << 20);
/// # Ok::<(), Error>(())
/// ```
pub struct Cache {
    shards: Box<[Shard]>,
    budget: AtomicUsize,
    reread: Reread,
    readers: AtomicU64,
    misses: AtomicU64,
    read_bytes: AtomicU64,
}

/// The contents of a [`Cache`], and its counters since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// Budget of the cache, in bytes.
    pub budget: usize,
    /// Size of the filters in the cache now, with their directories, in bytes.
    pub filter_bytes: usize,
    /// Size of the index blocks in the cache now, in bytes.
    pub index_bytes: usize,
    /// Size of the data blocks, and of single values, in the cache now, in bytes.
    pub data_bytes: usize,
    /// Number of look-ups that found their entry in the cache.
    pub hits: u64,
    /// Number of look-ups that had to read from the source.
    pub misses: u64,
    /// Bytes read for the misses, as stored.
    pub read_bytes: u64,
}

impl CacheStats {
    /// Returns the size of all entries in the cache now, in bytes.
    pub fn bytes(&self) -> usize {
        self.filter_bytes + self.index_bytes + self.data_bytes
    }
}

/// The key of an entry: the reader, the offset in its file, and the expected checksum. With the
/// checksum, a pointer never finds the block of another pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub reader: u64,
    pub offset: u64,
    pub sum: u64,
}

/// No user can choose a key's hash: a sum depends on the block, and a value's sum on its key and
/// the reader's seed.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(mix(self.offset ^ self.sum ^ self.reader.rotate_left(40)));
    }
}

/// Passes the number of a [`Key`] through as its hash.
#[derive(Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys write one number");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// Used in place of an offset, which is never so large: marks a value, with the hash of its key as
/// the sum.
const VALUE: u64 = u64::MAX;

impl Key {
    /// Returns the key of the value of `key`.
    pub fn of_value(reader: u64, seed: u64, key: &[u8]) -> Key {
        Key { reader, offset: VALUE, sum: key_hash(seed, key) }
    }

    fn hash_of(self) -> u64 {
        let mut hasher = AsItIs::default();
        self.hash(&mut hasher);
        hasher.finish()
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Kept {
    Block(Block),
    /// A piece of a reader's filter, which the reader holds, and its size in bytes.
    Filter(Arc<Held>, Piece, usize),
    /// A checked page of notes.
    Notes(Bytes),
    /// A value and its key: different keys may have equal hashes.
    Value(Box<[u8]>, Bytes),
}

impl Kept {
    fn bytes(&self) -> usize {
        ENTRY
            + match self {
                Kept::Block(block) => block.memory(),
                Kept::Filter(_, _, bytes) => *bytes,
                Kept::Notes(page) => page.len(),
                Kept::Value(key, value) => key.len() + value.len(),
            }
    }
}

struct Entry {
    kept: Kept,
    class: Class,
    /// For a piece that a reader holds, the reader counts the laps instead.
    laps: AtomicU8,
}

impl Entry {
    /// Takes a lap from the entry; `false` if no lap is left.
    fn spend_lap(&mut self) -> bool {
        if let Kept::Filter(held, piece, _) = &self.kept {
            return held.spend_lap(*piece);
        }
        let laps = self.laps.get_mut();
        let had = *laps > 0;
        *laps = laps.saturating_sub(1);
        had
    }
}

/// The reason for a turn of the queue.
#[derive(Clone, Copy, Debug)]
enum Turn {
    /// Time passed: each entry spends a lap.
    Age,
    /// Room is short: each entry but a directory spends a lap.
    Room,
    /// Room is short, and the front entry must go.
    Force,
}

#[derive(Default)]
struct Shard {
    entries: RwLock<Entries>,
    hits: AtomicU64,
}

#[derive(Default)]
struct Entries {
    map: HashMap<Key, Entry, BuildHasherDefault<AsItIs>>,
    queue: VecDeque<Key>,
    filter_bytes: usize,
    index_bytes: usize,
    data_bytes: usize,
    /// Bytes of each reader's filters and index blocks, for readers that have any.
    overhead: BTreeMap<u64, usize>,
}

impl Cache {
    /// Creates an empty cache that holds at most `budget` bytes.
    pub fn new(budget: usize) -> Self {
        let shards = (budget / LEAST_SHARD).clamp(1, MOST_SHARDS);
        let shards = (0..shards).map(|_| Shard::default()).collect();
        let [readers, misses, read_bytes] = [const { AtomicU64::new(0) }; 3];
        let reread = Reread::new(budget);
        Cache { shards, budget: AtomicUsize::new(budget), reread, readers, misses, read_bytes }
    }

    /// Returns the contents and the counters of the cache.
    pub fn stats(&self) -> CacheStats {
        let [misses, read_bytes] =
            [&self.misses, &self.read_bytes].map(|count| count.load(Ordering::Relaxed));
        let mut stats = CacheStats {
            budget: self.budget.load(Ordering::Relaxed),
            misses,
            read_bytes,
            ..CacheStats::default()
        };
        for shard in &self.shards {
            let entries = shard.entries.read().unwrap_or_else(PoisonError::into_inner);
            stats.filter_bytes += entries.filter_bytes;
            stats.index_bytes += entries.index_bytes;
            stats.data_bytes += entries.data_bytes;
            stats.hits += shard.hits.load(Ordering::Relaxed);
        }
        stats
    }

    /// Returns a new number for a reader.
    pub(crate) fn join(&self) -> u64 {
        self.readers.fetch_add(1, Ordering::Relaxed)
    }

    /// Drops all entries of a reader.
    pub(crate) fn leave(&self, reader: u64) {
        for shard in &self.shards {
            shard.entries.write().unwrap_or_else(PoisonError::into_inner).leave(reader);
        }
    }

    /// Returns the bytes of a reader's filters and index blocks in the cache now.
    pub(crate) fn overhead_of(&self, reader: u64) -> usize {
        let of_shard = |shard: &Shard| {
            let entries = shard.entries.read().unwrap_or_else(PoisonError::into_inner);
            entries.overhead.get(&reader).copied().unwrap_or_default()
        };
        self.shards.iter().map(of_shard).sum()
    }

    fn shard(&self, key: Key) -> &Shard {
        // The map uses the bits at both ends.
        &self.shards[(key.hash_of() >> 24) as usize % self.shards.len()]
    }

    /// Looks up an entry. `take` may report that it is not the wanted entry.
    pub(crate) fn look<T>(&self, key: Key, take: impl FnOnce(&Kept) -> Option<T>) -> Option<T> {
        let shard = self.shard(key);
        let entries = shard.entries.read().unwrap_or_else(PoisonError::into_inner);
        let found = entries.map.get(&key).and_then(|entry| {
            stays(&entry.laps, entry.class);
            take(&entry.kept)
        });
        if found.is_some() {
            shard.hits.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Counts hits of pieces that the reader holds.
    pub(crate) fn found(&self, reader: u64, pieces: u64) {
        let shard = &self.shards[(reader % self.shards.len() as u64) as usize];
        shard.hits.fetch_add(pieces, Ordering::Relaxed);
    }

    /// Counts a read of an entry that is not kept.
    pub(crate) fn missed(&self, bytes: u32) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    /// Returns whether an entry of `bytes` bytes can be kept at all.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes + ENTRY <= self.room()
    }

    /// Returns the bytes that a shard may hold.
    fn room(&self) -> usize {
        self.budget.load(Ordering::Relaxed) / self.shards.len()
    }

    /// Sets the budget in bytes, and drops entries that exceed it.
    pub fn resize(&self, budget: usize) {
        if self.budget.swap(budget, Ordering::Relaxed) == budget {
            return;
        }
        let room = self.room();
        for shard in &self.shards {
            let mut entries = shard.entries.write().unwrap_or_else(PoisonError::into_inner);
            entries.make_room(room);
        }
    }

    /// Returns whether the cache holds nothing.
    pub fn is_empty(&self) -> bool {
        self.shards
            .iter()
            .all(|shard| shard.entries.read().unwrap_or_else(PoisonError::into_inner).queue.is_empty())
    }

    /// Takes one lap of lifetime from every entry, and drops entries that have none left. Call it
    /// periodically to drop unused entries even when the cache is not full: data blocks go with the
    /// second call after their last use, all entries with the ninth. If there are a million entries
    /// or more, a call may pass over a part of them, and the next one begins with the others.
    pub fn age(&self) {
        for shard in &self.shards {
            let lock = || shard.entries.write().unwrap_or_else(PoisonError::into_inner);
            // An entry that joins meanwhile joins at the end.
            let (mut turns, at_once) = turns_of_age(lock().queue.len());
            while turns > 0 {
                // A few turns under one lock: other threads look things up meanwhile. A thread that
                // takes a lock again right after its release keeps out the threads that it woke.
                let mut entries = lock();
                for _ in 0..turns.min(at_once) {
                    if !entries.queue.is_empty() {
                        entries.turn(Turn::Age);
                    }
                }
                drop(entries);
                turns = turns.saturating_sub(at_once);
                thread::yield_now();
            }
        }
    }

    /// Keeps a data block, or a page of notes, that a look-up read, if no other entry must go for
    /// it, or if look-ups read this block twice in a short time.
    pub(crate) fn keep_reread(&self, key: Key, kept: Kept) {
        let reread = self.reread.record(key.hash_of());
        let bytes = kept.bytes();
        let has_room = || {
            let entries = self.shard(key).entries.read().unwrap_or_else(PoisonError::into_inner);
            entries.bytes() + bytes <= self.room()
        };
        if reread || has_room() {
            self.keep(key, Class::Data, kept);
        }
    }

    /// Keeps an entry, unless it takes more than the room of a shard.
    pub(crate) fn keep(&self, key: Key, class: Class, kept: Kept) {
        self.keep_with(key, class, kept, || {});
    }

    /// Keeps an entry in place of the one that has its key. Drops both if the new one takes more
    /// than the room of a shard.
    pub(crate) fn replace(&self, key: Key, class: Class, kept: Kept) {
        let mut entries = self.shard(key).entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.replace(key, class, kept, self.room());
    }

    /// Keeps an entry like [`keep`](Self::keep); if it is kept, `put` stores the piece with its
    /// reader.
    pub(crate) fn keep_with(&self, key: Key, class: Class, kept: Kept, put: impl FnOnce()) {
        let mut entries = self.shard(key).entries.write().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: once a smaller budget has had its pass over the shard, it counts here.
        let room = self.room();
        if kept.bytes() <= room && entries.keep(key, class, kept, room) {
            put();
        }
    }
}

/// Returns the turns of a pass over a queue, and the turns under one lock.
fn turns_of_age(entries: usize) -> (usize, usize) {
    let turns = entries.min(STEPS_OF_AGE * MOST_TURNS_OF_AGE);
    (turns, turns.div_ceil(STEPS_OF_AGE).max(TURNS_OF_AGE))
}

impl Entries {
    fn bytes(&self) -> usize {
        self.filter_bytes + self.index_bytes + self.data_bytes
    }

    fn count(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Data | Class::Value => &mut self.data_bytes,
            Class::Leaf | Class::Index => &mut self.index_bytes,
            Class::Filter | Class::Directory => &mut self.filter_bytes,
        }
    }

    /// Returns `false` if an entry exists already.
    fn keep(&mut self, key: Key, class: Class, kept: Kept, room: usize) -> bool {
        if self.map.contains_key(&key) {
            return false; // another thread read it, too; or a value whose key has the same hash
        }
        let bytes = kept.bytes();
        self.make_room(room - bytes);
        *self.count(class) += bytes;
        if !class.is_data() {
            *self.overhead.entry(key.reader).or_default() += bytes;
        }
        self.map.insert(key, Entry { kept, class, laps: AtomicU8::new(class.laps()) });
        self.queue.push_back(key);
        true
    }

    /// Keeps an entry, in place of any earlier entry of the same key and class.
    fn replace(&mut self, key: Key, class: Class, kept: Kept, room: usize) {
        let bytes = kept.bytes();
        let Some(entry) = self.map.get_mut(&key) else {
            if bytes <= room {
                self.keep(key, class, kept, room);
            }
            return;
        };
        if bytes > room {
            self.queue.retain(|other| *other != key);
            return self.drop_entry(key);
        }
        let before = std::mem::replace(&mut entry.kept, kept).bytes();
        *self.count(class) += bytes;
        *self.count(class) -= before;
        self.make_room(room);
    }

    /// Drops entries until the rest takes `most` bytes or less.
    fn make_room(&mut self, most: usize) {
        let mut turns = 0;
        while self.bytes() > most {
            self.turn(if turns < MOST_TURNS { Turn::Room } else { Turn::Force });
            turns += 1;
        }
    }

    /// Drops the entry at the front of the queue, or lets it stay.
    fn turn(&mut self, turn: Turn) {
        let key = self.queue.pop_front().expect("what takes room is in the queue");
        let entry = self.map.get_mut(&key).expect("what is in the queue is an entry");
        let stays = match turn {
            // A directory takes a few hundred bytes, and every look-up in its file needs it.
            Turn::Room if entry.class == Class::Directory => true,
            Turn::Room | Turn::Age => entry.spend_lap(),
            Turn::Force => false,
        };
        if stays {
            self.queue.push_back(key);
        } else {
            self.drop_entry(key);
        }
    }

    fn drop_entry(&mut self, key: Key) {
        let Some(Entry { kept, class, .. }) = self.map.remove(&key) else { return };
        if let Kept::Filter(held, piece, _) = &kept {
            held.drop_piece(*piece);
        }
        let bytes = kept.bytes();
        *self.count(class) -= bytes;
        if let Some(overhead) = self.overhead.get_mut(&key.reader).filter(|_| !class.is_data()) {
            *overhead -= bytes;
            if *overhead == 0 {
                self.overhead.remove(&key.reader);
            }
        }
    }

    fn leave(&mut self, reader: u64) {
        let mut queue = std::mem::take(&mut self.queue);
        queue.retain(|key| {
            let leaves = key.reader == reader;
            if leaves {
                self.drop_entry(*key);
            }
            !leaves
        });
        self.queue = queue;
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({:?})", self.stats())
    }
}

#[cfg(test)]
mod tests;
