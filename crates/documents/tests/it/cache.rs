//! The cache of documents, within its budget.

use brooklet_documents::{Bytes, Documents, Json, Opaque, Options};
use serde_json::json;

use crate::common::{World, options, set, state};

#[test]
fn documents_in_memory_stay_within_the_budget() {
    let budget = 20_000;
    let world = World::new(options().cache_budget(budget));
    for name in 0..200 {
        world.count_to(&format!("doc {name}"), 3);
        assert!(world.documents.cache().bytes <= budget);
    }
    let info = world.documents.cache();
    assert!((2..100).contains(&info.documents), "{info:?}");
    // The last ones are there, and the first ones are loaded again.
    let loads = world.documents.cache().loads;
    assert!(world.documents.is_loaded("doc 199") && !world.documents.is_loaded("doc 0"));
    assert_eq!(world.value("doc 199"), json!({"n": 3}));
    assert_eq!(world.documents.cache().loads, loads);
    assert_eq!(world.value("doc 0"), json!({"n": 3}));
    assert_eq!(world.documents.cache().loads, loads + 1);
}

#[test]
fn names_are_within_the_budget() {
    let world = World::new(options());
    let bytes = |name: &str| {
        let before = world.documents.cache().bytes;
        world.documents.create(name, "r", &state(json!({}))).unwrap();
        world.documents.cache().bytes - before
    };
    let short = bytes("a");
    assert!(bytes(&"b".repeat(900)) >= short + 899);
}

#[test]
fn names_without_a_document_take_no_memory() {
    let world = World::new(options());
    for name in 0..100 {
        assert_eq!(world.documents.get(format!("none {name}")).unwrap(), None);
        assert!(world.documents.patch(format!("none {name}"), 1, "r", &set(1)).is_err());
    }
    assert_eq!(world.documents.cache().documents, 0);
    world.count_to("doc", 1);
    world.documents.delete("doc", 1).unwrap();
    assert_eq!(world.documents.get("doc").unwrap(), None);
    assert_eq!(world.documents.cache().documents, 0);
}

#[test]
fn a_patch_by_a_model_that_needs_no_state_loads_none() {
    let world = World::new(options());
    let open = || {
        let fold = |base: &[u8], changes: &[Bytes]| {
            Ok([&[base][..], &changes.iter().map(|c| &c[..]).collect::<Vec<_>>()].concat().concat())
        };
        Documents::open(&world.store, Opaque::new("list", 1, fold), options()).unwrap()
    };
    open().create("doc", "c", &Opaque::state(*b"a")).unwrap();
    let documents = open();
    for version in 1..50 {
        documents.patch("doc", version, format!("{version}"), &Bytes::from_static(b"b")).unwrap();
    }
    let info = documents.cache();
    assert_eq!((info.documents, info.states, info.loads), (1, 0, 0));
    // A model with undo needs the state, and loads it once.
    world.count_to("other/json", 1);
    let mut world = world;
    world.reopen();
    world.count_to("other/json", 20);
    assert_eq!(world.documents.cache().loads, 1);
}

/// A replica of the store gets the documents by the log, and its memory has older ones.
#[test]
fn a_document_that_another_process_wrote_is_read_again() {
    let store = brooklet::Store::in_memory(1).unwrap();
    let open = || Documents::open(&store, Json::new(), Options::new("docs/")).unwrap();
    let (writes, reads) = (open(), open());
    writes.create("doc", "a", &state(json!({"n": 1}))).unwrap();
    assert_eq!(reads.get("doc").unwrap().unwrap().version, 1);
    writes.patch("doc", 1, "b", &set(2)).unwrap();
    assert_eq!(reads.get("doc").unwrap().unwrap().version, 1, "memory has it");
    for log in ["docs/dother", "docs", "", "other/ddoc"] {
        reads.note_written(log);
    }
    assert_eq!(reads.get("doc").unwrap().unwrap().version, 1);
    reads.note_written("docs/ddoc");
    let found = reads.get("doc").unwrap().unwrap();
    assert_eq!((found.version, found.state.value()), (2, &json!({"n": 2})));
    writes.delete("doc", 2).unwrap();
    reads.note_written("docs/ddoc");
    assert_eq!(reads.get("doc").unwrap(), None);
}
