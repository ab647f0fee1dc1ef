//! Appends one commit to the log. The commit is tried until the state accepts it or finally refuses
//! it. After a refusal that can be resolved, a function resolves it: by a look-up in the runs, or
//! by a wait for room. Then the commit is tried again.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_wal::{Wal, WalError};

use crate::counters::{Counters, Stall, StallReason};
use crate::engine::Inner;
use crate::error::{Error, KeyText};
use crate::limits::MAX_SEQ;
use crate::memtable::entry_sizes::SizeQuery;
use crate::model::commit::{Action, Durability, Op};
use crate::model::key::check_key;
use crate::model::rehearsal::{Rehearsal, SpaceRequest};
use crate::model::retention_state::State;
use crate::run::RunSet;
use crate::state::StoreState;
use crate::state::append::{Accepted, Retry};
use crate::state::retention::CommitClock;
use crate::state::size_lookup::most_at_once;
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, held, thread};

/// The logs whose sizes were looked up for a commit. These logs stay in memory, with the looked-up
/// sizes, until the commit has appended or was finally refused.
struct Counting<'a> {
    inner: &'a Inner,
    keys: BTreeSet<&'a [u8]>,
}

impl<'a> Counting<'a> {
    fn begin(&mut self, state: &mut StoreState, key: &'a [u8]) {
        if self.keys.insert(key) {
            state.begin_count(key);
        }
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        if !self.keys.is_empty() {
            let mut state = self.inner.state();
            self.keys.iter().for_each(|key| state.end_count(key));
        }
    }
}

/// The logs that were looked up since the last try, and the runs that were asked.
struct Found<'a> {
    runs: Arc<RunSet>,
    logs: Vec<(&'a [u8], State)>,
}

/// A commit that is not in the log yet.
pub(super) struct Attempt<'a> {
    pub(super) inner: &'a Inner,
    pub(super) wal: &'a Wal,
    pub(super) ops: &'a [Op<'a>],
    durability: Option<Durability>,
    patience: Patience,
    /// The rehearsal of a long commit.
    rehearsal: Option<&'a Rehearsal>,
    counting: Counting<'a>,
    stall: Stall<'a>,
    /// Whether logs or sizes were looked up for the commit.
    pub(super) looked: bool,
    found: Option<Found<'a>>,
    /// The number of its request for room in the heap.
    asked: Option<u64>,
    /// The time that the caller should wait before the next commit.
    delay: Duration,
}

/// The waits that a commit permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    /// None: the commit must not even read the volume.
    None,
    /// Reads of the volume.
    Reads,
    /// Reads of the volume, and waits for room.
    Room,
}

impl Patience {
    /// Returns whether the commit waits for room.
    pub fn waits(self) -> bool {
        self == Self::Room
    }
}

/// The end of an attempt without an error.
pub(crate) enum Tried<T = Accepted> {
    /// The try succeeded: if it was an append, the log has the commit.
    Done(T),
    /// A log of the commit is in a memory space.
    InMemory,
    /// The commit must read the volume, and its [`Patience`] does not permit it.
    MustRead,
}

/// The reasons why memory admits no commit now.
#[derive(Clone, Copy)]
struct Pressure {
    /// Whether the ration of a checkpoint is used up.
    rationed: bool,
    /// Whether this commit must wait for memory.
    over: bool,
}

impl<'a> Attempt<'a> {
    pub(super) fn new(
        inner: &'a Inner,
        wal: &'a Wal,
        ops: &'a [Op<'a>],
        durability: Option<Durability>,
        patience: Patience,
    ) -> Self {
        Self {
            inner,
            wal,
            ops,
            durability,
            patience,
            rehearsal: None,
            counting: Counting { inner, keys: BTreeSet::new() },
            stall: Stall::new(&inner.counters.stalls, &*inner.options.clock),
            looked: false,
            found: None,
            asked: None,
            delay: Duration::ZERO,
        }
    }

    /// Appends the commit.
    fn run(&mut self) -> Result<Tried, Error> {
        self.until(|attempt, state| attempt.append(state))
    }

    /// Tries until `try_it` succeeds, or is refused for good.
    pub(super) fn until<T>(
        &mut self,
        try_it: impl Fn(&mut Self, &mut StoreState) -> Result<T, Retry>,
    ) -> Result<Tried<T>, Error> {
        loop {
            if let Some(tried) = self.once(&try_it)? {
                return Ok(tried);
            }
        }
    }

    /// Tries once. Returns `None` if the next try may succeed.
    fn once<T>(
        &mut self,
        try_it: impl Fn(&mut Self, &mut StoreState) -> Result<T, Retry>,
    ) -> Result<Option<Tried<T>>, Error> {
        let inner = self.inner;
        let mut state = inner.state();
        if !self.learn(&mut state) {
            drop(state);
            return self.wait_for_import();
        }
        let pressure = self.pressure(&state);
        let refused = if pressure.over {
            Retry::NoRoom(WalError::Busy)
        } else {
            match try_it(self, &mut state) {
                Ok(done) => return Ok(Some(Tried::Done(done))),
                Err(Retry::Error(Error::CommitTooLarge { len, .. })) => {
                    inner.too_large(len).map_or_else(Retry::Error, Retry::NoRoom)
                }
                Err(refused) => refused,
            }
        };
        // A waiting commit must not hold runs: it would keep the space that merging frees.
        let looks = matches!(refused, Retry::Unknown(_) | Retry::Sizes(..));
        let runs = if looks { state.runs.clone() } else { Arc::default() };
        self.looked |= looks;
        if let Retry::Sizes(missing) = &refused {
            for (i, _) in missing {
                self.counting.begin(&mut state, self.ops[*i].key);
            }
        }
        // Failed commits leave looked-up logs in memory, which also count.
        let (full, used) = match refused {
            _ if pressure.over => (true, u64::MAX),
            // The ring may be full because it has not grown yet.
            Retry::NoRoom(WalError::Full { size, .. }) if inner.ring.should_grow(size) => (true, size),
            Retry::NoRoom(WalError::Full { .. }) => (true, u64::MAX),
            Retry::NoRoom(WalError::TooLarge { .. }) | Retry::Checkpoint => (true, 0),
            _ => (false, 0),
        };
        inner.weigh(&state, used);
        let rests_on = match &refused {
            Retry::Error(error) => state.rests_on(self.ops, error),
            _ => None,
        };
        if let Retry::Short(request) = refused
            && let Err(error) = self.request_space(&mut state, request)
        {
            // The needs of a rehearsal are rounded up: without more room, the commit decides, and
            // requests what it needs.
            if !self.patience.waits() || self.rehearsal.take().is_none() {
                return Err(error);
            }
            if self.asked.take().is_some() {
                state.room.withdraw();
            }
            return Ok(None);
        }
        drop(state);
        if full || self.asked.is_some() {
            // Maintenance may be resting between two slices.
            inner.nudge();
        }
        self.mend(refused, runs, rests_on, pressure)
    }

    /// Tries to append the commit.
    fn append(&mut self, state: &mut StoreState) -> Result<Accepted, Retry> {
        self.check_room(state)?;
        let options = &self.inner.options;
        let clock = CommitClock::new(&*options.clock);
        let commit = (self.ops, self.rehearsal);
        let accepted = state.append(self.wal, commit, self.durability, options.linger, &clock)?;
        self.accepted(state, accepted.appended.used);
        Ok(accepted)
    }

    /// Checks before the work of a long commit whether there is room for the commit. Without room,
    /// the work would be useless, and other threads would wait for the lock meanwhile. If no thread
    /// makes room, or checkpoints fail, only the exact needs of the commit count.
    fn check_room(&self, state: &StoreState) -> Result<(), Retry> {
        let Some(rehearsal) = self.rehearsal.filter(|_| self.patience.waits()) else { return Ok(()) };
        if !self.inner.options.threads || held(&self.inner.stalled).is_some() {
            return Ok(());
        }
        match state.has_room(self.wal, &rehearsal.needs) {
            // The needs are rounded up: only the commit itself is too large.
            Err(Retry::Error(_)) => Ok(()),
            checked => checked,
        }
    }

    /// Tells the state the bounds of the logs that were looked up. Returns `false` if an import is
    /// about to add logs that the look-up did not see.
    pub(super) fn learn(&mut self, state: &mut StoreState) -> bool {
        // A commit that waits later holds no runs: `take` returns them.
        let Some(Found { runs, logs }) = self.found.take() else { return true };
        let mut learned = true;
        logs.into_iter().for_each(|(key, known)| learned &= state.learn(&runs, key, known));
        learned
    }

    pub(super) fn wait_for_import<T>(&mut self) -> Result<Option<T>, Error> {
        if !self.patience.waits() {
            return Err(Error::Busy { why: "an import is about to end".into() });
        }
        self.stall.waits(StallReason::Import);
        self.inner.make_room(self.wal, WalError::Busy)?;
        Ok(None)
    }

    fn pressure(&self, state: &StoreState) -> Pressure {
        let inner = self.inner;
        let memory = state.memory();
        // Without threads, a checkpoint is always as far as possible.
        let rationed = inner.options.threads && inner.is_beyond_ration(memory);
        // A commit after a look-up is exempt: a checkpoint would drop the looked-up logs, and the
        // next look-up would load them again.
        let full = rationed || memory > state.most_memory(inner.options.memory_budget);
        let over = full && !self.looked && !state.frees(self.ops);
        Pressure { rationed, over }
    }

    /// Records that the ring has the commit, and uses `used` bytes now.
    fn accepted(&mut self, state: &StoreState, used: u64) {
        let inner = self.inner;
        inner.used.store(used, Ordering::Relaxed);
        inner.weigh(state, used);
        // Without threads, no other thread would make room in time.
        let adds = self.ops.iter().any(|op| op.action.adds());
        if adds && self.patience.waits() && inner.options.threads {
            self.delay = state.gauge().delay();
        }
    }

    fn request_space(
        &mut self,
        state: &mut MutexGuard<'_, StoreState>,
        request: SpaceRequest,
    ) -> Result<(), Error> {
        if !self.patience.waits() {
            let error = state.room.refuse(request);
            self.inner.weigh(state, 0);
            return Err(error);
        }
        self.asked = Some(state.room.request_space(self.asked, request)?);
        Ok(())
    }

    /// Resolves a refusal, so that the next try can succeed. Returns the end of the attempt if
    /// there is no next try.
    fn mend<T>(
        &mut self,
        refused: Retry,
        runs: Arc<RunSet>,
        rests_on: Option<u64>,
        pressure: Pressure,
    ) -> Result<Option<Tried<T>>, Error> {
        let wait = self.patience.waits();
        match refused {
            Retry::Error(error) => return Err(self.inner.refusal(self.wal, error, rests_on, wait)),
            Retry::InMemory => return Ok(Some(Tried::InMemory)),
            Retry::Unknown(unknown) => match self.look_up_logs(self.ops, runs, &unknown)? {
                true => {}
                false => return Ok(Some(Tried::MustRead)),
            },
            Retry::Sizes(..) if self.patience == Patience::None => return Ok(Some(Tried::MustRead)),
            Retry::Sizes(missing) => self.look_up_sizes(&runs, &missing)?,
            Retry::NoRoom(WalError::TooLarge { .. }) if !wait => {
                return Err(self.inner.needs_larger_ring());
            }
            Retry::NoRoom(why) if !wait => return Err(why.into()),
            Retry::Short(request) => {
                self.stall.waits(StallReason::Heap);
                self.inner.wait_for_heap(self.wal, request)?;
            }
            Retry::NoRoom(WalError::TooLarge { .. }) => {
                self.stall.waits(StallReason::Ring);
                self.inner.grow_ring_for_commit(self.wal)?;
            }
            Retry::Checkpoint => {
                self.stall.waits(StallReason::Checkpoint);
                self.inner.make_room(self.wal, WalError::Busy)?;
            }
            Retry::NoRoom(why) => self.wait_for_room(why, pressure)?,
        }
        Ok(None)
    }

    /// Looks up the logs of some operations in the runs. The next try passes the result to the
    /// state, under the lock that the try takes anyway. Returns `false` if the commit must read the
    /// volume for this, and may not.
    pub(super) fn look_up_logs(
        &mut self,
        ops: &'a [Op<'a>],
        runs: Arc<RunSet>,
        unknown: &[usize],
    ) -> Result<bool, Error> {
        let (inner, patience) = (self.inner, self.patience);
        let look = |key| match patience {
            Patience::None => Ok(runs.state_in_memory(key)),
            _ => runs.state(key).map(Some),
        };
        let look = |key| inner.counters.run_lookups.time(&*inner.options.clock, || look(key));
        let found = unknown.iter().map(|&i| Ok(look(ops[i].key)?.map(|state| (ops[i].key, state))));
        let Some(logs) = found.collect::<Result<Option<_>, Error>>()? else { return Ok(false) };
        self.found = Some(Found { runs, logs });
        Ok(true)
    }

    /// Looks up the sizes of entries in the runs, for the logs of some operations. If these are
    /// many, the next try asks for the rest, so that no run is held for too long.
    fn look_up_sizes(&self, runs: &RunSet, missing: &[(usize, SizeQuery)]) -> Result<(), Error> {
        let (mut chunks, most) = (0, most_at_once(missing.len()));
        for (i, missing) in missing {
            if chunks >= most {
                break;
            }
            let key = self.ops[*i].key;
            let found = missing.look(runs, key)?;
            chunks += found.spans.len();
            self.inner.state().learn_sizes(key, found);
        }
        Ok(())
    }

    fn wait_for_room(&mut self, why: WalError, pressure: Pressure) -> Result<(), Error> {
        self.stall.waits(match why {
            _ if pressure.rationed => StallReason::Checkpoint,
            _ if pressure.over => StallReason::Memory,
            WalError::Full { .. } => StallReason::Ring,
            _ => StallReason::Backlog,
        });
        self.inner.make_room(self.wal, why)
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.asked.is_some() {
            self.inner.state().room.withdraw();
        }
    }
}

impl Inner {
    /// Appends a commit to the log. Looks up logs and waits for room if necessary, as far as
    /// `patience` permits. A long commit that waits is rehearsed first, unless it was.
    ///
    /// The caller must have [checked](Self::check) the operations.
    pub fn append(
        &self,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        patience: Patience,
        rehearsal: Option<&Rehearsal>,
    ) -> Result<Tried, Error> {
        let wal = self.writable()?;
        let Counters { appends, stalls, .. } = &self.counters;
        let clock = &*self.options.clock;
        let own = OnceCell::new();
        let mut attempt = Attempt::new(self, wal, ops, durability, patience);
        let appended = appends.time(clock, || {
            let is_long = ops.len() >= self.options.long;
            let rehearse = || patience.waits().then(|| own.get_or_init(|| self.prepare(ops)));
            attempt.rehearsal = if is_long { rehearsal.or_else(rehearse) } else { None };
            let appended = attempt.run();
            if is_long {
                self.end_hold();
            }
            appended
        });
        let delay = attempt.delay;
        drop(attempt);
        let tried = appended?;
        if !delay.is_zero() && self.may_wait().is_ok() {
            let mut stall = Stall::new(stalls, clock);
            stall.waits(StallReason::HeapSlope);
            thread::park_timeout(delay);
        }
        Ok(tried)
    }

    /// Returns `error` for a commit once the block that the refusal depends on is durable, or
    /// returns the reason why the call cannot wait for that block.
    fn refusal(&self, wal: &Wal, error: Error, rests_on: Option<u64>, wait: bool) -> Error {
        let settled = rests_on.is_none_or(|block| wal.durable() >= block) || bug("refusal-before-durable");
        match settled {
            true => error,
            false if !wait => {
                Error::Busy { why: "an earlier commit on the same logs is not durable yet".into() }
            }
            false => self.flush().map_or_else(|stopped| stopped, |()| error),
        }
    }

    /// Checks whether an operation is permitted at all.
    pub fn check(&self, op: &Op<'_>) -> Result<(), Error> {
        check_key(op.key)?;
        match op.action {
            Action::Append(payload) | Action::Snapshot(payload)
                if payload.len() > self.options.largest_payload() =>
            {
                Err(Error::PayloadTooLarge { len: payload.len(), limit: self.options.largest_payload() })
            }
            Action::Retain(retention) => retention.check(),
            Action::Begin(first) if first > MAX_SEQ => {
                Err(Error::NumberTooLarge { key: KeyText::of(op.key), asked: first })
            }
            _ => Ok(()),
        }
    }

    /// Lets maintenance do the work that may make room in the heap.
    fn wait_for_heap(&self, wal: &Wal, request: SpaceRequest) -> Result<(), Error> {
        if self.options.threads {
            return self.wait_for_room(wal);
        }
        let worked = self.step()?;
        self.flush()?;
        let state = self.state();
        if worked || state.pressure().is_none() { Ok(()) } else { Err(state.room.full(request)) }
    }

    fn make_room(&self, wal: &Wal, why: WalError) -> Result<(), Error> {
        if self.options.threads {
            return self.wait_for_room(wal);
        }
        let durable = wal.durable();
        let worked = self.step()?;
        self.flush()?;
        // With pacing, only waiting commits make progress.
        if worked || wal.durable() > durable {
            return Ok(());
        }
        if wal.settled() < wal.durable() {
            // The mirror makes room in its window, and in the ring, on a thread of its own.
            return Ok(wal.wait_for_room()?);
        }
        // It may have made room since the commit found none.
        let settled = wal.settled();
        if self.options.mirror.is_some() && self.full_at.swap(settled, Ordering::Relaxed) != settled {
            return Ok(());
        }
        // Nothing else makes room in a store without threads.
        Err(Error::Full { what: "the commit in the ring", why: why.to_string() })
    }

    pub(super) fn wait_for_room(&self, wal: &Wal) -> Result<(), Error> {
        // The maintenance thread retries by itself. Until a retry succeeds, waiting would be
        // useless.
        let stalled = held(&self.stalled).clone();
        stalled.map_or_else(|| Ok(wal.wait_for_room()?), Err)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use brooklet_io::MemVolume;

    use super::*;
    use crate::state::size_lookup::AT_ONCE;
    use crate::{Options, Retention};

    /// A commit that looks up many logs would begin again after each step of a merge.
    #[test]
    fn look_ups_outlive_a_merge_and_no_checkpoint() {
        let options = Options::new().ring_size(1 << 20).memory_budget(1 << 20).max_payload(64 << 10);
        let store = options.threads(false).rng_seed(5).create_on(Arc::new(MemVolume::new(1))).unwrap();
        let inner = store.inner();
        for round in 0..2 {
            for n in 0..200 {
                drop(store.append(format!("log/{n}/{round}"), vec![7; 2_000]).unwrap());
            }
            store.checkpoint().unwrap();
        }
        let before = inner.state().runs.clone();
        let look = |key: &str| (key.to_owned(), before.state(key.as_bytes()).unwrap());
        let (early, late) = (look("log/1/0"), look("log/2/0"));
        assert!(early.1.bounds.is_some() && before.iter().len() > 1);
        // The cache of bounds must not hide what is learned.
        let forget = |key: &[u8]| {
            let cache = &mut inner.state().bounds_cache;
            cache.set(cache.secret().hash(key), None);
        };
        store.compact().unwrap();
        assert_eq!(inner.state().runs.iter().len(), 1);
        forget(b"log/1/0");
        assert!(inner.state().learn(&before, early.0.as_bytes(), early.1));
        assert!(inner.state().active.find(b"log/1/0").is_some(), "a merge changes no state");

        drop(store.append("log/2/0", "more").unwrap());
        store.checkpoint().unwrap();
        forget(b"log/2/0");
        assert!(inner.state().learn(&before, late.0.as_bytes(), late.1));
        assert_eq!(inner.state().active.find(b"log/2/0"), None, "the log has another entry now");
    }

    /// Returns the number of tries of a commit that trims logs with a limit of bytes. Only runs
    /// hold the sizes of their entries.
    fn tries_to_trim(logs: usize) -> usize {
        let options = Options::new().ring_size(4 << 20).memory_budget(8 << 20);
        let store = options.threads(false).rng_seed(5).create_on(Arc::new(MemVolume::new(1))).unwrap();
        let keys: Vec<String> = (0..logs).map(|n| format!("log/{n}")).collect();
        for key in &keys {
            drop(store.set_retention(key, Retention::new().bytes(1 << 20)).unwrap());
            drop(store.append_many(key, vec![[7; 100]; 9]).unwrap());
        }
        store.checkpoint().unwrap();
        let inner = store.inner();
        let ops: Vec<Op<'_>> =
            keys.iter().map(|key| Op { key: key.as_bytes(), action: Action::Trim(4) }).collect();
        let mut attempt = Attempt::new(inner, inner.writable().unwrap(), &ops, None, Patience::Room);
        let tries = Cell::new(0);
        let tried = attempt.until(|attempt, state| {
            tries.set(tries.get() + 1);
            attempt.append(state)
        });
        assert!(matches!(tried, Ok(Tried::Done(_))));
        drop(attempt);
        store.flush().unwrap();
        assert!(keys.iter().all(|key| store.bounds(key).unwrap().first == 4));
        tries.get()
    }

    /// In an earlier state, each log took its own try, under the lock.
    #[test]
    fn the_sizes_of_many_logs_are_looked_up_at_once() {
        let tries = tries_to_trim(50);
        assert!(tries <= 4, "{tries} tries");
        // A commit on very many logs does not hold the same runs for all of them.
        let more = tries_to_trim(AT_ONCE + 50);
        assert_eq!(more, tries + 1);
    }
}
