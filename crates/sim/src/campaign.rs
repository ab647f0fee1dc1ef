//! Runs of one seed and of many seeds.

use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};

use crate::checker::CheckCounts;
use crate::oracle::Violation;
use crate::plan::Plan;
use crate::world::{AroundCounts, Stats, World};

/// A failed run.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Description of the violation.
    pub what: String,
    /// Story of the run, if it was requested.
    pub story: Vec<String>,
}

thread_local! {
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Silences panics of runs: the campaign reports them as failures.
fn hush() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if PANIC.with_borrow(Option::is_some) {
                PANIC.set(Some(info.to_string()));
            } else {
                usual(info);
            }
        }));
    });
}

/// Runs `deed`; converts a panic into a violation.
pub fn guarded<T>(deed: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    hush();
    PANIC.set(Some(String::new()));
    let done = std::panic::catch_unwind(AssertUnwindSafe(deed));
    let told = PANIC.take().unwrap_or_default();
    done.unwrap_or_else(|_| Err(Violation(told)))
}

/// Runs a plan.
pub fn run(plan: &Arc<Plan>, tell: bool) -> Result<Stats, Failure> {
    let world = guarded(|| World::new(plan.clone(), tell));
    let world = world.map_err(|Violation(what)| Failure { what, story: Vec::new() })?;
    match guarded(|| world.run()) {
        Ok(()) => Ok(world.stats()),
        Err(Violation(what)) => {
            let story = world.story();
            world.forget();
            Err(Failure { what, story })
        }
    }
}

/// Runs a plan that must succeed, and returns its story.
pub fn tell(plan: &Arc<Plan>) -> Result<(Vec<String>, Stats), Failure> {
    let fails = |Violation(what)| Failure { what, story: Vec::new() };
    let world = World::new(plan.clone(), true).map_err(fails)?;
    guarded(|| world.run()).map_err(fails)?;
    Ok((world.story(), world.stats()))
}

/// The totals of many runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    /// Number of seeds run.
    pub seeds: u64,
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
    /// Number of runs in which the store met and reported damage.
    pub damaged: u64,
    /// Counts of the readers beside a store on a damaged ring.
    pub around: AroundCounts,
    /// Number of seeds that were run twice, to compare their traces.
    pub repeated: u64,
}

impl Totals {
    fn add(&mut self, stats: &Stats) {
        self.seeds += 1;
        self.steps += stats.steps;
        self.acknowledged += stats.acknowledged;
        self.counts.add(&stats.counts);
        self.stopped += stats.stopped;
        self.full += stats.full;
        self.damaged += stats.damaged;
        self.around.add(&stats.around);
    }
}

/// One in this many seeds is run twice.
const REPEAT: u64 = 50;

/// Runs seeds from `first` on, on `threads` threads, until `enough` returns `true`; returns the
/// first failing seed.
pub fn run_many(
    first: u64,
    threads: usize,
    enough: impl Fn(&Totals) -> bool + Sync,
) -> Result<Totals, (u64, Failure)> {
    let totals = Mutex::new(Totals::default());
    let failed = Mutex::new(None);
    let stop = AtomicBool::new(false);
    let next = AtomicU64::new(first);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let ended = run_twice_now_and_then(seed);
                    let mut totals = totals.lock().expect("no panics");
                    match ended {
                        Ok((stats, repeated)) => {
                            totals.add(&stats);
                            totals.repeated += u64::from(repeated);
                        }
                        Err(failure) => {
                            let mut failed = failed.lock().expect("no panics");
                            failed.get_or_insert((seed, failure));
                            stop.store(true, Ordering::Relaxed);
                        }
                    }
                    if enough(&totals) {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    match failed.into_inner().expect("no panics") {
        Some(failure) => Err(failure),
        None => Ok(totals.into_inner().expect("no panics")),
    }
}

fn run_twice_now_and_then(seed: u64) -> Result<(Stats, bool), Failure> {
    let plan = Arc::new(Plan::draw(seed));
    let stats = run(&plan, false)?;
    if !seed.is_multiple_of(REPEAT) {
        return Ok((stats, false));
    }
    let again = run(&plan, false)?;
    let same = (again.acknowledged, again.counts) == (stats.acknowledged, stats.counts);
    if again.trace != stats.trace || !same {
        let what = format!("two runs left different traces: {:x} and {:x}", stats.trace, again.trace);
        return Err(Failure { what, story: Vec::new() });
    }
    Ok((stats, true))
}
