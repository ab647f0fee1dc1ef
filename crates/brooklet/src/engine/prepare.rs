//! Prepares long commits, so that other commits hardly wait for them.
//!
//! The state appends a commit under its lock, as one. A commit of many operations is therefore
//! [rehearsed](crate::state::rehearsal) in portions first, and waits for the room that it needs.
//! Afterwards it is appended at the first try, as a rule, and holds the lock once. Its effects and
//! its record are [planned](crate::state::plan) before, if it is simple.
//!
//! The logs of the commit take much of the memory budget. If they were added while a checkpoint
//! runs, all others would wait for the end of that checkpoint. So the preparation begins after it,
//! and the next checkpoint begins later than usual: behind the commit, or after [`HOLD`].

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::Clock;

use crate::engine::Inner;
use crate::engine::append::{Attempt, Patience, Tried};
use crate::error::Error;
use crate::memtable::Memtable;
use crate::model::commit::Op;
use crate::model::rehearsal::{Plan, Rehearsal};
use crate::state::StoreState;
use crate::state::append::Retry;
use crate::state::retention::CommitClock;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{held, thread};

/// The operations that are rehearsed under one lock are this part of a commit that is just long
/// enough to be rehearsed: some tenths of a millisecond.
const PORTIONS: usize = 4;

/// Most turns of some milliseconds in which a commit waits for a checkpoint. If the heap is full,
/// the checkpoint may itself wait for commits that free space.
const TURNS: u32 = 500;

/// The rest between two portions. Threads that wait for the lock get it meanwhile.
const REST: Duration = Duration::from_micros(20);

/// Most times that a commit is rehearsed.
const ROUNDS: usize = 3;

/// Longest time after its preparation for which a commit still puts off a checkpoint.
const HOLD: Duration = Duration::from_secs(1);

/// A commit is planned if its plan takes at most this part of the memory budget.
const PLAN_SHARE: usize = 4;

impl Inner {
    /// Prepares a commit, if it is a long one: brings its logs to memory, and waits for the room
    /// that it needs. The needs are rounded up, so a failure says nothing of the commit.
    ///
    /// The caller must have [checked](Self::check) the operations.
    pub fn prepare(&self, ops: &[Op<'_>]) -> Rehearsal {
        let none = Rehearsal { ops: ops.len(), ..Rehearsal::default() };
        if ops.len() < self.options.long {
            return none;
        }
        // A commit in memory takes no room in the ring and in the heap.
        if self.memory_spaces.of(ops[0].key).is_some() {
            return none;
        }
        let prepared =
            self.writable().and_then(|wal| Attempt::new(self, wal, ops, None, Patience::Room).prepare());
        prepared.unwrap_or_else(|error| {
            tracing::debug!(%error, "a long commit was not prepared");
            none
        })
    }

    /// Returns the bytes of the active memtable beyond which a checkpoint is due.
    pub(super) fn memory_before_checkpoint(&self) -> usize {
        let budget = self.options.memory_budget;
        if self.preparations.puts_off(&*self.options.clock) { budget / 8 * 7 } else { budget / 2 }
    }

    /// Ends the hold of a prepared commit, which has ended.
    pub(super) fn end_hold(&self) {
        self.preparations.held_until.store(0, Ordering::Relaxed);
    }
}

/// The preparations of commits, which put off checkpoints.
#[derive(Default)]
pub(super) struct Preparations {
    /// Number of commits that are being prepared.
    running: AtomicU32,
    /// The time, in nanoseconds of the monotonic clock, until which a checkpoint is put off for the
    /// commit that was prepared last; 0 if none was.
    held_until: AtomicU64,
}

impl Preparations {
    fn puts_off(&self, clock: &dyn Clock) -> bool {
        let held_until = self.held_until.load(Ordering::Relaxed);
        self.running.load(Ordering::Relaxed) > 0 || held_until > 0 && nanos(clock.now()) < held_until
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A preparation: counts while it exists, and then holds checkpoints off for its commit.
struct Preparing<'a>(&'a Inner);

impl<'a> Preparing<'a> {
    fn begin(inner: &'a Inner) -> Self {
        inner.preparations.running.fetch_add(1, Ordering::Relaxed);
        Self(inner)
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        let Inner { preparations, options, .. } = self.0;
        preparations.held_until.store(nanos(options.clock.now() + HOLD), Ordering::Relaxed);
        preparations.running.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a> Attempt<'a> {
    /// Prepares the commit.
    fn prepare(&mut self) -> Result<Rehearsal, Error> {
        if self.inner.options.threads {
            self.wait_for_checkpoint()?;
        }
        let _preparing = Preparing::begin(self.inner);
        let most = self.inner.options.memory_budget / PLAN_SHARE;
        let mut rehearsal = Rehearsal::default();
        for _ in 0..ROUNDS {
            let generation = self.inner.state().generation();
            let plan = Some(Plan::default());
            rehearsal = Rehearsal { ops: self.ops.len(), plan, ..Rehearsal::default() };
            for ops in self.ops.chunks((self.inner.options.long / PORTIONS).max(1)) {
                if !self.rehearse(ops, &mut rehearsal)? {
                    return Ok(Rehearsal { plan: None, ..rehearsal });
                }
                rehearsal.plan = rehearsal.plan.and_then(|plan| plan.encode(ops, most));
                if self.inner.options.threads {
                    thread::park_timeout(REST);
                }
            }
            let needs = rehearsal.needs;
            let ready = self.until(|attempt, state| {
                state.has_room(attempt.wal, &needs)?;
                Ok(state.generation() == generation)
            })?;
            if let Tried::Done(true) = ready {
                break;
            }
            // A checkpoint has begun: the logs are not in the active memtable any more.
        }
        rehearsal.plan = rehearsal.plan.filter(|plan| plan.is_of(self.ops));
        Ok(rehearsal)
    }

    /// Waits for the end of a checkpoint that runs, or that memory or the ring needs before they
    /// have room for the commit. If others write so fast that the next one runs already, the commit
    /// waits no longer. A commit that only frees space does not wait if the heap is short of room:
    /// the checkpoint may need the commit.
    fn wait_for_checkpoint(&mut self) -> Result<(), Error> {
        let payloads: usize = self.ops.iter().map(|op| op.key.len() + op.action.payload_len()).sum();
        let logs: usize = self.ops.iter().map(|op| Memtable::cost_of_log(op.key)).sum();
        let memory = (self.inner.options.memory_budget / 8 * 7).saturating_sub(payloads + logs);
        let ring = (self.inner.ring.limit() / 2).saturating_sub(payloads as u64);
        let begun = self.inner.state().generation();
        let turns = Cell::new(0);
        let is_ready = |attempt: &mut Self, state: &mut StoreState| {
            let inner = attempt.inner;
            let is_full = state.active.bytes() > memory || inner.used.load(Ordering::Relaxed) > ring;
            let is_due = is_full && state.active.claim() > 0 && state.generation() == begun;
            let is_over = state.frozen.is_none() && !is_due || state.generation() > begun + 1;
            let is_short = state.pressure().is_some() || held(&inner.stalled).is_some();
            let is_needed = is_short && state.frees(attempt.ops);
            if is_over || is_needed || turns.replace(turns.get() + 1) == TURNS {
                return Ok(());
            }
            inner.wanted.fetch_or(state.frozen.is_none(), Ordering::Relaxed);
            inner.held_back.store(true, Ordering::Relaxed);
            Err(Retry::Checkpoint)
        };
        self.until(is_ready).map(drop)
    }

    /// Rehearses the next operations. Returns `false` if only the commit as a whole can end them,
    /// or find out why they are refused.
    fn rehearse(&mut self, ops: &'a [Op<'a>], rehearsal: &mut Rehearsal) -> Result<bool, Error> {
        loop {
            let mut state = self.inner.state();
            if !self.learn(&mut state) {
                drop(state);
                self.wait_for_import::<()>()?;
                continue;
            }
            let clock = CommitClock::new(&*self.inner.options.clock);
            let unknown = match state.rehearse(ops, &clock, rehearsal) {
                Ok(()) => return Ok(true),
                Err(Retry::Unknown(unknown)) => unknown,
                Err(_) => return Ok(false),
            };
            let runs = Arc::clone(&state.runs);
            drop(state);
            self.looked = true;
            self.look_up_logs(ops, runs, &unknown)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use brooklet_io::{ManualClock, MemVolume};

    use super::*;
    use crate::model::commit::Action;
    use crate::state::admission::SpaceBudget;
    use crate::{Commit, Options, Retention, SpaceConfig, Store};

    const LONG: usize = 4_000;

    fn options() -> Options {
        Options::new().ring_size(4 << 20).memory_budget(8 << 20).threads(false).rng_seed(5)
    }

    fn store() -> Store {
        options().create_on(Arc::new(MemVolume::new(1))).unwrap()
    }

    /// The needs of all portions are at least those of the commit, and little more.
    #[test]
    fn portions_need_about_as_much_as_the_commit() {
        let store = store();
        let inner = store.inner();
        let key = |n: usize| format!("log/{}", n / 2);
        let keys: Vec<String> = (0..2 * LONG).map(key).collect();
        let ops: Vec<Op<'_>> =
            keys.iter().map(|key| Op { key: key.as_bytes(), action: Action::Append(b"payload") }).collect();
        let claims = inner.state().claims();
        let mut attempt = Attempt::new(inner, inner.writable().unwrap(), &ops, None, Patience::Room);
        let mut rehearsal = Rehearsal::default();
        for ops in ops.chunks(LONG / PORTIONS) {
            assert!(attempt.rehearse(ops, &mut rehearsal).unwrap(), "nothing is in the way");
        }
        drop(attempt);
        assert_eq!(inner.state().claims(), claims);
        drop(store.write(&ops, None, true).unwrap());
        let claimed = inner.state().claims() - claims;
        let excess = rehearsal.needs.space.claim - claimed;
        assert!(claimed > 0 && excess < claimed / 100, "{claimed} and {excess}");
    }

    /// Where room is short, these commits have a limit of their own.
    #[test]
    fn a_commit_adds_little_only_beside_what_it_drops() {
        let store = store();
        for key in ["a", "b"] {
            store.append_many(key, ["1", "2"]).unwrap().wait().unwrap();
        }
        store.append("one", "1").unwrap().wait().unwrap();
        drop(store.set_retention("ring", Retention::new().entries(2)).unwrap());
        store.append_many("ring", ["1", "2"]).unwrap().wait().unwrap();
        let inner = store.inner();
        inner.state().room.set_budget(SpaceBudget { most_freeing: 1 << 20, ..SpaceBudget::default() });
        let needs = |actions: &[(&str, Action<'_>)]| {
            let ops = actions.iter().map(|&(key, action)| Op { key: key.as_bytes(), action });
            let ops: Vec<Op<'_>> = ops.collect();
            let mut rehearsal = Rehearsal::default();
            let clock = CommitClock::new(&*inner.options.clock);
            assert!(inner.state().rehearse(&ops, &clock, &mut rehearsal).is_ok());
            let space = rehearsal.needs.space;
            assert!(space.little || !space.freeing);
            assert!(space.little || !space.frees_much);
            (space.little && !space.freeing).then_some(space.frees_much)
        };
        let frees_much = |actions: &[(&str, Action<'_>)]| needs(actions) == Some(true);
        let is_little = |actions: &[(&str, Action<'_>)]| needs(actions).is_some();
        let (note, limit) = (Action::Append(b"note"), Action::Retain(Retention::new().entries(1)));
        assert!(is_little(&[("a", Action::Trim(1)), ("b", note)]));
        assert!(is_little(&[("a", Action::Delete), ("journal", note)]));
        assert!(is_little(&[("a", Action::Snapshot(b"state"))]));
        assert!(is_little(&[("one", Action::Snapshot(b"state"))]));
        assert!(!is_little(&[("new", Action::Snapshot(b"state"))]), "it drops nothing");
        assert!(is_little(&[("a", limit)]));
        assert!(!is_little(&[("a", Action::Trim(1))]), "it adds nothing");
        assert!(!is_little(&[("a", note)]) && !is_little(&[("a", Action::Trim(0)), ("a", note)]));
        assert!(!is_little(&[("a", Action::Delete), ("b", Action::Append(&[7; 4000]))]));
        assert!(!is_little(&[("new", limit)]));
        assert!(!is_little(&[("ring", note)]), "the log drops as much as it gets");
        assert!(is_little(&[("ring", note), ("a", Action::Delete)]));
        // Any work is worthwhile for these, and not for what drops as much as it adds.
        assert!(frees_much(&[("a", Action::Delete), ("b", note)]) && frees_much(&[("a", limit)]));
        assert!(frees_much(&[("a", Action::Trim(2)), ("b", note)]));
        assert!(frees_much(&[("a", Action::Snapshot(b"state"))]));
        assert!(!frees_much(&[("one", Action::Snapshot(b"state"))]));
        assert!(!frees_much(&[("a", Action::Trim(1)), ("b", note)]));
        assert!(!frees_much(&[("a", Action::Truncate(1)), ("a", note)]));
        assert!(!is_little(&[("a", Action::Delete), ("longer", Action::Begin(5)), ("b", note)]));
    }

    /// The rehearsal of a commit is no commit.
    #[test]
    fn a_quota_refuses_a_long_commit_once() {
        let store = store();
        let space = store.create_space("s", SpaceConfig::new().max_logs(10)).unwrap();
        let mut commit = Commit::new();
        (0..2 * LONG).for_each(|n| _ = commit.append(format!("{n}"), "payload"));
        assert!(matches!(space.commit(&commit), Err(Error::QuotaReached { .. })));
        assert_eq!(space.info().unwrap().refused, 1);
    }

    /// The logs rest in a run, and the ring must grow for the commit.
    #[test]
    fn a_prepared_commit_appends_at_the_first_try() {
        let volume = MemVolume::new(1);
        let options = || {
            let options = Options::new().ring_size(4 << 20).with_first_ring(128 << 10);
            options.memory_budget(8 << 20).max_payload(9 << 10).threads(false).rng_seed(5)
        };
        let store = options().create_on(Arc::new(volume.clone())).unwrap();
        let keys: Vec<String> = (0..2 * LONG).map(|n| format!("log/{n}")).collect();
        let ops: Vec<Op<'_>> =
            keys.iter().map(|key| Op { key: key.as_bytes(), action: Action::Append(b"payload") }).collect();
        drop(store.write(&ops, None, true).unwrap());
        store.checkpoint().unwrap();
        store.close().unwrap();
        drop(store);
        let store = options().open_on(Arc::new(volume)).unwrap();
        let inner = store.inner();
        let at_once = |rehearsal| inner.append(&ops, None, Patience::None, rehearsal);
        assert!(matches!(at_once(None), Ok(Tried::MustRead)));
        let rehearsal = inner.prepare(&ops);
        assert!(matches!(at_once(Some(&rehearsal)), Ok(Tried::Done(_))));
    }

    #[test]
    fn a_checkpoint_begins_later_while_a_commit_is_prepared() {
        let clock = Arc::new(ManualClock::default());
        let store = options().clock(clock.clone()).create_on(Arc::new(MemVolume::new(1))).unwrap();
        let inner = store.inner();
        let budget = inner.options.memory_budget;
        let (usual, late) = (budget / 2, budget / 8 * 7);
        assert_eq!(inner.memory_before_checkpoint(), usual);
        let (first, second) = (Preparing::begin(inner), Preparing::begin(inner));
        drop(first);
        inner.end_hold();
        assert_eq!(inner.memory_before_checkpoint(), late, "another commit is being prepared");
        drop(second);
        assert_eq!(inner.memory_before_checkpoint(), late, "its commit follows");
        clock.advance(HOLD);
        assert_eq!(inner.memory_before_checkpoint(), usual, "its commit does not follow");
        drop(Preparing::begin(inner));
        inner.end_hold();
        assert_eq!(inner.memory_before_checkpoint(), usual, "its commit has ended");
    }

    /// Such a commit takes no room of the store. In an earlier state, its preparation waited for a
    /// checkpoint, and put the next one off.
    #[test]
    fn a_commit_on_a_space_in_memory_is_not_prepared() {
        let clock = Arc::new(ManualClock::default());
        let store = options().clock(clock).create_on(Arc::new(MemVolume::new(1))).unwrap();
        let memory = crate::Class::Memory(crate::MemoryConfig::new(64 << 20));
        let space = store.create_space("s", SpaceConfig::new().class(memory)).unwrap();
        let mut commit = Commit::new();
        (0..8_000).for_each(|n| _ = commit.append(format!("{n}"), "payload"));
        let usual = store.inner().memory_before_checkpoint();
        space.prepare(&mut commit).unwrap();
        assert_eq!(store.inner().memory_before_checkpoint(), usual);
        space.commit(&commit).unwrap().wait().unwrap();
        assert_eq!(space.bounds("7999").unwrap().next, 1);
    }
}
