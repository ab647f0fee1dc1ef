//! Seeded bugs of the archive: deliberate breaks, each of which a test must catch. A build with the
//! feature `seeded-bugs` plants them, and runs this by itself.

use std::panic::catch_unwind;

use brooklet::io::seeded::{met, plant};

use crate::{archive, damage, hanging, moments, shipping};

/// Breaks, and a test that catches each.
const BUGS: &[(&str, fn())] = &[
    ("chain-is-not-closed", moments::every_moment_between_backups_is_restored),
    ("next-chain-begins-late", hanging::what_is_committed_while_a_backup_looks_around_is_shipped_behind_it),
    ("chain-outlives-its-base", moments::a_backup_whose_answer_is_lost_is_gone_on_from),
    ("outage-has-no-bound", shipping::an_outage_fills_no_memory_and_no_object),
    ("unsent-is-forgotten", moments::every_moment_between_backups_is_restored),
    ("hole-is-not-looked-for", moments::what_was_lost_to_shipping_is_a_hole),
    ("restore-trusts-dates", moments::clocks_that_are_set_hide_nothing),
    ("clock-is-set-unnoticed", moments::clocks_that_are_set_hide_nothing),
    ("lost-follower-says-nothing", moments::what_was_lost_to_shipping_is_a_hole),
    ("damage-is-not-marked", damage::a_damaged_part_is_backed_up_as_it_is_and_marked),
    ("any-store-is-taken", archive::an_archive_is_of_one_store),
];

#[test]
fn every_seeded_bug_of_the_archive_is_caught() {
    let mut unnoticed = Vec::new();
    for (name, catches) in BUGS {
        plant(Some(name));
        let passed = catch_unwind(catches).is_ok();
        let met = met();
        plant(None);
        if met == 0 || passed {
            unnoticed.push(format!("{name}, met {met} times"));
        }
    }
    assert!(unnoticed.is_empty(), "what goes unnoticed: {unnoticed:?}");
}
