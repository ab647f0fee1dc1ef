//! Seeded bugs of what users keep, each with a test that catches it. A build with the feature `seeded-bugs` plants them.

use std::panic::catch_unwind;

use brooklet::io::seeded::{met, plant};

use crate::kept;

const BUGS: &[(&str, fn())] = &[
    ("closed-store-keeps-its-file", kept::a_closed_store_keeps_no_file),
    ("payload-pins-its-block", kept::a_small_payload_has_memory_of_its_own),
];

#[test]
fn every_seeded_bug_of_what_users_keep_is_caught() {
    for (name, catches) in BUGS {
        plant(Some(name));
        let passed = catch_unwind(catches).is_ok();
        let met = met();
        plant(None);
        assert!(met > 0 && !passed, "{name} was met {met} times, and goes unnoticed");
    }
}
