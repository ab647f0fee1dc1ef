//! The same over files, by io_uring and by threads.

use std::sync::Arc;

use brooklet_io::{FileOptions, FileVolume, OpenMode, Rng, Volume};
use brooklet_wal::Log;

use crate::logs::live::all_at_once;
use crate::logs::model::{KIB, Script, options};

/// Runs `test` on a new file, by each way that there is here.
fn on_files(test: impl Fn(Arc<dyn Volume>)) {
    for io_uring in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let options = FileOptions { io_uring, ..FileOptions::default() };
        let volume = FileVolume::open(&dir.path().join("log"), OpenMode::Create, options).unwrap();
        let backend = volume.info().backend;
        if io_uring && backend != "io_uring" {
            eprintln!("skipped: io_uring is not to be had ({:?})", volume.info().fallbacks);
            continue;
        }
        test(Arc::new(volume));
    }
}

#[test]
fn a_log_in_a_file_is_its_model() {
    on_files(|volume| {
        for seed in 0..8 {
            volume.shrink(0).unwrap();
            let mut script = Script { file: Some(volume.clone()), ..Script::new(seed) };
            script.create().unwrap();
            for _ in 0..50 {
                script.step().unwrap();
                let mut rng = Rng::new(script.rng.next());
                script.model.check_open(script.log(), &mut rng);
            }
        }
    });
}

#[test]
fn resizing_a_file_under_load_loses_nothing() {
    on_files(|volume| all_at_once(volume, 1500));
}

/// A ring that became smaller gives its space back, at once or when what was in the way is trimmed.
#[test]
fn a_file_is_as_large_as_its_ring() {
    on_files(|volume| {
        let log = Log::create(volume.clone(), options().ring_size(1024 * KIB)).unwrap();
        let size = || volume.size().unwrap() / KIB - 64;
        assert_eq!(size(), 1024);
        log.append(b"first").unwrap().1.wait().unwrap();
        log.resize(512 * KIB).unwrap();
        assert_eq!((size(), log.stats().settling), (512, false));
        // What lives lies beyond the end of the smaller ring: sectors 100 and up of 128.
        for n in 0..110u32 {
            let (lsn, ack) = log.append(&n.to_le_bytes()).unwrap();
            ack.wait().unwrap();
            if n < 100 {
                log.trim(lsn).unwrap();
            }
        }
        log.resize(128 * KIB).unwrap();
        assert_eq!((size(), log.stats().settling), (512, true));
        let (lsn, ack) = log.append(b"behind").unwrap();
        ack.wait().unwrap();
        log.trim(lsn).unwrap();
        assert_eq!((size(), log.stats().settling), (128, false));
        assert_eq!(log.recover().map(|read| read.unwrap().1).collect::<Vec<_>>(), ["behind"]);
        log.resize(2048 * KIB).unwrap();
        assert_eq!(size(), 2048);
    });
}
