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

use std::collections::VecDeque;
use std::ops::Range;

use brooklet_io::seeded::bug;
use brooklet_wal::Block;
use bytes::Bytes;
use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use crate::model::{Bounds, Effect, Piece};

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
    /// Whether an effect of this tier was written to the ring yet.
    pub touched: bool,
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
                    log.entries.drain(..log.entries.len() - kept);
                }
                Effect::Truncate(_) => {
                    let held = piece.held();
                    log.entries.truncate((held.end - held.start) as usize);
                }
                Effect::Delete if bug("deleted-log-lives-on") => {}
                Effect::Delete => log.entries = VecDeque::new(),
            }
        }
        Some(())
    }
}

impl LogState {
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

    /// Bytes of the payloads that the piece holds.
    pub fn payload_bytes(&self) -> u64 {
        self.entries.iter().map(|e| u64::from(e.len)).sum()
    }
}
