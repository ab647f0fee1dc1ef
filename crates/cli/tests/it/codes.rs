//! Every exit code that `--help` tells of is met, with a message that says what happened and where.

use crate::common;

use std::fs::{File, OpenOptions};
use std::process::Command;

use common::{Place, text};
use serde_json::Value;

/// A code, its name in JSON, how to provoke it, and what the message holds.
struct Case {
    code: i32,
    kind: &'static str,
    provoke: fn(&Place) -> Command,
    says: &'static [&'static str],
}

const CASES: &[Case] = &[
    Case { code: 0, kind: "", provoke: |place| place.command(&["list", "STORE"]), says: &[] },
    Case { code: 1, kind: "no", provoke: a_check_that_finds, says: &["defects found: 1", "damaged"] },
    Case {
        code: 2,
        kind: "usage",
        provoke: |place| place.command(&["read", "STORE", ""]),
        says: &["a key of 0 bytes", "use 1 to 1024"],
    },
    Case {
        code: 3,
        kind: "not_found",
        provoke: |place| place.command(&["trim", "STORE", "log", "--before", "9"]),
        says: &["9 is outside log \"log\"", "0 to 1", "read the bounds"],
    },
    Case {
        code: 4,
        kind: "cannot_open",
        provoke: |place| place.command(&["list", "/dev/null"]),
        says: &["/dev/null is not a Brooklet store", "neither a file nor a block device"],
    },
    Case {
        code: 5,
        kind: "damaged",
        provoke: a_cut_store,
        says: &["the superblock", "cut short", "restore"],
    },
    Case { code: 6, kind: "full", provoke: a_limit, says: &["no room left for a new store", "ulimit -f"] },
    Case {
        code: 7,
        kind: "io",
        provoke: a_full_output,
        says: &["writing the standard output failed", "No space left on device"],
    },
    Case {
        code: 7,
        kind: "io",
        provoke: a_full_output_of_an_export,
        says: &["writing the standard output failed", "No space left on device"],
    },
    Case { code: 130, kind: "interrupted", provoke: an_interruption, says: &["stopped on request"] },
];

fn a_check_that_finds(place: &Place) -> Command {
    a_cut_store(place);
    place.command(&["check", "STORE"])
}

fn a_cut_store(place: &Place) -> Command {
    OpenOptions::new().write(true).open(&place.store).unwrap().set_len(100_000).unwrap();
    place.command(&["list", "STORE"])
}

fn a_limit(place: &Place) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -f 1000; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_brooklet")]);
    command.arg("append").arg(place.dir.path().join("new")).args(["log", "x", "--ring-size", "1M"]);
    command
}

fn a_full_output(place: &Place) -> Command {
    let mut command = place.command(&["list", "STORE"]);
    command.stdout(File::create("/dev/full").unwrap());
    command
}

fn a_full_output_of_an_export(place: &Place) -> Command {
    let mut command = place.command(&["export", "STORE"]);
    command.stdout(File::create("/dev/full").unwrap());
    command
}

fn an_interruption(place: &Place) -> Command {
    let mut command = Command::new("timeout");
    command.args([
        "--foreground",
        "--preserve-status",
        "--signal",
        "INT",
        "3",
        env!("CARGO_BIN_EXE_brooklet"),
        "probe",
    ]);
    command.arg(place.dir.path()).args(["--size", "16M", "--seconds", "600"]);
    command
}

fn run(case: &Case, json: bool) -> (Option<i32>, String) {
    let place = Place::new();
    place.ok(&["append", "STORE", "log", "x", "--ring-size", "1M"]);
    let mut command = (case.provoke)(&place);
    let output =
        if json { command.arg("--json") } else { &mut command }.env_remove("RUST_LOG").output().unwrap();
    (output.status.code(), text(&output.stderr).lines().last().unwrap_or_default().to_owned())
}

#[cfg(target_os = "linux")]
#[test]
fn every_code_is_met_and_the_message_says_what_happened() {
    for case in CASES {
        let (code, line) = run(case, false);
        assert_eq!(code, Some(case.code), "{line}");
        assert!(case.code == 0 || line.starts_with("brooklet: "), "{line}");
        for words in case.says {
            assert!(line.contains(words), "{}: {line:?} does not hold {words:?}", case.code);
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn programs_are_told_the_same_with_a_kind() {
    for case in CASES.iter().filter(|case| case.code > 0) {
        let (code, line) = run(case, true);
        let failure: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((code, failure["kind"].as_str()), (Some(case.code), Some(case.kind)), "{line}");
        for words in case.says {
            assert!(failure["error"].as_str().unwrap().contains(words), "{line}");
        }
    }
}

#[test]
fn help_tells_of_exactly_these_codes() {
    let help = Place::new().ok(&["--help"]);
    let (_, codes) = help.split_once("Exit codes:\n").expect("it tells of them");
    // Behind an empty line there are examples.
    let codes = codes.lines().map_while(|line| line.split_whitespace().next());
    let told: Vec<i32> = codes.map(|code| code.parse().unwrap()).collect();
    let mut cases = CASES.iter().map(|case| case.code).collect::<Vec<_>>();
    cases.dedup();
    assert_eq!(told, cases);
}
