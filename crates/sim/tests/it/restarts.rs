//! Stories of restarts on the same disk, told step by step: they stay what they are however plans
//! are drawn from seeds.

use std::io::ErrorKind;
use std::sync::Arc;

use brooklet::io::{Fault, seeded};
use brooklet_sim::campaign::run;
use brooklet_sim::plan::{Act, Class, Plan, Step};

/// Runs the story with many seeds; returns how often it failed, and how it did first.
fn tell(acts: &[Act], seeds: u64) -> (u64, String) {
    let (mut failed, mut first) = (0, String::new());
    for seed in 0..seeds {
        let mut plan = Plan::draw_as(seed, Class::Calm);
        plan.shape.capacity = 0;
        let step = |(nth, act): (usize, &Act)| Step {
            act: *act,
            seed: seed << 8 | nth as u64,
            interrupts: Vec::new(),
        };
        plan.steps = acts.iter().enumerate().map(step).collect();
        if let Err(failure) = run(&Arc::new(plan), false) {
            failed += 1;
            first = if first.is_empty() { format!("seed {seed}: {}", failure.what) } else { first };
        }
    }
    (failed, first)
}

/// Sees the story go well, and fail with a seeded bug, where this build can plant one.
fn holds_and_would_fail_with(bug: &'static str, acts: &[Act]) {
    let (failed, first) = tell(acts, 100);
    assert_eq!(failed, 0, "{first}");
    if seeded::CAN_PLANT {
        seeded::plant(Some(bug));
        let (failed, _) = tell(acts, 100);
        seeded::plant(None);
        assert!(failed > 0, "nothing notices {bug}");
    }
}

const FLUSH_FAILS: Act =
    Act::Fail(Fault::FlushErrorAfter { flushes: 0, kind: ErrorKind::Other, sticky: false });

/// A process is killed with blocks in the cache that nobody was told of. The flush of the next
/// opening fails and drops them; the one after that reads them still, and must not build on them.
#[test]
fn an_opening_does_not_believe_what_the_flush_of_the_one_before_has_dropped() {
    let end = [Act::Commit(2), Act::Wait, Act::ReadAll, Act::Cut, Act::ReadAll];
    let begin = [Act::Commit(2), Act::Wait, Act::Burst(6), Act::Work, FLUSH_FAILS, Act::Kill];
    holds_and_would_fail_with("window-is-not-written-again", &[&begin[..], &end[..]].concat());
}

/// The same after a write that failed, which leaves some of its sectors behind.
#[test]
fn nor_what_a_failed_write_has_left() {
    let write_fails = Act::Fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: false });
    let acts = [
        Act::Commit(2),
        Act::Wait,
        write_fails,
        FLUSH_FAILS,
        Act::Commit(1),
        Act::Wait,
        Act::Commit(2),
        Act::Wait,
        Act::Cut,
        Act::ReadAll,
    ];
    holds_and_would_fail_with("window-is-not-written-again", &acts);
}
