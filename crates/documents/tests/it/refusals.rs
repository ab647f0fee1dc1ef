//! Bad input at the level of documents: by kind, and without an effect.

use brooklet_documents::{
    Bytes, Documents, Error, ErrorKind, Json, JsonChange, Opaque, Options, RefusalKind, Request,
};
use serde_json::json;

use crate::common::{World, options, set, state};

#[test]
fn a_refused_change_has_no_effect() {
    let mut world = World::new(options());
    world.count_to("doc", 2);
    let refused = [
        (r#"[{"op":"test","path":"/n","value":7}]"#, RefusalKind::TestFailed),
        (r#"[{"op":"remove","path":"/n"},{"op":"remove","path":"/x"}]"#, RefusalKind::InvalidPointer),
        (
            r#"[{"op":"replace","path":"/n","value":1},{"op":"move","from":"/n","path":"/m/9"}]"#,
            RefusalKind::InvalidPointer,
        ),
    ];
    let deep = format!("{}{}", "[".repeat(70), "]".repeat(70));
    let deep = JsonChange::parse_merge(format!(r#"{{"a":{deep}}}"#).as_bytes()).unwrap();
    let large = JsonChange::merge(json!({"a": "x".repeat(2 << 20)}));
    let mut changes: Vec<_> =
        refused.map(|(text, kind)| (JsonChange::parse_patch(text.as_bytes()).unwrap(), kind)).into();
    changes.extend([(deep, RefusalKind::TooDeep), (large, RefusalKind::TooLarge)]);
    for (change, kind) in changes {
        match world.documents.patch("doc", 2, "bad", &change) {
            Err(Error::Refused { refusal, .. }) => assert_eq!(refusal.kind(), kind, "{refusal}"),
            other => panic!("{other:?}"),
        }
        assert_eq!(world.value("doc"), json!({"n": 2}));
    }
    // A change that the model takes, and the store does not.
    let large = JsonChange::merge(json!({"a": "x".repeat(100 << 10)}));
    assert_eq!(world.documents.patch("doc", 2, "bad", &large).unwrap_err().kind(), ErrorKind::Store);
    assert_eq!(world.value("doc"), json!({"n": 2}));
    world.documents.patch("doc", 2, "bad", &set(3)).unwrap();
    world.kill();
    assert_eq!(world.value("doc"), json!({"n": 3}));
}

#[test]
fn names_ids_authors_and_options_have_limits() {
    let world = World::new(options());
    let kind = |result: Result<_, Error>| result.map(|_| ()).unwrap_err().kind();
    let (long, from) = ("x".repeat(1100), state(json!(1)));
    assert_eq!(kind(world.documents.create(&long, "r", &from)), ErrorKind::Invalid);
    assert_eq!(world.documents.get(&long).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(kind(world.documents.create("a", long.as_str(), &from)), ErrorKind::Invalid);
    assert_eq!(kind(world.documents.create("a", Request::new("r").author(&long), &from)), ErrorKind::Invalid);
    let longest = "x".repeat(1024 - "docs/d".len());
    world.documents.create(&longest, "r", &from).unwrap();
    world.documents.create([], "r", &from).unwrap();
    assert_eq!(world.documents.names().unwrap().count(), 2);
    for options in [
        Options::new("a/").snapshot_updates(0),
        Options::new("a/").snapshot_bytes(0),
        Options::new("a/").remember(0),
    ] {
        let error = Documents::open(&world.store, Json::new(), options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}

#[test]
fn a_document_of_another_model_or_a_later_version_is_refused() {
    let world = World::new(options());
    world.count_to("doc", 3);
    let fold = |_: &[u8], _: &[Bytes]| Ok(Vec::new());
    let other = |name: &str, version| {
        Documents::open(&world.store, Opaque::new(name, version, fold), options()).unwrap()
    };
    match other("list", 1).get("doc") {
        Err(Error::OtherModel { found, found_version: 1, .. }) => assert_eq!(found, "json"),
        found => panic!("{found:?}"),
    }
    other("list", 2).create("list", "c", &Opaque::state(*b"a")).unwrap();
    assert!(other("list", 3).get("list").unwrap().is_some());
    assert_eq!(other("list", 1).get("list").unwrap_err().kind(), ErrorKind::OtherModel);
    assert_eq!(other("list", 1).at("list", 1).unwrap_err().kind(), ErrorKind::OtherModel);
    assert!(world.documents.get("doc").unwrap().is_some());
}

#[test]
fn damaged_logs_are_errors_with_a_place() {
    let mut world = World::new(options());
    world.count_to("doc", 4);
    let good: Vec<_> =
        world.store.read("docs/ddoc", ..).unwrap().map(|entry| entry.unwrap().payload).collect();
    let cases: [&[&[u8]]; 6] = [
        &[b""],
        &[&good[1]],
        &[&good[0], &good[2]],
        &[&good[0], &good[1], b"\xff"],
        &[&good[0], &good[1], &good[1]],
        &[&good[0], &good[1][..6]],
    ];
    for entries in cases {
        world.store.delete("docs/ddoc").unwrap().wait().unwrap();
        world.store.append_many("docs/ddoc", entries).unwrap().wait().unwrap();
        world.reopen();
        let error = world.documents.get("doc").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
        assert!(error.to_string().contains("document \"doc\""), "{error}");
    }
}
