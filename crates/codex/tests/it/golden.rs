//! Files written by each version stay readable. What is written today is version 2, version 3 where
//! a value is long, and version 4 where items have notes.
//!
//! `v2.codex`, `v3.codex` and `v4.codex` are not compressed and must come out bit for bit. Those
//! with `-lz4` are only read back: a later LZ4 library may compress otherwise, which is no change
//! of the format.
//!
//! To write them anew, after a change of the format before its release:
//! `cargo test -p brooklet-codex --test it golden -- --ignored`

use std::fs;
use std::path::PathBuf;

use brooklet_codex::{Builder, BuilderOptions, Bytes, Noted, Reader};

use crate::note_hash;

const ENTRIES: u32 = 100;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn entry(n: u32) -> (Vec<u8>, Vec<u8>) {
    (format!("log/{:03}/{n:05}", n / 10).into_bytes(), "brooklet ".repeat(n as usize % 9).into_bytes())
}

/// Ten keys have the same item, except in version 4: there each key has an item with a note.
fn item(version: u32, n: u32) -> u64 {
    u64::from(if version == 4 { n } else { n / 10 })
}

/// In versions 3 and 4 most values lie apart.
fn build(version: u32, compress: bool) -> Vec<u8> {
    let options = BuilderOptions {
        block_size: 256,
        compress,
        bits_per_item: 10,
        filter_seed: 0xfedc_ba98_7654_3210,
        id: 0x0123_4567_89ab_cdef,
        apart_from: if version >= 3 { 10 } else { usize::MAX },
    };
    let mut builder = Builder::new(Vec::new(), options);
    for n in 0..ENTRIES {
        let (key, value) = entry(n);
        match version {
            4 => builder.add_note(item(version, n), note_hash(&key), n),
            _ => builder.add_filter(item(version, n)),
        }
        builder.add(&key, &value).unwrap();
    }
    builder.finish_with(b"golden").unwrap().1
}

fn read_back(file: Vec<u8>, filter_seed: u64) {
    let len = file.len() as u64;
    let reader = Reader::open(Bytes::from(file), len, None).unwrap();
    assert_eq!((reader.id(), reader.entries()), (0x0123_4567_89ab_cdef, u64::from(ENTRIES)));
    assert_eq!(reader.filter_seed(), filter_seed);
    assert_eq!(reader.metadata().unwrap().unwrap(), &b"golden"[..]);
    let mut cursor = reader.cursor();
    for n in 0..ENTRIES {
        let (key, value) = entry(n);
        assert_eq!(reader.get(&key).unwrap().unwrap(), value);
        assert!(cursor.next().unwrap());
        assert_eq!((cursor.key(), &cursor.value().unwrap()[..]), (key.as_slice(), value.as_slice()));
        let item = item(reader.version(), n);
        assert!(reader.may_contain(&key, item).unwrap());
        let note = if reader.version() == 4 { Noted::Note(n) } else { Noted::Unknown };
        assert_eq!(reader.note(&key, item, || note_hash(&key)).unwrap(), note);
    }
    assert!(!cursor.next().unwrap());
    let key = entry(50).0;
    assert!((1000..1100).filter(|&hash| reader.may_contain(&key, hash).unwrap()).count() < 10);
    let verified = reader.verify(brooklet_codex::Progress::ignore).unwrap();
    assert!(verified.index_blocks > 2 && verified.filter_items == item(reader.version(), ENTRIES));
}

#[test]
fn what_is_written_is_what_was_written() {
    for version in [2, 3, 4] {
        let file = build(version, false);
        assert_eq!(file[file.len() - 120], version as u8);
        assert!(
            file == fs::read(path(&format!("v{version}.codex"))).unwrap(),
            "the format changed: that takes a new version"
        );
    }
}

#[test]
fn every_version_is_read_back() {
    let seed = 0xfedc_ba98_7654_3210;
    for (name, filter_seed) in [("v1", 0), ("v2", seed), ("v3", seed), ("v4", seed)] {
        read_back(fs::read(path(&format!("{name}.codex"))).unwrap(), filter_seed);
        read_back(fs::read(path(&format!("{name}-lz4.codex"))).unwrap(), filter_seed);
    }
    (2..=4).for_each(|version| read_back(build(version, true), seed));
}

#[test]
#[ignore = "writes the golden files"]
fn regenerate() {
    for version in [2, 3, 4] {
        fs::write(path(&format!("v{version}.codex")), build(version, false)).unwrap();
        fs::write(path(&format!("v{version}-lz4.codex")), build(version, true)).unwrap();
    }
}
