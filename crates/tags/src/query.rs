//! Queries for records by their tags.

use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::Bytes;
use roaring::RoaringTreemap;

use crate::error::{Error, Result};
use crate::format::{Change, WINDOW};
use crate::index::load;
use crate::limits::MAX_TAG;
use crate::tags::{Record, Shared, Tags};

/// A query for records; see [`Tags::find`].
#[derive(Clone)]
pub struct Query {
    shared: Arc<Shared>,
    all: Vec<Vec<u8>>,
    any: Vec<Vec<Vec<u8>>>,
    none: Vec<Vec<u8>>,
    prefixes: Vec<Vec<u8>>,
    every: bool,
    before: u64,
    limit: u64,
}

/// A record that a query found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// Id of the record.
    pub id: Vec<u8>,
    /// Tags of the record, in order.
    pub tags: Vec<Vec<u8>>,
    /// Payload of the record.
    pub payload: Bytes,
    /// Place of the record in the order of changes, for [`Query::before`].
    pub cursor: u64,
}

/// An iterator over the found records, the newest first. It reads each record when the caller asks
/// for it. An error ends the iterator.
pub struct Records {
    query: Query,
    rest: std::iter::Rev<roaring::treemap::IntoIter>,
    left: u64,
    failed: bool,
}

fn strings<T: AsRef<[u8]>>(tags: impl IntoIterator<Item = T>) -> Vec<Vec<u8>> {
    tags.into_iter().map(|tag| tag.as_ref().to_vec()).collect()
}

impl Tags {
    /// Returns a query for records by their tags. All of its conditions must hold.
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet_tags::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// # let log = brooklet_tags::Tags::open(&store, "log", Default::default())?;
    /// for n in 0..100 {
    ///     let (host, level) = (format!("host={}", n % 3), if n % 10 == 0 { "level=error" } else { "level=info" });
    ///     log.put(format!("{n}"), [host.as_str(), level], format!("line {n}"))?.wait()?;
    /// }
    /// let errors = log.find().all(["level=error"]).any(["host=1", "host=2"]).limit(2);
    /// let page: Vec<_> = errors.clone().run()?.collect::<Result<_, _>>()?;
    /// assert_eq!(page.iter().map(|record| &record.id[..]).collect::<Vec<_>>(), [b"80", b"70"]);
    ///
    /// let next: Vec<_> = errors.clone().before(page[1].cursor).run()?.collect::<Result<_, _>>()?;
    /// assert_eq!(next[0].id, b"50");
    /// assert_eq!(errors.count()?, 6);                               // of all pages
    /// assert_eq!(log.find().prefix("host=").none(["host=0"]).count()?, 66);
    /// # Ok(())
    /// # }
    /// ```
    pub fn find(&self) -> Query {
        let (all, any, none, prefixes) = Default::default();
        let (every, before, limit) = (false, u64::MAX, u64::MAX);
        Query { shared: self.shared.clone(), all, any, none, prefixes, every, before, limit }
    }
}

impl Query {
    /// Requires all of these tags.
    pub fn all<T: AsRef<[u8]>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.all.extend(strings(tags));
        self
    }

    /// Requires at least one of these tags. Each further call adds a condition.
    pub fn any<T: AsRef<[u8]>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.any.push(strings(tags));
        self
    }

    /// Excludes records with any of these tags.
    pub fn none<T: AsRef<[u8]>>(mut self, tags: impl IntoIterator<Item = T>) -> Self {
        self.none.extend(strings(tags));
        self
    }

    /// Requires a tag that begins with `prefix`. Takes longer with a larger number of such tags.
    pub fn prefix(mut self, prefix: impl AsRef<[u8]>) -> Self {
        self.prefixes.push(prefix.as_ref().to_vec());
        self
    }

    /// Finds every record that meets the other conditions, if any.
    pub fn every(mut self) -> Self {
        self.every = true;
        self
    }

    /// Finds only records that are older than a [cursor](Found::cursor). Puts and removals
    /// meanwhile do not affect that; a replaced record is as new as its replacement.
    pub fn before(mut self, cursor: u64) -> Self {
        self.before = cursor;
        self
    }

    /// Returns at most `most` records.
    pub fn limit(mut self, most: u64) -> Self {
        self.limit = most;
        self
    }

    /// Returns the number of records that the query finds, regardless of its limit.
    ///
    /// # Errors
    /// The same errors as [`run`](Self::run).
    pub fn count(&self) -> Result<u64> {
        Ok(self.ordinals()?.len())
    }

    /// Runs the query as of now. If a record changes during the iteration: a removed record is left
    /// out, and a replaced one is returned in its new state if it still matches.
    ///
    /// # Errors
    /// [`Error::EmptyQuery`], [`Error::InvalidTag`], [`Error::Damaged`].
    pub fn run(self) -> Result<Records> {
        let rest = self.ordinals()?.into_iter().rev();
        Ok(Records { left: self.limit, query: self, rest, failed: false })
    }

    /// Returns the ordinals of the found records.
    fn ordinals(&self) -> Result<RoaringTreemap> {
        if self.all.is_empty() && self.any.is_empty() && self.prefixes.is_empty() && !self.every {
            return Err(Error::EmptyQuery);
        }
        let named = || self.all.iter().chain(self.any.iter().flatten()).chain(&self.none);
        if let Some(tag) = named().find(|tag| tag.is_empty() || tag.len() > MAX_TAG) {
            return Err(Error::InvalidTag { len: tag.len() });
        }
        // Tags and sets in memory are of one moment: a record that is replaced meanwhile has its
        // old ordinal there. The logs of all other tags were written before, and are read
        // afterwards.
        let (mut groups, glance, recent) = {
            let index = &mut self.shared.state().index;
            let groups: Vec<_> = self.prefixes.iter().map(|prefix| index.tags_with_prefix(prefix)).collect();
            let mut tags: Vec<&[u8]> = named().map(|tag| &tag[..]).collect();
            tags.extend(groups.iter().flatten().map(|tag| &tag[..]));
            let mut glance = index.glance(&tags);
            let recent = tags.iter().zip(std::mem::take(&mut glance.recent));
            let recent = recent.filter(|(_, set)| !set.is_empty()).map(|(tag, set)| (tag.to_vec(), set));
            let recent: BTreeMap<Vec<u8>, RoaringTreemap> = recent.collect();
            (groups, glance, recent)
        };
        for (prefix, group) in self.prefixes.iter().zip(&mut groups) {
            self.shared.add_tags_of_logs(prefix, group)?;
        }
        let groups: Vec<Vec<Vec<u8>>> = groups.into_iter().map(Vec::from_iter).collect();
        let Shared { store, keys, cache, .. } = &*self.shared;
        let set_of = |tag: &Vec<u8>| -> Result<Arc<RoaringTreemap>> {
            let set = load(store, keys, cache, tag)?;
            Ok(match recent.get(tag) {
                Some(recent) => Arc::new(&*set | recent),
                None => set,
            })
        };
        let mut must: Vec<Arc<RoaringTreemap>> = self.all.iter().map(&set_of).collect::<Result<_>>()?;
        for group in self.any.iter().chain(&groups) {
            let mut union = RoaringTreemap::new();
            for tag in group {
                union |= &*set_of(tag)?;
            }
            must.push(union.into());
        }
        // Intersects the smallest sets first.
        must.sort_by_key(|set| set.len());
        let mut must = must.into_iter();
        let mut found = match (must.next(), must.next()) {
            (Some(one), Some(other)) => &*one & &*other,
            (Some(one), None) => Arc::unwrap_or_clone(one),
            (None, _) => (0..glance.upto).collect(),
        };
        must.for_each(|set| found &= &*set);
        for tag in &self.none {
            found -= &*set_of(tag)?;
        }
        found.remove_range(self.before..);
        Ok(glance.alive(found))
    }

    /// Returns whether a record's tags match the query.
    fn fits(&self, tags: &[Vec<u8>]) -> bool {
        let bears = |tag: &Vec<u8>| tags.binary_search(tag).is_ok();
        let begins = |prefix: &Vec<u8>| tags.iter().any(|tag| tag.starts_with(prefix));
        self.all.iter().all(bears)
            && self.any.iter().all(|group| group.iter().any(bears))
            && self.prefixes.iter().all(begins)
            && !self.none.iter().any(bears)
    }
}

impl Records {
    fn read(&self, ordinal: u64) -> Result<Option<Found>> {
        let Shared { store, keys, .. } = &*self.query.shared;
        let key = keys.journal(ordinal / WINDOW);
        let at = ordinal % WINDOW;
        let entry = match store.read(&key, at..=at) {
            // The whole window is dead.
            Err(brooklet::Error::UnknownLog { .. }) => None,
            entries => entries?.next().transpose()?,
        };
        let Some(entry) = entry else { return Ok(None) };
        let change = Change::decode(&entry.payload).ok_or_else(|| Error::damaged(&key, "a change"))?;
        let Some(Record { tags, payload, ordinal: newest }) = self.query.shared.record(&change.id)? else {
            return Ok(None);
        };
        let found = newest == ordinal || self.query.fits(&tags);
        Ok(found.then_some(Found { id: change.id, tags, payload, cursor: ordinal }))
    }
}

impl Iterator for Records {
    type Item = Result<Found>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.left > 0 && !self.failed {
            let ordinal = self.rest.next()?;
            let found = self.read(ordinal);
            self.failed = found.is_err();
            if let Some(found) = found.transpose() {
                self.left -= 1;
                return Some(found);
            }
        }
        None
    }
}

impl std::fmt::Debug for Records {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Records({} left)", self.rest.len().min(self.left as usize))
    }
}
