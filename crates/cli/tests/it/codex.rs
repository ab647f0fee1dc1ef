//! `brooklet codex` from the outside: what it builds, prints, refuses and leaves behind.

use crate::common;

use std::io::Write;
use std::process::Stdio;

use common::{Place, text};
use serde_json::{Value, json};

const TREES: &str = "oak\tquercus\nash\tfraxinus\nelm\tulmus\n";

fn files(place: &Place) -> Vec<String> {
    let files = std::fs::read_dir(place.dir.path()).unwrap();
    let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn entries_are_built_and_read() {
    let place = Place::new();
    place.file("trees.tsv", TREES);
    assert!(place.ok(&["codex", "build", "t.codex", "trees.tsv"]).starts_with("3 entries in 1 block, "));
    assert_eq!(place.ok(&["codex", "get", "t.codex", "elm"]), "elm\tulmus\n");
    assert_eq!(place.ok(&["codex", "get", "t.codex", "elm", "--raw", "--from", "1", "--to", "3"]), "lm");
    let scan = ["codex", "scan", "t.codex"];
    assert_eq!(place.ok(&scan), "ash\tfraxinus\nelm\tulmus\noak\tquercus\n");
    assert_eq!(place.ok(&[&scan[..], &["--from", "b", "--to", "oak"]].concat()), "elm\tulmus\n");
    assert_eq!(place.ok(&[&scan[..], &["--reverse", "--keys", "--limit", "2"]].concat()), "oak\nelm\n");
    assert_eq!(place.ok(&[&scan[..], &["--prefix", "a", "--keys"]].concat()), "ash\n");
    assert!(place.ok(&["codex", "stat", "t.codex"]).ends_with("\nfrom ash to oak\n"));
    assert!(place.ok(&["codex", "verify", "t.codex"]).starts_with("sound: 3 entries in 1 block, "));
    let stat = &place.json(&["codex", "stat", "t.codex"])[0];
    assert_eq!((&stat["entries"], &stat["first"], &stat["version"]), (&json!(3), &json!("ash"), &json!(2)));
    assert_eq!((&stat["first_base16"], &stat["last"]), (&json!(null), &json!("oak")));
    let keys = place.json(&["codex", "scan", "t.codex", "--keys", "--limit", "1"]);
    assert_eq!(keys, [json!({"key": "ash", "key_base16": null, "value": null, "value_base16": null})]);
    assert_eq!(place.json(&["codex", "verify", "t.codex"])[0]["sound"], json!(true));
}

/// What a scan prints as JSON is what a build reads.
#[test]
fn json_goes_round() {
    let place = Place::new();
    let lines =
        [r#"{"key":"b","value":{"n": 1}}"#, r#"{"key_base16":"00ff","value_base16":"fe"}"#, r#"{"key":"a"}"#];
    place.file("in.ndjson", &lines.join("\n"));
    let build = ["codex", "build", "one.codex", "in.ndjson"];
    assert_eq!(place.json(&build)[0]["entries"], json!(3));
    let printed = place.json(&["codex", "scan", "one.codex"]);
    let expected = [
        json!({"key": null, "key_base16": "00ff", "value": null, "value_base16": "fe"}),
        json!({"key": "a", "key_base16": null, "value": "", "value_base16": null}),
        json!({"key": "b", "key_base16": null, "value": "{\"n\": 1}", "value_base16": null}),
    ];
    assert_eq!(printed, expected);
    // People get a value that is not text as `read` shows a payload.
    let shown = format!("\\u{{0}}\\xff\t{:48} |.|\na\t\nb\t{{\"n\": 1}}\n", "fe");
    assert_eq!(place.ok(&["codex", "scan", "one.codex"]), shown);
    let again: Vec<String> = printed.iter().map(Value::to_string).collect();
    place.file("again.ndjson", &again.join("\n"));
    place.ok(&["codex", "build", "two.codex", "again.ndjson"]);
    let read = |name: &str| std::fs::read(place.dir.path().join(name)).unwrap();
    assert_eq!(read("one.codex"), read("two.codex"));
}

#[test]
fn inputs_follow_one_another_and_one_may_be_the_standard_input() {
    let place = Place::new();
    place.file("a.tsv", "k\tfirst\n");
    place.file("b.ndjson", "{\"key\": \"l\", \"value\": \"more\"}\n");
    let args = ["codex", "build", "t.codex", "a.tsv", "-", "b.ndjson", "--duplicates", "last"];
    let mut child = place.command(&args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"k\tsecond\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(place.ok(&["codex", "scan", "t.codex"]), "k\tsecond\nl\tmore\n");
    let lengths = b"\x01\0\0\0z\x02\0\0\0\n\t";
    let args = ["codex", "build", "u.codex", "--format", "lengths"];
    let mut child = place.command(&args).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(lengths).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(place.ok(&["codex", "get", "u.codex", "z", "--raw"]), "\n\t");
}

#[test]
fn what_is_wrong_is_told_and_nothing_is_left() {
    let place = Place::new();
    place.file("trees.tsv", TREES);
    place.file("twice.tsv", "a\t1\nb\t2\na\t3\n");
    place.file("bad.ndjson", "{\"key\": \"a\"}\n{\"kee\": 1}\n");
    place.file("long.tsv", &format!("short\t1\n{}\t2\n", "k".repeat(70_000)));
    let before = files(&place);
    for (code, input, says) in [
        (2, "twice.tsv", "key \"a\" was added twice"),
        (2, "bad.ndjson", "bad.ndjson: line 2: unknown field `kee`"),
        (2, "long.tsv", "long.tsv: line 2: the key of 70000 bytes is over the limit of 65536"),
        (4, "absent.tsv", "opening absent.tsv failed"),
    ] {
        let message = place.fails(code, &["codex", "build", "new.codex", input]);
        assert!(message.contains(says), "{message}");
        assert_eq!(files(&place), before);
    }
    place.ok(&["codex", "build", "t.codex", "trees.tsv"]);
    let message = place.fails(4, &["codex", "build", "t.codex", "trees.tsv"]);
    assert!(message.contains("t.codex exists already"), "{message}");
    place.ok(&["codex", "build", "t.codex", "trees.tsv", "--force"]);
    assert!(place.fails(3, &["codex", "get", "t.codex", "yew"]).contains("there is no key yew"));
    assert!(place.fails(4, &["codex", "scan", "trees.tsv"]).contains("trees.tsv: not a codex"));
    assert!(place.fails(4, &["codex", "stat", "absent"]).contains("opening absent failed"));
    let path = place.dir.path().join("t.codex");
    let mut file = std::fs::read(&path).unwrap();
    file[9] ^= 1;
    std::fs::write(&path, &file).unwrap();
    assert!(place.fails(5, &["codex", "verify", "t.codex"]).contains("t.codex: codex damaged at byte 0"));
    std::fs::write(&path, &file[..file.len() - 1]).unwrap();
    assert!(place.fails(4, &["codex", "verify", "t.codex"]).contains("not a codex"));
}

/// A limit on the size of files stands for a disk that is full: in the midst of sorted entries,
/// which are written as they come, of unsorted ones, which are written at the end, and of those for
/// which there is no memory.
#[cfg(unix)]
#[test]
fn a_full_disk_is_told_and_nothing_is_left() {
    let place = Place::new();
    let line = |n: u64| format!("{:016x}\tvalue of {n}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    place.file("sorted.tsv", &(0..900_000).map(|n| format!("{n:09}\tvalue of {n}\n")).collect::<String>());
    place.file("any.tsv", &(0..900_000).map(line).collect::<String>());
    let before = files(&place);
    for args in [&["sorted.tsv"][..], &["any.tsv"], &["any.tsv", "--memory", "1M"]] {
        let mut command = std::process::Command::new("sh");
        command.args([
            "-c",
            "trap '' XFSZ; ulimit -f 4000; exec \"$@\"",
            "sh",
            env!("CARGO_BIN_EXE_brooklet"),
        ]);
        command.args(["codex", "build", "new.codex"]).args(args).current_dir(place.dir.path());
        let output = command.output().unwrap();
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{message}");
        assert!(message.contains("File too large"), "{message}");
        assert_eq!(files(&place), before);
    }
}

/// Whoever presses Ctrl-C, or kills it, finds the folder as it was, or with a hidden file whose
/// name tells what it is.
#[cfg(unix)]
#[test]
fn a_build_that_is_stopped_leaves_nothing_and_a_killed_one_no_codex() {
    let place = Place::new();
    for (signal, code, most_left) in [("INT", Some(130), 0), ("KILL", None, 1)] {
        let args = ["codex", "build", "new.codex"];
        let mut child = place.command(&args).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        for n in 0..600_000u32 {
            writeln!(input, "{n:09}\tvalue of {n}").unwrap();
        }
        input.flush().unwrap();
        let id = child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        // It looks between entries: more of them come until it is gone, and the pipe with it.
        let mut more = 600_000u32..;
        while child.try_wait().unwrap().is_none() {
            let n = more.next().expect("it ends before these do");
            let _ = writeln!(input, "{n:09}\tx").and_then(|()| input.flush());
        }
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), code, "{}", text(&output.stderr));
        drop(input);
        let left = files(&place);
        assert!(left.len() <= most_left, "{left:?}");
        assert!(
            left.iter().all(|name| name.starts_with(".new.codex.") && name.ends_with(".part")),
            "{left:?}"
        );
    }
}
