//! Pins every on-disk format: a small store, written with a fixed seed and clock, has exactly these bytes, and a store
//! written by any released version of format 1 opens and reads the same.
//!
//! A difference means that the format changed: then its version is bumped, and a new golden file joins this one.
//! `BROOKLET_WRITE_GOLDEN=1 cargo test -p brooklet --test golden` writes the file anew.
//!
//! The file holds the sectors that are not all zero, each behind its number (4 bytes, little endian), and, first, the
//! number of sectors of the volume.

mod common;

use std::path::Path;
use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{Commit, Options};
use common::Logs;

const SECTOR: usize = 4096;

fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(64 << 10).max_payload(8 << 10).threads(false).environment(clock, 42)
}

/// Exercises every kind of record, run entry and superblock field.
fn written() -> (Vec<u8>, Logs) {
    let volume = MemVolume::new(42);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let wait = |ticket: Result<brooklet::Ticket, brooklet::Error>| ticket.unwrap().wait().unwrap();
    for n in 0..5u8 {
        wait(store.append(b"doc/\x00\xff", [n; 100]));
        wait(store.append_many("large", (0..10u8).map(|i| vec![n ^ i; 700])));
        wait(store.snapshot("state", format!("state {n}")));
        wait(store.append("gone", "soon"));
        if n < 4 {
            store.checkpoint().unwrap();
            while store.step().unwrap() {}
        }
    }
    wait(store.delete("gone"));
    store.checkpoint().unwrap();
    let mut commit = Commit::new();
    commit.trim("large", 12).truncate("large", 40).append("large", b"again").keep_last("state", 0);
    wait(store.commit(&commit));
    wait(store.append("compressed", vec![7; 7000]));
    let contents = common::contents(&store).unwrap();
    store.close().unwrap();
    (volume.image(), contents)
}

fn pack(image: &[u8]) -> Vec<u8> {
    let sectors = image.chunks(SECTOR).enumerate();
    let mut out = ((image.len() / SECTOR) as u32).to_le_bytes().to_vec();
    for (number, sector) in sectors.filter(|(_, sector)| sector.iter().any(|&b| b != 0)) {
        out.extend_from_slice(&(number as u32).to_le_bytes());
        out.extend_from_slice(sector);
    }
    out
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let mut image = vec![0; number(packed) * SECTOR];
    for record in packed[4..].chunks(4 + SECTOR) {
        let at = number(record) * SECTOR;
        image[at..at + SECTOR].copy_from_slice(&record[4..]);
    }
    image
}

/// The note of the holder names a process; it is no part of the format.
fn without_note(mut image: Vec<u8>) -> Vec<u8> {
    image[60 << 10..64 << 10].fill(0);
    image
}

#[test]
fn format_1_is_what_it_was() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1.store");
    let (image, contents) = written();
    let packed = pack(&without_note(image));
    if std::env::var_os("BROOKLET_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &packed).unwrap();
    }
    let golden = std::fs::read(&path).unwrap();
    let volume = Arc::new(MemVolume::from_image(unpack(&golden), 1));
    let report = brooklet::check_volume(volume.clone(), &mut |_, _| {}).unwrap();
    assert!(report.is_sound(), "{:?}", report.findings);
    let store = options().read_only(true).open_on(volume).unwrap();
    assert_eq!(common::contents(&store).unwrap(), contents, "the golden store reads as it always did");
    let differs =
        unpack(&golden).chunks(SECTOR).zip(unpack(&packed).chunks(SECTOR)).position(|(a, b)| a != b);
    assert_eq!((differs, golden.len()), (None, packed.len()), "the first sector that is written differently");
}
