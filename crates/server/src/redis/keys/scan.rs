//! Scans of the keys of a database, and of the expired keys.

use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;

use brooklet::{Error, Logs, Store};
use bytes::Bytes;

use super::super::notices::Notice;
use super::head::Snapshot;
use super::names::{self, LogKey, Role};
use super::{Keyspace, Value, load};

/// The keys of a database at the time of the call, in the order of their names. An error of damage
/// comes behind all keys that can be listed.
pub struct Keys {
    /// Keys with changes that are not durable yet, and whether each key exists: the store's answer
    /// does not count for them.
    changed: BTreeMap<Bytes, bool>,
    /// Those of them that exist.
    fresh: Peekable<std::vec::IntoIter<Bytes>>,
    heads: Names,
    plains: Names,
}

/// The names of the keys whose logs have one role.
struct Names {
    /// Returns the name in a log with this role.
    pick: fn(Role<'_>) -> Option<&[u8]>,
    /// The next name, if it is known.
    next: Option<Bytes>,
    /// The listings of the rest, one behind the other.
    listings: VecDeque<Logs>,
    /// The first damage in listings that are over.
    damage: Option<Error>,
}

impl Names {
    fn peek(&mut self) -> Result<Option<&Bytes>, Error> {
        while self.next.is_none() {
            let Some(listing) = self.listings.front_mut() else { break };
            match listing.next() {
                Some(Ok(log)) => {
                    self.next = (self.pick)(names::role(&log.key)).map(Bytes::copy_from_slice);
                }
                // The other listing goes on.
                Some(Err(error @ Error::Damaged { .. })) => {
                    self.damage = self.damage.take().or(Some(error));
                }
                Some(Err(error)) => return Err(error),
                None => drop(self.listings.pop_front()),
            }
        }
        Ok(self.next.as_ref())
    }

    /// Moves behind a name, which is the next one or comes before it.
    fn pass(&mut self, name: &Bytes) {
        if self.next.as_ref() == Some(name) {
            self.next = None;
        }
    }

    /// Returns the damage that was met so far, once.
    fn take_damage(&mut self) -> Option<Error> {
        let in_listing = self.listings.front_mut().and_then(Logs::take_damage);
        self.damage.take().or(in_listing)
    }
}

/// Returns the name in the head of a key.
fn of_head(role: Role<'_>) -> Option<&[u8]> {
    if let Role::Head(name) = role { Some(name) } else { None }
}

/// Returns the name in the plain log of a key.
fn of_plain(role: Role<'_>) -> Option<&[u8]> {
    if let Role::Plain(name) = role { Some(name) } else { None }
}

impl Keys {
    /// Returns the next key, or the damage behind the last one. Returns a key that both kinds of
    /// logs show once.
    fn step(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let (head, plain) = (self.heads.peek()?, self.plains.peek()?);
            let stored = head.into_iter().chain(plain).min().cloned();
            let is_before = |fresh: &Bytes| stored.as_ref().is_none_or(|stored| fresh <= stored);
            if let Some(fresh) = self.fresh.next_if(is_before) {
                return Ok(Some(fresh));
            }
            let Some(name) = stored else { return self.take_damage().map_or(Ok(None), Err) };
            self.heads.pass(&name);
            self.plains.pass(&name);
            if !self.changed.contains_key(&name) {
                return Ok(Some(name));
            }
        }
    }

    /// Returns the damage that was met so far, once: keys may be missing before the last returned
    /// key, or between it and the next one. A caller that stops early would not get it.
    pub fn take_damage(&mut self) -> Option<Error> {
        let (heads, plains) = (self.heads.take_damage(), self.plains.take_damage());
        heads.or(plains)
    }
}

impl Iterator for Keys {
    type Item = Result<Bytes, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

impl Keyspace {
    /// Deletes some keys that clients do not see any more: those that have expired, and those of a
    /// database that is being deleted. Returns whether there were any. Without a commit between two
    /// calls (`is_whole`), these are keys of one database alone.
    pub fn prepare_scan(&mut self, database: &[u8], is_whole: bool) -> Result<bool, Error> {
        const PORTION: usize = 500;
        let expired = self.expire_due(is_whole.then_some(database), PORTION)?;
        let is_clearing = self.is_clearing(database);
        if is_clearing {
            self.clear_some(0, PORTION)?;
        }
        Ok(expired > 0 || is_clearing)
    }

    /// Returns the keys of a database whose names are greater than `after`. Keys that have expired
    /// may be among them.
    pub fn keys_after(&mut self, database: &[u8], after: Option<&[u8]>) -> Result<Keys, Error> {
        self.see_all();
        self.merge_some(usize::MAX);
        let mut changed = BTreeMap::new();
        let unsettled = self.unsettled.iter().map(|(_, id)| id);
        for id in unsettled.chain(self.touched.iter().map(|(id, _)| id)) {
            let Some(slot) = self.cache.peek(*id) else { continue };
            let name = names::name(&slot.key);
            if names::database(&slot.key) == database && after.is_none_or(|after| name > after) {
                changed.insert(Bytes::copy_from_slice(name), slot.value.is_there());
            }
        }
        let fresh: Vec<Bytes> =
            changed.iter().filter(|(_, is_there)| **is_there).map(|(name, _)| name.clone()).collect();
        // To resume behind a key, the scans begin at the key plus a zero byte.
        let behind = |prefix: &[u8]| match after {
            Some(after) => [prefix, after, b"\0"].concat(),
            None => prefix.to_vec(),
        };
        let heads = names::heads(database);
        let heads = VecDeque::from([self.store.scan_from(&heads, behind(&heads))?]);
        let heads = Names { pick: of_head, next: None, listings: heads, damage: None };
        // The empty name is first, then names that begin with a zero byte, then all others.
        let all = [database, b"/"].concat();
        let empty = (after.is_none() && self.store.exists(&all)?).then(Bytes::new);
        let zeros = [&all[..], b"\0="].concat();
        let is_past_zeros = after.is_some_and(|after| after.first().is_some_and(|first| *first > 0));
        let zero = if is_past_zeros { None } else { Some(self.store.scan_from(&zeros, behind(&zeros))?) };
        let other = if is_past_zeros { behind(&all) } else { [&all[..], b"\x01"].concat() };
        let plains = zero.into_iter().chain([self.store.scan_from(&all, other)?]).collect();
        let plains = Names { pick: of_plain, next: empty, listings: plains, damage: None };
        Ok(Keys { changed, fresh: fresh.into_iter().peekable(), heads, plains })
    }

    /// Returns some key of a database: one of the keys in memory, or the first key.
    pub fn any_key(&mut self, database: &[u8], rng: u64) -> Result<Option<Bytes>, Error> {
        // The number of tries is bounded, because most slots may be of other databases.
        const TRIES: u64 = 64;
        const LOOKS: usize = 500;
        self.merge_some(usize::MAX);
        self.expire_due(Some(database), LOOKS)?;
        if self.is_clearing(database) {
            self.clear_some(0, LOOKS)?;
        }
        let is_clearing = self.is_clearing(database);
        for n in 0..TRIES {
            let Some(slot) = self.cache.nth(rng.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15))) else {
                break;
            };
            let is_there = slot.value.is_there() && slot.expire.is_none_or(|at| at > self.now);
            if is_there && names::database(&slot.key) == database && !is_clearing {
                return Ok(Some(Bytes::copy_from_slice(names::name(&slot.key))));
            }
        }
        // Few slots have a key, or none: one of the first keys by name.
        let mut first = Vec::new();
        for name in self.keys_after(database, None)?.take(LOOKS) {
            let name = name?;
            if self.kind_of(database, &name)?.is_there() {
                first.push(name);
            }
            self.make_room();
            if first.len() as u64 == TRIES {
                break;
            }
        }
        let chosen = rng.checked_rem(first.len() as u64);
        Ok(chosen.map(|at| first[at as usize].clone()))
    }

    /// Deletes up to `most` expired keys of one database; returns the number of keys that it has
    /// looked at. For a database, it passes over some keys of others. Otherwise it ends at the
    /// first key of another database than the first key's. A commit cannot be on databases in
    /// memory and on others at once, so the database is that of the earlier changes of the commit,
    /// if there are any.
    pub fn expire_due(&mut self, of: Option<&[u8]>, most: usize) -> Result<usize, Error> {
        const LOOKS: usize = 10_000;
        let changed = self.touched.first().map(|(id, _)| names::database(&self.slot(*id).key));
        let first = self.deadlines.first().map(|(_, key)| names::database(key));
        let Some(database) = changed.or(of).or(first) else { return Ok(0) };
        let is_of = |(_, key): &&(u64, LogKey)| names::database(key) == database;
        let due = self.due().take(LOOKS);
        let keys: Vec<(u64, LogKey)> = if of.is_some() {
            due.filter(is_of).take(most).cloned().collect()
        } else {
            due.take_while(is_of).take(most).cloned().collect()
        };
        for (at, key) in &keys {
            // Opening an expired key deletes it; a key whose expiry was extended or removed stays.
            match self.open_plain(key) {
                Ok(_) => {}
                // The other keys must not wait for one that nobody can read.
                Err(error @ Error::Damaged { .. }) => {
                    let what = "the server cannot remove an expired key; the key stays";
                    self.notices.push(Notice::Trouble { what, error: error.to_string() });
                }
                Err(error) => return Err(error),
            }
            self.forget_deadline(Some(*at), key);
        }
        Ok(keys.len())
    }

    /// Returns the deadlines that have passed, of keys that are not deleted yet.
    fn due(&self) -> impl Iterator<Item = &(u64, LogKey)> {
        let now = self.now;
        self.deadlines.iter().take_while(move |(at, _)| *at <= now)
    }

    /// Returns the number of keys of a database that have expired and are not deleted yet.
    pub fn due_of(&self, database: &[u8]) -> usize {
        self.due().filter(|(_, key)| names::database(key) == database).count()
    }

    /// Returns whether a key has expired and is not deleted yet.
    pub fn has_due(&self) -> bool {
        self.deadlines.first().is_some_and(|(at, _)| *at <= self.now)
    }

    /// Returns the time of the next expiry.
    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns the number of keys with a known expiry.
    pub fn expiring(&self) -> usize {
        self.deadlines.len()
    }

    /// Returns the number of keys of a database with a known expiry.
    pub fn expiring_of(&self, database: &[u8]) -> u64 {
        self.expiring.get(database).copied().unwrap_or(0)
    }

    /// Returns the value of a key.
    pub fn kind_of(&mut self, database: &[u8], name: &[u8]) -> Result<&Value, Error> {
        let id = self.open(database, name)?;
        Ok(self.value(id))
    }
}

/// Finds the expiries of a database's keys by reading their heads, and gives each to `note`. Gives
/// the error of a head that cannot be read to `pass`: the other keys expire all the same.
pub fn deadlines(
    store: &Store,
    database: &[u8],
    is_over: impl Fn() -> bool,
    mut note: impl FnMut(u64, &[u8]),
    mut pass: impl FnMut(Error),
) -> Result<(), Error> {
    let mut plain = Vec::new();
    for log in store.scan(names::heads(database))? {
        if is_over() {
            return Ok(());
        }
        let log = log?;
        let Role::Head(name) = names::role(&log.key) else { continue };
        names::write_plain(database, name, &mut plain);
        match load::read_head(store, &plain) {
            Ok(Some(Snapshot { expire, .. })) if expire > 0 => note(expire, &plain),
            Ok(_) => {}
            Err(error @ Error::Damaged { .. }) => pass(error),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
