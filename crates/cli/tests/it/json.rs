//! The shape of JSON: the same for all commands, as docs/json.md describes it.

use crate::common;

use std::io::Write;
use std::process::Stdio;

use common::{Place, text};
use serde_json::{Value, json};

#[test]
fn an_append_that_is_refused_midway_reports_the_appended_entries() {
    let place = Place::new();
    let refused = |input: &str| {
        let mut command = place.command(&["append", "STORE", "k", "--json"]);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let failure: Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(failure["kind"], "usage");
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let told = refused("{\"text\":\"a\"}\n{\"text\":\"b\"}\nplain\n{\"text\":\"c\"}\n");
    assert_eq!(told, [json!({"key": "k", "key_base16": null, "seqs": [0, 1]})]);
    assert_eq!(place.json(&["read", "STORE", "k"]).len(), 2);
    assert_eq!(refused("plain\n"), [json!({"key": "k", "key_base16": null, "seqs": []})]);
}

#[test]
fn changes_print_a_document() {
    let place = Place::new();
    let put = ["tags", "put", "STORE", "1", "call Ada", "-t", "work"];
    assert_eq!(place.json(&put), [json!({"id": "1", "id_base16": null, "put": true})]);
    assert_eq!(place.ok(&put), "1  put\n");
    let remove = ["tags", "remove", "STORE", "1"];
    assert_eq!(place.json(&remove), [json!({"id": "1", "id_base16": null, "removed": true})]);
    assert_eq!(place.json(&remove), [json!({"id": "1", "id_base16": null, "removed": false})]);
    assert_eq!(place.ok(&remove), "1  not there\n");
    place.ok(&["space", "create", "STORE", "games"]);
    let remove = ["space", "remove", "STORE", "games"];
    assert_eq!(place.json(&remove), [json!({"name": "games", "removed": true})]);
    assert_eq!(place.json(&["man", "pages"]), [json!({"folder": "pages"})]);
}

#[test]
fn lists_print_a_line_for_each_row() {
    let place = Place::new();
    place.ok(&["append", "STORE", "k", "x", "--ring-size", "1M"]);
    assert_eq!(place.json(&["space", "list", "STORE"]), [] as [Value; 0]);
    place.ok(&["space", "create", "STORE", "chess"]);
    place.ok(&["space", "create", "STORE", "games"]);
    let spaces = place.json(&["space", "list", "STORE"]);
    let names = spaces.iter().map(|space| &space["name"]).collect::<Vec<_>>();
    assert_eq!(names, ["chess", "games"]);
}

/// `id` is a string of the store's everywhere; the number of a codex file has another name.
#[test]
fn a_name_has_one_type() {
    let place = Place::new();
    place.file("t.tsv", "ash\ttree\n");
    place.ok(&["codex", "build", "t.codex", "t.tsv"]);
    let stat = &place.json(&["codex", "stat", "t.codex"])[0];
    assert_eq!((&stat["file_id"], &stat["id"]), (&json!(0), &Value::Null));
}
