//! What threads share in a file volume, under a scheduler that tries interleavings: the sync that
//! serves many, and the queue of threads. Everyone's operation ends, once and well, and nobody
//! waits for ever.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p brooklet-io --test shuttle -- --nocapture`
//! runs them; see `crates/wal/tests/shuttle`.

#![cfg(shuttle)]

#[path = "../../../wal/tests/shuttle/explore.rs"]
mod explore;

use std::sync::Arc;
use std::time::Duration;

use brooklet_io::{AlignedBuf, Durable, FileOptions, FileVolume, Op, OpenMode, Persist, SECTOR, Volume};
use explore::{explore, rng};
use shuttle::thread;
use tempfile::TempDir;

/// A volume of so many sectors, whose durable writes share their syncs.
fn volume(sectors: u64) -> (Arc<FileVolume>, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let options =
        FileOptions { direct: false, io_uring: false, durable: Durable::Flush, ..FileOptions::default() };
    let volume = FileVolume::open(&dir.path().join("volume"), OpenMode::Create, options).unwrap();
    volume.grow(sectors * SECTOR as u64).unwrap();
    (Arc::new(volume), dir)
}

fn sector(fill: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(SECTOR);
    buf.fill(fill);
    buf
}

#[test]
fn a_sync_serves_all_who_came_before_it() {
    explore("io::sync", 1_500, || {
        let (volume, _dir) = volume(3);
        let writers = (0..3_u8).map(|n| {
            let volume = volume.clone();
            thread::spawn(move || {
                for round in 0..2 {
                    let at = u64::from(n) * SECTOR as u64;
                    let done = volume.write_at(at, &sector(n + round), Persist::Durable).unwrap();
                    assert_eq!(done, SECTOR);
                    thread::yield_now();
                }
                volume.flush().unwrap();
            })
        });
        writers.collect::<Vec<_>>().into_iter().for_each(|writer| writer.join().unwrap());
        let syncs = volume.counts().flushes;
        assert!((2..=9).contains(&syncs), "{syncs} syncs for nine who asked");
        let mut read = AlignedBuf::zeroed(3 * SECTOR);
        volume.read_at(0, &mut read).unwrap();
        assert!((0..3).all(|n| read[n * SECTOR] == n as u8 + 1));
    });
}

#[test]
fn a_queue_of_threads_ends_what_it_took() {
    explore("io::queue", 1_500, || {
        let (volume, _dir) = volume(8);
        let mut queue = volume.queue(3).unwrap();
        let waker = queue.waker();
        let bell = thread::spawn(move || (0..2).for_each(|_| waker.wake_by_ref()));
        let mut done = Vec::new();
        for token in 0..8 {
            while queue.in_flight() == 3 {
                if rng().percent(50) {
                    queue.wait(Duration::from_secs(3600));
                }
                queue.reap(rng().percent(50), &mut done);
            }
            let offset = token * SECTOR as u64;
            let persist = if rng().percent(50) { Persist::Durable } else { Persist::Cached };
            queue.submit(token, Op::Write { offset, data: sector(token as u8).freeze(), persist });
        }
        if rng().percent(50) {
            while queue.in_flight() > 0 {
                queue.reap(true, &mut done);
            }
            let mut tokens: Vec<_> = done.iter().map(|done| done.token).collect();
            tokens.sort_unstable();
            assert!(tokens.into_iter().eq(0..8));
        }
        // Dropping it waits for what is in flight.
        drop(queue);
        bell.join().unwrap();
        assert!(done.iter().all(|done| matches!(done.result, Ok(SECTOR))));
        let mut read = AlignedBuf::zeroed(8 * SECTOR);
        volume.read_at(0, &mut read).unwrap();
        assert!((0..8).all(|n| read[n * SECTOR] == n as u8));
    });
}
