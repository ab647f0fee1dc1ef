//! Limits of the process: file size, open files, memory, threads. Each is a refusal in words, or
//! does no harm.

use std::fs;
use std::process::Command;

use crate::faults::fault;
use crate::faults::machine::tool;
use crate::faults::writer::{BROOKLET, Log};

/// What a refused allocation ends in.
const SIGABRT: i32 = 6;

/// Runs a command under a limit of the shell's. A profile, where one is taken, must not be what
/// meets it.
fn under(limit: &str) -> [String; 4] {
    [
        "sh".into(),
        "-c".into(),
        format!("export LLVM_PROFILE_FILE=/dev/null; ulimit {limit} && exec \"$@\""),
        "sh".into(),
    ]
}

fn place() -> (tempfile::TempDir, Log) {
    let dir = tempfile::tempdir().unwrap();
    let log = Log { store: dir.path().join("s"), first: 0, acked: 0 };
    (dir, log)
}

/// The kernel would cut a write short at the limit, and answer the next with a signal that ends the
/// process.
#[test]
fn file_size() {
    fault("file size limit", || {
        // In units of 512 bytes. The first three are less than an empty store.
        let creating = ["0", "8", "2000"];
        for blocks in creating {
            let (dir, mut log) = place();
            let limit = under(&format!("-f {blocks}"));
            log.append(&limit.each_ref().map(String::as_str), 1).refused(&[6], "ulimit -f");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "half a store is not left behind");
            log.append(&[], 1).ok();
        }
        let growing = ["3000", "4500", "7000"];
        for blocks in growing {
            let (_dir, mut log) = place();
            let limit = under(&format!("-f {blocks}"));
            log.append(&limit.each_ref().map(String::as_str), 20_000).refused(&[6], "ulimit -f");
            log.reads();
            log.run(&limit.each_ref().map(String::as_str), &["trim", "log", "--before", "9"]).ok();
            log.first = 9;
            log.holds();
        }
        // A limit below what the store has already: nothing can be written, everything can be read.
        let (_dir, mut log) = place();
        log.append(&[], 3_000).ok();
        let limit = under("-f 4");
        let limit = limit.each_ref().map(String::as_str);
        log.append(&limit, 1).refused(&[6, 7], "ulimit -f");
        log.run(&limit, &["list"]).ok();
        log.holds();
        Ok((creating.len() + growing.len() + 1) as u32)
    });
}

#[test]
fn open_files() {
    fault("open file limit", || {
        let (_dir, mut log) = place();
        log.append(&[], 100).ok();
        let mut refused = 0;
        let limits = 4..10;
        for files in limits.clone() {
            let limit = under(&format!("-n {files}"));
            let ended = log.append(&limit.each_ref().map(String::as_str), 20);
            // With fewer than the loader needs, the program does not even start.
            if ended.code != Some(0) && ended.code != Some(127) {
                ended.refused(&[7], "Too many open files");
                refused += 1;
            }
            log.holds();
        }
        let (dir, mut log) = place();
        let limit = under("-n 4");
        let ended = log.append(&limit.each_ref().map(String::as_str), 1);
        if ended.code != Some(127) {
            ended.refused(&[7], "Too many open files");
            assert!(fs::read_dir(dir.path()).unwrap().count() == 0);
            refused += 1;
        }
        assert!(refused > 0, "no limit was met");
        Ok(limits.count() as u32 + 1)
    });
}

/// From what the loader needs to what everything needs. A refused allocation ends the process, as
/// it does any in Rust, in the words of whoever met it first: the store, the runtime, or the C
/// library, which has some of its own for what a thread keeps. Whatever else is refused is an error
/// in our words.
#[test]
fn memory() {
    fault("memory limit", || {
        let (_dir, mut log) = place();
        log.append(&[], 1_000).ok();
        let limits: Vec<u64> = (1..=12).map(|n| 6_000 + n * n * 250).collect();
        let mut refused = 0;
        for kilobytes in &limits {
            let limit = under(&format!("-v {kilobytes}"));
            let ended = log.append(&limit.each_ref().map(String::as_str), 200);
            let started = !ended.stderr.contains("shared libraries") && ended.code != Some(127);
            let silent = ended.signal.is_some() && ended.stderr.is_empty();
            if ended.code != Some(0) && started && !silent {
                let says = ["Cannot allocate", "starting a thread failed", "os error 1"];
                let aborted = ended.signal == Some(SIGABRT) && !ended.stderr.contains("panicked at crates/");
                assert!(aborted || says.iter().any(|words| ended.stderr.contains(words)), "{ended:?}");
                refused += 1;
            }
            log.holds();
        }
        if refused == 0 {
            return Err(
                "between what the loader needs and what everything needs there is no limit to meet here"
                    .into(),
            );
        }
        Ok(limits.len() as u32)
    });
}

#[test]
fn threads() {
    fault("no thread to be had", || {
        tool("strace")?;
        let whens = ["1", "2", "1+"];
        for when in whens {
            let (_dir, mut log) = place();
            log.append(&[], 100).ok();
            let inject = format!("inject=clone,clone3:error=EAGAIN:when={when}");
            let strace =
                ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=clone,clone3", "-e", &inject];
            log.append(&strace, 1).refused(&[7], "starting a thread failed");
            log.run(&strace, &["list"]).ok();
            log.holds();
        }
        Ok(whens.len() as u32)
    });
}

/// The first thread that a build starts listens for Ctrl-C. The others merge and pack, and one does
/// that alone if there are no more.
#[test]
fn threads_of_a_build() {
    fault("no thread for a build", || {
        tool("strace")?;
        let dir = tempfile::tempdir().unwrap();
        let (input, codex) = (dir.path().join("in.tsv"), dir.path().join("out.codex"));
        let line = |n: u64| format!("{:016x}\t{n:0100}\n", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        fs::write(&input, (0..30_000).map(line).collect::<String>()).unwrap();
        let inject = "inject=clone,clone3:error=EAGAIN:when=2+";
        let mut command = Command::new("strace");
        command.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=clone,clone3", "-e", inject]);
        command.args([BROOKLET, "codex", "build", "--threads", "4"]).args([&codex, &input]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let mut verify = Command::new(BROOKLET);
        assert!(verify.args(["codex", "verify"]).arg(&codex).status().unwrap().success());
        Ok(1)
    });
}
