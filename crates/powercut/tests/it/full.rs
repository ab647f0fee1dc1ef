//! A full disk, for real, on the small file system that can be had nearly everywhere; the command
//! prints why where it cannot. All of them: `cargo run --release -p brooklet-powercut -- full`,
//! which is part of the proof of every change.

use std::process::Command;

#[track_caller]
fn filled(filesystem: &str) {
    let args = ["full", "--filesystem", filesystem];
    let output = Command::new(env!("CARGO_BIN_EXE_brooklet-powercut")).args(args).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    let skipped = said.lines().any(|line| line.starts_with("skipped: "));
    assert!(said.contains(", 0 lost, ") || skipped, "{said}");
}

#[test]
fn of_memory() {
    filled("tmpfs");
}
