//! What the store itself writes down: the manifest, commit records, and how logs lie in runs.
//!
//! Input: which format (1 byte), then its bytes. Of a manifest the checksum is made right.

#![no_main]

use std::collections::BTreeMap;

use brooklet::fuzzing::{
    decode_chunk, decode_head, decode_manifest, decode_record, encode_manifest, encode_record, part_key,
    split_key, write_piece,
};
use brooklet::{Bytes, MAX_KEY};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((format, bytes)) = data.split_first() else { return };
    match format % 5 {
        0 => manifest(bytes),
        1 => record(bytes),
        2 => head(&Bytes::copy_from_slice(bytes)),
        3 => chunk(&Bytes::copy_from_slice(bytes)),
        _ => key(bytes),
    }
});

fn manifest(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    let sum = brooklet_wal::checksum(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    assert!(decode_manifest(&bytes, !sum).is_err(), "not the one that the superblock names");
    let Ok(listed) = decode_manifest(&bytes, sum) else { return };
    assert!(listed.tables.len() * 40 <= bytes.len());
    if bytes[8] >= 3 {
        assert_eq!(encode_manifest(&listed), (bytes.clone(), sum));
    }
    for at in [0, 8, 12, bytes.len() / 2, bytes.len() - 1] {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(decode_manifest(&changed, sum).is_err());
    }
}

fn record(bytes: &[u8]) {
    let Some(changes) = decode_record(bytes) else { return };
    for change in &changes {
        // The log with the empty key has the table of spaces.
        assert!(change.key.len() <= MAX_KEY);
        assert!(change.before.is_none_or(|b| b.first <= b.next));
    }
    let (again, bound) = encode_record(&changes);
    assert!(again.len() <= bound, "appending sets room aside for it");
    assert_eq!(decode_record(&again), Some(changes));
}

fn head(bytes: &Bytes) {
    let Some((bounds, base, (start, payloads))) = decode_head(bytes) else { return };
    let (first, next) = bounds.map_or((0, 0), |b| (b.first, b.next));
    assert!(first <= next && payloads.len() <= bytes.len());
    let held = first.max(base)..next.max(base);
    if !payloads.is_empty() {
        assert!(start == first.max(base) && start + payloads.len() as u64 <= next);
    }
    if bounds.is_none() && base != 0 || held.end - held.start != payloads.len() as u64 {
        return; // the rest of it lies in chunks, or it is of no log
    }
    let payloads: Vec<Vec<u8>> = payloads.iter().map(|payload| payload.to_vec()).collect();
    pieces(bounds, base, &payloads);
}

/// A piece that is written reads back the same, in parts that follow each other.
fn pieces(bounds: Option<brooklet::Bounds>, base: u64, payloads: &[Vec<u8>]) {
    let mut seen = BTreeMap::new();
    let mut last = Vec::new();
    for (n, (codex_key, value)) in write_piece(b"k\0", bounds, base, payloads).into_iter().enumerate() {
        assert!(last < codex_key);
        let (key, seq) = split_key(&codex_key).expect("a key of its own");
        let (start, entries) = if n == 0 {
            let (told, at, chunk) = decode_head(&value).expect("a head of its own");
            assert_eq!((told, at), (bounds, base));
            chunk
        } else {
            decode_chunk(&value).expect("a chunk of its own")
        };
        assert!(key == b"k\0" && seq.is_none_or(|seq| seq == start));
        seen.extend((start..).zip(entries));
        last = codex_key;
    }
    assert!(seen.values().eq(payloads.iter()), "another piece came back");
}

fn chunk(bytes: &Bytes) {
    let Some((start, payloads)) = decode_chunk(bytes) else { return };
    assert!(start.checked_add(payloads.len() as u64).is_some());
    let len: usize = payloads.iter().map(Bytes::len).sum();
    assert!(len + payloads.len() < bytes.len());
    // Payloads come last, one after another.
    assert!(payloads.concat() == bytes[bytes.len() - len..]);
}

fn key(bytes: &[u8]) {
    if let Some((key, seq)) = split_key(bytes) {
        assert!(key.len() <= MAX_KEY);
        assert_eq!(part_key(&key, seq), bytes);
    }
    if (1..=MAX_KEY).contains(&bytes.len()) {
        for seq in [None, Some(bytes.len() as u64)] {
            assert_eq!(split_key(&part_key(bytes, seq)), Some((bytes.to_vec(), seq)));
        }
    }
}
