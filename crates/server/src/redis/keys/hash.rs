//! Changes of hashes, and fields that are prepared for a hash.

use std::collections::BTreeMap;
use std::mem::take;
use std::ops::Bound;

use bytes::Bytes;

use super::cache::{FIELD, SlotId};
use super::head::Record;
use super::{Keyspace, Value, names};

/// Fields that are prepared to be set, in any number of portions.
#[derive(Default)]
pub struct NewFields {
    all: BTreeMap<Bytes, Bytes>,
    /// The records of the head that set them.
    records: Vec<Bytes>,
    bytes: usize,
    /// Last field of the hash that had its turn to be kept.
    kept_to: Option<Bytes>,
    /// Whether the hash keeps a field, which the records do not set.
    keeps_some: bool,
    /// Whether these are all fields of the hash, with those that it keeps.
    are_all: bool,
}

impl NewFields {
    /// Adds fields. Of equal fields, the last counts.
    pub fn add(&mut self, fields: Vec<(Bytes, Bytes)>) {
        // Copied, so that the rest of the packet does not stay in memory with the fields.
        let copy = Bytes::copy_from_slice;
        for (field, value) in &fields {
            self.all.insert(copy(field), copy(value));
            self.bytes += 2 * (field.len() + value.len()) + FIELD;
        }
        let put = Record::Put(fields);
        let records = if put.is_long() { put.split() } else { vec![put] };
        self.records.extend(records.iter().map(Record::encode));
    }

    /// Returns the number of different fields.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns up to `most` fields of a hash that follow the last field of these.
    pub fn next_of(&self, hash: &BTreeMap<Bytes, Bytes>, most: usize) -> Vec<(Bytes, Bytes)> {
        let after = self.all.last_key_value().map_or(Bound::Unbounded, |(field, _)| Bound::Excluded(field));
        let next = hash.range::<Bytes, _>((after, Bound::Unbounded)).take(most);
        next.map(|(field, value)| (field.clone(), value.clone())).collect()
    }

    /// Adds up to `most` further fields of a hash, which it keeps because these do not replace
    /// them: then the hash has its new fields at once. Few fields are not worth that. Returns
    /// whether nothing is left to add.
    pub fn keep_some(&mut self, hash: &BTreeMap<Bytes, Bytes>, most: usize) -> bool {
        if self.kept_to.is_none() && self.all.len() < hash.len() / 8 {
            return true;
        }
        let after = self.kept_to.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let mut rest = hash.range::<Bytes, _>((after, Bound::Unbounded));
        let mut last = None;
        for (field, value) in rest.by_ref().take(most) {
            if !self.all.contains_key(field) {
                self.all.insert(field.clone(), value.clone());
                self.bytes += FIELD;
                self.keeps_some = true;
            }
            last = Some(field.clone());
        }
        self.are_all = rest.next().is_none();
        self.kept_to = last.or(self.kept_to.take());
        self.are_all
    }

    /// Returns the bytes that this takes.
    pub fn memory(&self) -> usize {
        self.bytes
    }
}

impl Keyspace {
    /// Sets fields of a hash; creates the hash if necessary.
    pub fn put_fields(&mut self, id: SlotId, fields: Vec<(Bytes, Bytes)>) {
        let record = Record::Put(fields);
        self.touch_hash(id);
        let (Value::Hash(all), Record::Put(fields)) = (&mut self.cache.get_mut(id).value, &record) else {
            return;
        };
        let (mut added, mut removed) = (0, 0);
        let copy = Bytes::copy_from_slice;
        for (field, value) in fields {
            added += value.len();
            match all.insert(copy(field), copy(value)) {
                Some(old) => removed += old.len(),
                None => added += field.len() + FIELD,
            }
        }
        self.add_to_head(id, record);
        self.cache.adjust(id, added, removed);
    }

    /// Sets prepared fields of a hash; creates the hash if necessary.
    pub fn put_prepared(&mut self, id: SlotId, new: NewFields) {
        self.touch_hash(id);
        let Value::Hash(all) = &mut self.cache.get_mut(id).value else { return };
        let old = if new.are_all { take(all) } else { BTreeMap::new() };
        // Nothing of the hash is left, and the records set all fields: the head begins anew.
        if all.is_empty() && !new.keeps_some {
            self.write_head(id);
        }
        let slot = self.cache.get_mut(id);
        // A head begins with a snapshot. The records alone would be a head that nobody can read.
        let has_head = slot.head_entries > 0;
        let Value::Hash(all) = &mut slot.value else { return };
        if all.is_empty() {
            *all = new.all;
        } else {
            all.extend(new.all);
        }
        slot.head_entries += new.records.len();
        slot.head_bytes += new.records.iter().map(Bytes::len).sum::<usize>();
        let head = names::head(&slot.key);
        self.cache.measure(id);
        if !has_head || self.is_head_long(id) {
            self.write_head(id);
        } else {
            self.batch.append(head, new.records);
        }
        self.cache.discarded.add(Value::Hash(old));
    }

    /// Makes a missing key a hash, and records that the hash changes.
    fn touch_hash(&mut self, id: SlotId) {
        self.touch(id);
        let slot = self.cache.get_mut(id);
        if !slot.value.is_there() {
            slot.value = Value::Hash(BTreeMap::new());
        }
    }

    /// Removes existing fields of a hash, and the hash with its last field.
    pub fn remove_fields(&mut self, id: SlotId, fields: Vec<Bytes>) {
        self.touch(id);
        let Value::Hash(all) = &mut self.cache.get_mut(id).value else { return };
        let mut removed = 0;
        for field in &fields {
            removed += all.remove(field).map_or(0, |old| field.len() + old.len() + FIELD);
        }
        let is_empty = all.is_empty();
        self.cache.adjust(id, 0, removed);
        if is_empty {
            self.delete(id);
        } else {
            self.add_to_head(id, Record::Remove(fields));
        }
    }
}
