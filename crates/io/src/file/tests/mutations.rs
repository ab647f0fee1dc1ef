//! Seeded bugs of volumes in files: deliberate breaks, each of which one of these tests must catch.
//! A build with the feature `seeded-bugs` plants them.

use std::panic::catch_unwind;

use super::{cached, durable};
use crate::seeded::{met, plant};

/// Breaks, what each is, and the test that catches it.
const BUGS: &[(&str, &str, fn())] = &[
    (
        "file-is-not-watched",
        "a write is acknowledged though its file was deleted, replaced or cut",
        super::no_write_is_acknowledged_after_its_file_went,
    ),
    (
        "file-direct-in-name-is-believed",
        "a file system that takes the flag of direct I/O is taken at its word",
        crate::file::direct::tests::what_has_no_medium_but_the_page_cache_is_buffered,
    ),
    (
        "file-hole-is-room",
        "space that was given back counts as there",
        super::space_is_given_back_and_taken_again,
    ),
    (
        "file-read-is-cached",
        "a direct read goes through the page cache, and gets a stale page",
        cached::a_direct_read_passes_a_stale_page_by,
    ),
    (
        "file-refused-flag-needs-no-sync",
        "a durable write that is refused its flag is not made durable",
        durable::a_flag_that_is_refused_is_not_used_again,
    ),
    (
        "file-failed-sync-is-forgotten",
        "a sync that failed is tried again, and believed",
        durable::a_sync_that_fails_fails_for_all_it_covers_and_all_that_come_after,
    ),
    (
        "ring-needs-no-sync",
        "durable writes of an io_uring are acknowledged without their sync",
        durable::each_harvest_of_a_ring_has_a_sync_of_its_own,
    ),
    (
        "ring-error-is-dropped",
        "the error of a completion of an io_uring counts as success",
        super::an_error_of_a_queue_is_passed_on,
    ),
];

#[test]
fn every_seeded_bug_of_files_is_caught() {
    for (name, what, catches) in BUGS {
        plant(Some(name));
        let passed = catch_unwind(catches).is_ok();
        let met = met();
        plant(None);
        assert!(met > 0 && !passed, "{name} ({what}) was met {met} times, and goes unnoticed");
    }
}
