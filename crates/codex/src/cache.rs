//! What readers keep in memory: one bounded place for the blocks and filters of any number of them.
//!
//! The policy is CLOCK with laps. Everything kept stands in a queue; where room is short, what
//! comes to its front goes, unless it has laps left: then it spends one and joins the end. What is
//! asked for gets one lap more than its class starts with. A data block starts with none, so that
//! blocks that were read once go before any that were asked for again. A value that a block was
//! read for is kept by itself as well, for four laps, as it takes a small part of what the block
//! does: so neighbours that are asked for soon are found in the block, and what is asked for again
//! and lies scattered takes no block each. Filters and index blocks stay longer than what they lead
//! to, as each stands for hundreds of blocks or thousands of questions. Asking takes a shared lock
//! only. Where room is not short, what nobody asks for goes with time, if somebody says that it
//! passes ([`Cache::age`]).
//!
//! Invariants:
//! 1. What is kept takes no more than the budget, [`ENTRY`] for each included.
//! 2. A key is in the queue once if it is among the entries, and not otherwise.
//! 3. What is counted is what is there: nobody has to walk over it to tell.
//! 4. A reader's number is its own for as long as the cache lives: what it kept is never taken for
//!    another's.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bytes::Bytes;
use hashbrown::HashMap;

use crate::block::Block;
use crate::class::{Class, stays};
use crate::directory::{Held, Piece};
use crate::filter::{key_hash, mix};

/// Memory that an entry costs besides what is kept.
const ENTRY: usize = 200;
/// The most shards, and the least budget of one where there are several: large enough for any usual
/// block.
const MOST_SHARDS: usize = 16;
/// Turns of the queue that keeping one thing may take before something goes that was asked for:
/// whoever looks something up in the shard waits meanwhile.
const MOST_TURNS: usize = 128;
const LEAST_SHARD: usize = 1 << 20;

/// Memory for the blocks and filters of [`Reader`](crate::Reader)s, which may share it. What it
/// holds is bounded; past the bound, what is asked for least is dropped, and read again when it is
/// wanted.
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
    readers: AtomicU64,
    misses: AtomicU64,
    read_bytes: AtomicU64,
}

/// What a [`Cache`] holds, and what was asked of it since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStats {
    /// The most bytes it holds.
    pub budget: usize,
    /// Bytes of filters that it holds now, with their directories.
    pub filter_bytes: usize,
    /// Bytes of index blocks that it holds now.
    pub index_bytes: usize,
    /// Bytes of data blocks, and of values out of them, that it holds now.
    pub data_bytes: usize,
    /// How often something was asked for that it held.
    pub hits: u64,
    /// How often something was asked for that had to be read.
    pub misses: u64,
    /// Bytes that were read for those, as they are stored.
    pub read_bytes: u64,
}

impl CacheStats {
    /// Bytes that it holds now.
    pub fn bytes(&self) -> usize {
        self.filter_bytes + self.index_bytes + self.data_bytes
    }
}

/// Which reader, and where in its file; with the sum that whoever asks expects there, so that a
/// pointer never gets what another one led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub reader: u64,
    pub offset: u64,
    pub sum: u64,
}

/// Nobody can choose what he is hashed to: a sum is what it is, and that of a value is of a key and
/// the reader's seed.
impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(mix(self.offset ^ self.sum ^ self.reader.rotate_left(40)));
    }
}

/// Takes the number that a [`Key`] gives as its hash.
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

/// In the place of an offset, which is never so large: a value, with the hash of its key as the
/// sum.
const VALUE: u64 = u64::MAX;

impl Key {
    /// That of the value of `key`.
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
    /// Something of a reader's filter, which lies with the reader, and the bytes of that.
    Filter(Arc<Held>, Piece, usize),
    /// A value and its key: hashes may be equal where keys are not.
    Value(Box<[u8]>, Bytes),
}

impl Kept {
    fn bytes(&self) -> usize {
        ENTRY
            + match self {
                Kept::Block(block) => block.memory(),
                Kept::Filter(_, _, bytes) => *bytes,
                Kept::Value(key, value) => key.len() + value.len(),
            }
    }
}

struct Entry {
    kept: Kept,
    class: Class,
    /// Of what lies with a reader, it counts the laps.
    laps: AtomicU8,
}

impl Entry {
    /// Takes a lap from it; `false` where it has none left.
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
    /// Bytes of each reader's filters and index blocks, where there are any.
    overhead: BTreeMap<u64, usize>,
}

impl Cache {
    /// An empty cache that will hold `budget` bytes at most.
    pub fn new(budget: usize) -> Self {
        let shards = (budget / LEAST_SHARD).clamp(1, MOST_SHARDS);
        let shards = (0..shards).map(|_| Shard::default()).collect();
        let [readers, misses, read_bytes] = [const { AtomicU64::new(0) }; 3];
        Cache { shards, budget: AtomicUsize::new(budget), readers, misses, read_bytes }
    }

    /// Tells what it holds and what was asked of it.
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

    /// A number for a reader.
    pub(crate) fn join(&self) -> u64 {
        self.readers.fetch_add(1, Ordering::Relaxed)
    }

    /// Drops all that a reader kept.
    pub(crate) fn leave(&self, reader: u64) {
        for shard in &self.shards {
            shard.entries.write().unwrap_or_else(PoisonError::into_inner).leave(reader);
        }
    }

    /// Bytes of a reader's filters and index blocks that are held now.
    pub(crate) fn overhead_of(&self, reader: u64) -> usize {
        let of_shard = |shard: &Shard| {
            let entries = shard.entries.read().unwrap_or_else(PoisonError::into_inner);
            entries.overhead.get(&reader).copied().unwrap_or_default()
        };
        self.shards.iter().map(of_shard).sum()
    }

    fn shard(&self, key: Key) -> &Shard {
        // The map takes the bits at either end.
        &self.shards[(key.hash_of() >> 24) as usize % self.shards.len()]
    }

    /// Asks for what is kept. `take` may say that it is not what was looked for.
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

    /// Counts what a reader was asked for that lies with it.
    pub(crate) fn found(&self, reader: u64, pieces: u64) {
        let shard = &self.shards[(reader % self.shards.len() as u64) as usize];
        shard.hits.fetch_add(pieces, Ordering::Relaxed);
    }

    /// Counts a read of what was asked for and is not kept.
    pub(crate) fn missed(&self, bytes: u32) {
        self.misses.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(u64::from(bytes), Ordering::Relaxed);
    }

    /// Whether something of so many bytes can be kept at all.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes + ENTRY <= self.room()
    }

    /// Bytes that a shard may hold.
    fn room(&self) -> usize {
        self.budget.load(Ordering::Relaxed) / self.shards.len()
    }

    /// Lets it hold another number of bytes from now on, and drops what is too much.
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

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.shards
            .iter()
            .all(|shard| shard.entries.read().unwrap_or_else(PoisonError::into_inner).queue.is_empty())
    }

    /// Takes a lap from everything it holds, and drops what has none left. Whoever calls this from
    /// time to time has what nobody asks for any more go even where there is room: blocks of
    /// entries with the second call after they were asked for last, all of it with the ninth.
    pub fn age(&self) {
        for shard in &self.shards {
            let lock = || shard.entries.write().unwrap_or_else(PoisonError::into_inner);
            // What joins meanwhile, joins at the end.
            let mut turns = lock().queue.len();
            while turns > 0 {
                // A few under one lock: others look things up meanwhile.
                let mut entries = lock();
                for _ in 0..turns.min(MOST_TURNS) {
                    if !entries.queue.is_empty() {
                        entries.turn(true);
                    }
                }
                turns = turns.saturating_sub(MOST_TURNS);
            }
        }
    }

    /// Keeps something, unless it takes more than there is room for.
    pub(crate) fn keep(&self, key: Key, class: Class, kept: Kept) {
        self.keep_with(key, class, kept, || {});
    }

    /// Like [`keep`](Self::keep); `put` puts in its place what lies with a reader, if it is kept.
    pub(crate) fn keep_with(&self, key: Key, class: Class, kept: Kept, put: impl FnOnce()) {
        let room = self.room();
        if kept.bytes() <= room {
            let mut entries = self.shard(key).entries.write().unwrap_or_else(PoisonError::into_inner);
            if entries.keep(key, class, kept, room) {
                put();
            }
        }
    }
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

    /// `false` where there is something already.
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

    /// Drops things until the rest takes `most` bytes or less.
    fn make_room(&mut self, most: usize) {
        let mut turns = 0;
        while self.bytes() > most {
            self.turn(turns < MOST_TURNS);
            turns += 1;
        }
    }

    /// Drops what is at the front of the queue, or where it `may_stay`, has it spend a lap.
    fn turn(&mut self, may_stay: bool) {
        let key = self.queue.pop_front().expect("what takes room is in the queue");
        let entry = self.map.get_mut(&key).expect("what is in the queue is an entry");
        if may_stay && entry.spend_lap() {
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
