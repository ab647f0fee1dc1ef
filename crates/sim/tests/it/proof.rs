//! A bounded share of the proof, as ordinary tests; `.ci/proof` runs the rest.
//!
//! A failing seed is told: `cargo run -p brooklet-sim -- --seed N` shrinks it to a story.
//! `BROOKLET_SIM_SEEDS` sets how many seeds are run.

use std::sync::Arc;

use brooklet_sim::budget::Budget;
use brooklet_sim::campaign::{run, run_many};
use brooklet_sim::oracle::Violation;
use brooklet_sim::plan::Plan;
use brooklet_sim::sweep::damage::{Flips, Sectors};
use brooklet_sim::sweep::errors::Errors;
use brooklet_sim::sweep::{self, Sweep, Swept, in_turn};

/// Seeds that once failed, and why. A change of how plans are drawn makes each another run; the
/// story stays.
const PERMANENT: &[(u64, &str)] = &[
    (6, "somebody wrote while the store was being closed"),
    (383, "the disk lied while the store was killed, and while it was opened"),
    (158, "unknown commits to a log that was damaged"),
    (3869, "a commit was larger than the ring takes"),
    (10259, "a disk that had lied was replaced, with what it held"),
    (21302, "a run did not read back as it was just written"),
];

#[test]
fn seeds_that_once_failed_pass() {
    for &(seed, why) in PERMANENT {
        if let Err(failure) = run(&Arc::new(Plan::draw(seed)), false) {
            panic!("seed {seed} ({why}): {}", failure.what);
        }
    }
}

#[test]
fn seeds_pass_and_meet_what_they_are_for() {
    let seeds = std::env::var("BROOKLET_SIM_SEEDS");
    let seeds: u64 = seeds.map_or(600, |n| n.parse().expect("BROOKLET_SIM_SEEDS is a number"));
    let totals = run_many(30_000, 2, |totals| totals.seeds >= seeds).unwrap_or_else(|(seed, failure)| {
        panic!("seed {seed}: {}\nits story: cargo run -p brooklet-sim -- --seed {seed}", failure.what)
    });
    println!("{totals:?}");
    // A simulation in which nothing happens finds nothing.
    assert!(totals.counts.points.iter().all(|&points| points > seeds / 4), "{:?}", totals.counts);
    assert!(totals.repeated > 0 && totals.acknowledged > 50 * seeds);
    if seeds >= 600 {
        assert!(totals.stopped > 0 && totals.full > 0 && totals.damaged > 0, "{totals:?}");
        assert!(totals.around.named > 50 && totals.around.quiet > 50, "{:?}", totals.around);
    }
}

fn swept<S: Sweep>(all: Result<S, Violation>, threads: u64) -> Swept {
    let all = all.unwrap_or_else(|Violation(what)| panic!("{what}"));
    let swept = sweep::run(&all, threads, &Budget::new(None));
    let swept = swept.unwrap_or_else(|(place, Violation(what))| panic!("place {place}: {what}"));
    println!("{swept:?}");
    swept
}

/// One in so many of a sweep's places, from all over it.
struct OneIn<S>(u64, S);

impl<S: Sweep> Sweep for OneIn<S> {
    fn places(&self) -> u64 {
        self.1.places() / self.0
    }

    fn try_place(&self, nth: u64) -> Result<Swept, Violation> {
        self.1.try_place(in_turn(nth, self.1.places()))
    }
}

/// The proof of a change goes on with the others, for as long as it has time, and that of a release
/// tries all.
#[test]
fn every_operation_fails_in_every_way() {
    let swept = swept(Errors::new(1).map(|all| OneIn(10, all)), 2);
    assert!(swept.cases > 500 && swept.met > 250, "{swept:?}");
}

#[test]
fn no_flipped_bit_goes_unnoticed_or_gives_a_wrong_byte() {
    let swept = swept(Flips::new(47), 2);
    assert!(swept.checked > 5000 && swept.met > 5000, "{swept:?}");
    assert!(swept.spared > 0, "a damaged filter is no reason to fail a read");
}

#[test]
fn no_sector_that_is_zeroed_stale_or_elsewhere_gives_a_wrong_byte() {
    let swept = swept(Sectors::new(17), 2);
    assert!(swept.cases > 2500 && swept.met > 500, "{swept:?}");
}
