//! One commit on its way into the log: it is tried until the state accepts it, or refuses it for
//! good. Each refusal that can be mended has a function that mends it: a look-up in the runs, or a
//! wait for room.

use std::sync::Arc;
use std::time::Duration;

use brooklet_io::seeded::bug;
use brooklet_wal::{Wal, WalError};

use crate::counters::{Counters, Stall, StallReason};
use crate::engine::Inner;
use crate::error::Error;
use crate::memtable::entry_sizes::SizeQuery;
use crate::model::commit::{Action, Durability, Op};
use crate::model::key::check_key;
use crate::run::RunSet;
use crate::state::StoreState;
use crate::state::admission::SpaceRequest;
use crate::state::append::{Accepted, Retry};
use crate::state::retention::CommitClock;
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, held, thread};

/// The logs whose sizes were looked up for a commit: until it has appended, or was refused for
/// good, they stay in memory, with what was learned.
struct Counting<'a> {
    inner: &'a Inner,
    keys: Vec<&'a [u8]>,
}

impl<'a> Counting<'a> {
    fn begin(&mut self, state: &mut StoreState, key: &'a [u8]) {
        if !self.keys.contains(&key) {
            self.keys.push(key);
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

/// A commit that is not in the log yet.
struct Attempt<'a> {
    inner: &'a Inner,
    wal: &'a Wal,
    ops: &'a [Op<'a>],
    durability: Option<Durability>,
    /// It frees space, and so is let through whatever else is full.
    freeing: bool,
    /// It may wait for room.
    wait: bool,
    counting: Counting<'a>,
    stall: Stall<'a>,
    /// Something was looked up for it.
    looked: bool,
    /// The number of its request for room in the heap.
    asked: Option<u64>,
}

/// How one try ended.
enum Outcome {
    /// The log has the commit. Its caller should wait that long before the next.
    Accepted(Accepted, Duration),
    /// A log of it is kept in memory.
    InMemory,
    /// The next try may succeed.
    Again,
}

/// Why memory admits no commit now.
#[derive(Clone, Copy)]
struct Pressure {
    /// The ration of a checkpoint is used up.
    rationed: bool,
    /// This commit must wait for memory.
    over: bool,
}

impl<'a> Attempt<'a> {
    fn run(&mut self) -> Result<Option<(Accepted, Duration)>, Error> {
        loop {
            match self.once()? {
                Outcome::Accepted(accepted, delay) => return Ok(Some((accepted, delay))),
                Outcome::InMemory => return Ok(None),
                Outcome::Again => {}
            }
        }
    }

    fn once(&mut self) -> Result<Outcome, Error> {
        let inner = self.inner;
        let mut state = inner.state();
        let pressure = self.pressure(&state);
        let refused = if pressure.over {
            Retry::NoRoom(WalError::Busy)
        } else {
            let clock = CommitClock::new(&*inner.options.clock);
            match state.append(self.wal, self.ops, self.durability, inner.options.linger, &clock) {
                Ok(accepted) => return Ok(self.accepted(&state, accepted)),
                Err(refused) => refused,
            }
        };
        // Whoever waits holds no runs: it would keep what merging frees.
        let looks = matches!(refused, Retry::Unknown(_) | Retry::Sizes(..));
        let runs = if looks { state.runs.clone() } else { Arc::default() };
        self.looked |= looks;
        if let Retry::Sizes(i, _) = refused {
            self.counting.begin(&mut state, self.ops[i].key);
        }
        // Commits that fail leave what was learned of their logs behind; that counts, too.
        let full = pressure.over || matches!(refused, Retry::NoRoom(WalError::Full { .. }));
        inner.weigh(&state, if full { u64::MAX } else { 0 });
        let rests_on = match &refused {
            Retry::Error(error) => state.rests_on(self.ops, error),
            _ => None,
        };
        if let Retry::Short(request) = refused {
            self.request_space(&mut state, request)?;
        }
        drop(state);
        if full || self.asked.is_some() {
            // It may be resting between two slices.
            inner.nudge();
        }
        self.mend(refused, &runs, rests_on, pressure)
    }

    fn pressure(&self, state: &StoreState) -> Pressure {
        let inner = self.inner;
        let memory = state.memory();
        // Without threads a checkpoint is always as far as it can be.
        let rationed = inner.options.threads && inner.is_beyond_ration(memory);
        // What was looked up for this commit is let in: a checkpoint would drop it, and the next
        // look-up bring it again.
        let exempt = self.freeing || self.looked;
        let over = !exempt && (rationed || memory > state.most_memory(inner.options.memory_budget));
        Pressure { rationed, over }
    }

    fn accepted(&self, state: &StoreState, accepted: Accepted) -> Outcome {
        let inner = self.inner;
        inner.used.store(accepted.appended.used, Ordering::Relaxed);
        inner.weigh(state, accepted.appended.used);
        // Without threads nothing would come in time.
        let waits = !self.freeing && self.wait && inner.options.threads;
        let delay = if waits { state.gauge().delay() } else { Duration::ZERO };
        Outcome::Accepted(accepted, delay)
    }

    fn request_space(
        &mut self,
        state: &mut MutexGuard<'_, StoreState>,
        request: SpaceRequest,
    ) -> Result<(), Error> {
        if !self.wait {
            let error = state.room.refuse(request);
            self.inner.weigh(state, 0);
            return Err(error);
        }
        self.asked = Some(state.room.request_space(self.asked, request)?);
        Ok(())
    }

    /// Does what lets the next try succeed.
    fn mend(
        &mut self,
        refused: Retry,
        runs: &Arc<RunSet>,
        rests_on: Option<u64>,
        pressure: Pressure,
    ) -> Result<Outcome, Error> {
        match refused {
            Retry::Error(error) => return Err(self.inner.refusal(self.wal, error, rests_on, self.wait)),
            Retry::InMemory => return Ok(Outcome::InMemory),
            Retry::Unknown(unknown) => self.look_up_logs(runs, &unknown)?,
            Retry::Sizes(i, missing) => self.look_up_sizes(runs, i, &missing)?,
            Retry::NoRoom(why) if !self.wait => return Err(why.into()),
            Retry::Short(request) => {
                self.stall.waits(StallReason::Heap);
                self.inner.wait_for_heap(self.wal, request)?;
            }
            Retry::NoRoom(why) => self.wait_for_room(why, pressure)?,
        }
        Ok(Outcome::Again)
    }

    /// Looks up the logs of some operations in the runs.
    fn look_up_logs(&mut self, runs: &Arc<RunSet>, unknown: &[usize]) -> Result<(), Error> {
        let (inner, ops) = (self.inner, self.ops);
        let look = |key| inner.counters.run_lookups.time(&*inner.options.clock, || runs.state(key));
        let looked = unknown.iter().map(|&i| Ok((ops[i].key, look(ops[i].key)?)));
        let looked: Vec<_> = looked.collect::<Result<_, Error>>()?;
        let mut state = inner.state();
        let mut learned = true;
        looked.into_iter().for_each(|(key, known)| learned &= state.learn(runs, key, known));
        drop(state);
        match learned {
            true => Ok(()),
            false if self.wait => {
                self.stall.waits(StallReason::Import);
                inner.make_room(self.wal, WalError::Busy)
            }
            false => Err(WalError::Busy.into()),
        }
    }

    /// Looks up the sizes of a log's entries in the runs.
    fn look_up_sizes(&self, runs: &RunSet, i: usize, missing: &SizeQuery) -> Result<(), Error> {
        let key = self.ops[i].key;
        let found = missing.look(runs, key)?;
        self.inner.state().learn_sizes(key, found);
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

impl Inner {
    /// Appends a commit to the log: looks up logs as need be, and waits for room if `wait` says so.
    ///
    /// `None` where a log of it is kept in memory. Nobody checks here whether the operations may be
    /// asked for at all.
    pub fn append(
        &self,
        ops: &[Op<'_>],
        durability: Option<Durability>,
        wait: bool,
    ) -> Result<Option<Accepted>, Error> {
        let wal = self.wal()?;
        // What frees space is let through whatever else is full.
        let freeing = !ops.iter().any(|op| op.action.adds());
        let Counters { appends, stalls, .. } = &self.counters;
        let clock = &*self.options.clock;
        let mut attempt = Attempt {
            inner: self,
            wal,
            ops,
            durability,
            freeing,
            wait,
            counting: Counting { inner: self, keys: Vec::new() },
            stall: Stall::new(stalls, clock),
            looked: false,
            asked: None,
        };
        let appended = appends.time(clock, || attempt.run());
        let asked = attempt.asked.is_some();
        drop(attempt);
        if asked {
            self.state().room.withdraw();
        }
        let Some((accepted, delay)) = appended? else { return Ok(None) };
        if !delay.is_zero() && self.may_wait().is_ok() {
            let mut stall = Stall::new(stalls, clock);
            stall.waits(StallReason::HeapSlope);
            thread::park_timeout(delay);
        }
        Ok(Some(accepted))
    }

    /// Refuses a commit with `error`, once the block that this rests on is durable; or says why
    /// that cannot be waited for.
    fn refusal(&self, wal: &Wal, error: Error, rests_on: Option<u64>, wait: bool) -> Error {
        let settled = rests_on.is_none_or(|block| wal.durable() >= block) || bug("refusal-before-durable");
        match settled {
            true => error,
            false if !wait => WalError::Busy.into(),
            false => self.flush().map_or_else(|stopped| stopped, |()| error),
        }
    }

    /// Whether an operation may be asked for at all.
    pub fn check(&self, op: &Op<'_>) -> Result<(), Error> {
        check_key(op.key)?;
        match op.action {
            Action::Append(payload) | Action::Snapshot(payload)
                if payload.len() > self.options.largest_payload() =>
            {
                Err(Error::PayloadTooLarge { len: payload.len(), limit: self.options.largest_payload() })
            }
            Action::Retain(retention) => retention.check(),
            _ => Ok(()),
        }
    }

    /// Lets maintenance do what may make room in the heap.
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
        // Where there is a pace, only those who wait get on.
        if worked || wal.durable() > durable { Ok(()) } else { Err(why.into()) }
    }

    fn wait_for_room(&self, wal: &Wal) -> Result<(), Error> {
        // The maintenance thread tries again by itself; until it gets on, waiting would be for
        // nothing.
        let stalled = held(&self.stalled).clone();
        stalled.map_or_else(|| Ok(wal.wait_for_room()?), Err)
    }
}
