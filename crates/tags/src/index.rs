//! The sets: which records bear a tag, and which count no more. Those that the logs have, as far as they were asked for lately, and
//! those of the changes that came since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brooklet::{Entry, Store};
use roaring::RoaringTreemap;

use crate::error::{Error, Result};
use crate::format::{self, Keys, WINDOW};

/// Tags of records that the logs do not have yet.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Ordinals, which ascend, by tag.
    pub tags: BTreeMap<Box<[u8]>, Vec<u64>>,
    /// How many ordinals there are.
    pub entries: usize,
}

impl Recent {
    pub fn add(&mut self, ordinal: u64, tags: Vec<Vec<u8>>) {
        self.entries += tags.len();
        for tag in tags {
            self.tags.entry(tag.into()).or_default().push(ordinal);
        }
    }

    /// Takes back what could not be brought into the logs, which is older.
    pub fn put_before(&mut self, older: &Self) {
        self.entries += older.entries;
        for (tag, ordinals) in &older.tags {
            self.tags.entry(tag.clone()).or_default().splice(0..0, ordinals.iter().copied());
        }
    }

    fn of(&self, tag: &[u8]) -> &[u64] {
        self.tags.get(tag).map_or(&[], |ordinals| ordinals)
    }

    fn with_prefix<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let from =
            self.tags.range::<[u8], _>((std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded));
        from.map(|(tag, _)| &**tag).take_while(move |tag| tag.starts_with(prefix))
    }
}

/// What is known of all changes up to one.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The changes that are in it: those before this ordinal.
    pub upto: u64,
    pub recent: Recent,
    /// What is on its way into the logs.
    pub settling: Option<Arc<Recent>>,
    /// Ordinals that count no more.
    pub dead: Arc<RoaringTreemap>,
    /// Windows of those that the logs do not know as they are.
    pub changed: BTreeSet<u64>,
}

impl Index {
    /// The record of an ordinal counts no more.
    pub fn bury(&mut self, ordinal: u64) {
        Arc::make_mut(&mut self.dead).insert(ordinal);
        self.changed.insert(ordinal / WINDOW);
    }

    /// The ordinals of the tags that are in memory, and what else a query goes by.
    pub fn glance(&self, tags: &[&[u8]]) -> Glance {
        let recents = || [self.settling.as_deref(), Some(&self.recent)].into_iter().flatten();
        let of = |tag: &&[u8]| {
            let mut set = RoaringTreemap::new();
            recents().for_each(|recent| set.extend(recent.of(tag).iter().copied()));
            set
        };
        Glance { upto: self.upto, dead: self.dead.clone(), recent: tags.iter().map(of).collect() }
    }

    /// The tags in memory that begin with a prefix.
    pub fn tags_with_prefix(&self, prefix: &[u8]) -> BTreeSet<Vec<u8>> {
        let recents = [self.settling.as_deref(), Some(&self.recent)];
        let tags = recents.into_iter().flatten().flat_map(|recent| recent.with_prefix(prefix));
        tags.map(<[u8]>::to_vec).collect()
    }
}

/// What a query sees of the index.
pub(crate) struct Glance {
    pub upto: u64,
    pub dead: Arc<RoaringTreemap>,
    /// For each of the tags.
    pub recent: Vec<RoaringTreemap>,
}

/// The set of a tag as its log has it.
struct Cached {
    set: Arc<RoaringTreemap>,
    /// The number of the block to be read next.
    next: u64,
    bytes: usize,
    used: u64,
}

/// The sets that were asked for lately, within so many bytes.
pub(crate) struct Cache {
    budget: usize,
    sets: BTreeMap<Box<[u8]>, Cached>,
    bytes: usize,
    clock: u64,
}

impl Cache {
    pub fn new(budget: usize) -> Self {
        Self { budget, sets: BTreeMap::new(), bytes: 0, clock: 0 }
    }

    fn find(&mut self, tag: &[u8]) -> Option<(Arc<RoaringTreemap>, u64)> {
        self.clock += 1;
        let cached = self.sets.get_mut(tag)?;
        cached.used = self.clock;
        Some((cached.set.clone(), cached.next))
    }

    fn put(&mut self, tag: &[u8], set: Arc<RoaringTreemap>, next: u64) {
        let bytes = set.serialized_size() + tag.len() + 200;
        if bytes > self.budget / 2 {
            return;
        }
        self.clock += 1;
        let cached = Cached { set, next, bytes, used: self.clock };
        let old = self.sets.insert(tag.into(), cached).map_or(0, |old| old.bytes);
        self.bytes = self.bytes + bytes - old;
        if self.bytes > self.budget {
            self.shed();
        }
    }

    /// Forgets the half that was asked for least lately.
    fn shed(&mut self) {
        let mut used: Vec<u64> = self.sets.values().map(|cached| cached.used).collect();
        let middle = used.len() / 2;
        let median = *used.select_nth_unstable(middle).1;
        self.sets.retain(|_, cached| cached.used > median);
        self.bytes = self.sets.values().map(|cached| cached.bytes).sum();
    }
}

/// The set of a tag, as its log has it now.
pub(crate) fn load(
    store: &Store,
    keys: &Keys,
    cache: &std::sync::Mutex<Cache>,
    tag: &[u8],
) -> Result<Arc<RoaringTreemap>> {
    let key = keys.tag(tag);
    let lock = || cache.lock().expect("no panics");
    let known = lock().find(tag);
    let (set, next) = known.clone().unwrap_or_default();
    let blocks = match store.read(&key, next..) {
        Err(brooklet::Error::UnknownLog { .. }) => return Ok(Arc::default()),
        // Blocks were put together meanwhile, and have other numbers.
        Err(brooklet::Error::OutOfRange { .. }) => store.read(&key, ..)?,
        blocks => blocks?,
    };
    let (mut set, mut next) = (set, next);
    let is_new = known.is_none() || !blocks.range().is_empty();
    for block in blocks {
        let Entry { seq, payload } = block?;
        let whole = format::decode_block(&payload, Arc::make_mut(&mut set));
        whole.ok_or_else(|| Error::damaged(&key, "a block of ordinals"))?;
        next = seq + 1;
    }
    if is_new {
        lock().put(tag, set.clone(), next);
    }
    Ok(set)
}
