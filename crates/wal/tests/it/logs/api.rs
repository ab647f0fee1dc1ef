//! What a log takes and gives back, call by call.

use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use brooklet_io::{Completion, Layer, MemVolume, Persist, Queue, Rng, SECTOR, Volume};
use brooklet_wal::{Header, Log, LogError, LogOptions, Lsn, WalError};

use crate::logs::model::{KIB, collect, drive, options, read};

fn fresh() -> (MemVolume, Log) {
    let volume = MemVolume::new(1);
    let log = Log::create(Arc::new(volume.clone()), options()).unwrap();
    (volume, log)
}

fn open(volume: &MemVolume) -> Result<Log, LogError> {
    Log::open(Arc::new(volume.clone()), options())
}

#[test]
fn records_of_every_length_come_back_in_order() {
    let volume = MemVolume::new(1);
    let options = || options().ring_size(16 << 20).largest_record(5 << 20).block_size(64 << 10);
    let log = Log::create(Arc::new(volume.clone()), options()).unwrap();
    let mut rng = Rng::new(1);
    let mut given = Vec::new();
    for len in [0, 1, 127, 128, 5000, 64 << 10, (1 << 21) - 2, (1 << 21) - 1, 1 << 21, 5 << 20, 0] {
        let record: Vec<u8> = (0..len).map(|_| rng.next() as u8).collect();
        let (lsn, ack) = log.append(&record).unwrap();
        ack.wait().unwrap();
        given.push((lsn, record));
    }
    assert!(given.is_sorted_by(|a, b| a.0 < b.0));
    assert!(read(&log) == given);
    for (n, (lsn, _)) in given.iter().enumerate() {
        assert!(collect(log.read_from(*lsn).unwrap()) == given[n..]);
    }
    let over = log.append(&vec![0; (5 << 20) + 1]);
    assert!(matches!(over, Err(WalError::TooLarge { len, limit }) if len == limit + 1 && limit == 5 << 20));
    assert_eq!(log.largest_record(), 5 << 20);
    log.close().unwrap();
    let log = Log::open(Arc::new(volume), options()).unwrap();
    assert!(read(&log) == given);
}

#[test]
fn a_batch_numbers_its_records_one_by_one_and_may_be_trimmed_inside() {
    let (volume, log) = fresh();
    let (before, _) = log.append(b"before").unwrap();
    let (first, ack) = log.append_batch(&[b"a", b"", b"c"]).unwrap();
    let (behind, _) = log.append(b"behind").unwrap();
    let (empty, none) = log.append_batch(&[]).unwrap();
    assert!(before < first && first.0 + 2 < behind.0 && behind < empty);
    ack.wait().unwrap();
    none.wait().unwrap();
    log.trim(Lsn(first.0 + 1)).unwrap();
    let kept = [(Lsn(first.0 + 1), vec![]), (Lsn(first.0 + 2), b"c".to_vec()), (behind, b"behind".to_vec())];
    assert_eq!(read(&log), kept);
    drop(log);
    assert_eq!(read(&open(&volume).unwrap()), kept);
    let parts = vec![&[0u8; 1000][..]; 9];
    let log = open(&volume).unwrap();
    assert!(matches!(log.append_batch(&parts), Err(WalError::TooLarge { .. })));
}

#[test]
fn trims_past_the_end_are_refused_and_trims_backwards_do_nothing() {
    let (volume, log) = fresh();
    let lsns: Vec<Lsn> = (0..20).map(|n| log.append(&[n; 500]).unwrap().0).collect();
    let end = log.next();
    let past = Lsn(end.0 + 1);
    assert!(matches!(log.trim(past), Err(LogError::PastEnd { lsn, end: e }) if lsn == past && e == end));
    assert!(matches!(log.read_from(past), Err(LogError::PastEnd { .. })));
    log.trim(lsns[10]).unwrap();
    let operations = volume.operations();
    log.trim(lsns[3]).unwrap();
    log.trim(lsns[10]).unwrap();
    assert_eq!(volume.operations(), operations, "nothing to do, nothing done");
    assert_eq!((log.first(), read(&log).len()), (lsns[10], 10));
    let gone = log.read_from(lsns[3]).err();
    assert!(matches!(gone, Some(LogError::Trimmed { lsn, first }) if lsn == lsns[3] && first == lsns[10]));
    log.trim(lsns[11]).unwrap();
    assert_eq!(volume.operations(), operations + 1, "a trim is one write");
    log.trim(end).unwrap();
    assert_eq!((log.stats().ring.used, read(&log).len()), (0, 0));
}

#[test]
fn a_full_ring_refuses_those_who_do_not_wait_and_lets_others_go_on_after_a_trim() {
    let (_, log) = fresh();
    let full = loop {
        match log.try_append(&[1; 3000]) {
            Ok((_, ack)) => ack.wait().unwrap(),
            Err(error) => break error,
        }
    };
    assert!(matches!(full, WalError::Full { .. }), "{full}");
    let (sender, appended) = channel();
    std::thread::scope(|scope| {
        scope.spawn(|| sender.send(log.append(&[2; 3000]).and_then(|(_, ack)| ack.wait())).unwrap());
        assert!(appended.recv_timeout(Duration::from_millis(30)).is_err(), "there was no room yet");
        let reader = log.recover();
        log.trim(collect(reader)[9].0).unwrap();
        appended.recv_timeout(Duration::from_secs(120)).expect("there is room now").unwrap();
    });
    // Or in a larger ring.
    while log.try_append(&[3; 3000]).map(|(_, ack)| ack.wait().unwrap()).is_ok() {}
    log.resize(256 * KIB).unwrap();
    log.try_append(&[4; 3000]).unwrap();
}

/// In the old state the log called such a record damaged, and did not open any more.
#[test]
fn a_ring_may_be_smaller_than_a_compressed_record_is_long() {
    let volume = MemVolume::new(1);
    let large = options().ring_size(1 << 20).largest_record(300 << 10).block_size(1 << 20);
    let log = Log::create(Arc::new(volume.clone()), large).unwrap();
    let records = [vec![0; 300 << 10], b"behind".to_vec()];
    let given = records.map(|record| {
        let (lsn, ack) = log.append(&record).unwrap();
        ack.wait().unwrap();
        (lsn, record)
    });
    log.resize(64 * KIB).unwrap();
    assert_eq!(read(&log), given);
    log.abandon();
    assert_eq!(read(&open(&volume).unwrap()), given);
}

/// A trim takes no room in the ring, so none is kept free for it: records fill it but for the
/// sector that a lap's end may cost, and a full log is trimmed all the same.
#[test]
fn a_log_keeps_no_reserve() {
    let (_, log) = fresh();
    for _ in 0..3 {
        while let Ok((_, ack)) = log.try_append(&[1; 100]) {
            ack.wait().unwrap();
        }
        assert!(log.stats().ring.used >= 64 * KIB - SECTOR as u64);
        log.trim(log.next()).unwrap();
        assert_eq!(log.stats().ring.used, 0);
    }
}

#[test]
fn a_closed_log_is_not_read_behind_its_end() {
    let (volume, log) = fresh();
    log.resize(16 << 20).unwrap();
    log.append(b"x").unwrap();
    log.close().unwrap();
    assert!(matches!(log.close(), Err(LogError::Wal(WalError::Closed))));
    assert!(matches!(log.append(b"x"), Err(WalError::Closed)));
    assert!(matches!(log.trim(log.next()), Err(LogError::Wal(WalError::Closed))));
    assert_eq!(read(&log).len(), 1, "what is there can still be read");
    drop(log);
    let reads = volume.reads();
    let log = open(&volume).unwrap();
    let clean = volume.reads() - reads;
    drop(log);
    let reads = volume.reads();
    let log = open(&volume).unwrap();
    let dropped = volume.reads() - reads;
    assert!(clean <= 6 && dropped >= 17, "{clean} reads, {dropped} where it was not closed");
    assert_eq!((read(&log).len(), log.stats().epoch), (1, 3));
}

#[test]
fn a_dropped_log_has_written_what_it_took_and_an_abandoned_one_has_not() {
    let (volume, log) = fresh();
    let (_, ack) = log.append(b"taken").unwrap();
    drop(log);
    assert!(ack.is_done());
    let log = open(&volume).unwrap();
    assert_eq!(read(&log).len(), 1);
    let (_, ack) = log.append(b"taken, too").unwrap();
    log.abandon();
    assert!(matches!(ack.wait(), Err(WalError::Closed)));
    assert_eq!(read(&open(&volume).unwrap()).len(), 1);
}

#[test]
fn waiting_with_a_limit_tells_whether_it_is_done() {
    let (_, log) = fresh();
    let (_, ack) = log.append(b"x").unwrap();
    // Nobody writes: there is no thread, and this does not do it.
    assert!(!ack.wait_timeout(Duration::from_millis(5)).unwrap());
    drive(&log);
    assert!(ack.wait_timeout(Duration::ZERO).unwrap());
    let (_, ack) = log.append(b"x").unwrap();
    log.abandon();
    assert!(matches!(ack.wait_timeout(Duration::from_secs(9)), Err(WalError::Closed)));
    let volume = Arc::new(MemVolume::new(1));
    let log = Log::create(volume, LogOptions::new().ring_size(64 * KIB)).unwrap();
    let (_, ack) = log.append(b"x").unwrap();
    assert!(ack.wait_timeout(Duration::from_secs(120)).unwrap(), "the committer does it");
}

#[test]
fn statistics_tell_how_the_log_stands() {
    let (_, log) = fresh();
    let (_, ack) = log.append(&[1; 100]).unwrap();
    let stats = log.stats();
    assert_eq!((stats.first, stats.durable, stats.next.0), (Lsn(0), Lsn(0), 104));
    ack.wait().unwrap();
    let stats = log.stats();
    assert_eq!((stats.durable, stats.ring.records, stats.ring.blocks), (stats.next, 1, 1));
    assert_eq!((stats.ring.used, stats.ring.size, stats.epoch), (4 * KIB, 64 * KIB, 1));
    assert_eq!(stats.volume.name, "memory");
    assert_eq!(log.identity(), 7);
}

/// Whatever acknowledged block is damaged is named, with its LSN, by the opening and by whoever
/// reads it.
#[test]
fn damage_to_what_was_acknowledged_is_an_error_that_names_the_lsn() {
    let (volume, log) = fresh();
    let lsns: Vec<Lsn> = (0..8)
        .map(|n| {
            let (lsn, ack) = log.append(&[n; 100]).unwrap();
            ack.wait().unwrap();
            lsn
        })
        .collect();
    log.trim(lsns[2]).unwrap();
    let image = volume.image();
    for (n, damaged) in lsns.iter().enumerate().skip(2).take(5) {
        let at = 64 * KIB as usize + n * SECTOR;
        assert!(Header::decode(&image[at..]).is_some());
        for byte in [5, 60, 120] {
            let volume = MemVolume::from_image(image.clone(), 1);
            volume.flip(at + byte, 3);
            match open(&volume) {
                Err(LogError::Wal(WalError::Damaged { lsn, .. })) => assert_eq!(Lsn(lsn), *damaged),
                other => panic!("block {n}, byte {byte}: {other:?}"),
            }
        }
    }
    volume.flip(64 * KIB as usize + 4 * SECTOR + 120, 1);
    let mut reader = log.recover();
    assert_eq!(reader.by_ref().take(2).map(|record| record.unwrap().0).collect::<Vec<_>>(), lsns[2..4]);
    let damage = reader.next();
    assert!(matches!(damage, Some(Err(LogError::Wal(WalError::Damaged { lsn, .. }))) if Lsn(lsn) == lsns[4]));
    assert!(reader.next().is_none());
}

/// The ring is freed after the label says so, and not before.
#[test]
fn a_trim_that_is_not_recorded_frees_nothing() {
    let (volume, log) = fresh();
    for n in 0..5 {
        log.append(&[n; 100]).unwrap().1.wait().unwrap();
    }
    let (kept, used) = (read(&log), log.stats().ring.used);
    let kind = io::ErrorKind::Other;
    volume.fail(brooklet_io::Fault::ErrorAfter { operations: 0, kind, sticky: false });
    assert!(matches!(log.trim(log.next()), Err(LogError::Wal(WalError::Stopped(_)))));
    assert_eq!((log.stats().ring.used, log.first(), read(&log)), (used, Lsn(0), kept));
}

/// A failed growth leaves the log as it was.
#[test]
fn a_volume_that_cannot_grow_keeps_its_log() {
    let (volume, log) = fresh();
    volume.fail(brooklet_io::Fault::Full(150 * KIB));
    assert!(matches!(log.resize(1 << 20), Err(LogError::Wal(WalError::Io(_)))));
    for size in [0, 4 * KIB, 64 * KIB + 1, 1 << 50] {
        assert!(matches!(log.resize(size), Err(LogError::Invalid { .. })), "{size}");
    }
    log.append(b"x").unwrap().1.wait().unwrap();
    assert_eq!((log.stats().ring.size, volume.size().unwrap()), (64 * KIB, 128 * KIB));
}

/// A device that takes a write and does not answer before it is told to.
#[derive(Clone, Debug)]
struct Hanging {
    disk: MemVolume,
    gate: Arc<(Mutex<bool>, Condvar)>,
}

impl Hanging {
    fn hang(&self) {
        drop(self.gate.1.wait_while(self.gate.0.lock().unwrap(), |hangs| *hangs).unwrap());
    }
}

impl Layer for Hanging {
    fn below(&self) -> &dyn Volume {
        &self.disk
    }
    fn write_at(&self, offset: u64, data: &[u8], persist: Persist) -> io::Result<usize> {
        self.hang();
        self.below().write_at(offset, data, persist)
    }
    fn reap(&self, queue: &mut dyn Queue, wait: bool, out: &mut Vec<Completion>) {
        if wait {
            self.hang();
        }
        if !*self.gate.0.lock().unwrap() {
            queue.reap(wait, out);
        }
    }
    fn wait(&self, queue: &mut dyn Queue, patience: Duration) {
        self.hang();
        queue.wait(patience);
    }
}

/// Whoever waits with a limit is answered although the device is not; what hangs becomes durable
/// when it goes on.
#[test]
fn a_device_that_hangs_in_a_write_does_not_hold_who_waits_with_a_limit() {
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let volume = Arc::new(Hanging { disk: MemVolume::new(1), gate: gate.clone() });
    let log = Log::create(volume, LogOptions::new().ring_size(64 * KIB)).unwrap();
    *gate.0.lock().unwrap() = true;
    let acks: Vec<_> = (0..3).map(|n| log.append(&[n; 10]).unwrap().1).collect();
    for ack in acks.iter().chain(&acks) {
        assert!(!ack.wait_timeout(Duration::from_millis(10)).unwrap());
    }
    *gate.0.lock().unwrap() = false;
    gate.1.notify_all();
    assert!(acks.iter().all(|ack| ack.wait_timeout(Duration::from_secs(120)).unwrap()));
}
