//! Stores and rings on block devices: loop devices stand in, with sectors of 512 and of 4096 bytes.
//! Where there are none (they want root), each test says so and passes.

#![cfg(target_os = "linux")]

use crate::common::disk;

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use brooklet::io::{Rng, system_seed};
use brooklet::{Create, Error, ErrorKind, Options, Store};
use disk::{Disk, run};

const MIB: u64 = 1 << 20;
const SECTORS: [u32; 2] = [512, 4096];

/// Runs a test that wants devices, or tells why not.
fn with_devices(test: impl FnOnce() -> Result<(), String>) {
    if let Err(why) = test() {
        println!("skipped: {why}");
    }
}

fn options() -> Options {
    Options::new().ring_size(MIB).memory_budget(512 << 10).max_payload(64 << 10).create(Create::Never)
}

/// A store with everything on a device, or with only its ring there.
struct Place {
    disk: Disk,
    /// The data, where only the ring is on the device.
    data: Option<PathBuf>,
    _dir: tempfile::TempDir,
}

impl Place {
    fn new(bytes: u64, sector: u32, ring_alone: bool) -> Result<Self, String> {
        let disk = Disk::new(bytes, sector)?;
        let dir = tempfile::tempdir().unwrap();
        let place = Self { disk, data: ring_alone.then(|| dir.path().join("data")), _dir: dir };
        let made = place.options().format(place.path(), false).unwrap();
        assert_eq!(made.capacity, if ring_alone { 0 } else { bytes / 4096 * 4096 });
        Ok(place)
    }

    fn options(&self) -> Options {
        if self.data.is_some() { options().ring_at(&self.disk.path) } else { options() }
    }

    fn path(&self) -> &Path {
        self.data.as_deref().unwrap_or(&self.disk.path)
    }

    fn open(&self) -> Result<Store, Error> {
        self.options().open(self.path())
    }
}

/// Each kind of place with each size of sectors.
fn places(bytes: u64, mut test: impl FnMut(Place) -> Result<(), String>) {
    with_devices(|| {
        for sector in SECTORS {
            for ring_alone in [false, true] {
                test(Place::new(bytes, sector, ring_alone)?)?;
            }
        }
        Ok(())
    });
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8).collect()
}

/// Not even the device's last sector is whole for the store.
#[test]
fn a_store_on_a_device_keeps_what_it_is_given() {
    places(12 * MIB + 512, |place| {
        for round in 0..3 {
            let store = place.open().unwrap();
            let info = store.info().unwrap();
            let on_device = if place.data.is_some() { info.ring_volume.unwrap() } else { info.volume };
            assert!(on_device.device.is_some() && info.format == 8);
            for n in 0..300 {
                drop(store.append(format!("log/{}", n % 7), noise(round * 300 + n, 3000)).unwrap());
            }
            store.checkpoint().unwrap();
            store.append("last", b"x").unwrap().wait().unwrap();
            if round == 1 { store.abandon() } else { store.close().unwrap() }
        }
        let store = place.options().read_only(true).open(place.path()).unwrap();
        for n in 0..900 {
            let entry = store.read(format!("log/{}", n % 300 % 7), ..).unwrap();
            assert!(n % 100 > 0 || entry.flatten().any(|entry| entry.payload == noise(n, 3000)), "{n}");
        }
        assert_eq!(store.bounds("last").unwrap().next, 3);
        drop(store);
        let report = place.options().check(place.path(), brooklet::Progress::ignore).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
        Ok(())
    });
}

/// Formatted with sectors of one size, opened with those of the other.
#[test]
fn the_size_of_sectors_may_change() {
    with_devices(|| {
        for (before, after) in [(512, 4096), (4096, 512)] {
            for ring_alone in [false, true] {
                let mut place = Place::new(8 * MIB, before, ring_alone)?;
                place.open().unwrap().append("log", b"entry").unwrap().wait().unwrap();
                place.disk = place.disk.with_sector(after)?;
                let store = place.open().unwrap();
                store.append("log", b"entry").unwrap().wait().unwrap();
                store.checkpoint().unwrap();
                drop(store);
                assert_eq!(place.open().unwrap().bounds("log").unwrap().next, 2);
            }
        }
        Ok(())
    });
}

#[test]
fn a_full_device_refuses_and_goes_on_once_there_is_room() {
    with_devices(|| {
        for sector in SECTORS {
            let place = Place::new(6 * MIB, sector, false)?;
            let store = place.open().unwrap();
            let mut safe = 0;
            let error = loop {
                match store.append("log", noise(safe, 4000)).and_then(|ticket| ticket.wait()) {
                    Ok(()) => safe += 1,
                    Err(error) => break error,
                }
                assert!(safe < 10_000, "it was never full");
            };
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            assert!(safe > 700, "{safe}");
            let read = store.read("log", ..).unwrap().map(|entry| entry.unwrap());
            assert_eq!(read.filter(|entry| entry.payload == noise(entry.seq, 4000)).count() as u64, safe);
            store.delete("log").unwrap().wait().unwrap();
            drop(store);
            let store = place.open().unwrap();
            // The store's own thread may be at it at the same time, with the room that this one
            // needs.
            let again =
                (0..100).find(|_| store.compact().map_err(|error| error.kind()) != Err(ErrorKind::Full));
            assert!(again.is_some(), "there is never room");
            let info = store.info().unwrap();
            let heap = info.size - info.heap_offset;
            assert!(info.heap_free > heap - (64 << 10), "{} of {heap} bytes are free", info.heap_free);
            for n in 0..700 {
                store.append("again", noise(n, 4000)).unwrap().wait().unwrap();
            }
            drop(store);
            assert!(place.options().check(place.path(), brooklet::Progress::ignore).unwrap().is_sound());
        }
        Ok(())
    });
}

#[test]
fn a_device_that_shrank_is_told_with_both_sizes() {
    places(8 * MIB, |place| {
        place.open().unwrap().append("log", b"entry").unwrap().wait().unwrap();
        // The ring alone needs less than the device has.
        let (small, needed) = if place.data.is_some() { (MIB, MIB + (64 << 10)) } else { (7 * MIB, 8 * MIB) };
        place.disk.resize(small);
        for error in [
            place.open().unwrap_err(),
            place.options().check(place.path(), brooklet::Progress::ignore).unwrap_err(),
        ] {
            let Error::Shrunk { name, needed: told, size } = &error else { panic!("{error}") };
            assert_eq!((name.as_str(), *told, *size), (place.disk.path.to_str().unwrap(), needed, small));
        }
        for size in [8 * MIB, 9 * MIB] {
            place.disk.resize(size);
            let store = place.open().unwrap();
            assert_eq!(store.bounds("log").unwrap().next, 1);
            assert!(
                place.data.is_some() || store.info().unwrap().size == 8 * MIB,
                "it keeps to its capacity"
            );
        }
        Ok(())
    });
}

#[test]
fn a_capacity_is_at_most_the_device_and_then_all_the_store_uses() {
    with_devices(|| {
        let disk = Disk::new(8 * MIB, 512)?;
        let format = |options: Options, force| options.format(&disk.path, force);
        let error = format(options().capacity(9 * MIB), false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let words = "a capacity of 9437184 bytes";
        assert!(error.to_string().contains(words) && error.to_string().contains("8388608"), "{error}");
        let error = format(options().ring_size(8 * MIB), false).unwrap_err();
        assert!(error.to_string().contains("needs at least 9502720"), "{error}");
        let error =
            options().ring_size(8 * MIB).ring_at(&disk.path).format(disk.path.with_file_name("x"), false);
        assert!(error.unwrap_err().to_string().contains("use at most 8323072"));
        assert!(!disk.path.with_file_name("x").exists());
        assert!(
            matches!(options().open(&disk.path), Err(Error::NotAStore { why, .. }) if why.contains("format"))
        );
        format(options().capacity(4 * MIB), false).unwrap();
        let store = options().open(&disk.path).unwrap();
        let info = store.info().unwrap();
        assert_eq!((info.size, info.capacity), (4 * MIB, 4 * MIB));
        while store.append("log", noise(1, 9000)).and_then(|ticket| ticket.wait()).is_ok() {}
        drop(store);
        let beyond = brooklet::io::read_unlocked(&disk.path, 4 * MIB, 4 << 20).unwrap();
        assert!(beyond.iter().all(|byte| *byte == 0), "nothing is written behind the capacity");
        Ok(())
    });
}

/// Never by the way, never over a store, never while somebody uses it.
#[test]
fn devices_are_formatted_only_when_that_is_asked_for() {
    with_devices(|| {
        let disk = Disk::new(8 * MIB, 4096)?;
        let dir = tempfile::tempdir().unwrap();
        for create in [Create::IfMissing, Create::New] {
            options().create(create).open(&disk.path).unwrap_err();
            let data = dir.path().join("data");
            let error = options().create(create).ring_at(&disk.path).open(&data).unwrap_err();
            assert!(error.to_string().contains("brooklet format"), "{error}");
            assert!(!data.exists());
        }
        let blank = brooklet::io::read_unlocked(&disk.path, 0, 8 << 20).unwrap();
        assert!(blank.iter().all(|byte| *byte == 0));
        options().format(&disk.path, false).unwrap();
        let store = options().create(Create::IfMissing).open(&disk.path).unwrap();
        store.append("log", b"entry").unwrap().wait().unwrap();
        assert!(matches!(options().format(&disk.path, true), Err(Error::Locked { .. })));
        drop(store);
        let error = options().format(&disk.path, false).unwrap_err();
        assert!(
            matches!(&error, Error::NotBlank { found, .. } if found.contains("Brooklet store at 0")),
            "{error}"
        );
        assert_eq!(options().open(&disk.path).unwrap().bounds("log").unwrap().next, 1);
        let made = options().format(&disk.path, true).unwrap();
        assert!(made.overwritten[0].1.contains("Brooklet store"));
        assert!(!options().open(&disk.path).unwrap().exists("log").unwrap());
        Ok(())
    });
}

/// A device need not end with a whole sector of the store's; what lies there is wiped like the
/// rest.
#[test]
fn nothing_is_left_behind_the_last_whole_sector() {
    with_devices(|| {
        let (bytes, mark) = (8 * MIB + 1536, 8 * MIB + 1024);
        let disk = Disk::new(bytes, 512)?;
        let device = OpenOptions::new().write(true).open(&disk.path).unwrap();
        device.write_all_at(b"EFI PART", mark).and_then(|()| device.sync_all()).unwrap();
        drop(device);
        let error = options().format(&disk.path, false).unwrap_err();
        let words = format!("backup of a GPT partition table at {mark}");
        assert!(error.to_string().contains(&words), "{error}");
        let made = options().format(&disk.path, true).unwrap();
        assert!(made.overwritten[0].1.contains(&words) && made.capacity == 8 * MIB, "{made:?}");
        let rest = brooklet::io::read_unlocked(&disk.path, 8 * MIB, 4096).unwrap();
        assert!(rest.len() == 1536 && rest.iter().all(|byte| *byte == 0), "something is left");
        options().open(&disk.path).unwrap().append("log", b"entry").unwrap().wait().unwrap();
        Ok(())
    });
}

#[test]
fn a_mounted_device_is_refused_even_by_force() {
    with_devices(|| {
        let (disk, dir) = (Disk::new(16 * MIB, 512)?, tempfile::tempdir().unwrap());
        let (device, at) = (disk.path.to_str().unwrap(), dir.path().to_str().unwrap());
        run("mkfs.ext4", &["-q", device])?;
        run("mount", &[device, at])?;
        let refused = [options().format(device, true), options().format(device, false)];
        let ring = options().ring_at(device).format(dir.path().join("data"), true);
        run("umount", &[at])?;
        for error in refused.into_iter().chain([ring]).map(Result::unwrap_err) {
            let Error::Locked { holder, .. } = &error else { panic!("{error}") };
            assert_eq!(*holder, format!("mounted at {at}"));
        }
        let error = options().format(device, false).unwrap_err();
        assert!(error.to_string().contains("ext4 file system at 1080"), "{error}");
        run("fsck.ext4", &["-n", "-f", device]).expect("nothing was written to it");
        let made = options().format(device, true).unwrap();
        assert!(made.overwritten[0].1.contains("ext4"));
        drop(options().open(device).unwrap());
        Ok(())
    });
}

/// The partition is named, and what it is used for, since that is what is to be stopped.
#[test]
fn a_device_with_a_partition_in_use_is_refused_and_the_partition_named() {
    with_devices(|| {
        let (disk, dir) = (Disk::new(32 * MIB, 512)?, tempfile::tempdir().unwrap());
        let (device, at) = (disk.path.to_str().unwrap(), dir.path().to_str().unwrap());
        run("addpart", &[device, "1", "2048", "40960"])?;
        let part = format!("{device}p1");
        let name = disk.path.file_name().unwrap().to_str().unwrap();
        // No panic before all is taken apart again.
        let refused =
            || options().format(device, true).map_or_else(|error| error.to_string(), |_| "made".into());
        let try_both = || -> Result<[String; 2], String> {
            run("mkfs.ext4", &["-q", &part])?;
            run("mount", &[&part, at])?;
            let mounted = refused();
            run("umount", &[at])?;
            run("mkswap", &[&part])?;
            run("swapon", &[&part])?;
            let swap = refused();
            run("swapoff", &[&part])?;
            Ok([mounted, swap])
        };
        let tried = try_both();
        run("delpart", &[device, "1"])?;
        let [mounted, swap] = tried?;
        let words = format!("{device} is in use elsewhere (its partition {name}p1 is ");
        assert!(mounted.starts_with(&format!("{words}mounted at {at})")), "{mounted}");
        assert!(swap.starts_with(&format!("{words}in use as swap space)")), "{swap}");
        Ok(())
    });
}

const VICTIM: &str = "BROOKLET_DEVICE_VICTIM";

/// Appends until it is killed: the device, and the data where only the ring is there.
fn victim(words: &str) {
    let (disk, data) = words.split_once(' ').unwrap();
    let store = match data {
        "" => options().open(disk),
        data => options().ring_at(disk).open(data),
    };
    let store = store.unwrap();
    let mut seq = store.bounds("log").map_or(0, |bounds| bounds.next);
    loop {
        store.append("log", noise(seq, 500)).unwrap().wait().unwrap();
        let mut out = std::io::stdout().lock();
        writeln!(out, "ack {seq}").and_then(|()| out.flush()).unwrap();
        seq += 1;
    }
}

#[test]
fn nothing_acknowledged_is_lost_by_a_kill() {
    if let Ok(words) = std::env::var(VICTIM) {
        return victim(&words);
    }
    let mut rng = Rng::new(system_seed());
    places(24 * MIB, |place| {
        let data = place.data.as_deref().map(Path::to_str).unwrap_or(Some("")).unwrap();
        let mut next = 0;
        for _ in 0..8 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "devices::nothing_acknowledged_is_lost_by_a_kill", "--nocapture"])
                .env(VICTIM, format!("{} {data}", place.disk.path.display()))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            let (tell, told) = std::sync::mpsc::channel();
            let reader = std::thread::Builder::new().spawn(move || {
                let lines = output.lines().map_while(Result::ok);
                let acks = lines.filter_map(|line| line.split("ack ").nth(1)?.parse::<u64>().ok());
                acks.inspect(|_| _ = tell.send(())).last()
            });
            // However slow the machine is: some die while they open, some in full swing.
            let acks = if rng.percent(30) { 0 } else { 1 + rng.below(60) };
            (0..acks).for_each(|_| told.recv_timeout(Duration::from_secs(60)).expect("the victim writes"));
            let _ = told.recv_timeout(Duration::from_millis(rng.below(12)));
            child.kill().unwrap();
            child.wait().unwrap();
            let acked = reader.unwrap().join().unwrap().map_or(next, |seq| seq + 1);
            // The victim's lock goes with its last write, which a busy disk may end late.
            let is_free = |opened: &Result<_, _>| !matches!(opened, Err(Error::Locked { .. }));
            let store = (0..600).map(|_| place.open()).find(is_free).expect("the lock goes").unwrap();
            next = store.bounds("log").map_or(0, |bounds| bounds.next);
            assert!(next == acked || next == acked + 1, "{acked} were acknowledged, {next} are there");
            for entry in store.read("log", ..).into_iter().flatten() {
                let entry = entry.unwrap();
                assert!(entry.payload == noise(entry.seq, 500), "{}", entry.seq);
            }
            store.abandon();
        }
        Ok(())
    });
}
