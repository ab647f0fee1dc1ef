//! System calls that fail: the Nth of a kind, once and for good, each kind that an open store makes
//! on its file.
//!
//! strace answers in the kernel's place. It looks at the store's file only, so that nothing else is
//! disturbed; without io_uring, which would carry out reads and writes past it.

use std::fs;

use crate::common::unlocked;
use crate::faults::machine::tool;
use crate::faults::writer::{Ended, Log};
use crate::faults::{Fault, fault};

/// How a call is answered, and what may come of it.
struct Answer {
    call: &'static str,
    answer: &'static str,
    /// Which calls of each thread: the Nth, or from the Nth on.
    whens: &'static [&'static str],
    /// The codes that are right; 0 where it need do no harm.
    codes: &'static [i32],
    /// What the message says of it.
    says: &'static str,
}

const fn answer(
    call: &'static str,
    answer: &'static str,
    whens: &'static [&'static str],
    codes: &'static [i32],
    says: &'static str,
) -> Answer {
    Answer { call, answer, whens, codes, says }
}

const EIO: &str = "Input/output error (os error 5)";
const ENOSPC: &str = "No space left on device";

/// Durable writes (`pwritev2`): claiming the store, its blocks, its superblocks. Cached ones
/// (`pwrite64`): runs, manifests.
const WRITES: &[Answer] = &[
    answer("pwritev2", "error=EIO", &["1", "2", "3", "1+"], &[7], EIO),
    // Which thread writes which block, and into how many all goes, hangs on the machine; so a late
    // one may be the last, which only tells what is acknowledged.
    answer("pwritev2", "error=EIO", &["4", "5", "6", "9", "20", "6+"], &[0, 7], EIO),
    answer("pwritev2", "error=ENOSPC", &["1", "3"], &[6, 7], ENOSPC),
    answer("pwritev2", "error=ENOSPC", &["6", "5+"], &[0, 6, 7], ENOSPC),
    answer("pwritev2", "error=EINTR", &["1", "5", "9"], &[0], ""),
    answer("pwritev2", "error=EDQUOT", &["5+"], &[0, 6, 7], "Disk quota exceeded"),
    answer("pwritev2", "error=EOPNOTSUPP", &["1+", "7+"], &[0], ""),
    answer("pwritev2", "retval=0", &["1"], &[7], "took 0 of"),
    answer("pwritev2", "retval=0", &["6"], &[0, 7], "took 0 of"),
    answer("pwrite64", "error=EIO", &["1", "2", "1+"], &[7], EIO),
    answer("pwrite64", "error=ENOSPC", &["2", "2+"], &[0, 6, 7], ENOSPC),
];

/// Flushes, and what makes the file longer or its space certain.
const FLUSHES_AND_GROWTH: &[Answer] = &[
    answer("fdatasync", "error=EIO", &["1", "2", "1+", "2+"], &[7], EIO),
    answer("fdatasync", "error=ENOSPC", &["1", "1+"], &[6, 7], ENOSPC),
    answer("fallocate", "error=ENOSPC", &["1", "2"], &[0, 6], ENOSPC),
    answer("fallocate", "error=EOPNOTSUPP", &["1+"], &[0], ""),
    answer("fallocate", "error=EIO", &["1+"], &[7], EIO),
];

/// Reads, and what opening a store asks of the system.
const READS_AND_OPENINGS: &[Answer] = &[
    answer("pread64", "error=EIO", &["1+"], &[7], EIO),
    // A single one may be of the look whether direct reads work, or of a chunk of the ring that is
    // read again. Beyond what opening always reads it may be a compaction that meets it, which is
    // then left alone.
    answer("pread64", "error=EIO", &["1", "2", "3", "4", "3+"], &[0, 7], EIO),
    // What a superblock's first read does not get, the second does; a run that is read back is
    // another matter.
    answer("pread64", "retval=0", &["2"], &[0, 7], "cut short"),
    answer("pread64", "error=EINTR", &["1", "2", "3"], &[0], ""),
    // Where direct I/O is tried, and at the first run that the other thread reads back.
    answer("pread64", "error=EINVAL", &["1"], &[0, 7], "Invalid argument"),
    answer("flock", "error=ENOLCK", &["1"], &[7], "No locks available"),
    answer("flock", "error=EINTR", &["1"], &[7], "Interrupted"),
    answer("statx", "error=EIO", &["1", "2", "3"], &[7], EIO),
    answer("fcntl", "error=EIO", &["1", "2"], &[7], EIO),
    answer("fstatfs", "error=EIO", &["1"], &[7], EIO),
    answer("openat", "error=EIO", &["1"], &[7], EIO),
    answer("openat", "error=EMFILE", &["1"], &[7], "Too many open files"),
];

/// Runs the writer with a call answered so; `None` where the call never came to that.
fn append(log: &mut Log, lines: u64, filter: &[&str], inject: &str) -> Option<Ended> {
    let trace = log.store.with_extension("trace");
    let under = ["strace", "-f", "-qq", "-s", "0", "-o", trace.to_str().unwrap()];
    let ended = log.append(&[&under[..], filter, &["-e", inject]].concat(), lines);
    let injected = fs::read_to_string(&trace).unwrap().contains("(INJECTED)");
    let _ = fs::remove_file(&trace);
    injected.then_some(ended)
}

/// Most stores that are made until one makes a call.
const STORES: usize = 60;

fn try_answers(answers: &[Answer]) -> Fault {
    tool("strace")?;
    let dir = tempfile::tempdir().unwrap();
    let mut scenarios = 0;
    for Answer { call, answer, whens, codes, says } in answers {
        let before = scenarios;
        for (nth, when) in whens.iter().enumerate() {
            let inject = format!("inject={call}:{answer}:when={when}");
            // Where syncs measured better, a new store makes no write with a flag: another may.
            // A row that may do no harm needs one store that makes the call.
            let met = scenarios > before || nth + 1 < whens.len();
            let tries = if codes.contains(&0) && met { 1 } else { STORES };
            let met = (0..tries).find_map(|_| {
                let mut log = Log::create(dir.path().join(format!("{call}-{when}")), 700);
                let (store, trace) = (log.store.clone(), format!("trace={call}"));
                let filter = ["-P", store.to_str().unwrap(), "-e", &trace];
                let ended = append(&mut log, 1_500, &filter, &inject);
                if ended.is_none() {
                    let _ = fs::remove_file(&log.store);
                }
                ended.map(|ended| (log, ended))
            });
            let Some((mut log, ended)) = met else {
                // How often maintenance reads hangs on how many of its checkpoints fall together.
                assert!(codes.contains(&0), "{inject}: no such call was made");
                continue;
            };
            if ended.code != Some(0) || !codes.contains(&0) {
                ended.refused(codes, says);
            }
            if ended.code == Some(0) {
                assert_eq!(log.acked, 2_200, "{inject}: it ended well without having been told so");
            }
            log.holds();
            let _ = fs::remove_file(&log.store);
            scenarios += 1;
        }
        assert!(scenarios > before, "inject={call}:{answer}: no such call was ever made");
    }
    Ok(scenarios)
}

#[test]
fn failing_writes() {
    fault("failing writes", || try_answers(WRITES));
}

#[test]
fn failing_flushes_and_growth() {
    fault("failing flushes and growth", || try_answers(FLUSHES_AND_GROWTH));
}

#[test]
fn failing_reads_and_openings() {
    fault("failing reads and openings", || try_answers(READS_AND_OPENINGS));
}

/// Reads that fail while a log is read: what was printed before is right, and the place of the
/// failure is named.
#[test]
fn failing_reads_of_a_log() {
    fault("failing reads of a log", || {
        tool("strace")?;
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path().join("s"), 3_000);
        let store = log.store.to_str().unwrap().to_owned();
        let mut refused = 0;
        // A single one may be of the page cache, beside which there is the device.
        let whens = ["5", "8", "5+", "6+", "8+", "12+", "20+", "40+"];
        for when in whens {
            let inject = format!("inject=pread64:error=EIO:when={when}");
            let strace = [
                "strace",
                "-f",
                "-qq",
                "-o",
                "/dev/null",
                "-P",
                &store,
                "-e",
                "trace=pread64",
                "-e",
                &inject,
            ];
            let ended = log.run(&strace, &["read", "log", "--raw"]);
            let expected: String =
                (0..ended.stdout.len() as u64 / 1000).map(crate::faults::writer::line).collect();
            assert!(ended.stdout == expected, "{when}: a wrong byte was printed");
            if ended.code != Some(0) {
                // What the device does not read while the store is opened counts as damaged.
                ended.refused(&[5, 7], "os error 5");
                assert!(ended.stderr.contains("run ") || ended.stderr.contains("reading"), "{ended:?}");
                refused += 1;
            }
        }
        assert!(refused > 3, "{refused}");
        log.holds();
        Ok(whens.len() as u32)
    });
}

/// The kernel's ring refused, or broken in mid-flight; directories that cannot be made durable;
/// links that are not allowed.
#[test]
fn failing_set_up() {
    fault("failing set-up", || {
        tool("strace")?;
        let mut scenarios = 0;
        for (inject, code, says) in [
            ("io_uring_setup:error=ENOSYS", 0, ""),
            ("io_uring_setup:error=EPERM", 0, ""),
            ("io_uring_setup:error=ENOMEM:when=2+", 0, ""),
            ("io_uring_register:error=EINVAL", 0, ""),
            ("io_uring_enter:error=EINTR:when=1..3", 0, ""),
            ("io_uring_enter:error=EAGAIN:when=1..3", 0, ""),
            // It has worked once before it is used, or threads are used.
            ("io_uring_enter:error=EIO:when=1+", 0, ""),
            ("fsync:error=EIO", 7, "os error 5"),
            ("linkat:error=EPERM", 0, ""),
            ("linkat:error=EIO", 7, "os error 5"),
            ("ftruncate:error=EIO", 7, "os error 5"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let mut log = Log { store: dir.path().join("s"), first: 0, acked: 0 };
            if inject.starts_with("io_uring") {
                // Left as by a kill, so that there is a ring to be read when it is opened.
                log = Log::create(dir.path().join("s"), 10);
                let mut writer = log.start();
                assert!(writer.append(200));
                writer.child.kill().unwrap();
                log.take(writer);
                unlocked(&log.store);
            }
            let call = inject.split(':').next().unwrap();
            let filter = ["-e", &format!("trace={call}")];
            let ended = append(&mut log, 900, &filter, &format!("inject={inject}"));
            let Some(ended) = ended else {
                assert_eq!(call, "ftruncate", "{inject}: no such call was made");
                continue;
            };
            match code {
                0 => drop(ended.ok()),
                code => ended.refused(&[code], says),
            }
            let left: Vec<_> =
                fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
            assert!(left.is_empty() || left == ["s"], "{inject}: {left:?}");
            if left.is_empty() {
                log.append(&[], 1).ok();
            }
            log.holds();
            scenarios += 1;
        }
        Ok(scenarios)
    });
}
