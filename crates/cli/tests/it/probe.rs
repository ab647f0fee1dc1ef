//! `probe`: what it tells, and that it harms nothing.

#![expect(clippy::disallowed_methods, reason = "a test that kills waits by the clock")]

use crate::common;
#[allow(dead_code, reason = "made for the faults; probes need the loop devices only")]
use crate::faults::machine;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use common::{Place, text};
use machine::{Ext4, Loop};
use serde_json::Value;

/// Names in the place's directory.
fn names(place: &Place) -> Vec<String> {
    let entries = fs::read_dir(place.dir.path()).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Probes with more time until all is measured: a machine that is slow, or busy, skips what it has
/// no time for.
fn in_any_time<T>(probed: impl Fn(&'static str) -> T, is_whole: impl Fn(&T) -> bool) -> T {
    let whole = ["1", "5", "30", "200"].into_iter().map(probed).find(is_whole);
    whole.expect("200 seconds are enough for one sample of everything")
}

#[test]
fn people_get_tables_settings_and_curves_and_nothing_stays_behind() {
    let place = Place::new();
    let probed = |seconds| {
        let _ = fs::remove_file(place.dir.path().join("curves.svg"));
        place.ok(&["probe", ".", "--seconds", seconds, "--size", "16M", "--plot", "curves.svg"])
    };
    let table = in_any_time(probed, |table| !table.contains("\nskipped "));
    for part in
        ["Writes, each durable by itself", "then one flush", "Reads in order", "Open, append", "Waking up"]
    {
        assert!(table.contains(part), "{part} is missing: {table}");
    }
    let (_, settings) = table.split_once("\nSettings that follow\n").expect("there is what follows");
    assert!(
        settings.contains("to set: how writes become durable is found out at each opening"),
        "{settings}"
    );
    let told = settings.lines().filter_map(|line| line.strip_prefix("  ."));
    let known = ["block_size(", "write_interval(", "write_rate("];
    assert!(told.clone().all(|call| known.iter().any(|known| call.starts_with(known))), "{settings}");
    assert_eq!(told.count() == 0, settings.contains("  nothing to set: "), "{settings}");
    assert_eq!(names(&place), ["curves.svg"]);
    let svg = fs::read_to_string(place.dir.path().join("curves.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    assert!(svg.contains(">latency, µs<") && svg.contains(">bandwidth, MB/s<") && svg.contains("<polyline"));
    assert!(place.fails(2, &["probe", ".", "--plot", "curves.svg"]).contains("exists"));
    assert_eq!(fs::read_to_string(place.dir.path().join("curves.svg")).unwrap(), svg);
}

#[test]
fn programs_get_every_figure() {
    let place = Place::new();
    let probed = |seconds| place.json(&["probe", ".", "--seconds", seconds, "--size", "16M"]).remove(0);
    let report = &in_any_time(probed, |report| report["skipped"] == 0);
    assert_eq!((&report["what"], &report["bytes"]), (&"directory".into(), &(12 << 20).into()));
    let cells = report["cells"].as_array().unwrap();
    for way in ["durable", "window", "read", "append", "append-batch", "open-append"] {
        assert!(cells.iter().any(|cell| cell["way"] == way), "{way} is missing: {report}");
    }
    for cell in cells {
        let figure = |name: &str| cell[name].as_f64().unwrap();
        assert!(figure("samples") >= 1.0 && figure("mb_per_s") > 0.0, "{cell}");
        assert!(figure("p50_us") > 0.0 && figure("p50_us") <= figure("p99_us"), "{cell}");
    }
    assert_eq!(report["timers"].as_array().unwrap().len(), 6);
    assert!(report["seconds"].as_f64() > Some(0.0), "{report}");
    assert!(
        report["settings"].as_array().unwrap().iter().all(|s| s["set"].is_string() && s["why"].is_string())
    );
    assert_eq!(names(&place), [] as [&str; 0]);
}

#[test]
fn a_probe_that_is_killed_leaves_nothing() {
    if !cfg!(target_os = "linux") {
        println!("skipped: files without a name are Linux's");
        return;
    }
    let place = Place::new();
    let mut child = place.command(&["probe", ".", "--seconds", "30", "--size", "16M"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(child.try_wait().unwrap(), None, "it is at work");
    assert_eq!(names(&place), [] as [&str; 0]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(names(&place), [] as [&str; 0]);
}

/// Waits until a process listens for signals.
fn listens(id: u32) {
    const BOTH: u64 = 1 << (2 - 1) | 1 << (15 - 1);
    let is_ready = || {
        let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        caught.is_some_and(|mask| u64::from_str_radix(mask.trim(), 16).unwrap() & BOTH == BOTH)
    };
    let begin = Instant::now();
    while cfg!(target_os = "linux") && !is_ready() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Lets a probe work for a while, and then asks it to stop; its code and its last words.
fn interrupted(place: &Place, args: &[&str], signal: &str) -> (Option<i32>, String) {
    let mut command = place.command(args);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    listens(child.id());
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(child.try_wait().unwrap(), None, "it is at work");
    assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
    let asked = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(300), "it went on to its end: {:?}", asked.elapsed());
    (output.status.code(), text(&output.stderr).lines().last().unwrap_or_default().to_owned())
}

#[test]
fn a_probe_that_is_interrupted_leaves_nothing() {
    let words = "brooklet: stopped on request; nothing is left behind";
    let place = Place::new();
    for signal in ["-INT", "-TERM"] {
        let ended = interrupted(&place, &["probe", ".", "--seconds", "600", "--size", "16M"], signal);
        assert_eq!((ended, names(&place).len()), ((Some(130), words.into()), 0), "{signal}");
    }
    let Some(disk) = Disk::new(None) else { return };
    let args = ["probe", &disk.disk.device, "--seconds", "600", "--size", "32M"];
    let ended = interrupted(&disk.place, &args, "-INT");
    assert_eq!((ended, disk.marks()), ((Some(130), words.into()), Vec::new()));
}

#[test]
fn files_and_stores_are_not_touched() {
    let (place, store) = Place::with_store();
    store.append("log", "entry").unwrap().wait().unwrap();
    assert!(place.fails(2, &["probe", "STORE"]).contains("the probe does not write to it"));
    assert!(place.fails(4, &["probe", "STORE", "--read-only"]).contains("open elsewhere"));
    store.close().unwrap();
    drop(store);
    let letter = place.file("letter", &"Dear reader, ".repeat(100_000));
    let before = [fs::read(&place.store).unwrap(), fs::read(&letter).unwrap()];
    for file in ["STORE", "letter"] {
        let message = place.fails(2, &["probe", file]);
        assert!(message.contains("probe the directory"), "{message}");
        let report = &place.json(&["probe", file, "--read-only", "--seconds", "0.3"])[0];
        assert!(report["cells"].as_array().unwrap().iter().all(|cell| cell["way"] == "read"), "{report}");
        assert_eq!(report["settings"], Value::Array(Vec::new()), "{report}");
    }
    assert!(place.fails(2, &["probe", "missing"]).contains("does not exist"));
    assert_eq!([fs::read(&place.store).unwrap(), fs::read(&letter).unwrap()], before);
    assert_eq!(names(&place), ["letter", "s.brooklet"]);
    assert_eq!(place.ok(&["read", "STORE", "log", "--raw"]), "entry");
}

/// A file of zeros under a loop device, with one byte set if so wished.
struct Disk {
    place: Place,
    image: PathBuf,
    disk: Loop,
}

const DISK: u64 = 64 << 20;

impl Disk {
    fn new(byte_at: Option<u64>) -> Option<Self> {
        static SKIPPED: Once = Once::new();
        let place = Place::new();
        let image = place.file("image", "");
        let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
        file.set_len(DISK).unwrap();
        if let Some(at) = byte_at {
            file.write_all_at(&[1], at).unwrap();
        }
        match Loop::attach(&image) {
            Ok(disk) => Some(Self { place, image, disk }),
            Err(why) => {
                SKIPPED.call_once(|| println!("skipped: {why}"));
                None
            }
        }
    }

    fn probe<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["probe", &self.disk.device, "--seconds", "1"], more].concat()
    }

    /// Places of the bytes that are not zero.
    fn marks(&self) -> Vec<usize> {
        let bytes = fs::read(&self.image).unwrap();
        bytes.iter().enumerate().filter(|(_, b)| **b != 0).map(|(at, _)| at).take(10).collect()
    }
}

#[test]
fn a_blank_device_is_blank_again() {
    let Some(disk) = Disk::new(None) else { return };
    let probed = |seconds| {
        disk.place.json(&["probe", &disk.disk.device, "--size", "32M", "--seconds", seconds]).remove(0)
    };
    let report = &in_any_time(probed, |report| report["skipped"] == 0);
    assert_eq!((&report["what"], &report["bytes"]), (&"blank_device".into(), &(32 << 20).into()), "{report}");
    assert!(report["device"]["logical_block"].as_u64().is_some(), "{report}");
    let cells = report["cells"].as_array().unwrap();
    assert!(
        cells.iter().any(|cell| cell["way"] == "durable") && cells.iter().all(|cell| cell["size"] != 1024)
    );
    assert!(cells.iter().all(|cell| !cell["way"].as_str().unwrap().contains("append")), "{report}");
    assert_eq!(disk.marks(), [0usize; 0]);
    // A device smaller than the footprint is used as a whole.
    let report = &disk.place.json(&disk.probe(&[]))[0];
    assert_eq!(report["bytes"], DISK);
    assert_eq!(disk.marks(), [0usize; 0]);
}

#[test]
fn a_device_with_a_byte_on_it_is_not_touched() {
    for at in [0, 1_234_567, (32 << 20) - 1, DISK - 1] {
        let Some(disk) = Disk::new(Some(at)) else { return };
        let message = disk.place.fails(2, &disk.probe(&["--size", "32M"]));
        assert!(message.contains(&format!("byte {at} is not zero;")), "{message}");
        let report = &disk.place.json(&disk.probe(&["--read-only"]))[0];
        assert_eq!(report["what"], "read_only");
        assert_eq!(disk.marks(), [at as usize]);
    }
}

#[test]
fn what_lies_beyond_the_footprint_stays() {
    let at = 40 << 20;
    let Some(disk) = Disk::new(Some(at)) else { return };
    disk.place.ok(&disk.probe(&["--size", "16M"]));
    assert_eq!(disk.marks(), [at as usize]);
}

#[test]
fn a_mounted_device_is_only_read() {
    let place = Place::new();
    let at = place.dir.path().join("m");
    let disk = match Ext4::make(&place.dir.path().join("image"), 32 << 20, &at, &[]) {
        Ok(disk) => disk,
        Err(why) => return println!("skipped: {why}"),
    };
    fs::write(at.join("file"), "content").unwrap();
    let device = disk.disk.device.as_str();
    assert!(place.fails(4, &["probe", device]).contains("mounted or in use"));
    let output = place.run(&["probe", device, "--read-only", "--seconds", "0.3"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(at.join("file")).unwrap(), "content");
}
