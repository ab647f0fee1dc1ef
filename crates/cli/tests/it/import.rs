//! `brooklet import` from the outside.

use crate::common;

use std::io::Write;
use std::process::Stdio;
use std::time::Duration;

use brooklet::{Options, Retention, Store};
use common::{Place, text};
use serde_json::json;

/// A closed store `from` beside the place's own, with logs in runs and in the ring.
fn place() -> Place {
    let place = Place::new();
    let store = Options::new().ring_size(1 << 20).open(place.dir.path().join("from")).unwrap();
    store.append_many("a/1", ["zero", "one", "two"]).unwrap().wait().unwrap();
    store.trim("a/1", 1).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.append("a/1", [0xff, 0]).unwrap().wait().unwrap();
    store.append([0xfe, b'b'], "grün").unwrap().wait().unwrap();
    let kept = Retention::new().entries(5).bytes(900).age(Duration::from_secs(3600));
    store.set_retention("a/10", kept).unwrap().wait().unwrap();
    store.close().unwrap();
    place
}

fn exported(place: &Place, store: &str) -> String {
    place.ok(&["export", store])
}

#[test]
fn what_was_exported_comes_in_as_it_was() {
    let place = place();
    let lines = exported(&place, "from");
    std::fs::write(place.dir.path().join("x.jsonl"), &lines).unwrap();
    place.ok(&["export", "from", "--format", "codex", "--to", "x.codex"]);
    for args in [&["x.jsonl"][..], &["x.codex"], &["from", "--format", "store"]] {
        let import = [&["import", "STORE"], args].concat();
        assert!(place.ok(&import).starts_with("3 logs with 4 entries, which take "), "{args:?}");
        assert_eq!(exported(&place, "STORE"), lines, "{args:?}");
        // Once more they are there already.
        let refused = place.fails(1, &import);
        assert!(refused.contains("log \"a/1\" exists already"), "{refused}");
        let told = &place.json(&[&import[..], &["--skip-existing"]].concat())[0];
        assert_eq!((&told["logs"], &told["skipped"]), (&json!(0), &json!(3)));
        assert!(place.ok(&["check", "STORE"]).starts_with("sound"));
        std::fs::remove_file(&place.store).unwrap();
    }
    for args in [&["x.codex"][..], &["from", "--format", "store"]] {
        let import = [&["import", "STORE"], args, &["--prefix", "a/1"]].concat();
        assert!(place.ok(&import).starts_with("2 logs with 3 entries"), "{args:?}");
        std::fs::remove_file(&place.store).unwrap();
    }
}

#[test]
fn lines_come_in_from_the_standard_input_and_by_columns() {
    let place = Place::new();
    let mut child = place.command(&["import", "STORE", "--format", "ndjson"]);
    let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = "{\"key\": \"b\", \"json\": {\"n\": 1}}\n{\"key\": \"a\", \"text\": \"x\"}\n{\"key\": \"b\", \"text\": \"y\"}";
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(text(&output.stdout).starts_with("2 logs with 3 entries"));
    place.file("more.csv", "when,who,what\n1,c,\"one, two\"\n2,d,three\n3,c,four\n");
    let columns = ["--key-column", "who", "--payload-column", "what"];
    place.ok(&[&["import", "STORE", "more.csv"], &columns[..]].concat());
    assert_eq!(place.ok(&["read", "STORE", "b", "--raw"]), "{\"n\": 1}y");
    assert_eq!(place.ok(&["read", "STORE", "c", "--raw"]), "one, twofour");
    assert_eq!(place.ok(&["append", "STORE", "c", "five"]), "2\n", "it goes on as any log does");
    // A codex file that is no export: a log of each key.
    place.file("words.tsv", "oak\tquercus\nash\tfraxinus\n");
    place.ok(&["codex", "build", "words.codex", "words.tsv"]);
    assert!(place.ok(&["import", "STORE", "words.codex"]).starts_with("2 logs with 2 entries"));
    assert_eq!(place.ok(&["read", "STORE", "oak", "--raw"]), "quercus");
}

#[test]
fn what_is_wrong_is_told_and_nothing_comes_in() {
    let place = place();
    place.file("x.ndjson", "{\"key\": \"a\", \"text\": \"x\"}\n{\"key\": \"a\", \"txt\": \"y\"}\n");
    place.file("long.ndjson", &format!("{{\"key\": \"{}\", \"text\": \"x\"}}", "k".repeat(1025)));
    place.file("x.csv", "a,b\n1,2\n");
    place.file("empty.csv", "");
    place.file("cut.ndjson", "{\"key\": \"a\", \"text\": \"x\"}\n{\"key\": \"a\"");
    place.file("cut.codex", "no codex at all");
    std::fs::write(
        place.dir.path().join("limit.ndjson"),
        r#"{"key": "a", "first": 0, "retention": {"age_ms": 0}}"#,
    )
    .unwrap();
    let store = || if place.store.exists() { place.ok(&["list", "STORE"]) } else { String::new() };
    for (code, args, says) in [
        (4, &["from", "--format", "store", "--no-create"][..], "No such file"),
        (2, &["x.ndjson"], "x.ndjson: line 2: unknown field `txt`"),
        (2, &["long.ndjson"], "long.ndjson: line 1: a key of 1025 bytes"),
        (2, &["limit.ndjson"], "limit.ndjson: line 1: an age of 0ns"),
        (2, &["x.csv"], "x.csv: there is no column key, only a, b"),
        (2, &["empty.csv"], "empty.csv: its first line is empty: name the columns there"),
        // A line has no lines of its own.
        (2, &["cut.ndjson"], "cut.ndjson: line 2: EOF while parsing an object, at column 11"),
        (2, &["x.data"], "the name does not show the format"),
        (4, &["none.csv"], "opening none.csv failed"),
        (4, &["cut.codex"], "cut.codex: "),
        (4, &["none", "--format", "store"], "none"),
    ] {
        let message = place.fails(code, &[&["import", "STORE"], args].concat());
        assert!(message.contains(says), "{args:?}: {message}");
        assert_eq!(store(), "", "{args:?}");
    }
    let own = place.fails(4, &["import", "from", "from", "--format", "store"]);
    assert!(own.contains("this process has it open already"), "{own}");
}

#[test]
fn options_of_another_format_are_refused() {
    let place = place();
    place.file("x.ndjson", "{\"key\": \"a\", \"text\": \"x\"}\n");
    place.file("x.csv", "key,payload\na,b\n");
    place.ok(&["export", "from", "--format", "codex", "--to", "x.codex"]);
    for (option, args) in [
        ("--incomplete", &["x.csv", "--incomplete"][..]),
        ("--incomplete", &["x.codex", "--incomplete"]),
        ("--incomplete", &["from", "--format", "store", "--incomplete"]),
        ("--key-column", &["x.ndjson", "--key-column", "id"]),
        ("--payload-column", &["x.codex", "--payload-column", "id"]),
        ("--input-ring", &["x.ndjson", "--input-ring", "ring"]),
        ("--input-archive", &["x.csv", "--input-archive", "bucket"]),
    ] {
        let said = place.fails(2, &[&["import", "STORE"], args].concat());
        assert!(said.contains(&format!("{option} is for inputs of format ")), "{args:?}: {said}");
        assert!(!place.store.exists(), "{args:?}");
    }
    for option in ["--field", "--id-field"] {
        let said = place.fails(2, &["tags", "import", "STORE", "x.csv", option, "id"]);
        assert!(said.contains(&format!("{option} is for inputs of format ndjson")), "{said}");
        assert!(!place.store.exists(), "{option}");
    }
}

/// In an earlier state its name was `-`.
#[test]
fn a_refusal_names_the_standard_input() {
    let place = Place::new();
    for args in [&["import", "STORE"][..], &["tags", "import", "STORE"], &["codex", "build", "x.codex"]] {
        let refused = place.fed(&[args, &["--format", "ndjson"]].concat(), b"nonsense\n");
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("the standard input: line 1: "), "{args:?}: {said}");
    }
}

/// Cut at the end of any line.
#[test]
fn an_export_that_was_cut_is_refused() {
    let place = place();
    let lines: Vec<String> = exported(&place, "from").lines().map(str::to_owned).collect();
    let import = |lines: &[String], more: &[&str]| {
        let args = [&["import", "STORE", "-", "--format", "ndjson"], more].concat();
        let done =
            place.fed(&args, lines.iter().map(|line| format!("{line}\n")).collect::<String>().as_bytes());
        let left = if place.store.exists() { place.ok(&["list", "STORE"]) } else { String::new() };
        std::fs::remove_file(&place.store).unwrap();
        (done.status.code(), text(&done.stderr).to_owned(), left.lines().count())
    };
    assert_eq!(lines.len(), 9, "two lines more than of three logs with four entries: {lines:?}");
    assert_eq!(import(&lines, &[]), (Some(0), String::new(), 3));
    for cut in 1..lines.len() {
        let (code, says, logs) = import(&lines[..cut], &[]);
        assert!(code == Some(2) && logs == 0, "cut behind line {cut}: {code:?}, {says}");
        assert!(says.contains("the export is incomplete") && says.contains("--incomplete"), "{says}");
        let (code, says, logs) = import(&lines[..cut], &["--incomplete"]);
        assert_eq!((code, &says[..]), (Some(0), ""), "cut behind line {cut}");
        assert_eq!(logs, lines[..cut].iter().filter(|line| line.contains("\"first\"")).count());
    }
    // A line less within it.
    for gone in 1..lines.len() - 1 {
        let less: Vec<String> = [&lines[..gone], &lines[gone + 1..]].concat();
        let (code, says, _) = import(&less, &[]);
        assert_eq!(code, Some(2), "without line {}: {says}", gone + 1);
    }
    // An older export has neither the first line nor the last.
    let older = &lines[1..lines.len() - 1];
    assert_eq!(import(older, &[]), (Some(0), String::new(), 3));
    let (code, says, _) = import(&older[..3], &[]);
    assert!(code == Some(2) && says.contains("line 3: log \"a/1\" ends before entry 3"), "{says}");
    // One export after the other.
    let [one, other] = ["a/10", "a/1"].map(|log| place.ok(&["export", "from", "--log", log]));
    let both: Vec<String> = one.lines().chain(other.lines()).map(str::to_owned).collect();
    assert_eq!(import(&both, &[]), (Some(0), String::new(), 2));
    // The counts are those of all logs.
    assert_eq!(import(&lines, &["--prefix", "a/1"]), (Some(0), String::new(), 2));
}

/// The entries of both would come behind the beginning of the last one, with other numbers.
#[test]
fn a_log_in_two_exports_is_refused() {
    let place = place();
    let first = exported(&place, "from");
    place.ok(&["append", "from", "a/1", "more"]);
    place.ok(&["trim", "from", "a/1", "--before", "4"]);
    let second = exported(&place, "from");
    for more in [&[][..], &["--memory", "1M"]] {
        let args = [&["import", "STORE", "-", "--format", "ndjson"], more].concat();
        let done = place.fed(&args, [&first[..], &second].concat().as_bytes());
        let says = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{says}");
        assert!(says.contains("log \"a/1\" begins twice"), "{says}");
        assert_eq!(place.ok(&["list", "STORE"]), "");
    }
}

/// Killed at any moment, of either side: the store opens, and has all of it or nothing.
#[cfg(unix)]
#[expect(clippy::disallowed_methods, reason = "it is killed after some time")]
#[test]
fn an_import_that_is_killed_is_there_as_a_whole_or_not() {
    let place = Place::new();
    let from = Store::open(place.dir.path().join("from")).unwrap();
    for n in 0..60_000u32 {
        drop(from.append(format!("log/{}", n % 700), format!("{n:0100}")).unwrap());
    }
    from.close().unwrap();
    drop(from);
    let lines = exported(&place, "from");
    std::fs::write(place.dir.path().join("x.ndjson"), &lines).unwrap();
    for (nth, args) in [&["from", "--format", "store"][..], &["x.ndjson", "--memory", "1M"]]
        .into_iter()
        .cycle()
        .take(24)
        .enumerate()
    {
        let (store, started) = place_of_a_store(&place);
        drop(store);
        let mut child =
            place.command(&[&["import", "STORE"], args].concat()).stdout(Stdio::null()).spawn().unwrap();
        // From before the beginning to behind the end.
        std::thread::sleep(Duration::from_millis(nth as u64 * 12));
        child.kill().unwrap();
        child.wait().unwrap();
        common::unlocked(&place.store);
        let store = Store::open(&place.store).unwrap();
        let found = store.scan("log/").unwrap().count();
        assert!(found == 0 || found == 700, "{nth}: {found} logs");
        assert_eq!(store.read("mine", ..).unwrap().count(), started);
        store.append("mine", "more").unwrap().wait().unwrap();
        store.close().unwrap();
        drop(store);
        assert!(place.ok(&["check", "STORE"]).starts_with("sound"), "{nth}");
        if found == 700 {
            place.ok(&["delete", "STORE", "mine"]);
            assert_eq!(exported(&place, "STORE"), lines, "{nth}");
        }
        std::fs::remove_file(&place.store).unwrap();
    }
    assert_eq!(exported(&place, "from"), lines);
}

/// A store with a log of its own, and how many entries that has.
#[cfg(unix)]
fn place_of_a_store(place: &Place) -> (Store, usize) {
    let store = Options::new().ring_size(1 << 20).open(&place.store).unwrap();
    store.append_many("mine", ["a", "b"]).unwrap().wait().unwrap();
    (store, 2)
}

/// Inputs without end are refused before they fill the memory, which has a limit here.
#[cfg(target_os = "linux")]
#[test]
fn an_input_without_end_is_refused_and_not_held() {
    let place = Place::new();
    let sparse = std::fs::File::create(place.dir.path().join("sparse.json")).unwrap();
    sparse.set_len(5 << 30).unwrap();
    for (args, says) in [
        (&["import", "STORE", "--format", "ndjson"][..], "line 1: it is longer than"),
        (&["import", "STORE", "--format", "csv"], "line 1: it is longer than"),
        (&["append", "STORE", "log"], "line 1: it is longer than"),
        (&["tags", "import", "STORE", "-"], "line 1: it is longer than"),
        (&["doc", "put", "STORE", "name"], "the standard input is longer than"),
        (&["doc", "patch", "STORE", "name"], "the standard input is longer than"),
        (&["replay", "sparse.json"], "sparse.json: it is longer than"),
        (&["replay", "--git", "sparse.json"], "sparse.json: it is longer than"),
    ] {
        let command = place.command(args);
        let mut limited = std::process::Command::new("sh");
        limited.args(["-c", "ulimit -v 2500000; exec \"$@\"", "sh"]).arg(command.get_program());
        limited.args(command.get_args()).current_dir(place.dir.path());
        let done = limited.stdin(std::fs::File::open("/dev/zero").unwrap()).output().unwrap();
        let told = text(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {told}");
        assert!(told.contains(says), "{args:?}: {told}");
    }
}
