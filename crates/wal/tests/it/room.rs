//! What is appended finds its place: records of all sizes, piled up before they are written, on
//! rings of all sizes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use brooklet_io::{Clock, ManualClock, MemVolume, Rng, Volume};
use brooklet_wal::{Committer, Config, Cursor, Opening, Pause, Wal, WalError, Zone, max_record};

fn pile_up(seed: u64) {
    let mut rng = Rng::new(seed);
    let size = (64 << 10) << rng.below(6);
    let volume = MemVolume::new(seed);
    volume.grow(size).unwrap();
    let zone = Zone { offset: 0, size, store: 1 };
    let config = Config { reserve_percent: rng.below(30) as u8, ..Config::default() };
    let first = Cursor { seq: 1, ..Cursor::default() };
    let clock = Arc::new(ManualClock::default());
    let wal = Wal::open(
        Arc::new(volume),
        zone,
        config,
        Opening { tail: 0, next: first, epoch: 1 },
        clock,
        Arc::new(()),
    );
    let noise: Vec<u8> = (0..max_record(size)).map(|_| rng.next() as u8).collect();
    let mut cuts = VecDeque::new();
    for _ in 0..600 {
        let len = match rng.below(10) {
            0 => noise.len(),
            1 => rng.below(noise.len() as u64) as usize,
            _ => rng.below(2000) as usize,
        };
        match wal.try_append(len, rng.percent(10), Duration::ZERO, |out| out(&noise[..len])) {
            Ok(_) => {}
            Err(WalError::Busy) => wal.wait_for_room().unwrap(),
            Err(WalError::Full { .. }) => {
                // Half of the time everything that was cut off is trimmed, half of the time only
                // the oldest part.
                cuts.push_back(wal.cut());
                wal.flush().unwrap();
                let keep = if rng.percent(50) { 0 } else { cuts.len() - 1 };
                while cuts.len() > keep {
                    let cursor = cuts.pop_front().and_then(|cut| wal.cut_cursor(cut)).expect("it is durable");
                    wal.trim(cursor);
                }
            }
            Err(error) => panic!("{error}"),
        }
        if rng.percent(2) {
            cuts.push_back(wal.cut());
        }
    }
    wal.close().unwrap();
}

#[test]
fn what_is_appended_finds_its_place() {
    for seed in 0..400 {
        pile_up(seed);
    }
}

/// A log in a ring of the smallest size, and its clock.
fn small(seed: u64) -> (Wal, Arc<ManualClock>) {
    small_with(seed, Config { block_size: 4096, reserve_percent: 0, ..Config::default() })
}

fn small_with(seed: u64, config: Config) -> (Wal, Arc<ManualClock>) {
    let size = 64 << 10;
    let volume = MemVolume::new(seed);
    volume.grow(size).unwrap();
    let zone = Zone { offset: 0, size, store: 1 };
    let at = Opening { tail: 0, next: Cursor { seq: 1, ..Cursor::default() }, epoch: 1 };
    let clock = Arc::new(ManualClock::default());
    (Wal::open(Arc::new(volume), zone, config, at, clock.clone(), Arc::new(())), clock)
}

/// Appends until the ring is full, and makes all records durable.
fn fill(wal: &Wal) {
    loop {
        match wal.try_append(3000, false, Duration::ZERO, |out| out(&[7; 3000])) {
            Ok(_) => wal.flush().unwrap(),
            Err(error) => return assert!(matches!(error, WalError::Full { .. }), "{error}"),
        }
    }
}

/// Frees the whole ring.
fn trim_all(wal: &Wal) {
    let cut = wal.cut();
    wal.trim(wal.cut_cursor(cut).expect("all blocks are placed"));
}

/// The committer of a full log cannot write the empty block that records the last acknowledged one.
/// In an earlier state it tried again each millisecond, as long as the log was full.
#[test]
fn the_committer_of_a_full_log_sleeps_until_a_trim() {
    let (wal, _) = small(1);
    let mut committer = Committer::new(&wal).unwrap();
    fill(&wal);
    // The clock stands still: a rest without an end lasts for the longest time.
    let sleeps = (0..100).any(|_| committer.step() == Pause::Sleep(Duration::MAX));
    assert!(sleeps, "it asks again and again");
    let blocks = wal.stats().blocks;
    trim_all(&wal);
    committer.drain();
    assert_eq!(wal.stats().blocks, blocks + 1, "the empty block has room now");
    wal.close().unwrap();
}

/// The empty block that records the last acknowledged one keeps the pace, too. In an earlier state,
/// the committer asked each millisecond whether it might write the block now.
#[test]
fn the_committer_sleeps_until_the_pace_permits_the_empty_block() {
    let interval = Duration::from_secs(10);
    let (wal, clock) = small_with(1, Config { interval, ..Config::default() });
    let mut committer = Committer::new(&wal).unwrap();
    wal.try_append(100, false, Duration::ZERO, |out| out(&[7; 100])).unwrap();
    for _ in 0..200 {
        if let Pause::Sleep(time) = committer.step()
            && time <= interval
        {
            clock.advance(time);
        }
    }
    assert_eq!(wal.stats().blocks, 2, "it asks again and again");
    assert!(clock.now() >= interval, "the empty block came too soon");
    wal.close().unwrap();
}
