//! Readers, writers, trims and resizes at once.

#![expect(clippy::disallowed_methods, reason = "a thread that polls shows that in time only")]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use brooklet_io::{MemVolume, SECTOR, Volume};
use brooklet_wal::{Log, LogError, LogOptions, Lsn, WalError};

use crate::logs::model::{KIB, options};

fn record(n: u64) -> Vec<u8> {
    (0..1 + n * 37 % 3000).map(|i| (n + i) as u8).collect()
}

/// A trim and new blocks overtake a reader that has begun: it gives right records, and then says
/// what happened.
#[test]
fn a_reader_that_is_overtaken_says_so() {
    let volume = MemVolume::new(1);
    let log = Log::create(Arc::new(volume), options()).unwrap();
    let mut given = Vec::new();
    let mut append = |n| {
        let (lsn, ack) = log.append(&record(n)).unwrap();
        ack.wait().unwrap();
        given.push(lsn);
    };
    (0..10).for_each(&mut append);
    let readers = [log.recover(), log.recover()];
    for n in 10..60 {
        append(n);
        log.trim(log.next()).unwrap();
    }
    for mut reader in readers {
        // It had not read anything yet.
        match reader.next() {
            Some(Err(LogError::Trimmed { lsn, first })) => assert_eq!((lsn, first), (Lsn(0), log.first())),
            other => panic!("{other:?}"),
        }
        assert!(reader.next().is_none());
    }
}

/// A log that takes no record until a trim.
fn full() -> Log {
    let options = LogOptions::new().ring_size(64 * KIB).largest_record(4 << 10);
    let log = Log::create(Arc::new(MemVolume::new(1)), options).unwrap();
    loop {
        match log.try_append(&[7; 4000]) {
            // A block that is on its way may yet turn out to be smaller.
            Ok((_, ack)) => ack.wait().unwrap(),
            Err(WalError::Full { .. }) => return log,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A thread that waits for room sleeps until a trim. A thread that polls goes to sleep again and
/// again.
#[cfg(target_os = "linux")]
#[test]
fn a_full_log_is_not_polled() {
    let log = full();
    let (tell, told) = channel();
    std::thread::scope(|scope| {
        let log = &log;
        let waiter = scope.spawn(move || {
            tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            log.append(&[8; 4000]).unwrap().1.wait().unwrap();
        });
        let status = Path::new("/proc").join(told.recv().unwrap()).join("status");
        while log.stats().ring.waiting == 0 {
            std::thread::yield_now();
        }
        let sleeps = || -> u64 {
            let status = std::fs::read_to_string(&status).unwrap();
            let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            count.unwrap().trim().parse().unwrap()
        };
        let before = sleeps();
        std::thread::sleep(Duration::from_millis(300));
        let slept = sleeps() - before;
        log.trim(log.next()).unwrap();
        waiter.join().unwrap();
        assert!(slept < 10, "it went to sleep {slept} times");
    });
}

/// A thread that waits for room learns that the log is closed.
#[test]
fn a_full_log_that_is_closed_leaves_nobody_waiting() {
    let log = full();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| log.append(&[8; 4000]).map(drop));
        while log.stats().ring.waiting == 0 {
            std::thread::yield_now();
        }
        log.close().unwrap();
        assert!(matches!(waiter.join().unwrap(), Err(WalError::Closed)));
    });
}

/// Two threads append so many records, one reads all the time, one trims what it has read, one
/// resizes. Every record is read once, in order, each as it was given.
pub fn all_at_once(volume: Arc<dyn Volume>, records: u64) {
    let options = LogOptions::new().ring_size(256 * KIB).largest_record(4 << 10).block_size(8 << 10);
    let log = Log::create(volume.clone(), options.clone()).unwrap();
    let ended = AtomicBool::new(false);
    let (mut resized, mut got) = (0, Vec::new());
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2u64)
            .map(|writer| {
                let log = &log;
                scope.spawn(move || {
                    for n in 0..records {
                        let mut bytes = vec![writer as u8];
                        bytes.extend((n as u32).to_le_bytes());
                        bytes.extend(record(n));
                        let (_, ack) = log.append(&bytes).unwrap();
                        if n % 50 == 0 {
                            ack.wait().unwrap();
                        }
                    }
                })
            })
            .collect();
        let reader = scope.spawn(|| {
            let (mut from, mut got) = (Lsn(0), Vec::new());
            loop {
                let last = ended.load(Ordering::SeqCst);
                for read in log.read_from(from).unwrap() {
                    let (lsn, bytes) = read.unwrap();
                    assert!(lsn >= from);
                    from = Lsn(lsn.0 + 1);
                    got.push(bytes.to_vec());
                }
                log.trim(from).unwrap();
                if last {
                    return got;
                }
            }
        });
        let sizes = [512, 192, 1024, 128, 384].map(|kib| kib * KIB);
        for size in sizes.iter().cycle() {
            if writers.iter().all(|writer| writer.is_finished()) {
                break;
            }
            match log.resize(*size) {
                Ok(()) => resized += 1,
                Err(LogError::NoRoom { .. } | LogError::Settling { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
        log.flush().unwrap();
        ended.store(true, Ordering::SeqCst);
        got = reader.join().unwrap();
    });
    assert!(resized > 3, "{resized}");
    for writer in 0..2 {
        let of = got.iter().filter(|bytes| bytes[0] == writer);
        assert!(
            of.enumerate()
                .all(|(n, bytes)| bytes[1..5] == (n as u32).to_le_bytes() && bytes[5..] == record(n as u64))
        );
    }
    assert_eq!(got.len() as u64, 2 * records);
    log.append(b"last").unwrap();
    log.close().unwrap();
    let log = Log::open(volume, options).unwrap();
    assert_eq!(log.recover().map(|read| read.unwrap().1).collect::<Vec<_>>(), ["last"]);
}

#[test]
fn readers_trims_and_resizes_go_on_while_others_append() {
    all_at_once(Arc::new(MemVolume::new(3)), 5000);
}

/// In a ring of so many blocks that not each is marked, a trim to where the last resize was still
/// ends its settling.
#[test]
fn a_large_ring_settles_when_it_is_trimmed_to_its_resize() {
    const MIB: u64 = 1 << 20;
    for odd in [0, 1] {
        let options = options().ring_size(72 * MIB);
        let log = Log::create(Arc::new(MemVolume::new(1)), options).unwrap();
        let append = || log.append(b"a block of its own").unwrap().1.wait().unwrap();
        (0..10 * MIB / SECTOR as u64).for_each(|_| append());
        log.trim(log.next()).unwrap();
        (0..66 * MIB / SECTOR as u64 + odd).for_each(|_| append());
        let until = log.next();
        log.resize(74 * MIB).unwrap();
        (0..20).for_each(|_| append());
        match log.resize(80 * MIB) {
            Err(LogError::Settling { until: told }) => assert_eq!(told, until),
            other => panic!("{other:?}"),
        }
        log.trim(until).unwrap();
        assert!(!log.stats().settling);
        assert_eq!(log.recover().count(), 20);
    }
}

/// A reader starts in a block before its first record, where not each block is marked. A trim that
/// keeps the record frees that block, whose space the volume even gives back: the reader goes on.
#[test]
fn a_reader_goes_on_when_the_blocks_before_its_records_are_freed() {
    const MIB: u64 = 1 << 20;
    for odd in [0, 1] {
        let log = Log::create(Arc::new(MemVolume::new(1)), options().ring_size(80 * MIB)).unwrap();
        let append = || log.append(b"a block of its own").unwrap().1.wait().unwrap();
        (0..10 * MIB / SECTOR as u64).for_each(|_| append());
        log.trim(log.next()).unwrap();
        (0..66 * MIB / SECTOR as u64 + odd).for_each(|_| append());
        let until = log.next();
        log.resize(72 * MIB).unwrap();
        assert!(log.stats().settling, "the last blocks lie beyond the new end");
        (0..20).for_each(|_| append());
        let (reader, overtaken) = (log.read_from(until).unwrap(), log.recover());
        log.trim(until).unwrap();
        assert!(reader.map(Result::unwrap).eq(log.recover().map(Result::unwrap)));
        assert!(matches!(overtaken.last(), Some(Err(LogError::Trimmed { .. }))));
    }
}
