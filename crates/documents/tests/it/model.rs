//! Random operations of many clients, with kills, power cuts and reopenings on a simulated disk,
//! beside a plain model.
//!
//! `DOCUMENTS_CASES` sets the number of cases, `DOCUMENTS_SEED` the first seed. A failure names its
//! seed: `DOCUMENTS_SEED=7 DOCUMENTS_CASES=1` runs only that case.

mod plain;
mod watcher;
mod world;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use world::{Counts, World};

/// Number of cases that a run without the variable takes.
const CASES: u64 = 2_000;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number is set"))
}

fn run(seed: u64) -> Counts {
    let case = || {
        let mut world = World::new(seed);
        for _ in 0..40 {
            world.step();
        }
        world.end();
        world.counts
    };
    catch_unwind(AssertUnwindSafe(case)).unwrap_or_else(|panic| {
        eprintln!("seed {seed} failed");
        resume_unwind(panic)
    })
}

#[test]
fn documents_agree_with_a_plain_model_whatever_happens() {
    let (first, cases) = (number("DOCUMENTS_SEED", 0), number("DOCUMENTS_CASES", CASES));
    let threads = thread::available_parallelism().map_or(1, NonZero::get) as u64;
    let mut counts = Counts::default();
    // Each case has one thread.
    thread::scope(|scope| {
        let seeds = |thread| (first + thread..first + cases).step_by(threads as usize);
        let all = (0..threads).map(|thread| scope.spawn(move || seeds(thread).map(run).collect::<Vec<_>>()));
        for thread in all.collect::<Vec<_>>() {
            thread.join().expect("all cases agree").iter().for_each(|more| counts.add(more));
        }
    });
    println!("{counts:?}");
    if cases >= 100 {
        counts.expect_all();
    }
}
