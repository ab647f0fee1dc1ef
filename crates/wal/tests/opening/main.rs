//! What it costs to open a ring: a few megabytes and the blocks at hand, however large the ring is,
//! and no reading of the end of a lap that was skipped. What stands behind such an end is told as
//! anywhere else.

#![expect(clippy::disallowed_methods, reason = "a visitor takes its time")]

mod heap;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use brooklet_io::{ManualClock, MemVolume, SECTOR, Volume};
use brooklet_wal::{
    Codec, Config, Cursor, End, Header, Opening, Recovery, Start, Wal, WalError, Zone, checksum, max_record,
    put_varint, recover,
};

use self::heap::most_held;

const MIB: u64 = 1 << 20;
/// What the reader and the blocks that wait take of a ring of small blocks.
const FEW: u64 = 12 * MIB;

/// The heap is one: these tests take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Ring {
    volume: MemVolume,
    wal: Wal,
    size: u64,
    /// Where the live blocks start.
    tail: Cursor,
}

impl Ring {
    fn new(size: u64) -> Self {
        let volume = MemVolume::new(1);
        volume.grow(size).unwrap();
        let config =
            Config { block_size: 64 << 10, codec: Codec::Raw, reserve_percent: 0, ..Config::default() };
        let (tail, clock) = (Cursor { seq: 1, ..Cursor::default() }, Arc::new(ManualClock::default()));
        let within = Arc::new(volume.clone());
        let wal = Wal::open(
            within,
            zone(size),
            config,
            Opening { tail: 0, next: tail, epoch: 1 },
            clock,
            Arc::new(()),
        );
        Self { volume, wal, size, tail }
    }

    /// A ring whose log has come so near to the end of the lap that just the longest record does
    /// not fit there; half of it is trimmed.
    fn before_a_gap(size: u64) -> Self {
        let mut ring = Self::new(size);
        let longest = max_record(size) as u64;
        while size - ring.head().position >= longest {
            ring.append(60 << 10);
            if ring.tail.position == 0 && ring.head().position > size / 2 {
                ring.tail = ring.head();
                ring.wal.trim(ring.tail);
            }
        }
        assert!(size - ring.head().position > longest - MIB / 4);
        ring
    }

    /// A block with one record.
    fn append(&self, len: usize) {
        self.wal.append(&vec![1; len]).unwrap().1.wait().unwrap();
    }

    fn head(&self) -> Cursor {
        self.wal.cut_cursor(self.wal.cut()).unwrap()
    }

    /// What a superblock knows that was written when everything before the tail was acknowledged.
    fn start(&self) -> Start {
        Start { cursor: self.tail, acked: self.tail.seq - 1, clean: false, epoch: 1 }
    }

    fn recover(&self, start: Start) -> Recovery {
        read(&self.volume, self.size, start).unwrap()
    }
}

fn zone(size: u64) -> Zone {
    Zone { offset: 0, size, store: 7 }
}

fn read(volume: &MemVolume, size: u64, start: Start) -> Result<Recovery, WalError> {
    recover(volume, zone(size), start, |_, _| Ok(()))
}

#[test]
fn a_skipped_end_of_a_lap_is_neither_held_nor_read() {
    let _turn = turn();
    let ring = Ring::before_a_gap(96 * MIB);
    let (gap, longest) = (ring.size - ring.head().position, max_record(ring.size));
    ring.append(longest);
    let (head, lap) = (ring.head(), ring.size);
    assert_eq!(head.position, lap + (longest as u64).next_multiple_of(SECTOR as u64) + SECTOR as u64);
    let clean = Start { acked: head.seq - 1, clean: true, ..ring.start() };
    let before = ring.volume.counts().read_bytes;
    let (found, held) = most_held(|| ring.recover(clean));
    assert_eq!((found.next, found.end), (head, End::Clean));
    let read = ring.volume.counts().read_bytes - before;
    // A long block is held twice: as it lies in the ring, and as its reader gets it.
    assert!((held as u64) < 2 * longest as u64 + FEW, "{held} bytes held");
    assert!(
        read < found.block_bytes + FEW && found.bytes_read < found.block_bytes + FEW && gap > 2 * FEW,
        "{read} bytes read"
    );
}

#[test]
fn the_next_lap_is_looked_at_where_the_log_ends_without_holding_what_lies_before_it() {
    let _turn = turn();
    let ring = Ring::before_a_gap(96 * MIB);
    let (found, held) = most_held(|| ring.recover(ring.start()));
    assert_eq!((found.next, found.end), (ring.head(), End::Open));
    assert!((held as u64) < FEW, "{held} bytes held");
    // The sector that was looked at is read once more when its turn comes.
    assert_eq!(found.bytes_read, ring.size + SECTOR as u64);
}

#[test]
fn long_blocks_do_not_pile_up_before_one_who_takes_time() {
    let _turn = turn();
    let ring = Ring::new(96 * MIB);
    (0..11).for_each(|_| ring.append(8 << 20));
    let mut first = true;
    let before = ring.volume.counts().read_bytes;
    let visit = |_: &_, _: &_| {
        if std::mem::take(&mut first) {
            std::thread::sleep(Duration::from_millis(500));
            let ahead = ring.volume.counts().read_bytes - before;
            // The one at hand, two that wait, and the one that finds no place.
            assert!(ahead <= 4 * 8 * MIB + FEW, "{ahead} bytes ahead");
        }
        Ok::<_, WalError>(())
    };
    let found = recover(&ring.volume, zone(ring.size), ring.start(), visit).unwrap();
    assert_eq!(found.blocks, 11);
}

/// A long block at the start of the lap behind a skipped end, further ahead than is read before its
/// turn, and a short one behind it: the image, what the superblock knows, where the log stood
/// before the two, and where it stands behind them.
fn behind_a_gap() -> (Vec<u8>, Start, Cursor, Cursor) {
    let ring = Ring::before_a_gap(32 * MIB);
    let before = ring.head();
    ring.append(max_record(ring.size));
    ring.append(100);
    (ring.volume.image(), ring.start(), before, ring.head())
}

const SIZE: u64 = 32 * MIB;

fn recover_image(image: &[u8], start: Start) -> Result<Recovery, WalError> {
    read(&MemVolume::from_image(image.to_vec(), 1), SIZE, start)
}

/// Rewrites the header of the block at `offset`.
fn forge(image: &mut [u8], offset: u64, change: impl FnOnce(&mut Header)) {
    let block = &mut image[offset as usize..];
    let (mut header, _) = Header::decode(block).unwrap();
    change(&mut header);
    header.encode(block);
}

#[test]
fn damage_behind_a_skipped_end_is_told_where_the_block_was_missed() {
    let _turn = turn();
    let (mut image, start, before, end) = behind_a_gap();
    let last = recover_image(&image, start).unwrap();
    assert_eq!((last.next, last.end), (end, End::Open));
    let knows = Start { acked: before.seq, ..start };
    // The magic, the header, its checksum, the first and the last byte of the payload.
    for byte in [0, 20, 95, 96, max_record(SIZE) as u64 + 50] {
        image[byte as usize] ^= 4;
        for (start, witness) in
            [(start, format!("block {}", before.seq + 1)), (knows, "the superblock".into())]
        {
            match recover_image(&image, start) {
                Err(WalError::Damaged { seq, position, lsn, what }) => {
                    assert_eq!((seq, position, lsn), (before.seq, before.position, before.lsn), "{what}");
                    assert!(
                        what.starts_with("no block of this lap is there;") && what.contains(&witness),
                        "{what}"
                    );
                }
                other => panic!("byte {byte}: {other:?}"),
            }
        }
        image[byte as usize] ^= 4;
    }
}

#[test]
fn a_torn_or_stale_block_behind_a_skipped_end_is_dropped() {
    let _turn = turn();
    let (mut image, start, before, _) = behind_a_gap();
    // In flight together when the power went: the last block does not say that the long one is
    // acknowledged.
    let last = (max_record(SIZE) as u64).next_multiple_of(SECTOR as u64) + SECTOR as u64;
    forge(&mut image, last, |header| header.acked = before.seq - 1);
    let found = |image: &[u8], start| {
        let found = recover_image(image, start).unwrap();
        (found.next, found.end)
    };
    let opened_again = Start { acked: before.seq - 1, epoch: 2, ..start };
    assert_eq!(found(&image, opened_again), (before, End::Torn(2)), "both are of an earlier opening");
    image[5000] ^= 1;
    assert_eq!(found(&image, start), (before, End::Torn(2)), "the header of the torn one is whole");
    image[20] ^= 1;
    assert_eq!(found(&image, start), (before, End::Torn(1)));
    image[last as usize] ^= 1;
    assert_eq!(found(&image, start), (before, End::Open), "nothing is left of either");
}

/// What would have fitted behind the last block was not written at the start of the next lap.
#[test]
fn a_block_that_had_no_reason_to_skip_the_end_of_a_lap_is_not_the_next() {
    let _turn = turn();
    let (mut image, start, before, _) = behind_a_gap();
    let left = (SIZE - before.position) as usize;
    for (record, taken) in [(left, 1), (left - SECTOR, 0)] {
        let mut stored = Vec::new();
        put_varint(&mut |bytes| stored.extend(bytes), record as u64);
        stored.resize(stored.len() + record, 1);
        image[96..96 + stored.len()].copy_from_slice(&stored);
        forge(&mut image, 0, |header| {
            (header.stored_len, header.raw_len) = (stored.len() as u32, stored.len() as u32);
            header.payload_sum = checksum(&stored);
        });
        let missed = match recover_image(&image, start) {
            Ok(found) => found.next.seq,
            Err(WalError::Damaged { seq, .. }) => seq,
            Err(error) => panic!("{error}"),
        };
        assert_eq!(missed, before.seq + taken);
    }
}
