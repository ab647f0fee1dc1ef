//! Logs on raw block devices: loop devices stand in, with sectors of 512 and of 4096 bytes, by
//! io_uring and by threads. Where there are none (they want root), each test says so and passes.

#![cfg(target_os = "linux")]

#[path = "../../../brooklet/tests/it/common/disk.rs"]
#[expect(dead_code, reason = "the store's tests resize and rebuild devices, these do not")]
mod disk;

use std::sync::Arc;

use brooklet_io::{FileOptions, FileVolume, OpenMode, Rng, Volume};
use brooklet_wal::{Log, LogError, WalError};

use crate::logs::model::{KIB, Script, options};
use disk::Disk;

/// Runs `test` on a device with each size of sectors, by each way that there is here.
fn on_devices(bytes: u64, test: impl Fn(Arc<dyn Volume>)) {
    for sector in [512, 4096] {
        for io_uring in [true, false] {
            let disk = match Disk::new(bytes, sector) {
                Ok(disk) => disk,
                Err(why) => return println!("skipped: {why}"),
            };
            let options = FileOptions { io_uring, ..FileOptions::default() };
            let volume = FileVolume::open(&disk.path, OpenMode::ReadWrite, options).unwrap();
            let device = volume.info().device.expect("it is a device");
            assert_eq!(device.logical_block, sector);
            test(Arc::new(volume));
        }
    }
}

#[test]
fn a_log_on_a_device_is_its_model() {
    on_devices(4096 * KIB, |volume| {
        let mut script = Script { file: Some(volume.clone()), ..Script::new(3) };
        script.create().unwrap();
        for _ in 0..100 {
            script.step().unwrap();
            let mut rng = Rng::new(script.rng.next());
            script.model.check_open(script.log(), &mut rng);
        }
    });
}

/// A ring fills its device; nobody trims, so an append fails; a trim makes room. It cannot grow
/// past the device's end.
#[test]
fn a_device_has_an_end() {
    on_devices(1024 * KIB, |volume| {
        let log = Log::create(volume, options().ring_size(960 * KIB).overwrite(true)).unwrap();
        let (mut appended, mut last) = (0, log.first());
        let full = loop {
            match log.try_append(&[7; 3000]).and_then(|(lsn, ack)| ack.wait().map(|()| lsn)) {
                Ok(lsn) => (appended, last) = (appended + 1, lsn),
                Err(error) => break error,
            }
        };
        assert!(matches!(full, WalError::Full { .. }) && appended > 100, "{full} after {appended}");
        assert_eq!(log.recover().map(|record| record.unwrap().1.len()).sum::<usize>(), appended * 3000);
        log.trim(last).unwrap();
        assert!(matches!(log.resize(1024 * KIB), Err(LogError::Wal(_))));
        log.append(b"goes on").unwrap().1.wait().unwrap();
        log.close().unwrap();
    });
}
