//! Seeded bugs of damage, forks, what users keep, refusals and restarts, each with a test that
//! catches it. A build with the feature `seeded-bugs` plants them.

use std::panic::catch_unwind;

use brooklet::io::seeded::{met, plant};

use crate::{
    catch_up, cuts, damage, damaged_runs, following, forks, full, kept, live, names, refusals, restart,
    spaces, tails,
};

const BUGS: &[(&str, fn())] = &[
    ("successor-asks-no-run", catch_up::a_file_that_caught_up_holds_what_the_owner_holds),
    ("earlier-trims-hold", damage::a_log_that_was_begun_again_below_its_first_number_shows_what_is_proven),
    ("successor-sweeps", catch_up::a_file_that_catches_up_commits_nothing),
    ("successor-passes-damage-over", catch_up::a_damaged_run_ends_the_catching_up),
    ("empty-blocks-do-not-count", catch_up::empty_blocks_count),
    ("follower-forgets-the-frozen", following::the_states_of_a_frozen_memtable_count_without_runs),
    ("follower-asks-no-run", following::a_store_that_follows_shows_what_the_owner_shows),
    ("follower-waits-for-no-room", following::memory_stays_within_its_budget),
    ("follower-keeps-its-place", following::a_store_that_is_killed_goes_on_from_its_last_checkpoint),
    ("follower-tells-no-watcher", following::tails_hear_of_what_the_log_brings),
    ("child-keeps-the-lock", forks::a_store_that_is_closed_is_free_beside_a_child),
    ("truncations-cut-nothing", cuts::a_copy_that_heeds_the_cuts_is_the_log),
    ("unread-ring-cuts-nothing", cuts::a_reader_learns_from_where_a_log_lost_its_end),
    ("deletions-cut-nothing", cuts::a_copy_that_heeds_the_cuts_is_the_log),
    ("latest-cut-counts", cuts::a_copy_that_heeds_the_cuts_is_the_log),
    ("a-hole-hides-the-rest", damage::a_damaged_block_of_the_ring_hides_no_other),
    ("trimmed-entries-stay-trimmed", damage::a_log_that_a_lost_commit_may_have_begun_again_is_in_doubt),
    ("freed-space-is-read", live::replaced_data_is_refused_by_name),
    ("reader-beside-shows-all", live::a_reader_sees_what_was_acknowledged_and_no_change),
    ("numbers-that-go-on-prove-a-log", damage::a_damaged_block_of_the_ring_hides_no_other),
    ("damage-ends-all-merging", damaged_runs::a_damaged_run_stays_and_newer_ones_are_merged),
    ("what-is-damaged-is-passed-over", damaged_runs::a_damaged_run_stays_and_newer_ones_are_merged),
    ("changed-totals-stay-out-of-runs", spaces::many::a_table_that_did_not_change_is_not_written_again),
    ("closed-store-keeps-its-file", kept::a_closed_store_keeps_no_file),
    ("payload-pins-its-block", kept::a_small_payload_has_memory_of_its_own),
    ("folder-is-not-synced", names::a_power_cut_leaves_a_whole_store_or_none),
    ("found-name-is-believed", names::an_error_leaves_a_whole_store_or_none),
    ("name-before-content", names::a_power_cut_leaves_a_whole_store_or_none),
    ("ring-goes-before-its-data", names::an_error_leaves_a_whole_store_or_none),
    ("refusal-before-durable", refusals::what_a_refusal_says_survives_a_power_cut),
    (
        "deferred-ignores-the-pace",
        refusals::a_deferred_commit_is_not_acknowledged_before_a_pace_that_breaks_its_bound,
    ),
    (
        "pace-forgets-the-time",
        refusals::a_deferred_commit_is_not_acknowledged_before_a_pace_that_breaks_its_bound,
    ),
    ("last-resort-beside-readers", full::deletes_go_on_after_readers),
    ("left-memory-counts-nothing", spaces::memory::a_space_that_does_not_fit_in_memory_keeps_its_quota),
    ("rules-are-not-stored", spaces::rules::rules_hold_whatever_happens),
    ("read-only-shows-the-window", restart::reading_only_shows_nothing_that_a_power_cut_takes_back),
    ("oldest-superblock-counts", restart::the_newest_superblock_counts),
    ("slots-are-read-at-once", restart::an_old_copy_of_the_superblock_is_not_taken_for_all),
    ("tails-wake-for-other-logs", tails::idle_tails_are_not_woken),
    ("tail-wakes-for-a-trim", tails::idle_tails_are_not_woken),
    ("window-is-not-written-again", restart::a_volume_that_knows_no_medium_has_its_last_blocks_written_again),
];

#[test]
fn every_seeded_bug_that_these_tests_know_is_caught() {
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
