//! The keys of a replica: another server writes them, and its commits are shown one after another.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::names::{self, LogKey};
use super::{Keyspace, Value};

impl Keyspace {
    /// Makes these the keys of a replica: nothing is written, also no key that has expired.
    pub fn follow_another(&mut self) {
        self.is_replica = true;
    }

    /// Returns whether another server writes the keys.
    pub fn is_replica(&self) -> bool {
        self.is_replica
    }

    /// Takes that the store shows new commits, which changed these logs: drops what memory has of
    /// their keys. Returns the plain logs of the keys.
    pub fn note_shown(&mut self, logs: &[Bytes]) -> BTreeSet<LogKey> {
        debug_assert!(self.touched.is_empty() && self.batch.is_empty(), "a replica changes no key");
        let keys: BTreeSet<LogKey> = logs.iter().filter_map(|log| names::plain_of(log)).collect();
        for key in &keys {
            self.followers.note(key);
            if let Some(count) = self.counts.get_mut(names::database(key)) {
                count.forget();
            }
            if let Some(id) = self.cache.find(key) {
                let expire = self.cache.get(id).expire;
                self.cache.remove(id);
                self.forget_deadline(expire, key);
            }
        }
        keys
    }

    /// Returns whether a key that the store lists is there. A replica still has keys that have
    /// expired, until their owner deletes them, and so has an owner where some are due (`has_due`).
    pub fn is_listed(
        &mut self,
        database: &[u8],
        name: &[u8],
        has_due: bool,
    ) -> Result<bool, brooklet::Error> {
        if !self.is_replica && !has_due {
            return Ok(true);
        }
        let is_there = !matches!(self.kind_of(database, name)?, Value::Absent);
        self.make_room();
        Ok(is_there)
    }
}
