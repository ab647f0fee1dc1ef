//! Reads of many keys in portions, as all of them are at one moment: that of the last portion.
//!
//! A key that changed after its turn has another turn.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::Range;

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::super::fail::Fail;
use super::super::keys::{Follower, Value, names};
use super::portions::BYTES;
use super::{Call, check_names};

/// Keys that one portion reads. Each of them may have to be loaded.
pub const READS: usize = 1_000;
/// Memory of a key besides its name and its value, in bytes.
const KEY: usize = 100;
/// Number of tables: a single one of a million keys would take a while to grow.
const TABLES: usize = 64;

/// Returns the number of the table for a hash. A table itself uses the lowest and the highest bits.
fn table_of(hash: u64) -> usize {
    (hash >> 40) as usize % TABLES
}

/// Takes from a value a part that the command asks for, by the number of the part.
type Take = Box<dyn Fn(&Value, u32) -> Option<Bytes> + Send>;

/// A key, and the part of its value that is read.
struct Name {
    name: Bytes,
    part: u32,
}

/// Keys, and what was found of each. A key with several parts counts once for each part.
pub struct Lookups {
    database: Bytes,
    /// The keys, each part once.
    names: Vec<Name>,
    /// Their numbers, by the names of the keys.
    tables: [HashTable<u32>; TABLES],
    hasher: DefaultHashBuilder,
    /// The number of the key of each word.
    words: Vec<u32>,
    found: Vec<Option<Bytes>>,
    /// Number of keys that have had their turn.
    next: usize,
    /// Keys that have to be read again.
    again: BTreeSet<u32>,
    /// Keys that expire, with the time.
    expiring: BTreeSet<(u64, u32)>,
    /// Bytes of the keys, and of all that was found.
    bytes: usize,
    values: usize,
    /// Number of portions since all keys had their turns.
    late: usize,
    /// Number of reads of keys.
    reads: u64,
    take: Take,
    changes: Follower,
}

impl Lookups {
    /// Begins to read keys of the client's database. `take` takes a part of a value, by the part's
    /// number.
    pub fn new(call: &mut Call<'_>, take: impl Fn(&Value, u32) -> Option<Bytes> + Send + 'static) -> Self {
        Self {
            database: call.client.database.clone(),
            names: Vec::new(),
            tables: std::array::from_fn(|_| HashTable::new()),
            hasher: DefaultHashBuilder::default(),
            words: Vec::new(),
            found: Vec::new(),
            next: 0,
            again: BTreeSet::new(),
            expiring: BTreeSet::new(),
            bytes: 0,
            values: 0,
            late: 0,
            reads: 0,
            take: Box::new(take),
            changes: call.keys().follow(),
        }
    }

    /// Begins to read the keys that the words of a command name.
    pub fn of_words(
        call: &mut Call<'_>,
        take: impl Fn(&Value) -> Option<Bytes> + Send + 'static,
    ) -> Result<Self, Fail> {
        Self::of(call, 1..call.args.len(), take)
    }

    /// Begins to read the keys that some words of a command name.
    pub fn of(
        call: &mut Call<'_>,
        words: Range<usize>,
        take: impl Fn(&Value) -> Option<Bytes> + Send + 'static,
    ) -> Result<Self, Fail> {
        check_names(&call.args[words.clone()])?;
        let mut all = Self::new(call, move |value, _| take(value));
        call.args[words].iter().for_each(|name| all.add(name.clone(), 0));
        Ok(all)
    }

    /// Adds a key, of whose value a part is read.
    pub fn add(&mut self, name: Bytes, part: u32) {
        let hash = self.hasher.hash_one(&name[..]);
        let is_same = |at: &u32| {
            let other = &self.names[*at as usize];
            other.part == part && other.name == name
        };
        let table = &mut self.tables[table_of(hash)];
        let at = table.find(hash, is_same).copied().unwrap_or_else(|| {
            let at = self.names.len() as u32;
            let (names, hasher) = (&self.names, &self.hasher);
            table.insert_unique(hash, at, |&at| hasher.hash_one(&names[at as usize].name[..]));
            self.bytes += KEY + name.len();
            self.names.push(Name { name, part });
            self.found.push(None);
            at
        });
        self.words.push(at);
    }

    /// Returns the bytes that this takes.
    pub fn memory(&self) -> usize {
        self.bytes + self.values + self.words.len() * size_of::<u32>()
    }

    /// Returns the bytes of all that was found for the keys.
    pub fn value_bytes(&self) -> usize {
        self.values
    }

    /// Returns the number of reads of keys so far.
    pub fn reads(&self) -> u64 {
        self.reads
    }

    /// Reads some keys; returns whether all are read, and none has changed since.
    pub fn go_on(&mut self, call: &mut Call<'_>) -> Result<bool, Fail> {
        self.note_changes();
        // The portions grow, so that nobody holds this up who changes the keys all the time.
        self.late += usize::from(self.next == self.names.len());
        let times = 1 << (self.late / 64).min(10);
        let mut bytes = 0;
        for _ in 0..READS * times {
            if bytes > BYTES * times {
                break;
            }
            let at = match self.again.pop_first() {
                Some(at) => at as usize,
                None if self.next < self.names.len() => {
                    self.next += 1;
                    self.next - 1
                }
                None => break,
            };
            bytes += self.read(call, at)?;
        }
        while let Some((time, at)) = self.expiring.first().copied()
            && time <= call.engine.keys.now
        {
            self.expiring.pop_first();
            self.again.insert(at);
        }
        Ok(self.next == self.names.len() && self.again.is_empty())
    }

    fn note_changes(&mut self) {
        let Some(changed) = self.changes.take() else {
            // All keys may have changed.
            self.again = (0..self.next as u32).collect();
            return;
        };
        for key in changed {
            if names::database(&key) != &self.database[..] {
                continue;
            }
            let name = names::name(&key);
            let hash = self.hasher.hash_one(name);
            let all = self.tables[table_of(hash)].iter_hash(hash).copied();
            let is_read = |at: &u32| (*at as usize) < self.next && self.names[*at as usize].name == name;
            self.again.extend(all.filter(is_read));
        }
    }

    /// Reads a key; returns the bytes that were found.
    fn read(&mut self, call: &mut Call<'_>, at: usize) -> Result<usize, Fail> {
        self.reads += 1;
        let Name { name, part } = &self.names[at];
        let id = call.engine.keys.open(&self.database, name)?;
        let found = (self.take)(call.value(id), *part);
        let len = |found: &Option<Bytes>| found.as_ref().map_or(0, Bytes::len);
        let bytes = len(&found);
        self.values = self.values + bytes - len(&self.found[at]);
        self.found[at] = found;
        if let Some(time) = call.engine.keys.expire(id) {
            self.expiring.insert((time, at as u32));
        }
        call.keys().make_room();
        Ok(bytes)
    }

    /// Returns what was found for each word, in order.
    pub fn found(&self) -> impl Iterator<Item = &Option<Bytes>> {
        self.words.iter().map(|at| &self.found[*at as usize])
    }

    /// Frees the memory of up to `most` keys, which nobody asks for any more; returns whether there
    /// were any.
    pub fn free_some(&mut self, most: usize) -> bool {
        let rest = self.names.len().saturating_sub(most);
        let had_some = !self.names.is_empty();
        self.names.truncate(rest);
        self.found.truncate(rest);
        had_some
    }

    /// Returns what was found for a word.
    pub fn of_word(&self, word: usize) -> Option<&Option<Bytes>> {
        self.words.get(word).map(|at| &self.found[*at as usize])
    }
}
