//! Loads long hashes in portions.
//!
//! A command that finds a long hash outside of memory, and has changed nothing yet, stops there.
//! The hash is then read a portion at a time, and the command begins again once the hash is in
//! memory.

use std::collections::BTreeMap;

use brooklet::Error;
use bytes::Bytes;

use super::cache::{FIELD, Slot};
use super::follow::Follower;
use super::head::{Pairs, Record};
use super::names::{self, LogKey};
use super::{Keyspace, Value, load};

/// Bytes of a head, from which on it is read in portions.
const LONG: usize = 256 << 10;

/// A hash that is being read.
pub struct Loading {
    key: LogKey,
    expire: u64,
    fields: BTreeMap<Bytes, Bytes>,
    /// The entries of the head, and the number of those that are read.
    entries: Vec<Bytes>,
    next: usize,
    /// The rest of an entry: fields with their values, and the number of them.
    rest: Bytes,
    pairs: usize,
    changes: Follower,
    bytes: usize,
}

impl Loading {
    /// Reads up to `most` fields; returns whether all are read.
    ///
    /// # Errors
    /// The head is damaged.
    pub fn go_on(&mut self, most: usize) -> Result<bool, Error> {
        self.read(most).map_err(|what| load::damaged(&self.key, what))
    }

    fn read(&mut self, most: usize) -> Result<bool, String> {
        let mut done = 0;
        while done < most {
            if self.pairs > 0 {
                let (field, value, rest) = Pairs::take(&self.rest)?;
                self.rest = rest;
                self.pairs -= 1;
                if self.pairs == 0 && !self.rest.is_empty() {
                    return Err("bytes follow a record of it".into());
                }
                self.bytes += field.len() + value.len() + FIELD;
                self.fields.insert(field, value);
                done += 1;
                continue;
            }
            let Some(entry) = self.entries.get(self.next) else { return Ok(true) };
            self.next += 1;
            done += 1;
            if let Some(Pairs { expire, count, rest }) = Pairs::of(entry) {
                if let Some(expire) = expire {
                    (self.expire, self.fields) = (expire, BTreeMap::new());
                }
                (self.pairs, self.rest) = (count, rest);
                continue;
            }
            match Record::decode(entry)? {
                Record::Expire(at) => self.expire = at,
                Record::Remove(fields) => {
                    done += fields.len();
                    fields.iter().for_each(|field| drop(self.fields.remove(field)));
                }
                record => return Err(format!("{record:?} does not fit a hash")),
            }
        }
        Ok(false)
    }

    /// Returns the bytes that this takes.
    pub fn memory(&self) -> usize {
        self.bytes + self.entries.iter().map(Bytes::len).sum::<usize>()
    }
}

impl Keyspace {
    /// Allows or forbids commands to stop at a long hash that is not in memory.
    pub fn set_may_stop(&mut self, may_stop: bool) {
        self.may_stop = may_stop;
    }

    /// Takes the hash that the current command has stopped at.
    pub fn take_loading(&mut self) -> Option<Box<Loading>> {
        self.loading.take()
    }

    /// Stops the current command if a head is one of a long hash, and the command may stop here.
    pub(super) fn stop_at(&mut self, plain: &[u8], entries: &[Bytes]) -> Result<(), Error> {
        let is_long = || entries.iter().map(Bytes::len).sum::<usize>() >= LONG;
        let may_stop = self.may_stop && self.batch.is_empty() && self.touched.is_empty();
        let is_hash = || entries.first().is_some_and(|entry| Pairs::of(entry).is_some());
        if !may_stop || !is_long() || !is_hash() {
            return Ok(());
        }
        self.loading = Some(Box::new(Loading {
            key: LogKey::from_slice(plain),
            expire: 0,
            fields: BTreeMap::new(),
            entries: entries.to_vec(),
            next: 0,
            rest: Bytes::new(),
            pairs: 0,
            changes: self.follow(),
            bytes: 0,
        }));
        Err(Error::Busy { why: "a long hash is being read".into() })
    }

    /// Takes a hash that was read into memory, unless the key has changed meanwhile.
    pub fn end_load(&mut self, loading: Loading) {
        let Loading { key, expire, fields, entries, changes, .. } = loading;
        let has_changed = changes.have_changed(names::database(&key), &[names::name(&key)]);
        if has_changed || self.cache.find(&key).is_some() {
            return;
        }
        let expire = (expire > 0).then_some(expire);
        self.note_deadline(expire, &key);
        let (value, head_entries) = (Value::Hash(fields), entries.len());
        let head_bytes = entries.iter().map(Bytes::len).sum();
        self.cache.insert(Slot { key, value, expire, head_entries, head_bytes, ..Slot::default() });
    }
}
