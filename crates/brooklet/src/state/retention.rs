//! Retention in the append step: computes the entries that a commit drops by retention, and the
//! marks that it writes.
//!
//! The computation uses the appended state, and its result is written as trims. Replay and readers
//! therefore need not know why an entry was dropped. Sizes that are in no memtable are looked up
//! before, without the lock, like bounds ([`Retry::Sizes`] names them).

use std::cell::Cell;
use std::collections::BTreeSet;
use std::mem;
use std::time::Duration;

use brooklet_io::Clock;
use brooklet_io::seeded::bug;

use crate::memtable::Slot;
use crate::memtable::entry_sizes::{EntrySizes, SizeAnswer};
use crate::model::commit::{Action, Op};
use crate::model::retention::Retention;
use crate::model::retention_state::RetentionState;
use crate::model::{Bounds, Effect};
use crate::state::StoreState;
use crate::state::append::Retry;
use crate::state::spaces::Spaces;

/// The wall clock as of one commit. The clock is read at most once.
pub(crate) struct CommitClock<'a> {
    clock: &'a dyn Clock,
    asked: Cell<Option<u64>>,
}

impl<'a> CommitClock<'a> {
    pub fn new(clock: &'a dyn Clock) -> Self {
        Self { clock, asked: Cell::new(None) }
    }

    /// Returns the current time of the monotonic clock.
    pub fn elapsed(&self) -> Duration {
        self.clock.now()
    }

    /// Returns the wall time of the commit, in milliseconds since the Unix epoch.
    pub fn ms(&self) -> u64 {
        let now = self.asked.get().unwrap_or_else(|| wall(self.clock));
        self.asked.set(Some(now));
        now
    }
}

/// Returns the wall time, in milliseconds since the Unix epoch.
pub(crate) fn wall(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.wall().as_millis()).unwrap_or(u64::MAX)
}

impl StoreState {
    /// Makes sure that the sizes of entries in memory are known if the commit may need them. The
    /// effects of the commit itself are counted when they are computed.
    pub(super) fn count_sizes(&mut self, ops: &[Op<'_>]) {
        let wants = |spaces: &Spaces, op: &Op<'_>| {
            matches!(op.action, Action::Retain(Retention { bytes: Some(_), .. })) || spaces.sizes(op.key)
        };
        // The logs that need their sizes, once one may not: of a long commit, they are found once.
        let mut wanting: Option<BTreeSet<Slot>> = None;
        for (i, op) in ops.iter().enumerate() {
            let slot = self.slots[i];
            let log = self.active.log_mut(slot);
            // A lone append to a log that exists gives it no limits: its space does not matter.
            let gives = ops.len() > 1 || log.appended.is_none() || !matches!(op.action, Action::Append(_));
            let wanted = gives && wants(&self.spaces, op);
            let limited = log.terms().is_some_and(|terms| terms.bytes.is_some());
            let first = log.appended.map_or(0, |bounds| bounds.first);
            match (log.sizes_mut(), limited || wanted) {
                (Some(sizes), true) => sizes.begin(first),
                (Some(sizes), false) => {
                    // The sizes are not needed any more, unless another operation of this commit or
                    // another commit needs them.
                    let wanting = wanting.get_or_insert_with(|| {
                        let ops = ops.iter().zip(&self.slots).filter(|(op, _)| wants(&self.spaces, op));
                        ops.map(|(_, slot)| *slot).collect()
                    });
                    if wanting.contains(&slot) || self.counting.contains_key(op.key) {
                        sizes.begin(first);
                    } else {
                        *log.limited_mut().sizes_mut() = None;
                    }
                }
                (None, true) => {
                    let mut sizes = self.sizes(slot);
                    sizes.begin(first);
                    self.keep_sizes(slot, sizes);
                }
                (None, false) => {}
            }
        }
    }

    /// Returns the sizes of a log's appended entries that the memtables hold.
    fn sizes(&mut self, slot: Slot) -> EntrySizes {
        self.counted += 1;
        let frozen = self
            .frozen
            .as_deref()
            .and_then(|memtable| Some((memtable, memtable.find(&self.active.log(slot).key)?)));
        let memtables = [frozen.map(|(memtable, slot)| (memtable, slot, self.generation - 1))];
        let memtables = memtables.into_iter().flatten().chain([(&self.active, slot, self.generation)]);
        let mut sizes: Option<EntrySizes> = None;
        for (memtable, slot, generation) in memtables {
            let log = memtable.log(slot);
            let origin = log.origin().map_or(0, |bounds| bounds.next);
            let sizes = sizes.get_or_insert_with(|| EntrySizes::new(self.counted, origin));
            match log.piece() {
                Some(piece) if piece.bounds.is_none() => sizes.hold(0, []),
                Some(piece) => sizes.hold(piece.held().start, log.sizes()),
                None => {}
            }
            let blocks = self.pending.iter().rev().filter(|block| block.generation == generation);
            let effects = blocks.flat_map(|block| block.effects.iter().rev());
            let effects: Vec<_> =
                effects.filter(|effect| effect.slot == slot).take(log.in_flight as usize).collect();
            for pending in effects.into_iter().rev() {
                sizes.apply(pending.effect, pending.len);
                if let Some(trim) = pending.trim() {
                    sizes.apply(trim, 0);
                }
            }
        }
        sizes.expect("the active tier was asked")
    }

    pub(super) fn keep_sizes(&mut self, slot: Slot, sizes: EntrySizes) {
        self.active.charge(sizes.memory());
        *self.active.log_mut(slot).limited_mut().sizes_mut() = Some(sizes);
    }

    /// Records that the sizes of a log are being looked up for a commit. The commit must call
    /// [`end_count`](Self::end_count) later.
    pub fn begin_count(&mut self, key: &[u8]) {
        *self.counting.entry(key.into()).or_default() += 1;
    }

    pub fn end_count(&mut self, key: &[u8]) {
        let commits = self.counting.get_mut(key).expect("it was begun");
        *commits -= 1;
        if *commits == 0 {
            self.counting.remove(key);
        }
    }

    /// Carries the logs whose sizes are being looked up over to a new memtable, with the sizes
    /// known so far.
    pub(super) fn carry_counted(&mut self) {
        let counting = mem::take(&mut self.counting);
        for key in counting.keys() {
            // A deleted log has no sizes. And the bounds of a log that moved to memory meanwhile
            // would be wrong once it leaves memory.
            if !self.is_absent(key) && !self.spaces.is_in_memory(key) {
                self.slot(key);
            }
        }
        self.counting = counting;
    }

    /// Stores the sizes of a log that were looked up.
    pub fn learn_sizes(&mut self, key: &[u8], found: SizeAnswer) {
        let Some(slot) = self.active.find(key) else { return };
        let log = self.active.log_mut(slot);
        let bounds = log.appended.unwrap_or_default();
        let held = log.terms().and_then(|terms| terms.bytes.map(|_| terms.held));
        let Some(sizes) = log.sizes_mut() else { return };
        let before = sizes.memory();
        sizes.learn(found, bounds, held);
        let more = sizes.memory().saturating_sub(before);
        self.active.charge(more);
    }

    fn terms(&self, slot: Slot) -> Option<&RetentionState> {
        self.active.log(slot).terms()
    }

    fn bounds(&self, slot: Slot) -> Bounds {
        self.active.log(slot).appended.unwrap_or_default()
    }

    fn counted(&mut self, slot: Slot) -> &EntrySizes {
        self.active.log_mut(slot).sizes_mut().expect("sizes are counted where bytes are limited")
    }

    /// Returns the bytes of the entries `first..next` of a log; `None` if the log's bytes are not
    /// limited.
    fn left(&mut self, i: usize, slot: Slot, first: u64, next: u64) -> Result<Option<u64>, Retry> {
        let Some(&RetentionState { bytes: Some(_), held, .. }) = self.terms(slot) else { return Ok(None) };
        let bounds = self.bounds(slot);
        let left = self.counted(slot).left(bounds, held, first, next);
        left.map(Some).map_err(|missing| Retry::sizes(i, missing))
    }

    /// Applies a trim or a truncation, and sets the sum of the bytes that are left.
    pub(super) fn cut(&mut self, op: &Op<'_>, i: usize, slot: Slot, effect: Effect) -> Result<(), Retry> {
        let bounds = self.bounds(slot);
        let (first, next) = match effect {
            Effect::Trim(first) => (first, bounds.next),
            Effect::Truncate(next) => (bounds.first, next),
            _ => unreachable!("only these cut"),
        };
        let lawful = bounds.first <= first && first <= next && next <= bounds.next;
        let left = if lawful { self.left(i, slot, first, next)? } else { None };
        self.drop_entries(op, i, slot, effect, left)
    }

    /// Applies an effect that drops entries. `left` is the sum of the bytes that are left, if bytes
    /// are limited.
    fn drop_entries(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        effect: Effect,
        left: Option<u64>,
    ) -> Result<(), Retry> {
        self.effect(op, i, slot, effect)?;
        left.map_or(Ok(()), |left| Ok(self.effect(op, i, slot, Effect::Held(left))?))
    }

    /// Writes the mark of time that must precede an entry, if one is needed.
    pub(super) fn mark(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        moment: &CommitClock<'_>,
    ) -> Result<(), Retry> {
        let wanted = self.terms(slot).filter(|terms| terms.age.is_some());
        let Some(time) = wanted.and_then(|terms| terms.wanted_mark(moment.ms())) else { return Ok(()) };
        Ok(self.effect(op, i, slot, Effect::Mark(time))?)
    }

    /// Returns the first entry that a log keeps by its limits of number and age.
    pub(super) fn kept(&self, slot: Slot, moment: &CommitClock<'_>) -> u64 {
        let bounds = self.bounds(slot);
        self.terms(slot).map_or(bounds.first, |terms| {
            let now = if terms.age.is_some() && !bug("age-comes-back") { moment.ms() } else { 0 };
            terms.kept(bounds, now)
        })
    }

    /// Drops the entries that exceed a log's limits.
    pub(super) fn limit(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        moment: &CommitClock<'_>,
    ) -> Result<(), Retry> {
        let Some(terms) = self.terms(slot) else { return Ok(()) };
        let (bounds, bytes) = (self.bounds(slot), terms.bytes);
        let mut first = self.kept(slot, moment);
        let mut left = self.left(i, slot, first, bounds.next)?;
        if let (Some(left), Some(most)) = (&mut left, bytes)
            && *left > most
            && first < bounds.next
        {
            // The newest entry stays.
            let counted = self.counted(slot).walk(first..bounds.next - 1, false, *left - most - 1);
            let (kept, gone) = counted.map_err(|missing| Retry::sizes(i, missing))?;
            *left = left.saturating_sub(gone);
            first = kept;
        }
        self.drop_before(op, i, slot, first, left)
    }

    /// Drops the entries before `first`, if there are any.
    fn drop_before(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        first: u64,
        left: Option<u64>,
    ) -> Result<(), Retry> {
        let is_cut = first > self.bounds(slot).first;
        if is_cut { self.drop_entries(op, i, slot, Effect::Trim(first), left) } else { Ok(()) }
    }

    /// Sets the terms of a log. Entries that the old terms left out stay out.
    pub(super) fn retain(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        retention: Retention,
        moment: &CommitClock<'_>,
    ) -> Result<(), Retry> {
        if retention.bytes.is_some() {
            self.limit(op, i, slot, moment)?;
        } else {
            // The sum is not needed any more. A limit can therefore be lifted even if sizes cannot
            // be read.
            self.drop_before(op, i, slot, self.kept(slot, moment), None)?;
        }
        let counted = self.terms(slot).and_then(|terms| terms.bytes.map(|_| terms.held));
        let limit = |limit: Option<u64>| limit.map_or(0, |n| n + 1);
        let age = retention.age.map(|age| age.as_millis() as u64);
        let aged = self.terms(slot).filter(|terms| terms.has_marks());
        let sharper = aged.and_then(|terms| terms.sharper_mark(age, moment.ms()));
        self.effect(op, i, slot, Effect::Entries(limit(retention.entries)))?;
        self.effect(op, i, slot, Effect::Bytes(limit(retention.bytes)))?;
        self.effect(op, i, slot, Effect::Age(limit(age)))?;
        let bounds = self.bounds(slot);
        if !bounds.is_empty() && self.terms(slot).is_some_and(|terms| !terms.has_marks()) {
            self.mark(op, i, slot, moment)?;
        }
        if let Some(time) = sharper {
            self.effect(op, i, slot, Effect::Mark(time))?;
        }
        // If fewer bytes stay than go, the bytes that stay are counted.
        let anew = |most: &u64| counted.is_none_or(|held| *most < held / 2);
        if let Some(most) = retention.bytes.filter(anew) {
            let newest = self.counted(slot).walk(bounds.first..bounds.next, true, most);
            let (first, held) = newest.map_err(|missing| Retry::sizes(i, missing))?;
            self.drop_before(op, i, slot, first, None)?;
            self.effect(op, i, slot, Effect::Held(held))?;
        }
        self.limit(op, i, slot, moment)
    }

    /// Returns the time by which readers at `now` judge the age of a log's entries. While new terms
    /// are not durable, this is the time at which the terms appended: the commit trims the entries
    /// that the old terms left out by then. Later, the old terms would leave out entries that the
    /// new terms may keep.
    pub fn seen_at(&self, key: &[u8], now: u64) -> u64 {
        let known = self.memtables().filter_map(|memtable| memtable.log(memtable.find(key)?).retained_at());
        known.min().map_or(now, |since| since.min(now))
    }
}
