//! Recovery tells its four cases apart: the end, a torn tail, stale blocks, and damage to what was
//! acknowledged. And who waits for a block is told how it ended.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use brooklet_io::{ManualClock, MemVolume, SECTOR, Volume};
use brooklet_wal::{
    Ack, Committer, Config, Cursor, End, Header, Opening, Pause, Records, Recovery, Start, Wal, WalError,
    Zone, recover,
};

const SIZE: u64 = 64 << 10;
const ZONE: Zone = Zone { offset: 0, size: SIZE, store: 7 };
const FIRST: Cursor = Cursor { position: 0, seq: 1, lsn: 0, chain: 0 };

fn open(volume: &MemVolume, tail: u64, next: Cursor, epoch: u64) -> Wal {
    let config = Config { block_size: 4096, ..Config::default() };
    let clock = Arc::new(ManualClock::default());
    Wal::open(Arc::new(volume.clone()), ZONE, config, Opening { tail, next, epoch }, clock, Arc::new(()))
}

fn fresh() -> (MemVolume, Wal) {
    let volume = MemVolume::new(1);
    volume.grow(SIZE).unwrap();
    let wal = open(&volume, 0, FIRST, 1);
    (volume, wal)
}

fn image(bytes: Vec<u8>) -> MemVolume {
    MemVolume::from_image(bytes, 1)
}

fn start(cursor: Cursor) -> Start {
    Start { cursor, acked: cursor.seq - 1, clean: false, epoch: 1 }
}

/// The recovered records, and what recovery says.
fn read(volume: &MemVolume, start: Start) -> Result<(Vec<Vec<u8>>, Recovery), WalError> {
    let mut records = Vec::new();
    let recovery = recover(volume, ZONE, start, |block, _| {
        records.extend(Records::new(block.data()).flatten().map(|(_, record)| record.to_vec()));
        Ok::<_, WalError>(())
    })?;
    Ok((records, recovery))
}

/// Appends records one by one, each in a block of its own.
fn append(wal: &Wal, records: impl IntoIterator<Item = u8>) {
    for n in records {
        wal.append(&[n; 100]).unwrap().1.wait().unwrap();
    }
}

fn records(range: impl IntoIterator<Item = u8>) -> Vec<Vec<u8>> {
    range.into_iter().map(|n| vec![n; 100]).collect()
}

/// Two full blocks in flight at once, behind `before` acknowledged ones; the crash images in which
/// the first of the two was lost and the second persisted.
fn lost_and_persisted(before: u8) -> Vec<Vec<u8>> {
    let at = |image: &[u8], block: u64| {
        let position = (u64::from(before) + block) as usize * SECTOR;
        Header::decode(&image[position..]).is_some_and(|(h, _)| h.seq == u64::from(before) + 1 + block)
    };
    let mut images = Vec::new();
    // The volume completes what is queued in its own time; some seeds leave both blocks in flight.
    for seed in 0..50 {
        let volume = MemVolume::from_image(vec![0; SIZE as usize], seed);
        let wal = open(&volume, 0, FIRST, 1);
        append(&wal, 0..before);
        let mut committer = Committer::new(&wal).unwrap();
        for n in [100, 101, 102] {
            // Two do not fit in one block, so each closes the block before it.
            drop(wal.try_append(3900, false, Duration::MAX, |out| out(&[n; 3900])).unwrap());
        }
        while committer.step() == Pause::None {}
        let crashes = (0..50).map(|_| volume.crash());
        images.extend(crashes.filter(|image| !at(image, 0) && at(image, 1)));
    }
    images
}

#[test]
fn a_closed_log_ends_where_it_says() {
    let (volume, wal) = fresh();
    append(&wal, 0..5);
    let end = wal.close().unwrap();
    let clean = Start { cursor: FIRST, acked: end.seq - 1, clean: true, epoch: 1 };
    let (got, recovery) = read(&volume, clean).unwrap();
    assert_eq!((got, recovery.end, recovery.next), (records(0..5), End::Clean, end));
    assert!(matches!(wal.append(b"x"), Err(WalError::Closed)));
}

#[test]
fn a_log_that_was_not_closed_ends_at_its_last_block() {
    let (volume, wal) = fresh();
    append(&wal, 0..5);
    let (got, recovery) = read(&volume, start(FIRST)).unwrap();
    assert_eq!((got, recovery.end, recovery.bytes_read), (records(0..5), End::Open, SIZE));
}

#[test]
fn a_torn_block_that_nothing_says_was_acknowledged_is_dropped() {
    let (volume, wal) = fresh();
    append(&wal, 0..5);
    let mut torn = volume.image();
    torn[4 * SECTOR + 150] ^= 1;
    let (got, recovery) = read(&image(torn), start(FIRST)).unwrap();
    assert_eq!((got, recovery.end), (records(0..4), End::Torn(0)));
}

#[test]
fn a_lost_block_takes_later_ones_of_its_window_with_it() {
    let images = lost_and_persisted(3);
    assert!(!images.is_empty());
    for lost in images {
        let (got, recovery) = read(&image(lost), start(FIRST)).unwrap();
        assert_eq!((got, recovery.next.seq), (records(0..3), 4));
        assert!(matches!(recovery.end, End::Torn(_)));
    }
}

/// The block behind the lost one stays on the disk, whole. When the lost one is written again, with
/// the very same record, it must not come back: nobody was told that it was safe, and the log went
/// on without it.
#[test]
fn a_block_of_an_earlier_crash_never_follows_a_new_one() {
    let again = |lost: &[u8], epoch: u64| {
        let volume = image(lost.to_vec());
        let (_, recovery) = read(&volume, start(FIRST)).unwrap();
        let wal = open(&volume, 0, recovery.next, epoch);
        let (_, ack) = wal.append(&[100; 3900]).unwrap();
        ack.wait().unwrap();
        let claimed = Start { acked: 3, epoch, ..start(FIRST) };
        read(&volume, claimed).unwrap().0.len()
    };
    let images = lost_and_persisted(3);
    assert!(images.iter().all(|lost| again(lost, 2) == 4));
    // Not where the stale block is torn.
    let followed = images.iter().filter(|lost| again(lost, 1) == 5).count();
    assert!(followed > 0, "without a new epoch the stale block would follow: this is what epochs are for");
}

#[test]
fn every_acknowledged_block_that_is_damaged_is_named() {
    let (volume, wal) = fresh();
    append(&wal, 0..6);
    for block in 0..5u64 {
        for byte in [0, 20, 60, 95, 120] {
            let mut bad = volume.image();
            bad[block as usize * SECTOR + byte] ^= 0x10;
            match read(&image(bad), start(FIRST)) {
                Err(WalError::Damaged { seq, position, .. }) => {
                    assert_eq!((seq, position), (block + 1, block * SECTOR as u64));
                }
                other => panic!("block {block}, byte {byte}: {other:?}"),
            }
        }
    }
    // The last block is vouched for by nobody but the superblock, or an empty block behind it.
    let mut bad = volume.image();
    bad[5 * SECTOR + 120] ^= 0x10;
    let knows = Start { acked: 6, ..start(FIRST) };
    assert!(matches!(read(&image(bad), knows), Err(WalError::Damaged { seq: 6, .. })));
}

#[test]
fn an_idle_log_says_that_its_last_block_is_acknowledged() {
    let (volume, wal) = fresh();
    append(&wal, 0..3);
    let mut committer = Committer::new(&wal).unwrap();
    while committer.step() != Pause::Sleep(Duration::MAX) {}
    let mut bad = volume.image();
    bad[2 * SECTOR + 120] ^= 1;
    assert!(matches!(read(&image(bad), start(FIRST)), Err(WalError::Damaged { seq: 3, .. })));
    let written = wal.stats().blocks;
    for _ in 0..100 {
        committer.step();
    }
    assert_eq!(wal.stats().blocks, written, "it says so once");
}

#[test]
fn laps_and_gaps_at_their_ends_are_followed() {
    let (volume, wal) = fresh();
    let mut cursor = FIRST;
    let mut kept: Vec<Vec<u8>> = Vec::new();
    for n in 0..400u32 {
        let record = vec![n as u8; 1 + (n as usize * 997) % 12_000];
        if n % 3 == 0 {
            // Everything so far is somewhere else: trim to the end of what is durable.
            let cut = wal.cut();
            wal.flush().unwrap();
            cursor = wal.cut_cursor(cut).unwrap();
            wal.trim(cursor);
            kept.clear();
        }
        wal.append(&record).unwrap().1.wait().unwrap();
        kept.push(record);
        let (got, recovery) = read(&volume, start(cursor)).unwrap();
        assert!(got == kept, "after record {n}");
        assert_eq!(recovery.next.seq, u64::from(n) + 2);
    }
    assert!(cursor.position > 10 * SIZE, "the ring went round");
}

#[test]
fn a_full_ring_refuses_and_takes_again_after_a_trim() {
    let (_, wal) = fresh();
    let mut appended = 0;
    let full = loop {
        match wal.try_append(3000, false, Duration::ZERO, |out| out(&[1; 3000])) {
            Ok(_) => appended += 1,
            Err(WalError::Busy) => wal.wait_for_room().unwrap(),
            Err(error) => break error,
        }
        wal.flush().unwrap();
    };
    assert!(matches!(full, WalError::Full { .. }) && appended > 8, "{full} after {appended}");
    let freeing = wal.try_append(10, true, Duration::ZERO, |out| out(b"trim"));
    assert!(freeing.is_ok(), "what frees space finds room: {freeing:?}");
    let cut = wal.cut();
    wal.flush().unwrap();
    wal.trim(wal.cut_cursor(cut).unwrap());
    drop(wal.try_append(3000, false, Duration::ZERO, |out| out(&[1; 3000])).unwrap());
    let too_large = wal.append(&vec![0; 20_000]);
    assert!(matches!(too_large, Err(WalError::TooLarge { len: 20_000, .. })));
}

#[test]
fn a_failed_write_stops_the_log_and_tells_everybody() {
    let (volume, wal) = fresh();
    append(&wal, 0..2);
    volume.fail(brooklet_io::Fault::ErrorAfter {
        operations: 0,
        kind: std::io::ErrorKind::Other,
        sticky: false,
    });
    let (_, first) = wal.append(b"lost").unwrap();
    let (_, second) = wal.append(b"lost too").unwrap();
    let (sender, told) = std::sync::mpsc::channel();
    second.on_done(move |result| sender.send(result.is_err()).unwrap());
    assert!(matches!(first.wait(), Err(WalError::Stopped(_))));
    assert!(told.recv().unwrap());
    // The device works again, but what it lost in between nobody knows: the log stays stopped.
    assert!(matches!(wal.append(b"x"), Err(WalError::Stopped(_))));
    assert!(matches!(wal.close(), Err(WalError::Stopped(_))));
}

#[test]
fn another_stores_blocks_and_garbage_are_no_blocks() {
    let (volume, wal) = fresh();
    append(&wal, 0..3);
    let other = Zone { store: 8, ..ZONE };
    let recovery = recover(&volume, other, start(FIRST), |_, _| Ok::<_, WalError>(())).unwrap();
    assert_eq!((recovery.blocks, recovery.end), (0, End::Open));
    let mut rng = brooklet_io::Rng::new(9);
    for _ in 0..200 {
        let mut noise = volume.image();
        let from = rng.below(SIZE) as usize;
        noise[from..].iter_mut().take(5000).for_each(|b| *b = rng.next() as u8);
        // Whatever comes of it, it is a prefix or a named error, and no panic.
        if let Ok((got, _)) = read(&image(noise), start(FIRST)) {
            assert!(records(0..3).starts_with(&got));
        }
    }
}

/// Two histories of the same lengths: a block of the one in the place of its twin in the other is
/// whole, and fits by all its numbers. Only the chain tells.
#[test]
fn a_block_of_another_history_does_not_follow() {
    let history = |first: u8| {
        let (volume, wal) = fresh();
        append(&wal, [first, 1, 2, 3, 4]);
        volume.image()
    };
    let (ours, theirs) = (history(0), history(9));
    let mut spliced = ours.clone();
    spliced[2 * SECTOR..3 * SECTOR].copy_from_slice(&theirs[2 * SECTOR..3 * SECTOR]);
    match read(&image(spliced), start(FIRST)) {
        Err(WalError::Damaged { seq: 3, .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(read(&image(ours), start(FIRST)).unwrap().0.len(), 5);
}

#[test]
fn a_callback_that_panics_keeps_nobody_from_being_told() {
    let (_, wal) = fresh();
    let (_, ack) = wal.append(b"x").unwrap();
    ack.on_done(|_| panic!("a user's mistake, made on purpose"));
    let (sender, told) = std::sync::mpsc::channel();
    ack.on_done(move |result| sender.send(result.is_ok()).unwrap());
    ack.wait().unwrap();
    assert_eq!(told.recv_timeout(Duration::from_secs(120)), Ok(true));
    append(&wal, 1..3);
}

struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Two tasks may await an acknowledgement and its clone, even if the first had looked at it before.
#[test]
fn a_clone_of_an_ack_is_awaited_by_itself() {
    let (_, wal) = fresh();
    let (_, ack) = wal.append(b"x").unwrap();
    let wakers = [(); 2].map(|()| Arc::new(Count(AtomicUsize::new(0))));
    let poll = |ack: &mut Ack, waker: &Arc<Count>| {
        Pin::new(ack).poll(&mut Context::from_waker(&Waker::from(waker.clone()))).is_ready()
    };
    let mut first = ack;
    assert!(!poll(&mut first, &wakers[0]));
    let mut second = first.clone();
    assert!(!poll(&mut second, &wakers[1]));
    wal.flush().unwrap();
    assert_eq!(wakers.each_ref().map(|w| w.0.load(Ordering::SeqCst)), [1, 1]);
    assert!(poll(&mut first, &wakers[0]) && poll(&mut second, &wakers[1]));
}
