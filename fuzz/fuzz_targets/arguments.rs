//! The command line. Input: arguments, each ended by a zero byte; they need not be text.

#![no_main]

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use brooklet_cli::fuzzing::{arguments, size};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let given = data.split(|&byte| byte == 0).map(|bytes| OsStr::from_bytes(bytes).to_owned());
    let args: Vec<OsString> = std::iter::once("brooklet".into()).chain(given).collect();
    match arguments(args.clone()) {
        Ok(call) => assert!(!(call.json && call.raw), "two ways to print at once"),
        // What goes to the standard output is help that was asked for.
        Err((message, is_error)) => assert!(is_error || message.contains("brooklet"), "{message}"),
    }
    for arg in args.iter().filter_map(|arg| arg.to_str()) {
        let Ok(bytes) = size(arg) else { continue };
        let digits = arg.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: u64 = digits.parse().expect("digits, and a suffix");
        assert!(bytes == number || [10, 20, 30].iter().any(|shift| bytes >> shift == number));
        assert_eq!(size(&bytes.to_string()), Ok(bytes));
    }
});
