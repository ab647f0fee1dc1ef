//! The command from the outside: what it prints, for people and for programs, and the code it ends
//! with.

use crate::common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Place, text};
use serde_json::{Value, json};

#[test]
fn people_get_text() {
    let place = Place::new();
    assert_eq!(place.ok(&["append", "STORE", "doc/1", "hello", "grün\n", "--ring-size", "1M"]), "0\n1\n");
    assert_eq!(place.ok(&["append", "STORE", "doc/2", "x"]), "0\n");
    assert_eq!(place.ok(&["read", "STORE", "doc/1"]), "     0  hello\n     1  grün\\n\n");
    assert_eq!(place.ok(&["read", "STORE", "doc/1", "--raw"]), "hellogrün\n");
    assert_eq!(
        place.ok(&["list", "STORE"]),
        "doc/1  first 0  next 2  2 entries\ndoc/2  first 0  next 1  1 entry\n"
    );
    assert_eq!(place.ok(&["trim", "STORE", "doc/1", "--before", "1"]), "doc/1  first 1  next 2  1 entry\n");
    assert_eq!(place.ok(&["delete", "STORE", "doc/2"]), "doc/2  deleted\n");
    assert!(place.ok(&["inspect", "STORE"]).contains("closed cleanly"));
    assert!(place.ok(&["checkpoint", "STORE"]).starts_with("1 run of "));
    assert!(place.ok(&["compact", "STORE"]).starts_with("1 run of "));
    assert!(place.ok(&["check", "STORE"]).starts_with("sound: "));
}

#[test]
fn programs_get_json() {
    let place = Place::new();
    let many: Vec<_> =
        ["append", "STORE", "k", "--ring-size", "1M"].into_iter().chain(["a", "b", "c", "d", "e"]).collect();
    assert_eq!(place.json(&many), [json!({"key": "k", "key_base16": null, "seqs": [0, 1, 2, 3, 4]})]);
    let entry = |seq: u64, text: &str| json!({"seq": seq, "text": text, "base16": null});
    let range = ["read", "STORE", "k", "--from", "1", "--to", "4"];
    assert_eq!(place.json(&range), [entry(1, "b"), entry(2, "c"), entry(3, "d")]);
    let newest = ["read", "STORE", "k", "--reverse", "--limit", "2"];
    assert_eq!(place.json(&newest), [entry(4, "e"), entry(3, "d")]);

    let limited = |first: u64, next: u64, limits: Value| {
        let bounds = json!({"first": first, "next": next, "entries": next - first});
        let mut row = json!({"key": "k", "key_base16": null, "retention": limits});
        row.as_object_mut().unwrap().extend(bounds.as_object().unwrap().clone());
        row
    };
    let row = |first: u64, next: u64| limited(first, next, Value::Null);
    assert_eq!(place.json(&["trim", "STORE", "k", "--keep-last", "4"]), [row(1, 5)]);
    assert_eq!(place.json(&["truncate", "STORE", "k", "--from", "3"]), [row(1, 3)]);
    assert_eq!(place.json(&["inspect", "STORE", "k"]), [row(1, 3)]);
    assert_eq!(place.json(&["list", "STORE", "k", "--limit", "1"]), [row(1, 3)]);
    assert_eq!(place.json(&["list", "STORE", "z"]), [] as [Value; 0]);
    let begun = json!({"key": "begun", "first": 70, "next": 70, "retention": null});
    assert_eq!(place.json(&["trim", "STORE", "begun", "--begin-at", "70"])[0]["next"], begun["next"]);
    place.ok(&["delete", "STORE", "begun"]);
    let row_kept = limited(1, 3, json!({"entries": 9, "bytes": null, "age_ms": 7 * 24 * 3_600_000}));
    let retain = ["retain", "STORE", "k", "--entries", "9", "--age", "7d"];
    for told in [&retain[..], &["list", "STORE", "k"], &["inspect", "STORE", "k"]] {
        assert_eq!(place.json(told), std::slice::from_ref(&row_kept));
    }
    assert_eq!(place.json(&["retain", "STORE", "k", "--none"]), [row(1, 3)]);
    assert_eq!(place.run(&["retain", "STORE", "k"]).status.code(), Some(2), "a limit is wanted");
    place.fails(3, &["retain", "STORE", "none", "--none"]);
    let snapshot = ["append", "STORE", "k", "--snapshot", "--no-create", "whole", "more"];
    assert_eq!(place.json(&snapshot), [json!({"key": "k", "key_base16": null, "seqs": [3, 4]})]);
    assert_eq!(place.json(&["inspect", "STORE", "k"]), [row(3, 5)]);

    let map = &place.json(&["inspect", "STORE"])[0];
    assert_eq!(map["zones"][1]["zone"], "ring");
    assert_eq!(map["ring"]["ended"], "clean");
    let checked = &place.json(&["check", "STORE"])[0];
    assert_eq!((&checked["sound"], &checked["entries"]), (&json!(true), &json!(2)));
    assert_eq!(
        place.json(&["delete", "STORE", "k"]),
        [json!({"key": "k", "key_base16": null, "deleted": true})]
    );
}

#[test]
fn a_ring_apart_is_named_by_every_command() {
    let place = Place::new();
    let ring = ["--ring", "ring"];
    // A path says where it leads from the root on.
    let whole = place.dir.path().canonicalize().unwrap().join("ring").display().to_string();
    let with = |args: &[&'static str]| [&ring[..], args].concat();
    let made = &place.json(&with(&["format", "STORE", "--ring-size", "1M", "--capacity", "8M"]))[0];
    assert_eq!(
        (&made["ring"], &made["capacity"], &made["ring_size"]),
        (&json!(whole), &json!(8 << 20), &json!(1 << 20))
    );
    for args in
        [&["format", "STORE"][..], &["format", "STORE", "--force"], &["format", "other", "--ring", "ring"]]
    {
        assert!(place.fails(4, args).contains("exists already"));
    }
    assert_eq!(place.ok(&with(&["append", "STORE", "doc", "a", "b"])), "0\n1\n");
    assert_eq!(place.ok(&["append", "STORE", "doc", "c", "--ring", "ring"]), "2\n");
    assert_eq!(place.ok(&with(&["read", "STORE", "doc", "--raw"])), "abc");
    place.ok(&with(&["checkpoint", "STORE"]));
    place.ok(&with(&["trim", "STORE", "doc", "--before", "1"]));
    place.ok(&with(&["truncate", "STORE", "doc", "--from", "2"]));
    assert_eq!(place.ok(&with(&["list", "STORE"])), "doc  first 1  next 2  1 entry\n");
    let map = &place.json(&with(&["inspect", "STORE"]))[0];
    assert_eq!((&map["format"], &map["capacity"]), (&json!(8), &json!(8 << 20)));
    assert_eq!((&map["ring_volume"]["name"], &map["zones"][2]["offset"]), (&json!(whole), &json!(64 << 10)));
    let map = place.ok(&with(&["inspect", "STORE"]));
    assert!(map.contains(&format!("ring at    {whole}: ")) && map.contains("capacity   8.00 MiB"), "{map}");
    place.ok(&with(&["compact", "STORE"]));
    assert!(place.ok(&with(&["check", "STORE"])).starts_with("sound: "));
    place.ok(&with(&["delete", "STORE", "doc"]));
    for args in
        [&["list", "STORE"][..], &["check", "STORE"], &["append", "STORE", "doc", "x"], &["compact", "STORE"]]
    {
        let told = place.fails(4, args);
        assert!(told.contains("on a separate volume") && told.contains("--ring"), "{told}");
    }
    assert!(place.fails(2, &with(&["demo"])).contains("for commands that open a store"));
    assert!(place.fails(2, &["format", "new", "--capacity", "4097"]).contains("use a multiple of 4096"));
    assert!(!place.dir.path().join("new").exists());
    // Without `format`, too, where both are files.
    assert_eq!(place.ok(&["append", "new", "doc", "x", "--ring-size", "1M", "--ring", "new-ring"]), "0\n");
    assert!(place.fails(4, &["list", "new", "--ring", "ring"]).contains("the ring of another store"));
}

#[test]
fn standard_input_is_an_entry_a_line() {
    let place = Place::new();
    let mut command = place.command(&["append", "STORE", "k", "--ring-size", "1M"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    // What has been typed is acknowledged before more is.
    input.write_all(b"one\n").unwrap();
    assert_eq!(output.next().unwrap().unwrap(), "0");
    input.write_all(b"\xff\n\nlast").unwrap();
    drop(input);
    assert_eq!(output.map(Result::unwrap).collect::<Vec<_>>(), ["1", "2", "3"]);
    assert!(child.wait().unwrap().success());
    let rows = place.json(&["read", "STORE", "k"]);
    let payloads = [json!("one"), json!("ff"), json!(""), json!("last")];
    let row = |i: usize| {
        let (text, digits) = if i == 1 { (&json!(null), &payloads[i]) } else { (&payloads[i], &json!(null)) };
        json!({"seq": i, "text": text, "base16": digits})
    };
    assert_eq!(rows, [row(0), row(1), row(2), row(3)]);
    let shown = format!("     1  {:48} |.|\n", "ff");
    assert_eq!(place.ok(&["read", "STORE", "k", "--from", "1", "--to", "2"]), shown);
}

/// Some programs begin a file of text with this mark.
#[test]
fn a_mark_of_utf_8_is_no_part_of_a_line_of_json() {
    let place = Place::new();
    let done = place.fed(&["append", "STORE", "k", "--json"], "\u{feff}{\"text\":\"a\"}\n".as_bytes());
    assert!(done.status.success(), "{}", text(&done.stderr));
    place.file("marked.ndjson", "\u{feff}{\"user\": \"ada\"}\n");
    place.ok(&["tags", "import", "STORE", "marked.ndjson"]);
    assert_eq!(place.ok(&["tags", "find", "STORE", "user=ada", "--raw"]), "{\"user\": \"ada\"}\n");
}

#[test]
fn input_that_is_not_what_was_told_is_refused_by_its_line() {
    let place = Place::new();
    let refused = |args: &[&str], input: &[u8], because: &str| {
        let output = place.fed(&[&["append", "STORE", "k"], args].concat(), input);
        let message = text(&output.stderr);
        assert!(output.status.code() == Some(2) && message.contains(because), "{args:?}: {message}");
    };
    let json = &["--json"];
    refused(json, b"{\"text\":\"a\"}\nplain\n", "line 2: ");
    assert_eq!(
        place.json(&["read", "STORE", "k"]),
        [json!({"seq": 0, "text": "a", "base16": null})],
        "line 1 was appended"
    );
    refused(json, b"{\"seq\":1}\n", "line 1: exactly one of text and base16");
    refused(json, b"{\"text\":\"a\",\"base16\":\"00\"}\n", "line 1: exactly one of text and base16");
    refused(json, b"{\"base16\":\"0\"}\n", "line 1: base 16 needs pairs");
    refused(json, b"{\"payload\":\"a\"}\n", "line 1: unknown field `payload`");
    refused(&["-", "-"], b"a", "use `-` once");
    refused(&["--file", "-", "--file", "-"], b"a", "use `-` once");
    refused(&["--raw", "a"], b"a", "cannot be used with");
    refused(&["--file", "a", "b"], b"a", "cannot be used with");
    assert!(
        place.fails(4, &["append", "STORE", "k", "--file", "missing"]).contains("opening missing failed")
    );
    assert_eq!(place.json(&["read", "STORE", "k"]).len(), 1);
}

#[test]
fn shells_get_completions_and_readers_get_pages() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = place.ok(&["completions", shell]);
        assert!(script.contains("checkpoint") && script.contains("keep-last"), "{shell}");
        assert!(place.ok(&["completions", shell, "--json"]) == script, "{shell}");
    }
    place.ok(&["man", "man1"]);
    let page = |name: &str| std::fs::read_to_string(place.dir.path().join("man1").join(name)).unwrap();
    assert!(page("brooklet.1").contains("Exit codes"));
    assert!(page("brooklet-append.1").contains("brooklet append logs.brooklet doc/1"));
    assert!(page("brooklet-space-create.1").contains("brooklet space create"));
    assert!(place.fails(7, &["man", "man1/brooklet.1"]).contains("writing pages to man1/brooklet.1 failed"));
    let help = place.ok(&["archive", "--help"]);
    assert!(help.contains("Examples:\n  brooklet archive ") && help.contains("BUCKET is s3://"), "{help}");
}

#[test]
fn what_cannot_be_opened_ends_with_4() {
    let (place, store) = Place::with_store();
    for args in [&["delete", "STORE", "k"][..], &["append", "STORE", "k", "x"], &["check", "STORE"]] {
        let message = place.fails(4, args);
        assert!(message.contains(&std::process::id().to_string()), "names no process: {message}");
    }
    drop(store);
    place.ok(&["list", "STORE"]);
    assert!(place.fails(4, &["list", "missing"]).contains("missing"));
    assert!(place.fails(4, &["append", "missing", "k", "x", "--no-create"]).contains("missing"));
    assert!(place.fails(4, &["list", "."]).contains("directory"));
    place.file("letter", &"Dear reader, ".repeat(100_000));
    assert!(place.fails(4, &["list", "letter"]).contains("not a Brooklet store"));
    place.file("empty", "");
    place.fails(4, &["check", "empty"]);
}

/// A file size limit stands in for a full disk: a refusal by name and code, no signal, and nothing
/// lost.
#[cfg(unix)]
#[test]
fn no_room_ends_with_6() {
    let place = Place::new();
    place.ok(&["append", "STORE", "log", "first", "--ring-size", "1M"]);
    let mut rng = brooklet::io::Rng::new(1);
    let lines: String = (0..100)
        .map(|_| (0..60).map(|_| format!("{:016x}", rng.next())).collect::<String>() + "\n")
        .collect();
    let file = place.file("lines", &lines);
    let mut appended = 1;
    let refused = (0..100).find_map(|_| {
        let mut command = Command::new("sh");
        command.args(["-c", "ulimit -f 3000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_brooklet"), "append"]);
        command
            .arg(&place.store)
            .arg("log")
            .stdin(std::fs::File::open(&file).unwrap())
            .env_remove("RUST_LOG");
        let output = command.output().unwrap();
        appended += text(&output.stdout).lines().count();
        (!output.status.success()).then_some(output)
    });
    let refused = refused.expect("a store within a limit fills up");
    assert_eq!(refused.status.code(), Some(6), "{}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("file size limit"), "{}", text(&refused.stderr));
    let kept = place.ok(&["read", "STORE", "log", "--json"]).lines().count();
    assert!(kept >= appended, "{appended} were acknowledged, {kept} are there");
    assert!(place.ok(&["check", "STORE"]).starts_with("sound: "));
    place.ok(&["append", "STORE", "log", "without the limit it goes on"]);
}

#[test]
fn what_is_not_there_ends_with_3_and_what_is_wrong_with_2() {
    let (place, store) = Place::with_store();
    store.append("k", "x").unwrap().wait().unwrap();
    drop(store);
    assert!(place.fails(3, &["read", "STORE", "nothing"]).contains("\"nothing\""));
    place.fails(3, &["inspect", "STORE", "nothing"]);
    place.fails(3, &["truncate", "STORE", "nothing", "--from", "0"]);
    assert!(place.fails(3, &["read", "STORE", "k", "--from", "2"]).contains("0 to 1"));
    place.fails(3, &["trim", "STORE", "k", "--before", "9"]);
    place.fails(2, &["read", "STORE", ""]);
    place.fails(2, &["append", "small", "k", "x", "--ring-size", "1K"]);
    for usage in
        [&["trim", "STORE", "k"][..], &["read", "STORE", "k", "--raw", "--json"], &["frob"], &["replay"]]
    {
        assert_eq!(place.run(usage).status.code(), Some(2), "{usage:?}");
    }

    let output = place.run(&["--json", "read", "STORE", "nothing"]);
    let failure: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(failure["kind"], "not_found");
    assert!(failure["error"].as_str().unwrap().contains("nothing"));
}

/// A closed store with a run; where that lies.
fn store_with_a_run() -> (Place, usize) {
    let (place, store) = Place::with_store();
    for i in 0..200 {
        store.append(format!("log/{i}"), format!("entry of log {i}").repeat(8)).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    let offset = store.info().unwrap().runs[0].offset as usize;
    store.close().unwrap();
    (place, offset)
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_byte_is_found() {
    let (place, run) = store_with_a_run();
    flip(&place.store, 4096 + 17);
    let output = place.run(&["check", "STORE"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).starts_with("harmless: "), "{output:?}");
    let output = place.run(&["read", "STORE", "log/7"]);
    assert!(output.status.success() && text(&output.stderr).contains("superblock"), "{output:?}");
    flip(&place.store, 4096 + 17);
    flip(&place.store, run + 100);
    let output = place.run(&["check", "STORE", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let checked: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&checked["sound"], &checked["findings"][0]["harmless"]), (&json!(false), &json!(false)));
}

#[test]
fn a_truncated_store_is_damaged() {
    let (place, run) = store_with_a_run();
    let file = std::fs::OpenOptions::new().write(true).open(&place.store).unwrap();
    file.set_len(run as u64).unwrap();
    assert!(place.fails(5, &["list", "STORE"]).contains("damage"));
    assert_eq!(place.run(&["check", "STORE"]).status.code(), Some(1));
}

const TRACE: &str = r#"{"startContent": "", "endContent": "Grüße 😀!", "txns": [
    {"time": "2021", "patches": [[0, 0, "Gruesse"]]}, {"patches": [[2, 2, "ü"], [3, 2, "ß"]]},
    {"patches": [[5, 0, " 😀"]]}, {"patches": [[7, 0, "!"]]}]}"#;

#[test]
fn a_trace_is_replayed_and_compared() {
    let place = Place::new();
    place.file("t.json", TRACE);
    let report =
        &place.json(&["replay", "t.json", "--copies", "3", "--writers", "2", "--ring-size", "1M"])[0];
    assert_eq!((&report["appends"], &report["logs"]), (&json!(12), &json!(3)));
    assert_eq!(report["differing"], json!([]));
    assert_eq!(std::fs::read_dir(place.dir.path()).unwrap().count(), 1, "the temporary store is removed");
    let kept = [
        "replay",
        "t.json",
        "--store",
        "STORE",
        "--durability",
        "deferred",
        "--limit",
        "2",
        "--ring-size",
        "1M",
    ];
    assert!(place.ok(&kept).contains("✓"));
    assert_eq!(
        place.json(&["read", "STORE", "t/0"])[1],
        json!({"seq": 1, "text": r#"[[2,2,"ü"],[3,2,"ß"]]"#, "base16": null})
    );
    assert!(place.fails(4, &kept).contains("exists"));
}

/// A limit takes no memory by itself.
#[test]
fn any_number_of_writes_of_a_replay_may_be_in_flight() {
    let place = Place::new();
    place.file("t.json", TRACE);
    let most = usize::MAX.to_string();
    let report = &place.json(&["replay", "t.json", "--in-flight", &most, "--ring-size", "1M"])[0];
    assert_eq!(report["appends"], json!(4));
}

#[test]
fn a_trace_that_tells_another_end_ends_with_1() {
    let place = Place::new();
    place.file("t.json", &TRACE.replace("!\",", "?\","));
    let output = place.run(&["replay", "t.json", "--ring-size", "1M"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("✗ t/0: the text has 8 characters"), "{output:?}");
}

#[test]
fn a_malformed_input_is_named() {
    let place = Place::new();
    place.file("cut.json", &TRACE[..TRACE.len() - 9]);
    assert!(place.fails(2, &["replay", "cut.json"]).contains("cut.json: not a keystroke trace: EOF"));
    std::fs::write(place.dir.path().join("torn.json.gz"), b"\x1f\x8b\x08\0torn").unwrap();
    assert!(place.fails(2, &["replay", "torn.json.gz"]).contains("torn.json.gz: cannot be unzipped"));
    place.file("lines.tsv", "a\t1\t\"x\"\na\t2\n");
    assert!(place.fails(2, &["replay", "--git", "lines.tsv"]).contains("lines.tsv: line 2"));
    assert!(place.fails(4, &["replay", "nowhere.json"]).contains("nowhere.json"));
}

#[test]
fn a_history_is_committed() {
    let place = Place::new();
    place.file("h.tsv", "a\t1\t\"x\\ny\"\nb\t1\t\"z\"\na\t2\t\"D\\n\"\n");
    let args = ["replay", "--git", "h.tsv", "--store", "STORE", "--ring-size", "1M"];
    let report = &place.json(&args)[0];
    assert_eq!((&report["commits"], &report["appends"]), (&json!(2), &json!(3)));
    assert_eq!(
        place.json(&["read", "STORE", "a", "--from", "1"]),
        [json!({"seq": 1, "text": "D\n", "base16": null})]
    );
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let (place, store) = Place::with_store();
    let payloads = (0..20_000).map(|i| format!("a line that fills the pipe sooner or later, {i}"));
    let payloads: Vec<_> = payloads.collect();
    payloads.chunks(1_000).for_each(|some| drop(store.append_many("k", some).unwrap()));
    drop(store);
    let mut child =
        place.command(&["read", "STORE", "k"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("     0  a line"));
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

/// A store as a killed process leaves it, and one whose last block was cut in half.
#[test]
fn inspect_tells_how_the_ring_ended_and_what_runs_there_are() {
    let place = Place::new();
    let store = brooklet::Options::new().ring_size(1 << 20).threads(false).open(&place.store).unwrap();
    store.append("log", [b'a'; 500]).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.append("log", "last").unwrap().wait().unwrap();
    let head = store.info().unwrap().wal.written_bytes as usize;
    store.abandon();
    let told = place.ok(&["inspect", "STORE"]);
    assert!(told.contains("not closed; nothing was being written"), "{told}");
    let row = told.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row[..2], ["1", "0"], "{told}");
    let map = &place.json(&["inspect", "STORE"])[0];
    assert_eq!((&map["ring"]["ended"], &map["runs"][0]["logs"]), (&json!("open"), &json!(1)), "{map}");

    flip(&place.store, (64 << 10) + head - 4096 + 100);
    let told = place.ok(&["inspect", "STORE"]);
    assert!(told.contains("not closed; 0 unacknowledged blocks behind the end are dropped"), "{told}");
    assert_eq!(place.json(&["inspect", "STORE"])[0]["ring"]["ended"], "torn");
    assert_eq!(place.ok(&["read", "STORE", "log"]).lines().count(), 1);
}
