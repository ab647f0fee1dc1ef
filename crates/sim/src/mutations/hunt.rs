//! The hunt for a seeded bug: first the trial that caught the bug last, then seeds and places of
//! sweeps in turn.

use std::fmt;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use brooklet::io::seeded;

use super::Bug;
use crate::budget::Budget;
use crate::campaign::{self, Failure};
use crate::oracle::Violation;
use crate::plan::Plan;
use crate::shrink::shrink;
use crate::sweep::damage::{Flips, Sectors};
use crate::sweep::errors::Errors;
use crate::sweep::{self, Sweep};

/// Number of seeds that are tried for each bug.
const SEEDS: u64 = 12_000;
/// Time after which a run counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same for a run with a story.
const PATIENCE_WITH_STORY: Duration = Duration::from_secs(300);

/// The result of a successful hunt.
#[derive(Clone, Debug)]
pub struct Caught {
    /// Trial that catches the bug.
    pub by: Trial,
    /// Message of the simulator.
    pub what: String,
    /// Shortest story of the failure, if a story was requested and a seed caught the bug.
    pub story: Vec<String>,
}

/// A trial that may catch a bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The run of this seed.
    Seed(u64),
    /// Some cases of this place of the flip sweep.
    Flip(u64),
    /// Some cases of this place of the sector sweep.
    Sector(u64),
    /// This place of the error sweep, with one script.
    Error(u64),
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trial::Seed(seed) => write!(f, "seed {seed}"),
            Trial::Flip(place) => write!(f, "flip {place}"),
            Trial::Sector(place) => write!(f, "sector {place}"),
            Trial::Error(place) => write!(f, "error {place}"),
        }
    }
}

/// The function that makes a sweep, and the trial of one of its places.
type Kind = (fn() -> Result<Box<dyn Sweep>, Violation>, fn(u64) -> Trial);

const FLIPS: Kind = (|| Ok(Box::new(Flips::new(37)?)), Trial::Flip);
const SECTORS: Kind = (|| Ok(Box::new(Sectors::new(7)?)), Trial::Sector);
const ERRORS: Kind = (|| Ok(Box::new(Errors::new(1)?)), Trial::Error);

impl Trial {
    /// Runs the trial; returns the failure, if any.
    fn run(self, story: bool) -> Option<Failure> {
        let ((make, _), place) = match self {
            Trial::Seed(seed) => {
                let plan = Plan::draw(seed);
                let failure = campaign::run(&Arc::new(plan.clone()), false).err()?;
                let shrunk = if story { shrink(&plan) } else { None };
                return Some(shrunk.map_or(failure, |(_, failure)| failure));
            }
            Trial::Flip(place) => (FLIPS, place),
            Trial::Sector(place) => (SECTORS, place),
            Trial::Error(place) => (ERRORS, place),
        };
        campaign::guarded(|| make()?.try_place(place)).err().map(told)
    }
}

fn told(Violation(what): Violation) -> Failure {
    Failure { what, story: Vec::new() }
}

/// Returns whether this build can plant bugs.
pub const fn can_plant() -> bool {
    seeded::CAN_PLANT
}

/// Hunts bugs on `threads` threads within `budget`: first every bug by the trial that caught it
/// last, then each remaining bug with a fair share of the time. Calls `note` at the end of each
/// hunt; with `story`, records the story of a caught bug.
pub fn hunt_all(
    bugs: &[Bug],
    threads: usize,
    budget: &Budget,
    story: bool,
    note: &(dyn Fn(Bug, Result<Caught, String>) + Sync),
) {
    let missed = Mutex::new(Vec::new());
    in_turn(bugs, threads, &|bug, _| match hunt(bug, Reach::Soonest, story) {
        Ok(caught) => note(bug, Ok(caught)),
        Err(_) => missed.lock().expect("no panics").push(bug),
    });
    in_turn(&missed.into_inner().expect("no panics"), threads, &|bug, behind| {
        let share = budget.left().map(|left| left.mul_f64(threads as f64 / (behind + 1).max(threads) as f64));
        note(bug, hunt(bug, Reach::Far(share), story));
    });
}

/// Calls `deed` for each bug on `threads` threads, with the number of bugs that follow.
fn in_turn(bugs: &[Bug], threads: usize, deed: &(dyn Fn(Bug, usize) + Sync)) {
    let left = Mutex::new(bugs.iter().rev().copied().collect::<Vec<_>>());
    let next = || {
        let mut left = left.lock().expect("no panics");
        left.pop().map(|bug| (bug, left.len()))
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some((bug, behind)) = next() {
                    deed(bug, behind);
                }
            });
        }
    });
}

/// The extent of a hunt.
#[derive(Clone, Copy, Debug)]
pub enum Reach {
    /// Only the trial that caught the bug last.
    Soonest,
    /// All trials, up to this time.
    Far(Option<Duration>),
}

/// Plants a bug and runs trials until one of them catches the bug. Returns an error, with the
/// number of times that the bug was met, if no trial does.
///
/// With `story`, shrinks the plan of a failing seed.
pub fn hunt(bug: Bug, reach: Reach, story: bool) -> Result<Caught, String> {
    let (tell, hear) = mpsc::channel();
    let hunter = std::thread::Builder::new().name(bug.name.into()).spawn(move || {
        let mut hunter = Hunter { bug, story, tell };
        // After the bug is caught, the receiver is gone.
        let _ = match reach {
            Reach::Soonest => hunter.attempt(bug.soonest),
            Reach::Far(share) => hunter.go_far(share),
        };
    });
    hunter.map_err(|error| format!("no thread: {error}"))?;
    let patience = if story { PATIENCE_WITH_STORY } else { PATIENCE };
    let (mut met, mut trials) = (0, 0);
    loop {
        match hear.recv_timeout(patience) {
            Ok(News { caught: Some(caught), .. }) => return Ok(caught),
            Ok(news) => (met, trials) = (met + news.met, trials + 1),
            // A hanging thread is left behind; the process ends soon.
            Err(mpsc::RecvTimeoutError::Timeout) => {
                return Err(format!("trial {} takes longer than {patience:?}", trials + 1));
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                return Err(format!("{trials} trials; the bug was met {met} times"));
            }
        }
    }
}

/// The result of one trial.
struct News {
    caught: Option<Caught>,
    met: u64,
}

struct Hunter {
    bug: Bug,
    story: bool,
    tell: mpsc::Sender<News>,
}

/// The end of a hunt: the bug is caught, or the receiver is gone.
struct Done;

impl Hunter {
    fn attempt(&mut self, trial: Trial) -> Result<(), Done> {
        seeded::plant(Some(self.bug.name));
        let failed = trial.run(self.story);
        self.judge(trial, failed, seeded::met())
    }

    /// Judges a trial. A trial that fails without the bug, too, or without meeting the bug, has not
    /// caught it.
    fn judge(&mut self, trial: Trial, failed: Option<Failure>, met: u64) -> Result<(), Done> {
        seeded::plant(None);
        let failed = failed.filter(|_| met > 0 && trial.run(false).is_none());
        let caught = failed.map(|Failure { what, story }| Caught { by: trial, what, story });
        let done = caught.is_some();
        let heard = self.tell.send(News { caught, met }).is_ok();
        if done || !heard { Err(Done) } else { Ok(()) }
    }

    /// Alternates between some seeds and some places of each sweep: a bug that only one kind
    /// catches need not wait for all trials of another kind.
    fn go_far(&mut self, share: Option<Duration>) -> Result<(), Done> {
        let budget = share.map_or(Budget::new(None), Budget::of);
        let mut sweeps = [(FLIPS, 64), (SECTORS, 64), (ERRORS, 2)].map(|(kind, round)| Places {
            kind,
            round,
            all: None,
            met: 0,
            next: 0,
        });
        let mut seeds = 0..SEEDS;
        loop {
            let more = seeds.by_ref().take(16).collect::<Vec<_>>();
            for &seed in &more {
                self.attempt(Trial::Seed(seed))?;
                if budget.is_spent() {
                    return Ok(());
                }
            }
            let mut done = more.is_empty();
            for places in &mut sweeps {
                done &= self.try_some(places)?;
            }
            if done || budget.is_spent() {
                return Ok(());
            }
        }
    }

    /// Tries the next places of a sweep. Returns `true` if no place is left.
    fn try_some(&mut self, places: &mut Places) -> Result<bool, Done> {
        let (make, name) = places.kind;
        for _ in 0..places.round {
            seeded::plant(Some(self.bug.name));
            let (mut place, mut count) = (0, u64::MAX);
            let tried = campaign::guarded(|| {
                // A failure while the sweep is made counts as a failure of every place.
                let all = match &mut places.all {
                    Some(all) => all,
                    none => none.insert(make()?),
                };
                count = all.places();
                if places.next < count {
                    place = sweep::in_turn(places.next, count);
                    all.try_place(place)?;
                }
                Ok(())
            });
            if places.next == 0 {
                places.met = seeded::met();
            }
            places.next += 1;
            self.judge(name(place), tried.err().map(told), seeded::met() + places.met)?;
            if places.next >= count {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The progress of a sweep.
struct Places {
    kind: Kind,
    /// Number of places per round.
    round: u64,
    /// The sweep, once made.
    all: Option<Box<dyn Sweep>>,
    /// Number of times that the bug was met while the sweep was made.
    met: u64,
    /// Number of places tried.
    next: u64,
}
