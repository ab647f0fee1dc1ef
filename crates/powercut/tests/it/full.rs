//! A full disk, for real, on those small file systems that can be had nearly everywhere; the command prints why where they
//! cannot. All of them: `cargo run --release -p brooklet-powercut -- full`.

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
fn of_ext4() {
    filled("ext4");
}

#[test]
fn of_memory() {
    filled("tmpfs");
}
