//! The recent tier: what was committed since the last checkpoint, in memory.
//!
//! A tier keeps two things of every log it knows. The *boarded* bounds say what the newest commit made of it, and give
//! the next commit its numbers. The *visible* piece is what readers see: it follows once the block is durable. Payloads
//! are not copied: entries refer into the memory of their blocks.
//!
//! Invariants:
//! 1. A log's visible piece only ever holds effects of durable blocks, in the order of the log.
//! 2. `visible` is set by the first effect applied and starts from `origin`, the bounds that older tiers give.
//! 3. The piece's entries are those of `Piece::held`, in order.
//! 4. `bound` is what the touched logs, their visible entries, and those that boarded and are not visible yet, may take in
//!    a run.

use std::collections::VecDeque;
use std::ops::Range;

use brooklet_io::seeded::bug;
use brooklet_wal::Block;
use bytes::Bytes;
use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use crate::model::{Bounds, Effect, Piece};
use crate::piece::CHUNK;

/// Index of a log in its tier.
pub(crate) type Slot = u32;

/// Where an entry's payload is: a block of the tier, and a range in it.
#[derive(Clone, Copy, Debug)]
struct EntryRef {
    block: u32,
    offset: u32,
    len: u32,
}

/// A log as a tier knows it.
#[derive(Debug)]
pub(crate) struct LogState {
    pub key: Box<[u8]>,
    hash: u64,
    /// The log's bounds after everything that boarded; `None` where it does not exist.
    pub boarded: Option<Bounds>,
    /// Its bounds before this tier.
    origin: Option<Bounds>,
    /// Whether an effect of this tier boarded yet.
    pub touched: bool,
    /// Bytes of the payloads that boarded.
    boarded_bytes: usize,
    visible: Option<Piece>,
    entries: VecDeque<EntryRef>,
    /// Last block that holds a deferred commit on the log: readers make it durable before they look.
    pub deferred: u64,
}

/// An effect that waits for its block to become durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub slot: Slot,
    pub effect: Effect,
    pub offset: u32,
    pub len: u32,
}

/// The most bytes that a run takes for a log besides its entries: the escaped key with what stands around it in a head, and
/// half as much again for its share of the index, whose keys are as long, and which has one for every 8 KiB at most. The keys
/// of chunks are in the share of the entries.
pub(crate) fn log_bound(key: &[u8]) -> u64 {
    let escaped = key.len() + key.iter().filter(|&&byte| byte == 0).count();
    (escaped as u64 + 76) * 3 / 2
}

/// The most bytes that a run takes for an entry, when its payload has so many. A chunk begins with an entry.
pub(crate) fn entry_bound(payload: usize) -> u64 {
    let payload = payload as u64;
    payload + payload / 2 + 10
}

/// Memory a log costs besides its key and entries.
const LOG_COST: usize = size_of::<LogState>() + 16;

#[derive(Debug, Default)]
pub(crate) struct Tier {
    seed: u64,
    table: HashTable<Slot>,
    pub logs: Vec<LogState>,
    blocks: Vec<Bytes>,
    newest_block: u64,
    bytes: usize,
    /// The most bytes that a run of what boarded takes.
    bound: u64,
    /// The most bytes of an entry that a run gets of what boarded.
    largest: usize,
}

impl Tier {
    /// An empty tier; `seed` makes the positions of keys in its table unpredictable.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Bytes of memory the tier holds, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most bytes that a run takes which holds what boarded; what was trimmed and deleted counts until that is durable.
    /// 0 where nothing boarded, whatever was looked up.
    pub fn bound(&self) -> u64 {
        self.bound
    }

    /// The most bytes of an entry that a run gets: of a head or a chunk, besides its key.
    pub fn largest(&self) -> usize {
        self.largest
    }

    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// Whether something visible happened to a log of the tier.
    pub fn is_changed(&self) -> bool {
        !self.blocks.is_empty()
    }

    fn hash(&self, key: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.seed, key)
    }

    /// Finds a log.
    pub fn find(&self, key: &[u8]) -> Option<Slot> {
        let hash = self.hash(key);
        self.table.find(hash, |&slot| *self.logs[slot as usize].key == *key).copied()
    }

    /// Adds a log that is not known yet, whose bounds in older tiers are `origin`.
    pub fn add(&mut self, key: &[u8], origin: Option<Bounds>) -> Slot {
        let hash = self.hash(key);
        let slot =
            Slot::try_from(self.logs.len()).expect("a tier is checkpointed long before 4 billion logs");
        self.table.insert_unique(hash, slot, |&slot| self.logs[slot as usize].hash);
        self.logs.push(LogState {
            key: key.into(),
            hash,
            boarded: origin,
            origin,
            touched: false,
            boarded_bytes: 0,
            visible: None,
            entries: VecDeque::new(),
            deferred: 0,
        });
        self.bytes += LOG_COST + key.len();
        slot
    }

    pub fn log(&self, slot: Slot) -> &LogState {
        &self.logs[slot as usize]
    }

    pub fn log_mut(&mut self, slot: Slot) -> &mut LogState {
        &mut self.logs[slot as usize]
    }

    /// The most that an effect on a log adds to the [bound](Self::bound).
    pub fn cost(&self, slot: Slot, effect: Effect, payload: usize) -> u64 {
        let log = self.log(slot);
        let log = if log.touched { 0 } else { log_bound(&log.key) };
        log + if matches!(effect, Effect::Append(_)) { entry_bound(payload) } else { 0 }
    }

    /// The most bytes of an entry that a run gets of a log, once it has such a payload more.
    pub fn largest_with(&self, slot: Slot, payload: usize) -> usize {
        (self.log(slot).boarded_bytes + payload).min(CHUNK + payload)
    }

    /// Takes note that an effect on a log boarded; `true` for the first of this tier.
    pub fn touch(&mut self, slot: Slot, effect: Effect, payload: usize) -> bool {
        self.bound += self.cost(slot, effect, payload);
        let log = self.log_mut(slot);
        log.boarded_bytes += payload;
        let (largest, is_first) = (log.largest_with(payload), !std::mem::replace(&mut log.touched, true));
        self.largest = self.largest.max(largest);
        is_first
    }

    /// Makes a durable block's effects visible. `None` where one does not fit, which only damage can bring about.
    pub fn apply(&mut self, block: &Block, effects: &[Pending]) -> Option<()> {
        if effects.is_empty() {
            return Some(());
        }
        assert!(block.seq() > self.newest_block, "blocks are applied once, in order");
        self.newest_block = block.seq();
        self.blocks.push(block.data().clone());
        self.bytes += block.data().len() + effects.len() * size_of::<EntryRef>();
        let index = self.blocks.len() as u32 - 1;
        for pending in effects {
            let log = &mut self.logs[pending.slot as usize];
            let piece = log.visible.get_or_insert(Piece::on_top_of(log.origin));
            piece.apply(pending.effect)?;
            match pending.effect {
                Effect::Append(_) => {
                    log.entries.push_back(EntryRef {
                        block: index,
                        offset: pending.offset,
                        len: pending.len,
                    });
                }
                Effect::Trim(_) => {
                    let held = piece.held();
                    let kept = (held.end - held.start) as usize;
                    self.bound -= bound_of(log.entries.drain(..log.entries.len() - kept));
                }
                Effect::Truncate(_) => {
                    let held = piece.held();
                    self.bound -= bound_of(log.entries.drain((held.end - held.start) as usize..));
                }
                Effect::Delete if bug("deleted-log-lives-on") => {}
                Effect::Delete => self.bound -= bound_of(std::mem::take(&mut log.entries)),
            }
        }
        Some(())
    }
}

fn bound_of(entries: impl IntoIterator<Item = EntryRef>) -> u64 {
    entries.into_iter().map(|entry| entry_bound(entry.len as usize)).sum()
}

impl LogState {
    /// The most bytes of an entry that a run gets of the log, with a payload of so many bytes. A chunk is full before that, or
    /// with it.
    fn largest_with(&self, payload: usize) -> usize {
        self.boarded_bytes.min(CHUNK + payload)
    }

    /// What readers see, if this tier changed the log visibly.
    pub fn piece(&self) -> Option<Piece> {
        self.visible
    }

    /// The log's bounds before this tier.
    pub fn origin(&self) -> Option<Bounds> {
        self.origin
    }

    /// The payloads of `range`, which must be within the piece's entries.
    pub fn payloads<'a>(&'a self, tier: &'a Tier, range: Range<u64>) -> impl Iterator<Item = Bytes> + 'a {
        let held = self.visible.expect("only a visible piece is read").held();
        debug_assert_eq!(held.end - held.start, self.entries.len() as u64);
        let (from, to) = ((range.start - held.start) as usize, (range.end - held.start) as usize);
        self.entries.range(from..to).map(move |entry| {
            let start = entry.offset as usize;
            tier.blocks[entry.block as usize].slice(start..start + entry.len as usize)
        })
    }
}
