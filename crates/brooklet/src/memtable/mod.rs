//! The memtable: the commits since the last checkpoint, in memory.
//!
//! A memtable holds two states of every log that it knows. The *appended* bounds are the bounds
//! after the newest commit, and determine the numbers of the next commit. The *visible* piece is
//! the state that readers see; it changes once a block is durable. Payloads are not copied: entries
//! refer to the memory of their blocks.
//!
//! Invariants:
//! 1. A log's visible piece only ever holds effects of durable blocks, in the order of the log.
//! 2. The first applied effect sets `visible`, which starts from `origin`, the log's bounds in
//!    older memtables.
//! 3. The piece's entries are those of `Piece::held`, in order.
//! 4. `claim` is the maximum size of a run of the memtable: of the touched logs, their visible
//!    entries, and all appended effects that are not visible yet.
//!
//! The same rules hold for terms (`model/retention_state.rs`). The terms of the few logs that have
//! any are stored separately.

pub mod chunks;
pub mod entry_sizes;
pub mod index;
pub mod payloads;
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
use twox_hash::XxHash3_64;

use crate::format::run_entry::CHUNK;
use crate::memtable::chunks::Chunks;
use crate::memtable::entry_sizes::{Cut, EntrySizes};
use crate::memtable::index::Index;
use crate::memtable::payloads::Payloads;
use crate::model::key::Key;
use crate::model::retention_state::{self, RetentionState, State};
use crate::model::{Bounds, Effect, Piece};
use crate::sync::Mutex;

pub(crate) use crate::model::pending::{Pending, Slot};

/// The place of an entry's payload: a block of the memtable, and a range in it.
#[derive(Clone, Copy, Debug)]
struct EntryRef {
    block: u32,
    offset: u32,
    len: u32,
}

/// The state of a log in a memtable. With 100,000 logs, a log's state is in no CPU cache when a
/// commit appends to it. The fields that an append needs are therefore in the first 64 bytes; the
/// fields for readers follow.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LogState {
    pub key: Key,
    /// The log's bounds after all appended effects; `None` if the log does not exist.
    pub appended: Option<Bounds>,
    /// The retention state of a log that has, or had, limits.
    pub limited: Option<Box<Limited>>,
    /// Whether this memtable has an appended effect of the log. With the first one, the ring
    /// records the log's state before it.
    pub touched: bool,
    /// Number of zero bytes of the key. The maximum also stands for all greater numbers.
    zeros: u8,
    /// Bytes of the entries that were appended in this memtable, at most as many as fit in one
    /// chunk.
    added: u16,
    /// Number of effects that are appended and not visible yet.
    pub in_flight: u32,
    /// The log's bounds before this memtable.
    origin: Option<Bounds>,
    visible: Option<Piece>,
    entries: VecDeque<EntryRef>,
    /// The last block that holds a deferred commit on the log. Readers make this block durable
    /// before they read.
    pub deferred: u64,
}

const _: () = assert!(offset_of!(LogState, origin) == 64);

/// The retention state of a log with limits, in a memtable.
#[derive(Debug, Default)]
pub(crate) struct Limited {
    /// The terms after all appended effects.
    pub appended: Option<Arc<RetentionState>>,
    visible: Option<Arc<RetentionState>>,
    /// The sizes of the log's appended entries, while the log has a limit of bytes. The sizes move
    /// to the next active memtable; this memtable is shared by then.
    sizes: Mutex<Option<EntrySizes>>,
    /// The append times of the changes of terms that are not visible yet.
    changes: VecDeque<u64>,
}

/// Returns the maximum number of bytes that a run takes for a log without its entries. These are
/// the escaped key and the other fields of the head, plus half of their bytes for the share of the
/// index. The index has equally long keys, and at most one key for every 8 KiB. The share of the
/// entries includes the keys of chunks.
fn log_claim(log: &LogState) -> u64 {
    let terms = log.terms().map_or(0, RetentionState::bound);
    (log.escaped() + terms + 76) as u64 * 3 / 2
}

fn zeros(key: &[u8]) -> usize {
    key.iter().filter(|&&byte| byte == 0).count()
}

/// Returns the maximum number of bytes that a run takes for an entry with a payload of `payload`
/// bytes. A chunk begins with an entry.
fn entry_claim(payload: usize) -> u64 {
    let payload = payload as u64;
    payload + payload / 2 + 10
}

/// Returns the bytes that an effect adds to a chunk, by the measure of [`CHUNK`].
pub(crate) fn entry_bytes(effect: Effect, payload: usize) -> usize {
    if matches!(effect, Effect::Append(_)) { payload + 1 } else { 0 }
}

/// Maximum bytes of the entry lengths in a chunk beyond one byte each: the length of an entry of
/// 128 bytes or more takes a second byte.
const LENGTHS: usize = CHUNK / 128 + 8;

/// Maximum bytes that an effect adds to a log's terms.
const TERMS_CLAIM: u64 = 32;

/// Bytes of memory of a log without a long key and without its entries.
const LOG_COST: usize = size_of::<LogState>() + 16;

/// The approximate fixed work to free one log or block, expressed in bytes of a large block.
pub(crate) const FREEING: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Memtable {
    seed: u64,
    index: Index,
    pub logs: Chunks<LogState>,
    blocks: Vec<Bytes>,
    newest_block: u64,
    bytes: usize,
    claim: u64,
    /// The part of the claim for the table of spaces.
    table_claim: u64,
    largest: usize,
}

impl Memtable {
    /// Creates an empty memtable. `seed` makes the positions of keys in the table unpredictable.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// Returns the approximate memory of the memtable, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the maximum bytes of a run that holds all appended effects. Trimmed and deleted
    /// entries count until the trim or deletion is durable. The claim is 0 if no effect was
    /// appended, even after look-ups.
    pub fn claim(&self) -> u64 {
        self.claim
    }

    /// Returns the maximum bytes of a codex entry in a run that holds all appended effects.
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// Returns the maximum bytes of a codex entry of one log, after `more` bytes of entries are
    /// added to the log. The longest added entry has `entry` bytes: a chunk is full before that
    /// entry, or with it. The key is in the codex entry and at most twice in the index, where no
    /// key shares a prefix with the key before it.
    pub fn largest_with(&self, slot: Slot, more: usize, entry: usize) -> usize {
        let log = self.log(slot);
        let terms = log.terms().map_or(0, RetentionState::bound);
        6 * log.escaped() + terms + LENGTHS + (log.added as usize + more).min(CHUNK + entry)
    }

    /// Returns the bytes that an effect on a log adds to the [claim](Self::claim). `is_first`: this
    /// memtable has no appended effect of this log yet.
    pub fn claim_of(&self, slot: Slot, effect: Effect, payload: usize, is_first: bool) -> u64 {
        let log = if is_first { log_claim(self.log(slot)) } else { 0 };
        log + match effect {
            Effect::Append(_) => entry_claim(payload),
            Effect::Trim(_) | Effect::Truncate(_) | Effect::Delete | Effect::Begin(_) => 0,
            Effect::Entries(_)
            | Effect::Bytes(_)
            | Effect::Age(_)
            | Effect::Mark(_)
            | Effect::Held(_)
            | Effect::Count(_) => TERMS_CLAIM,
        }
    }

    /// Records an appended effect.
    pub fn adds(&mut self, slot: Slot, effect: Effect, payload: usize) {
        let entry = entry_bytes(effect, payload);
        self.largest = self.largest.max(self.largest_with(slot, entry, entry));
        self.log_mut(slot).adds(effect, payload);
    }

    /// Adds the claim of appended effects, and records the maximum bytes of their codex entries.
    pub fn claims(&mut self, claim: u64, largest: usize) {
        self.claim += claim;
        self.largest = self.largest.max(largest);
    }

    /// Returns the part of the claim that is for the table of spaces.
    pub fn table_claim(&self) -> u64 {
        self.table_claim
    }

    /// Records that the claim has this part for the table of spaces.
    pub fn claims_for_table(&mut self, claim: u64) {
        self.table_claim = self.table_claim.max(claim);
    }

    pub fn is_empty(&self) -> bool {
        self.logs.is_empty()
    }

    /// Returns the approximate memory that a log with one entry takes, in bytes, without the bytes
    /// of the entry.
    pub fn cost_of_log(key: &[u8]) -> usize {
        LOG_COST + key.len() + size_of::<EntryRef>()
    }

    /// Counts additional memory of a log, in bytes.
    pub fn charge(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Returns whether the memtable has visible effects.
    pub fn is_changed(&self) -> bool {
        !self.blocks.is_empty()
    }

    fn hash(&self, key: &[u8]) -> u64 {
        XxHash3_64::oneshot_with_seed(self.seed, key)
    }

    /// Frees some logs and blocks, until the work reaches `work` bytes. Returns `false` once all
    /// are freed. No reader uses the memtable any more.
    pub fn release_some(&mut self, work: usize) -> bool {
        let mut done = 0;
        while done < work {
            let (log, block) = (self.logs.pop(), self.blocks.pop());
            if log.is_none() && block.is_none() {
                let Some(segment) = self.index.release_some() else { return false };
                done += segment + FREEING;
                continue;
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
        self.index.find(self.hash(key), |slot| *self.log(slot).key == *key)
    }

    /// Returns whether a slot is that of a log.
    pub fn is_at(&self, slot: Slot, key: &[u8]) -> bool {
        self.logs.get(slot as usize).is_some_and(|log| *log.key == *key)
    }

    /// Adds a log that the memtable does not have yet, with its state in older memtables.
    pub fn add(&mut self, key: &[u8], State { bounds: origin, terms }: State) -> Slot {
        let hash = self.hash(key);
        let slot =
            Slot::try_from(self.logs.len()).expect("a tier is checkpointed long before 4 billion logs");
        self.index.add(hash, slot);
        let zeros = u8::try_from(zeros(key)).unwrap_or(u8::MAX);
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
            zeros,
            added: 0,
            in_flight: 0,
            origin,
            visible: None,
            entries: VecDeque::new(),
            deferred: 0,
        });
        slot
    }

    pub fn log(&self, slot: Slot) -> &LogState {
        &self.logs[slot as usize]
    }

    pub fn log_mut(&mut self, slot: Slot) -> &mut LogState {
        &mut self.logs[slot as usize]
    }

    /// Makes a durable block's effects visible. Returns `None` if an effect does not fit; only
    /// damage causes this.
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
            self.bytes += Limited::record(&mut log.limited, pending.effect, piece.bounds, pending.len);
            match pending.effect {
                Effect::Append(_) => {
                    log.entries.push_back(EntryRef {
                        block: index,
                        offset: pending.offset,
                        len: pending.len,
                    });
                    if let Some(trim) = pending.trim() {
                        piece.apply(trim)?;
                        // Replay counts the trim by itself.
                        self.bytes += size_of::<EntryRef>();
                        self.bytes += Limited::record(&mut log.limited, trim, piece.bounds, 0);
                        self.claim -= trimmed(&mut log.entries, piece);
                    }
                }
                Effect::Trim(_) => self.claim -= trimmed(&mut log.entries, piece),
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
                | Effect::Count(_)
                | Effect::Begin(_) => {}
            }
        }
        Some(())
    }
}

impl Memtable {
    /// Returns the claim of a table of spaces of `table` bytes, and the maximum bytes of its codex
    /// entry.
    pub fn claim_of_table(table: usize) -> (u64, usize) {
        (76 * 3 / 2 + entry_claim(table), LENGTHS + table)
    }

    /// Prepares the memtable for a table of spaces that will replace the last committed one. The
    /// ring's records of the table's log continue from the committed one. `before` are the log's
    /// bounds before this memtable.
    pub fn expect_table(&mut self, before: Option<Bounds>) -> Slot {
        self.find(b"").unwrap_or_else(|| self.add(b"", State { bounds: before, terms: None }))
    }

    /// Stores the table of spaces in the memtable. No effect of its log is in flight any more.
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

/// Drops the entries before those that a piece holds. Returns their claim.
fn trimmed(entries: &mut VecDeque<EntryRef>, piece: &Piece) -> u64 {
    let held = piece.held();
    let kept = (held.end - held.start) as usize;
    let gone = entries.len().checked_sub(kept).expect("the entries are those of the piece");
    // Mostly one: to take it costs less than to drain a range.
    claim_of((0..gone).filter_map(|_| entries.pop_front()))
}

fn claim_of(entries: impl IntoIterator<Item = EntryRef>) -> u64 {
    entries.into_iter().map(|entry| entry_claim(entry.len as usize)).sum()
}

impl LogState {
    /// Returns the bytes of the key in a run, where each zero byte takes two bytes. Each commit on
    /// the log asks for them, so the zero bytes are counted once.
    fn escaped(&self) -> usize {
        let zeros = if self.zeros < u8::MAX { usize::from(self.zeros) } else { zeros(&self.key) };
        self.key.len() + zeros
    }

    /// Records an appended effect, whose part of the memtable's claims is recorded already.
    pub fn adds(&mut self, effect: Effect, payload: usize) {
        let entry = entry_bytes(effect, payload).min(CHUNK);
        self.added = self.added.saturating_add(entry as u16);
    }

    /// Records an appended effect that waits for its block, like [`adds`](Self::adds).
    pub fn goes_in_flight(&mut self, pending: &Pending) {
        self.adds(pending.effect, pending.len as usize);
        self.in_flight += 1;
    }

    /// Returns the piece that readers see, if this memtable has visible effects of the log.
    pub fn piece(&self) -> Option<Piece> {
        self.visible
    }

    /// Returns the log's bounds before this memtable.
    pub fn origin(&self) -> Option<Bounds> {
        self.origin
    }

    /// Returns the log's state after all appended effects.
    pub fn state(&self) -> State {
        let terms = self.limited.as_ref().and_then(|limited| limited.appended.clone());
        State { bounds: self.appended, terms }
    }

    /// Returns the log's terms after all appended effects.
    pub fn terms(&self) -> Option<&RetentionState> {
        self.limited.as_ref()?.appended.as_deref()
    }

    /// Returns the terms that belong to the piece that readers see.
    pub fn visible_terms(&self) -> Option<&Arc<RetentionState>> {
        self.limited.as_ref()?.visible.as_ref()
    }

    /// Returns the append time of the oldest change of terms that is not visible yet.
    pub fn retained_at(&self) -> Option<u64> {
        self.limited.as_ref()?.changes.front().copied()
    }

    pub fn limited_mut(&mut self) -> &mut Limited {
        self.limited.get_or_insert_default()
    }

    /// Returns the sizes of the log's entries, if they are counted.
    pub fn sizes_mut(&mut self) -> Option<&mut EntrySizes> {
        self.limited.as_mut()?.sizes_mut().as_mut()
    }

    /// Takes the sizes of the log's entries from a frozen memtable.
    pub fn take_sizes(&self) -> Option<EntrySizes> {
        self.limited.as_ref()?.sizes.lock().expect("no panics").take()
    }

    /// Returns the sizes of the piece's payloads, in bytes.
    pub fn sizes(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|entry| entry.len)
    }

    fn entries_in(&self, range: Range<u64>) -> impl ExactSizeIterator<Item = &EntryRef> {
        let held = self.visible.expect("only a visible piece is read").held();
        debug_assert_eq!(held.end - held.start, self.entries.len() as u64);
        self.entries.range((range.start - held.start) as usize..(range.end - held.start) as usize)
    }

    /// Returns the payloads of `range`, which must be within the piece's entries.
    pub fn payloads<'a>(
        &'a self,
        memtable: &'a Memtable,
        range: Range<u64>,
    ) -> impl Iterator<Item = Bytes> + 'a {
        self.entries_in(range).map(move |entry| {
            let start = entry.offset as usize;
            memtable.blocks[entry.block as usize].slice(start..start + entry.len as usize)
        })
    }

    /// Returns the payloads of `range` as [`payloads`](Self::payloads) does, and refers to each
    /// block once.
    pub fn view(&self, memtable: &Memtable, range: Range<u64>) -> Payloads {
        let entries = self.entries_in(range);
        let mut view = Payloads::with_capacity(entries.len());
        let mut last = None;
        for EntryRef { block, offset, len } in entries {
            if last.replace(block) != Some(block) {
                view.add_block(memtable.blocks[*block as usize].clone());
            }
            view.add(*offset, *len);
        }
        view
    }
}

impl Limited {
    /// Returns the log's retention state, if an effect changes it.
    pub fn of(limited: &mut Option<Box<Self>>, effect: Effect) -> Option<&mut Self> {
        match effect {
            Effect::Entries(_) | Effect::Bytes(_) | Effect::Age(_) => Some(limited.get_or_insert_default()),
            _ => limited.as_deref_mut(),
        }
    }

    /// Returns the sizes of the log's entries, if they are counted.
    pub fn sizes_mut(&mut self) -> &mut Option<EntrySizes> {
        self.sizes.get_mut().expect("no panics")
    }

    /// Applies an effect to the appended state. `bounds` are the bounds after the effect. Returns
    /// the truncated sizes.
    pub fn append(&mut self, effect: Effect, bounds: Option<Bounds>, len: u32) -> Option<Cut> {
        retention_state::apply(&mut self.appended, effect, bounds, len.into());
        self.sizes_mut().as_mut()?.apply(effect, len)
    }

    /// Records that new terms were appended at `now`.
    pub fn changes_at(&mut self, now: u64) {
        self.changes.push_back(now);
    }

    /// Applies an effect to the visible state of a log, if the log has limits or the effect sets
    /// one. Returns the bytes of memory that this takes.
    fn record(limited: &mut Option<Box<Self>>, effect: Effect, bounds: Option<Bounds>, len: u32) -> usize {
        let Some(limited) = Self::of(limited, effect) else { return 0 };
        retention_state::apply(&mut limited.visible, effect, bounds, len.into());
        if matches!(effect, Effect::Age(_)) {
            // Effects that recovery applies have no time here.
            limited.changes.pop_front();
        }
        if limited.sizes_mut().is_some() { size_of::<u32>() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_zero_byte_of_a_key_claims_two_bytes() {
        let mut memtable = Memtable::new(1);
        for zeros in [0, 1, 3, 254, 255, 256, 600, 1024] {
            for others in [0, 1, 22, 400] {
                let key = [vec![0; zeros], vec![b'k'; others]].concat();
                let slot = memtable.find(&key).unwrap_or_else(|| memtable.add(&key, State::default()));
                let escaped = 2 * zeros + others;
                assert_eq!(memtable.log(slot).escaped(), escaped);
                assert_eq!(memtable.largest_with(slot, 0, 0), 6 * escaped + LENGTHS);
                let claim = memtable.claim_of(slot, Effect::Delete, 0, true);
                assert_eq!(claim, (escaped as u64 + 76) * 3 / 2);
            }
        }
    }
}
