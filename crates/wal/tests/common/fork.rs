//! A child that is forked in the midst of a test: what it says of a copy that it has of something.

use std::io::{Read, Write, pipe};
use std::panic::{AssertUnwindSafe, catch_unwind};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
    fn _exit(status: i32) -> !;
}

/// Runs `run` while a child lives that was forked before, and has whatever was open then.
#[allow(dead_code, reason = "not every crate that has this file tests it")]
pub fn beside_child<T>(run: impl FnOnce() -> T) -> T {
    let (mut until, end) = pipe().unwrap();
    // SAFETY: the child does nothing but wait, and leaves without a word to anybody.
    match unsafe { fork() } {
        -1 => panic!("no child: {}", std::io::Error::last_os_error()),
        0 => {
            drop(end);
            let _ = until.read(&mut [0]);
            // SAFETY: as above.
            unsafe { _exit(0) }
        }
        child => {
            let result = run();
            drop(end);
            let mut status = 0;
            // SAFETY: it is our child, and `status` outlives the call.
            unsafe { waitpid(child, &mut status, 0) };
            result
        }
    }
}

/// Runs `run` in a forked child, and gives what it returns there. A child that hangs is ended after
/// a minute.
///
/// `run` works with what it captures and prints nothing: locks that other threads of the test hold
/// stay locked there.
pub fn in_child(run: impl FnOnce() -> String) -> String {
    let (mut from, mut to) = pipe().unwrap();
    // SAFETY: the child runs what it is given, and leaves without a word to anybody else.
    match unsafe { fork() } {
        -1 => panic!("no child: {}", std::io::Error::last_os_error()),
        0 => {
            // SAFETY: it has no handler, and ends the child.
            unsafe { alarm(60) };
            let said = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| "it panicked".into());
            let _ = to.write_all(said.as_bytes());
            // SAFETY: nothing that the parent's threads left behind is run.
            unsafe { _exit(0) }
        }
        child => {
            drop(to);
            let (mut said, mut status) = (String::new(), 0);
            from.read_to_string(&mut said).unwrap();
            // SAFETY: it is our child, and `status` outlives the call.
            unsafe { waitpid(child, &mut status, 0) };
            assert_eq!(status, 0, "the child ended by itself, and said {said:?}");
            said
        }
    }
}
