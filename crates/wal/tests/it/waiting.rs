//! Those who wait: for room, for a block among several in flight, for a log that ends. And the
//! records that take longest.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use brooklet_io::{Fault, ManualClock, MemVolume, Rng, SECTOR, SystemClock, Volume};
use brooklet_wal::{
    Committer, Config, Cursor, Opening, Pause, Records, Start, Wal, WalError, Zone, max_record, recover,
};

const FIRST: Cursor = Cursor { position: 0, seq: 1, lsn: 0, chain: 0 };

fn zone(size: u64) -> Zone {
    Zone { offset: 0, size, store: 7 }
}

fn open(size: u64, seed: u64, config: Config) -> (MemVolume, Wal) {
    let volume = MemVolume::new(seed);
    volume.grow(size).unwrap();
    let clock = Arc::new(ManualClock::default());
    let wal = Wal::open(
        Arc::new(volume.clone()),
        zone(size),
        config,
        Opening { tail: 0, next: FIRST, epoch: 1 },
        clock,
        Arc::new(()),
    );
    (volume, wal)
}

fn small() -> Config {
    Config { block_size: 4096, ..Config::default() }
}

fn read(volume: &MemVolume, size: u64) -> Vec<Vec<u8>> {
    let start = Start { cursor: FIRST, acked: 0, clean: false, epoch: 1 };
    let mut records = Vec::new();
    recover(volume, zone(size), start, |block, _| {
        records.extend(Records::new(block.data()).map(|record| record.expect("sound").1.to_vec()));
        Ok::<_, WalError>(())
    })
    .unwrap();
    records
}

/// In the open block, in a closed one, and in one that is durable.
#[test]
fn records_can_be_looked_at_before_they_are_durable() {
    let (volume, wal) = open(1 << 20, 1, small());
    let record = |n: u8| vec![n; 1_500];
    let appended: Vec<_> =
        (0..5).map(|n| wal.try_append(1_500, false, Duration::MAX, |out| out(&record(n))).unwrap()).collect();
    let blocks: std::collections::BTreeSet<u64> = appended.iter().map(|it| it.block.seq()).collect();
    assert!(blocks.len() > 2, "several blocks");
    let all_are_there = || {
        for (n, it) in (0..).zip(&appended) {
            let ranges = [it.offset..it.offset + 1_500, it.offset + 7..it.offset + 9, 0..0];
            let found = wal.peek(&it.block, &ranges).unwrap().expect("no thread has taken the block");
            assert_eq!(found, [&record(n)[..], &[n, n], &[]]);
        }
    };
    all_are_there();
    wal.ack(appended[0].block.clone()).wait().unwrap();
    all_are_there();
    volume.fail(Fault::ErrorAfter { operations: 0, kind: std::io::ErrorKind::Other, sticky: false });
    wal.ack(appended[4].block.clone()).wait().unwrap_err();
    let first = std::slice::from_ref(&(0..1));
    assert!(wal.peek(&appended[4].block, first).is_err());
}

/// Lengths from 2 MiB on take more bytes.
#[test]
fn records_of_any_length_come_back_as_they_were() {
    let size = 64 << 20;
    let (volume, wal) = open(size, 1, Config::default());
    let mut rng = Rng::new(1);
    let mut expected = Vec::new();
    for len in
        [0, 1, 127, 128, 16_383, 16_384, (1 << 21) - 1, 1 << 21, (1 << 21) + 1, 5 << 20, max_record(size)]
    {
        let mut record = vec![rng.next() as u8; len];
        record.iter_mut().step_by(101).for_each(|byte| *byte = rng.next() as u8);
        let (appended, ack) = wal.append(&record).unwrap();
        wal.append(b"right behind").unwrap();
        ack.wait().unwrap();
        assert!(
            appended.block.data()[appended.offset..][..len] == record,
            "{len} bytes, as readers see them"
        );
        expected.extend([record, b"right behind".to_vec()]);
    }
    wal.flush().unwrap();
    assert!(read(&volume, size) == expected, "as recovery sees them");
}

/// Long records are copied while others are appended around them: each is whole, and at its place.
#[test]
fn records_copied_side_by_side_do_not_mix() {
    let size = 64 << 20;
    let (volume, wal) = open(size, 1, Config { block_size: 64 << 10, ..Config::default() });
    let record = |thread: u8, i: u16| {
        let len = if i.is_multiple_of(3) { 40 } else { 8192 + 37 * usize::from(i) };
        let mut record = vec![thread; len];
        record[1..3].copy_from_slice(&i.to_le_bytes());
        record
    };
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let wal = &wal;
            scope.spawn(move || {
                for i in 0..100 {
                    let (appended, ack) = wal.append(&record(thread, i)).unwrap();
                    if i % 7 == 0 {
                        ack.wait().unwrap();
                        assert!(appended.block.data()[appended.offset..].starts_with(&record(thread, i)));
                    }
                }
            });
        }
    });
    wal.flush().unwrap();
    let mut next = [0; 4];
    for found in read(&volume, size) {
        let i = &mut next[usize::from(found[0])];
        assert!(found == record(found[0], *i), "record {i} of thread {}", found[0]);
        *i += 1;
    }
    assert_eq!(next, [100; 4]);
}

/// Whoever drives a block waits for the records that are still being copied into it.
#[test]
fn a_block_is_written_when_its_last_writer_is_done() {
    let size = 64 << 20;
    let (volume, wal) = open(size, 1, Config { block_size: 8 << 20, ..Config::default() });
    let (long, done) = (vec![9; 3 << 20], std::sync::atomic::AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                wal.append(b"short").unwrap().1.wait().unwrap();
            }
        });
        for _ in 0..12 {
            wal.append(&long).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    wal.flush().unwrap();
    let found = read(&volume, size);
    assert_eq!(found.iter().filter(|record| **record == long).count(), 12);
    assert!(found.iter().all(|record| *record == long || record == b"short"), "a record has other bytes");
}

/// A log that stops while records are copied into its blocks keeps the memory that they are copied
/// to.
#[test]
fn stopping_while_records_are_appended_is_sound() {
    for seed in 0..20 {
        let (volume, wal) = open(1 << 20, seed, Config { block_size: 16 << 10, ..Config::default() });
        let kind = std::io::ErrorKind::Other;
        volume.fail(Fault::ErrorAfter { operations: 3 + seed, kind, sticky: true });
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let wal = &wal;
                scope.spawn(
                    move || while wal.append(&vec![thread; 9000]).and_then(|(_, ack)| ack.wait()).is_ok() {},
                );
            }
        });
        assert!(wal.failure().is_some());
    }
}

/// An append that finds no room waits until there is some, and is then as good as any other.
#[test]
fn an_append_waits_for_the_ring_to_be_trimmed() {
    let (_, wal) = open(64 << 10, 1, small());
    let cut = loop {
        match wal.try_append(3000, false, Duration::ZERO, |out| out(&[1; 3000])) {
            Ok(appended) => wal.ack(appended.block).wait().unwrap(),
            Err(WalError::Full { .. }) => break wal.cut(),
            Err(error) => panic!("{error}"),
        }
    };
    let (sender, appended) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (_, ack) = wal.append(&[2; 3000]).unwrap();
            ack.wait().unwrap();
            sender.send(()).unwrap();
        });
        let early = appended.recv_timeout(Duration::from_millis(30));
        assert!(early.is_err(), "there was no room yet");
        wal.trim(wal.cut_cursor(cut).unwrap());
        appended.recv_timeout(Duration::from_secs(120)).expect("there is room now");
    });
}

/// Where blocks pile up although little is in flight, compressing is what holds them up - but not
/// where one write at a time is all there may be.
#[test]
fn a_backlog_before_an_idle_device_is_stored_as_it_is() {
    for (depth, stored_as_they_are) in [(1, 0), (2, 1), (4, 2)] {
        let (_, wal) = open(1 << 20, 1, Config { block_size: 16 << 10, depth, ..Config::default() });
        // The last of them stays open.
        for _ in 0..4 {
            wal.append(&[0; 15_000]).unwrap();
        }
        let mut committer = Committer::new(&wal).unwrap();
        let long = (0..3).filter(|_| {
            let before = wal.stats().written_bytes;
            assert_eq!(committer.step(), Pause::None);
            wal.stats().written_bytes - before > SECTOR as u64
        });
        let long = long.count();
        assert!((stored_as_they_are..=2 * stored_as_they_are).contains(&long), "{long} at depth {depth}");
    }
}

/// Several blocks in flight, one of which fails: those that end well after it are not acknowledged,
/// whatever their order.
#[test]
fn a_write_that_ends_well_after_another_failed_acknowledges_nothing() {
    for seed in 0..40 {
        let (volume, wal) = open(64 << 10, seed, small());
        wal.append(b"safe").unwrap().1.wait().unwrap();
        let mut acks = Vec::new();
        for n in 0..4 {
            let appended = wal.try_append(3000, false, Duration::ZERO, |out| out(&[n; 3000])).unwrap();
            acks.push(wal.ack(appended.block));
        }
        let kind = std::io::ErrorKind::Other;
        volume.fail(Fault::ErrorAfter { operations: 0, kind, sticky: false });
        let mut committer = Committer::new(&wal).unwrap();
        while committer.step() != Pause::Ended {}
        assert!(matches!(wal.failure(), Some(WalError::Stopped(_))));
        let records = read(&volume, 64 << 10);
        for ack in &mut acks {
            assert!(matches!(ack.wait(), Err(WalError::Stopped(_))) && !ack.is_done());
            let polled = Pin::new(ack).poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(polled, Poll::Ready(Err(WalError::Stopped(_)))));
        }
        assert_eq!(records[0], b"safe");
    }
}

/// A callback left after the end is called at once, and a task that asks is answered at once.
#[test]
fn an_end_that_has_come_is_told_at_once() {
    let (_, wal) = open(64 << 10, 1, small());
    let (_, mut ack) = wal.append(b"x").unwrap();
    ack.wait().unwrap();
    let (sender, told) = channel();
    ack.on_done(move |result| sender.send(result.is_ok()).unwrap());
    assert_eq!(told.try_recv(), Ok(true));
    let polled = Pin::new(&mut ack).poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(polled, Poll::Ready(Ok(()))));
    assert_eq!(format!("{ack:?}"), "Ack(Block(1, durable: Some(true)))");
}

/// An abandoned log ends as one that was killed: who waits is told, and nothing more is written.
#[test]
fn abandoning_tells_those_who_wait_that_the_log_is_closed() {
    let (volume, wal) = open(64 << 10, 1, small());
    let (_, ack) = wal.append(b"never written").unwrap();
    let (sender, told) = channel();
    ack.on_done(move |result| sender.send(matches!(result, Err(WalError::Closed))).unwrap());
    wal.abandon();
    assert_eq!(told.try_recv(), Ok(true));
    assert!(matches!(ack.wait(), Err(WalError::Closed)));
    assert!(matches!(wal.append(b"x"), Err(WalError::Closed)));
    assert_eq!(read(&volume, 64 << 10), [] as [Vec<u8>; 0]);
}

/// A log that is being closed takes nothing more; what was appended is made durable first.
#[test]
fn closing_refuses_what_comes_later_and_keeps_what_came_before() {
    let volume = MemVolume::new(1);
    let size = 1 << 20;
    volume.grow(size).unwrap();
    let clock = Arc::new(SystemClock::default());
    let wal = Wal::open(
        Arc::new(volume.clone()),
        zone(size),
        small(),
        Opening { tail: 0, next: FIRST, epoch: 1 },
        clock,
        Arc::new(()),
    );
    let committer = Committer::new(&wal).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| committer.run());
        let appender = scope.spawn(|| {
            let mut acked = 0;
            loop {
                match wal.append(&[7; 10]).and_then(|(_, ack)| ack.wait()) {
                    Ok(()) => acked += 1,
                    Err(WalError::Closed) => return acked,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        while wal.durable() < 20 {
            std::thread::yield_now();
        }
        let end = wal.close().unwrap();
        let acked = appender.join().unwrap();
        let records = read(&volume, size).len();
        assert!(records >= acked && acked >= 19, "{acked} acknowledged, {records} there");
        assert_eq!(end.seq - 1, wal.durable());
    });
}
