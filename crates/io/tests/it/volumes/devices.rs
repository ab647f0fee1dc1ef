//! Block devices: what they say of themselves, and who else may use them meanwhile. Loop devices
//! stand in, where there are any.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use brooklet_io::read_unlocked;
use rustix::fs::OFlags;

use super::places::{Place, alone};
use super::*;

fn open(place: &Place, mode: OpenMode) -> io::Result<FileVolume> {
    FileVolume::open(&place.path, mode, FileOptions::default())
}

fn busy(result: io::Result<FileVolume>) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
    error.to_string()
}

#[test]
fn a_device_tells_its_sizes_and_keeps_them() {
    let _alone = alone();
    for sector in [512, 4096] {
        let Some(place) = Place::device(sector) else { continue };
        let volume = place.open(FileOptions::default());
        let blocks = volume.info().device.expect("it is a device");
        assert_eq!(blocks.logical_block, sector);
        assert!(blocks.physical_block >= sector);
        assert_eq!(volume.size().unwrap(), 1 << 20);
        let error = volume.grow((1 << 20) + 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(error.to_string().contains("cannot grow"), "{error}");
        volume.shrink(SECTOR as u64).unwrap();
        assert_eq!(volume.size().unwrap(), 1 << 20, "the call is ignored");
        volume.flush().unwrap();
    }
    assert_eq!(Place::file().open(FileOptions::default()).info().device, None);
}

#[test]
fn a_device_keeps_bytes_across_opens() {
    let _alone = alone();
    for sector in [512, 4096] {
        let Some(place) = Place::device(sector) else { continue };
        let volume = place.open(FileOptions::default());
        write_all_at(&volume, 8192, &filled(SECTOR, 1), Persist::Durable).unwrap();
        write_all_at(&volume, 16384, &filled(SECTOR, 2), Persist::Cached).unwrap();
        volume.flush().unwrap();
        drop(volume);
        assert_eq!(read_unlocked(&place.path, 8192, 1).unwrap(), [1]);
        let volume = open(&place, OpenMode::ReadOnly).unwrap();
        let mut buf = AlignedBuf::zeroed(3 * SECTOR);
        read_exact_at(&volume, 8192, &mut buf).unwrap();
        assert_eq!(buf.chunks(SECTOR).map(|s| s[0]).collect::<Vec<_>>(), [1, 0, 2]);
        assert_eq!(kind(volume.write_at(0, &buf, Persist::Cached)), io::ErrorKind::PermissionDenied);
    }
}

#[test]
fn a_device_that_another_holds_is_not_opened_for_writing() {
    let _alone = alone();
    let Some(place) = Place::device(512) else { return };
    let volume = place.open(FileOptions::default());
    let message = busy(open(&place, OpenMode::ReadWrite));
    assert!(message.contains("in use") && message.contains(&place.path.display().to_string()), "{message}");
    busy(open(&place, OpenMode::ReadOnly));
    drop(volume);

    // Not every claim comes with a lock: that of a mount, a partition tool or a volume manager does
    // not.
    let mut claim = OpenOptions::new();
    claim.read(true).custom_flags(OFlags::EXCL.bits() as i32);
    let other = claim.open(&place.path).unwrap();
    busy(open(&place, OpenMode::ReadWrite));
    drop(open(&place, OpenMode::ReadOnly).unwrap());
    drop(other);
    let volume = open(&place, OpenMode::ReadWrite).unwrap();
    assert_eq!(kind(claim.open(&place.path)), io::ErrorKind::ResourceBusy, "the claim works both ways");
    drop(volume);

    let readers = [open(&place, OpenMode::ReadOnly).unwrap(), open(&place, OpenMode::ReadOnly).unwrap()];
    busy(open(&place, OpenMode::ReadWrite));
    drop(readers);
    open(&place, OpenMode::ReadWrite).unwrap();
}

#[test]
fn a_mounted_device_is_not_opened_for_writing() {
    let _alone = alone();
    let Some(place) = Place::device(512) else { return };
    let dir = tempfile::tempdir().unwrap();
    let (device, at) = (place.path.as_os_str(), dir.path().as_os_str());
    for (tool, args) in [("mkfs.ext4", vec!["-q".as_ref(), device]), ("mount", vec![device, at])] {
        match Command::new(tool).args(args).output() {
            Ok(Output { status, .. }) if status.success() => {}
            other => {
                println!("skipped: nothing is mounted: {tool}: {other:?}");
                return;
            }
        }
    }
    let refused = std::panic::catch_unwind(|| {
        let message = busy(open(&place, OpenMode::ReadWrite));
        assert!(message.contains("is mounted or in use"), "{message}");
        drop(open(&place, OpenMode::ReadOnly).unwrap());
    });
    assert!(Command::new("umount").arg(at).status().unwrap().success());
    refused.unwrap();
    open(&place, OpenMode::ReadWrite).unwrap();
}

/// A partition may have any number of the device's blocks, and whoever uses it uses the device.
#[test]
fn a_partition_is_a_device_and_a_part_of_one() {
    let _alone = alone();
    let Some(place) = Place::device(512) else { return };
    let blocks = 8 * 125 + 1;
    let added = Command::new("addpart").arg(&place.path).args(["1", "8", &blocks.to_string()]).output();
    let path = PathBuf::from(format!("{}p1", place.path.display()));
    if !added.as_ref().is_ok_and(|added| added.status.success()) || !path.exists() {
        println!("skipped: no partition: addpart: {added:?}");
        return;
    }
    let volume = FileVolume::open(&path, OpenMode::ReadWrite, FileOptions::default()).unwrap();
    assert_eq!(volume.size().unwrap(), blocks * 512);
    let end = 125 * SECTOR as u64;
    write_all_at(&volume, end - SECTOR as u64, &filled(SECTOR, 1), Persist::Durable).unwrap();
    let past = volume.write_at(end, &filled(SECTOR, 1), Persist::Cached);
    assert_eq!(kind(past), io::ErrorKind::InvalidInput, "it would pass the end");
    assert_eq!(volume.read_at(end, &mut AlignedBuf::zeroed(SECTOR)).unwrap(), 512);
    busy(open(&place, OpenMode::ReadWrite));
    drop(volume);
    open(&place, OpenMode::ReadWrite).unwrap();
}

/// A claimed device is read by way of its page cache, too, and that sees what direct writes leave.
#[test]
fn a_device_is_read_through_its_page_cache() {
    let _alone = alone();
    for sector in [512, 4096] {
        let Some(place) = Place::device(sector) else { continue };
        let volume = place.open(FileOptions::default());
        for byte in 1..50 {
            write_all_at(&volume, 8192, &filled(2 * SECTOR, byte), Persist::Cached).unwrap();
            let mut piece = [0; 5000];
            assert!(volume.read_cached(9000, &mut piece));
            assert!(piece.iter().all(|&found| found == byte), "{byte}");
        }
    }
}
