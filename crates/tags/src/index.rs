//! The sets: which records bear a tag, and which count no more. Those that the logs have, as far as
//! they were asked for lately, and those of the changes that came since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brooklet::{Entry, Store};
use roaring::RoaringTreemap;

use crate::error::{Error, Result};
use crate::format::{self, Keys, WINDOW};

/// A tag, and the ordinal of a record that bears it.
pub(crate) type Pair = (Vec<u8>, u64);

/// Tags of records that the logs do not have yet.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// In order, each, and each larger than the next.
    pub runs: Vec<Arc<Vec<Pair>>>,
    /// Those that came last, in no order.
    new: Vec<Pair>,
    /// How many there are.
    pub entries: usize,
}

/// So many are put in order at once where nobody asks for them: that is less work than each by
/// itself.
const RUN: usize = 1 << 15;

impl Recent {
    pub fn add(&mut self, ordinal: u64, tags: Vec<Vec<u8>>) {
        self.entries += tags.len();
        self.new.extend(tags.into_iter().map(|tag| (tag, ordinal)));
        if self.new.len() >= RUN {
            self.sort();
        }
    }

    /// Puts what is new in order. Small runs join larger ones, so that there are few.
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

/// Those of a run whose tags are at or after one.
fn from<'a>(run: &'a [Pair], tag: &[u8]) -> &'a [Pair] {
    &run[run.partition_point(|(other, _)| &other[..] < tag)..]
}

/// What is known of all changes up to one.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The changes that are in it: those before this ordinal.
    pub upto: u64,
    pub recent: Recent,
    /// What is on its way into the logs.
    pub settling: Vec<Arc<Vec<Pair>>>,
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

    /// The tags in memory that begin with a prefix.
    pub fn tags_with_prefix(&mut self, prefix: &[u8]) -> BTreeSet<Vec<u8>> {
        self.recent.sort();
        let of_run =
            |run| from(run, prefix).iter().map(|(tag, _)| tag).take_while(|tag| tag.starts_with(prefix));
        self.runs().flat_map(|run| of_run(run)).cloned().collect()
    }

    /// Takes out what is to be brought into the logs; it is seen all the same.
    pub fn settle(&mut self) -> Vec<Arc<Vec<Pair>>> {
        self.recent.sort();
        self.settling = std::mem::take(&mut self.recent).runs;
        self.settling.clone()
    }

    /// Takes back what could not be.
    pub fn take_back(&mut self) {
        let mut runs = std::mem::take(&mut self.settling);
        self.recent.entries += runs.iter().map(|run| run.len()).sum::<usize>();
        runs.append(&mut self.recent.runs);
        self.recent.runs = runs;
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
