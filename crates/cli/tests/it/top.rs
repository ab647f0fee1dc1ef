//! `brooklet top`: a store at work in another process, as the file of its metrics tells it.

use crate::common;

use std::io::{Read, Write};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use brooklet::Options;
use common::{Place, terminal, text};
use rustix::termios::tcgetattr;

fn parsed(looks: &Output) -> Vec<serde_json::Value> {
    text(&looks.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_store_at_work_is_watched_until_it_is_closed() {
    let place = Place::new();
    let file = place.dir.path().join("s.prom");
    let told = file.to_str().unwrap();
    let every = Duration::from_millis(20);
    // So large that no commit waits for room on a busy machine.
    let store = Options::new().ring_size(64 << 20).metrics_file(&file, every).open(&place.store).unwrap();
    let over = AtomicBool::new(false);
    let (looks, pages) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                store.append("log", "entry").unwrap().wait().unwrap();
                assert!(store.exists("log").unwrap());
            }
        });
        // On a busy machine, a short look may meet no commit.
        let has_commits = |looks: &Output| {
            parsed(looks).iter().all(|look| {
                let has_times = look["commit_p50"].is_number() && look["stages"][3]["p50"].is_number();
                let has_commits = look["commits_per_second"].as_f64() > Some(0.0);
                has_times && has_commits && look["reads"][0][0] == "active"
            })
        };
        let look = |every| place.run(&["top", told, "--every", every, "--count", "3", "--json"]);
        let looks = ["100ms", "1s", "10s"].into_iter().map(look).find(has_commits);
        let pages = place.run(&["top", told, "--every", "100ms", "--count", "2"]);
        over.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        (looks, pages)
    });
    let looks = looks.expect("ten seconds have commits");
    assert_eq!((text(&looks.stderr), text(&pages.stderr)), ("", ""));
    let looks = parsed(&looks);
    assert_eq!(looks.len(), 3);
    for look in &looks {
        let number = |name: &str| look[name].as_f64().unwrap_or_else(|| panic!("{name}: {look}"));
        assert!(number("seconds") >= 0.1 && number("commits_per_second") > 0.0, "{look}");
        assert!(number("commit_p50") > 0.0 && number("commit_p50") <= number("commit_p99"), "{look}");
        // A block without a record only tells what is acknowledged: a commit that another one does
        // not follow at once has one.
        assert!(number("ring") > 0.0 && number("records_per_block") > 0.4, "{look}");
        assert_eq!((&look["stages"][3]["stage"], &look["stopped"]), (&"write".into(), &false.into()));
        assert!(look["stages"][3]["p50"].as_f64() > Some(0.0), "{look}");
        let counts = ["queued_blocks", "waiting_writers", "checkpoints", "runs", "run_bytes", "heap_bytes"];
        for count in counts.map(|name| &look[name]).into_iter().chain([&look["stalls"][0]["now"]]) {
            assert!(count.is_u64(), "{count} is no int: {look}");
        }
        assert_eq!(look["stalls"].as_array().unwrap().len(), 8);
        assert_eq!(look["reads"][0][0], "active");
    }
    let pages = text(&pages.stdout);
    // A commit may have to wait while the ring grows, which has a line of its own.
    let rates = pages.lines().filter(|line| line.trim_start().starts_with("commits/s"));
    assert_eq!(rates.count(), 2, "{pages}");
    assert!(pages.contains("wait for room"), "{pages}");
    let watching = place.command(&["top", told, "--every", "10ms"]).stdout(Stdio::piped()).spawn();
    store.close().unwrap();
    let output = watching.unwrap().wait_with_output().unwrap();
    // It may have come too late.
    if output.status.code() != Some(3) {
        assert!(text(&output.stdout).ends_with("s.prom: the store was closed\n"), "{output:?}");
    }
    assert!(place.fails(3, &["top", told]).contains("an open store writes the file if"));
    let never = place.run(&["top", told, "--every", "0s"]);
    assert_eq!(never.status.code(), Some(2), "{}", text(&never.stderr));
    place.file("other", "something else\n");
    assert!(place.fails(2, &["top", "other"]).contains("not the metrics of a store"));
}

#[test]
fn commands_on_a_store_tell_what_they_count() {
    let place = Place::new();
    let nowhere = place.fails(4, &["append", "STORE", "log", "x", "--metrics", "nowhere/s.prom"]);
    let path = place.dir.path().canonicalize().unwrap().join("nowhere/s.prom");
    assert!(nowhere.contains(&format!("writing the metrics failed: {}: ", path.display())), "{nowhere}");
    place.ok(&["append", "STORE", "log", "x", "--metrics", "s.prom"]);
    assert!(!place.dir.path().join("s.prom").exists(), "the command is over");
    assert!(place.fails(2, &["demo", "--metrics", "s.prom"]).contains("commands that open a store"));
}

/// The clock goes back by an hour while somebody looks.
#[expect(clippy::disallowed_methods, reason = "the files are of several moments")]
#[test]
fn metrics_are_shown_after_the_clock_went_back() {
    let place = Place::new();
    let metrics = brooklet::Store::in_memory(1).unwrap().metrics().to_string();
    let tick = Duration::from_millis(20);
    let write = |time: SystemTime| {
        let part = place.file("s.part", &metrics);
        std::fs::File::options().write(true).open(&part).unwrap().set_modified(time).unwrap();
        std::fs::rename(part, place.dir.path().join("s.prom")).unwrap();
    };
    let now = SystemTime::now();
    write(now + Duration::from_secs(3600));
    let mut top = place.command(&["top", "s.prom", "--every", "10ms", "--count", "2", "--json"]);
    let mut top = top.stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(25 * tick);
    for n in 0..6000 {
        if top.try_wait().unwrap().is_some() {
            break;
        }
        write(now + n * tick);
        std::thread::sleep(tick);
    }
    // It has ended by itself.
    let _ = top.kill();
    assert_eq!(parsed(&top.wait_with_output().unwrap()).len(), 2);
}

#[test]
fn a_key_ends_the_display_and_the_terminal_is_as_it_was() {
    let place = Place::new();
    let file = place.dir.path().join("s.prom");
    let every = Duration::from_millis(20);
    let store = Options::new().ring_size(1 << 20).metrics_file(&file, every).open(&place.store).unwrap();
    for key in [b"q", b"\x1b"] {
        let (mut person, program) = terminal();
        let before = tcgetattr(&program).unwrap().local_modes;
        let mut top = place.command(&["top", file.to_str().unwrap(), "--every", "20ms"]);
        top.stdin(program.try_clone().unwrap()).stdout(program.try_clone().unwrap()).stderr(Stdio::piped());
        let child = top.spawn().unwrap();
        // Otherwise the command holds the terminal, too.
        drop(top);
        let (output, after) = std::thread::scope(|scope| {
            scope.spawn(move || {
                let (mut shown, mut buf, mut pressed) = (Vec::new(), [0; 4096], false);
                // Once nobody has the other end any more, reading fails.
                while let Ok(len @ 1..) = person.read(&mut buf) {
                    shown.extend_from_slice(&buf[..len]);
                    if !pressed && String::from_utf8_lossy(&shown).contains("q or Esc ends this display") {
                        person.write_all(key).unwrap();
                        pressed = true;
                    }
                }
            });
            let output = child.wait_with_output().unwrap();
            let after = tcgetattr(&program).unwrap().local_modes;
            drop(program);
            (output, after)
        });
        assert!(output.status.success() && output.stderr.is_empty(), "{key:?}: {output:?}");
        assert_eq!(after, before, "{key:?}");
    }
    store.close().unwrap();
}
