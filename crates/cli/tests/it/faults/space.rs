//! No room: full file systems, with and without direct I/O, without inodes, and thin ones that are
//! full underneath.

use std::fs;
use std::path::Path;

use crate::faults::fault;
use crate::faults::machine::{Ext4, Mount, run};
use crate::faults::writer::Log;

/// More than any of these file systems takes.
const TOO_MANY: u64 = 40_000;

/// Fills the store until it refuses. Then reads, trims and deletes go on, and what is there is
/// still there.
fn fill(store: &Path) -> Log {
    let mut log = Log::create(store, 600);
    log.run(&[], &["append", "other", "to be deleted"]).ok();
    log.append(&[], TOO_MANY).refused(&[6], "no room left for the commit in the heap");
    log.reads();
    log.run(&[], &["delete", "other"]).ok();
    log.run(&[], &["trim", "log", "--before", "100"]).ok();
    log.first = 100;
    log.reads();
    log.run(&[], &["read", "other"]).refused(&[3], "no log \"other\"");
    log
}

#[test]
fn full_memory_file_system() {
    fault("full tmpfs", || {
        let sizes = ["3M", "4M", "6M"];
        for size in sizes {
            let dir = tempfile::tempdir().unwrap();
            let mount = Mount::tmpfs(&dir.path().join("m"), &format!("size={size}"))?;
            let mut log = fill(&mount.at.join("s"));
            mount.remount("size=64M")?;
            log.append(&[], 1_000).ok();
            log.holds();
        }
        Ok(sizes.len() as u32)
    });
}

#[test]
fn full_ext4_with_direct_io() {
    fault("full ext4", || {
        let sizes = [8 << 20, 16 << 20];
        for bytes in sizes {
            let dir = tempfile::tempdir().unwrap();
            let at = dir.path().join("m");
            let _disk = Ext4::make(&dir.path().join("image"), bytes, &at, &[])?;
            fs::write(at.join("filler"), vec![1; 3 << 20]).unwrap();
            let mut log = fill(&at.join("s"));
            fs::remove_file(at.join("filler")).unwrap();
            log.append(&[], 500).ok();
            log.holds();
        }
        Ok(sizes.len() as u32)
    });
}

/// The refusal names the reason, and half a store is not left behind.
#[test]
fn no_room_for_a_new_store() {
    fault("no room for a new store", || {
        let options = ["size=64K", "size=512K", "size=1M", "nr_inodes=1"];
        for option in options {
            let dir = tempfile::tempdir().unwrap();
            let mount = Mount::tmpfs(&dir.path().join("m"), option)?;
            let mut log = Log { store: mount.at.join("s"), first: 0, acked: 0 };
            log.append(&[], 1).refused(&[6], "no room left for a new store: No space left on device");
            assert_eq!(fs::read_dir(&mount.at).unwrap().count(), 0, "{option}");
            mount.remount("size=8M,nr_inodes=100")?;
            log.append(&[], 10).ok();
            log.holds();
        }
        Ok(options.len() as u32)
    });
}

/// A file system that has room on a device that has none: writes fail after they were promised
/// room. The device here is a loop over a file system that fills up.
#[test]
fn thin_device_that_is_full_underneath() {
    fault("thin device", || {
        let sizes = ["4M", "5M", "6M", "8M"];
        for size in sizes {
            let dir = tempfile::tempdir().unwrap();
            let (image, at) = (dir.path().join("back/image"), dir.path().join("m"));
            let back = Mount::tmpfs(&dir.path().join("back"), "size=64M")?;
            let mut disk = Ext4::make(&image, 48 << 20, &at, &[])?;
            let mut log = Log::create(at.join("s"), 600);
            run("sync", &["--file-system", at.to_str().unwrap()])?;
            back.remount(&format!("size={size}"))?;
            let ended = log.append(&[], TOO_MANY);
            ended.refused(&[6, 7], "");
            assert!(
                ["No space", "Input/output", "Read-only", "read back"]
                    .iter()
                    .any(|why| ended.stderr.contains(why)),
                "{ended:?}"
            );
            // Room underneath; the file system may have given itself up, and is mended as one
            // would.
            back.remount("size=64M")?;
            drop(disk.mount.take());
            let _ = run("e2fsck", &["-fy", &disk.disk.device]);
            disk.mount(&at)?;
            log.holds();
        }
        Ok(sizes.len() as u32)
    });
}
