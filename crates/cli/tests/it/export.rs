//! `brooklet export` from the outside.

use crate::common;

use std::os::unix::fs::FileTypeExt;
use std::process::{Command, Stdio};

use brooklet::{Retention, Store};
use common::{Place, text};
use serde_json::{Value, json};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A closed store with logs in runs and in the ring.
fn place() -> Place {
    let (place, store) = Place::with_store();
    store.append_many("a/1", ["zero", "one", "two"]).unwrap().wait().unwrap();
    store.trim("a/1", 1).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.append("a/1", [0xff, 0]).unwrap().wait().unwrap();
    store.append([0xfe, b'b'], "grün").unwrap().wait().unwrap();
    store.set_retention("a/10", Retention::new().entries(5)).unwrap().wait().unwrap();
    store.append("gone", "x").unwrap().wait().unwrap();
    store.delete("gone").unwrap().wait().unwrap();
    store.close().unwrap();
    place
}

#[test]
fn logs_come_with_their_bounds_and_entries() {
    let place = place();
    let log = |key: [Option<&str>; 2], first: u64, next: u64, retention: Value| {
        let entries = next - first;
        json!({"key": key[0], "key_base16": key[1], "first": first, "next": next, "entries": entries,
            "retention": retention})
    };
    let entry = |key: [Option<&str>; 2], seq: u64, text: Option<&str>, digits: Option<&str>| json!({"key": key[0], "key_base16": key[1], "seq": seq, "text": text, "base16": digits});
    let (key, other) = ([Some("a/1"), None], [None, Some("fe62")]);
    let one = [
        log(key, 1, 4, Value::Null),
        entry(key, 1, Some("one"), None),
        entry(key, 2, Some("two"), None),
        entry(key, 3, None, Some("ff00")),
    ];
    let limits = json!({"entries": 5, "bytes": null, "age_ms": null});
    let ten = [log([Some("a/10"), None], 0, 0, limits)];
    let last = [log(other, 0, 1, Value::Null), entry(other, 0, Some("grün"), None)];
    let whole = |logs: &[Value], counts: [u64; 2]| {
        let [begin, end] = [json!({"export": 1}), json!({"logs": counts[0], "entries": counts[1]})];
        [&[begin], logs, &[end]].concat()
    };
    assert_eq!(lines(&place.ok(&["export", "STORE"])), whole(&[&one[..], &ten, &last].concat(), [3, 4]));
    assert_eq!(lines(&place.ok(&["export", "STORE", "--log", "a/1"])), whole(&one, [1, 3]));
    let below = whole(&[&one[..], &ten].concat(), [2, 3]);
    assert_eq!(lines(&place.ok(&["export", "STORE", "--prefix", "a/"])), below);
    assert_eq!(lines(&place.ok(&["export", "STORE", "--prefix", "b"])), whole(&[], [0, 0]));
    assert!(place.ok(&["export", "STORE", "--to", "out.ndjson"]).starts_with("3 logs with 4 entries, "));
    let written = std::fs::read_to_string(place.dir.path().join("out.ndjson")).unwrap();
    assert_eq!(written, place.ok(&["export", "STORE", "--to", "-"]));
    let told = &place.json(&["export", "STORE", "--to", "out.ndjson", "--force"])[0];
    assert_eq!(*told, json!({"logs": 3, "entries": 4, "bytes": written.len()}));
    assert_eq!(
        place.ok(&["check", "STORE"]).lines().next().map(|line| line.starts_with("sound")),
        Some(true)
    );
}

#[test]
fn logs_become_a_codex() {
    let place = place();
    let export = ["export", "STORE", "--format", "codex", "--to", "out.codex"];
    assert!(place.ok(&export).starts_with("3 logs with 4 entries, "));
    assert_eq!(place.json(&["codex", "verify", "out.codex"])[0]["entries"], json!(3));
    assert_eq!(place.json(&["codex", "stat", "out.codex"])[0]["metadata_bytes"], json!(52));
    let one = place.json(&[&export[..], &["--log", "a/1", "--force"]].concat());
    assert_eq!((&one[0]["logs"], &one[0]["entries"]), (&json!(1), &json!(3)));
    // The standard output takes it, too.
    let printed = place.run(&["export", "STORE", "--format", "codex", "--log", "a/1"]);
    assert_eq!(printed.stdout, std::fs::read(place.dir.path().join("out.codex")).unwrap());
}

#[test]
fn what_cannot_be_exported_leaves_nothing() {
    let place = place();
    let files = || std::fs::read_dir(place.dir.path()).unwrap().count();
    let before = files();
    assert!(place.fails(3, &["export", "STORE", "--log", "gone", "--to", "x"]).contains("gone"));
    place.fails(4, &["export", "absent", "--to", "x"]);
    place.file("x", "somebody's");
    assert!(place.fails(2, &["export", "STORE", "--to", "x"]).contains("x exists already"));
    assert_eq!(std::fs::read_to_string(place.dir.path().join("x")).unwrap(), "somebody's");
    assert!(
        place
            .fails(7, &["export", "STORE", "--to", "no/such/folder"])
            .contains("writing no/such/folder failed")
    );
    let store = Store::open(&place.store).unwrap();
    // Much where it is written out, and little in the store.
    for _ in 0..40 {
        store.append_many("long", vec![[b'x'; 10_000]; 10]).unwrap().wait().unwrap();
    }
    store.close().unwrap();
    drop(store);
    // A limit on the size of files stands for a disk that is full.
    let full = Command::new("sh")
        .args([
            "-c",
            "trap '' XFSZ; ulimit -f 6000; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_brooklet"),
            "export",
        ])
        .args([place.store.to_str().unwrap(), "--to", "y"])
        .current_dir(place.dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(7), "{}", text(&full.stderr));
    assert!(text(&full.stderr).contains("writing y failed: File too large"), "{}", text(&full.stderr));
    assert_eq!(files(), before + 1);
}

/// A new file takes the place of the one with its name. That must be neither a device, for which a
/// pipe stands here, nor a file that the command reads.
#[test]
fn only_another_file_is_replaced() {
    let place = place();
    let pipe = place.dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    place.file("words.tsv", "oak\tquercus\n");
    let exported = place.ok(&["export", "STORE"]);
    for args in [
        &["export", "STORE", "--to", "pipe", "--force"][..],
        &["export", "STORE", "--to", "pipe"],
        &["export", "STORE", "--to", "STORE", "--force"],
        &["codex", "build", "pipe", "words.tsv", "--force"],
        &["codex", "build", "words.tsv", "words.tsv", "--force"],
    ] {
        let said = place.fails(2, args);
        assert!(said.ends_with("choose another name"), "{args:?}: {said}");
    }
    assert!(pipe.metadata().unwrap().file_type().is_fifo());
    assert_eq!(place.ok(&["export", "STORE"]), exported);
    assert_eq!(std::fs::read_to_string(place.dir.path().join("words.tsv")).unwrap(), "oak\tquercus\n");
}
