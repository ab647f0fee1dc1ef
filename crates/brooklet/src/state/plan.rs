//! The plan of a long commit: its effects and its record, made before the commit.
//!
//! The append step computes effects and encodes a record under the state's lock. For a commit of
//! 200,000 operations, that takes some 50 ms, and all others wait. The
//! [rehearsal](crate::state::rehearsal) computes the same effects, portion by portion. If the
//! commit is simple, as a commit of many snapshots or deletions is, the rehearsal keeps them, and
//! the record is encoded without the lock. The commit then checks that each log is as it was, and
//! copies the record.
//!
//! Invariants:
//! 1. A plan is used only if each log has its key, no limits, and the state for which its effect
//!    was planned. The payloads are those of the commit, which do not change. So the record has the
//!    bytes that the append step would write.
//! 2. A plan that does not hold, or for which there is no room, changes nothing. The append step
//!    decides about the commit then.

use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_wal::Wal;

use crate::format::commit_record;
use crate::model::Piece;
use crate::model::commit::{Durability, Op};
use crate::model::pending::Pending;
use crate::model::rehearsal::{Before, Plan, Rehearsal};
use crate::model::retention_state::State;
use crate::state::StoreState;
use crate::state::append::Accepted;
use crate::state::planned::{Planned, encode_all};
use crate::state::retention::CommitClock;

impl Plan {
    /// Returns the memory of the plan, in bytes.
    pub fn memory(&self) -> usize {
        self.record.len() + self.effects.len() * size_of::<(Pending, Before)>()
    }

    /// Encodes the newest effects, which are those of `ops`. Returns `None` if the plan would have
    /// more than `most` bytes, or if a log has two of these effects: no record is made then, which
    /// may be as long as all payloads together.
    pub fn encode(mut self, ops: &[Op<'_>], most: usize) -> Option<Self> {
        let first = self.effects.len() - ops.len();
        // The record has all keys and payloads, as long as each operation is on another log.
        let least: usize = ops.iter().map(|op| op.key.len() + op.action.payload_len()).sum();
        if self.memory().saturating_add(least) > most || has_two(&self.effects[first..]) {
            return None;
        }
        let begin = self.record.len();
        let entries = ops.iter().zip(&self.effects[first..]).zip(&self.before[first..]);
        let entries = entries.map(|((op, pending), before)| {
            let state = State { bounds: before.bounds.filter(|_| !before.touched), terms: None };
            let payload = op.action.payload_of(pending.effect);
            (commit_record::Entry { key: op.key, effect: pending.effect, before: state, payload }, *pending)
        });
        let mut effects = Vec::with_capacity(ops.len());
        let record = &mut self.record;
        encode_all(&mut |bytes| record.extend_from_slice(bytes), entries, &mut effects);
        for (place, pending) in self.effects[first..].iter_mut().zip(effects) {
            *place = Pending { offset: begin as u32 + pending.offset, ..pending };
        }
        (self.memory() <= most).then_some(self)
    }

    /// Returns whether these are the effects of all of `ops`, each on another log.
    pub fn is_of(&self, ops: &[Op<'_>]) -> bool {
        // Only the table of spaces has an empty key.
        let is_alone = ops.first().is_some_and(|op| !op.key.is_empty());
        self.effects.len() == ops.len() && is_alone && !has_two(&self.effects)
    }
}

/// Returns whether a log has two of these effects. The second was planned as if there were no
/// first.
fn has_two(effects: &[Pending]) -> bool {
    let mut slots: Vec<_> = effects.iter().map(|pending| pending.slot).collect();
    slots.sort_unstable();
    slots.windows(2).any(|pair| pair[0] == pair[1])
}

impl StoreState {
    /// Adds the current plan, which is that of the next operations of a rehearsed commit. Returns
    /// `None` if it is not simple.
    pub(super) fn keep_plan(&self, ops: &[Op<'_>], mut plan: Plan) -> Option<Plan> {
        let is_simple = self.plan.len() == ops.len()
            && self.plan.iter().enumerate().all(|(i, planned)| planned.op == i)
            && self.undo.iter().all(|undo| self.active.log(undo.slot).limited.is_none());
        if !is_simple {
            return None;
        }
        for (&Planned { effect, trims, .. }, undo) in self.plan.iter().zip(&self.undo) {
            plan.effects.push(Pending { slot: undo.slot, effect, offset: 0, len: 0, trims });
            plan.before.push(Before { bounds: undo.bounds, touched: undo.touched });
        }
        Some(plan)
    }

    /// Appends a commit by the plan of its rehearsal. Returns `None` if that is not possible, and
    /// has changed nothing then.
    pub(super) fn append_planned(
        &mut self,
        wal: &Wal,
        (ops, rehearsal): (&[Op<'_>], &Rehearsal),
        durability: Durability,
        linger: Duration,
        moment: &CommitClock<'_>,
    ) -> Option<Accepted> {
        let plan = rehearsal.plan.as_ref()?;
        let request = rehearsal.needs.space;
        // Beside the table of spaces, or an import, more than the logs of the commit counts.
        let is_alone = self.table_request(ops).is_none() && !self.ingesting;
        // Each portion of the rehearsal may add little, and the whole commit much.
        let may_add_much = request.little && !request.freeing;
        if !is_alone || may_add_much || self.admit(request).is_err() || !self.apply_plan(ops, plan) {
            return None;
        }
        let (len, within) = (plan.record.len(), durability.within(linger));
        let Ok(appended) = wal.try_append(len, request.freeing, within, |out| out(&plan.record)) else {
            self.undo_plan(plan, ops.len());
            return None;
        };
        self.effects.clear();
        self.effects.extend_from_slice(&plan.effects);
        Some(self.accept_counted(appended, request, durability, moment))
    }

    /// Applies the effects of a plan to the appended bounds of the logs, and notes that they are in
    /// flight: the logs are in no cache of the processor, so each is visited once. Returns `false`,
    /// and changes nothing, if a log is not as it was when its effect was planned.
    fn apply_plan(&mut self, ops: &[Op<'_>], plan: &Plan) -> bool {
        let steps = ops.iter().zip(&plan.effects).zip(&plan.before);
        for (i, ((op, pending), before)) in steps.enumerate() {
            let Some(after) = self.after(op.key, pending, before) else {
                self.undo_plan(plan, i);
                return false;
            };
            let log = self.active.log_mut(pending.slot);
            (log.appended, log.touched) = (after.bounds, true);
            log.goes_in_flight(pending);
        }
        true
    }

    /// Returns the state of a log after a planned effect; `None` if the effect has to be planned
    /// anew.
    fn after(&self, key: &[u8], pending: &Pending, before: &Before) -> Option<Piece> {
        if !self.active.is_at(pending.slot, key) {
            return None;
        }
        let log = self.active.log(pending.slot);
        let found = Before { bounds: log.appended, touched: log.touched };
        let is_as_planned = found == *before || bug("plans-are-not-checked");
        // A new log gets what its space gives.
        let is_given = found.bounds.is_none() && self.spaces.any_gives();
        if !is_as_planned || is_given || log.limited.is_some() {
            return None;
        }
        let mut piece = Piece::on_top_of(before.bounds);
        piece.apply(pending.effect)?;
        if let Some(trim) = pending.trim() {
            piece.apply(trim)?;
        }
        Some(piece)
    }

    /// Undoes the first effects of a plan. The bounds of what the memtable takes stay higher.
    fn undo_plan(&mut self, plan: &Plan, effects: usize) {
        for (pending, before) in plan.effects.iter().zip(&plan.before).take(effects) {
            let log = self.active.log_mut(pending.slot);
            (log.appended, log.touched) = (before.bounds, before.touched);
            log.in_flight -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use brooklet_io::MemVolume;
    use brooklet_wal::Block;

    use crate::engine::append::{Patience, Tried};
    use crate::model::commit::{Action, Op};
    use crate::model::rehearsal::{Plan, Rehearsal};
    use crate::state::admission::SpaceBudget;
    use crate::state::retention::CommitClock;
    use crate::{Commit, Error, Options, Retention, SpaceConfig, Store};

    fn store() -> Store {
        let options = Options::new().ring_size(4 << 20).memory_budget(8 << 20).threads(false).rng_seed(5);
        options.with_long_commits(8).create_on(Arc::new(MemVolume::new(1))).unwrap()
    }

    /// Makes logs in each state that memory knows: at rest in a run, with entries since, deleted.
    fn with_logs() -> Store {
        let store = store();
        for n in 0..24 {
            drop(store.append_many(format!("log/{n}"), ["one", "two", "three"]).unwrap());
        }
        store.checkpoint().unwrap();
        for n in 0..8 {
            drop(store.append(format!("log/{n}"), "four").unwrap());
        }
        (4..6).for_each(|n| drop(store.delete(format!("log/{n}")).unwrap()));
        store.flush().unwrap();
        store
    }

    fn many(each: impl Fn(&mut Commit, &str)) -> Commit {
        let mut commit = Commit::new();
        // Also logs that are deleted, and logs that are new.
        (0..30).for_each(|n| each(&mut commit, &format!("log/{n}")));
        commit
    }

    fn is_planned(commit: &Commit) -> bool {
        commit.rehearsal().is_some_and(|rehearsal| rehearsal.plan.is_some())
    }

    /// Returns the blocks in flight, all logs as of then, and the claim of the memtable.
    fn shown(store: &Store) -> (Vec<Arc<Block>>, Vec<String>, u64) {
        let state = store.inner().state();
        let blocks = state.pending.iter().map(|pending| pending.block.clone()).collect();
        let logs = state
            .active
            .logs
            .iter()
            .map(|log| format!("{:?} {:?} {} {}", &*log.key, log.appended, log.touched, log.in_flight));
        let mut logs: Vec<String> = logs.collect();
        logs.sort();
        (blocks, logs, state.active.claim())
    }

    /// Commits, and prepares nothing.
    fn commit_as_it_is(store: &Store, commit: &Commit) -> Result<Vec<u64>, Error> {
        let none = Rehearsal::default();
        let rehearsal = commit.rehearsal().unwrap_or(&none);
        match commit.with_ops(|ops| store.inner().append(ops, None, Patience::Room, Some(rehearsal)))? {
            Tried::Done(accepted) => Ok(accepted.seqs.as_slice().to_vec()),
            Tried::InMemory | Tried::MustRead => panic!("no log is in memory"),
        }
    }

    /// Commits once as prepared, and once without that. `between` runs after the preparation.
    fn compare(commit: &Commit, planned: bool, between: impl Fn(&Store)) {
        let ended = [true, false].map(|prepares| {
            let store = with_logs();
            let mut commit = commit.clone();
            if prepares {
                store.prepare(&mut commit).unwrap();
                assert_eq!(is_planned(&commit), planned);
            }
            between(&store);
            store.flush().unwrap();
            let seqs = commit_as_it_is(&store, &commit).map_err(|error| error.to_string());
            let (blocks, logs, claim) = shown(&store);
            store.flush().unwrap();
            let blocks: Vec<Vec<u8>> = blocks.iter().map(|block| block.data().to_vec()).collect();
            let bounds: Vec<_> = (0..30)
                .map(|n| store.bounds(format!("log/{n}")).map_err(|error| error.to_string()))
                .collect();
            (seqs, blocks, logs, claim, bounds)
        });
        assert_eq!(ended[0], ended[1]);
    }

    #[test]
    fn a_planned_commit_writes_the_same_bytes() {
        let nothing = |_: &Store| {};
        compare(&many(|commit, key| _ = commit.snapshot(key, format!("state of {key}"))), true, nothing);
        compare(&many(|commit, key| _ = commit.append(key, "more")), true, nothing);
        let mut cut = Commit::new();
        for n in 8..24 {
            let key = format!("log/{n}");
            match n % 4 {
                0 => cut.trim(key, 2),
                1 => cut.truncate(key, 1),
                2 => cut.keep_last(key, 1),
                _ => cut.delete(key),
            };
        }
        compare(&cut, true, nothing);
    }

    /// The most that the record of such a commit may take is four times of that.
    #[test]
    fn the_size_of_a_plan_is_that_of_its_record() {
        let store = store();
        let mut commit = Commit::new();
        (0..16_000).for_each(|n| _ = commit.snapshot(format!("{n}"), "state"));
        store.prepare(&mut commit).unwrap();
        assert!(is_planned(&commit));
        assert_eq!(store.commit(&commit).unwrap().seqs().len(), 16_000);
        store.flush().unwrap();
        assert_eq!(store.read("15999", ..).unwrap().next().unwrap().unwrap().payload, b"state"[..]);
    }

    /// The entries that one call appends to a log are such a commit, too. In an earlier state, the
    /// record of each portion was made before it was of no use.
    #[test]
    fn no_record_is_made_for_a_plan_that_is_not_kept() {
        let store = store();
        let inner = store.inner();
        let is_encoded = |keys: &[&'static str], most: usize| {
            let op = |key: &&'static str| Op { key: key.as_bytes(), action: Action::Append(b"payload") };
            let ops: Vec<Op<'_>> = keys.iter().map(op).collect();
            let mut rehearsal = Rehearsal { plan: Some(Plan::default()), ..Rehearsal::default() };
            let clock = CommitClock::new(&*inner.options.clock);
            assert!(inner.state().rehearse(&ops, &clock, &mut rehearsal).is_ok());
            rehearsal.plan.is_some_and(|plan| plan.encode(&ops, most).is_some())
        };
        assert!(is_encoded(&["a", "b", "c"], usize::MAX));
        assert!(!is_encoded(&["a", "b", "c"], 20), "the plan has more bytes");
        assert!(!is_encoded(&["a", "b", "a"], usize::MAX));
        assert!(!is_encoded(&["a", "a", "a"], usize::MAX));
    }

    #[test]
    fn commits_with_several_effects_on_a_log_have_no_plan() {
        let nothing = |_: &Store| {};
        compare(&many(|commit, _| _ = commit.append("log/1", "again")), false, nothing);
        compare(&many(|commit, key| _ = commit.append(key, "a").append(key, "b")), false, nothing);
        let limit = Retention::new().entries(2);
        compare(&many(|commit, key| _ = commit.set_retention(key, limit)), false, nothing);
        compare(&many(|commit, key| _ = commit.expect_next("log/1", 4).append(key, "a")), false, nothing);
    }

    #[test]
    fn a_plan_that_does_not_hold_is_made_again() {
        let snapshots = many(|commit, key| _ = commit.snapshot(key, "state"));
        compare(&snapshots, true, |store| drop(store.append("log/1", "another").unwrap()));
        compare(&snapshots, true, |store| drop(store.append("log/29", "another").unwrap()));
        compare(&snapshots, true, |store| drop(store.delete("log/9").unwrap()));
        compare(&snapshots, true, |store| drop(store.trim("log/9", 1).unwrap()));
        let limit = Retention::new().entries(1);
        compare(&snapshots, true, |store| drop(store.set_retention("log/9", limit).unwrap()));
        compare(&snapshots, true, |store| store.checkpoint().unwrap());
        let few = SpaceConfig::new().max_logs(1);
        compare(&snapshots, true, |store| drop(store.create_space("log", few.clone()).unwrap()));
        let deletions = many(|commit, key| _ = commit.delete(key));
        let late = || {
            let mut commit = Commit::new();
            (8..24).for_each(|n| _ = commit.delete(format!("log/{n}")));
            commit
        };
        assert!(with_logs().commit(&deletions).is_err(), "some are not there");
        compare(&late(), true, |store| drop(store.delete("log/9").unwrap()));
        compare(&late(), true, |store| drop(store.append("log/9", "another").unwrap()));
    }

    /// A commit remembers its plan, and may come to another store, or to another space.
    #[test]
    fn the_plan_of_another_place_is_not_used() {
        let (first, second) = (with_logs(), store());
        let mut commit = many(|commit, key| _ = commit.snapshot(key, "state"));
        first.prepare(&mut commit).unwrap();
        assert!(is_planned(&commit));
        assert_eq!(second.commit(&commit).unwrap().seqs(), [0; 30]);
        let [a, b] = ["a", "b"].map(|name| first.create_space(name, SpaceConfig::new()).unwrap());
        a.prepare(&mut commit).unwrap();
        assert!(is_planned(&commit));
        drop(b.commit(&commit).unwrap());
        first.flush().unwrap();
        assert!(b.exists("log/7").unwrap() && !a.exists("log/7").unwrap());
    }

    /// Each portion of this commit adds little beside what it drops, and the whole commit much.
    #[test]
    fn a_planned_commit_that_adds_much_takes_no_room_of_those_that_add_little() {
        let store = with_logs();
        let mut commit = Commit::new();
        for n in 8..16 {
            commit.delete(format!("log/{n}")).append(format!("log/{}", n + 8), [1_u8; 1000]);
        }
        let most = 1 << 20;
        let budget = SpaceBudget { most_little: most, most_freeing: most, ..SpaceBudget::default() };
        store.inner().state().room.set_budget(SpaceBudget { largest: 1 << 20, ..budget });
        store.prepare(&mut commit).unwrap();
        assert!(is_planned(&commit));
        let refused =
            commit.with_ops(|ops| store.inner().append(ops, None, Patience::Reads, commit.rehearsal()));
        assert!(matches!(refused, Err(Error::Busy { .. })));
    }
}
