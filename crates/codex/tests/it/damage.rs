//! Damage is noticed, wherever it is: each bit of a file flipped, the file cut, parts of it old or
//! misplaced.

use std::collections::BTreeMap;

use brooklet_codex::{Builder, BuilderOptions, Bytes, Error, Noted, Reader, Summary};
use proptest::prelude::*;

use crate::note_hash;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn sample(entries: u32, salt: u8) -> Map {
    (0..entries)
        .map(|n| (format!("key-{:04}", n * 7).into_bytes(), vec![salt ^ n as u8; n as usize % 23]))
        .collect()
}

fn build(map: &Map, options: BuilderOptions) -> (Summary, Vec<u8>) {
    let mut builder = Builder::new(Vec::new(), options);
    for (index, (key, value)) in map.iter().enumerate() {
        builder.add_note(index as u64, note_hash(key), index as u32);
        builder.add(key, value).unwrap();
    }
    builder.finish_with(b"metadata").unwrap()
}

fn small() -> BuilderOptions {
    BuilderOptions { block_size: 100, ..BuilderOptions::default() }
}

/// Asks for everything: each answer is right or an error.
fn never_wrong(reader: &Reader<Bytes>, map: &Map) {
    for (index, (key, value)) in map.iter().enumerate() {
        assert!(reader.get(key).map_or(true, |found| found.as_deref() == Some(value.as_slice())));
        assert!(reader.may_contain(key, index as u64).unwrap_or(true));
        let note = reader.note(key, index as u64, || note_hash(key));
        assert!(note.map_or(true, |note| note == Noted::Note(index as u32)));
    }
    assert!(reader.get(b"key-0001").map_or(true, |found| found.is_none()));
    assert!(reader.metadata().map_or(true, |found| found.as_deref() == Some(&b"metadata"[..])));
    let (mut cursor, mut expected) = (reader.cursor(), map.iter());
    while let Ok(true) = cursor.next() {
        let (key, value) = expected.next().unwrap();
        assert_eq!((cursor.key(), &cursor.value().unwrap()[..]), (key.as_slice(), value.as_slice()));
    }
    expected = map.iter();
    let mut more = cursor.seek_last();
    while let Ok(true) = more {
        let (key, value) = expected.next_back().unwrap();
        assert_eq!((cursor.key(), &cursor.value().unwrap()[..]), (key.as_slice(), value.as_slice()));
        more = cursor.prev();
    }
}

#[test]
fn each_flipped_bit_is_noticed() {
    for compress in [false, true] {
        let map = sample(48, 0);
        let (summary, file) = build(&map, BuilderOptions { compress, ..small() });
        let footer_at = file.len() - 128;
        for bit in 0..file.len() * 8 {
            let mut bad = file.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            for expected in [None, Some(summary.footer_sum)] {
                match Reader::open(Bytes::from(bad.clone()), summary.len, expected) {
                    Ok(reader) => {
                        assert!(bit / 8 < footer_at, "bit {bit} of the footer passed");
                        let result = reader.verify(brooklet_codex::Progress::ignore);
                        assert!(matches!(result, Err(Error::Damaged { .. })), "bit {bit} passed: {result:?}");
                        never_wrong(&reader, &map);
                    }
                    Err(Error::Damaged { offset, .. }) => assert_eq!(offset, footer_at as u64),
                    Err(Error::NotACodex) => {
                        assert!(expected.is_none() && (footer_at..footer_at + 8).contains(&(bit / 8)));
                    }
                    Err(other) => panic!("bit {bit}: {other}"),
                }
            }
        }
    }
}

/// A part of the filter that cannot be read says nothing of its keys, and neither does the part
/// before it.
#[test]
fn notes_in_order_are_right_or_an_error() {
    let map = sample(100, 0);
    // Some thirty items are in a part.
    let (summary, file) = build(&map, BuilderOptions { bits_per_item: 4096, ..small() });
    let mut refused = 0;
    for at in (0..file.len()).step_by(97) {
        let mut bad = file.clone();
        bad[at] ^= 1;
        let Ok(reader) = Reader::open(Bytes::from(bad), summary.len, None) else { continue };
        let Ok(mut notes) = reader.ordered_notes() else { continue };
        for (index, key) in map.keys().enumerate() {
            match notes.note(key, index as u64, note_hash(key)) {
                Ok(note) => assert_eq!(note, Noted::Note(index as u32), "byte {at}, entry {index}"),
                Err(_) => refused += 1,
            }
        }
    }
    assert!(refused > 1000, "{refused} of the entries of damaged parts");
}

#[test]
fn each_cut_is_noticed() {
    let map = sample(60, 0);
    let (summary, file) = build(&map, small());
    for len in 0..file.len() {
        let cut = Bytes::copy_from_slice(&file[..len]);
        for (claimed, expected) in
            [(len as u64, Some(summary.footer_sum)), (summary.len, Some(summary.footer_sum))]
        {
            let opened = Reader::open(cut.clone(), claimed, expected);
            assert!(matches!(opened, Err(Error::Damaged { .. })), "cut to {len}, passed");
        }
        assert!(matches!(Reader::open(cut, len as u64, None), Err(Error::NotACodex)));
    }
}

/// A volume that lost a write shows what was there before: sound blocks, of another file.
#[test]
fn stale_and_misplaced_bytes_are_noticed() {
    let (new, old) = (sample(200, 0), sample(200, 1));
    let raw = BuilderOptions { compress: false, ..small() };
    let ((summary, file), (old_summary, old_file)) = (build(&new, raw.clone()), build(&old, raw));
    assert_eq!(file.len(), old_file.len());
    for at in (0..file.len()).step_by(64) {
        let mut mixed = file.clone();
        let end = (at + 512).min(file.len());
        mixed[at..end].copy_from_slice(&old_file[at..end]);
        if mixed == file {
            continue;
        }
        if let Ok(reader) = Reader::open(Bytes::from(mixed), summary.len, Some(summary.footer_sum)) {
            assert!(reader.verify(brooklet_codex::Progress::ignore).is_err());
            never_wrong(&reader, &new);
        }
    }
    let stale = Reader::open(Bytes::from(old_file), old_summary.len, Some(summary.footer_sum));
    assert!(matches!(stale, Err(Error::Damaged { .. })));
}

/// Bytes before, between or after the blocks are under no checksum: they have no place in a codex.
#[test]
fn bytes_left_over_are_noticed() {
    let (_, file) = build(&sample(40, 0), small());
    let footer_at = file.len() - 128;
    let longer = [&file[..footer_at], b"gap", &file[footer_at..]].concat();
    let len = longer.len() as u64;
    let reader = Reader::open(Bytes::from(longer), len, None).unwrap();
    assert!(matches!(reader.verify(brooklet_codex::Progress::ignore), Err(Error::Damaged { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_damage_is_noticed(cut: prop::sample::Index, writes in prop::collection::vec(any::<(prop::sample::Index, u8)>(), 0..4)) {
        let map = sample(80, 0);
        let (summary, file) = build(&map, small());
        let mut bad = file[..=cut.index(file.len())].to_vec();
        for (at, byte) in writes {
            let at = at.index(bad.len());
            bad[at] = byte;
        }
        for (len, expected) in [(bad.len() as u64, None), (summary.len, Some(summary.footer_sum))] {
            if let Ok(reader) = Reader::open(Bytes::from(bad.clone()), len, expected) {
                prop_assert_eq!(reader.verify(brooklet_codex::Progress::ignore).is_ok(), bad == file);
                never_wrong(&reader, &map);
            }
        }
    }

    #[test]
    fn any_bytes_do_no_harm(bytes: Vec<u8>, len: u64, sum: Option<u64>) {
        for len in [bytes.len() as u64, len] {
            prop_assert!(Reader::open(Bytes::from(bytes.clone()), len, sum).is_err());
        }
    }
}
