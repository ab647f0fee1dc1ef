//! A log written by an earlier build is read by this one, and this one writes the very same bytes.
//!
//! `BROOKLET_WRITE_GOLDEN=1` writes the file anew: only for a new format version.

use std::sync::Arc;

use brooklet_io::{MemVolume, SECTOR};
use brooklet_wal::{Log, Lsn};

use crate::logs::model::{KIB, drive, options, read};

/// A log with everything that the label and its records can say: trimmed inside a batch, wrapped,
/// resized and not yet settled, not closed. All behind the last block is zero and left out.
fn written() -> Vec<u8> {
    let volume = MemVolume::new(1);
    let log =
        Log::create(Arc::new(volume.clone()), options().identity(0x0123_4567_89ab_cdef << 64 | 7)).unwrap();
    let mut lsn = Lsn(0);
    for n in 0..14 {
        log.trim(lsn).unwrap();
        // More than a sector each, and compressed to one.
        let ack;
        (lsn, ack) = log.append(&[n; 5000]).unwrap();
        ack.wait().unwrap();
    }
    log.trim(log.next()).unwrap();
    let (batch, ack) = log.append_batch(&[b"one", b"", b"three"]).unwrap();
    ack.wait().unwrap();
    for n in 20..24 {
        log.append(&[n; 100]).unwrap().1.wait().unwrap();
    }
    log.trim(Lsn(batch.0 + 1)).unwrap();
    log.resize(128 * KIB).unwrap();
    assert!(log.stats().settling);
    log.append(b"in the new span").unwrap().1.wait().unwrap();
    drive(&log);
    let mut image = volume.image();
    let end = image.iter().rposition(|&byte| byte != 0).unwrap() + 1;
    image.truncate(end);
    // The spare part of the label says nothing.
    image.drain(2 * SECTOR..64 * KIB as usize);
    image
}

#[test]
fn the_format_is_the_same_as_ever() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1.log");
    if std::env::var_os("BROOKLET_WRITE_GOLDEN").is_some() {
        std::fs::write(path, written()).unwrap();
    }
    let golden = std::fs::read(path).unwrap();
    assert!(written() == golden, "other bytes than before");
    let mut image = golden;
    image.splice(2 * SECTOR..2 * SECTOR, vec![0; 64 * KIB as usize - 2 * SECTOR]);
    image.resize(192 * KIB as usize, 0);
    let log = Log::open(
        Arc::new(MemVolume::from_image(image, 1)),
        options().identity(0x0123_4567_89ab_cdef << 64 | 7),
    );
    let records: Vec<Vec<u8>> = read(&log.unwrap()).into_iter().map(|(_, record)| record).collect();
    let mut expected = vec![vec![], b"three".to_vec()];
    expected.extend((20..24).map(|n| vec![n; 100]));
    expected.push(b"in the new span".to_vec());
    assert_eq!(records, expected);
}
