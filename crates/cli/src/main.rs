//! The `brooklet` command; everything about it is in the library beside this file.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    brooklet_cli::main()
}
