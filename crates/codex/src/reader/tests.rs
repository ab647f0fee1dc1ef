//! Files with correct checksums and impossible numbers. The reader refuses each file before it uses
//! the numbers.

use std::io;

use super::*;
use crate::block::BlockBuilder;
use crate::format::{POINTER, encode_frame, sum};
use crate::{Builder, BuilderOptions, Error};

/// Creates a file of one frame, and a footer whose root is that frame.
fn file(frame: &[u8], forge: impl FnOnce(&mut Footer)) -> Vec<u8> {
    let root = Ptr { offset: 0, len: frame.len() as u32, sum: sum(frame) };
    let mut footer = Footer { entries: 1, raw_bytes: 12, blocks: 1, root, ..Footer::default() };
    forge(&mut footer);
    [frame, &footer.encode()].concat()
}

/// Creates the frame of an uncompressed block with one entry.
fn frame() -> Vec<u8> {
    let block = [&[0, 1, 1, b'k', b'v'][..], &[0; 4], &1u32.to_le_bytes()].concat();
    let mut frame = Vec::new();
    encode_frame(&block, false, &mut frame);
    frame
}

fn open<S: Source>(source: S, len: usize) -> Result<Reader<S>> {
    Reader::open(source, len as u64, None)
}

#[track_caller]
fn refused<T>(result: Result<T>, because: &str) {
    match result {
        Err(Error::Damaged { what, .. }) => assert!(what.contains(because), "{what}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it passed"),
    }
}

#[track_caller]
fn get(file: Vec<u8>) -> Result<Option<Bytes>> {
    let len = file.len();
    open(Bytes::from(file), len)?.get(b"k")
}

#[test]
fn a_file_put_together_by_hand_is_read() {
    assert_eq!(get(file(&frame(), |_| {})).unwrap().unwrap(), "v");
}

#[test]
fn frames_that_cannot_be_are_refused() {
    refused(get(file(&[0; 4], |_| {})), "shorter than its head");
    let lengths = |codec: u8, raw_len: u32| [&[codec][..], &raw_len.to_le_bytes(), &[0xff; 20]].concat();
    refused(get(file(&lengths(1, 100), |_| {})), "does not decompress");
    refused(get(file(&lengths(1, u32::MAX), |_| {})), "raw length is impossible");
    refused(get(file(&lengths(0, 100), |_| {})), "raw length is impossible");
    refused(get(file(&lengths(9, 20), |_| {})), "codec is unknown");
}

#[test]
fn pointers_that_lead_out_of_their_bounds_are_not_followed() {
    refused(get(file(&frame(), |footer| footer.root.offset = 1)), "out of its bounds");
    refused(get(file(&frame(), |footer| footer.root.offset = u64::MAX)), "out of its bounds");
    let metadata = file(&frame(), |footer| footer.metadata = Ptr { offset: 9, len: 900, sum: 1 });
    let len = metadata.len();
    refused(open(Bytes::from(metadata), len).unwrap().metadata(), "out of its bounds");
    // A child must be before its parent. A block that points to itself would be an endless loop.
    let itself = [&[0, 1, POINTER as u8, b'k'][..], &[0; POINTER], &[0; 4], &1u32.to_le_bytes()].concat();
    let mut circle = Vec::new();
    encode_frame(&itself, false, &mut circle);
    refused(get(file(&circle, |footer| footer.levels = 1)), "shorter than its head");
}

#[test]
fn footers_that_cannot_be_are_refused() {
    refused(get(file(&frame(), |footer| footer.levels = 65)), "index levels are impossible");
    let rootless = |footer: &mut Footer| (footer.levels, footer.root) = (1, Ptr::NONE);
    refused(get(file(&frame(), rootless)), "index levels are impossible");
    let mut never = file(&frame(), |_| {});
    let at = never.len() - FOOTER;
    never[at + 8] = 0;
    let again = sum(&never[at..at + FOOTER - 8]);
    never[at + FOOTER - 8..].copy_from_slice(&again.to_le_bytes());
    refused(get(never), "the version of the footer is invalid");
}

/// A faulty source causes errors, but no panic and no wrong byte.
#[test]
fn a_source_that_gives_another_length_than_asked_for_is_noticed() {
    struct Short {
        data: Bytes,
        from: usize,
    }
    impl Source for Short {
        fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            let offset = offset as usize;
            let missing = usize::from(offset >= self.from);
            Ok(self.data.slice(offset..offset + len - missing))
        }
    }
    let mut builder = Builder::new(Vec::new(), BuilderOptions::default());
    builder.add(b"k", b"v").unwrap();
    let data = Bytes::from(builder.finish().unwrap().1);
    let len = data.len();
    refused(open(Short { data: data.clone(), from: len - FOOTER }, len), "another length");
    struct Shortened(Short);
    impl Source for Shortened {
        fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
            if offset == 0 { self.0.read(offset, len) } else { self.0.data.read(offset, len) }
        }
    }
    let reader = open(Shortened(Short { data, from: 0 }), len).unwrap();
    refused(reader.get(b"k"), "another length");
}

#[test]
fn any_pointer_to_a_source_is_one() {
    let data = Bytes::from(file(&frame(), |_| {}));
    let len = data.len();
    assert_eq!(open(&data, len).unwrap().get(b"k").unwrap().unwrap(), "v");
    assert_eq!(open(Arc::new(data), len).unwrap().get(b"k").unwrap().unwrap(), "v");
}

/// Two keys have the same hash. Each look-up returns the value of its own key, whichever value is
/// cached.
#[test]
fn a_value_that_is_kept_for_another_key_is_not_given() {
    let data = Bytes::from(file(&frame(), |_| {}));
    let reader = open(data.clone(), data.len()).unwrap();
    let other = Kept::Value(b"another".as_slice().into(), Bytes::from_static(b"wrong"));
    reader.cache.keep(Key::of_value(reader.number, reader.filter_seed(), b"k"), Class::Value, other);
    assert_eq!(reader.get(b"k").unwrap().unwrap(), "v");
}

/// Creates a file of one entry and a filter in two parts. `gaps` are bytes before the first part,
/// before the second part, and before the directory.
fn with_filter(gaps: [&[u8]; 3]) -> Vec<u8> {
    let mut out = frame();
    let root = Ptr { offset: 0, len: out.len() as u32, sum: sum(&out) };
    let mut put = |gap: &[u8], raw: &[u8]| {
        let mut frame = Vec::new();
        encode_frame(raw, false, &mut frame);
        out.extend_from_slice(gap);
        let ptr = Ptr { offset: out.len() as u64, len: frame.len() as u32, sum: sum(&frame) };
        out.extend_from_slice(&frame);
        ptr
    };
    let part = |mask: u8| [&[1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0][..], &[mask; 64]].concat();
    let mut directory = BlockBuilder::default();
    for (first, mask, gap) in [(b"b", 0, gaps[0]), (b"k", 0xff, gaps[1])] {
        directory.add(first, &put(gap, &part(mask)).encode());
    }
    let filter = put(gaps[2], directory.finish());
    let footer = Footer { entries: 1, raw_bytes: 13, blocks: 1, root, filter, ..Footer::default() };
    [&out[..], &footer.encode()].concat()
}

#[test]
fn a_question_goes_to_the_part_of_its_key() {
    let data = Bytes::from(with_filter([b""; 3]));
    let reader = open(data.clone(), data.len()).unwrap();
    assert_eq!(reader.verify(crate::Progress::ignore).unwrap().filter_items, 2);
    for (key, answer) in [(b"a", false), (b"b", false), (b"j", false), (b"k", true), (b"z", true)] {
        assert_eq!(reader.may_contain(key, 7).unwrap(), answer, "{key:?}");
    }
}

#[test]
fn bytes_between_the_parts_of_a_filter_are_noticed() {
    for gaps in [[&b"x"[..], b"", b""], [b"", b"x", b""], [b"", b"", b"x"]] {
        let data = Bytes::from(with_filter(gaps));
        let reader = open(data.clone(), data.len()).unwrap();
        refused(reader.verify(crate::Progress::ignore), "do not follow one another");
    }
}

/// The reader must drop the pieces that the cache evicts. Otherwise no counter would include them.
#[test]
fn what_of_the_filter_leaves_the_cache_leaves_the_reader() {
    let options = BuilderOptions { bits_per_item: 12, ..BuilderOptions::default() };
    let mut builder = Builder::new(Vec::new(), options);
    for n in 0..40_000u32 {
        builder.add_filter(n.into());
        builder.add(&n.to_be_bytes(), b"").unwrap();
    }
    let (summary, file) = builder.finish().unwrap();
    let cache = Arc::new(Cache::new(32 << 20));
    let reader = Reader::open_with(Bytes::from(file), summary.len, None, cache.clone()).unwrap();
    // Returns whether all added items pass in each of the four parts, and the number of reads.
    let ask = || {
        let before = cache.stats().misses;
        let passes = |n: &u32| reader.may_contain(&n.to_be_bytes(), (*n).into()).unwrap();
        assert!((0..40_000).step_by(7).all(|n| passes(&n)));
        assert!((100_000..100_100).filter(passes).count() < 5);
        cache.stats().misses - before
    };
    assert_eq!((ask(), ask()), (5, 0));
    let all = cache.stats().filter_bytes;
    for (ages, reads) in [(7, 0), (8, 4), (9, 5)] {
        (0..ages).for_each(|_| cache.age());
        assert_eq!(ask(), reads, "after {ages}");
        assert_eq!(cache.stats().filter_bytes, all);
    }
    (0..9).for_each(|_| cache.age());
    assert!(cache.is_empty() && cache.stats().bytes() == 0);
    let hits = cache.stats().hits;
    assert!(reader.may_contain(&7u32.to_be_bytes(), 7).unwrap() && cache.stats().hits == hits);
    assert!(reader.may_contain(&7u32.to_be_bytes(), 7).unwrap() && cache.stats().hits == hits + 2);
}
