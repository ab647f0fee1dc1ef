//! Creations, patches, requests that come again, deletions.

use std::sync::Arc;

use brooklet::io::{Fault, MemVolume, Rng};
use brooklet::{Class, MemoryConfig, SpaceConfig};
use brooklet_documents::{Answer, Documents, Error, ErrorKind, Event, Json, JsonChange, Options, Request};
use serde_json::json;

use crate::common::{World, options, set, state, store_options};

fn kind<T: std::fmt::Debug>(result: Result<T, Error>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn a_document_is_created_patched_and_found_again() {
    let mut world = World::new(options());
    let documents = &world.documents;
    assert_eq!(documents.get("doc").unwrap(), None);
    assert_eq!(documents.version("doc").unwrap(), None);
    let created = documents.create("doc", "a", &state(json!({"n": 0}))).unwrap();
    assert_eq!(created, Answer { version: 1, repeated: false });
    assert_eq!(documents.patch("doc", 1, "b", &set(2)).unwrap().version, 2);
    let patch = br#"[{"op":"test","path":"/n","value":2},{"op":"add","path":"/m","value":[]}]"#;
    documents.patch("doc", 2, "c", &JsonChange::parse_patch(patch).unwrap()).unwrap();
    for _ in 0..2 {
        let found = world.documents.get("doc").unwrap().unwrap();
        assert_eq!((found.version, found.state.value()), (3, &json!({"n": 2, "m": []})));
        world.kill();
    }
    let names: Vec<_> = world.documents.names().unwrap().map(Result::unwrap).collect();
    assert_eq!(names, [b"doc"]);
}

#[test]
fn a_conflict_names_the_head_and_changes_nothing() {
    let world = World::new(options());
    world.count_to("doc", 3);
    for expected in [0, 1, 2, 4] {
        match world.documents.patch("doc", expected, format!("late {expected}"), &set(9)) {
            Err(Error::Conflict { expected: asked, head: 3, .. }) => assert_eq!(asked, expected),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(world.value("doc"), json!({"n": 3}));
    // The id of a refused request is free.
    world.documents.patch("doc", 3, "late 2", &set(4)).unwrap();
    assert_eq!(kind(world.documents.patch("none", 1, "a", &set(1))), ErrorKind::NotFound);
    assert_eq!(kind(world.documents.create("doc", "b", &state(json!(1)))), ErrorKind::Exists);
}

#[test]
fn a_request_that_comes_again_gets_its_first_answer() {
    let mut world = World::new(options());
    world.count_to("doc", 5);
    for round in 0..3 {
        let documents = &world.documents;
        for version in 2..=5 {
            // With the first expectation, and with another one.
            for expected in [version - 1, 5] {
                let again =
                    documents.patch("doc", expected, format!("doc {version}"), &set(version)).unwrap();
                assert_eq!(again, Answer { version, repeated: true });
            }
        }
        let again = documents.create("doc", "doc 1", &state(json!({"n": 1}))).unwrap();
        assert_eq!(again, Answer { version: 1, repeated: true });
        assert_eq!(documents.version("doc").unwrap(), Some(5));
        match round {
            0 => world.kill(),
            // The ids outlive the updates, in the snapshot.
            _ => drop(world.documents.snapshot("doc", 0).unwrap()),
        }
    }
    assert_eq!(world.documents.history("doc").unwrap().count(), 0);
}

#[test]
fn a_request_id_used_for_other_content_is_an_error() {
    let world = World::new(options());
    world.count_to("doc", 3);
    let documents = &world.documents;
    match documents.patch("doc", 3, "doc 2", &set(7)) {
        Err(Error::RequestReused { version: 2, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(kind(documents.rewind("doc", 3, "doc 2", 1)), ErrorKind::RequestReused);
    assert_eq!(kind(documents.create("doc", "doc 1", &state(json!(7)))), ErrorKind::RequestReused);
    assert_eq!(documents.version("doc").unwrap(), Some(3));
}

#[test]
fn requests_are_remembered_for_a_number_of_versions() {
    let mut world = World::new(options().remember(3));
    world.count_to("doc", 6);
    for _ in 0..2 {
        let again =
            |version: u64| world.documents.patch("doc", version - 1, format!("doc {version}"), &set(version));
        assert!(again(4).unwrap().repeated);
        assert_eq!(kind(again(3)), ErrorKind::Conflict);
        world.documents.snapshot("doc", 0).unwrap();
        world.kill();
    }
}

#[test]
fn requests_without_an_id_happen_each_time() {
    let world = World::new(options());
    world.count_to("doc", 1);
    for version in 1..4 {
        let answer = world.documents.patch("doc", version, Request::anonymous(), &set(1)).unwrap();
        assert_eq!(answer, Answer { version: version + 1, repeated: false });
    }
}

#[test]
fn a_document_made_again_has_greater_versions() {
    let mut world = World::new(options());
    world.count_to("doc", 4);
    assert_eq!(kind(world.documents.delete("doc", 3)), ErrorKind::Conflict);
    world.documents.delete("doc", 4).unwrap();
    for _ in 0..2 {
        assert_eq!(world.documents.get("doc").unwrap(), None);
        assert_eq!(kind(world.documents.delete("doc", 4)), ErrorKind::NotFound);
        assert_eq!(kind(world.documents.patch("doc", 4, "late", &set(5))), ErrorKind::NotFound);
        world.kill();
    }
    let again = world.documents.create("doc", "new", &state(json!({"n": 0}))).unwrap().version;
    assert!(again > 4, "version {again}");
    assert_eq!(kind(world.documents.patch("doc", 4, "late", &set(5))), ErrorKind::Conflict);
    assert_eq!(kind(world.documents.at("doc", 4)), ErrorKind::OutOfHistory);
    world.documents.patch("doc", again, "r", &set(1)).unwrap();
    world.documents.snapshot("doc", 9).unwrap();
    world.kill();
    assert_eq!(world.documents.at("doc", again).unwrap().state.value(), &json!({"n": 0}));
    assert_eq!(kind(world.documents.at("doc", again - 1)), ErrorKind::OutOfHistory);
}

/// Many names share a floor: a deletion never lowers what another one raised.
#[test]
fn versions_grow_for_each_of_many_names() {
    let mut world = World::new(options());
    let names: Vec<_> = (0..300_u64).map(|n| (format!("doc {n}"), 1 + n * 7 % 11)).collect();
    for (name, last) in &names {
        world.count_to(name, *last);
        let last = world.documents.version(name).unwrap().unwrap();
        world.documents.delete(name, last).unwrap();
    }
    world.kill();
    for (name, last) in &names {
        let again = world.documents.create(name, "new", &state(json!({}))).unwrap().version;
        assert!(again > *last, "{name}: {again} after {last}");
    }
    let floors = world.store.scan("docs/f").unwrap().count();
    assert!(floors <= 64, "{floors} floors");
}

/// The acknowledgement of a document is that of its space.
#[test]
fn documents_live_in_spaces_of_each_class() {
    let world = World::new(options());
    let ms = std::time::Duration::from_millis;
    let classes = [Class::Durable, Class::Deferred(ms(20)), Class::Memory(MemoryConfig::new(1 << 20))];
    for (n, class) in classes.into_iter().enumerate() {
        let space = world.store.create_space(&format!("space{n}"), SpaceConfig::new().class(class)).unwrap();
        let options = Options::new(space.key("")).background(false).snapshot_updates(3).history(2);
        let documents = Documents::open(&world.store, Json::new(), options.clone()).unwrap();
        for round in 0..2 {
            let first =
                documents.create("doc", format!("c{round}"), &state(json!({"n": 0}))).unwrap().version;
            let mut watch = documents.watch("doc", first).unwrap();
            for version in first..first + 9 {
                documents.patch("doc", version, format!("r{version}"), &set(version)).unwrap();
                documents.maintain();
            }
            let found = documents.get("doc").unwrap().unwrap();
            assert_eq!((found.version, found.state.value()), (first + 9, &json!({"n": first + 8})));
            let event = watch.next();
            assert!(
                matches!(event, Some(Ok(Event::Missed { .. } | Event::Update(_)))),
                "{event:?} {n} {round}"
            );
            let again = Documents::open(&world.store, Json::new(), options.clone()).unwrap();
            assert_eq!(again.get("doc").unwrap().unwrap().state, found.state);
            assert_eq!(again.at("doc", first + 7).unwrap().state.value(), &json!({"n": first + 6}));
            documents.delete("doc", first + 9).unwrap();
            assert_eq!(documents.get("doc").unwrap(), None);
        }
    }
}

#[test]
fn many_documents_change_together_or_not_at_all() {
    let mut world = World::new(options());
    for name in ["a", "b", "c"] {
        world.count_to(name, 2);
    }
    let (one, two) = (set(10), set(20));
    let bad = JsonChange::parse_patch(br#"[{"op":"remove","path":"/x"}]"#).unwrap();
    let documents = &world.documents;
    assert_eq!(kind(documents.patch_many("m", &[("c", 2, &one), ("a", 1, &two)])), ErrorKind::Conflict);
    assert_eq!(kind(documents.patch_many("m", &[("c", 2, &one), ("x", 1, &two)])), ErrorKind::NotFound);
    for order in
        [[("a", 2, &one), ("b", 2, &bad)], [("b", 2, &bad), ("a", 2, &one)], [("b", 2, &one), ("a", 2, &bad)]]
    {
        assert_eq!(kind(documents.patch_many("m", &order)), ErrorKind::Refused);
    }
    assert_eq!(kind(documents.patch_many("m", &[("a", 2, &one), ("a", 2, &two)])), ErrorKind::Invalid);
    assert_eq!(kind(documents.patch_many::<&str>("m", &[])), ErrorKind::Invalid);
    for name in ["a", "b", "c"] {
        assert_eq!(world.value(name), json!({"n": 2}));
    }
    documents.patch("c", 2, "c 3", &set(3)).unwrap();
    let answers = documents.patch_many("m", &[("c", 3, &one), ("a", 2, &two)]).unwrap();
    assert_eq!(answers.iter().map(|answer| answer.version).collect::<Vec<_>>(), [4, 3]);
    for _ in 0..2 {
        let again = world.documents.patch_many("m", &[("a", 9, &two), ("c", 9, &one)]).unwrap();
        assert_eq!(again, [Answer { version: 3, repeated: true }, Answer { version: 4, repeated: true }]);
        assert_eq!((world.value("a"), world.value("c")), (json!({"n": 20}), json!({"n": 10})));
        let other = world.documents.patch_many("m", &[("a", 3, &one), ("c", 4, &one)]);
        assert_eq!(kind(other), ErrorKind::RequestReused);
        let fewer = world.documents.patch_many("m", &[("a", 3, &two)]);
        assert_eq!(kind(fewer), ErrorKind::RequestReused);
        world.kill();
    }
}

#[test]
fn two_handles_over_one_prefix_do_not_overwrite_one_another() {
    let world = World::new(options());
    world.count_to("doc", 2);
    let other = Documents::open(&world.store, Json::new(), options()).unwrap();
    assert_eq!(other.get("doc").unwrap().unwrap().version, 2);
    world.count_to("doc", 3);
    // The other handle has an older head in memory.
    match other.patch("doc", 2, "x", &set(9)) {
        Err(Error::Conflict { head: 3, .. }) => {}
        result => panic!("{result:?}"),
    }
    assert!(other.patch("doc", 2, "doc 3", &set(3)).unwrap().repeated);
    world.documents.delete("doc", 3).unwrap();
    assert_eq!(kind(other.patch("doc", 3, "y", &set(9))), ErrorKind::NotFound);
    other.create("doc", "z", &state(json!({"n": 0}))).unwrap();
    let (one, late) = (set(1), world.documents.version("doc").unwrap().unwrap());
    assert_eq!(other.patch_many("m", &[("doc", late, &one)]).unwrap()[0].version, late + 1);
    assert_eq!(kind(world.documents.patch_many("l", &[("doc", late, &one)])), ErrorKind::Conflict);
}

/// A patch whose write fails is not seen, and the same request finds out after the next opening.
#[test]
fn a_patch_that_is_not_durable_is_not_seen() {
    let world = World::new(options());
    world.count_to("doc", 2);
    world.volume.fail(Fault::PowerOffAfter(0));
    assert_eq!(kind(world.documents.patch("doc", 2, "doc 3", &set(3))), ErrorKind::Store);
    // What was durable is still read.
    assert_eq!(world.value("doc"), json!({"n": 2}));
    assert_eq!(kind(world.documents.patch("doc", 2, "doc 3", &set(3))), ErrorKind::Store);
    world.store.clone().abandon();
    let volume = MemVolume::from_image(world.volume.crash(), 7);
    let store = store_options().open_on(Arc::new(volume)).unwrap();
    let documents = Documents::open(&store, Json::new(), options()).unwrap();
    documents.patch("doc", 2, "doc 3", &set(3)).unwrap();
    assert_eq!(documents.version("doc").unwrap(), Some(3));
}

/// Many patches of a document are under way at once; each later answer covers the earlier ones.
#[test]
fn patches_in_flight_are_answered_in_order() {
    let world = World::new(options());
    world.count_to("doc", 1);
    let blocks = world.store.activity().wal.blocks;
    let submit =
        |version: u64| world.documents.submit("doc", version, format!("{version}"), &set(version + 1));
    let flying: Vec<_> = (1..=50).map(|version| submit(version).unwrap()).collect();
    // A repeated request waits as its first one does.
    let again = submit(7).unwrap();
    assert!(again.answer().repeated && again.ticket().is_some());
    let answers: Vec<_> = flying.into_iter().map(|one| one.wait().unwrap().version).collect();
    assert_eq!(answers, (2..=51).collect::<Vec<_>>());
    assert!(world.store.activity().wal.blocks - blocks < 10);
    assert_eq!(world.value("doc"), json!({"n": 51}));
}

/// A crash takes deferred writes back. Nobody may have seen them by then: the next patch makes
/// another document of the same version.
#[test]
fn a_deferred_version_that_was_shown_survives_a_crash() {
    type Look = fn(&Documents<Json>);
    let looks: [Look; 8] = [
        |all| assert_eq!(all.get("doc").unwrap().unwrap().version, 2),
        |all| assert_eq!(all.version("doc").unwrap(), Some(2)),
        |all| assert_eq!(kind(all.patch("doc", 1, "other", &set(9))), ErrorKind::Conflict),
        |all| assert_eq!(kind(all.create("doc", "other", &state(json!({})))), ErrorKind::Exists),
        |all| assert_eq!(kind(all.delete("doc", 1)), ErrorKind::Conflict),
        |all| assert_eq!(kind(all.rewind("doc", 1, "other", 1)), ErrorKind::Conflict),
        |all| assert_eq!(kind(all.patch_many("other", &[("doc", 1, &set(9))])), ErrorKind::Conflict),
        |all| assert_eq!(all.history("doc").unwrap().version(), 2),
    ];
    let deferred = SpaceConfig::new().class(Class::Deferred(std::time::Duration::from_secs(3600)));
    for (n, look) in looks.iter().enumerate() {
        let mut world = World::new(options());
        let space = world.store.create_space("space", deferred.clone()).unwrap();
        let open = |store: &brooklet::Store| {
            Documents::open(store, Json::new(), Options::new(space.key("")).background(false))
        };
        let documents = open(&world.store).unwrap();
        documents.create("doc", "r1", &state(json!({"n": 1}))).unwrap();
        assert_eq!(documents.version("doc").unwrap(), Some(1));
        documents.patch("doc", 1, "r2", &set(2)).unwrap();
        look(&documents);
        world.kill();
        assert_eq!(open(&world.store).unwrap().version("doc").unwrap(), Some(2), "look {n}");
    }
    // Writes alone wait for nothing.
    let mut world = World::new(options());
    let space = world.store.create_space("space", deferred).unwrap();
    let open = |store: &brooklet::Store| {
        Documents::open(store, Json::new(), Options::new(space.key("")).background(false))
    };
    let documents = open(&world.store).unwrap();
    documents.create("doc", "r1", &state(json!({"n": 1}))).unwrap();
    documents.patch("doc", 1, "r2", &set(2)).unwrap();
    assert!(documents.patch("doc", 1, "r2", &set(2)).unwrap().repeated);
    world.kill();
    assert_eq!(open(&world.store).unwrap().version("doc").unwrap(), None);
}

/// The client must not take a new id: the request happened.
#[test]
fn a_request_that_some_documents_forgot_is_not_one_of_other_content() {
    let world = World::new(options().remember(3));
    world.count_to("a", 1);
    world.count_to("b", 1);
    let (one, two) = (set(10), set(20));
    let patches = [("a", 1, &one), ("b", 1, &two)];
    world.documents.patch_many("m", &patches).unwrap();
    world.count_to("b", 7);
    match world.documents.patch_many("m", &patches) {
        Err(Error::RequestForgotten { document, version: 2, forgot }) => {
            assert_eq!((&*document, &*forgot), ("\"a\"", "\"b\""));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(kind(world.documents.patch_many("m", &patches)), ErrorKind::RequestForgotten);
    assert_eq!((world.value("a"), world.value("b")), (json!({"n": 10}), json!({"n": 7})));
}

/// The first deletion of a part of the names creates a log for the numbers. In an earlier state, a
/// full store refused it.
#[test]
fn a_full_store_takes_deletions() {
    let full = store_options().ring_size(256 << 10).memory_budget(256 << 10).max_payload(32 << 10);
    let store = full.capacity(3 << 20).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let documents = Documents::open(&store, Json::new(), options()).unwrap();
    let names = ["a", "b", "c", "d"];
    for name in names {
        documents.create(name, name, &state(json!({}))).unwrap();
    }
    let mut rng = Rng::new(3);
    let mut noise = || (0..8 << 10).map(|_| rng.next() as u8).collect::<Vec<_>>();
    while store.append("log", noise()).is_ok() {}
    let refused = (0..20_000).find_map(|n| store.begin_at(format!("new/{n:05}"), 5).err());
    assert_eq!(refused.map(|error| error.kind()), Some(brooklet::ErrorKind::Full));
    assert_eq!(kind(documents.create("e", "e", &state(json!({})))), ErrorKind::Store);
    documents.discard("a").unwrap();
    for name in &names[1..] {
        documents.delete(name, 1).unwrap();
    }
    assert_eq!(documents.names().unwrap().count(), 0);
}

/// As a retention does, which documents must not have. In an earlier state, nobody could create a
/// document of that name any more.
#[test]
fn a_document_of_which_all_entries_are_gone_is_made_again() {
    let mut world = World::new(options());
    for (n, name) in ["doc", "other"].into_iter().enumerate() {
        world.count_to(name, 3);
        let view = world.store.view().unwrap();
        world.store.trim(format!("docs/d{name}"), 3).unwrap().wait().unwrap();
        world.reopen();
        assert_eq!(world.documents.get(name).unwrap(), None);
        let made = match n {
            0 => world.documents.create(name, "again", &state(json!({"n": 0}))).unwrap(),
            _ => world.documents.restore(name, 0, "again", &view, None).unwrap(),
        };
        drop(view);
        assert!(made.version > 3 && !made.repeated, "{made:?}");
        world.documents.patch(name, made.version, "next", &set(5)).unwrap();
        world.kill();
        assert_eq!(world.value(name), json!({"n": 5}));
    }
}
