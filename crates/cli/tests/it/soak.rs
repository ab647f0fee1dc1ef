//! Soak from outside: a short one finds nothing wrong and leaves nothing behind; one over a store
//! that rots says so. What each of its comparisons notices, its unit tests tell.

#![expect(clippy::disallowed_methods, reason = "a test beside a process that runs in real time")]

use crate::common;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Place, text};
use serde_json::Value;

const QUICK: [&str; 9] =
    ["soak", "--logs", "500", "--kill-every", "0.3", "--ring-size", "4M", "--threads", "4"];

#[test]
fn a_sound_store_is_found_sound() {
    let place = Place::new();
    let output = place.run(&[&QUICK[..], &["--minutes", "0.05", "--seed", "3", "--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("one document");
    let figure = |name: &str| report[name].as_u64().unwrap();
    assert!(figure("kills") + figure("closes") > 0 && figure("checks") > 0, "{report}");
    assert!(figure("logs_compared") > 500, "all logs at the end, and some before: {report}");
    assert_eq!((figure("logs"), figure("seed"), figure("writers")), (500, 3, 4));
    assert_eq!(report["wrong"], Value::Array(Vec::new()));
    assert_eq!(std::fs::read_dir(place.dir.path()).unwrap().count(), 0, "what it made is removed");
}

#[test]
fn people_get_progress_and_a_summary() {
    let place = Place::new();
    let output = place.run(&[&QUICK[..], &["--minutes", "0", "--payloads", "small"]].concat());
    let (told, progress) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{progress}");
    for part in [
        "500 logs, 4 writers, seed ",
        "acknowledged",
        "checks of the whole store",
        "everything acknowledged is there",
    ] {
        assert!(told.contains(part), "{part} is missing: {told}");
    }
    for part in ["filled with 500 logs", "round 1: ", "comparing all logs", "checking"] {
        assert!(progress.contains(part), "{part} is missing: {progress}");
    }
}

/// While it is at work, everything behind the superblock is written over, again and again.
#[test]
fn a_store_that_rots_is_found_wrong_and_kept() {
    let place = Place::new();
    let mut soak = place.command(&[&QUICK[..], &["--minutes", "2"]].concat());
    let mut soak = soak.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut progress = BufReader::new(soak.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(progress.any(|line| line.contains("filled with")), "it is made in peace");
    let hear = std::thread::spawn(move || progress.for_each(drop));
    let status = loop {
        if let Some(status) = soak.try_wait().unwrap() {
            break status;
        }
        rot(place.dir.path());
        std::thread::sleep(Duration::from_millis(50));
    };
    hear.join().unwrap();
    assert_eq!(status.code(), Some(1), "{status}");
    let told = std::io::read_to_string(soak.stdout.take().unwrap()).unwrap();
    assert!(told.contains("WRONG") && told.contains("again by: brooklet soak --minutes 2 "), "{told}");
    let kept = std::fs::read_dir(place.dir.path()).unwrap().next().unwrap().unwrap().path();
    assert!(kept.join("soak.brooklet").exists(), "the evidence is kept");
}

/// Writes over what lies behind the superblock of the store that a soak in `dir` has made.
fn rot(dir: &Path) {
    let Some(Ok(made)) = std::fs::read_dir(dir).unwrap().next() else { return };
    let Ok(store) = OpenOptions::new().write(true).open(made.path().join("soak.brooklet")) else { return };
    let size = store.metadata().unwrap().len();
    for at in (64 << 10..size).step_by(16 << 10) {
        store.write_all_at(&[0xa5; 64], at).unwrap();
    }
}

/// A round that cannot begin is no finding. The store may be the reason of such a failure.
#[test]
fn a_soak_that_cannot_go_on_keeps_its_store() {
    let place = Place::new();
    let (own, program) = (env!("CARGO_BIN_EXE_brooklet"), place.dir.path().join("program"));
    std::fs::hard_link(own, &program).or_else(|_| std::fs::copy(own, &program).map(drop)).unwrap();
    let mut command = Command::new(&program);
    command.args([&QUICK[..], &["--minutes", "2"]].concat()).current_dir(place.dir.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let soak = loop {
        match command.spawn() {
            // A process that another test starts may hold the copy for a moment.
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            started => break started.unwrap(),
        }
    };
    // The command starts itself in each round.
    std::fs::remove_file(&program).unwrap();
    let ended = soak.wait_with_output().unwrap();
    let told = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(7), "{told}");
    assert!(told.contains("starting the writing process") && told.contains("the store is left in"), "{told}");
    let kept = std::fs::read_dir(place.dir.path()).unwrap().next().expect("the evidence is kept");
    assert!(kept.unwrap().path().join("soak.brooklet").exists(), "{told}");
}

#[test]
fn wrong_calls_are_told() {
    let place = Place::new();
    let clap = place.run(&["soak", "--logs", "1e12"]);
    assert_eq!((clap.status.code(), text(&clap.stderr).contains("use 1 to 1e8")), (Some(2), true));
    assert!(place.fails(7, &["soak", "--dir", "no/such/place"]).contains("no/such/place"));
    assert!(place.fails(2, &["soak", "--ring-size", "5"]).contains("a ring of 5 bytes"));
}
