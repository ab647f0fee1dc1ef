//! `brooklet tags`: records that are put, found, counted, listed, removed and imported.

use crate::common;

use common::{Place, text};
use serde_json::json;

#[test]
fn records_are_put_found_and_removed() {
    let place = Place::new();
    place.ok(&["tags", "put", "STORE", "1", "call Ada", "-t", "work", "-t", "urgent"]);
    place.ok(&["tags", "put", "STORE", "2", "mend the roof", "--tag", "home", "--tag", "urgent"]);
    assert_eq!(place.ok(&["tags", "get", "STORE", "1"]), "1\turgent work\tcall Ada\n");
    assert_eq!(place.ok(&["tags", "find", "STORE", "urgent", "--raw"]), "mend the roof\ncall Ada\n");
    assert_eq!(place.ok(&["tags", "find", "STORE", "urgent", "--none", "home", "--raw"]), "call Ada\n");
    assert_eq!(place.ok(&["tags", "count", "STORE", "--any", "home", "--any", "work"]), "2\n");
    assert_eq!(place.ok(&["tags", "count", "STORE", "--prefix", "wo"]), "1\n");
    assert_eq!(place.ok(&["tags", "list", "STORE"]), "1\thome\n2\turgent\n1\twork\n");
    let page = place.json(&["tags", "find", "STORE", "urgent", "--limit", "1"]).remove(0);
    assert_eq!((&page["id"], &page["text"]), (&"2".into(), &"mend the roof".into()));
    let tag = |name: &str| json!({"tag": name, "tag_base16": null});
    assert_eq!(page["tags"], json!([tag("home"), tag("urgent")]));
    let both = ["--json", "tags", "find", "STORE", "urgent", "--raw"];
    let refused = place.run(&both);
    assert!(refused.status.code() == Some(2) && text(&refused.stderr).contains("one of --json and --raw"));
    let cursor = page["cursor"].to_string();
    assert_eq!(place.ok(&["tags", "find", "STORE", "--before", &cursor, "--raw"]), "call Ada\n");
    place.ok(&["tags", "remove", "STORE", "2"]);
    assert_eq!(place.ok(&["tags", "list", "STORE", "u"]), "1\turgent\n");
    assert!(place.fails(3, &["tags", "get", "STORE", "2"]).contains("no record 2"));
    assert!(place.fails(2, &["tags", "put", "STORE", "", "x"]).contains("an id of 0 bytes"));
    assert!(place.fails(2, &["tags", "list", "STORE", "--name", "a/b"]).contains("is not a valid name"));
}

#[test]
fn lines_are_imported_and_found_as_grep_finds_them() {
    let place = Place::new();
    let lines: Vec<String> = (0..3000)
        .map(|n| {
            let level = if n % 7 == 0 { "WARN" } else { "INFO" };
            format!("{n:06} {level} dfs.Node: block {} of /10.0.{}.1", n % 50, n % 3)
        })
        .collect();
    let file = place.file("app.log", &(lines.join("\n") + "\n"));
    let file = file.to_str().unwrap();
    let said = place.ok(&["tags", "import", "STORE", file]);
    assert!(said.starts_with("3000 records with"), "{said}");
    let grep: Vec<&String> =
        lines.iter().rev().filter(|line| line.contains("WARN") && line.contains(" block 14 ")).collect();
    let found = place.ok(&["tags", "find", "STORE", "WARN", "14", "block", "--raw"]);
    assert!(found.lines().eq(grep) && found.lines().count() > 5, "{found}");
    // Once more: the same records.
    place.ok(&["tags", "import", "STORE", file]);
    assert_eq!(place.ok(&["tags", "count", "STORE"]), "3000\n");

    let json = r#"{"user": "ada", "at": {"host": "a"}, "n": 1}
{"user": "bob", "at": {"host": "a"}, "n": 2}"#;
    let file = place.file("events.ndjson", json);
    place.ok(&["tags", "import", "STORE", file.to_str().unwrap(), "--name", "events", "--id-field", "user"]);
    assert_eq!(place.ok(&["tags", "count", "STORE", "at.host=a", "n=2", "--name", "events"]), "1\n");
    assert!(place.ok(&["tags", "get", "STORE", "bob", "--name", "events"]).contains("user=bob"));
    let file = place.file("bad.ndjson", "{\"user\": 1}\nnonsense\n");
    let said = place.fails(2, &["tags", "import", "STORE", file.to_str().unwrap(), "--name", "bad"]);
    assert!(said.contains("bad.ndjson") && said.contains("line 2"), "{said}");
}

/// In an earlier state the second import replaced the record of the first.
#[test]
fn lines_of_the_standard_input_replace_no_others() {
    let place = Place::new();
    let import =
        |input: &[u8], more: &[&str]| place.fed(&[&["tags", "import", "STORE"], more].concat(), input);
    assert!(import(b"first\n", &[]).status.success());
    let refused = import(b"second\n", &[]);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("name these lines by --source"), "{}", text(&refused.stderr));
    assert_eq!(place.ok(&["tags", "find", "STORE", "--raw"]), "first\n");
    assert!(import(b"second\n", &["--source", "day-2"]).status.success());
    assert_eq!(place.ok(&["tags", "find", "STORE", "--raw"]), "second\nfirst\n");
    assert!(import(b"other\n", &["--source=-"]).status.success());
    assert_eq!(place.ok(&["tags", "find", "STORE", "--raw"]), "other\nsecond\n");
}

/// The line is as it should be.
#[test]
fn an_import_that_meets_a_quota_says_so() {
    let place = Place::new();
    place.ok(&["space", "create", "STORE", "tags", "--max-bytes", "100"]);
    place.file("app.log", &"words of a line\n".repeat(100));
    let said = place.fails(6, &["tags", "import", "STORE", "app.log"]);
    assert!(said.contains("the quota of space tags") && !said.contains("app.log"), "{said}");
}

/// As `read` shows a payload.
#[test]
fn a_record_that_is_not_text_is_shown_as_digits() {
    let place = Place::new();
    let bytes = place.dir.path().join("bytes");
    std::fs::write(&bytes, b"a\xff\0").unwrap();
    let mut put = place.command(&["tags", "put", "STORE", "1", "-t", "raw"]);
    assert!(put.stdin(std::fs::File::open(&bytes).unwrap()).output().unwrap().status.success());
    let row = format!("1\traw\t{:48} |a..|\n", "61 ff 00");
    assert_eq!(place.ok(&["tags", "get", "STORE", "1"]), row);
    assert_eq!(place.ok(&["tags", "find", "STORE", "raw"]), row);
}
