//! Loads keys from the store into the cache.

use brooklet::{Error, Store};
use bytes::Bytes;

use super::body::Body;
use super::cache::{Slot, SlotId};
use super::head::{Record, Snapshot, What};
use super::list::List;
use super::names::LogKey;
use super::stream::{Id, Kept, Stream};
use super::{Keyspace, Value, names};

impl Keyspace {
    /// Returns the slot of a key; loads the key into the cache if necessary. Deletes a key that has
    /// expired.
    pub fn open(&mut self, database: &[u8], name: &[u8]) -> Result<SlotId, Error> {
        let mut plain = std::mem::take(&mut self.scratch);
        names::write_plain(database, name, &mut plain);
        let id = self.open_plain(&plain);
        self.scratch = plain;
        if let Ok(id) = id {
            let is_there = self.slot(id).value.is_there();
            self.lookups.hits += u64::from(is_there);
            self.lookups.misses += u64::from(!is_there);
            if !is_there && self.trace.is_some() {
                self.trace_miss(id);
            }
        }
        id
    }

    /// Brings a key into memory, for a command that follows.
    pub fn load(&mut self, database: &[u8], name: &[u8]) -> Result<(), Error> {
        let mut plain = Vec::new();
        names::write_plain(database, name, &mut plain);
        self.open_plain(&plain).map(drop)
    }

    /// Opens a key like [`open`](Self::open), to delete its value or to replace it by another.
    pub fn open_to_replace(&mut self, database: &[u8], name: &[u8]) -> Result<SlotId, Error> {
        self.is_replaced = true;
        let id = self.open(database, name);
        self.is_replaced = false;
        id
    }

    /// Opens a key like [`open`](Self::open), by the key's plain log.
    pub fn open_plain(&mut self, plain: &[u8]) -> Result<SlotId, Error> {
        let is_draft = self.draft.is_some();
        if self.merging.is_some() && !is_draft {
            self.merge_key(plain);
        }
        let id = match self.cache.find(plain) {
            Some(id) if self.is_replaced || !matches!(self.value(id), Value::Damaged(_)) => id,
            None if is_draft => self.copy_to_draft(plain)?,
            found => {
                found.into_iter().for_each(|id| self.cache.remove(id));
                let slot = match self.read_key(plain) {
                    Err(Error::Damaged { .. }) if self.is_replaced => all_logs(&self.store, plain)?,
                    slot => slot?,
                };
                self.note_deadline(slot.expire, plain);
                self.cache.insert(slot)
            }
        };
        self.see(id);
        if self.slot(id).expire.is_some_and(|at| at <= self.now) {
            if self.is_stopped || self.is_replica {
                // The key cannot be deleted here, but must not be visible either.
                let slot = self.cache.get_mut(id);
                (slot.value, slot.expire) = (Value::Absent, None);
                (slot.head_entries, slot.head_bytes) = (0, 0);
            } else {
                self.delete(id);
                self.cache.get_mut(id).is_lapsed = true;
                self.trace_expired(id);
                self.expired += 1;
            }
        }
        if !self.clearings.is_empty() && !is_draft {
            self.clear_opened(id);
        }
        Ok(id)
    }

    /// Reads a key from the store.
    fn read_key(&mut self, plain: &[u8]) -> Result<Slot, Error> {
        let entries = head_entries(&self.store, plain)?;
        if let Some(entries) = &entries {
            self.stop_at(plain, entries)?;
        }
        load(&self.store, LogKey::from_slice(plain), entries)
    }

    /// Removes a key's deadline, because the key no longer expires then: otherwise the entry would
    /// stay until that time.
    pub(super) fn forget_deadline(&mut self, expire: Option<u64>, plain: &LogKey) {
        if self.draft.is_some() {
            return self.lose_deadline(expire, plain);
        }
        if let Some(at) = expire
            && self.deadlines.remove(&(at, plain.clone()))
            && let Some(count) = self.expiring.get_mut(names::database(plain))
        {
            *count -= 1;
        }
    }

    /// Records a key's deadline, so that the key is deleted then without a request.
    pub fn note_deadline(&mut self, expire: Option<u64>, plain: &[u8]) {
        // The deadlines of a draft's keys are noted once these keys are those of all clients.
        if let Some(at) = expire
            && self.draft.is_none()
            && self.deadlines.insert((at, LogKey::from_slice(plain)))
        {
            match self.expiring.get_mut(names::database(plain)) {
                Some(count) => *count += 1,
                None => drop(self.expiring.insert(names::database(plain).to_vec(), 1)),
            }
        }
    }
}

/// Loads a key from the store, by the entries of its head.
fn load(store: &Store, key: LogKey, entries: Option<Vec<Bytes>>) -> Result<Slot, Error> {
    let Some(entries) = entries else {
        let right = body(store, &key)?;
        let value = if right.is_there() { Value::List(List::of(right, Body::NONE)) } else { Value::Absent };
        return Ok(Slot { key, value, ..Slot::default() });
    };
    let (head, head_entries) = (fold(&key, &entries)?, entries.len());
    let head_bytes = entries.iter().map(Bytes::len).sum();
    let value = match head.what {
        What::String(text) => Value::String(text),
        What::Hash(fields) => Value::Hash(fields),
        What::List { has_left } => {
            let left = if has_left { body(store, &names::left(&key))? } else { Body::NONE };
            Value::List(List::of(body(store, &key)?, left))
        }
        What::Stream(kept) => Value::Stream(Box::new(stream(store, &key, kept)?)),
    };
    let expire = (head.expire > 0).then_some(head.expire);
    Ok(Slot { key, value, expire, head_entries, head_bytes, ..Slot::default() })
}

/// Finds the logs of a key that cannot be read: so it can be deleted all the same.
fn all_logs(store: &Store, plain: &[u8]) -> Result<Slot, Error> {
    let key = LogKey::from_slice(plain);
    let mut logs = vec![names::head(plain), names::left(plain), names::entries(plain), key.clone()];
    let mut looked = Ok(());
    logs.retain(|log| {
        store.exists(log).unwrap_or_else(|error| {
            looked = Err(error);
            false
        })
    });
    looked?;
    Ok(Slot { key, value: Value::Damaged(logs), ..Slot::default() })
}

fn body(store: &Store, log: &[u8]) -> Result<Body, Error> {
    // Most keys that are not in memory are new: this order costs least for new keys.
    if !store.exists(log)? {
        return Ok(Body::NONE);
    }
    Ok(Body::of(Some(store.bounds(log)?)))
}

/// Reads the head of a key.
pub fn read_head(store: &Store, plain: &[u8]) -> Result<Option<Snapshot>, Error> {
    head_entries(store, plain)?.map(|entries| fold(plain, &entries)).transpose()
}

/// Reads the entries of the head of a key.
fn head_entries(store: &Store, plain: &[u8]) -> Result<Option<Vec<Bytes>>, Error> {
    let log = names::head(plain);
    if !store.exists(&log)? {
        return Ok(None);
    }
    store.read(&log, ..)?.map(|entry| Ok(entry?.payload)).collect::<Result<_, Error>>().map(Some)
}

fn fold(plain: &[u8], entries: &[Bytes]) -> Result<Snapshot, Error> {
    let records = entries.iter().map(|entry| Record::decode(entry));
    Snapshot::fold(records).map_err(|what| damaged(plain, what))
}

/// Returns the error of a head that is damaged.
pub fn damaged(plain: &[u8], what: String) -> Error {
    let place = format!("the head of key {}", String::from_utf8_lossy(names::name(plain)));
    Error::Damaged { place, what }
}

fn stream(store: &Store, plain: &[u8], kept: Kept) -> Result<Stream, Error> {
    let log = names::entries(plain);
    let mut stream = Stream { body: body(store, &log)?, kept };
    if stream.body.is_empty() {
        stream.kept.gone.clear();
        return Ok(stream);
    }
    let seqs = stream.seqs();
    let newest = stream.entry(store, &log, seqs.end - 1)?.id;
    stream.kept.meta.last = stream.kept.meta.last.max(newest);
    if !stream.kept.gone.is_empty() {
        // Ids that were trimmed since are no longer in the log.
        let oldest: Id = stream.entry(store, &log, seqs.start)?.id;
        stream.kept.gone.retain(|id| *id >= oldest);
    }
    Ok(stream)
}
