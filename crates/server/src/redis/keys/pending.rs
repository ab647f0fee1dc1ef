//! The pending entries of a group: by their ids, and by their consumers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::named::Named;
use super::stream::{Id, Pending};

/// The entries of a group that were delivered and not acknowledged.
#[derive(Clone, Debug, Default)]
pub struct PendingEntries {
    all: BTreeMap<Id, Pending>,
    /// The ids of each consumer that has some. A head does not have them.
    by_consumer: Named<BTreeSet<Id>>,
}

impl PendingEntries {
    /// Makes an entry pending, for this consumer alone.
    pub fn insert(&mut self, id: Id, mut pending: Pending) {
        // All entries of a consumer share its name.
        if let Some((name, _)) = self.by_consumer.get_key_value(&pending.consumer) {
            pending.consumer = name.clone();
        }
        let consumer = pending.consumer.clone();
        if let Some(old) = self.all.insert(id, pending)
            && old.consumer != consumer
        {
            self.forget(id, &old.consumer);
        }
        if let Some(ids) = self.by_consumer.get_mut(&consumer) {
            ids.insert(id);
        } else {
            self.by_consumer.insert(consumer, BTreeSet::from([id]));
        }
    }

    /// Makes an entry pending no more.
    pub fn remove(&mut self, id: &Id) {
        if let Some(old) = self.all.remove(id) {
            self.forget(*id, &old.consumer);
        }
    }

    fn forget(&mut self, id: Id, consumer: &Bytes) {
        if let Some(ids) = self.by_consumer.get_mut(consumer) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_consumer.remove(consumer);
            }
        }
    }

    /// Makes the entries of a consumer pending no more.
    pub fn remove_all_of(&mut self, consumer: &Bytes) {
        for id in self.by_consumer.remove(consumer).unwrap_or_default() {
            self.all.remove(&id);
        }
    }

    /// Returns the number of entries of a consumer.
    pub fn len_of(&self, consumer: &Bytes) -> usize {
        self.by_consumer.get(consumer).map_or(0, BTreeSet::len)
    }

    /// Returns the entries of a consumer from an id on, in the order of the ids.
    pub fn of(&self, consumer: &Bytes, from: Id) -> impl Iterator<Item = (Id, &Pending)> {
        let ids = self.by_consumer.get(consumer).into_iter().flat_map(move |ids| ids.range(from..));
        ids.filter_map(|id| Some((*id, self.all.get(id)?)))
    }

    /// Returns the bytes that the names of the consumers take here.
    pub fn names(&self) -> usize {
        self.by_consumer.bytes()
    }

    /// Returns the consumers that have pending entries, each with the number of its entries.
    pub fn counts(&self) -> impl Iterator<Item = (&Bytes, usize)> {
        self.by_consumer.iter().map(|(consumer, ids)| (consumer, ids.len()))
    }
}

impl Deref for PendingEntries {
    type Target = BTreeMap<Id, Pending>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

impl PartialEq for PendingEntries {
    fn eq(&self, other: &Self) -> bool {
        self.all == other.all
    }
}

impl Serialize for PendingEntries {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.all.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PendingEntries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut entries = Self::default();
        let all = BTreeMap::<Id, Pending>::deserialize(deserializer)?;
        all.into_iter().for_each(|(id, pending)| entries.insert(id, pending));
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_entries_of_a_consumer_are_known_whatever_happens_to_them() {
        let id = |ms| Id { ms, seq: 0 };
        let name = |text: &'static str| Bytes::from_static(text.as_bytes());
        let of = |consumer| Pending { consumer: name(consumer), at: 1, times: 1 };
        let mut entries = PendingEntries::default();
        (0..10).for_each(|ms| entries.insert(id(ms), of(if ms < 6 { "a" } else { "b" })));
        // Another takes some over, and some are acknowledged, or delivered again.
        (0..2).for_each(|ms| entries.insert(id(ms), of("c")));
        entries.insert(id(2), of("a"));
        [3, 3, 9, 77].iter().for_each(|ms| entries.remove(&id(*ms)));
        let counts = |entries: &PendingEntries| -> Vec<(Bytes, usize)> {
            entries.counts().map(|(name, count)| (name.clone(), count)).collect()
        };
        assert_eq!(counts(&entries), [(name("a"), 3), (name("b"), 3), (name("c"), 2)]);
        let bytes = postcard::to_allocvec(&entries).unwrap();
        let mut read: PendingEntries = postcard::from_bytes(&bytes).unwrap();
        assert_eq!((counts(&read), &read), (counts(&entries), &entries));
        let of_c: Vec<Id> = read.of(&name("c"), id(1)).map(|(id, _)| id).collect();
        assert_eq!(of_c, [id(1)]);
        read.remove_all_of(&name("a"));
        assert_eq!((read.len_of(&name("a")), read.len()), (0, 5));
        assert!(read.values().all(|pending| pending.consumer != name("a")));
        read.remove(&id(0));
        read.remove(&id(1));
        assert_eq!(counts(&read), [(name("b"), 3)]);
    }
}
