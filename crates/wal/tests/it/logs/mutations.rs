//! Seeded bugs of the log: deliberate breaks, each of which the power cuts must catch. A build with
//! the feature `seeded-bugs` plants them.

use std::panic::catch_unwind;

use brooklet_io::seeded::{met, plant};

use crate::logs::{crash, lives, restarts};

/// Breaks, and a test that catches each.
const BUGS: &[(&str, fn())] = &[
    ("stale-blocks-are-believed", crash::a_block_of_an_earlier_crash_never_follows_a_new_one),
    ("log-epoch-stays", crash::a_block_of_an_earlier_crash_never_follows_a_new_one),
    ("log-opens-without-flush", lives::what_was_read_after_a_kill_survives_a_power_cut),
    ("open-log-says-clean", crash::every_power_cut_leaves_a_prefix_with_all_that_was_acknowledged),
    ("log-label-is-cached", crash::every_power_cut_leaves_a_prefix_with_all_that_was_acknowledged),
    ("log-trims-the-next-block", crash::every_power_cut_leaves_a_prefix_with_all_that_was_acknowledged),
    ("log-resize-is-not-recorded", crash::every_power_cut_leaves_a_prefix_with_all_that_was_acknowledged),
    ("log-resizes-one-slot", crash::every_power_cut_leaves_a_prefix_with_all_that_was_acknowledged),
    (
        "window-is-not-written-again",
        restarts::a_volume_that_knows_no_medium_has_its_last_blocks_written_again,
    ),
    (
        "window-is-written-without-flush",
        restarts::nothing_that_was_acknowledged_rests_on_what_only_a_cache_holds,
    ),
];

#[test]
fn every_seeded_bug_of_the_log_is_caught() {
    for (name, catches) in BUGS {
        plant(Some(name));
        let passed = catch_unwind(catches).is_ok();
        let met = met();
        plant(None);
        assert!(met > 0 && !passed, "{name} was met {met} times, and goes unnoticed");
    }
}
