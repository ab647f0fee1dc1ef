//! The sets of ordinals: the records of each tag, and the dead ordinals. The cache holds recently
//! used sets of the logs; the index holds the changes that are not in the logs yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brooklet::{Entry, Store};
use roaring::RoaringTreemap;

use crate::error::{Error, Result};
use crate::format::{self, Keys, WINDOW};

/// A tag, and the ordinal of a record with that tag.
pub(crate) type Pair = (Vec<u8>, u64);

/// The tags of records that are not in the logs yet.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Sorted runs, each larger than the next.
    pub runs: Vec<Arc<Vec<Pair>>>,
    /// The newest pairs, unsorted.
    new: Vec<Pair>,
    /// Number of pairs, of records without a tag, and of removals.
    pub entries: usize,
}

/// Number of new pairs that are sorted in one batch if no query needs them earlier: a batch costs
/// less than single pairs.
const RUN: usize = 1 << 15;

impl Recent {
    pub fn add(&mut self, ordinal: u64, tags: Vec<Vec<u8>>) {
        self.entries += tags.len().max(1);
        self.new.extend(tags.into_iter().map(|tag| (tag, ordinal)));
        if self.new.len() >= RUN {
            self.sort();
        }
    }

    /// Sorts the new pairs into a run. Merges small runs into larger ones, so that few runs exist.
    pub fn sort(&mut self) {
        if self.new.is_empty() {
            return;
        }
        let mut run = std::mem::take(&mut self.new);
        while let Some(last) = self.runs.pop_if(|last| last.len() < RUN && last.len() < 2 * run.len()) {
            run.extend(Arc::unwrap_or_clone(last));
        }
        run.sort_unstable();
        self.runs.push(run.into());
    }
}

/// Returns the pairs of a run from a tag on.
fn from<'a>(run: &'a [Pair], tag: &[u8]) -> &'a [Pair] {
    &run[run.partition_point(|(other, _)| &other[..] < tag)..]
}

/// The changes up to an ordinal, in memory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The ordinal before which the index has all changes.
    pub upto: u64,
    pub recent: Recent,
    /// The pairs that are being written to the logs.
    pub settling: Vec<Arc<Vec<Pair>>>,
    /// Number of entries of the journal that these pairs are of.
    pub settling_entries: usize,
    /// After a failed write of pairs, the number of entries from which on another one is tried.
    pub patience: usize,
    /// The dead ordinals: of records that were replaced or removed.
    pub dead: Arc<RoaringTreemap>,
    /// The windows whose dead ordinals in the logs are out of date.
    pub changed: BTreeSet<u64>,
}

impl Index {
    /// Marks an ordinal as dead.
    pub fn bury(&mut self, ordinal: u64) {
        Arc::make_mut(&mut self.dead).insert(ordinal);
        self.changed.insert(ordinal / WINDOW);
    }

    /// Returns the ordinals of some tags in memory, with the other data that a query needs.
    pub fn glance(&mut self, tags: &[&[u8]]) -> Glance {
        self.recent.sort();
        let of = |tag: &&[u8]| {
            let pairs =
                self.runs().flat_map(|run| from(run, tag).iter().take_while(|(other, _)| other == tag));
            pairs.map(|(_, ordinal)| *ordinal).collect()
        };
        Glance { upto: self.upto, dead: self.dead.clone(), recent: tags.iter().map(of).collect() }
    }

    fn runs(&self) -> impl Iterator<Item = &Arc<Vec<Pair>>> {
        self.settling.iter().chain(&self.recent.runs)
    }

    /// Returns the tags in memory that begin with a prefix.
    pub fn tags_with_prefix(&mut self, prefix: &[u8]) -> BTreeSet<Vec<u8>> {
        self.recent.sort();
        let of_run =
            |run| from(run, prefix).iter().map(|(tag, _)| tag).take_while(|tag| tag.starts_with(prefix));
        self.runs().flat_map(|run| of_run(run)).cloned().collect()
    }

    /// Takes the pairs that must be written to the logs. Queries still see them.
    pub fn settle(&mut self) -> Vec<Arc<Vec<Pair>>> {
        self.recent.sort();
        let recent = std::mem::take(&mut self.recent);
        (self.settling, self.settling_entries) = (recent.runs, recent.entries);
        self.settling.clone()
    }

    /// Takes the pairs back after a failed write.
    pub fn take_back(&mut self) {
        let mut runs = std::mem::take(&mut self.settling);
        self.recent.entries += std::mem::take(&mut self.settling_entries);
        runs.append(&mut self.recent.runs);
        self.recent.runs = runs;
    }
}

/// The data of the index for one query.
pub(crate) struct Glance {
    pub upto: u64,
    pub dead: Arc<RoaringTreemap>,
    /// The ordinals of each of the tags.
    pub recent: Vec<RoaringTreemap>,
}

impl Glance {
    /// Returns the ordinals of `found` that were alive at the glance. The logs may have later ones.
    pub fn alive(&self, mut found: RoaringTreemap) -> RoaringTreemap {
        found -= &*self.dead;
        found.remove_range(self.upto..);
        found
    }
}

/// The set of a tag, as read from its log.
struct Cached {
    set: Arc<RoaringTreemap>,
    /// The number of the next block to read.
    next: u64,
    bytes: usize,
    used: u64,
}

/// The recently used sets, within a number of bytes.
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

    /// Drops the less recently used half.
    fn shed(&mut self) {
        let mut used: Vec<u64> = self.sets.values().map(|cached| cached.used).collect();
        let middle = used.len() / 2;
        let median = *used.select_nth_unstable(middle).1;
        self.sets.retain(|_, cached| cached.used > median);
        self.bytes = self.sets.values().map(|cached| cached.bytes).sum();
    }
}

/// Returns the set of a tag, as its log has it now.
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
        // The blocks were merged meanwhile, and have new numbers.
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
