//! The changes of commands to keys: each in memory and, as operations on logs, in the batch.

use std::ops::Range;

use brooklet::Error;
use bytes::Bytes;

use super::batch::Op;
use super::cache::SlotId;
use super::head::{Record, WhatShown, bytes_as_whole, encode_value};
use super::list::{End, List};
use super::names::LogKey;
use super::stream::{Delta, Entry, Id, Stream};
use super::{Keyspace, Value, names};

/// Number of records at which a head is rewritten, in addition to two records for each part of the
/// value.
const LONG_HEAD: usize = 32;
/// Number of bytes at which a head is rewritten, in addition to twice the memory of the value: one
/// record may hold many parts.
const LONG_HEAD_BYTES: usize = 64 << 10;
/// Memory of a part of a value, in bytes, that its record in a head does not need, about.
const SPARE: usize = 70;

impl Keyspace {
    /// Returns a key's value.
    pub fn value(&self, id: SlotId) -> &Value {
        &self.slot(id).value
    }

    /// Returns a key's plain log.
    pub fn key(&self, id: SlotId) -> &LogKey {
        &self.slot(id).key
    }

    /// Returns the memory of a key, in bytes; `None` if the key does not exist.
    pub fn memory_of(&self, id: SlotId) -> Option<usize> {
        let slot = self.slot(id);
        slot.value.is_there().then(|| slot.measure())
    }

    /// Returns the expiry of a key.
    pub fn expire(&self, id: SlotId) -> Option<u64> {
        self.slot(id).expire
    }

    /// Records that a key changes.
    pub(super) fn touch(&mut self, id: SlotId) {
        self.touch_state(id);
        self.cache.get_mut(id).is_modified = true;
    }

    /// Records that the state of a key changes, such as the groups of a stream: the clients that
    /// watch the key do not see this as a change.
    fn touch_state(&mut self, id: SlotId) {
        let slot = self.cache.get_mut(id);
        let was_there = slot.value.is_there();
        if self.trace.is_some() {
            self.trace_touch(id, was_there);
        }
        let slot = self.cache.get_mut(id);
        if !slot.is_touched {
            slot.is_touched = true;
            self.touched.push((id, was_there));
        }
    }

    /// Deletes a key, if it exists.
    pub fn delete(&mut self, id: SlotId) -> bool {
        if !self.value(id).is_there() {
            return false;
        }
        self.touch(id);
        let slot = self.cache.get_mut(id);
        let key = slot.key.clone();
        match &mut slot.value {
            Value::List(list) => list.delete(&mut self.batch, &key),
            Value::Stream(stream) => stream.body.delete(&mut self.batch, names::entries(&key)),
            Value::Damaged(logs) => logs.drain(..).for_each(|log| self.batch.push(log, Op::Delete)),
            _ => {}
        }
        if slot.head_entries > 0 {
            self.batch.push(names::head(&key), Op::Delete);
        }
        let expired = slot.expire;
        let old = std::mem::take(&mut slot.value);
        (slot.expire, slot.head_entries, slot.head_bytes) = (None, 0, 0);
        self.cache.discarded.add(old);
        self.forget_deadline(expired, &key);
        self.cache.measure(id);
        true
    }

    /// Rewrites the whole head.
    pub fn write_head(&mut self, id: SlotId) {
        let slot = self.cache.get_mut(id);
        let what = match &slot.value {
            Value::Absent | Value::Damaged(_) => return,
            Value::List(list) => WhatShown::List { has_left: list.left().is_there() },
            Value::String(text) => WhatShown::String(text),
            Value::Hash(fields) => WhatShown::Hash(fields),
            Value::Stream(stream) => WhatShown::Stream(&stream.kept),
        };
        let (snapshot, changes) = encode_value(slot.expire.unwrap_or(0), &what);
        slot.head_entries = 1 + changes.len();
        slot.head_bytes = snapshot.len() + changes.iter().map(Bytes::len).sum::<usize>();
        self.batch.push(names::head(&slot.key), Op::Snapshot(snapshot));
        if !changes.is_empty() {
            self.batch.append(names::head(&slot.key), changes);
        }
    }

    /// Appends a change to the head, or rewrites the head if it would become too long.
    pub(super) fn add_to_head(&mut self, id: SlotId, record: Record) {
        if self.slot(id).head_entries == 0 || self.is_head_long(id) {
            return self.write_head(id);
        }
        let slot = self.cache.get_mut(id);
        let head = names::head(&slot.key);
        if !record.is_long() {
            let record = record.encode();
            slot.head_entries += 1;
            slot.head_bytes += record.len();
            return self.batch.append(head, [record]);
        }
        let records: Vec<Bytes> = record.split().iter().map(Record::encode).collect();
        slot.head_entries += records.len();
        slot.head_bytes += records.iter().map(Bytes::len).sum::<usize>();
        self.batch.append(head, records);
    }

    /// Returns whether a head is much longer than its value needs, and is to be rewritten. A head
    /// that no commit takes as a whole grows on, because changes would be refused otherwise.
    pub(super) fn is_head_long(&self, id: SlotId) -> bool {
        let slot = self.slot(id);
        let size = match &slot.value {
            Value::Hash(fields) => fields.len(),
            Value::Stream(stream) => stream.kept.size(),
            _ => 0,
        };
        let has_many = slot.head_entries > LONG_HEAD + 2 * size;
        let is_over = |bytes: usize| slot.head_bytes > LONG_HEAD_BYTES + 2 * bytes;
        if !has_many && !is_over(slot.bytes) {
            return false;
        }
        let whole = match &slot.value {
            // A head has names of groups and consumers more often than the memory. To count them
            // takes as long as there are consumers, so only heads that may be long come here.
            Value::Stream(stream) => bytes_as_whole(&stream.kept),
            _ => slot.bytes.saturating_sub(SPARE * size),
        };
        (has_many || is_over(slot.bytes.max(whole))) && whole <= self.longest_head
    }

    /// Returns a number of bytes that no value in a commit exceeds: a commit takes a third of the
    /// ring.
    pub fn largest_value(&self) -> usize {
        self.longest_head.saturating_mul(2)
    }

    /// Sets or removes the expiry of a key.
    pub fn set_expire(&mut self, id: SlotId, expire: Option<u64>) {
        self.touch(id);
        let old = std::mem::replace(&mut self.cache.get_mut(id).expire, expire);
        let key = self.key(id).clone();
        self.forget_deadline(old, &key);
        self.note_deadline(expire, &key);
        self.add_to_head(id, Record::Expire(expire.unwrap_or(0)));
    }

    /// Makes a key a string, whatever its value was.
    pub fn set_text(&mut self, id: SlotId, text: Bytes, expire: Option<u64>) {
        // Copied, so that the rest of the packet does not stay in memory with the text.
        let text = Bytes::copy_from_slice(&text);
        if !matches!(self.value(id), Value::String(_)) {
            self.delete(id);
        }
        self.touch(id);
        let slot = self.cache.get_mut(id);
        let old = std::mem::replace(&mut slot.expire, expire);
        slot.value = Value::String(text);
        let key = slot.key.clone();
        self.forget_deadline(old, &key);
        self.note_deadline(expire, &key);
        self.write_head(id);
        self.cache.measure(id);
    }

    /// Adds elements at an end of a list; creates the list if necessary.
    pub fn push(&mut self, id: SlotId, end: End, elements: impl IntoIterator<Item = Bytes>) {
        self.touch(id);
        let slot = self.cache.get_mut(id);
        if !slot.value.is_there() {
            slot.value = Value::List(List::default());
        }
        let key = slot.key.clone();
        let Value::List(list) = &mut slot.value else { return };
        let had_left = list.left().is_there();
        list.push(&mut self.batch, &key, end, elements);
        if list.left().is_there() && !had_left {
            self.write_head(id);
        }
    }

    /// Returns the list, if the key is a list.
    fn list(&self, id: SlotId) -> Option<&List> {
        if let Value::List(list) = self.value(id) { Some(list) } else { None }
    }

    /// Returns elements of a list.
    pub fn elements(
        &self,
        id: SlotId,
        range: Range<usize>,
    ) -> Result<impl DoubleEndedIterator<Item = Result<Bytes, Error>> + use<'_>, Error> {
        let list = self.list(id).map(|list| list.iter(&self.store, self.key(id), range)).transpose()?;
        Ok(list.into_iter().flatten())
    }

    /// Returns one existing element of a list.
    pub fn element(&self, id: SlotId, at: usize) -> Result<Bytes, Error> {
        self.list(id).expect("a list").get(&self.store, self.key(id), at)
    }

    /// Removes `n` existing elements at an end of a list, and the list with its last element.
    pub fn drop_elements(&mut self, id: SlotId, end: End, n: usize) {
        self.touch(id);
        let slot = self.cache.get_mut(id);
        let key = slot.key.clone();
        if let Value::List(list) = &mut slot.value {
            if n >= list.len() {
                self.delete(id);
            } else {
                list.drop(&mut self.batch, &key, end, n);
            }
        }
    }

    /// Removes `n` existing elements at an end of a list, which stays even if these are all: others
    /// follow.
    pub fn cut_list(&mut self, id: SlotId, end: End, n: usize) {
        self.touch(id);
        let slot = self.cache.get_mut(id);
        let key = slot.key.clone();
        if let Value::List(list) = &mut slot.value {
            list.drop(&mut self.batch, &key, end, n);
        }
    }

    /// Replaces elements, and deletes the list if no element is left.
    pub fn splice(&mut self, id: SlotId, range: Range<usize>, new: &[Bytes]) -> Result<(), Error> {
        if self.list(id).is_some_and(|list| list.len() == range.len()) && new.is_empty() {
            self.delete(id);
            return Ok(());
        }
        self.touch(id);
        let slot = self.cache.get_mut(id);
        let key = slot.key.clone();
        let Value::List(list) = &mut slot.value else { return Ok(()) };
        let had_left = list.left().is_there();
        list.splice(&mut self.batch, &self.store, &key, range, new)?;
        if list.left().is_there() && !had_left {
            self.write_head(id);
        }
        Ok(())
    }

    /// Returns the stream, if the key is a stream.
    pub fn stream(&self, id: SlotId) -> Option<&Stream> {
        if let Value::Stream(stream) = self.value(id) { Some(stream) } else { None }
    }

    /// Creates a stream, if the key does not exist.
    pub fn make_stream(&mut self, id: SlotId) {
        if !self.value(id).is_there() {
            self.touch(id);
            self.cache.get_mut(id).value = Value::Stream(Box::default());
            self.write_head(id);
            self.cache.measure(id);
        }
    }

    /// Returns a stream, whose change is recorded already, for changes.
    pub(super) fn stream_mut(&mut self, id: SlotId) -> (&mut Stream, &mut super::Batch, LogKey) {
        let slot = self.cache.get_mut(id);
        let log = names::entries(&slot.key);
        match &mut slot.value {
            Value::Stream(stream) => (stream, &mut self.batch, log),
            other => panic!("a {} is taken for a stream", other.kind()),
        }
    }

    /// Appends an entry to a stream.
    pub fn add_entry(&mut self, id: SlotId, entry: Id, fields: &[Bytes]) {
        self.touch(id);
        let (stream, batch, log) = self.stream_mut(id);
        stream.kept.meta.last = entry;
        stream.body.push(batch, log, [Entry::encode(entry, fields)]);
    }

    /// Changes the state of a stream that its head holds.
    pub fn change_stream(&mut self, id: SlotId, delta: Delta) {
        match &delta {
            Delta::Gone(_) => self.touch(id),
            _ => self.touch_state(id),
        }
        if let (Delta::Consumer { group, name, .. }, Some(stream)) = (&delta, self.stream(id))
            && stream.kept.groups.get(group).is_some_and(|group| !group.consumers.contains_key(name))
        {
            self.trace_join(id);
        }
        let (stream, ..) = self.stream_mut(id);
        stream.kept.apply(delta.clone());
        self.add_to_head(id, Record::Stream(delta));
        self.cache.measure(id);
    }

    /// Records the current time for a consumer, without a commit.
    pub fn see_consumer(&mut self, id: SlotId, group: &Bytes, name: &Bytes) {
        let now = self.now;
        if let Value::Stream(stream) = &mut self.cache.get_mut(id).value
            && let Some(seen) =
                stream.kept.groups.get_mut(group).and_then(|group| group.consumers.get_mut(name))
        {
            *seen = now;
        }
    }

    /// Returns the entries of a stream with ids in a range; see [`Stream::range`].
    pub fn entries(
        &self,
        id: SlotId,
        ids: (Id, Id),
        count: usize,
        newest_first: bool,
    ) -> Result<Vec<Entry>, Error> {
        let found = self.entries_within(id, ids, count, newest_first, usize::MAX)?;
        Ok(found.expect("no limit"))
    }

    /// Returns the entries like [`entries`](Self::entries); `None` if they need more than `room`
    /// bytes of memory.
    pub fn entries_within(
        &self,
        id: SlotId,
        ids: (Id, Id),
        count: usize,
        newest_first: bool,
        room: usize,
    ) -> Result<Option<Vec<Entry>>, Error> {
        let log = names::entries(self.key(id));
        let Some(stream) = self.stream(id) else { return Ok(Some(Vec::new())) };
        stream.range(&self.store, &log, ids, count, newest_first, room)
    }

    /// Drops the entries of a stream's log before a number.
    pub fn trim_stream(&mut self, id: SlotId, before: u64) -> Result<(), Error> {
        self.touch(id);
        if self.stream(id).is_some_and(|stream| before > stream.body.first()) {
            self.trace_trim(id);
        }
        let store = self.store.clone();
        let (stream, batch, log) = self.stream_mut(id);
        let last = stream.kept.meta.last;
        stream.body.trim(batch, log.clone(), before);
        let passed = if stream.body.is_empty() {
            Some(last)
        } else if stream.kept.gone.is_empty() {
            None
        } else {
            stream.entry(&store, &log, stream.body.first())?.id.before()
        };
        if let Some(passed) = passed {
            stream.kept.pass(passed);
        }
        if stream.body.is_empty() {
            // The log's last entry had this state; from now on, the head has it.
            let meta = stream.kept.meta;
            self.change_stream(id, Delta::Meta(meta));
        }
        Ok(())
    }

    /// Returns the number of an entry in the log of a stream.
    pub fn seek_entry(&self, id: SlotId, entry: Id) -> Result<u64, Error> {
        let log = names::entries(self.key(id));
        self.stream(id).map_or(Ok(0), |stream| stream.seek(&self.store, &log, entry))
    }

    /// Returns the entry of a stream's log with a number, deleted or not.
    pub fn entry_at(&self, id: SlotId, seq: u64) -> Result<Entry, Error> {
        let log = names::entries(self.key(id));
        self.stream(id).expect("a stream").entry(&self.store, &log, seq)
    }
}
