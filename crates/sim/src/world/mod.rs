//! The world: the real store on a faulty volume, all its users, and the known facts about the
//! store.
//!
//! One thread plays all users. Other users act between two operations of the disk, through the
//! volume's hook. So a world is entered while it acts: its state is locked for short moments only,
//! never during a call of the store.

mod beside;
mod beside_damage;
mod crash;
mod followers;
mod operations;
mod space;
mod views;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use brooklet::io::{Clock, ManualClock, MemVolume, Rng};
use brooklet::{Bytes, Entries, Error, Store};

use crate::checker::{CheckCounts, Checker, End, Left};
use crate::faulty_volume::{Evidence, FaultyVolume, Interleaver};
use crate::interrupt::Meanwhile;
use crate::model::{Log, Logs};
use crate::offload_store;
use crate::oracle::{Expectation, Oracle, Tolerance, Violation, violated};
use crate::plan::{Act, Class, Plan, Step};
pub use crate::world::beside_damage::AroundCounts;
use crate::world::followers::Followers;
use crate::world::views::Viewed;

/// Most commits in the blocks where a misdirected write lands: it is a few sectors long.
const LANDED_ON: usize = 32;

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stats {
    /// Number of steps taken.
    pub steps: u64,
    /// Number of commits acknowledged.
    pub acknowledged: u64,
    /// Counts of the checkers.
    pub counts: CheckCounts,
    /// Number of runs in which the store stopped.
    pub stopped: u64,
    /// Number of runs in which the store was full.
    pub full: u64,
    /// Number of runs in which the store met damage.
    pub damaged: u64,
    /// Counts of the readers beside the store on a damaged ring.
    pub around: AroundCounts,
    /// Counts of the first disk: its writes and flushes, its reads, and its failures because of a
    /// fault.
    pub first: (u64, u64, u64),
    /// A hash of all operations on the disk.
    pub trace: u64,
}

/// A reader that has begun, and the results that it may give.
struct Held {
    key: Bytes,
    entries: Entries,
    may_give: Vec<Option<Arc<Log>>>,
    when: When,
}

/// The period in which a reader may apply the age limit.
#[derive(Clone, Copy, Debug)]
struct When {
    from: u64,
    to: u64,
}

struct State {
    rng: Rng,
    oracle: Oracle,
    held: VecDeque<Held>,
    /// The followers of the store, while it is open.
    followers: Option<Followers>,
    /// Views of the open store.
    views: VecDeque<Viewed>,
    /// Disks that were copied in the middle of the step, and the states that may be found on each.
    taken: Vec<(Left, Expectation)>,
    /// The first violation at a place that could not return an error.
    violation: Option<Violation>,
    /// Whether a fault of the disk was planned.
    faulty: bool,
    /// Whether the disk, or the store's capacity, has a limit.
    full: bool,
    damaged: bool,
    /// Whether the store is being closed, and refuses other callers meanwhile.
    closing: bool,
    /// An older image of the medium, for sectors that return to an older state.
    older: Option<Vec<u8>>,
    /// The disk as it was when blocks of the ring were damaged last, for lost writes.
    ring_before: Option<Vec<u8>>,
    stats: Stats,
    story: Option<Vec<String>>,
}

impl State {
    /// Drops everything that reads from the store.
    fn let_go(&mut self) {
        self.held.clear();
        self.views.clear();
        self.followers = None;
    }
}

/// A store and its users.
pub struct World {
    plan: Arc<Plan>,
    clock: Arc<ManualClock>,
    volume: Mutex<FaultyVolume>,
    store: Mutex<Option<Store>>,
    state: Mutex<State>,
    me: Weak<World>,
}

impl Interleaver for World {
    fn enter(&self, what: Meanwhile, in_ring: bool) {
        let noticed = self.notice_import();
        let done = match what {
            Meanwhile::Cut => {
                self.take(End::Cut);
                Ok(())
            }
            Meanwhile::Kill => {
                self.take(End::Killed);
                Ok(())
            }
            _ if self.store().is_none() => Ok(()),
            Meanwhile::Write(n) => self.write_meanwhile(n, in_ring),
            Meanwhile::Read if !in_ring => self.read(),
            Meanwhile::Work if !in_ring => self.work(),
            Meanwhile::Read | Meanwhile::Work => Ok(()),
        };
        if let Err(violation) = noticed.and(done) {
            self.state().violation.get_or_insert(violation);
        }
    }
}

impl World {
    /// Creates a world with an empty store. `tell`: whether to record the story.
    pub fn new(plan: Arc<Plan>, tell: bool) -> Result<Arc<Self>, Violation> {
        let clock = Arc::new(ManualClock::default());
        let volume = plan.shape.volume(MemVolume::new(plan.seed));
        let past = (plan.class == Class::Violent).then(VecDeque::new);
        let state = State {
            rng: Rng::new(plan.seed),
            oracle: Oracle { past, recent: [Logs::new()].into(), ..Oracle::default() },
            held: VecDeque::new(),
            followers: None,
            views: VecDeque::new(),
            taken: Vec::new(),
            violation: None,
            faulty: false,
            full: plan.shape.capacity > 0,
            damaged: false,
            closing: false,
            older: None,
            ring_before: None,
            stats: Stats::default(),
            story: tell.then(Vec::new),
        };
        offload_store::clear();
        let store = plan.shape.create(&volume, &clock, plan.seed);
        let store = store.or_else(|error| violated(format!("an empty store cannot be made: {error}")))?;
        let world = Arc::new_cyclic(|me| Self {
            plan,
            clock,
            volume: Mutex::new(volume),
            store: Mutex::new(Some(store)),
            state: Mutex::new(state),
            me: me.clone(),
        });
        world.volume().invite(world.me.clone());
        Ok(world)
    }

    /// Returns the time of the wall clock, in milliseconds.
    fn now(&self) -> u64 {
        self.clock.wall().as_millis() as u64
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volume(&self) -> FaultyVolume {
        self.volume.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn store(&self) -> Option<Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_store(&self, store: Option<Store>) -> Option<Store> {
        std::mem::replace(&mut *self.store.lock().unwrap_or_else(PoisonError::into_inner), store)
    }

    fn open_store(&self) -> Store {
        self.store().expect("between steps the store is open")
    }

    /// Adds a line to the story, if it is recorded.
    fn tell(&self, line: impl FnOnce() -> String) {
        let indent = if self.volume().is_entered() { "  meanwhile: " } else { "" };
        if let Some(story) = &mut self.state().story {
            story.push(format!("{indent}{}", line()));
        }
    }

    /// Runs all steps of the plan. The world's knowledge stays available afterwards.
    pub fn run(&self) -> Result<(), Violation> {
        let plan = self.plan.clone();
        for step in &plan.steps {
            self.step(step)?;
            if self.store().is_none() {
                return Ok(()); // The disk was damaged beyond opening, and that was said.
            }
        }
        self.cut()?;
        self.examine_taken()
    }

    /// Returns the statistics of the run so far.
    pub fn stats(&self) -> Stats {
        let state = self.state();
        let acknowledged = state.oracle.acknowledged;
        let volume = self.volume();
        let trace = state.stats.trace ^ volume.trace();
        let first = match state.stats.first {
            (0, ..) => volume.history(),
            first => first,
        };
        Stats { acknowledged, first, trace, ..state.stats }
    }

    /// Returns the story: a description of the events.
    pub fn story(&self) -> Vec<String> {
        self.state().story.clone().unwrap_or_default()
    }

    /// Drops the store without closing it, after a failure.
    pub fn forget(&self) {
        std::mem::forget(self.set_store(None));
        self.state().let_go();
    }

    fn step(&self, step: &Step) -> Result<(), Violation> {
        let silent = !self.volume().disk.silent_faults().is_empty();
        {
            let mut state = self.state();
            state.rng = Rng::new(step.seed);
            state.stats.steps += 1;
            // Earlier states matter only from the step on in which the disk may corrupt data, and
            // a few before it: a misdirected write also destroys the blocks where it lands.
            if let Some(past) = state.oracle.past.as_mut().filter(|_| !silent) {
                past.drain(..past.len().saturating_sub(LANDED_ON));
            }
        }
        // `ReadAll` reads everything at one moment, and during `Punctual` other callers would let
        // time pass: so only power cuts interrupt these steps.
        let alone = matches!(step.act, Act::ReadAll | Act::ReadAround | Act::Punctual(_));
        let interrupts = step.interrupts.iter().filter(|i| !alone || i.what == Meanwhile::Cut);
        self.follow()?;
        self.volume().begin(&interrupts.copied().collect::<Vec<_>>());
        self.act(step.act)?;
        self.volume().begin(&[]);
        if let Some(violation) = self.state().violation.take() {
            return Err(violation);
        }
        self.state().oracle.hear()?;
        let (capacity, size) = (self.plan.shape.capacity, self.volume().data_size());
        if capacity > 0 && size > capacity {
            return violated(format!("the store takes {size} bytes, and may take {capacity}"));
        }
        self.examine_taken()?;
        let stopped = self.store().is_some_and(|s| s.info().map_or(true, |info| info.stopped.is_some()));
        if stopped {
            self.state().stats.stopped = 1;
            self.tell(|| "the store has stopped".into());
            self.use_stopped()?;
            let again = self.state().rng.percent(50);
            if again { self.kill()? } else { self.cut()? }
        }
        Ok(())
    }

    fn act(&self, act: Act) -> Result<(), Violation> {
        if !matches!(act, Act::Commit(_) | Act::Deferred) {
            self.tell(|| act.to_string());
        }
        match act {
            Act::Commit(n) => self.commit(n, None, true),
            Act::Burst(n) => (0..n).try_for_each(|_| self.commit(1, None, true)),
            Act::Deferred => self.commit(1, Some(Duration::from_millis(100)), true),
            Act::Punctual(ms) => self.punctual(ms),
            Act::Wait => self.wait(),
            Act::Work => self.work(),
            Act::Idle(time) => {
                // The store notices the idle time, first its beginning and later its length.
                self.work()?;
                self.clock.advance(time);
                self.work()
            }
            Act::Flush => self.excuse(self.open_store().flush()),
            Act::Checkpoint => self.excuse(self.open_store().checkpoint()),
            Act::Compact => self.excuse(self.open_store().compact()),
            Act::Import(n) => self.import(n),
            Act::Read => self.read_beside().and_then(|()| self.read()),
            Act::ReadAll => self.read_all(),
            Act::ReadAround => self.read_around(),
            Act::Hold => self.hold(),
            Act::Release => self.release(),
            Act::View => self.view(),
            Act::Offload => self.offload(),
            Act::Move(rest) => self.change_class(rest),
            Act::Dump => self.dump(),
            Act::Reopen => self.reopen(),
            Act::Kill => self.kill(),
            Act::Cut => self.cut(),
            Act::Fail(fault) => self.fail(fault),
            Act::Hang(n) => self.hang(n),
            Act::Rot => self.rot(),
        }
    }

    /// Returns a violation unless the current faults explain the error.
    fn excuse<T>(&self, result: Result<T, Error>) -> Result<(), Violation> {
        let Err(error) = result else { return Ok(()) };
        self.tell(|| format!("  -> {error}"));
        let mut state = self.state();
        let damaged = state.damaged || !self.volume().disk.silent_faults().is_empty();
        let excused = match &error {
            // A run that reads back differently right after it was written is a failed write.
            Error::Stopped { .. } => state.faulty || damaged,
            Error::Io { .. } => state.faulty,
            Error::Closed => state.closing,
            Error::Full { .. } => state.faulty || state.full,
            Error::Damaged { .. } => damaged,
            _ => false,
        };
        if !excused {
            return violated(format!("an error that nothing explains: {error}"));
        }
        match error {
            Error::Stopped { .. } => {
                state.oracle.settle()?;
                state.oracle.stopped = true;
            }
            Error::Full { .. } => state.stats.full = 1,
            Error::Damaged { .. } => state.stats.damaged = 1,
            _ => {}
        }
        Ok(())
    }

    fn tolerance(&self) -> Tolerance {
        let volume = self.volume();
        let damaged = self.state().damaged;
        match volume.evidence() {
            Evidence::NotNeeded if damaged => Tolerance { damaged, evidence: Evidence::There },
            evidence => Tolerance { damaged: damaged || evidence != Evidence::NotNeeded, evidence },
        }
    }

    fn expectation(&self) -> Result<Expectation, Violation> {
        let tolerance = self.tolerance();
        let mut state = self.state();
        state.oracle.settle()?;
        Ok(state.oracle.expectation(tolerance, self.now()))
    }

    /// Records the disk that such an end would leave now, for an examination after the step.
    fn take(&self, end: End) {
        let disk = self.volume().disk;
        let left = Left::of(&disk, end, disk.operations());
        match self.expectation() {
            Ok(expected) => self.state().taken.push((left, expected)),
            Err(violation) => drop(self.state().violation.get_or_insert(violation)),
        }
    }

    fn examine_taken(&self) -> Result<(), Violation> {
        let taken = std::mem::take(&mut self.state().taken);
        for (left, expected) in taken {
            self.examine(left, &expected)?;
        }
        Ok(())
    }

    fn examine(&self, left: Left, expected: &Expectation) -> Result<(), Violation> {
        let rng = Rng::new(self.state().rng.next());
        let mut checker = Checker { shape: &self.plan.shape, rng, counts: CheckCounts::default() };
        let examined = checker.examine(left, expected);
        self.state().stats.counts.add(&checker.counts);
        examined
    }
}
