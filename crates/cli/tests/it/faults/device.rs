//! Block devices: a store on one, kills over one, and one that goes away.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use brooklet::io::{Rng, system_seed};
use serde_json::Value;

use crate::faults::fault;
use crate::faults::machine::{Ext4, Loop};
use crate::faults::writer::{Log, copy};

/// A store that was copied to a device of its own: it goes on until that is full, and cannot be had
/// twice.
#[test]
fn store_on_a_block_device() {
    fault("store on a block device", || {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::create(dir.path().join("s"), 1_500);
        let image = dir.path().join("image");
        copy(&log.store, &image);
        File::options().write(true).open(&image).and_then(|file| file.set_len(12 << 20)).unwrap();
        let disk = Loop::attach(&image)?;
        log.store = PathBuf::from(&disk.device);
        let map: Value = serde_json::from_str(&log.run(&[], &["inspect", "--json"]).ok()).unwrap();
        assert_eq!(map["size"], 12 << 20, "{map}");
        log.append(&[], 20_000).refused(&[6], "cannot grow to");
        log.reads();
        log.run(&[], &["delete", "log"]).ok();
        (log.first, log.acked) = (0, 0);
        let mut writer = log.start();
        assert!(writer.append(50), "there is room again");
        log.run(&[], &["append", "log", "x"]).refused(&[4], "in use elsewhere");
        writer.child.kill().unwrap();
        log.take(writer);
        log.holds();
        Ok(4)
    });
}

/// A blank device becomes a store; whatever is on one stays, unless nobody wants it.
#[test]
fn format_of_block_devices() {
    fault("format of block devices", || {
        let dir = tempfile::tempdir().unwrap();
        let image = |name: &str| {
            let path = dir.path().join(name);
            File::create(&path).and_then(|file| file.set_len(12 << 20)).unwrap();
            path
        };
        let disk = Loop::attach(&image("whole"))?;
        let log = Log { store: PathBuf::from(&disk.device), first: 0, acked: 0 };
        let format = |args: &[&str]| log.run(&[], &[&["format", "--ring-size", "1M"], args].concat());
        let bears = |at: u64, bytes: &[u8]| {
            use std::os::unix::fs::FileExt;
            File::options()
                .write(true)
                .open(dir.path().join("whole"))
                .unwrap()
                .write_all_at(bytes, at)
                .unwrap();
        };
        for (at, magic, words) in [
            (512, &b"EFI PART"[..], "GPT partition table at 512"),
            (0, b"LUKS\xba\xbe", "LUKS encryption at 0"),
            ((12 << 20) - 1, b"?", "unknown data at 12582911"),
        ] {
            bears(at, magic);
            format(&[]).refused(&[4], words);
            format(&["--capacity", "20M", "--force"]).refused(&[2], "so use at most 12582912 bytes");
            format(&[]).refused(&[4], words);
            bears(at, &vec![0; magic.len()]);
        }
        let made: Value = serde_json::from_str(&format(&["--json"]).ok()).unwrap();
        assert_eq!(
            (&made["capacity"], &made["overwritten"]),
            (&Value::from(12 << 20), &Value::Array(vec![]))
        );
        format(&[]).refused(&[4], "Brooklet store at 0");
        let made = format(&["--capacity", "4M", "--force"]).ok();
        assert!(
            made.starts_with("overwrote Brooklet store at 0") && made.contains("4.00 MiB in all"),
            "{made}"
        );
        let mut log = log;
        log.append(&[], 300).ok();
        log.holds();
        let ring = Loop::attach(&image("ring"))?;
        let apart = Log { store: dir.path().join("data"), first: 0, acked: 0 };
        let made = apart.run(&[], &["format", "--ring", &ring.device, "--ring-size", "1M"]).ok();
        assert!(made.contains(&format!("1.00 MiB on {}", ring.device)), "{made}");
        apart.run(&[], &["append", "log", "x", "--ring", &ring.device]).ok();
        apart.run(&[], &["list"]).refused(&[4], "--ring");
        apart.run(&[], &["list", "--ring", &disk.device]).refused(&[4], "does not start with the label");
        apart.run(&[], &["check", "--ring", &ring.device]).ok();
        let other = Log { store: dir.path().join("other"), first: 0, acked: 0 };
        other.run(&[], &["format", "--ring", &ring.device]).refused(&[4], "Brooklet ring or log at 0");
        assert!(!other.store.exists());
        Ok(10)
    });
}

#[test]
fn block_devices_that_are_no_store() {
    fault("block device that is no store", || {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("image");
        File::create(&image).and_then(|file| file.set_len(8 << 20)).unwrap();
        let disk = Loop::attach(&image)?;
        let log = Log { store: PathBuf::from(&disk.device), first: 0, acked: 0 };
        log.run(&[], &["list"]).refused(&[4], "does not start with a superblock");
        drop(disk);
        let at = dir.path().join("m");
        let disk = Ext4::make(&dir.path().join("mounted"), 16 << 20, &at, &[])?;
        let log = Log { store: PathBuf::from(&disk.disk.device), first: 0, acked: 0 };
        let mounted = format!("in use elsewhere (mounted at {})", at.display());
        log.run(&[], &["trim", "log", "--before", "1"]).refused(&[4], &mounted);
        log.run(&[], &["format", "--force"]).refused(&[4], &mounted);
        Log::create(at.join("s"), 10).holds();
        Ok(3)
    });
}

/// The command is killed while it opens, appends, checkpoints; every time the next one finds what
/// was promised.
#[test]
fn kills_over_ext4_on_a_loop_device() {
    fault("kills over ext4 on a loop device", || {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("m");
        let mut disk = Ext4::make(&dir.path().join("image"), 128 << 20, &at, &[])?;
        let mut log = Log::create(at.join("s"), 100);
        let map = log.run(&[], &["inspect", "--json"]).ok();
        let map: Value = serde_json::from_str(&map).unwrap();
        assert_eq!(map["volume"]["direct"], true, "{map}");
        let mut rng = Rng::new(system_seed());
        for _ in 0..20 {
            let mut writer = log.start();
            let pid = writer.child.id();
            let after = Duration::from_millis(rng.below(80));
            let killer = std::thread::spawn(move || {
                std::thread::sleep(after);
                Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap()
            });
            writer.append(5_000);
            killer.join().unwrap();
            log.take(writer);
            log.reads();
        }
        // What the kernel keeps of it in its own memory is not what counts.
        drop(disk.mount.take());
        disk.mount(&at)?;
        log.holds();
        drop(fs::remove_file(&log.store));
        library_kills(&at)?;
        Ok(40)
    });
}

/// The library's own test of kills, with its four writers and atomic commits, pointed at that file
/// system. It lies beside this test where the whole workspace was built.
fn library_kills(at: &Path) -> Result<(), String> {
    let own = std::env::current_exe().unwrap();
    let store_args = fs::read_dir(own.parent().unwrap()).unwrap().map(|file| file.unwrap().path());
    let tests = store_args.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("kill-") && path.extension().is_none()
    });
    let newest = tests.max_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok());
    let Some(test) = newest else {
        println!("the library's test of kills was not built, and is left out");
        return Ok(());
    };
    let mut command = Command::new(test);
    command.env("BROOKLET_KILLS", "20").env("BROOKLET_KILL_DIR", at).env_remove("BROOKLET_COUNTS");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(String::from_utf8_lossy(&output.stdout).contains("2 passed"), "{output:?}");
    Ok(())
}

/// The file system is shut down in mid-write, as when its device is pulled: with its journal
/// flushed, and without, which loses whatever metadata was not durable. What was acknowledged needs
/// none of that.
#[test]
fn file_system_shut_down() {
    fault("file system shut down", || {
        let mut scenarios = 0;
        for flags in [0, 1, 2] {
            for before in [50, 1_200] {
                let dir = tempfile::tempdir().unwrap();
                let at = dir.path().join("m");
                let mut disk = Ext4::make(&dir.path().join("image"), 64 << 20, &at, &[])?;
                let mut log = Log::create(at.join("s"), 100);
                let mut writer = log.start();
                assert!(writer.append(before));
                shut_down(&at, flags)?;
                writer.append(3_000);
                log.take(writer).refused(&[7], "os error 5");
                log.run(&[], &["append", "log", "x"]).refused(&[7], "os error 5");
                drop(disk.mount.take());
                disk.mount(&at)?;
                log.holds();
                scenarios += 1;
            }
        }
        Ok(scenarios)
    });
}

/// `EXT4_IOC_SHUTDOWN`: every later use of the file system fails.
fn shut_down(at: &Path, flags: u32) -> Result<(), String> {
    const SHUTDOWN: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<u32>(b'X', 125);
    let dir = File::open(at).unwrap();
    // SAFETY: the call reads one `u32`, which the setter holds for as long as it lasts.
    unsafe { rustix::ioctl::ioctl(&dir, rustix::ioctl::Setter::<SHUTDOWN, u32>::new(flags)) }
        .map_err(|error| format!("the file system does not let itself be shut down: {error}"))
}
