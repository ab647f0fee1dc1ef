//! The memtable: the commits since the last checkpoint, in memory.
//!
//! A memtable holds two states of every log that it knows. The *appended* bounds are the bounds
//! after the newest commit, and determine the numbers of the next commit. The *visible* piece is
//! the state that readers see; it changes once a block is durable. Payloads are not copied: entries
//! refer to the memory of their blocks.
//!
//! Invariants:
//! 1. A log's visible piece only ever holds effects of durable blocks, in the order of the log.
//! 2. `visible` is set by the first effect applied and starts from `origin`, the bounds that older
//!    memtables give.
//! 3. The piece's entries are those of `Piece::held`, in order.
//! 4. `claim` is the maximum size of a run of the memtable: of the touched logs, their visible
//!    entries, and all appended effects that are not visible yet.
//!
//! The same rules hold for terms (`model/retention_state.rs`). The terms of the few logs that have
//! any are stored separately.

pub mod entry_sizes;
pub mod seqs;
pub mod size_span;
pub mod sort;

use std::collections::VecDeque;
use std::mem::offset_of;
use std::ops::Range;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_wal::Block;
use bytes::Bytes;
use hashbrown::HashTable;
use twox_hash::XxHash3_64;

use crate::format::run_entry::CHUNK;
use crate::memtable::entry_sizes::{Cut, EntrySizes};
use crate::model::key::Key;
use crate::model::retention_state::{self, RetentionState, State};
use crate::model::{Bounds, Effect, Piece};
use crate::sync::Mutex;

/// Index of a log in its memtable.
pub(crate) type Slot = u32;

/// Where an entry's payload is: a block of the memtable, and a range in it.
#[derive(Clone, Copy, Debug)]
struct EntryRef {
    block: u32,
    offset: u32,
    len: u32,
}

/// A log as a memtable knows it. Among 100,000 logs an append finds each part of its own in no
/// cache: so what appending asks for comes first, in 64 bytes, and what is shown later behind it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LogState {
    pub key: Key,
    /// The log's bounds after everything that appended; `None` where it does not exist.
    pub appended: Option<Bounds>,
    /// Of a log that keeps a part of its entries only, or did.
    pub limited: Option<Box<Limited>>,
    /// Whether an effect of this memtable appended yet: the first tells the ring what the log was
    /// before it.
    pub touched: bool,
    /// Bytes of the entries that appended in this memtable, as far as they can be in one chunk.
    added: u16,
    /// Effects that appended and are not visible yet.
    pub in_flight: u32,
    /// Its bounds before this memtable.
    origin: Option<Bounds>,
    visible: Option<Piece>,
    entries: VecDeque<EntryRef>,
    /// Last block that holds a deferred commit on the log: readers make it durable before they
    /// look.
    pub deferred: u64,
    hash: u64,
}

const _: () = assert!(offset_of!(LogState, origin) == 64);

/// What a memtable knows of a log that keeps a part of its entries only.
#[derive(Debug, Default)]
pub(crate) struct Limited {
    /// The terms after everything that appended.
    pub appended: Option<Arc<RetentionState>>,
    visible: Option<Arc<RetentionState>>,
    /// The sizes of its entries, as appended, while bytes are limited. It moves on to the memtable
    /// that commits join next, and by then this one is shared.
    sizes: Mutex<Option<EntrySizes>>,
    /// When the changes of its terms appended that are not visible.
    changes: VecDeque<u64>,
}

/// An effect that waits for its block to become durable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub slot: Slot,
    pub effect: Effect,
    pub offset: u32,
    pub len: u32,
}

/// The most bytes that a run takes for a log besides its entries: the escaped key with what stands
/// around it in a head, and half as much again for its share of the index, whose keys are as long,
/// and which has one for every 8 KiB at most. The keys of chunks are in the share of the entries.
fn log_claim(log: &LogState) -> u64 {
    let terms = log.terms().map_or(0, RetentionState::bound);
    (escaped(&log.key) + terms + 76) as u64 * 3 / 2
}

fn escaped(key: &[u8]) -> usize {
    key.len() + key.iter().filter(|&&byte| byte == 0).count()
}

/// The most bytes that a run takes for an entry whose payload has so many. A chunk begins with an
/// entry.
fn entry_claim(payload: usize) -> u64 {
    let payload = payload as u64;
    payload + payload / 2 + 10
}

/// What an effect adds to a chunk, as chunks are measured.
pub(crate) fn entry_bytes(effect: Effect, payload: usize) -> usize {
    if matches!(effect, Effect::Append(_)) { payload + 1 } else { 0 }
}

/// What the lengths of the entries of a chunk take beyond a byte each, at most: those of 128 bytes
/// and more a second one.
const LENGTHS: usize = CHUNK / 128 + 8;

/// What an effect may add to a log's terms.
const TERMS_CLAIM: u64 = 32;

/// Memory a log costs besides a long key and its entries.
const LOG_COST: usize = size_of::<LogState>() + 16;

/// What it takes to free a log or a block, however small, in bytes of a large one: roughly.
pub(crate) const FREEING: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Memtable {
    seed: u64,
    table: HashTable<Slot>,
    pub logs: Vec<LogState>,
    blocks: Vec<Bytes>,
    newest_block: u64,
    bytes: usize,
    claim: u64,
    largest: usize,
}

impl Memtable {
    /// An empty memtable; `seed` makes the positions of keys in its table unpredictable.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Bytes of memory the memtable holds, roughly.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The most bytes that a run takes which holds what appended; what was trimmed and deleted
    /// counts until that is durable. 0 where nothing appended, whatever was looked up.
    pub fn claim(&self) -> u64 {
        self.claim
    }

    /// The most bytes that an entry takes, of a run which holds what appended.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// The same of a log, once it has so many bytes of entries more, the longest of them of
    /// `entry`: a chunk is full before that, or with it. Its key stands in the entry and, twice at
    /// most, in the index, where no key shares a part with the one before.
    pub fn largest_with(&self, slot: Slot, more: usize, entry: usize) -> usize {
        let log = self.log(slot);
        let terms = log.terms().map_or(0, RetentionState::bound);
        6 * escaped(&log.key) + terms + LENGTHS + (log.added as usize + more).min(CHUNK + entry)
    }

    /// What an effect on a log adds to the [claim](Self::claim); `is_first`: none of this memtable
    /// has appended yet.
    pub fn claim_of(&self, slot: Slot, effect: Effect, payload: usize, is_first: bool) -> u64 {
        let log = if is_first { log_claim(self.log(slot)) } else { 0 };
        log + match effect {
            Effect::Append(_) => entry_claim(payload),
            Effect::Trim(_) | Effect::Truncate(_) | Effect::Delete => 0,
            Effect::Entries(_)
            | Effect::Bytes(_)
            | Effect::Age(_)
            | Effect::Mark(_)
            | Effect::Held(_)
            | Effect::Count(_) => TERMS_CLAIM,
        }
    }

    /// Takes note of an effect that appended.
    pub fn adds(&mut self, slot: Slot, effect: Effect, payload: usize) {
        let entry = entry_bytes(effect, payload);
        self.largest = self.largest.max(self.largest_with(slot, entry, entry));
        let log = self.log_mut(slot);
        log.added = log.added.saturating_add(entry.min(CHUNK) as u16);
    }

    /// Takes note of what claims what appended has, and of how long an entry it takes.
    pub fn claims(&mut self, claim: u64, largest: usize) {
        self.claim += claim;
        self.largest = self.largest.max(largest);
    }

    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// Counts memory that a log takes besides.
    pub fn charge(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Whether something visible happened to a log of the memtable.
    pub fn is_changed(&self) -> bool {
        !self.blocks.is_empty()
    }

    fn hash(&self, key: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.seed, key)
    }

    /// Frees some logs and blocks: so much, in bytes, as that is work. `false` once none are left.
    /// Nobody looks at the memtable any more.
    pub fn release_some(&mut self, work: usize) -> bool {
        let mut done = 0;
        while done < work {
            let (log, block) = (self.logs.pop(), self.blocks.pop());
            if log.is_none() && block.is_none() {
                return false;
            }
            let log = log.map_or(0, |log| {
                LOG_COST + log.key.bytes_apart() + log.entries.len() * size_of::<EntryRef>()
            });
            let block = block.map_or(0, |block| block.len());
            self.bytes = self.bytes.saturating_sub(log + block);
            done += log + block + FREEING;
        }
        true
    }

    /// Finds a log.
    pub fn find(&self, key: &[u8]) -> Option<Slot> {
        let hash = self.hash(key);
        self.table.find(hash, |&slot| *self.logs[slot as usize].key == *key).copied()
    }

    /// Adds a log that is not known yet, which older memtables know like that.
    pub fn add(&mut self, key: &[u8], State { bounds: origin, terms }: State) -> Slot {
        let hash = self.hash(key);
        let slot =
            Slot::try_from(self.logs.len()).expect("a tier is checkpointed long before 4 billion logs");
        self.table.insert_unique(hash, slot, |&slot| self.logs[slot as usize].hash);
        let key = Key::from(key);
        self.bytes += LOG_COST + key.bytes_apart();
        self.bytes += terms.as_deref().map_or(0, |terms| size_of::<Limited>() + terms.bound());
        self.logs.push(LogState {
            key,
            appended: origin,
            limited: terms.map(|terms| {
                let [visible, appended] = [(); 2].map(|()| Some(terms.clone()));
                Box::new(Limited { visible, appended, ..Limited::default() })
            }),
            touched: false,
            added: 0,
            in_flight: 0,
            origin,
            visible: None,
            entries: VecDeque::new(),
            deferred: 0,
            hash,
        });
        slot
    }

    pub fn log(&self, slot: Slot) -> &LogState {
        &self.logs[slot as usize]
    }

    pub fn log_mut(&mut self, slot: Slot) -> &mut LogState {
        &mut self.logs[slot as usize]
    }

    /// Makes a durable block's effects visible. `None` where one does not fit, which only damage
    /// can bring about.
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
            log.in_flight -= 1;
            let piece = log.visible.get_or_insert(Piece::on_top_of(log.origin));
            piece.apply(pending.effect)?;
            if let Some(limited) = Limited::of(&mut log.limited, pending.effect) {
                limited.record(pending.effect, piece.bounds, pending.len);
                if limited.sizes_mut().is_some() {
                    self.bytes += size_of::<u32>();
                }
            }
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
                    self.claim -= claim_of(log.entries.drain(..log.entries.len() - kept));
                }
                Effect::Truncate(_) => {
                    let held = piece.held();
                    self.claim -= claim_of(log.entries.drain((held.end - held.start) as usize..));
                }
                Effect::Delete if bug("deleted-log-lives-on") => {}
                Effect::Delete => self.claim -= claim_of(std::mem::take(&mut log.entries)),
                Effect::Entries(_)
                | Effect::Bytes(_)
                | Effect::Age(_)
                | Effect::Mark(_)
                | Effect::Held(_)
                | Effect::Count(_) => {}
            }
        }
        Some(())
    }
}

impl Memtable {
    /// What a table of spaces of so many bytes claims, and how long an entry it takes.
    pub fn claim_of_table(table: usize) -> (u64, usize) {
        (76 * 3 / 2 + entry_claim(table), LENGTHS + table)
    }

    /// The memtable will get a table of spaces, in the place of the last one that was committed:
    /// what the ring says of the log goes on from that. The bounds of the log before the memtable
    /// are these.
    pub fn expect_table(&mut self, before: Option<Bounds>) -> Slot {
        self.find(b"").unwrap_or_else(|| self.add(b"", State { bounds: before, terms: None }))
    }

    /// Gives the memtable that table; nothing of the log is in flight any more.
    pub fn put_table(&mut self, slot: Slot, table: Bytes) {
        let block = self.blocks.len() as u32;
        let log = &mut self.logs[slot as usize];
        let piece = log.visible.get_or_insert(Piece::on_top_of(log.origin));
        let last = piece.bounds.expect("one was committed").next - 1;
        let fits = piece.apply(Effect::Truncate(last)).and_then(|()| piece.apply(Effect::Append(last)));
        fits.expect("the last entry is there, and alone");
        self.claim -= claim_of(log.entries.drain(..));
        log.entries.push_back(EntryRef { block, offset: 0, len: table.len() as u32 });
        self.bytes += table.len();
        self.blocks.push(table);
    }
}

fn claim_of(entries: impl IntoIterator<Item = EntryRef>) -> u64 {
    entries.into_iter().map(|entry| entry_claim(entry.len as usize)).sum()
}

impl LogState {
    /// What readers see, if this memtable changed the log visibly.
    pub fn piece(&self) -> Option<Piece> {
        self.visible
    }

    /// The log's bounds before this memtable.
    pub fn origin(&self) -> Option<Bounds> {
        self.origin
    }

    /// The log's state after everything that appended.
    pub fn state(&self) -> State {
        let terms = self.limited.as_ref().and_then(|limited| limited.appended.clone());
        State { bounds: self.appended, terms }
    }

    /// Its terms after everything that appended.
    pub fn terms(&self) -> Option<&RetentionState> {
        self.limited.as_ref()?.appended.as_deref()
    }

    /// The terms that go with what readers see.
    pub fn visible_terms(&self) -> Option<&Arc<RetentionState>> {
        self.limited.as_ref()?.visible.as_ref()
    }

    /// When terms appended that are not visible yet.
    pub fn retained_at(&self) -> Option<u64> {
        self.limited.as_ref()?.changes.front().copied()
    }

    pub fn limited_mut(&mut self) -> &mut Limited {
        self.limited.get_or_insert_default()
    }

    /// The sizes of its entries, where they are counted.
    pub fn sizes_mut(&mut self) -> Option<&mut EntrySizes> {
        self.limited.as_mut()?.sizes_mut().as_mut()
    }

    /// Takes them from a memtable that commits do not join any more.
    pub fn take_sizes(&self) -> Option<EntrySizes> {
        self.limited.as_ref()?.sizes.lock().expect("no panics").take()
    }

    /// The sizes of the payloads that the piece holds.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|entry| entry.len)
    }

    /// The payloads of `range`, which must be within the piece's entries.
    pub fn payloads<'a>(
        &'a self,
        memtable: &'a Memtable,
        range: Range<u64>,
    ) -> impl Iterator<Item = Bytes> + 'a {
        let held = self.visible.expect("only a visible piece is read").held();
        debug_assert_eq!(held.end - held.start, self.entries.len() as u64);
        let (from, to) = ((range.start - held.start) as usize, (range.end - held.start) as usize);
        self.entries.range(from..to).map(move |entry| {
            let start = entry.offset as usize;
            memtable.blocks[entry.block as usize].slice(start..start + entry.len as usize)
        })
    }
}

impl Limited {
    /// What is told of a log apart, if an effect changes it.
    pub fn of(limited: &mut Option<Box<Self>>, effect: Effect) -> Option<&mut Self> {
        match effect {
            Effect::Entries(_) | Effect::Bytes(_) | Effect::Age(_) => Some(limited.get_or_insert_default()),
            _ => limited.as_deref_mut(),
        }
    }

    /// The sizes of the log's entries, where they are counted.
    pub fn sizes_mut(&mut self) -> &mut Option<EntrySizes> {
        self.sizes.get_mut().expect("no panics")
    }

    /// Works an effect into what has appended: the bounds are those after it. Gives the sizes of
    /// what it cuts off.
    pub fn append(&mut self, effect: Effect, bounds: Option<Bounds>, len: u32) -> Option<Cut> {
        retention_state::apply(&mut self.appended, effect, bounds, len.into());
        self.sizes_mut().as_mut()?.apply(effect, len)
    }

    /// New terms appended at this time.
    pub fn changes_at(&mut self, now: u64) {
        self.changes.push_back(now);
    }

    fn record(&mut self, effect: Effect, bounds: Option<Bounds>, len: u32) {
        retention_state::apply(&mut self.visible, effect, bounds, len.into());
        if matches!(effect, Effect::Age(_)) {
            // There is none for what recovery brings back.
            self.changes.pop_front();
        }
    }
}
