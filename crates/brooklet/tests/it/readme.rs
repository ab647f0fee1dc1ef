//! The program of the READMEs, which people copy and run again: it runs twice on the same store.

use std::process::Command;

// Its lines are as they are in the READMEs.
include!("first_program.rs");

/// Set in a process that is to run the program.
const CHILD: &str = "BROOKLET_FIRST_PROGRAM";

#[test]
fn the_first_program_runs_twice_on_one_store() {
    if std::env::var_os(CHILD).is_some() {
        return main().unwrap();
    }
    // The program opens its store in the current directory.
    let dir = tempfile::tempdir().unwrap();
    for run in 0..2 {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "readme::the_first_program_runs_twice_on_one_store", "--nocapture"]);
        let output = child.env(CHILD, "1").current_dir(dir.path()).output().unwrap();
        assert!(output.status.success(), "run {run}: {}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout).unwrap();
        let seq = 3 * run;
        assert!(printed.contains(&format!("{}: insert 'i' at 1", seq + 1)), "run {run}: {printed}");
    }
    for readme in [include_str!("../../../../README.md"), include_str!("../../README.md")] {
        let program = concat!("```rust,no_run\n", include_str!("first_program.rs"), "```\n");
        assert!(readme.contains(program), "a README has another program than first_program.rs");
    }
}
