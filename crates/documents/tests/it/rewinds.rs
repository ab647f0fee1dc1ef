//! Rewinds over rewinds, over large changes, and over entries that another handle has dropped.

use brooklet_documents::{Answer, Documents, Error, Json, JsonChange};
use serde_json::json;

use crate::common::{World, options, set, state};

/// Goes back to a version, and returns the length of the change that does so.
fn back(world: &World, to: u64) -> usize {
    let head = world.documents.version("doc").unwrap().unwrap();
    let made = world.documents.rewind("doc", head, format!("back {head}"), to).unwrap();
    assert_eq!(made, Answer { version: head + 1, repeated: false });
    let update = world.documents.history("doc").unwrap().next_back().unwrap().unwrap();
    assert_eq!((update.version, update.back_to), (head + 1, Some(to)));
    update.change.to_json().len() + update.undo.map_or(0, |undo| undo.to_json().len())
}

/// Each press of a button for undo goes back by one version more.
#[test]
fn undos_in_a_row_are_as_short_as_the_first_one() {
    let mut world = World::new(options());
    world.count_to("doc", 60);
    let first = back(&world, 59);
    for to in (19..59).rev() {
        assert_eq!(back(&world, to), first);
        assert_eq!(world.value("doc"), json!({"n": to}));
    }
    // And forth: each rewind undoes one of them.
    for n in 20..=60 {
        let head = world.documents.version("doc").unwrap().unwrap();
        assert_eq!(back(&world, head - 2 * (n - 19) + 1), first);
        assert_eq!(world.value("doc"), json!({"n": n}));
    }
    world.kill();
    assert_eq!(world.value("doc"), json!({"n": 60}));
}

#[test]
fn undo_and_redo_in_turns_stay_short() {
    let world = World::new(options());
    world.count_to("doc", 9);
    let first = back(&world, 8);
    for _ in 0..20 {
        assert_eq!(back(&world, 9), first);
        assert_eq!(world.value("doc"), json!({"n": 9}));
        assert_eq!(back(&world, 8), first);
        assert_eq!(world.value("doc"), json!({"n": 8}));
    }
}

#[test]
fn a_rewind_to_where_the_document_is_changes_nothing() {
    let world = World::new(options());
    world.count_to("doc", 9);
    back(&world, 5);
    for _ in 0..20 {
        assert_eq!(back(&world, 5), "[][]".len());
        assert_eq!(world.value("doc"), json!({"n": 5}));
    }
    // A patch after it is undone alone.
    let head = world.documents.version("doc").unwrap().unwrap();
    world.documents.patch("doc", head, "on", &set(77)).unwrap();
    back(&world, 5);
    assert_eq!(world.value("doc"), json!({"n": 5}));
    back(&world, 2);
    assert_eq!(world.value("doc"), json!({"n": 2}));
}

/// All undos together would not fit into an entry. A state does.
#[test]
fn a_rewind_over_large_changes_replaces_the_document() {
    let mut world = World::new(options());
    let large = |n: u64| json!({"n": n, "text": "x".repeat(10_000)});
    world.documents.create("doc", "c", &state(large(1))).unwrap();
    for version in 1..20 {
        let change = JsonChange::replace(large(version + 1));
        world.documents.patch("doc", version, format!("{version}"), &change).unwrap();
    }
    assert!(back(&world, 1) < 21_000);
    assert_eq!(world.value("doc"), large(1));
    assert!(back(&world, 20) < 21_000);
    assert_eq!(world.value("doc"), large(20));
    world.kill();
    assert_eq!(world.value("doc"), large(20));
    assert_eq!(world.documents.at("doc", 21).unwrap().state.value(), &large(1));
    // Small changes of a large document stay small.
    for version in 22..30 {
        world.documents.patch("doc", version, format!("{version}"), &set(version + 1)).unwrap();
    }
    assert!(back(&world, 22) < 1000);
    assert_eq!(world.value("doc"), large(20));
}

/// The other handle drops history without an entry, so the next entry has the expected number.
#[test]
fn a_rewind_undoes_all_or_nothing_whatever_another_handle_drops() {
    let mut world = World::new(options());
    world.count_to("doc", 11);
    world.documents.snapshot("doc", 100).unwrap();
    let other = Documents::open(&world.store, Json::new(), options()).unwrap();
    assert_eq!(other.get("doc").unwrap().unwrap().version, 11);
    world.documents.snapshot("doc", 3).unwrap();
    match other.rewind("doc", 11, "back", 1) {
        Err(Error::HistoryGone { asked: 1, oldest: 8, .. }) => {}
        result => panic!("{result:?}"),
    }
    world.kill();
    assert_eq!(world.value("doc"), json!({"n": 11}));
    let other = Documents::open(&world.store, Json::new(), options()).unwrap();
    assert_eq!(other.get("doc").unwrap().unwrap().version, 11);
    world.documents.snapshot("doc", 2).unwrap();
    other.rewind("doc", 11, "back", 9).unwrap();
    assert_eq!(other.get("doc").unwrap().unwrap().state.value(), &json!({"n": 9}));
}

/// The undos of several updates may move more elements together than one patch may.
#[test]
fn a_rewind_over_the_limits_of_one_patch_replaces_the_document() {
    let store = brooklet::Store::in_memory(1).unwrap();
    let model = Json::new().max_size(60_000);
    let documents = Documents::open(&store, model, options()).unwrap();
    let first = state(vec![""; 18_000].into());
    documents.create("doc", "r1", &first).unwrap();
    let adds = serde_json::to_vec(&vec![json!({"op": "add", "path": "/0", "value": ""}); 300]).unwrap();
    let adds = JsonChange::parse_patch(&adds).unwrap();
    documents.patch("doc", 1, "r2", &adds).unwrap();
    documents.patch("doc", 2, "r3", &adds).unwrap();
    documents.rewind("doc", 3, "r4", 1).unwrap();
    assert_eq!(documents.get("doc").unwrap().unwrap().state.value(), first.value());
    documents.rewind("doc", 4, "r5", 2).unwrap();
    assert_eq!(documents.get("doc").unwrap().unwrap().state.as_array().unwrap().len(), 18_300);
}
