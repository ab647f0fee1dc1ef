//! The cache of keys: a table of slots, which drops the least recently used keys first.

use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

use super::Value;
use super::discarded::Discarded;
use super::names::LogKey;

/// Memory of a key besides its name and its value, in bytes.
const OVERHEAD: usize = size_of::<Slot>() + 24;

/// Memory of a field besides its name and its value, in bytes.
pub const FIELD: usize = 80;

/// The identity of a slot of the cache, for one key while this key is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId {
    at: u32,
    /// Number of times that the slot was given to another key.
    turn: u32,
}

/// A key in memory.
#[derive(Debug, Default)]
pub struct Slot {
    /// Plain log of the key.
    pub key: LogKey,
    /// Value of the key.
    pub value: Value,
    /// Expiry of the key, in milliseconds since the Unix epoch.
    pub expire: Option<u64>,
    /// Number of entries of the head; 0 without a head.
    pub head_entries: usize,
    /// Bytes of these entries.
    pub head_bytes: usize,
    /// Last epoch that changed the key, if that epoch is not durable yet.
    pub changed_at: u64,
    /// Last epoch that changed the key, if that epoch is not acknowledged yet.
    pub acked_at: u64,
    /// Whether the current command has changed the key.
    pub is_touched: bool,
    /// Whether it has changed more than the groups of a stream.
    pub is_modified: bool,
    /// Whether it has found the key expired, or deleted by an earlier command, and no client has
    /// changed the key then.
    pub is_lapsed: bool,
    pub(super) turn: u32,
    /// Number of sweeps that the key still survives.
    pub(super) chances: u8,
    /// Size that the budget counts, in bytes.
    pub(super) bytes: usize,
}

impl Slot {
    /// Drops the entries that the store shows now.
    pub fn settle(&mut self, durable: u64) {
        match &mut self.value {
            Value::List(list) => list.settle(durable),
            Value::Stream(stream) => stream.body.settle(durable),
            _ => {}
        }
    }

    /// Sets the epoch of the entries that were not committed.
    pub fn date(&mut self, epoch: u64) {
        match &mut self.value {
            Value::List(list) => list.date(epoch),
            Value::Stream(stream) => stream.body.date(epoch),
            _ => {}
        }
    }

    /// Returns the size that the budget counts, in bytes.
    pub fn measure(&self) -> usize {
        let texts = match &self.value {
            Value::String(text) => text.len(),
            Value::Hash(fields) => fields.iter().map(|(f, v)| f.len() + v.len()).sum(),
            Value::Stream(stream) => stream.kept.texts(),
            _ => 0,
        };
        self.measure_parts() + texts
    }

    /// Returns the size without the texts, which a copy shares, in bytes.
    pub fn measure_parts(&self) -> usize {
        let parts = match &self.value {
            Value::Absent | Value::Damaged(_) | Value::String(_) => 0,
            Value::List(list) => list.memory(),
            Value::Hash(fields) => fields.len() * FIELD,
            Value::Stream(stream) => stream.body.memory() + size_of_val(&**stream) + stream.kept.size() * 100,
        };
        let apart = if self.key.spilled() { self.key.capacity() } else { 0 };
        OVERHEAD + apart + parts
    }
}

/// The keys in memory.
pub struct Cache {
    slots: Vec<Slot>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    budget: usize,
    bytes: usize,
    hand: usize,
    /// Slots that the round of ageing has not looked at.
    aging: usize,
    /// Values that nobody needs any more.
    pub discarded: Discarded,
}

impl Cache {
    /// Creates an empty cache for `budget` bytes.
    pub fn new(budget: usize) -> Self {
        let (index, hasher) = (HashTable::new(), DefaultHashBuilder::default());
        let (slots, free, discarded) = (Vec::new(), Vec::new(), Discarded::default());
        Self { slots, free, index, hasher, budget, bytes: 0, hand: 0, aging: 0, discarded }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the size that the budget counts, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the size that keys may have, in bytes.
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// Returns the slot of a key.
    pub fn find(&mut self, key: &[u8]) -> Option<SlotId> {
        let hash = self.hasher.hash_one(key);
        let at = *self.index.find(hash, |&at| self.slots[at as usize].key[..] == *key)?;
        let slot = &mut self.slots[at as usize];
        slot.chances = 2;
        Some(SlotId { at, turn: slot.turn })
    }

    /// Returns the slot, if it still belongs to the same key.
    pub fn find_by_id(&mut self, id: SlotId) -> Option<&mut Slot> {
        self.slots.get_mut(id.at as usize).filter(|slot| slot.turn == id.turn)
    }

    /// Returns the slot, if it still belongs to the same key.
    pub fn peek(&self, id: SlotId) -> Option<&Slot> {
        self.slots.get(id.at as usize).filter(|slot| slot.turn == id.turn)
    }

    /// Returns the slot at a random number; `None` if the cache has no slots.
    pub fn nth(&self, rng: u64) -> Option<&Slot> {
        let count = (self.slots.len() as u64).max(1);
        self.slots.get((rng % count) as usize)
    }

    /// Returns an existing slot.
    pub fn get(&self, id: SlotId) -> &Slot {
        let slot = &self.slots[id.at as usize];
        debug_assert_eq!(slot.turn, id.turn, "the slot was given to another key");
        slot
    }

    /// Returns an existing slot, for changes.
    pub fn get_mut(&mut self, id: SlotId) -> &mut Slot {
        let slot = &mut self.slots[id.at as usize];
        debug_assert_eq!(slot.turn, id.turn, "the slot was given to another key");
        slot
    }

    /// Inserts a key that is not in the cache.
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

    /// Removes a key.
    pub fn remove(&mut self, id: SlotId) {
        let hash = self.hasher.hash_one(&self.get(id).key[..]);
        if let Ok(entry) = self.index.find_entry(hash, |&at| at == id.at) {
            entry.remove();
        }
        let slot = &mut self.slots[id.at as usize];
        self.bytes -= slot.bytes;
        let old = std::mem::replace(slot, Slot { turn: id.turn.wrapping_add(1), ..Slot::default() });
        self.discarded.add(old.value);
        self.free.push(id.at);
    }

    /// Takes a key out, if the slot still belongs to it.
    pub fn take(&mut self, id: SlotId) -> Option<Slot> {
        let slot = std::mem::take(self.find_by_id(id)?);
        let hash = self.hasher.hash_one(&slot.key[..]);
        if let Ok(entry) = self.index.find_entry(hash, |&at| at == id.at) {
            entry.remove();
        }
        self.bytes -= slot.bytes;
        self.slots[id.at as usize].turn = id.turn.wrapping_add(1);
        self.free.push(id.at);
        Some(slot)
    }

    /// Inserts a key in place of the same key, if that is in the cache.
    pub fn put(&mut self, slot: Slot) -> SlotId {
        let Some(id) = self.find(&slot.key) else { return self.insert(slot) };
        let old = &mut self.slots[id.at as usize];
        let (turn, chances, bytes) = (old.turn, old.chances, old.bytes);
        *old = Slot { turn, chances, bytes, ..slot };
        self.measure(id);
        id
    }

    /// Updates the counted size of a key.
    pub fn measure(&mut self, id: SlotId) {
        let slot = &mut self.slots[id.at as usize];
        let bytes = slot.measure();
        self.bytes = self.bytes + bytes - slot.bytes;
        slot.bytes = bytes;
    }

    /// Changes the counted size of a key by a difference.
    pub fn adjust(&mut self, id: SlotId, added: usize, removed: usize) {
        let slot = &mut self.slots[id.at as usize];
        let bytes = (slot.bytes + added).saturating_sub(removed);
        self.bytes = self.bytes + bytes - slot.bytes;
        slot.bytes = bytes;
    }

    /// Removes durable keys until the budget is met. One call looks at a bounded number of slots:
    /// if no key is durable, none of the looks helps.
    pub fn trim(&mut self, durable: u64) {
        const LOOKS: usize = 20_000;
        let mut looks = (3 * self.slots.len()).min(LOOKS);
        while self.bytes > self.budget && looks > 0 {
            looks -= 1;
            self.pass(durable);
        }
    }

    /// Looks at up to `most` slots of a round, or begins the next round: removes keys that were
    /// unused for two rounds. Returns whether the round is over.
    pub fn age(&mut self, durable: u64, most: usize) -> bool {
        if self.aging == 0 {
            self.aging = self.slots.len();
        }
        let count = self.aging.min(most);
        (0..count).for_each(|_| self.pass(durable));
        self.aging -= count;
        let is_over = self.aging == 0;
        if is_over && self.index.is_empty() {
            (self.slots, self.free, self.index) = (Vec::new(), Vec::new(), HashTable::new());
        }
        is_over
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
    use bytes::Bytes;

    use super::super::stream::{Delta, Id, Stream};
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
            assert!(cache.age(0, usize::MAX));
        }
        assert_eq!(cache.len(), 1);
        for _ in 0..3 {
            assert!(cache.age(1, usize::MAX));
        }
        assert_eq!((cache.len(), cache.bytes()), (0, 0));
    }

    /// In the old state names of groups and consumers took no memory, whatever their length.
    #[test]
    fn names_of_groups_and_consumers_count() {
        let name = |text: &str| Bytes::from(text.repeat(10_000));
        let mut stream = Stream::default();
        let measure = |stream: &Stream| {
            let value = Value::Stream(Box::new(stream.clone()));
            Slot { value, ..Slot::default() }.measure()
        };
        let (empty, group, consumer) = (measure(&stream), name("g"), name("c"));
        stream.kept.apply(Delta::Group { name: group.clone(), last: Id::MIN, read: None });
        stream.kept.apply(Delta::Consumer { group: group.clone(), name: consumer.clone(), seen: 1 });
        for ms in 1..=50 {
            let ids = vec![(Id { ms, seq: 0 }, 1, 1)];
            let (group, consumer) = (group.clone(), consumer.clone());
            stream.kept.apply(Delta::Deliver { group, consumer, ids });
        }
        let more = measure(&stream) - empty;
        assert!((30_000..40_000).contains(&more), "{more} bytes, as the entries share one name");
        stream.kept.apply(Delta::NoConsumer { group, name: consumer });
        let more = measure(&stream) - empty;
        assert!((10_000..11_000).contains(&more), "{more} bytes");
    }

    /// In the old state all clients waited while all keys had their turns.
    #[test]
    fn a_round_over_many_keys_goes_on_where_it_stopped() {
        let mut cache = Cache::new(usize::MAX);
        for key in 0..1000 {
            cache.insert(slot(key, 0));
        }
        for round in 1..=3 {
            for (part, left) in [(1, 700), (2, 400), (3, 100), (4, 0)] {
                assert_eq!(cache.age(0, 300), part == 4, "round {round}");
                assert_eq!(cache.len(), if round < 3 { 1000 } else { left });
            }
        }
        assert_eq!(cache.bytes(), 0);
    }
}
