//! The plan of a simulation: its world's shape and its steps, all drawn from one seed.
//!
//! Each seed draws its own habits and switches features on and off (swarm testing): runs that do
//! everything a little meet fewer states than runs that do a few things often.

mod shape;

use std::fmt;
use std::io::ErrorKind;
use std::time::Duration;

use brooklet::io::{Fault, Rng, SECTOR, SilentFault};

use crate::interrupt::{Interrupt, Meanwhile};
use crate::model::Habits;
use crate::plan::shape::LEAST_RING;

pub use crate::plan::shape::Shape;

/// The severity of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// No faults, and long, so that the store grows.
    Calm,
    /// Also a disk that fails, fills up or has silent faults.
    Mixed,
    /// Those, and a disk that fails, fills up or lies.
    Violent,
}

/// The class of a space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Its commits are durable when they are acknowledged.
    Durable,
    /// Its commits are durable within 100 ms.
    Deferred,
    /// Its commits are durable with the next dump.
    Memory,
}

/// An event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A commit of this many changes, without waiting.
    Commit(u64),
    /// This many commits in a row, without waiting; blocks pile up.
    Burst(u64),
    /// A commit that may rest in memory for 100 ms.
    Deferred,
    /// A commit that may rest in memory for this many milliseconds; then the store's own work,
    /// every millisecond, until that time has passed.
    Punctual(u64),
    /// The last commit becomes durable, driven by the thread that wrote it.
    Wait,
    /// The store's own work continues.
    Work,
    /// Time passes.
    Idle(Duration),
    /// A flush makes everything durable.
    Flush,
    /// The recent tier is written to a run.
    Checkpoint,
    /// All runs are merged.
    Compact,
    /// An import of this many new logs.
    Import(u64),
    /// A read of one log.
    Read,
    /// A read of everything, with a comparison.
    ReadAll,
    /// Blocks of the ring are damaged for readers beside the store, which read everything.
    ReadAround,
    /// A reader starts, and stays open.
    Hold,
    /// The oldest open reader reads to its end.
    Release,
    /// A view is taken, and read again later.
    View,
    /// Some runs are offloaded.
    Offload,
    /// Most logs change to another class.
    Move(Rest),
    /// The logs in memory are dumped.
    Dump,
    /// The store is closed and opened again.
    Reopen,
    /// The process is killed; its writes are in the page cache.
    Kill,
    /// The power is cut.
    Cut,
    /// A fault of the disk is planned.
    Fail(Fault),
    /// After this many more writes of blocks, a write hangs forever; after a while, the process is
    /// killed.
    Hang(u64),
    /// The closed store rots: a flipped bit, a bad sector, or an older sector.
    Rot,
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Commit(n) => write!(f, "commit of {n}"),
            Act::Burst(n) => write!(f, "{n} commits in a row"),
            Act::Deferred => write!(f, "deferred commit"),
            Act::Punctual(ms) => write!(f, "a commit deferred by {ms} ms, and the store works on time"),
            Act::Wait => write!(f, "wait for the last commit"),
            Act::Work => write!(f, "the store's own work goes on"),
            Act::Idle(time) => write!(f, "{} ms pass", time.as_millis()),
            Act::Flush => write!(f, "flush"),
            Act::Checkpoint => write!(f, "checkpoint"),
            Act::Compact => write!(f, "compact"),
            Act::Import(n) => write!(f, "import of {n} logs"),
            Act::Read => write!(f, "read a log"),
            Act::ReadAll => write!(f, "read everything"),
            Act::ReadAround => write!(f, "a reader beside the store, on a damaged ring"),
            Act::Hold => write!(f, "a reader starts"),
            Act::Release => write!(f, "the oldest reader reads to its end"),
            Act::View => write!(f, "a view"),
            Act::Offload => write!(f, "offload"),
            Act::Move(rest) => write!(f, "space log is to be {rest:?}"),
            Act::Dump => write!(f, "space log is dumped"),
            Act::Reopen => write!(f, "close and open"),
            Act::Kill => write!(f, "the process is killed"),
            Act::Cut => write!(f, "the power is cut"),
            Act::Hang(n) => write!(f, "a write hangs, after {n} more"),
            Act::Fail(fault) => write!(f, "the disk will misbehave: {fault:?}"),
            Act::Rot => write!(f, "the closed store rots"),
        }
    }
}

/// A step of a run.
#[derive(Clone, Debug)]
pub struct Step {
    /// Event of the step.
    pub act: Act,
    /// Seed of the details.
    pub seed: u64,
    /// Interruptions of the step.
    pub interrupts: Vec<Interrupt>,
}

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Seed of the plan.
    pub seed: u64,
    /// Severity of the run.
    pub class: Class,
    /// Shape of the store.
    pub shape: Shape,
    /// Habits of the commits.
    pub habits: Habits,
    /// Steps, in order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Draws a run: of every sixteen seeds, one is a stammer and one is stubborn (many restarts);
    /// the others are calm, mixed and violent in turn.
    pub fn draw(seed: u64) -> Self {
        match seed % 16 {
            7 => return Self::stammer(seed),
            11 => return Self::stubborn(seed),
            _ => {}
        }
        let class = [Class::Calm, Class::Mixed, Class::Violent][(seed % 3) as usize];
        Self::draw_as(seed, class)
    }

    /// Draws a run with one power cut after the other, and a few blocks between them: the blocks of
    /// an opening are written among the leftovers of earlier openings.
    fn stammer(seed: u64) -> Self {
        let mut plan = Self::draw_as(seed, Class::Mixed);
        let rng = &mut Rng::new(!seed);
        let acts = [Act::Burst(0), Act::Commit(1), Act::Work, Act::Work, Act::Wait, Act::Cut];
        for step in &mut plan.steps {
            step.act = detailed(acts[rng.below(acts.len() as u64) as usize], rng);
        }
        plan
    }

    /// Draws a run with one fault after the other. The store is opened again and again on the same
    /// disk, as a supervisor does, before a power cut.
    fn stubborn(seed: u64) -> Self {
        let mut plan = Self::draw_as(seed, Class::Violent);
        let rng = &mut Rng::new(!seed);
        for step in &mut plan.steps {
            let act = match rng.below(12) {
                0..2 => Act::Commit(2),
                2..4 => Act::Wait,
                4 => Act::Burst(0),
                5 => Act::Work,
                6 => Act::Checkpoint,
                7..9 => error(rng),
                9 => Act::Reopen,
                10 => Act::Kill,
                _ if rng.percent(40) => Act::Cut,
                _ => Act::Kill,
            };
            step.act = detailed(act, rng);
        }
        plan
    }

    /// Draws a run of a class.
    pub fn draw_as(seed: u64, class: Class) -> Self {
        let rng = &mut Rng::new(seed);
        let shape = Shape::draw(rng);
        let mut habits = habits(rng, &shape, class);
        let len = match class {
            Class::Calm => 100 + rng.below(500),
            _ => 20 + rng.below(180),
        };
        let menu = Menu::draw(rng, class);
        let mut steps: Vec<Step> = (0..len).map(|_| menu.step(rng)).collect();
        // Drawn last, so that the rest of the plan stays the same for a seed.
        let apart = rng.percent(30);
        let inside = if apart { 0 } else { shape.ring };
        let room = LEAST_ROOM + inside + SECTOR as u64 * rng.below(100);
        let capacity = if rng.percent(25) { room } else { 0 };
        let remembered = [0, 256, 1024, 64 << 10][rng.below(4) as usize];
        habits.weights[8] = if rng.percent(40) { 2 + rng.below(12) } else { 0 };
        if capacity > 0 && rng.percent(60) {
            // So that the store becomes full.
            habits.small = 7000;
        }
        if rng.percent(30) {
            for _ in 0..1 + rng.below(6) {
                let at = rng.below(steps.len() as u64) as usize;
                steps.insert(at, menu.step_of(Act::Import(0), rng));
            }
        }
        if rng.percent(30) {
            for _ in 0..2 + rng.below(6) {
                let at = rng.below(steps.len() as u64) as usize;
                steps.insert(at, menu.step_of(Act::View, rng));
            }
        }
        if rng.percent(30) {
            for _ in 0..2 + rng.below(8) {
                let at = rng.below(steps.len() as u64) as usize;
                steps.insert(at, menu.step_of(Act::Offload, rng));
            }
        }
        // Spaces in memory refuse imports: few runs have both.
        let imports = steps.iter().any(|step| matches!(step.act, Act::Import(_)));
        if rng.percent(if imports { 5 } else { 40 }) {
            for _ in 0..2 + rng.below(8) {
                let at = rng.below(steps.len() as u64) as usize;
                let rests = [Rest::Durable, Rest::Deferred, Rest::Memory, Rest::Memory];
                let act = if rng.percent(40) { Act::Dump } else { Act::Move(rests[rng.below(4) as usize]) };
                steps.insert(at, menu.step_of(act, rng));
            }
        }
        if rng.percent(15) {
            for _ in 0..1 + rng.below(3) {
                let at = rng.below(steps.len() as u64) as usize;
                steps.insert(at, menu.step_of(Act::Hang(rng.below(4)), rng));
            }
        }
        let ms = if rng.percent(15) { [1, 4, 20, 200][rng.below(4) as usize] } else { 0 };
        let interval = Duration::from_millis(ms);
        if rng.percent(if ms > 0 { 90 } else { 5 }) {
            for _ in 0..1 + rng.below(6) {
                let at = rng.below(steps.len() as u64) as usize;
                steps.insert(at, menu.step_of(Act::Punctual([5, 20, 100][rng.below(3) as usize]), rng));
            }
        }
        // By its own numbers, so that the other runs stay as they are.
        let own = &mut Rng::new(seed ^ BEGINS);
        habits.weights[9] = if own.percent(30) { 2 + own.below(12) } else { 0 };
        add_damaged_rings(&mut steps, &menu, &mut Rng::new(seed ^ AROUND));
        if class == Class::Mixed {
            add_size_errors(&mut steps, &menu, &mut Rng::new(seed ^ SIZES));
        }
        let own = &mut Rng::new(seed ^ GROWS);
        let first_ring = if own.percent(40) { LEAST_RING } else { shape.ring };
        let long = Shape::draw_long(&mut Rng::new(seed ^ LONG));
        let shape = Shape { apart, capacity, remembered, interval, first_ring, long, ..shape };
        Self { seed, class, shape, habits, steps }
    }
}

/// Separates the choice of runs whose readers meet a damaged ring from the other choices of a seed.
const AROUND: u64 = 0x6172_6f75_6e64;

/// Lets readers beside the store meet a damaged ring, in some runs.
fn add_damaged_rings(steps: &mut Vec<Step>, menu: &Menu, rng: &mut Rng) {
    if rng.percent(30) {
        for _ in 0..1 + rng.below(6) {
            let at = place_around(steps, rng);
            steps.insert(at, menu.step_of(Act::ReadAround, rng));
        }
    }
}

/// Draws a place among the steps; half of the time, soon after an opening: the superblock then
/// knows all older blocks.
fn place_around(steps: &[Step], rng: &mut Rng) -> usize {
    let opens = |step: &Step| matches!(step.act, Act::Reopen | Act::Kill | Act::Cut | Act::Hang(_));
    let openings: Vec<usize> = (0..steps.len()).filter(|at| opens(&steps[*at])).collect();
    if openings.is_empty() || rng.percent(50) {
        return rng.below(steps.len() as u64 + 1) as usize;
    }
    let after = openings[rng.below(openings.len() as u64) as usize] + 1;
    (after + rng.below(4) as usize).min(steps.len())
}

/// Separates the choice of runs whose volume fails to grow or to shrink from the other choices of a
/// seed.
const SIZES: u64 = 0x73_697a_6573;

/// Lets changes of the volume's size and holes fail, in some runs.
fn add_size_errors(steps: &mut Vec<Step>, menu: &Menu, rng: &mut Rng) {
    if rng.percent(15) {
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(steps.len() as u64 + 1) as usize;
            let kind = [ErrorKind::Other, ErrorKind::StorageFull][rng.below(2) as usize];
            let fault = Fault::SizeErrorAfter { changes: rng.below(5), kind, sticky: rng.percent(30) };
            steps.insert(at, menu.step_of(Act::Fail(fault), rng));
        }
    }
}

/// Separates the choice of runs whose rings grow from the other choices of a seed.
const GROWS: u64 = 0x67_726f_7773;

/// Separates the choice of runs that have long commits from the other choices of a seed.
const LONG: u64 = 0x6c_6f6e_6773;

/// Separates the choice of runs whose logs begin at any number from the other choices of a seed.
const BEGINS: u64 = 0x6265_6769_6e73;

/// Least capacity besides the ring: the superblock's zone, and the least heap.
const LEAST_ROOM: u64 = (64 << 10) + (1 << 20);

fn habits(rng: &mut Rng, shape: &Shape, class: Class) -> Habits {
    let mut weights = [60, 7, 8, 5, 7, 5, 5, 3, 0, 0];
    for weight in &mut weights[1..8] {
        // A third of the operations are left out of a run, and some are frequent.
        match rng.below(6) {
            0 | 1 => *weight = 0,
            2 => *weight *= 4,
            _ => {}
        }
    }
    if rng.percent(20) {
        // Logs that only grow have several chunks, which readers fetch one by one.
        weights[1..6].fill(0);
    }
    let keys = match (class, rng.below(4)) {
        (Class::Calm, 0) => 400,
        (_, 0) => 60,
        (_, 1) => 3,
        _ => 12,
    };
    let small = [20, 120, 400, 2000][rng.below(4) as usize];
    Habits { keys, skewed: rng.percent(30), small, large: shape.payload as u64, weights }
}

/// The distribution of a run's steps: weights, and frequencies of interruptions.
struct Menu {
    acts: Vec<(u64, Act)>,
    /// Percentage of steps that a power cut on a copy interrupts, and of steps that other callers
    /// interrupt.
    cuts: u64,
    others: u64,
}

impl Menu {
    fn draw(rng: &mut Rng, class: Class) -> Self {
        let ms = Duration::from_millis;
        let mut acts = vec![(30, Act::Commit(1)), (8, Act::Commit(4))];
        let usual = [
            (3, Act::Burst(0)),
            (8, Act::Deferred),
            (15, Act::Wait),
            (12, Act::Work),
            (3, Act::Idle(ms(1))),
            (2, Act::Idle(ms(1_200))),
            (3, Act::Flush),
            (3, Act::Checkpoint),
            (1, Act::Compact),
            (3, Act::Read),
            (3, Act::ReadAll),
            (2, Act::Hold),
            (2, Act::Release),
            (2, Act::Reopen),
        ];
        for (weight, act) in usual {
            acts.push((weight * [0, 1, 1, 1, 3][rng.below(5) as usize], act));
        }
        if class != Class::Calm {
            acts.push((1, Act::Kill));
            acts.push((2, Act::Cut));
            acts.push((rng.below(2), Act::Fail(Fault::PowerOffAfter(0))));
        }
        // A run has only one kind of fault, so that its effect can be attributed.
        let trouble = match (class, rng.below(6)) {
            (Class::Calm, _) => Act::Work,
            (Class::Mixed, _) | (_, 0) => Act::Fail(Fault::ShortTransfers),
            (_, 1 | 2) => error(rng),
            (_, 3) => Act::Fail(Fault::LieAfter { writes: 0, fault: SilentFault::Lost }),
            (_, 4) => Act::Fail(Fault::Full(0)),
            _ => Act::Rot,
        };
        acts.push((rng.below(4), trouble));
        acts.retain(|(weight, _)| *weight > 0);
        let cuts = if class == Class::Violent { 5 } else { 5 + rng.below(40) };
        Self { acts, cuts, others: [0, 5, 30][rng.below(3) as usize] }
    }

    fn step(&self, rng: &mut Rng) -> Step {
        let mut pick = rng.below(self.acts.iter().map(|(weight, _)| weight).sum());
        let chosen = self.acts.iter().find(|(weight, _)| {
            let found = pick < *weight;
            pick = pick.saturating_sub(*weight);
            found
        });
        let (_, act) = *chosen.expect("the pick is below the sum");
        self.step_of(act, rng)
    }

    /// Draws a step of this act.
    fn step_of(&self, act: Act, rng: &mut Rng) -> Step {
        let act = detailed(act, rng);
        let mut interrupts = Vec::new();
        // Longer acts get more interruptions.
        let (times, spread) = match act {
            Act::Checkpoint | Act::Compact | Act::Reopen => (3, 24),
            Act::Import(_) | Act::View | Act::Offload | Act::Move(_) | Act::Dump => (3, 24),
            _ => (1, 4),
        };
        for _ in 0..times {
            if rng.percent(self.cuts) {
                interrupts.push(Interrupt::draw(rng, spread, Meanwhile::Cut));
            }
            if rng.percent(self.others) {
                let what = match rng.below(5) {
                    0 => Meanwhile::Read,
                    1 => Meanwhile::Work,
                    _ => Meanwhile::Write(1 + rng.below(14)),
                };
                interrupts.push(Interrupt::draw(rng, spread, what));
            }
        }
        let seed = rng.next();
        if seed >> 62 == 0 {
            // One step in four is interrupted by kills instead of power cuts.
            let cuts = interrupts.iter_mut().filter(|interrupt| interrupt.what == Meanwhile::Cut);
            cuts.for_each(|interrupt| interrupt.what = Meanwhile::Kill);
        }
        Step { act, seed, interrupts }
    }
}

/// Draws an error of the disk.
fn error(rng: &mut Rng) -> Act {
    let kind = [ErrorKind::Other, ErrorKind::StorageFull, ErrorKind::WouldBlock];
    let (kind, sticky) = (kind[rng.below(3) as usize], rng.percent(30));
    Act::Fail(match rng.below(3) {
        0 => Fault::ErrorAfter { operations: 0, kind, sticky },
        1 => Fault::FlushErrorAfter { flushes: 0, kind, sticky },
        _ => Fault::ReadErrorAfter { reads: 0, kind, sticky },
    })
}

/// Draws the details of an act.
fn detailed(act: Act, rng: &mut Rng) -> Act {
    match act {
        Act::Commit(n) => Act::Commit(1 + rng.below(n)),
        // Sometimes long enough for the store to rest.
        Act::Idle(time) if time.as_secs() > 0 && rng.percent(30) => Act::Idle(20 * time),
        Act::Burst(_) => Act::Burst(5 + rng.below(60)),
        Act::Import(_) => Act::Import(1 + rng.below(12)),
        Act::Fail(Fault::PowerOffAfter(_)) => Act::Fail(Fault::PowerOffAfter(rng.below(60))),
        Act::Fail(Fault::ErrorAfter { kind, sticky, .. }) => {
            Act::Fail(Fault::ErrorAfter { operations: rng.below(40), kind, sticky })
        }
        Act::Fail(Fault::FlushErrorAfter { kind, sticky, .. }) => {
            Act::Fail(Fault::FlushErrorAfter { flushes: rng.below(4), kind, sticky })
        }
        Act::Fail(Fault::ReadErrorAfter { kind, sticky, .. }) => {
            Act::Fail(Fault::ReadErrorAfter { reads: rng.below(20), kind, sticky })
        }
        Act::Fail(Fault::LieAfter { .. }) => {
            let fault = [
                SilentFault::Lost,
                SilentFault::Shorn,
                SilentFault::Misdirected,
                SilentFault::Flipped,
                SilentFault::Stale,
            ][rng.below(5) as usize];
            let after = rng.below(40);
            Act::Fail(match fault {
                SilentFault::Stale => Fault::StaleReadAfter { reads: after },
                fault => Fault::LieAfter { writes: after, fault },
            })
        }
        // The remaining room, in sectors; the world adds the store's size then.
        Act::Fail(Fault::Full(_)) => Act::Fail(Fault::Full(rng.below(40))),
        act => act,
    }
}
