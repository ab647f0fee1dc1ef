//! The append step: applies a commit to the state of its logs, numbers its entries, and adds its
//! record to the log's open block.
//!
//! The step looks up the bounds of every log, checks the commit's expectations, computes each
//! operation's effect, writes the record, and stores the new bounds. No other commit may come in
//! between, and the step must not wait for a disk. The bounds of logs that are in no memtable are
//! therefore looked up before, without the lock ([`Retry::Unknown`] names them). The step is
//! repeated if the runs got other states of logs meanwhile.
//!
//! Invariants:
//! 1. Under one lock: the order of records in the ring is the order of numbers in every log.
//! 2. A commit that fails leaves no trace: its changes to the appended bounds are undone in
//!    reverse.
//! 3. Effects become visible in the order of the blocks, and a commit's effects all at once.
//!
//! `retention.rs` computes the entries that retention drops; `admission.rs` checks the room in the
//! heap.

use std::collections::BTreeSet;
use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_wal::{Appended, Wal, WalError};

use crate::error::{Error, Expected, Found, KeyText};
use crate::memtable::entry_sizes::SizeQuery;
use crate::memtable::seqs::Seqs;
use crate::memtable::{Limited, Memtable, Slot};
use crate::model::commit::{Action, Durability, EnrollScope, Op};
use crate::model::rehearsal::{Needs, Rehearsal, SpaceRequest};
use crate::model::retention::Retention;
use crate::model::retention_state::{COUNTED, State, retention};
use crate::model::{Bounds, Effect, Piece};
use crate::run::RunSet;
use crate::state::planned::{Planned, encode_all};
use crate::state::retention::CommitClock;
use crate::state::spaces::Share;
use crate::state::undo::Undo;
use crate::state::{PendingBlock, StoreState};

/// Number of effects that are moved with their memory, rather than copied.
const MANY: usize = 1_000;

/// The reason why a commit did not append.
pub(crate) enum Retry {
    /// The bounds of these logs (by operation) must be looked up in the runs first.
    Unknown(Vec<usize>),
    /// The sizes of some entries, of the logs of these operations, must be looked up first.
    Sizes(Vec<(usize, SizeQuery)>),
    /// The commit is refused for good.
    Error(Error),
    /// A log of the commit is in a memory space.
    InMemory,
    /// There is no room in the ring now.
    NoRoom(WalError),
    /// There is no room in the heap now.
    Short(SpaceRequest),
    /// A checkpoint must end before the preparation of a long commit begins.
    Checkpoint,
}

impl From<Error> for Retry {
    fn from(error: Error) -> Self {
        Retry::Error(error)
    }
}

impl Retry {
    /// Requests a look-up of sizes for the log of operation `i`.
    pub(super) fn sizes(i: usize, missing: SizeQuery) -> Self {
        Retry::Sizes(vec![(i, missing)])
    }
}

impl From<WalError> for Retry {
    fn from(error: WalError) -> Self {
        match error {
            WalError::Full { .. } | WalError::Busy => Retry::NoRoom(error),
            error => Retry::Error(error.into()),
        }
    }
}

/// A commit that appended.
pub(crate) struct Accepted {
    pub appended: Appended,
    /// The numbers of all entries, in the order of the operations that added them.
    pub seqs: Seqs,
    /// Whether the commit is acknowledged at once.
    pub deferred: bool,
}

/// The steps that a commit needs beside its effects. They are found in the one pass that reads all
/// operations and logs anyway: of a long commit, no cache holds these for a second pass.
#[derive(Default)]
struct Extras {
    /// Whether an operation expects a state of its log.
    expects: bool,
    /// Whether an operation counts a log in the totals of its space.
    enrolls: bool,
    /// Whether the sizes of entries may have to be counted.
    sizes: bool,
}

impl StoreState {
    /// Returns the slot of a log in the active memtable. If necessary, copies the log's state there
    /// from the frozen memtable or from the bounds cache.
    pub(super) fn slot(&mut self, key: &[u8]) -> Option<Slot> {
        if let Some(slot) = self.active.find(key) {
            return Some(slot);
        }
        let frozen = self.frozen.as_ref().filter(|_| !bug("remembered-before-frozen"));
        let frozen = frozen.and_then(|memtable| Some(memtable.log(memtable.find(key)?)));
        let (state, sizes) = match frozen {
            Some(log) => (log.state(), log.take_sizes()),
            None => (State::without_terms(self.bounds_cache.get(key)?), None),
        };
        let next = state.bounds.map_or(0, |bounds| bounds.next);
        let slot = self.active.add(key, state);
        if let Some(mut sizes) = sizes {
            sizes.freeze(next);
            self.keep_sizes(slot, sizes);
        }
        Some(slot)
    }

    /// Returns whether the memtables know that a log does not exist.
    pub(super) fn is_absent(&self, key: &[u8]) -> bool {
        let known =
            |memtable: &Memtable| memtable.find(key).map(|slot| memtable.log(slot).appended.is_none());
        self.memtables().find_map(known).unwrap_or(false)
    }

    /// Returns whether operations create no more logs than they delete, and no larger ones, and
    /// make no log larger, as far as memory knows. Such a commit is admitted even if other
    /// resources are full.
    pub fn frees(&self, ops: &[Op<'_>]) -> bool {
        let (mut created, mut deleted) = ((0, 0), (0, 0));
        for op in ops {
            match op.action {
                Action::Begin(_) if self.is_absent(op.key) => {
                    created = (created.0 + 1, created.1 + op.key.len());
                }
                // A log may have entries, and frees one byte more then.
                Action::Delete => deleted = (deleted.0 + 1, deleted.1 + op.key.len() + 1),
                action if action.adds() => return false,
                _ => {}
            }
        }
        created.0 <= deleted.0 && created.1 <= deleted.1
    }

    /// Adds the state that a log has in `runs` to the active memtable, unless the log was added, or
    /// moved to memory, or the runs got other states meanwhile. Returns `false` if the caller has
    /// to wait, because an import may add the log at any moment.
    pub fn learn(&mut self, runs: &RunSet, key: &[u8], state: State) -> bool {
        // First: a memtable must not keep an old state of a log in memory.
        if self.spaces.is_in_memory(key) {
            return true;
        }
        if self.ingesting && (state.bounds.is_none() || self.is_absent(key)) {
            return false;
        }
        if self.runs.has_states_of(runs) && self.slot(key).is_none() {
            self.active.add(key, state);
        }
        true
    }

    /// Appends a commit. On failure, returns the reason.
    pub fn append(
        &mut self,
        wal: &Wal,
        (ops, rehearsal): (&[Op<'_>], Option<&Rehearsal>),
        asked: Option<Durability>,
        linger: Duration,
        moment: &CommitClock<'_>,
    ) -> Result<Accepted, Retry> {
        if ops.iter().any(|op| self.spaces.is_in_memory(op.key)) {
            return Err(Retry::InMemory);
        }
        let durability = self.spaces.durability(ops, asked);
        if let Some(rehearsal) = rehearsal
            && let Some(accepted) = self.append_planned(wal, (ops, rehearsal), durability, linger, moment)
        {
            self.spaces.note(ops);
            return Ok(accepted);
        }
        let slots = rehearsal.map_or(&[][..], |rehearsal| &rehearsal.slots);
        self.begin_plan();
        let result =
            self.plan(ops, slots, moment).and_then(|()| self.write(wal, ops, durability, linger, moment));
        if let Err(Retry::Error(Error::QuotaReached { space, .. })) = &result {
            self.spaces.note_refused(space);
        }
        match &result {
            Ok(_) => self.spaces.note(ops),
            Err(_) if bug("refused-commit-leaves-traces") => {}
            Err(_) => self.undo(ops),
        }
        result
    }

    /// Begins a plan.
    pub(super) fn begin_plan(&mut self) {
        self.undo.clear();
        self.plan.clear();
        self.spaces.begin();
    }

    /// Undoes the planned effects.
    pub(super) fn undo(&mut self, ops: &[Op<'_>]) {
        for (undo, planned) in self.undo.drain(..).zip(&self.plan).rev() {
            let slot = undo.slot;
            let share =
                |memtable: &Memtable| Share::of(memtable.log(slot).appended, memtable.log(slot).terms());
            let before = share(&self.active);
            undo.apply(&mut self.active);
            self.spaces.shift(ops[planned.op].key, before, share(&self.active));
        }
    }

    /// Computes the effect of every operation on the appended bounds.
    pub(super) fn plan(
        &mut self,
        ops: &[Op<'_>],
        slots: &[Slot],
        moment: &CommitClock<'_>,
    ) -> Result<(), Retry> {
        let extras = self.find_all(ops, slots)?;
        if extras.sizes {
            self.count_sizes(ops);
        }
        if extras.expects {
            self.check_all(ops)?;
        }
        let (mut missing, mut incomplete) = (Vec::new(), BTreeSet::new());
        for (i, op) in ops.iter().enumerate() {
            let slot = self.slots[i];
            // Later operations on a log depend on the sizes, too.
            if incomplete.contains(&slot) {
                continue;
            }
            match self.plan_one(op, i, slot, moment) {
                Err(Retry::Sizes(more)) => {
                    missing.extend(more);
                    incomplete.insert(slot);
                }
                planned => planned?,
            }
        }
        if !missing.is_empty() {
            return Err(Retry::Sizes(missing));
        }
        // Logs that are older than a quota are counted, and not refused.
        if extras.enrolls {
            return Ok(());
        }
        Ok(self.spaces.check_quotas()?)
    }

    /// Computes the effects of one operation.
    fn plan_one(&mut self, op: &Op<'_>, i: usize, slot: Slot, moment: &CommitClock<'_>) -> Result<(), Retry> {
        let bounds = self.active.log(slot).appended;
        let known = || bounds.ok_or_else(|| Error::UnknownLog { key: KeyText::of(op.key) });
        match op.action {
            Action::Expect(_) => {}
            Action::Append(_) | Action::Snapshot(_) => {
                let seq = bounds.map_or(0, |b| b.next);
                if bounds.is_none()
                    && let Some((retention, space)) = self.spaces.given(op.key)
                {
                    self.give(op, i, slot, retention, space, moment)?;
                }
                self.mark(op, i, slot, moment)?;
                self.effect(op, i, slot, Effect::Append(seq))?;
                // A log without entries so far has none to trim.
                if matches!(op.action, Action::Snapshot(_)) && seq > 0 {
                    self.trim_behind(op, i, slot, seq)?;
                }
                self.limit(op, i, slot, moment)?;
            }
            Action::Trim(before) => {
                known()?;
                // Trimming entries that are already trimmed changes nothing, and is not an error.
                let before = before.max(self.kept(slot, moment));
                self.cut(op, i, slot, Effect::Trim(before))?;
            }
            Action::Begin(first) => self.begin(op, i, slot, first, moment)?,
            Action::KeepLast(n) => {
                let before = known()?.next.saturating_sub(n).max(self.kept(slot, moment));
                self.cut(op, i, slot, Effect::Trim(before))?;
            }
            Action::Truncate(from) => {
                known()?;
                // Entries that readers do not see any more are gone. A truncation cannot cut
                // them off.
                self.limit(op, i, slot, moment)?;
                self.cut(op, i, slot, Effect::Truncate(from))?;
            }
            Action::Retain(retention) => {
                if !retention.is_limited() {
                    known()?;
                }
                let counts = self.active.log(slot).terms().map_or(0, |terms| terms.space);
                let space = self.spaces.given(op.key).map_or(counts, |(_, space)| space.max(counts));
                self.give(op, i, slot, retention, space, moment)?;
            }
            Action::Enroll(gives) => self.enroll(op, i, slot, gives, moment)?,
            Action::ExpiryPass => self.limit(op, i, slot, moment)?,
            Action::Delete => {
                known()?;
                self.effect(op, i, slot, Effect::Delete)?;
            }
        }
        Ok(())
    }

    /// Checks all expectations.
    fn check_all(&self, ops: &[Op<'_>]) -> Result<(), Error> {
        for (op, &slot) in ops.iter().zip(&self.slots) {
            if let Action::Expect(expected) = op.action {
                check(op.key, expected, self.active.log(slot).appended)?;
            }
        }
        Ok(())
    }

    /// Makes a log begin at `first`. Creates the log if it does not exist.
    fn begin(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        first: u64,
        moment: &CommitClock<'_>,
    ) -> Result<(), Retry> {
        match self.active.log(slot).appended {
            Some(bounds) => {
                let before = first.min(bounds.next).max(self.kept(slot, moment));
                self.cut(op, i, slot, Effect::Trim(before))?;
                if first <= bounds.next {
                    return Ok(());
                }
            }
            None => {
                if let Some((retention, space)) = self.spaces.given(op.key) {
                    self.give(op, i, slot, retention, space, moment)?;
                }
            }
        }
        Ok(self.effect(op, i, slot, Effect::Begin(first))?)
    }

    /// Sets the retention of a log, and counts the log in the totals of space number `space`; 0 is
    /// no space.
    fn give(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        retention: Retention,
        space: u64,
        moment: &CommitClock<'_>,
    ) -> Result<(), Retry> {
        let bytes = retention.bytes.or((space > 0).then_some(COUNTED));
        self.retain(op, i, slot, Retention { bytes, ..retention }, moment)?;
        let counts = self.active.log(slot).terms().map_or(0, |terms| terms.space);
        if counts == space { Ok(()) } else { Ok(self.effect(op, i, slot, Effect::Count(space))?) }
    }

    /// Gives a log the settings of its space that the log does not have yet.
    fn enroll(
        &mut self,
        op: &Op<'_>,
        i: usize,
        slot: Slot,
        gives: EnrollScope,
        moment: &CommitClock<'_>,
    ) -> Result<(), Retry> {
        let log = self.active.log(slot);
        let Some(space) = self.spaces.of(op.key).filter(|_| log.appended.is_some()) else { return Ok(()) };
        let counts = log.terms().map_or(0, |terms| terms.space);
        let own = retention(log.terms());
        let space = self.spaces.get(space);
        let number = if space.config.has_quota() { space.number() } else { counts };
        let given = gives == EnrollScope::All || gives == EnrollScope::Unlimited && !own.is_limited();
        let wanted = if given { space.retention_of(op.key) } else { own };
        if counts == number && own == wanted {
            return Ok(());
        }
        self.give(op, i, slot, wanted, number, moment)
    }

    /// Finds the log of every operation: in its slot, if that is known and still right. Adds the
    /// logs that are certainly new. Returns the steps that the commit needs beside its effects.
    fn find_all(&mut self, ops: &[Op<'_>], slots: &[Slot]) -> Result<Extras, Retry> {
        if self.ingesting && ops.iter().any(|op| self.is_absent(op.key)) {
            return Err(Retry::NoRoom(WalError::Busy));
        }
        self.slots.clear();
        let mut unknown = Vec::new();
        let nothing = self.runs.is_empty() && !self.ingesting;
        let mut extras = Extras { sizes: self.spaces.any_gives(), ..Extras::default() };
        for (i, op) in ops.iter().enumerate() {
            match op.action {
                Action::Expect(_) => extras.expects = true,
                Action::Enroll(_) => extras.enrolls = true,
                Action::Retain(_) => extras.sizes = true,
                _ => {}
            }
            let known = slots.get(i).copied().filter(|&slot| self.active.is_at(slot, op.key));
            match known.or_else(|| self.slot(op.key)) {
                Some(slot) => {
                    extras.sizes |= self.active.log(slot).limited.is_some();
                    self.slots.push(slot);
                }
                None if nothing => self.slots.push(self.active.add(op.key, State::default())),
                None => unknown.push(i),
            }
        }
        if unknown.is_empty() { Ok(extras) } else { Err(Retry::Unknown(unknown)) }
    }

    pub(super) fn effect(&mut self, op: &Op<'_>, i: usize, slot: Slot, effect: Effect) -> Result<(), Error> {
        let log = self.active.log_mut(slot);
        let share = Share::of(log.appended, log.terms());
        let mut piece = Piece::on_top_of(log.appended);
        if piece.apply(effect).is_none() {
            let bounds = log.appended.unwrap_or_default();
            let (Effect::Append(asked) | Effect::Trim(asked) | Effect::Truncate(asked)) = effect else {
                return Err(Error::UnknownLog { key: KeyText::of(op.key) });
            };
            return Err(Error::OutOfRange {
                key: KeyText::of(op.key),
                asked,
                first: bounds.first,
                next: bounds.next,
            });
        }
        let mut undo = Undo { slot, bounds: log.appended, touched: log.touched, terms: None, cut: None };
        (log.appended, log.touched) = (piece.bounds, true);
        if let Some(limited) = Limited::of(&mut log.limited, effect) {
            undo.terms = limited.appended.clone();
            let len = match op.action {
                Action::Append(payload) | Action::Snapshot(payload) => payload.len() as u32,
                _ => 0,
            };
            undo.cut = limited.append(effect, piece.bounds, len).map(Box::new);
            self.spaces.shift(op.key, share, Share::of(log.appended, log.terms()));
        }
        self.undo.push(undo);
        self.plan.push(Planned { op: i, effect, trims: false });
        Ok(())
    }

    /// Trims a log to the entry `seq`, whose append was planned last. Without limits, both are
    /// planned as one.
    fn trim_behind(&mut self, op: &Op<'_>, i: usize, slot: Slot, seq: u64) -> Result<(), Retry> {
        if self.active.log(slot).limited.is_some() {
            return self.cut(op, i, slot, Effect::Trim(seq));
        }
        self.active.log_mut(slot).appended = Some(Bounds { first: seq, next: seq + 1 });
        self.plan.last_mut().expect("the append was planned").trims = true;
        Ok(())
    }

    /// Writes the planned effects as one record.
    fn write(
        &mut self,
        wal: &Wal,
        ops: &[Op<'_>],
        durability: Durability,
        linger: Duration,
        moment: &CommitClock<'_>,
    ) -> Result<Accepted, Retry> {
        if self.plan.is_empty() {
            return Err(Error::EmptyCommit.into());
        }
        let mut needs = Needs::default();
        self.add_needs(ops, &mut needs);
        let Needs { space: request, record: bound, .. } = needs;
        self.admit(request)?;
        let table = self.table_request(ops);
        let (plan, undo, effects) = (&self.plan, &self.undo, &mut self.effects);
        effects.clear();
        let entries = plan.iter().zip(undo).map(|(planned, undo)| planned.entry(ops, undo));
        let encode = |out: &mut dyn FnMut(&[u8])| encode_all(out, entries, effects);
        let appended = wal.try_append(bound, request.freeing, durability.within(linger), encode)?;
        self.active.claims_for_table(table.map_or(0, |(claim, _)| claim));
        let accepted = self.accept(appended, request, durability, moment);
        if let Some(Op { key: [], action: Action::Snapshot(table) }) = ops.first() {
            self.spaces.apply(table).expect("it was just encoded");
        }
        Ok(accepted)
    }

    /// Records the effects of a commit that is in the log.
    pub(super) fn accept(
        &mut self,
        appended: Appended,
        request: SpaceRequest,
        durability: Durability,
        moment: &CommitClock<'_>,
    ) -> Accepted {
        for pending in &self.effects {
            let log = self.active.log_mut(pending.slot);
            log.goes_in_flight(pending);
            if let Effect::Age(_) = pending.effect {
                log.limited_mut().changes_at(moment.ms());
            }
        }
        self.accept_counted(appended, request, durability, moment)
    }

    /// Accepts effects like [`accept`](Self::accept), whose logs know that they are in flight.
    pub(super) fn accept_counted(
        &mut self,
        appended: Appended,
        request: SpaceRequest,
        durability: Durability,
        moment: &CommitClock<'_>,
    ) -> Accepted {
        let (active, effects) = (&mut self.active, &mut self.effects);
        active.claims(request.claim, request.largest);
        for pending in effects.iter_mut() {
            pending.offset += appended.offset as u32;
            if matches!(durability, Durability::Deferred(_)) {
                active.log_mut(pending.slot).deferred = appended.block.seq();
                self.last_deferred = appended.block.seq();
            }
        }
        let seqs = Seqs::of(effects);
        if self.pending.back().is_none_or(|p| p.block.seq() != appended.block.seq()) {
            let (block, generation) = (appended.block.clone(), self.generation);
            self.pending.push_back(PendingBlock { block, generation, effects: Vec::new(), deferred: None });
        }
        let block = self.pending.back_mut().expect("just seen to");
        assert!(block.generation == self.generation, "a block belongs to one tier");
        if block.effects.is_empty() && effects.len() > MANY {
            std::mem::swap(&mut block.effects, effects);
        } else {
            block.effects.append(effects);
        }
        let deferred = match durability {
            Durability::Durable => false,
            Durability::Deferred(bound) => self.defer(bound, moment.elapsed(), appended.earliest),
        };
        Accepted { appended, seqs, deferred }
    }

    /// Records that the last block holds a commit that is deferred by at most `bound`. The block
    /// may be written from `earliest` on. Returns whether the commit is acknowledged at once.
    fn defer(&mut self, bound: Duration, now: Duration, earliest: Duration) -> bool {
        if let Some(block) = self.pending.back_mut() {
            block.deferred.get_or_insert(now);
        }
        let oldest = self.pending.iter().find_map(|block| block.deferred).unwrap_or(now);
        // If the pace of the ring is slower, the commit is acknowledged once it is durable.
        let starts = earliest.saturating_sub(now);
        now.saturating_sub(oldest) <= bound && (starts <= bound / 2 || bug("deferred-ignores-the-pace"))
    }
}

fn check(key: &[u8], expected: Expected, bounds: Option<Bounds>) -> Result<(), Error> {
    let holds = match expected {
        Expected::Next(next) => bounds.map_or(0, |b| b.next) == next,
        Expected::Absent => bounds.is_none(),
    };
    let found = bounds.map_or(Found::Absent, |b| Found::Next(b.next));
    if holds { Ok(()) } else { Err(Error::Conflict { key: KeyText::of(key), expected, found }) }
}
