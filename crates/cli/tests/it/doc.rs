//! `brooklet doc`: documents that are put, patched, taken back, followed and deleted.

use crate::common;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use brooklet::io::Rng;
use brooklet_documents::{Documents, Json, JsonChange, Options};
use common::{Place, text};
use serde_json::{Map, Value, json};

#[test]
fn documents_are_put_patched_taken_back_and_deleted() {
    let place = Place::new();
    assert_eq!(place.ok(&["doc", "put", "STORE", "notes", r#"{"title":"Notes"}"#]), "notes  version 1\n");
    let patch = ["doc", "patch", "STORE", "notes", r#"{"stars":5}"#, "--author", "Ada", "--request", "r1"];
    assert_eq!(place.ok(&patch), "notes  version 2\n");
    assert_eq!(place.ok(&patch), "notes  version 2, by the same request before\n");
    let steps = r#"[{"op":"remove","path":"/title"}]"#;
    let written = place.json(&["doc", "patch", "STORE", "notes", steps, "--expect", "2"]).remove(0);
    let expected = json!({"document": "notes", "document_base16": null, "version": 3, "repeated": false});
    assert_eq!(written, expected);
    assert_eq!(place.ok(&["doc", "get", "STORE", "notes"]), "{\"stars\":5}\n");
    assert_eq!(place.ok(&["doc", "get", "STORE", "notes", "--at", "1"]), "{\"title\":\"Notes\"}\n");
    place.ok(&["doc", "rewind", "STORE", "notes", "1"]);
    let found = place.json(&["doc", "get", "STORE", "notes"]).remove(0);
    assert_eq!((&found["version"], &found["state"]), (&json!(4), &json!({"title": "Notes"})));

    let history = place.json(&["doc", "history", "STORE", "notes"]);
    let versions: Vec<_> = history.iter().map(|row| row["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, [2, 3, 4]);
    assert_eq!((&history[0]["author"], &history[0]["request"]), (&json!("Ada"), &json!("r1")));
    assert_eq!((&history[1]["author"], &history[2]["back_to"]), (&json!(null), &json!(1)));
    let merge = json!({"type": "application/merge-patch+json", "patch": {"stars": 5}});
    assert_eq!(history[0]["change"], merge);
    assert_eq!(history[0]["undo"]["patch"], json!([{"op": "remove", "path": "/stars"}]));
    let newest = place.ok(&["doc", "history", "STORE", "notes", "--reverse", "--limit", "1"]);
    assert!(newest.starts_with("4\t") && newest.ends_with("\tback to 1\n"), "{newest}");
    assert_eq!(place.json(&["doc", "changes", "STORE", "notes", "2"]).len(), 2);
    let merged = place.ok(&["doc", "changes", "STORE", "notes", "2", "--merged"]);
    assert_eq!(serde_json::from_str::<Value>(&merged).unwrap().as_array().unwrap().len(), 3, "{merged}");
    assert_eq!(place.ok(&["doc", "changes", "STORE", "notes", "4", "--merged"]), "");
    assert!(
        place.fails(1, &["doc", "changes", "STORE", "notes", "1", "--merged"]).contains("no common patch")
    );

    assert_eq!(place.ok(&["doc", "delete", "STORE", "notes"]), "notes  deleted\n");
    assert!(place.fails(3, &["doc", "get", "STORE", "notes"]).contains("no document"));
    let again = place.json(&["doc", "put", "STORE", "notes", "1", "--new"]).remove(0);
    assert!(again["version"].as_u64() > Some(4), "{again}");
}

/// As in `append` and `tags put`.
#[test]
fn a_dash_is_the_standard_input() {
    let place = Place::new();
    for (command, input, after) in
        [("put", r#"{"a":1}"#, "{\"a\":1}\n"), ("patch", r#"{"b":2}"#, "{\"a\":1,\"b\":2}\n")]
    {
        let done = place.fed(&["doc", command, "STORE", "notes", "-"], input.as_bytes());
        assert!(done.status.success(), "{command}: {}", text(&done.stderr));
        assert_eq!(place.ok(&["doc", "get", "STORE", "notes"]), after);
    }
}

#[test]
fn wrong_calls_change_nothing() {
    let place = Place::new();
    place.ok(&["doc", "put", "STORE", "d", r#"{"list":[1]}"#]);
    place.ok(&["doc", "patch", "STORE", "d", r#"{"a":1}"#, "--request", "r"]);
    for (code, words, args) in [
        (1, "at version 2", &["patch", "STORE", "d", "{}", "--expect", "1"][..]),
        (1, "exists already", &["put", "STORE", "d", "{}", "--new"]),
        (1, "at version 2", &["put", "STORE", "d", "{}", "--expect", "7"]),
        (1, "at version 2", &["delete", "STORE", "d", "--expect", "1"]),
        (2, "used for other content", &["patch", "STORE", "d", r#"{"a":2}"#, "--request", "r"]),
        (2, "leads to nothing", &["patch", "STORE", "d", r#"[{"op":"remove","path":"/x"}]"#]),
        (
            2,
            "another one than the test",
            &["patch", "STORE", "d", r#"[{"op":"test","path":"/a","value":2}]"#],
        ),
        (2, "not the expected JSON", &["patch", "STORE", "d", "{"]),
        (2, "not the expected JSON", &["patch", "STORE", "d", r#"{"a":1}"#, "--form", "json"]),
        (2, "would not be kept", &["put", "STORE", "d", "1e999"]),
        (3, "history", &["rewind", "STORE", "d", "0"]),
        (3, "at version 2", &["rewind", "STORE", "d", "2"]),
        (3, "at version 2", &["get", "STORE", "d", "--at", "3"]),
        (3, "history", &["changes", "STORE", "d", "0"]),
        (3, "no document", &["patch", "STORE", "none", "{}"]),
        (3, "no document", &["history", "STORE", "none"]),
        (3, "no document", &["delete", "STORE", "none"]),
    ] {
        let args = [&["doc"], args].concat();
        let message = place.fails(code, &args);
        assert!(message.contains(words), "{args:?}: {message}");
    }
    assert_eq!(place.ok(&["doc", "get", "STORE", "d"]), "{\"a\":1,\"list\":[1]}\n");
    let both = ["doc", "put", "STORE", "d", "1", "--new", "--expect", "1"];
    assert_eq!(place.run(&both).status.code(), Some(2));
}

#[test]
fn documents_move_and_come_back_from_a_backup() {
    let place = Place::new();
    place.ok(&["doc", "put", "STORE", "notes", r#"{"stars":1}"#]);
    place.ok(&["doc", "patch", "STORE", "notes", r#"{"stars":2}"#]);
    place.ok(&["archive", "STORE", "bucket"]);
    place.ok(&["doc", "patch", "STORE", "notes", r#"{"stars":3}"#]);

    // The document of the backup, of an earlier version there, and after a deletion here.
    let stars =
        |place: &Place| place.json(&["doc", "get", "STORE", "notes"]).remove(0)["state"]["stars"].clone();
    let restore = ["doc", "restore", "STORE", "notes", "bucket"];
    let busy = place.fails(1, &[&restore[..], &["--expect", "1"]].concat());
    assert!(busy.contains("at version 3"), "{busy}");
    place.ok(&[&restore[..], &["--expect", "3", "--request", "r", "--author", "Ada"]].concat());
    assert_eq!(stars(&place), 2);
    assert!(place.ok(&[&restore[..], &["--request", "r"]].concat()).contains("by the same request before"));
    place.ok(&[&restore[..], &["--version", "1"]].concat());
    assert_eq!(stars(&place), 1);
    place.ok(&["doc", "delete", "STORE", "notes"]);
    place.ok(&[&restore[..], &["--backup", "0"]].concat());
    assert_eq!(stars(&place), 2);
    assert!(place.fails(3, &["doc", "restore", "STORE", "none", "bucket"]).contains("no document"));
    let damage = ["append", "STORE", "documents/dnotes", "damage"];
    place.ok(&damage);
    assert!(place.fails(5, &["doc", "get", "STORE", "notes"]).contains("restore the document from a copy"));
    place.ok(&restore);
    assert_eq!(stars(&place), 2);
    place.ok(&damage);
    let deleted = place.json(&["doc", "delete", "STORE", "notes"]).remove(0);
    assert_eq!((&deleted["version"], &deleted["deleted"]), (&json!(null), &json!(true)));
    place.ok(&restore);
    assert_eq!(stars(&place), 2);

    place.ok(&["doc", "patch", "STORE", "notes", r#"{"stars":4}"#]);
    assert_eq!(place.ok(&["doc", "move", "STORE", "notes", "closed/"]), "notes  below closed/\n");
    assert!(place.fails(3, &["doc", "get", "STORE", "notes"]).contains("no document"));
    let below = ["--below", "closed/"];
    assert_eq!(place.ok(&[&["doc", "get", "STORE", "notes"][..], &below].concat()), "{\"stars\":4}\n");
    assert_eq!(place.json(&[&["doc", "history", "STORE", "notes"][..], &below].concat()).len(), 1);
    assert!(place.fails(3, &["doc", "move", "STORE", "notes", "open/"]).contains("no document"));
    let moved =
        place.json(&[&["doc", "move", "STORE", "notes", "documents/"][..], &below].concat()).remove(0);
    assert_eq!((&moved["document"], &moved["below"]), (&json!("notes"), &json!("documents/")));
}

fn value(rng: &mut Rng, levels: u64) -> Value {
    let members = |rng: &mut Rng| (0..rng.below(4)).map(|_| (name(rng), value(rng, levels - 1))).collect();
    match rng.below(if levels > 0 { 8 } else { 5 }) {
        0 => Value::Null,
        1 => (rng.below(2) == 0).into(),
        2 => (rng.below(u64::MAX) as i64).into(),
        3 => (f64::from_bits(rng.below(u64::MAX)).clamp(-1e300, 1e300) / 3.0).into(),
        4 => name(rng).into(),
        5 => (0..rng.below(4)).map(|_| value(rng, levels - 1)).collect(),
        _ => Value::Object(members(rng)),
    }
}

fn name(rng: &mut Rng) -> String {
    const LETTERS: [char; 10] = ['a', 'b', 'c', '"', '\\', '/', '~', '\u{1}', 'é', '🦀'];
    (0..rng.below(4)).map(|_| LETTERS[rng.below(10) as usize]).collect()
}

/// What a document is after a merge patch, by RFC 7396.
fn merge(target: &Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut members = target.as_object().cloned().unwrap_or_else(Map::new);
    for (name, value) in patch {
        let old = members.remove(name).unwrap_or(Value::Null);
        if !value.is_null() {
            members.insert(name.clone(), merge(&old, value));
        }
    }
    Value::Object(members)
}

#[test]
fn random_documents_read_back_at_each_version() {
    let place = Place::new();
    let mut rng = Rng::new(32);
    for round in 0..6 {
        let document = format!("d{round}");
        let mut states = vec![value(&mut rng, 3)];
        place.ok(&["doc", "put", "STORE", &document, "--", &states[0].to_string()]);
        for _ in 0..5 {
            let (now, next) = (states.last().unwrap(), value(&mut rng, 3));
            if rng.below(3) == 0 {
                place.ok(&["doc", "put", "STORE", &document, "--", &next.to_string()]);
                states.push(next);
            } else {
                let patch = next.to_string();
                place.ok(&["doc", "patch", "STORE", &document, "--form", "merge", "--", &patch]);
                states.push(merge(now, &next));
            }
        }
        for (version, state) in (1..).zip(&states) {
            let at = version.to_string();
            let found = place.json(&["doc", "get", "STORE", &document, "--at", &at]).remove(0);
            assert_eq!(&found["state"], state, "{document} at {version}");
        }
        let to = 1 + rng.below(5);
        place.ok(&["doc", "rewind", "STORE", &document, &to.to_string()]);
        let found = place.json(&["doc", "get", "STORE", &document]).remove(0);
        assert_eq!(&found["state"], &states[to as usize - 1]);
        assert_eq!(place.json(&["doc", "history", "STORE", &document]).len(), 6);
    }
}

#[test]
fn a_document_comes_by_the_standard_input_and_has_any_name() {
    let place = Place::new();
    let mut put = place.command(&["doc", "put", "STORE", "a/b c", "--below", "other/"]);
    let mut put = put.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    put.stdin.take().unwrap().write_all(b" [1, 2] \n").unwrap();
    assert!(put.wait_with_output().unwrap().status.success());
    assert_eq!(place.ok(&["doc", "get", "STORE", "a/b c", "--below", "other/"]), "[1,2]\n");
    assert!(place.fails(3, &["doc", "get", "STORE", "a/b c"]).contains("no document"));
}

/// The reader is another process than the writer.
#[test]
fn a_watch_prints_each_update_of_another_process() {
    let (place, store) = Place::with_store();
    let documents = Documents::open(&store, Json::new(), Options::new("documents/")).unwrap();
    documents.create("d", "r", &json!({"n": 0}).into()).unwrap();
    documents.patch("d", 1, "r1", &JsonChange::merge(json!({"n": 1}))).unwrap();
    // Another process sees a write once the writer has recorded its acknowledgement.
    let version = || {
        let found = place.run(&["doc", "get", "STORE", "d", "--json"]);
        serde_json::from_str::<Value>(text(&found.stdout)).unwrap()["version"].clone()
    };
    while version() != 2 {}
    let watch = |args: &[&str]| {
        let args = [&["doc", "watch", "STORE", "d", "--json"], args].concat();
        let mut command = place.command(&args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (child, lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()))
    };
    let (mut all, mut rows) = watch(&["--limit", "4"]);
    let (mut since, mut updates) = watch(&["--since", "1", "--limit", "3"]);
    let first = rows.next().unwrap();
    assert_eq!((&first["version"], &first["state"]), (&json!(2), &json!({"n": 1})));
    assert_eq!(updates.next().unwrap()["version"], 2);
    for version in 2..4 {
        documents.patch("d", version, "", &JsonChange::merge(json!({"n": version}))).unwrap();
        assert_eq!(rows.next().unwrap()["change"]["patch"], json!({"n": version}));
        assert_eq!(updates.next().unwrap()["version"], version + 1);
    }
    documents.delete("d", 4).unwrap();
    assert_eq!(rows.next().unwrap(), json!({"deleted": true}));
    for (child, rest) in [(&mut all, rows.next()), (&mut since, updates.next())] {
        assert_eq!((child.wait().unwrap().code(), rest), (Some(0), None));
    }
    let lost = place.run(&["doc", "watch", "STORE", "d", "--below", "x/", "--limit", "0"]);
    assert_eq!((lost.status.code(), text(&lost.stdout)), (Some(0), ""));
    drop(documents);
    store.close().unwrap();
}
