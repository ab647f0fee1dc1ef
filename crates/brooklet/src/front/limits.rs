//! Boarding, for logs that keep a part of their entries only: what a commit drops by that, and the marks that it leaves.
//!
//! It is worked out on the boarded state, as all else is, and written as trims, so that replay and readers need not know
//! why an entry went. Sizes that no tier in memory knows are looked up before, without the lock, as bounds are
//! ([`Refused::Sizes`] names them).

use std::cell::Cell;

use brooklet_io::Clock;
use brooklet_io::seeded::bug;

use super::{Front, Refused};
use crate::commit::{Action, Op};
use crate::front::tally::{Missing, Sizes, Tally};
use crate::model::{Bounds, Effect};
use crate::recent::Slot;
use crate::retain::Retention;
use crate::runs::RunSet;
use crate::terms::Terms;

/// The wall clock as of one commit, asked once and only if need be.
pub(crate) struct Moment<'a> {
    clock: &'a dyn Clock,
    asked: Cell<Option<u64>>,
}

impl<'a> Moment<'a> {
    pub fn new(clock: &'a dyn Clock) -> Self {
        Self { clock, asked: Cell::new(None) }
    }

    /// In milliseconds since the Unix epoch.
    pub fn ms(&self) -> u64 {
        let now = self.asked.get().unwrap_or_else(|| wall(self.clock));
        self.asked.set(Some(now));
        now
    }
}

/// What the wall clock says, in milliseconds since the Unix epoch.
pub(crate) fn wall(clock: &dyn Clock) -> u64 {
    u64::try_from(clock.wall().as_millis()).unwrap_or(u64::MAX)
}

impl Front {
    /// Makes sure that the sizes of entries in memory are known where the commit may ask for them: what it does itself
    /// is counted as it is worked out.
    pub(super) fn count_sizes(&mut self, ops: &[Op<'_>]) {
        let wants = |op: &Op<'_>| matches!(op.action, Action::Retain(Retention { bytes: Some(_), .. }));
        for (i, op) in ops.iter().enumerate() {
            let slot = self.slots[i];
            let log = self.active.log(slot);
            let limited = log.terms().is_some_and(|terms| terms.bytes.is_some());
            let counted = log.limited.as_ref().is_some_and(|limited| limited.tally.is_some());
            let first = log.boarded.map_or(0, |bounds| bounds.first);
            let tally = match (limited || wants(op), counted) {
                (false, false) => continue,
                (true, false) => Some(self.tally(slot)),
                (true, true) => self.active.log_mut(slot).limited_mut().tally.take(),
                (false, true) => {
                    // Nobody wants it any more, unless another operation of the commit does.
                    let others = ops.iter().zip(&self.slots);
                    if others.into_iter().any(|(op, other)| *other == slot && wants(op)) {
                        continue;
                    }
                    None
                }
            };
            self.active.log_mut(slot).limited_mut().tally = tally.map(|tally| tally.pruned(first));
        }
    }

    /// The sizes of a log's entries that the tiers in memory hold, as boarded.
    fn tally(&self, slot: Slot) -> Tally {
        let frozen =
            self.frozen.as_deref().and_then(|tier| Some((tier, tier.find(&self.active.log(slot).key)?)));
        let tiers = [frozen.map(|(tier, slot)| (tier, slot, self.generation - 1))];
        let tiers = tiers.into_iter().flatten().chain([(&self.active, slot, self.generation)]);
        let mut tally: Option<Tally> = None;
        for (tier, slot, generation) in tiers {
            let log = tier.log(slot);
            let tally = tally.get_or_insert_with(|| Tally::new(log.origin().map_or(0, |b| b.next)));
            match log.piece() {
                Some(piece) if piece.bounds.is_none() => *tally = Tally::new(0),
                Some(piece) => tally.join(piece.held().start, log.sizes()),
                None => {}
            }
            let blocks = self.pending.iter().filter(|block| block.generation == generation);
            for effect in blocks.flat_map(|block| &block.effects).filter(|effect| effect.slot == slot) {
                match effect.effect {
                    Effect::Append(seq) => tally.join(seq, [effect.len]),
                    Effect::Truncate(next) => tally.truncate(next),
                    Effect::Delete => *tally = Tally::new(0),
                    _ => {}
                }
            }
        }
        tally.expect("the active tier was asked")
    }

    /// Takes down sizes that `runs` give of a log. Does nothing where other runs came meanwhile.
    pub fn learn_sizes(&mut self, runs: &std::sync::Arc<RunSet>, key: &[u8], sizes: &Sizes) {
        let same = std::sync::Arc::ptr_eq(runs, &self.runs);
        let Some(slot) = self.active.find(key).filter(|_| same) else { return };
        if let Some(tally) =
            self.active.log_mut(slot).limited.as_mut().and_then(|limited| limited.tally.as_mut())
        {
            tally.learn(sizes);
        }
    }

    fn terms(&self, slot: Slot) -> Option<&Terms> {
        self.active.log(slot).terms()
    }

    fn bounds(&self, slot: Slot) -> Bounds {
        self.active.log(slot).boarded.unwrap_or_default()
    }

    fn counted(&self, slot: Slot) -> &Tally {
        let limited = self.active.log(slot).limited.as_ref();
        limited.and_then(|limited| limited.tally.as_ref()).expect("sizes are counted where bytes are limited")
    }

    /// The bytes that a log of limited bytes holds once it has the entries `first..next` of those it has.
    fn left(&self, i: usize, slot: Slot, first: u64, next: u64) -> Result<Option<u64>, Refused> {
        let Some(Terms { bytes: Some(_), held, .. }) = self.terms(slot) else { return Ok(None) };
        let left = self.counted(slot).left(self.bounds(slot), *held, first, next);
        left.map(Some).map_err(|missing| Refused::Sizes(i, missing))
    }

    /// An effect that leaves a log its entries `first..next` of those it has, and the sum of their bytes.
    pub(super) fn cut(&mut self, op: &Op<'_>, i: usize, slot: Slot, effect: Effect) -> Result<(), Refused> {
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

    /// An effect that drops entries, and the bytes that are left then, where bytes are limited.
    fn drop_entries(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        effect: Effect,
        left: Option<u64>,
    ) -> Result<(), Refused> {
        self.effect(op, i, slot, effect)?;
        left.map_or(Ok(()), |left| Ok(self.effect(op, i, slot, Effect::Held(left))?))
    }

    /// What an entry needs to have gone before it: a mark of its time.
    pub(super) fn mark(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        moment: &Moment<'_>,
    ) -> Result<(), Refused> {
        let wanted = self.terms(slot).filter(|terms| terms.age.is_some());
        let Some(time) = wanted.and_then(|terms| terms.wanted_mark(moment.ms())) else { return Ok(()) };
        Ok(self.effect(op, i, slot, Effect::Mark(time))?)
    }

    /// The first entry that a log keeps by its number and its age.
    pub(super) fn kept(&self, slot: Slot, moment: &Moment<'_>) -> u64 {
        let bounds = self.bounds(slot);
        self.terms(slot).map_or(bounds.first, |terms| {
            let now = if terms.age.is_some() && !bug("age-comes-back") { moment.ms() } else { 0 };
            terms.kept(bounds, now)
        })
    }

    /// Drops what a log does not keep.
    pub(super) fn limit(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        moment: &Moment<'_>,
    ) -> Result<(), Refused> {
        let Some(terms) = self.terms(slot) else { return Ok(()) };
        let (bounds, bytes) = (self.bounds(slot), terms.bytes);
        let mut first = self.kept(slot, moment);
        let mut left = self.left(i, slot, first, bounds.next)?;
        if let (Some(left), Some(most)) = (&mut left, bytes) {
            // The newest entry stays.
            while *left > most && bounds.next - first > 1 {
                let size = self.counted(slot).size(first).map_err(|missing| Refused::Sizes(i, missing))?;
                *left = left.saturating_sub(size);
                first += 1;
            }
        }
        if first > bounds.first { self.drop_entries(op, i, slot, Effect::Trim(first), left) } else { Ok(()) }
    }

    /// Sets the terms of a log. What the old ones left out by now stays out.
    pub(super) fn retain(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        retention: Retention,
        moment: &Moment<'_>,
    ) -> Result<(), Refused> {
        self.limit(op, i, slot, moment)?;
        let counted = self.terms(slot).and_then(|terms| terms.bytes.map(|_| terms.held));
        let limit = |limit: Option<u64>| limit.map_or(0, |n| n + 1);
        let age = retention.age.map(|age| age.as_millis() as u64);
        self.effect(op, i, slot, Effect::Entries(limit(retention.entries)))?;
        self.effect(op, i, slot, Effect::Bytes(limit(retention.bytes)))?;
        self.effect(op, i, slot, Effect::Age(limit(age)))?;
        let bounds = self.bounds(slot);
        if !bounds.is_empty() && self.terms(slot).is_some_and(|terms| !terms.has_marks()) {
            self.mark(op, i, slot, moment)?;
        }
        // Where less stays than goes, what stays is counted.
        let anew = |most: &u64| counted.is_none_or(|held| *most < held / 2);
        if let Some(most) = retention.bytes.filter(anew) {
            let newest = self.counted(slot).newest(bounds, most);
            let (held, first) = newest.map_err(|missing: Missing| Refused::Sizes(i, missing))?;
            if first > bounds.first {
                self.effect(op, i, slot, Effect::Trim(first))?;
            }
            self.effect(op, i, slot, Effect::Held(held))?;
        }
        self.limit(op, i, slot, moment)
    }

    /// When readers look at the age of a log's entries, who ask at `now`: while new terms are on their way to disk, that
    /// is when those boarded. What was left out by then the commit trims; later, the old terms would leave out what the
    /// new ones may keep.
    pub fn seen_at(&self, key: &[u8], now: u64) -> u64 {
        let known = self.tiers().filter_map(|tier| tier.log(tier.find(key)?).retained_at());
        known.min().map_or(now, |since| since.min(now))
    }
}
