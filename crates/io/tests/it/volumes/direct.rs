//! Direct I/O is used where it is direct, by what is seen of it; elsewhere a volume is a buffered
//! one, and says so. And space is there for certain, also where it cannot be allocated in advance.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::places::{Mounted, alone};
use super::*;

/// ext4 takes the flag in both modes. With a journal of data everything goes through the page cache
/// all the same.
#[test]
fn a_journal_of_data_is_seen_and_a_usual_one_is_not_in_the_way() {
    let _alone = alone();
    for (options, direct) in [("data=ordered", true), ("data=journal", false)] {
        let Some(mounted) = Mounted::ext4("extent", options) else { return };
        let path = mounted.path().join("v");
        let modes = [OpenMode::Create, OpenMode::ReadWrite, OpenMode::ReadOnly];
        for mode in modes {
            let volume = FileVolume::open(&path, mode, FileOptions::default()).unwrap();
            if mode == OpenMode::Create {
                volume.grow(1 << 20).unwrap();
                write_all_at(&volume, 0, &filled(64 << 10, 3), Persist::Durable).unwrap();
            }
            let mut read = filled(64 << 10, 0);
            read_exact_at(&volume, 0, &mut read).unwrap();
            assert!(read.iter().all(|&byte| byte == 3));
            let info = volume.info();
            assert_eq!(info.direct, direct, "{options}, {mode:?}: {info:?}");
            let told = info.fallbacks.iter().any(|f| f.starts_with("buffered I/O: direct I/O has no effect"));
            assert_eq!(told, !direct, "{options}, {mode:?}: {info:?}");
            assert_eq!(info.durable_by == "RWF_DSYNC", direct, "{options}, {mode:?}: {info:?}");
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 1 << 20);
    }
}

/// Without extents ext4 allocates nothing in advance, as where `fallocate` is not let through:
/// holes are written to then.
#[test]
fn space_is_secured_where_it_cannot_be_allocated() {
    let _alone = alone();
    let Some(mounted) = Mounted::ext4("^extent,^64bit", "defaults") else { return };
    let path = mounted.path().join("v");
    let volume = FileVolume::open(&path, OpenMode::Create, FileOptions::default()).unwrap();
    volume.grow(1 << 20).unwrap();
    let noted = |words: &str| volume.info().fallbacks.iter().filter(|line| line.starts_with(words)).count();
    assert_eq!(noted("space is not allocated in advance"), 1, "{:?}", volume.info());
    let taken = || fs::metadata(&path).unwrap().blocks() * 512;
    assert!(taken() < 64 << 10, "{}", taken());
    volume.allocate_range(0..1 << 20).unwrap();
    volume.flush().unwrap();
    assert!(taken() >= 1 << 20, "{}", taken());
    assert!(
        volume.grow(1 << 30).is_ok() && volume.allocate_range(0..1 << 30).is_err(),
        "there is less room than that"
    );
}
