//! The process and its file: frozen, killed while frozen, slow, with nobody to tell; and files that
//! others cut or delete.

use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;

use crate::faults::fault;
use crate::faults::machine::{run, tool};
use crate::faults::writer::{Log, copy};

fn place() -> (tempfile::TempDir, Log) {
    let dir = tempfile::tempdir().unwrap();
    let log = Log::create(dir.path().join("s"), 1_000);
    (dir, log)
}

fn signal(name: &str, pid: u32) {
    run("kill", &[&format!("-{name}"), &pid.to_string()]).unwrap();
}

/// Whoever finds the store held is told by whom; nobody takes it from a process that only sleeps.
#[test]
fn frozen() {
    fault("frozen process", || {
        let others = [&["delete", "log"][..], &["append", "log", "x"], &["check"]];
        for other in others {
            let (_dir, mut log) = place();
            let mut writer = log.start();
            assert!(writer.append(100));
            let pid = writer.child.id();
            signal("STOP", pid);
            log.run(&[], other).refused(&[4], &format!("process {pid} (brooklet)"));
            // Looking in needs no lock.
            let looked = log.run(&[], &["list"]);
            assert!(
                looked.code == Some(0) && looked.stderr.contains(&format!("process {pid}")),
                "{looked:?}"
            );
            signal("CONT", pid);
            assert!(writer.append(100), "it goes on as if nothing had been");
            log.take(writer).ok();
            log.holds();
        }
        for rounds in 1..=3 {
            let (_dir, mut log) = place();
            let mut writer = log.start();
            assert!(writer.append(200 * rounds));
            signal("STOP", writer.child.id());
            signal("KILL", writer.child.id());
            let ended = log.take(writer);
            assert_eq!(ended.signal, Some(9));
            log.holds();
        }
        Ok(6)
    });
}

/// Acknowledged is what was written, told or not.
#[test]
fn nobody_to_tell() {
    fault("full standard output", || {
        let (_dir, mut log) = place();
        let mut command = log.command(&[], &["append", "log", "one", "two"]);
        let output = command.stdout(File::create("/dev/full").unwrap()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(7) && told.contains("No space left on device"), "{told}");
        assert_eq!(log.next(), 1_002);
        log.run(&[], &["truncate", "log", "--from", "1000"]).ok();
        log.holds();
        Ok(1)
    });
}

#[test]
fn slow_device() {
    fault("slow device", || {
        tool("strace")?;
        for micros in ["2000", "30000"] {
            let (_dir, mut log) = place();
            let inject = format!("inject=pwritev2,pwrite64,fdatasync:delay_enter={micros}");
            let trace = "trace=pwritev2,pwrite64,fdatasync";
            log.append(&["strace", "-f", "-qq", "-o", "/dev/null", "-e", trace, "-e", &inject], 600).ok();
            log.holds();
        }
        Ok(2)
    });
}

/// Whoever cuts the file destroys what was in it, and no store can bring that back. But it does not
/// go on as if nothing were: it ends with an error that names the cut or what was in it, and the
/// next opening says the same. A copy from before is as good as the store was.
#[test]
fn file_cut_while_open() {
    fault("file cut under an open store", || {
        let cuts = [0, 4_096, 65_536, 300_000, 1_114_112, 2_000_000];
        for cut in cuts {
            let (dir, mut log) = place();
            log.append(&[], 2_000).ok();
            log.run(&[], &["compact"]).ok();
            let mut writer = log.start();
            assert!(writer.append(50));
            let saved = dir.path().join("copy");
            copy(&log.store, &saved);
            log.acked = writer.acked();
            OpenOptions::new().write(true).open(&log.store).unwrap().set_len(cut).unwrap();
            writer.append(3_000);
            let (_, ended) = writer.end();
            ended.refused(&[5, 7], "");
            let names = ["cut", "damage"];
            assert!(names.iter().any(|name| ended.stderr.contains(name)), "{ended:?}");
            log.run(&[], &["list"]).refused(&[4, 5], "");
            fs::rename(&saved, &log.store).unwrap();
            log.holds();
        }
        Ok(cuts.len() as u32)
    });
}

/// A file without a name is gone with the process. The next write says so, before anything more is
/// acknowledged; until the process ends, everything is still to be had through it.
#[test]
fn file_deleted_while_open() {
    fault("file deleted under an open store", || {
        for more in [1, 10] {
            let (dir, mut log) = place();
            // So that the writer finds nothing to do but to write.
            log.run(&[], &["compact"]).ok();
            let mut writer = log.start();
            assert!(writer.append(50));
            fs::remove_file(&log.store).unwrap();
            let rescued = dir.path().join("rescued");
            copy(&open_file(writer.child.id(), "s (deleted)"), &rescued);
            log.acked = writer.acked();
            assert!(!writer.append(more), "nothing more is acknowledged");
            let (_, ended) = writer.end();
            ended.refused(&[7], "was deleted or replaced by another process");
            log.store = rescued;
            log.holds();
        }
        Ok(2)
    });
}

/// The way to an open file of a process.
fn open_file(pid: u32, name: &str) -> PathBuf {
    let files = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().map(|file| file.unwrap().path());
    let named = |path: &PathBuf| fs::read_link(path).is_ok_and(|to| to.to_string_lossy().ends_with(name));
    files.into_iter().find(named).expect("it has the file open")
}
