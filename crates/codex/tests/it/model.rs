//! A codex against a `BTreeMap`: the same entries, the same answers, with blocks so small that the
//! index has levels.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use brooklet_codex::{Builder, BuilderOptions, Bytes, Cache, Cursor, Error, MAX_KEY, Noted, Reader, Summary};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::note_hash;

type Map = BTreeMap<Vec<u8>, Vec<u8>>;

fn build(map: &Map, options: &BuilderOptions) -> (Summary, Bytes) {
    let mut builder = Builder::new(Vec::new(), options.clone());
    for (index, (key, value)) in map.iter().enumerate() {
        builder.add_filter(index as u64);
        builder.add(key, value).unwrap();
    }
    let (summary, file) = builder.finish_with(b"made for a test").unwrap();
    assert_eq!(summary.len, file.len() as u64);
    (summary, file.into())
}

fn open(summary: Summary, file: Bytes) -> Reader<Bytes> {
    Reader::open(file, summary.len, Some(summary.footer_sum)).unwrap()
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(0u8..3, 0..7), vec(any::<u8>(), 0..4), vec(0u8..2, 90..110)]
}

fn map(most: usize) -> impl Strategy<Value = Map> {
    btree_map(key(), prop_oneof![vec(any::<u8>(), 0..10), vec(0u8..2, 0..400)], 0..most)
}

fn options() -> impl Strategy<Value = BuilderOptions> {
    let apart_from = prop_oneof![Just(usize::MAX), 0usize..300];
    let options =
        (prop_oneof![Just(0usize), 64usize..700, Just(16 << 10)], any::<bool>(), 0u32..12, apart_from);
    options.prop_map(|(block_size, compress, bits_per_item, apart_from)| BuilderOptions {
        block_size,
        compress,
        bits_per_item,
        filter_seed: 5,
        id: 3,
        apart_from,
    })
}

/// What is told is not much more than what it comes to: room that is said to be needed is needed.
#[test]
fn what_is_told_is_about_what_is_needed() {
    let options = BuilderOptions { compress: false, ..BuilderOptions::default() };
    let mut builder = Builder::new(Vec::new(), options);
    for n in 0..50_000u64 {
        builder.add_filter(n);
        builder.add(&n.to_be_bytes(), &[7; 100]).unwrap();
    }
    let told = builder.size_with(8, 100, 1, false);
    let (summary, _) = builder.finish().unwrap();
    assert!((summary.len..summary.len * 103 / 100).contains(&told), "{} bytes, {told} told", summary.len);
}

#[derive(Clone, Debug)]
enum Move {
    Seek(Vec<u8>),
    SeekLe(Vec<u8>),
    First,
    Last,
    Next(u8),
    Prev(u8),
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    vec(
        prop_oneof![
            key().prop_map(Move::Seek),
            key().prop_map(Move::SeekLe),
            Just(Move::First),
            Just(Move::Last),
            (1u8..40).prop_map(Move::Next),
            (1u8..40).prop_map(Move::Prev),
        ],
        1..40,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whoever has only so much room knows before each entry whether the file would still fit.
    #[test]
    fn no_file_is_longer_than_was_told(
        map in map(300),
        options in options(),
        cut in 0usize..300,
        noted in any::<bool>(),
    ) {
        let mut builder = Builder::new(Vec::new(), options.clone());
        let mut told = u64::MAX;
        for (n, (key, value)) in map.iter().enumerate().take(cut + 1) {
            told = builder.size_with(key.len(), value.len(), 1, noted);
            if noted {
                builder.add_note(n as u64, note_hash(key), n as u32);
            } else {
                builder.add_filter(n as u64);
            }
            builder.add(key, value).unwrap();
        }
        let (summary, _) = builder.finish().unwrap();
        prop_assert!(summary.len <= told, "{} bytes, and {told} were told", summary.len);
    }

    #[test]
    fn gets_like_a_map(map in map(300), options in options(), others in vec(key(), 0..50), cache in 0usize..20_000) {
        let (summary, file) = build(&map, &options);
        let cache = Arc::new(Cache::new(cache));
        let reader = Reader::open_with(file, summary.len, Some(summary.footer_sum), cache).unwrap();
        for key in map.keys().chain(&others) {
            prop_assert_eq!(reader.get(key).unwrap(), map.get(key).map(|value| Bytes::copy_from_slice(value)));
            let at_most = map.range::<Vec<u8>, _>(..=key.clone()).next_back();
            let at_most = at_most.map(|(key, value)| (key.clone(), Bytes::copy_from_slice(value)));
            prop_assert_eq!(reader.get_le(key).unwrap(), at_most);
        }
        for (hash, key) in (0..).zip(map.keys()) {
            prop_assert!(reader.may_contain(key, hash).unwrap());
        }
        prop_assert_eq!(reader.metadata().unwrap(), Some(Bytes::from_static(b"made for a test")));
        prop_assert_eq!((reader.id(), reader.filter_seed(), reader.entries()), (3, 5, map.len() as u64));

        let mut done = 0;
        let verified = reader.verify(|progress| {
            done = progress.bytes;
            std::ops::ControlFlow::Continue(())
        });
        let verified = verified.unwrap();
        prop_assert!(summary.blocks == 0 || matches!(reader.verify(|_| std::ops::ControlFlow::Break(())), Err(Error::Cancelled)));
        prop_assert_eq!((verified.entries, verified.bytes), (map.len() as u64, summary.len));
        prop_assert_eq!((done, verified.blocks), (summary.len, summary.blocks));
    }

    /// Each key has its note, whatever fits in the cache. Other keys have none. With thousands of
    /// bits for each item, a filter has many parts.
    #[test]
    fn notes_are_those_that_were_added(
        map in map(300),
        options in options(),
        bits_per_item in prop_oneof![0u32..12, 1_000u32..9_000],
        others in vec(key(), 0..50),
        cache in 0usize..20_000,
    ) {
        let options = BuilderOptions { bits_per_item, ..options };
        let mut builder = Builder::new(Vec::new(), options.clone());
        for (n, (key, value)) in map.iter().enumerate() {
            builder.add_note(n as u64, note_hash(key), n as u32);
            builder.add(key, value).unwrap();
        }
        let (summary, file) = builder.finish().unwrap();
        let cache = Arc::new(Cache::new(cache));
        let reader = Reader::open_with(Bytes::from(file), summary.len, None, cache).unwrap();
        let noted = options.bits_per_item > 0 && !map.is_empty();
        prop_assert_eq!(reader.version() == 4, noted);
        for _ in 0..2 {
            for (n, key) in map.keys().enumerate() {
                let expected = if noted { Noted::Note(n as u32) } else { Noted::Unknown };
                prop_assert_eq!(reader.note(key, n as u64, || note_hash(key)).unwrap(), expected);
            }
            for key in others.iter().filter(|key| !map.contains_key(*key)) {
                // The filter lets this item pass, if it is in the part of the key.
                let note = reader.note(key, 0, || note_hash(key)).unwrap();
                let absent = matches!(note, Noted::Absent { .. });
                prop_assert!(absent == noted && (noted || note == Noted::Unknown));
            }
        }
        let verified = reader.verify(brooklet_codex::Progress::ignore).unwrap();
        prop_assert_eq!((verified.notes, verified.bytes), (if noted { map.len() as u64 } else { 0 }, summary.len));
    }

    #[test]
    fn moves_like_a_map(map in map(300), options in options(), moves in moves()) {
        let (summary, file) = build(&map, &options);
        let mut cursor = Cursor::new(Arc::new(open(summary, file)));
        let keys: Vec<_> = map.keys().collect();
        // 0 before the first entry, keys.len() + 1 after the last
        let mut place = 0;
        for step in moves {
            match &step {
                Move::Seek(key) => {
                    place = map.range::<Vec<u8>, _>((Bound::Unbounded, Bound::Excluded(key))).count() + 1;
                    prop_assert_eq!(cursor.seek(key).unwrap(), place <= keys.len());
                }
                Move::SeekLe(key) => {
                    place = map.range::<Vec<u8>, _>(..=key.clone()).count();
                    prop_assert_eq!(cursor.seek_le(key).unwrap(), place > 0);
                }
                Move::First => {
                    place = 1;
                    prop_assert_eq!(cursor.seek_first().unwrap(), !keys.is_empty());
                }
                Move::Last => {
                    place = keys.len();
                    prop_assert_eq!(cursor.seek_last().unwrap(), !keys.is_empty());
                }
                Move::Next(times) => for _ in 0..*times {
                    place = (place + 1).min(keys.len() + 1);
                    prop_assert_eq!(cursor.next().unwrap(), place <= keys.len());
                },
                Move::Prev(times) => for _ in 0..*times {
                    place = place.saturating_sub(1);
                    prop_assert_eq!(cursor.prev().unwrap(), place > 0);
                },
            }
            let expected = place.checked_sub(1).and_then(|index| keys.get(index));
            prop_assert_eq!(cursor.valid(), expected.is_some());
            if let Some(key) = expected {
                prop_assert_eq!(cursor.key(), key.as_slice());
                prop_assert_eq!(&cursor.value().unwrap()[..], map[*key].as_slice());
            }
        }
    }

    #[test]
    fn the_same_input_gives_the_same_file(map in map(60), options in options()) {
        prop_assert_eq!(build(&map, &options), build(&map, &options));
    }
}

#[test]
fn long_keys_and_values_are_taken_and_longer_ones_refused() {
    let options = BuilderOptions { block_size: 64, ..BuilderOptions::default() };
    let mut map: Map = (0..9u8).map(|n| (vec![n; MAX_KEY], vec![n; 300_000])).collect();
    map.insert(b"z".to_vec(), vec![b'z'; 5 << 20]);
    let (summary, file) = build(&map, &options);
    let reader = open(summary, file);
    assert_eq!(reader.blocks(), 10, "each has a block of its own");
    assert!(map.iter().all(|(key, value)| reader.get(key).unwrap().unwrap() == *value));
    reader.verify(brooklet_codex::Progress::ignore).unwrap();

    let mut builder = Builder::new(Vec::new(), options);
    assert!(matches!(builder.add(&[0; MAX_KEY + 1], b""), Err(Error::TooLarge { what: "the key", .. })));
    builder.add(b"", b"").unwrap();
    assert!(matches!(builder.add(b"", b""), Err(Error::OutOfOrder { entry: 1 })));
    assert_eq!(builder.finish().unwrap().0.entries, 1);
}

#[test]
fn a_failed_write_is_final() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut builder = Builder::new(Full, BuilderOptions::default());
    builder.add(b"a", &[1; 20 << 10]).unwrap();
    assert_eq!(builder.written(), 0);
    assert!(matches!(builder.add(b"b", b""), Err(Error::Io(_))));
    assert!(matches!(builder.add(b"c", b""), Err(Error::Io(_))));
    assert!(builder.finish().is_err());
}

#[test]
fn a_reader_is_shared_between_threads_and_says_what_it_holds() {
    let map: Map = (0..4000u32).map(|n| (n.to_be_bytes().to_vec(), n.to_le_bytes().to_vec())).collect();
    let (summary, file) = build(&map, &BuilderOptions { block_size: 256, ..BuilderOptions::default() });
    let reader = open(summary, file);
    assert_eq!(reader.memory(), 0);
    std::thread::scope(|scope| {
        for part in 0..4 {
            let (reader, map) = (&reader, &map);
            scope.spawn(move || {
                for (key, value) in map.iter().skip(part).step_by(4) {
                    assert_eq!(reader.get(key).unwrap().unwrap(), *value);
                }
            });
        }
    });
    let index = reader.memory();
    assert!(index > 0 && reader.may_contain(&5u32.to_be_bytes(), 5).unwrap());
    assert!(reader.memory() > index);
    assert!(reader.verify(brooklet_codex::Progress::ignore).unwrap().index_blocks > 10);
}

#[cfg(unix)]
#[test]
fn a_file_on_disk_is_read_and_a_missing_end_is_damage() {
    let map: Map = (0..500u32).map(|n| (n.to_be_bytes().to_vec(), vec![7; 100])).collect();
    let (summary, data) = build(&map, &BuilderOptions::default());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, &data).unwrap();
    let reader =
        Reader::open(std::fs::File::open(&path).unwrap(), summary.len, Some(summary.footer_sum)).unwrap();
    assert_eq!(reader.get(&9u32.to_be_bytes()).unwrap().unwrap(), [7; 100][..]);
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(10).unwrap();
    assert!(matches!(reader.verify(brooklet_codex::Progress::ignore), Err(Error::Damaged { .. })));
    let mut cursor = Cursor::new(&reader);
    assert!(cursor.next().is_err() && !cursor.valid());
    assert!(matches!(cursor.next(), Err(Error::Lost)));
    std::fs::remove_file(path).unwrap();
}
