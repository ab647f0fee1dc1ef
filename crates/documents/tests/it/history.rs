//! Earlier versions, changes since a version, rewinds.

use std::time::{Duration, SystemTime};

use brooklet::io::ManualClock;
use brooklet_documents::{Error, ErrorKind, JsonChange, Request};
use serde_json::json;
use std::sync::Arc;

use crate::common::{World, options, set, state};

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn each_version_of_the_history_can_be_reached() {
    // Snapshots lie at 10, 20 and 25; the history reaches back to 25 - 12.
    let mut world = World::new(options().history(12));
    world.count_to("doc", 10);
    world.documents.snapshot("doc", 12).unwrap();
    world.count_to("doc", 20);
    world.documents.snapshot("doc", 12).unwrap();
    world.count_to("doc", 25);
    world.documents.snapshot("doc", 12).unwrap();
    world.count_to("doc", 28);
    for _ in 0..2 {
        for version in 13..=28 {
            let found = world.documents.at("doc", version).unwrap();
            assert_eq!((found.version, found.state.value()), (version, &json!({"n": version})));
            let changes = world.documents.changes("doc", version).unwrap();
            assert_eq!((changes.version, changes.updates.len() as u64), (28, 28 - version));
            assert_eq!(changes.merged, (version < 28).then(|| set(28)));
        }
        match world.documents.at("doc", 12) {
            Err(Error::HistoryGone { asked: 12, oldest: 13, .. }) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(kind(world.documents.changes("doc", 12)), ErrorKind::OutOfHistory);
        assert_eq!(kind(world.documents.at("doc", 29)), ErrorKind::OutOfHistory);
        assert_eq!(kind(world.documents.changes("doc", 29)), ErrorKind::OutOfHistory);
        let versions: Vec<_> = world.documents.history("doc").unwrap().map(|u| u.unwrap().version).collect();
        assert_eq!(versions, (14..=28).collect::<Vec<_>>());
        world.kill();
    }
    assert_eq!(kind(world.documents.at("none", 1)), ErrorKind::NotFound);
    assert_eq!(kind(world.documents.history("none").map(drop)), ErrorKind::NotFound);
}

#[test]
fn an_update_names_its_author_its_request_and_its_time() {
    let clock = Arc::new(ManualClock::default());
    let world = World::new(options().clock(clock.clone()));
    world.count_to("doc", 1);
    clock.set_wall(Duration::from_millis(1_234_567));
    let request = Request::new([0, 255]).author("Ada");
    world.documents.patch("doc", 1, request, &set(2)).unwrap();
    let update = world.documents.history("doc").unwrap().next_back().unwrap().unwrap();
    assert_eq!(update.time, SystemTime::UNIX_EPOCH + Duration::from_millis(1_234_567));
    assert_eq!((&update.author[..], &update.request[..]), (&b"Ada"[..], &[0, 255][..]));
    assert_eq!((update.version, update.back_to, update.change), (2, None, set(2)));
    let undo = JsonChange::parse_patch(br#"[{"op":"replace","path":"/n","value":1}]"#).unwrap();
    assert_eq!(update.undo, Some(undo));
}

#[test]
fn changes_of_both_kinds_come_one_by_one() {
    let world = World::new(options());
    world.count_to("doc", 2);
    let patch = JsonChange::parse_patch(br#"[{"op":"add","path":"/m","value":1}]"#).unwrap();
    world.documents.patch("doc", 2, "p", &patch).unwrap();
    let changes = world.documents.changes("doc", 1).unwrap();
    assert_eq!(changes.merged, None);
    assert_eq!(changes.updates.iter().map(|u| u.change.clone()).collect::<Vec<_>>(), [set(2), patch]);
}

#[test]
fn a_rewind_is_an_update_of_its_own() {
    let mut world = World::new(options());
    world.count_to("doc", 8);
    let documents = &world.documents;
    assert_eq!(kind(documents.rewind("doc", 7, "back", 5)), ErrorKind::Conflict);
    assert_eq!(kind(documents.rewind("doc", 8, "back", 8)), ErrorKind::OutOfHistory);
    assert_eq!(kind(documents.rewind("doc", 8, "back", 0)), ErrorKind::OutOfHistory);
    assert_eq!(documents.rewind("doc", 8, "back", 5).unwrap().version, 9);
    assert_eq!(world.value("doc"), json!({"n": 5}));
    world.kill();
    let documents = &world.documents;
    assert!(documents.rewind("doc", 8, "back", 5).unwrap().repeated);
    assert_eq!(kind(documents.rewind("doc", 9, "back", 4)), ErrorKind::RequestReused);
    let last = documents.history("doc").unwrap().next_back().unwrap().unwrap();
    assert_eq!((last.version, last.back_to), (9, Some(5)));
    // A rewind can be undone, and rewinds go over others.
    documents.rewind("doc", 9, "forth", 8).unwrap();
    assert_eq!(world.value("doc"), json!({"n": 8}));
    documents.rewind("doc", 10, "far", 1).unwrap();
    assert_eq!(world.value("doc"), json!({"n": 1}));
    // Back to a creation that a snapshot has dropped, and beyond the history.
    documents.snapshot("doc", 2).unwrap();
    match documents.rewind("doc", 11, "beyond", 8) {
        Err(Error::HistoryGone { asked: 8, oldest: 9, .. }) => {}
        other => panic!("{other:?}"),
    }
    documents.rewind("doc", 11, "kept", 9).unwrap();
    assert_eq!(world.value("doc"), json!({"n": 5}));
}

/// A rewind sees updates that are not durable yet.
#[test]
fn a_rewind_follows_patches_in_flight() {
    let world = World::new(options());
    world.documents.create("doc", "c", &state(json!({"n": 1}))).unwrap();
    for version in 1..5 {
        drop(world.documents.submit("doc", version, format!("{version}"), &set(version + 1)).unwrap());
    }
    world.documents.rewind("doc", 5, "back", 2).unwrap();
    assert_eq!(world.value("doc"), json!({"n": 2}));
}
