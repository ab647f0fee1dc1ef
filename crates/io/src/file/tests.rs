//! Volumes in files: what they keep, refuse and fall back from.

use std::fs::{self, OpenOptions};

use super::*;
use crate::{AlignedBuf, Op, SECTOR, read_exact_at, write_all_at};

mod cached;
mod durable;
#[cfg(feature = "seeded-bugs")]
mod mutations;

pub(super) fn filled(len: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.fill(byte);
    buf
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

fn create(dir: &tempfile::TempDir, options: FileOptions) -> FileVolume {
    let volume = FileVolume::open(&dir.path().join("v"), OpenMode::Create, options).unwrap();
    volume.grow(1 << 20).unwrap();
    volume
}

#[test]
fn keeps_bytes_across_opens() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions::default());
    write_all_at(&volume, 8192, &filled(SECTOR, 1), Persist::Durable).unwrap();
    write_all_at(&volume, 16384, &filled(2 * SECTOR, 2), Persist::Cached).unwrap();
    volume.flush().unwrap();
    drop(volume);

    let path = dir.path().join("v");
    let again = FileVolume::open(&path, OpenMode::Create, FileOptions::default());
    assert_eq!(kind(again), io::ErrorKind::AlreadyExists);
    let volume = FileVolume::open(&path, OpenMode::ReadWrite, FileOptions::default()).unwrap();
    assert_eq!(volume.size().unwrap(), 1 << 20);
    let mut buf = filled(6 * SECTOR, 9);
    read_exact_at(&volume, 0, &mut buf).unwrap();
    let sectors: Vec<u8> = buf.chunks(SECTOR).map(|s| s[0]).collect();
    assert_eq!(sectors, [0, 0, 1, 0, 2, 2]);
    assert!(buf.chunks(SECTOR).all(|s| s.iter().all(|&b| b == s[0])));
}

/// FUSE, NFS, CIFS and SMB 2 may answer a direct read from a cache on the other side; ext4, XFS and
/// overlay read the medium.
#[cfg(target_os = "linux")]
#[test]
fn a_direct_read_is_of_the_medium_only_where_this_kernel_carries_it_out() {
    let remote = [0x6573_5546, 0x6969, 0xff53_4d42, 0xfe53_4d42];
    let local = [0xef53, 0x5846_5342, 0x794c_7630];
    assert!(remote.into_iter().all(backend::is_passed_on) && !local.into_iter().any(backend::is_passed_on));
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions::default());
    let kind = rustix::fs::fstatfs(&volume.inner.file).unwrap().f_type as u64;
    let reads_medium = volume.info().direct && !backend::is_passed_on(kind);
    assert_eq!(volume.read_medium(0, &mut filled(SECTOR, 1)).is_some(), reads_medium);
}

#[test]
fn buffered_volumes_work_too_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions { direct: false, io_uring: false, ..FileOptions::default() });
    write_all_at(&volume, 0, &filled(SECTOR, 3), Persist::Durable).unwrap();
    let mut buf = AlignedBuf::zeroed(SECTOR);
    read_exact_at(&volume, 0, &mut buf).unwrap();
    assert!(buf.iter().all(|&b| b == 3));
    let info = volume.info();
    assert_eq!((info.direct, info.backend), (false, "threads"));
    assert!(info.fallbacks.iter().any(|f| f.starts_with("buffered I/O:")), "{info:?}");
    if cfg!(target_os = "linux") {
        assert!(info.fallbacks.iter().any(|f| f.starts_with("queues use threads:")), "{info:?}");
    }
}

/// What is written to a file without a name, or behind a cut, is acknowledged for nothing: flushing
/// and growing say so.
#[test]
fn a_file_that_others_cut_or_delete_is_not_flushed_as_if_nothing_were() {
    for what in ["cut", "deleted"] {
        let dir = tempfile::tempdir().unwrap();
        let volume = create(&dir, FileOptions::default());
        volume.flush().unwrap();
        if what == "cut" {
            OpenOptions::new().write(true).open(dir.path().join("v")).unwrap().set_len(4096).unwrap();
        } else {
            fs::remove_file(dir.path().join("v")).unwrap();
        }
        assert!(volume.shrink(8192).is_err());
        let growth = volume.grow(2 << 20).unwrap_err().to_string();
        let write = volume.write_at(0, &filled(SECTOR, 1), Persist::Cached).unwrap_err().to_string();
        assert!(write.contains(&format!("was {what}")), "{write}");
        assert!(growth.contains(&format!("was {what}")), "{growth}");
        assert!(volume.flush().unwrap_err().to_string().contains("by another process"));
        assert!(volume.flush().is_err(), "for good");
    }
}

/// The file of a volume goes while a write is under way, in each way that files go and by each way
/// of writing: the write is not acknowledged, and none is from then on.
#[test]
fn no_write_is_acknowledged_after_its_file_went() {
    type Goes = fn(&Path);
    let goes: [(&str, Goes); 4] = [
        ("deleted", |path| fs::remove_file(path).unwrap()),
        ("replaced", |path| fs::rename(other(path), path).unwrap()),
        ("cut from", |path| set_len(path, 8192)),
        ("cut from", |path| set_len(path, 0)),
    ];
    for ((words, go), durable) in goes.into_iter().flat_map(|g| [(g, Durable::Dsync), (g, Durable::Flush)]) {
        for queued in [None, Some(true), Some(false)] {
            let dir = tempfile::tempdir().unwrap();
            let options = FileOptions { durable, io_uring: queued == Some(true), ..FileOptions::default() };
            let volume = create(&dir, options);
            fs::write(other(&dir.path().join("v")), "another").unwrap();
            let write = || durable_write(&volume, queued);
            write().unwrap();
            fs::hard_link(dir.path().join("v"), dir.path().join("too")).unwrap();
            write().unwrap();
            fs::remove_file(dir.path().join("too")).unwrap();
            write().expect("another name went, and came");
            go(&dir.path().join("v"));
            let error = write().unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("by another process"), "{error}");
            if words == "cut from" {
                set_len(&dir.path().join("v"), 1 << 20);
            }
            assert!(write().is_err() && volume.flush().is_err() && volume.grow(2 << 20).is_err(), "for good");
        }
    }
}

fn other(path: &Path) -> std::path::PathBuf {
    path.with_extension("other")
}

fn set_len(path: &Path, len: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(len).unwrap();
}

/// Writes the last sector durably, by a queue of a kind or by none.
fn durable_write(volume: &FileVolume, queued: Option<bool>) -> io::Result<usize> {
    let (offset, data) = ((1 << 20) - SECTOR as u64, filled(SECTOR, 7));
    if queued.is_none() {
        return volume.write_at(offset, &data, Persist::Durable);
    }
    let mut queue = volume.queue(1)?;
    queue.submit(1, Op::Write { offset, data: data.freeze(), persist: Persist::Durable });
    let mut done = Vec::new();
    queue.reap(true, &mut done);
    done.pop().unwrap().result
}

/// What goes while the kernel has the write is seen before the write is acknowledged.
#[test]
fn a_file_that_goes_during_a_write_is_missed_at_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let mut volume = create(&dir, FileOptions { durable: Durable::Flush, ..FileOptions::default() });
    let path = dir.path().join("v");
    let calls = &mut Arc::get_mut(&mut volume.inner).unwrap().durable.calls;
    calls.sync = Box::new(move |_| fs::remove_file(&path));
    let error = volume.write_at(0, &filled(SECTOR, 1), Persist::Durable).unwrap_err().to_string();
    assert!(error.contains("was deleted"), "{error}");
}

/// Where a look asks for times, Linux from 6.13 on gives each write a time of its own, and the file
/// system writes the file's metadata beside each durable write.
#[cfg(target_os = "linux")]
#[test]
fn a_look_gives_no_write_a_time_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions { direct: false, ..FileOptions::default() });
    let [looked_at, plain, other] = ["v", "plain", "other"].map(|name| dir.path().join(name));
    let modified = |path: &Path| fs::metadata(path).unwrap().modified().unwrap();
    // How often of a hundred times a file and the other one, written in turns, have the same time.
    let same = |path: &Path, write: &dyn Fn()| {
        let in_turns = || {
            write();
            fs::write(&other, "x").unwrap();
            write();
            modified(path) == modified(&other)
        };
        (0..100).filter(|_| in_turns()).count()
    };
    let without = same(&plain, &|| fs::write(&plain, "x").unwrap());
    let data = filled(SECTOR, 1);
    let with = same(&looked_at, &|| assert_eq!(volume.write_at(0, &data, Persist::Cached).unwrap(), SECTOR));
    assert!(2 * with >= without, "the same time: {without} without a look, {with} with one");
}

#[test]
fn a_deleted_file_is_opened_to_be_saved_and_not_to_be_written() {
    if !cfg!(target_os = "linux") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    drop(create(&dir, FileOptions::default()));
    let held = fs::File::open(dir.path().join("v")).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&held));
    let open = |mode| FileVolume::open(Path::new(&path), mode, FileOptions::default());
    drop(open(OpenMode::ReadWrite).unwrap());
    fs::remove_file(dir.path().join("v")).unwrap();
    let error = open(OpenMode::ReadWrite).unwrap_err().to_string();
    assert!(error.contains("was deleted, so its data is lost"), "{error}");
    open(OpenMode::ReadOnly).unwrap();
}

#[test]
fn who_finds_a_lock_at_home_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let (path, too) = (dir.path().join("v"), dir.path().join("too"));
    let volume = create(&dir, FileOptions::default());
    fs::hard_link(&path, &too).unwrap();
    for name in [&path, &too] {
        let error = FileVolume::open(name, OpenMode::ReadOnly, FileOptions::default()).unwrap_err();
        assert!(is_open_here(name) && error.to_string().contains("this process has"), "{error}");
    }
    drop(volume);
    assert!(!is_open_here(&path));
    let elsewhere = fs::File::open(&path).unwrap();
    elsewhere.lock().unwrap();
    let error = FileVolume::open(&path, OpenMode::ReadOnly, FileOptions::default()).unwrap_err();
    assert!(error.to_string().contains("open elsewhere"), "{error}");
}

/// Each operation of a queue fails for itself, with what the system says.
#[test]
fn an_error_of_a_queue_is_passed_on() {
    for io_uring in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let mut volume = create(&dir, FileOptions { io_uring, ..FileOptions::default() });
        // A handle that may not be written to, which the volume does not know.
        Arc::get_mut(&mut volume.inner).unwrap().file = fs::File::open(dir.path().join("v")).unwrap();
        for persist in [Persist::Cached, Persist::Durable] {
            let mut queue = volume.queue(1).unwrap();
            queue.submit(1, Op::Write { offset: 0, data: filled(SECTOR, 1).freeze(), persist });
            let mut done = Vec::new();
            queue.reap(true, &mut done);
            let error = done[0].result.as_ref().expect_err("nothing was written");
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::BADF.raw_os_error()));
        }
    }
}

#[test]
fn a_link_to_nothing_is_named_with_its_target() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v");
    std::os::unix::fs::symlink("elsewhere/target", &path).unwrap();
    let error = FileVolume::open(&path, OpenMode::Create, FileOptions::default()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert!(error.to_string().contains("v is a symbolic link to elsewhere/target"), "{error}");
}

#[test]
fn is_open_once_for_writing_or_often_for_reading() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v");
    let open = |mode| FileVolume::open(&path, mode, FileOptions::default());
    let volume = create(&dir, FileOptions::default());
    write_all_at(&volume, 0, &filled(SECTOR, 6), Persist::Durable).unwrap();
    assert_eq!(kind(open(OpenMode::ReadWrite)), io::ErrorKind::ResourceBusy);
    assert_eq!(kind(open(OpenMode::ReadOnly)), io::ErrorKind::ResourceBusy);
    assert_eq!(read_unlocked(&path, 100, 3).unwrap(), [6; 3]);
    assert_eq!(read_unlocked(&path, (1 << 20) - 1, 10).unwrap(), [0]);

    let queue = volume.queue(1).unwrap();
    drop(volume);
    assert_eq!(kind(open(OpenMode::ReadWrite)), io::ErrorKind::ResourceBusy, "the queue holds the lock");
    drop(queue);
    let readers = [open(OpenMode::ReadOnly).unwrap(), open(OpenMode::ReadOnly).unwrap()];
    assert_eq!(kind(open(OpenMode::ReadWrite)), io::ErrorKind::ResourceBusy);
    drop(readers);
    open(OpenMode::ReadWrite).unwrap();
}

#[test]
fn refuses_what_is_no_volume() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| kind(FileVolume::open(path, mode, FileOptions::default()));
    assert_eq!(open(dir.path(), OpenMode::ReadWrite), io::ErrorKind::IsADirectory);
    assert_eq!(open(dir.path(), OpenMode::ReadOnly), io::ErrorKind::IsADirectory);
    assert_eq!(open(Path::new("/dev/null"), OpenMode::ReadWrite), io::ErrorKind::InvalidInput);
    assert_eq!(open(&dir.path().join("none"), OpenMode::ReadWrite), io::ErrorKind::NotFound);
}

#[test]
fn a_read_only_volume_takes_no_change() {
    let dir = tempfile::tempdir().unwrap();
    drop(create(&dir, FileOptions::default()));
    let path = dir.path().join("v");
    let volume = FileVolume::open(&path, OpenMode::ReadOnly, FileOptions::default()).unwrap();
    let denied = io::ErrorKind::PermissionDenied;
    assert_eq!(kind(volume.write_at(0, &filled(SECTOR, 1), Persist::Cached)), denied);
    assert_eq!(kind(volume.grow(2 << 20)), denied);
    assert_eq!(kind(volume.shrink(0)), denied);
    let mut queue = volume.queue(1).unwrap();
    queue.submit(7, Op::Write { offset: 0, data: filled(SECTOR, 1).freeze(), persist: Persist::Cached });
    let mut done = Vec::new();
    queue.reap(true, &mut done);
    assert_eq!((done[0].token, done[0].result.as_ref().unwrap_err().kind()), (7, denied));
    assert_eq!(volume.read_at(0, &mut AlignedBuf::zeroed(SECTOR)).unwrap(), SECTOR);
}

#[test]
fn grows_and_shrinks_but_never_by_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions::default());
    let end = 1 << 20;
    let past = |offset| kind(volume.write_at(offset, &filled(2 * SECTOR, 1), Persist::Cached));
    assert_eq!(past(end - SECTOR as u64), io::ErrorKind::InvalidInput);
    assert_eq!(past(u64::MAX - SECTOR as u64 + 1), io::ErrorKind::InvalidInput);
    volume.grow(100).unwrap();
    assert_eq!(volume.size().unwrap(), end, "a volume grows to at least the given size");
    volume.shrink(SECTOR as u64).unwrap();
    assert_eq!(past(0), io::ErrorKind::InvalidInput);
    assert_eq!(volume.read_at(0, &mut AlignedBuf::zeroed(2 * SECTOR)).unwrap(), SECTOR);
    assert_eq!(fs::metadata(dir.path().join("v")).unwrap().len(), SECTOR as u64);
    assert!(volume.grow(1 << 60).is_err(), "no disk is that large");
    assert_eq!(fs::metadata(dir.path().join("v")).unwrap().len(), SECTOR as u64);
    assert_eq!(volume.size().unwrap(), SECTOR as u64);
}

#[test]
fn a_queue_has_a_sane_depth() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions::default());
    for depth in [0, MAX_DEPTH + 1] {
        assert_eq!(volume.queue(depth).err().map(|e| e.kind()), Some(io::ErrorKind::InvalidInput));
    }
    volume.queue(MAX_DEPTH).unwrap();
}

#[test]
#[should_panic(expected = "is not a multiple")]
fn alignment_is_asserted() {
    let dir = tempfile::tempdir().unwrap();
    let volume = create(&dir, FileOptions { direct: false, io_uring: false, ..FileOptions::default() });
    let _ = volume.read_at(512, &mut AlignedBuf::zeroed(SECTOR));
}

/// Bytes that the file takes on its file system.
#[cfg(target_os = "linux")]
fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().blocks() * 512
}

#[cfg(target_os = "linux")]
#[test]
fn space_is_given_back_and_taken_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let volume = FileVolume::open(&path, OpenMode::Create, FileOptions::default()).unwrap();
    const MIB: u64 = 1 << 20;
    volume.grow(4 * MIB).unwrap();
    let mut data = AlignedBuf::zeroed(4 << 20);
    data.fill(7);
    volume.write_at(0, &data, Persist::Cached).unwrap();
    volume.flush().unwrap();
    let before = allocated(&path);
    if !volume.punch(MIB..3 * MIB).unwrap() {
        println!("skipped: {:?}", volume.info().fallbacks);
        return;
    }
    assert!(allocated(&path) + 2 * MIB <= before + (64 << 10), "{} of {before}", allocated(&path));
    assert_eq!(volume.size().unwrap(), 4 * MIB);
    volume.allocate_range(2 * MIB..4 * MIB).unwrap();
    volume.read_at(0, &mut data).unwrap();
    let at = |mib: usize| data[mib << 20];
    assert_eq!((at(0), at(1), at(2), at(3)), (7, 0, 0, 7), "what was not given back stays");
    volume.flush().unwrap();
    assert!(allocated(&path) + MIB <= before + (64 << 10) && allocated(&path) + MIB + (64 << 10) >= before);
    assert!(volume.punch(3 * MIB..5 * MIB).is_err() && volume.allocate_range(3 * MIB..5 * MIB).is_err());
}

/// As on XFS where nothing is free: see `secure`.
#[cfg(target_os = "linux")]
#[test]
fn writing_to_what_holds_no_data_allocates_it_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let volume = FileVolume::open(&path, OpenMode::Create, FileOptions::default()).unwrap();
    const PART: u64 = 256 << 10;
    volume.grow(8 * PART).unwrap();
    for part in [0, 2, 5] {
        let mut data = AlignedBuf::zeroed(PART as usize);
        data.fill(part as u8 + 1);
        volume.write_at(part * PART, &data, Persist::Cached).unwrap();
    }
    volume.flush().unwrap();
    let full = allocated(&path);
    let read = || {
        let mut data = AlignedBuf::zeroed(8 * PART as usize);
        volume.read_at(0, &mut data).unwrap();
        data
    };
    if !volume.punch(PART..2 * PART).unwrap() || !volume.punch(6 * PART..7 * PART).unwrap() {
        println!("skipped: {:?}", volume.info().fallbacks);
        return;
    }
    let before = read();
    volume.inner.write_holes(SECTOR as u64..8 * PART).unwrap();
    volume.flush().unwrap();
    assert!(read()[..] == before[..]);
    assert!(allocated(&path) + (64 << 10) >= full, "{} of {full}", allocated(&path));
}
