//! Commands that are asked to stop, and commands whose reader leaves.

#![expect(clippy::disallowed_methods, reason = "a command that does not stop is killed after some time")]

use crate::common;

use std::io::{Read, Write};
use std::process::{Child, Output, Stdio};
use std::sync::mpsc::channel;
use std::thread::sleep;
use std::time::Duration;

use common::{Place, text};
use rustix::process::{Pid, Signal, kill_process};

const TICK: Duration = Duration::from_millis(20);
/// Most ticks until a command does what it should.
const PATIENCE: u32 = 6000;

fn piped(place: &Place, args: &[&str]) -> Child {
    let mut command = place.command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn ask(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Returns what a command printed that ends by itself.
fn ended(mut child: Child, what: &[&str]) -> Output {
    for _ in 0..PATIENCE {
        if child.try_wait().unwrap().is_some() {
            return child.wait_with_output().unwrap();
        }
        sleep(TICK);
    }
    child.kill().unwrap();
    panic!("{what:?} does not end: {:?}", child.wait_with_output().unwrap());
}

/// Whether a command has a handler for the signal.
fn listens(child: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() >> (Signal::TERM.as_raw() - 1) & 1 == 1
}

/// The signal comes while the input is open and idle.
#[test]
fn a_command_that_waits_for_its_input_ends_at_the_first_signal() {
    for (args, line) in [
        (&["import", "STORE", "--format", "ndjson"][..], &b"{\"key\": \"log\", \"text\": \"x\"}\n"[..]),
        (&["import", "STORE", "--format", "csv"], b"key,payload\nlog,x\n"),
        (&["tags", "import", "STORE", "-"], b"words\n"),
        (&["codex", "build", "s.brooklet"], b"key\tvalue\n"),
        (&["append", "STORE", "log"], b"x\n"),
    ] {
        let place = Place::new();
        let mut child = piped(&place, args);
        let mut input = child.stdin.take().unwrap();
        input.write_all(line).unwrap();
        (0..PATIENCE).take_while(|_| !listens(&child)).for_each(|_| sleep(TICK));
        sleep(10 * TICK);
        ask(&child, Signal::TERM);
        let done = ended(child, args);
        assert_eq!(done.status.code(), Some(130), "{args:?}: {done:?}");
        assert!(text(&done.stderr).contains("stopped on request"), "{args:?}: {done:?}");
        let stays = text(&done.stderr).contains("completed work stays");
        assert!(!stays || !text(&done.stderr).contains("restoring"), "{args:?}: {done:?}");
        drop(input);
    }
}

/// The export is longer than what the pipe to its reader takes.
#[test]
fn an_export_that_is_asked_to_stop_stops() {
    let (place, store) = Place::with_store();
    for _ in 0..40 {
        store.append_many("long", vec![[b'x'; 10_000]; 10]).unwrap().wait().unwrap();
    }
    store.close().unwrap();
    drop(store);
    for format in ["ndjson", "codex"] {
        let args = ["export", "STORE", "--format", format];
        let mut child = piped(&place, &args);
        let mut out = child.stdout.take().unwrap();
        if format == "ndjson" {
            out.read_exact(&mut [0; 1000]).unwrap();
        }
        sleep(10 * TICK);
        ask(&child, Signal::INT);
        // A thread of the command takes the signal before the reader lets the command go on.
        sleep(50 * TICK);
        let reader = std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
        let done = ended(child, &args);
        assert!(format == "codex" || done.status.code() == Some(130), "{done:?}");
        reader.join().unwrap().unwrap();
    }
}

/// The end of a line comes in one piece with the beginning of the next, whose end does not come.
#[test]
fn an_appended_line_is_reported_before_the_next_one_ends() {
    let place = Place::new();
    let mut child = piped(&place, &["append", "STORE", "log"]);
    let (mut input, mut out) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    input.write_all(b"whole\npart").unwrap();
    let (told, tells) = channel();
    let reader = std::thread::Builder::new().spawn(move || {
        let mut first = [0; 2];
        told.send(out.read_exact(&mut first).map(|()| first))
    });
    let first = tells.recv_timeout(TICK * PATIENCE);
    // The part is an entry, too, once the input ends.
    drop(input);
    let done = ended(child, &["append"]);
    assert_eq!(first.expect("the line is not reported").unwrap(), *b"0\n");
    reader.unwrap().join().unwrap().unwrap();
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert_eq!(place.ok(&["read", "STORE", "log", "--raw"]), "wholepart");
}

#[test]
fn a_command_that_writes_goes_on_without_its_reader() {
    let place = Place::new();
    let mut child = piped(&place, &["append", "STORE", "log"]);
    drop(child.stdout.take());
    let lines: String = (0..100_000).map(|n| format!("{n}\n")).collect();
    // A command that ends early closes its input.
    let _ = child.stdin.take().unwrap().write_all(lines.as_bytes());
    let done = ended(child, &["append"]);
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), ""));
    assert_eq!(place.json(&["inspect", "STORE", "log"])[0]["entries"], 100_000);
    // One that reads ends, and that is fine.
    let mut child = piped(&place, &["read", "STORE", "log"]);
    drop(child.stdout.take());
    let done = ended(child, &["read"]);
    assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), ""));
}

/// Each export is longer than the buffer before the pipe.
#[test]
fn an_export_ends_with_its_reader() {
    let (place, store) = Place::with_store();
    let mut rng = brooklet::io::Rng::new(1);
    for _ in 0..100 {
        let noise: Vec<u8> = (0..10_000).map(|_| rng.next() as u8).collect();
        store.append("long", noise).unwrap().wait().unwrap();
    }
    store.close().unwrap();
    drop(store);
    for args in [
        &["export", "STORE", "--format", "ndjson"][..],
        &["export", "STORE", "--format", "codex"],
        &["export", "STORE", "--format", "codex", "--log", "long"],
    ] {
        let mut child = piped(&place, args);
        drop(child.stdout.take());
        let done = ended(child, args);
        assert_eq!((done.status.code(), text(&done.stderr)), (Some(0), ""), "{args:?}");
    }
}
