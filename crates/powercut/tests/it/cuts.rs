//! A few cuts of each kind that this machine can do; the command prints why where it cannot. More
//! of them are run by hand: `cargo run --release -p brooklet-powercut -- --help`.

use std::process::{Command, Output};

fn powercut(args: &[&str]) -> (Output, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_brooklet-powercut")).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    (output, said)
}

#[track_caller]
fn nothing_is_lost(args: &[&str]) {
    let (output, said) = powercut(args);
    assert!(output.status.success(), "{}", output.status);
    assert!(said.contains(", 0 lost, ") || said.starts_with("skipped: "), "{said}");
}

#[test]
fn over_a_file() {
    nothing_is_lost(&["fuse", "--cuts", "3"]);
}

#[test]
fn below_a_file_system() {
    nothing_is_lost(&["ext4", "--cuts", "2"]);
}

#[test]
fn of_the_process_alone() {
    nothing_is_lost(&["loop", "--kills", "2"]);
}

/// Takes packages and minutes, so it is asked for: `BROOKLET_VM_CUTS` says how many.
#[test]
fn of_a_virtual_machine() {
    match std::env::var("BROOKLET_VM_CUTS") {
        Ok(cuts) => nothing_is_lost(&["vm", "--cuts", &cuts]),
        Err(_) => println!("skipped: BROOKLET_VM_CUTS is not set"),
    }
}

#[test]
fn a_wrong_call_is_told_apart() {
    assert_eq!(powercut(&["fuse", "--cuts", "many"]).0.status.code(), Some(2));
}
