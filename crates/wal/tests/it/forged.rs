//! Blocks that no log writes: sound by every checksum, wrong by what they say. Recovery takes none
//! of them, and says why.

use std::sync::Arc;

use brooklet_io::{ManualClock, MemVolume, SECTOR, Volume};
use brooklet_wal::{
    Codec, Config, Cursor, End, Header, Opening, Records, Recovery, Start, Wal, WalError, Zone, checksum,
    recover,
};

const SIZE: u64 = 64 << 10;
const ZONE: Zone = Zone { offset: 0, size: SIZE, store: 7 };
const FIRST: Cursor = Cursor { position: 0, seq: 1, lsn: 0, chain: 0 };
const HEADER: usize = 96;

/// A ring with three acknowledged blocks of a record each, of which `forge` writes the second anew.
fn forged(forge: impl FnOnce(&mut Header, &mut Vec<u8>)) -> MemVolume {
    let volume = MemVolume::new(1);
    volume.grow(SIZE).unwrap();
    let config = Config { block_size: 4096, ..Config::default() };
    let clock = Arc::new(ManualClock::default());
    let wal = Wal::open(
        Arc::new(volume.clone()),
        ZONE,
        config,
        Opening { tail: 0, next: FIRST, epoch: 1 },
        clock,
        Arc::new(()),
    );
    for n in 0..3 {
        wal.append(&[n; 100]).unwrap().1.wait().unwrap();
    }
    let mut image = volume.image();
    let block = &mut image[SECTOR..2 * SECTOR];
    let (mut header, _) = Header::decode(block).unwrap();
    let mut stored = block[HEADER..HEADER + header.stored_len as usize].to_vec();
    header.stored_len = u32::MAX;
    forge(&mut header, &mut stored);
    header.payload_sum = checksum(&stored);
    if header.stored_len == u32::MAX {
        header.stored_len = stored.len() as u32;
    }
    header.encode(block);
    block[HEADER..HEADER + stored.len()].copy_from_slice(&stored);
    MemVolume::from_image(image, 1)
}

fn read(volume: &MemVolume, acked: u64) -> Result<(usize, Recovery), WalError> {
    let mut records = 0;
    let start = Start { cursor: FIRST, acked, clean: false, epoch: 1 };
    let recovery = recover(volume, ZONE, start, |block, _| {
        records += Records::new(block.data()).count();
        Ok::<_, WalError>(())
    })?;
    Ok((records, recovery))
}

/// The second block is not taken, and what is wrong with it is told.
#[track_caller]
fn refused(volume: &MemVolume, because: &str) {
    match read(volume, 0) {
        Err(WalError::Damaged { seq: 2, position, what, .. }) => {
            assert!(position == SECTOR as u64 && what.contains(because), "{what}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_payload_that_is_not_what_its_header_says_is_damage() {
    refused(&forged(|header, _| header.codec = Codec::Lz4), "does not decompress");
    refused(&forged(|header, _| header.raw_len += 1), "does not decompress");
    refused(&forged(|_, stored| stored[0] = 0xff), "records are malformed");
    refused(
        &forged(|header, stored| {
            stored.truncate(50);
            header.raw_len = 50;
        }),
        "records are malformed",
    );
}

#[test]
fn a_block_longer_than_the_ring_has_room_for_is_damage() {
    refused(&forged(|header, _| header.stored_len = SIZE as u32), "longer than the ring");
    // A ring that has shrunk since may have had room for it, and no ring for more than a gibibyte.
    refused(&forged(|header, _| header.raw_len = SIZE as u32 + 1), "does not decompress");
    refused(&forged(|header, _| header.raw_len = (1 << 30) + 1), "longer than the ring");
}

#[test]
fn a_block_out_of_its_turn_is_damage() {
    refused(&forged(|header, _| header.seq = 4), "does not follow");
    refused(&forged(|header, _| header.lsn += 1), "does not follow");
    refused(&forged(|header, _| header.previous ^= 1), "does not follow");
    refused(&forged(|header, _| header.epoch = 9), "an earlier opening");
}

/// Where the log ends, a block that says it was written there on a later lap is evidence of a lost
/// trim only if it is of this opening: one of an opening before may be what a crash dropped, in a
/// ring that had another size then.
#[test]
fn a_block_of_a_later_lap_is_no_evidence_if_it_is_of_an_earlier_opening() {
    let volume = forged(|_, _| {});
    let read = |epoch| {
        let mut image = volume.image();
        let position = 3 * SECTOR as u64 + SIZE;
        let header = Header { store: ZONE.store, epoch, seq: 20, position, acked: 19, ..Header::default() };
        header.encode(&mut image[3 * SECTOR..]);
        let start = Start { cursor: FIRST, acked: 3, clean: false, epoch: 2 };
        recover(&MemVolume::from_image(image, 1), ZONE, start, |_, _| Ok(()))
    };
    let found = read(1).unwrap();
    assert_eq!((found.blocks, found.end), (3, End::Open));
    for epoch in [2, 3] {
        match read(epoch) {
            Err(WalError::Damaged { seq: 4, what, .. }) => assert!(what.contains("a later lap"), "{what}"),
            other => panic!("epoch {epoch}: {other:?}"),
        }
    }
}

/// A codec from the future under a sound checksum: an older version must not guess.
#[test]
fn an_unknown_codec_is_no_block() {
    let volume = forged(|_, _| {});
    assert_eq!(read(&volume, 0).unwrap().0, 3);
    // And one that the version of the block did not have.
    for (version, codec) in [(2, 3), (1, 2), (3, 0)] {
        let mut image = volume.image();
        let block = &mut image[SECTOR..2 * SECTOR];
        (block[4], block[6]) = (version, codec);
        let sum = checksum(&block[..88]);
        block[88..96].copy_from_slice(&sum.to_le_bytes());
        refused(&MemVolume::from_image(image, 1), "the header is damaged");
    }
}

/// No later block speaks for the last one: the superblock alone can.
#[test]
fn what_the_superblock_vouches_for_is_damage_and_what_nobody_does_is_a_torn_end() {
    let volume = forged(|_, _| {});
    volume.flip(2 * SECTOR + 120, 0);
    assert!(matches!(read(&volume, 3), Err(WalError::Damaged { seq: 3, .. })));
    let (records, recovery) = read(&volume, 2).unwrap();
    assert_eq!((records, recovery.end), (2, End::Torn(0)));
}

/// On a ring large enough to be read by a thread ahead, and on a small one: the visitor's refusal
/// is the answer, and nothing more is read for it.
#[test]
fn whoever_takes_the_blocks_may_refuse_them() {
    for size in [SIZE, 4 << 20] {
        let volume = MemVolume::new(1);
        volume.grow(size).unwrap();
        let zone = Zone { size, ..ZONE };
        let clock = Arc::new(ManualClock::default());
        let config = Config { block_size: 4096, ..Config::default() };
        let wal = Wal::open(
            Arc::new(volume.clone()),
            zone,
            config,
            Opening { tail: 0, next: FIRST, epoch: 1 },
            clock,
            Arc::new(()),
        );
        for n in 0..10 {
            wal.append(&[n; 100]).unwrap().1.wait().unwrap();
        }
        let start = Start { cursor: FIRST, acked: 0, clean: false, epoch: 1 };
        let mut visited = 0;
        let refused = recover(&volume, zone, start, |_, header| {
            visited += 1;
            if header.seq == 4 { Err(WalError::Closed) } else { Ok(()) }
        });
        assert!(matches!(refused, Err(WalError::Closed)), "{refused:?}");
        assert_eq!(visited, 4);
    }
}
