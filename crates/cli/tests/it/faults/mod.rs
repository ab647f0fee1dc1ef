//! Real faults on a real machine: full, thin, read-only and vanishing file systems, limits, frozen
//! and killed processes, failing system calls, files cut or deleted under an open store, block
//! devices.
//!
//! What has to hold for each: the process says what happened, by its exit code and one line that
//! names it; nothing that it acknowledged is missing once conditions are good again; and what is
//! promised to go on does. What a machine does not let us do (mounting wants root, failing calls
//! want strace) is skipped with the reason.
//!
//! Each fault is tried in several scenarios. Where `BROOKLET_COUNTS` names a file, a JSON line for
//! each fault is appended.

#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "faults take real time and threads")]

mod calls;
mod device;
mod limits;
pub mod machine;
mod place;
mod process;
mod space;
mod writer;

use std::fs::OpenOptions;
use std::io::Write;

/// How many scenarios held, or why none could be tried.
type Fault = Result<u32, String>;

/// Runs a fault and tells how it went, past the test harness, which would keep it to itself.
fn fault(name: &str, run: impl FnOnce() -> Fault) {
    let mut out = std::io::stdout().lock();
    let scenarios = match run() {
        Ok(scenarios) => scenarios,
        Err(why) => return writeln!(out, "real fault {name}: skipped: {why}").unwrap(),
    };
    writeln!(out, "real fault {name}: ok ({scenarios} scenarios)").unwrap();
    if let Some(path) = std::env::var_os("BROOKLET_COUNTS") {
        let line = format!("{{\"kind\":\"real-fault\",\"name\":\"{name}\",\"scenarios\":{scenarios}}}\n");
        let mut counts = OpenOptions::new().create(true).append(true).open(path).unwrap();
        counts.write_all(line.as_bytes()).unwrap();
    }
}
