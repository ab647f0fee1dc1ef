//! Seeded bugs of callbacks, panics and forks, each with a test that catches it. A build with the
//! feature `seeded-bugs` plants them.

use std::panic::catch_unwind;

use brooklet_io::seeded::{met, plant};

use crate::{callbacks, forks, mirror};

const BUGS: &[(&str, fn())] = &[
    ("callback-within-a-callback", callbacks::a_callback_never_runs_within_another),
    ("closing-overtakes-callbacks", callbacks::closing_waits_for_a_callback_of_another_thread),
    ("callback-under-a-lock", callbacks::a_callback_waits_for_the_end_of_a_hush),
    ("panic-leaves-a-write-open", callbacks::a_volume_that_panics_stops_the_log),
    ("acknowledged-before-the-mirror", mirror::an_acknowledgement_waits_for_the_mirror),
    ("fork-goes-unnoticed", forks::a_child_is_refused),
];

#[test]
fn every_seeded_bug_of_callbacks_panics_and_forks_is_caught() {
    for (name, catches) in BUGS {
        plant(Some(name));
        let passed = catch_unwind(catches).is_ok();
        let met = met();
        plant(None);
        // A child meets its bug in a process of its own.
        assert!(
            !passed && (met > 0 || name.contains("fork")),
            "{name} was met {met} times, and goes unnoticed"
        );
    }
}
