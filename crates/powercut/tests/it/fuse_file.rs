//! What the store's volume has to know about files of FUSE, against a real one. Each test is
//! skipped, with the reason printed, where no FUSE file system can be mounted.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::sync::Arc;

use brooklet::io::{
    AlignedBuf, Fault, FileOptions, FileVolume, Op, OpenMode, Persist, SECTOR, Volume, read_exact_at,
    write_all_at,
};
use brooklet_powercut::drive::Drive;
use brooklet_powercut::host::{Served, names, need_fuse};

/// Runs a test on a file of 4 MiB, where that can be had.
fn on_fuse(test: impl FnOnce(&Drive, &Path)) {
    let drive = Arc::new(Drive::new(vec![0; 4 << 20], 1));
    let served = need_fuse().and_then(|()| Served::new(drive.clone(), names("file")));
    match served {
        Ok(served) => test(&drive, &served.path().join("file")),
        Err(error) => println!("{error}"),
    }
}

fn filled(len: usize, byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(len);
    buf.fill(byte);
    buf
}

/// Data sync by flag has no effect on FUSE: the kernel takes `RWF_DSYNC` for a direct write, and
/// sends no sync.
#[test]
fn a_durable_write_survives() {
    on_fuse(|drive, path| {
        for (round, io_uring) in [true, false].into_iter().enumerate() {
            let options = FileOptions { io_uring, ..FileOptions::default() };
            let volume = FileVolume::open(path, OpenMode::ReadWrite, options).unwrap();
            let byte = round as u8 + 1;
            write_all_at(&volume, 0, &filled(SECTOR, byte), Persist::Durable).unwrap();
            let mut queue = volume.queue(1).unwrap();
            let data = filled(SECTOR, byte).freeze();
            queue.submit(0, Op::Write { offset: SECTOR as u64, data, persist: Persist::Durable });
            let mut done = Vec::new();
            queue.reap(true, &mut done);
            assert!(matches!(done[0].result, Ok(SECTOR)), "{:?}", done[0].result);
            for _ in 0..8 {
                assert!(drive.crash()[..2 * SECTOR].iter().all(|&b| b == byte), "{:?}", volume.info());
            }
        }
    });
}

/// Found by power cuts with short transfers: after a short direct write the kernel's ring wrote the
/// rest over the first part, since FUSE leaves the position where it was, and told of the whole as
/// done.
#[test]
fn the_rest_of_a_short_write_is_where_it_belongs() {
    on_fuse(|drive, path| {
        drive.fail(Fault::ShortTransfers);
        let volume = FileVolume::open(path, OpenMode::ReadWrite, FileOptions::default()).unwrap();
        let mut queue = volume.queue(1).unwrap();
        for i in 0..64 {
            let mut buf = AlignedBuf::zeroed(16 * SECTOR);
            buf.chunks_mut(SECTOR).enumerate().for_each(|(n, sector)| sector.fill((i + n) as u8));
            let (offset, data) = ((i * 16 * SECTOR) as u64, buf.freeze());
            queue.submit(0, Op::Write { offset, data: data.clone(), persist: Persist::Durable });
            let mut done = Vec::new();
            queue.reap(true, &mut done);
            let n = *done[0].result.as_ref().unwrap();
            write_all_at(&volume, offset + n as u64, &data[n..], Persist::Durable).unwrap();
            let mut back = AlignedBuf::zeroed(16 * SECTOR);
            read_exact_at(&volume, offset, &mut back).unwrap();
            assert!(back[..] == data[..], "write {i}: {n} bytes at {offset} are not what was written");
        }
    });
}
