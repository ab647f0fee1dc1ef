//! The cache of keys: a table of slots, which drops the least recently used keys first.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use super::Value;
use super::names::LogKey;

/// Bytes that a key takes besides itself and its value.
const OVERHEAD: usize = size_of::<Slot>() + 24;

/// A slot of the cache. It stands for one key as long as that is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId {
    at: u32,
    /// How often the slot was given to another key.
    turn: u32,
}

/// A key in memory.
#[derive(Debug, Default)]
pub struct Slot {
    /// Its plain log.
    pub key: LogKey,
    /// Its value.
    pub value: Value,
    /// When it expires, in milliseconds since the Unix epoch.
    pub expire: Option<u64>,
    /// Entries of its head; 0: it has none.
    pub head_entries: usize,
    /// The last epoch that changed it, if that is not durable yet.
    pub changed_at: u64,
    /// The last epoch that changed it, if that is not acknowledged yet.
    pub acked_at: u64,
    /// Whether what is at hand has changed it.
    pub is_touched: bool,
    pub(super) turn: u32,
    /// Sweeps that pass by before it may leave.
    pub(super) chances: u8,
    /// What it counts for.
    pub(super) bytes: usize,
}

impl Slot {
    /// Lets go of what the store shows by now.
    pub fn settle(&mut self, durable: u64) {
        match &mut self.value {
            Value::List(list) => list.settle(durable),
            Value::Stream(stream) => stream.body.settle(durable),
            _ => {}
        }
    }

    /// Bytes that it counts for.
    pub fn measure(&self) -> usize {
        let value = match &self.value {
            Value::Absent => 0,
            Value::List(list) => list.memory(),
            Value::String(text) => text.len(),
            Value::Hash(fields) => fields.iter().map(|(f, v)| f.len() + v.len() + 80).sum(),
            Value::Stream(stream) => stream.body.memory() + size_of_val(&**stream) + stream.kept.size() * 100,
        };
        let apart = if self.key.spilled() { self.key.capacity() } else { 0 };
        OVERHEAD + apart + value
    }
}

/// The keys that are in memory.
pub struct Cache {
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    budget: usize,
    bytes: usize,
    hand: usize,
}

impl Cache {
    /// None yet, and room for so many bytes.
    pub fn new(budget: usize) -> Self {
        let (index, hasher) = (HashTable::new(), DefaultHashBuilder::default());
        Self { slots: Vec::new(), free: Vec::new(), index, hasher, budget, bytes: 0, hand: 0 }
    }

    /// Keys in it.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Bytes that they count for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The slot of a key.
    pub fn find(&mut self, key: &[u8]) -> Option<SlotId> {
        let hash = self.hasher.hash_one(key);
        let at = *self.index.find(hash, |&at| self.slots[at as usize].key[..] == *key)?;
        let slot = &mut self.slots[at as usize];
        slot.chances = 2;
        Some(SlotId { at, turn: slot.turn })
    }

    /// The slot, if it still stands for the same key.
    pub fn find_by_id(&mut self, id: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(id.at as usize).filter(|slot| slot.turn == id.turn)
    }

    /// A slot that is there.
    pub fn get(&self, id: SlotId) -> &Slot {
        let slot = &self.slots[id.at as usize];
        debug_assert_eq!(slot.turn, id.turn, "the slot was given to another key");
        slot
    }

    /// A slot that is there, to be changed.
    pub fn get_mut(&mut self, id: SlotId) -> &mut Slot {
        let slot = &mut self.slots[id.at as usize];
        debug_assert_eq!(slot.turn, id.turn, "the slot was given to another key");
        slot
    }

    /// Brings a key in, which is not there.
    pub fn insert(&mut self, mut slot: Slot) -> SlotId {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            (self.slots.len() - 1) as u32
        });
        let turn = self.slots[at as usize].turn;
        slot.turn = turn;
        slot.chances = 2;
        slot.bytes = slot.measure();
        self.bytes += slot.bytes;
        let hash = self.hasher.hash_one(&slot.key[..]);
        self.slots[at as usize] = slot;
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.index.insert_unique(hash, at, |&at| hasher.hash_one(&slots[at as usize].key[..]));
        SlotId { at, turn }
    }

    /// Takes a key out.
    pub fn remove(&mut self, id: SlotId) {
        let hash = self.hasher.hash_one(&self.get(id).key[..]);
        if let Ok(entry) = self.index.find_entry(hash, |&at| at == id.at) {
            entry.remove();
        }
        let slot = &mut self.slots[id.at as usize];
        self.bytes -= slot.bytes;
        *slot = Slot { turn: id.turn.wrapping_add(1), ..Slot::default() };
        self.free.push(id.at);
    }

    /// Takes note of how large a key has become.
    pub fn measure(&mut self, id: SlotId) {
        let slot = &mut self.slots[id.at as usize];
        let bytes = slot.measure();
        self.bytes = self.bytes + bytes - slot.bytes;
        slot.bytes = bytes;
    }

    /// All keys, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.index.iter().map(|&at| &self.slots[at as usize])
    }

    /// Takes keys out until the budget holds, of those that are durable.
    pub fn trim(&mut self, durable: u64) {
        let mut looks = 3 * self.slots.len();
        while self.bytes > self.budget && looks > 0 {
            looks -= 1;
            self.pass(durable);
        }
    }

    /// Takes out what nobody asked for in two rounds, of which this is one.
    pub fn age(&mut self, durable: u64) {
        for _ in 0..self.slots.len() {
            self.pass(durable);
        }
        if self.index.is_empty() {
            (self.slots, self.free, self.index) = (Vec::new(), Vec::new(), HashTable::new());
        }
    }

    fn pass(&mut self, durable: u64) {
        self.hand = (self.hand + 1) % self.slots.len();
        let slot = &mut self.slots[self.hand];
        let is_free = slot.key.is_empty();
        if is_free || slot.changed_at > durable || slot.is_touched {
            return;
        }
        if slot.chances > 0 {
            slot.chances -= 1;
            return;
        }
        let id = SlotId { at: self.hand as u32, turn: slot.turn };
        self.remove(id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(key: u32, changed_at: u64) -> Slot {
        Slot { key: format!("0/{key}").as_bytes().into(), changed_at, ..Slot::default() }
    }

    #[test]
    fn what_is_not_durable_stays_and_the_rest_leaves_by_age() {
        let mut cache = Cache::new(100 * (OVERHEAD + 4));
        for key in 0..1000 {
            cache.insert(slot(key, u64::from(key == 7)));
            cache.find(b"0/3");
            cache.trim(0);
        }
        assert!(cache.bytes() <= cache.budget && cache.len() <= 110, "{}", cache.len());
        assert!(cache.find(b"0/7").is_some(), "it is not durable");
        assert!(cache.find(b"0/3").is_some(), "it was asked for again and again");
        assert!(cache.find(b"0/4").is_none());
        let id = cache.find(b"0/999").unwrap();
        cache.remove(id);
        assert!(cache.find_by_id(id).is_none());
        let other = cache.insert(slot(5000, 0));
        assert!(other.at == id.at && cache.find_by_id(id).is_none(), "the slot is another's now");
        for _ in 0..3 {
            cache.age(0);
        }
        assert_eq!(cache.len(), 1);
        for _ in 0..3 {
            cache.age(1);
        }
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }
}
