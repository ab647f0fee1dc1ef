//! Scans of the keys of a database, and of the expired keys.

use std::collections::BTreeMap;
use std::iter::Peekable;

use brooklet::{Error, Logs};
use bytes::Bytes;

use super::head::Snapshot;
use super::names::{self, Role};
use super::{Keyspace, Value, load};

/// The keys of a database at the time of the call: in order, after the recently changed keys.
pub struct Keys {
    /// Keys with changes that are not durable yet, and whether each key exists: the store's answer
    /// does not count for them.
    changed: BTreeMap<Bytes, bool>,
    first: Vec<Bytes>,
    heads: Peekable<Box<dyn Iterator<Item = Result<Bytes, Error>> + Send>>,
    plains: Peekable<Box<dyn Iterator<Item = Result<Bytes, Error>> + Send>>,
}

/// Returns the keys whose logs have one role.
fn named(
    logs: Logs,
    pick: impl Fn(Role<'_>) -> Option<&[u8]> + Send + 'static,
) -> Peekable<Box<dyn Iterator<Item = Result<Bytes, Error>> + Send>> {
    let names = logs.filter_map(move |log| match log {
        Ok(log) => pick(names::role(&log.key)).map(|name| Ok(Bytes::copy_from_slice(name))),
        Err(error) => Some(Err(error)),
    });
    let boxed: Box<dyn Iterator<Item = Result<Bytes, Error>> + Send> = Box::new(names);
    boxed.peekable()
}

impl Iterator for Keys {
    type Item = Result<Bytes, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(key) = self.first.pop() {
            return Some(Ok(key));
        }
        loop {
            let name = match (self.heads.peek(), self.plains.peek()) {
                (None, None) => return None,
                (Some(Ok(head)), Some(Ok(plain))) if head == plain => {
                    self.plains.next();
                    self.heads.next()
                }
                (Some(Ok(head)), Some(Ok(plain))) if plain < head => self.plains.next(),
                (None, _) | (_, Some(Err(_))) => self.plains.next(),
                _ => self.heads.next(),
            };
            match name {
                Some(Ok(name)) if self.changed.contains_key(&name) => {}
                other => return other,
            }
        }
    }
}

impl Keyspace {
    /// Returns the keys of a database.
    pub fn keys(&mut self, database: &[u8]) -> Result<Keys, Error> {
        self.expire_due(usize::MAX)?;
        self.see_all();
        let mut changed = BTreeMap::new();
        for slot in self.cache.iter() {
            let is_changed = slot.changed_at > self.durable || slot.is_touched;
            if is_changed && names::database(&slot.key) == database {
                let name = Bytes::copy_from_slice(names::name(&slot.key));
                changed.insert(name, slot.value.is_there());
            }
        }
        let mut first: Vec<Bytes> =
            changed.iter().filter(|(_, is_there)| **is_there).map(|(name, _)| name.clone()).collect();
        first.reverse();
        let heads = self.store.scan(names::heads(database))?;
        let plains = self.store.scan([database, b"/"].concat())?;
        let heads = named(heads, |role| if let Role::Head(name) = role { Some(name) } else { None });
        let plains = named(plains, |role| if let Role::Plain(name) = role { Some(name) } else { None });
        Ok(Keys { changed, first, heads, plains })
    }

    /// Returns the number of keys of a database.
    pub fn count(&mut self, database: &[u8]) -> Result<i64, Error> {
        self.expire_due(usize::MAX)?;
        self.see_all();
        // The current command's changes count, but may be refused: so this number is not stored.
        let mut at_hand = 0;
        for (id, was_there) in &self.touched {
            let slot = self.slot(*id);
            if names::database(&slot.key) == database {
                at_hand += i64::from(slot.value.is_there()) - i64::from(*was_there);
            }
        }
        if let Some(count) = self.counts.get(database) {
            return Ok(count + at_hand);
        }
        let mut count = 0;
        for key in self.keys(database)? {
            key?;
            count += 1;
        }
        self.counts.insert(database.to_vec(), count - at_hand);
        Ok(count)
    }

    /// Counts like [`count`](Self::count), if the number is known, or if the database has few keys.
    pub fn count_if_quick(&mut self, database: &[u8]) -> Result<Option<i64>, Error> {
        const FEW: usize = 10_000;
        if !self.counts.contains_key(database) && self.keys(database)?.take(FEW).count() == FEW {
            return Ok(None);
        }
        self.count(database).map(Some)
    }

    /// Returns some key of a database: one of the keys in memory, or the first key.
    pub fn any_key(&mut self, database: &[u8], rng: u64) -> Result<Option<Bytes>, Error> {
        let is_of_it = |slot: &&super::Slot| slot.value.is_there() && names::database(&slot.key) == database;
        let in_memory = self.cache.iter().filter(is_of_it).count() as u64;
        if in_memory > 0 {
            let chosen = self.cache.iter().filter(is_of_it).nth((rng % in_memory) as usize);
            return Ok(chosen.map(|slot| Bytes::copy_from_slice(names::name(&slot.key))));
        }
        self.keys(database)?.next().transpose()
    }

    /// Deletes all keys of a database.
    pub fn clear(&mut self, database: &[u8]) -> Result<(), Error> {
        let names: Vec<Bytes> = self.keys(database)?.collect::<Result<_, _>>()?;
        for name in names {
            let id = self.open(database, &name)?;
            self.delete(id);
        }
        Ok(())
    }

    /// Deletes up to `most` expired keys; returns whether more may exist.
    pub fn expire_due(&mut self, most: usize) -> Result<bool, Error> {
        for _ in 0..most {
            let Some((at, key)) = self.deadlines.first().filter(|(at, _)| *at <= self.now).cloned() else {
                return Ok(false);
            };
            // Opening an expired key deletes it; a key whose expiry was extended or removed stays.
            self.open_plain(&key)?;
            self.forget_deadline(Some(at), &key);
        }
        Ok(true)
    }

    /// Returns the time of the next expiry.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns the number of keys with a known expiry.
    pub fn expiring(&self) -> usize {
        self.deadlines.len()
    }

    /// Returns the value of a key.
    pub fn kind_of(&mut self, database: &[u8], name: &[u8]) -> Result<&Value, Error> {
        let id = self.open(database, name)?;
        Ok(self.value(id))
    }
}

/// Finds the expiries of a store's keys, database by database, by reading their heads.
pub fn deadlines(
    store: &brooklet::Store,
    database: &[u8],
) -> Result<impl Iterator<Item = Result<(u64, Bytes), Error>> + use<>, Error> {
    let (store, database) = (store.clone(), database.to_vec());
    let heads = store.scan(names::heads(&database))?;
    Ok(heads.filter_map(move |log| {
        let look = || {
            let log = log?;
            let Role::Head(name) = names::role(&log.key) else { return Ok(None) };
            let mut plain = Vec::new();
            names::write_plain(&database, name, &mut plain);
            let head = load::read_head(&store, &plain)?;
            let expire = head.map_or(0, |(Snapshot { expire, .. }, _)| expire);
            Ok((expire > 0).then(|| (expire, plain.into())))
        };
        look().transpose()
    }))
}
