//! Moves of documents below other prefixes.

use brooklet::{Class, Commit, MemoryConfig, SpaceConfig};
use brooklet_documents::{Documents, Error, Event, Json, Options};
use serde_json::json;

use crate::common::{World, options, set, state};

/// Opens the documents below another prefix.
fn below(world: &World, prefix: &str) -> Documents<Json> {
    let options = Options::new(prefix).background(false);
    Documents::open(&world.store, Json::new(), options).unwrap()
}

fn in_memory(world: &World) -> Documents<Json> {
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    world.store.create_space("hot", memory).unwrap();
    below(world, "hot/")
}

/// Copies the log of a document, as the first of two commits does.
fn copy(world: &World, from: &str, to: &str, until: u64) {
    let mut commit = Commit::new();
    commit.begin_at(to, world.store.bounds(from).unwrap().first);
    for entry in world.store.read(from, ..until).unwrap() {
        commit.append(to, entry.unwrap().payload);
    }
    world.store.commit(&commit).unwrap().wait().unwrap();
}

#[test]
fn a_moved_document_keeps_its_versions_its_history_and_its_requests() {
    let mut world = World::new(options().snapshot_updates(10).history(8));
    world.count_to("doc", 30);
    world.documents.maintain();
    world.count_to("doc", 33);
    world.documents.move_to("doc", "other/").unwrap();
    for _ in 0..2 {
        let other = below(&world, "other/");
        assert_eq!(world.documents.get("doc").unwrap(), None);
        assert_eq!(other.get("doc").unwrap().unwrap().state["n"], 33);
        assert_eq!(other.at("doc", 24).unwrap().state["n"], 24);
        assert_eq!(other.history("doc").unwrap().count(), 11);
        let again = other.patch("doc", 32, "doc 33", &set(33)).unwrap();
        assert_eq!((again.version, again.repeated), (33, true));
        world.kill();
    }
    below(&world, "other/").patch("doc", 33, "more", &set(34)).unwrap();
    // A document that is made again has greater versions than the one that went.
    let made = world.documents.create("doc", "c", &state(json!({}))).unwrap();
    assert!(made.version > 33, "{made:?}");
}

#[test]
fn a_move_onto_another_document_changes_nothing() {
    let world = World::new(options());
    world.count_to("doc", 3);
    let other = below(&world, "other/");
    other.create("doc", "c", &state(json!({"mine": true}))).unwrap();
    match world.documents.move_to("doc", "other/") {
        Err(Error::Exists { head: 1, .. }) => {}
        result => panic!("{result:?}"),
    }
    assert_eq!(world.value("doc"), json!({"n": 3}));
    assert_eq!(other.get("doc").unwrap().unwrap().state["mine"], true);
}

#[test]
fn moves_that_cannot_be_are_refused() {
    let world = World::new(options());
    world.count_to("doc", 1);
    assert!(matches!(world.documents.move_to("nothing", "other/"), Err(Error::NotFound { .. })));
    assert!(matches!(world.documents.move_to("doc", "docs/"), Err(Error::Invalid(_))));
    let long = "p".repeat(1022);
    assert!(matches!(world.documents.move_to("doc", long), Err(Error::Invalid(_))));
    assert_eq!(world.value("doc"), json!({"n": 1}));
}

#[test]
fn a_document_moves_into_memory_and_back() {
    let world = World::new(options());
    world.count_to("doc", 5);
    let hot = in_memory(&world);
    world.documents.move_to("doc", "hot/").unwrap();
    assert_eq!(world.documents.get("doc").unwrap(), None);
    hot.patch("doc", 5, "r6", &set(6)).unwrap();
    hot.move_to("doc", "docs/").unwrap();
    assert_eq!(hot.get("doc").unwrap(), None);
    assert_eq!(world.value("doc"), json!({"n": 6}));
    assert_eq!(world.documents.at("doc", 4).unwrap().state["n"], 4);
}

#[test]
fn a_move_that_a_crash_cut_in_half_ends_by_the_same_move() {
    let world = World::new(options());
    let hot = in_memory(&world);
    // The copy is whole, or an earlier state of the document, or has gone on.
    for (name, until, goes_on) in [("whole", 5, false), ("earlier", 3, false), ("later", 5, true)] {
        world.count_to(name, 5);
        copy(&world, &format!("docs/d{name}"), &format!("hot/d{name}"), until);
        if goes_on {
            hot.patch(name, 5, "on", &set(6)).unwrap();
        }
        world.documents.move_to(name, "hot/").unwrap();
        assert_eq!(world.documents.get(name).unwrap(), None, "{name}");
        let found = hot.get(name).unwrap().unwrap();
        assert_eq!(found.version, 5 + u64::from(goes_on), "{name}");
        assert_eq!(found.state["n"], found.version, "{name}");
    }
}

#[test]
fn a_watch_learns_that_its_document_went() {
    let world = World::new(options());
    world.count_to("doc", 2);
    let mut watch = world.documents.watch("doc", 2).unwrap();
    world.documents.move_to("doc", "other/").unwrap();
    assert_eq!(watch.next().unwrap().unwrap(), Event::Deleted);
}
