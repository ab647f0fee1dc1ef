//! Reads of many keys in portions, as all of them are at one moment: that of the last portion.
//!
//! A key that changed after its turn has another turn.

use std::collections::BTreeSet;
use std::hash::BuildHasher;

use bytes::Bytes;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::super::fail::Fail;
use super::super::keys::{Follower, Value, names};
use super::{Call, check_names};

/// Keys that one portion reads. Each of them may have to be loaded.
pub const READS: usize = 1_000;
/// Memory of a key besides its name and its value, in bytes.
const KEY: usize = 100;

/// Takes from a value what the command asks for.
type Take = Box<dyn Fn(&Value) -> Option<Bytes> + Send>;

/// Keys, and what was found of each.
pub struct Lookups {
    database: Bytes,
    /// The keys, each once.
    names: Vec<Bytes>,
    /// Their numbers, by their names.
    table: HashTable<u32>,
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
    /// Begins to read keys of the client's database.
    pub fn new(call: &mut Call<'_>, take: impl Fn(&Value) -> Option<Bytes> + Send + 'static) -> Self {
        Self {
            database: call.client.database.clone(),
            names: Vec::new(),
            table: HashTable::new(),
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
        check_names(&call.args[1..])?;
        let mut all = Self::new(call, take);
        call.args[1..].iter().for_each(|name| all.add(name.clone()));
        Ok(all)
    }

    /// Adds a key.
    pub fn add(&mut self, name: Bytes) {
        let at = self.number(&name).unwrap_or_else(|| {
            let at = self.names.len() as u32;
            let (names, hasher) = (&self.names, &self.hasher);
            let hash = hasher.hash_one(&name[..]);
            self.table.insert_unique(hash, at, |&at| hasher.hash_one(&names[at as usize][..]));
            self.bytes += KEY + name.len();
            self.names.push(name);
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

    fn number(&self, name: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(name);
        self.table.find(hash, |&at| self.names[at as usize][..] == *name).copied()
    }

    /// Reads some keys; returns whether all are read, and none has changed since.
    pub fn go_on(&mut self, call: &mut Call<'_>) -> Result<bool, Fail> {
        self.note_changes();
        // The portions grow, so that nobody holds this up who changes the keys all the time.
        self.late += usize::from(self.next == self.names.len());
        let most = READS << (self.late / 64).min(10);
        for _ in 0..most {
            let at = match self.again.pop_first() {
                Some(at) => at as usize,
                None if self.next < self.names.len() => {
                    self.next += 1;
                    self.next - 1
                }
                None => break,
            };
            self.read(call, at)?;
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
            if let Some(at) = self.number(names::name(&key)).filter(|at| (*at as usize) < self.next)
                && names::database(&key) == &self.database[..]
            {
                self.again.insert(at);
            }
        }
    }

    fn read(&mut self, call: &mut Call<'_>, at: usize) -> Result<(), Fail> {
        self.reads += 1;
        let id = call.engine.keys.open(&self.database, &self.names[at])?;
        let found = (self.take)(call.value(id));
        let len = |found: &Option<Bytes>| found.as_ref().map_or(0, Bytes::len);
        self.values = self.values + len(&found) - len(&self.found[at]);
        self.found[at] = found;
        if let Some(time) = call.engine.keys.expire(id) {
            self.expiring.insert((time, at as u32));
        }
        call.keys().make_room();
        Ok(())
    }

    /// Returns what was found for each word, in order.
    pub fn found(&self) -> impl Iterator<Item = &Option<Bytes>> {
        self.words.iter().map(|at| &self.found[*at as usize])
    }

    /// Returns what was found for a word.
    pub fn of_word(&self, word: usize) -> Option<&Option<Bytes>> {
        self.words.get(word).map(|at| &self.found[*at as usize])
    }
}
