//! The shape of JSON: the same for all commands, as docs/json.md describes it.

use crate::common;

use std::collections::BTreeSet;
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

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");

/// The top-level fields that a section of the page names for a command.
fn named(section: &str, command: &str) -> BTreeSet<String> {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (_, part) = page.split_once(&format!("\n## {section}\n")).expect(section);
    let part = part.split("\n## ").next().unwrap();
    let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>();
    // The cell of the commands goes on in the next row: it ends in a comma, or that cell is empty.
    let mut groups: Vec<(Vec<String>, Vec<String>, bool)> = Vec::new();
    for row in part.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').skip(1).map(str::trim).collect();
        let commands = cells[0];
        let is_bytes = cells[2].contains("bytes");
        let fields = quoted(cells[1]).into_iter().flat_map(|field| {
            let field = field.split('.').next().unwrap().to_owned();
            let beside = if field == "text" { "base16".to_owned() } else { format!("{field}_base16") };
            if is_bytes { vec![field, beside] } else { vec![field] }
        });
        match groups.last_mut() {
            Some((of, known, open)) if commands.is_empty() || *open => {
                of.extend(quoted(commands));
                known.extend(fields);
                *open = commands.ends_with(',') || (*open && commands.is_empty());
            }
            _ => groups.push((quoted(commands), fields.collect(), commands.ends_with(','))),
        }
        if commands.starts_with("each `bench`") && command.starts_with("bench ") {
            groups.last_mut().unwrap().0.push(command.to_owned());
        }
    }
    let of = groups.into_iter().filter(|(commands, ..)| commands.iter().any(|name| name == command));
    of.flat_map(|(_, fields, _)| fields).collect()
}

/// A field that is printed and not named on the page is a defect of the page.
#[test]
fn the_page_names_each_field() {
    let place = Place::new();
    place.file("t.tsv", "ash\ttree\n");
    for (section, command, call) in [
        ("Logs", "append", "append STORE k x y --ring-size 1M"),
        ("Logs", "read", "read STORE k"),
        ("Logs", "list", "list STORE"),
        ("Logs", "trim", "trim STORE k --before 1"),
        ("Logs", "truncate", "truncate STORE k --from 2"),
        ("Logs", "retain", "retain STORE k --entries 9"),
        ("Logs", "inspect STORE LOG", "inspect STORE k"),
        ("Logs", "export --to FILE", "export STORE --to x.ndjson"),
        ("Logs", "import", "import other x.ndjson"),
        ("Logs", "delete", "delete other k"),
        ("Whole store", "format", "format new --ring-size 1M"),
        ("Whole store", "inspect STORE", "inspect STORE"),
        ("Whole store", "check", "check STORE"),
        ("Whole store", "checkpoint", "checkpoint STORE"),
        ("Whole store", "compact", "compact STORE"),
        ("Spaces", "create", "space create STORE games"),
        ("Spaces", "list", "space list STORE"),
        ("Spaces", "remove", "space remove STORE games"),
        ("Tags", "put", "tags put STORE 1 x --tag a"),
        ("Tags", "get", "tags get STORE 1"),
        ("Tags", "find", "tags find STORE a"),
        ("Tags", "count", "tags count STORE a"),
        ("Tags", "list", "tags list STORE"),
        ("Tags", "remove", "tags remove STORE 1"),
        ("Tags", "import", "tags import STORE t.tsv"),
        ("Documents", "put", "doc put STORE notes {}"),
        ("Documents", "patch", "doc patch STORE notes {\"stars\":5}"),
        ("Documents", "get", "doc get STORE notes"),
        ("Documents", "history", "doc history STORE notes"),
        ("Documents", "delete", "doc delete STORE notes"),
        ("Archive", "archive", "archive STORE bucket"),
        ("Archive", "backups", "backups bucket"),
        ("Archive", "restore", "restore bucket back"),
        ("Codex", "build", "codex build t.codex t.tsv"),
        ("Codex", "get", "codex get t.codex ash"),
        ("Codex", "scan", "codex scan t.codex"),
        ("Codex", "stat", "codex stat t.codex"),
        ("Codex", "verify", "codex verify t.codex"),
        ("Measuring", "bench tails", "bench tails --entries 10 --tails 10 --rounds 1"),
        ("Measuring", "bench spaces", "bench spaces --entries 10 --spaces 2000 --rounds 1"),
    ] {
        let args: Vec<&str> = call.split(' ').chain(["--json"]).collect();
        let output = place.run(&args);
        assert_eq!(output.status.code(), Some(0), "{call}: {}", text(&output.stderr));
        let named = named(section, command);
        let rows = text(&output.stdout).lines();
        let rows: Vec<Value> = rows.map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!rows.is_empty() && !named.is_empty(), "{call} prints nothing, or is not on the page");
        for field in rows.iter().flat_map(|row| row.as_object().unwrap().keys()) {
            assert!(named.contains(field), "{call} prints {field}, and docs/json.md names {named:?}");
        }
    }
}
