//! The blocks of the ring: header, payload, records; and the recovery of a whole ring of them.
//!
//! Input: what to do (1 byte), then
//! - 0: a header (96 bytes, whose checksum is made right) and a stored payload
//! - 1: a codec (1 byte) and a payload, to be sealed and opened again
//! - 2: a ring: flags (1 byte: 1 closed cleanly, 2 checksums of patched blocks are made right, 4
//!   blocks of version 1 where their codec lets them; the bits above choose the codec, or take all
//!   in turn), acked (1 byte), sector of the trim point (1 byte), number of blocks (1 byte), length
//!   of each payload (1 byte, times 31), then patches

#![no_main]

use arbitrary::{Result, Unstructured};
use brooklet_fuzz::{Cover, Seam, patches, reseal};
use brooklet_io::{MemVolume, SECTOR};
use brooklet_wal::fuzzing::{HEADER, disk_len, open, seal};
use brooklet_wal::{
    Codec, Cursor, End, Header, MIN_RING, Records, Start, WalError, Zone, checksum, put_varint, recover,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((what, rest)) = data.split_first() else { return };
    match what % 3 {
        0 => header(rest),
        1 => payload(rest),
        _ => drop(ring(&mut Unstructured::new(rest))),
    }
});

fn header(bytes: &[u8]) {
    let Some((bytes, stored)) = bytes.split_at_checked(HEADER) else {
        return assert_eq!(Header::decode(bytes), None);
    };
    let mut bytes = bytes.to_vec();
    reseal(&mut bytes, &[Seam { covers: Cover::Bytes(0..88), put: vec![88] }]);
    let Some((header, sum)) = Header::decode(&bytes) else { return };
    let mut again = [0; HEADER];
    assert_eq!(Header::decode(&again), None, "zeros are no header");
    let resealed = header.encode(&mut again);
    assert_eq!(Header::decode(&again), Some((header, resealed)));
    for told in [0..4, 6..7, 8..76, 80..88] {
        assert_eq!(again[told.clone()], bytes[told]);
    }
    let version = u16::from_le_bytes([bytes[4], bytes[5]]);
    assert!(version == 2 || version == 1 && header.codec != Codec::Zstd, "version {version}");
    assert_eq!(again[4..6], [2, 0], "what is written is of the newest version");
    let bit = sum as usize % (HEADER * 8);
    bytes[bit / 8] ^= 1 << (bit % 8);
    assert_eq!(Header::decode(&bytes), None, "bit {bit}");
    assert!(
        header.disk_len().is_multiple_of(SECTOR) && header.disk_len() >= HEADER + header.stored_len as usize
    );
    if let Some(raw) = open(header.codec, stored, header.raw_len as usize) {
        assert_eq!(raw.len(), header.raw_len as usize);
        // The most that each codec can make of a byte: no length beyond that is believed.
        let most = [1, 255, (128 << 10) / 3][header.codec as usize];
        assert!(raw.len() / most <= stored.len());
        records(&raw);
    }
    records(stored);
}

/// Records lie in the payload one behind the other, and none behind the first that is malformed.
fn records(payload: &[u8]) {
    let (mut at, mut again, mut malformed) = (0, Vec::new(), false);
    for record in Records::new(payload) {
        assert!(!malformed, "records go on behind the malformed one");
        let Some((offset, record)) = record else {
            malformed = true;
            continue;
        };
        assert!(offset > at, "a length takes a byte at least");
        assert_eq!(record, &payload[offset..offset + record.len()]);
        at = offset + record.len();
        put_varint(&mut |b| again.extend_from_slice(b), record.len() as u64);
        again.extend_from_slice(record);
    }
    assert!(malformed || at == payload.len());
    let of = |payload| Records::new(payload).map_while(|r| Some(r?.1.to_vec())).collect::<Vec<_>>();
    assert!(of(&again) == of(payload), "records do not come back");
}

const CODECS: [Codec; 3] = [Codec::Raw, Codec::Lz4, Codec::Zstd];

fn payload(bytes: &[u8]) {
    let Some((codec, bytes)) = bytes.split_first() else { return };
    let codec = CODECS[usize::from(*codec) % 3];
    let block = seal(bytes, 1, Header { codec, ..place(1, Cursor::default(), 0) });
    let (header, _) = Header::decode(&block).expect("it was written just now");
    assert!(header.codec == codec || header.codec == Codec::Raw);
    let stored = &block[HEADER..HEADER + header.stored_len as usize];
    assert_eq!((header.payload_sum, block.len()), (checksum(stored), header.disk_len()));
    let raw = open(header.codec, stored, header.raw_len as usize);
    assert_eq!(raw.as_deref(), Some(bytes));
    assert_eq!(open(header.codec, stored, header.raw_len as usize + 1), None);
}

fn place(epoch: u64, cursor: Cursor, acked: u64) -> Header {
    Header {
        codec: Codec::Raw,
        store: STORE,
        epoch,
        seq: cursor.seq,
        position: cursor.position,
        lsn: cursor.lsn,
        acked,
        previous: cursor.chain,
        ..Header::default()
    }
}

const STORE: u64 = 42;
const SIZE: u64 = MIN_RING;

/// A ring of sound blocks.
struct Ring {
    image: Vec<u8>,
    seams: Vec<Seam>,
    payloads: Vec<Vec<u8>>,
    next: Cursor,
}

/// Makes a block one of version 1, if that had its codec.
fn make_older(block: &mut [u8]) {
    if Header::decode(block).is_some_and(|(header, _)| header.codec != Codec::Zstd) {
        block[4] = 1;
        reseal(block, &[Seam { covers: Cover::Bytes(0..88), put: vec![88] }]);
    }
}

fn written(first: Cursor, acked: u64, flags: u8, lengths: &[u8]) -> Ring {
    let mut ring =
        Ring { image: vec![0; SIZE as usize], seams: Vec::new(), payloads: Vec::new(), next: first };
    for (n, &length) in lengths.iter().enumerate() {
        // Every other payload compresses.
        let noise = |i: usize| if n % 2 == 0 { 7 } else { (i * i >> 3) as u8 ^ length };
        let record: Vec<u8> = (0..usize::from(length) * 31).map(noise).collect();
        let mut payload = Vec::new();
        put_varint(&mut |b| payload.extend_from_slice(b), record.len() as u64);
        payload.extend_from_slice(&record);
        let mut next = ring.next;
        let codec = CODECS[if flags >> 3 & 3 == 3 { n } else { (flags >> 3).into() } % 3];
        let as_placed = |next: Cursor| {
            let mut block = seal(&payload, 1, Header { codec, ..place(1, next, acked.min(next.seq - 1)) });
            if flags & 4 != 0 {
                make_older(&mut block);
            }
            block
        };
        let mut block = as_placed(next);
        let left = SIZE - next.position % SIZE;
        if block.len() as u64 > left {
            next.position += left;
            block = as_placed(next);
        }
        if next.position + block.len() as u64 > first.position + SIZE {
            break;
        }
        let at = (next.position % SIZE) as usize;
        ring.image[at..at + block.len()].copy_from_slice(&block);
        if let Some(before) = ring.seams.last_mut() {
            before.put.push(at + 56);
        }
        ring.seams.push(Seam { covers: Cover::Payload(at), put: vec![at + 80] });
        ring.seams.push(Seam { covers: Cover::Bytes(at..at + 88), put: vec![at + 88] });
        let (_, chain) = Header::decode(&block).expect("it was written just now");
        let (position, lsn) = (next.position + block.len() as u64, next.lsn + payload.len() as u64);
        assert_eq!(block.len(), disk_len(Header::decode(&block).map_or(0, |h| h.0.stored_len as usize)));
        ring.next = Cursor { position, seq: next.seq + 1, lsn, chain };
        ring.payloads.push(payload);
    }
    ring
}

fn ring(input: &mut Unstructured<'_>) -> Result<()> {
    let [flags, acked, sector, count]: [u8; 4] = input.arbitrary()?;
    let lengths = input.bytes(input.len().min(usize::from(count % 24)))?;
    let first = Cursor { position: u64::from(sector) * SECTOR as u64, seq: 1, ..Cursor::default() };
    let mut ring = written(first, acked.into(), flags, lengths);
    let blocks = ring.payloads.len() as u64;
    let (clean, told) = (flags & 1 != 0, if flags & 1 != 0 { blocks } else { u64::from(acked).min(blocks) });
    let mut changed = ring.image.clone();
    for patch in patches(input, 16)? {
        patch.aimed(&ring.image, &ring.seams).apply(&mut changed);
    }
    let resealed = flags & 2 != 0;
    if resealed {
        reseal(&mut changed, &ring.seams);
    }
    let sound = changed == ring.image;
    ring.image = changed;

    let zone = Zone { offset: 0, size: SIZE, store: STORE };
    let start = Start { cursor: first, acked: told, clean, epoch: 1 };
    let volume = MemVolume::from_image(ring.image.clone(), 1);
    let mut seen = Vec::new();
    let found = recover(&volume, zone, start, |block, header| {
        assert_eq!(block.seq(), header.seq);
        assert_eq!(block.data().len(), header.raw_len as usize);
        seen.push(block.data().to_vec());
        Ok::<_, WalError>(())
    });
    if !resealed {
        assert!(seen.iter().eq(ring.payloads.iter().take(seen.len())), "another payload came back");
    }
    match found {
        Ok(found) => {
            assert!(
                found.blocks == seen.len() as u64 && found.blocks >= told,
                "acknowledged blocks are gone"
            );
            assert_eq!(found.next.seq, first.seq + found.blocks);
            assert!(found.next.position >= first.position && found.next.position <= first.position + SIZE);
            assert!(found.block_bytes <= SIZE && found.bytes_read <= SIZE);
            assert_eq!(found.end == End::Clean, clean);
            if sound {
                assert_eq!((found.next, seen.len()), (ring.next, ring.payloads.len()));
                assert!(matches!(found.end, End::Clean | End::Open));
            }
        }
        Err(WalError::Damaged { seq, .. }) => {
            assert!(!sound && seq == first.seq + seen.len() as u64);
        }
        Err(error) => panic!("{error}"),
    }
    Ok(())
}
