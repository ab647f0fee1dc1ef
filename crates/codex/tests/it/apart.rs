//! Long values, which lie apart from their block: whole, in part, and damaged.

use std::sync::Mutex;
use std::{io, ops::Range};

use brooklet_codex::{Builder, BuilderOptions, Bytes, Error, Reader, Source};

const PIECE: u64 = 64 << 10;

/// Values below, at and above the lengths where something changes.
fn lens() -> Vec<u64> {
    vec![0, 1, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE - 1, 3 * PIECE, 5 * PIECE + 77]
}

fn value(len: u64) -> Vec<u8> {
    (0..len).map(|at| ((at * at / 7) ^ (at >> 9)) as u8).collect()
}

fn build(options: BuilderOptions) -> (u64, Vec<u8>) {
    let mut builder = Builder::new(Vec::new(), options);
    for len in lens() {
        builder.add(&len.to_be_bytes(), &value(len)).unwrap();
    }
    let (summary, file) = builder.finish().unwrap();
    (summary.len, file)
}

/// Notes what is read.
struct Noting(Bytes, Mutex<Vec<Range<u64>>>);

impl Source for Noting {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.1.lock().unwrap().push(offset..offset + len as u64);
        self.0.read(offset, len)
    }
}

#[test]
fn long_values_come_back_whole_and_in_part() {
    for (compress, apart_from) in
        [(true, 64 << 10), (false, 64 << 10), (true, 1), (true, 0), (true, usize::MAX)]
    {
        let options = BuilderOptions { compress, apart_from, block_size: 512, ..Default::default() };
        let (len, file) = build(options);
        let reader = Reader::open(Bytes::from(file), len, None).unwrap();
        assert_eq!(reader.verify(brooklet_codex::Progress::ignore).unwrap().bytes, len);
        let mut cursor = reader.cursor();
        for long in lens() {
            let (key, value) = (long.to_be_bytes(), value(long));
            assert_eq!(reader.get(&key).unwrap().unwrap(), value);
            assert_eq!(reader.value_len(&key).unwrap(), Some(long));
            assert!(cursor.next().unwrap());
            assert!(cursor.value().unwrap() == value && cursor.value_len().unwrap() == long);
            for part in
                [0..long, 0..0, 0..1, long..long + 9, PIECE - 1..PIECE + 1, 9..2 * PIECE, long / 2..u64::MAX]
            {
                let end = part.end.min(long) as usize;
                let expected = &value[(part.start.min(long) as usize).min(end)..end];
                assert_eq!(
                    reader.get_part(&key, part.clone()).unwrap().unwrap(),
                    expected,
                    "{part:?} of {long}"
                );
                assert_eq!(cursor.value_part(part).unwrap(), expected);
            }
        }
        assert!(!cursor.next().unwrap());
        assert_eq!(reader.get_part(b"absent", 0..9).unwrap(), None);
        assert_eq!(reader.value_len(b"absent").unwrap(), None);
    }
}

#[test]
fn a_part_takes_the_pieces_that_it_lies_in() {
    let (len, file) = build(BuilderOptions { compress: false, ..Default::default() });
    let reader = Reader::open(Noting(file.into(), Mutex::default()), len, None).unwrap();
    let key = (5 * PIECE + 77).to_be_bytes();
    assert_eq!(reader.value_len(&key).unwrap(), Some(5 * PIECE + 77));
    let read = || reader.source().1.lock().unwrap().drain(..).collect::<Vec<_>>();
    assert!(read().iter().all(|read| read.end - read.start < PIECE), "no piece is read to tell the length");
    reader.get_part(&key, 2 * PIECE + 5..2 * PIECE + 6).unwrap();
    assert_eq!(read().iter().filter(|read| read.end - read.start >= PIECE).count(), 1);
    reader.get_part(&key, 2 * PIECE + 5..4 * PIECE).unwrap();
    assert_eq!(read().iter().filter(|read| read.end - read.start >= PIECE).count(), 2);
}

#[test]
fn damage_to_a_piece_is_noticed_by_who_reads_it() {
    let (len, file) = build(BuilderOptions { compress: false, ..Default::default() });
    let key = (5 * PIECE + 77).to_be_bytes();
    let sound = Reader::open(Bytes::from(file.clone()), len, None).unwrap();
    let wanted = sound.get_part(&key, 3 * PIECE..3 * PIECE + 16).unwrap().unwrap();
    // Other values begin alike: this is the last.
    let at = file.len() - file.windows(16).rev().position(|window| *window == *wanted).unwrap() - 16;
    for flip in [at, at + 1000, at + PIECE as usize - 1] {
        let mut file = file.clone();
        file[flip] ^= 4;
        let reader = Reader::open(Bytes::from(file), len, None).unwrap();
        assert!(matches!(reader.get_part(&key, 3 * PIECE..3 * PIECE + 1), Err(Error::Damaged { .. })));
        assert!(matches!(reader.get(&key), Err(Error::Damaged { .. })));
        assert!(matches!(reader.verify(brooklet_codex::Progress::ignore), Err(Error::Damaged { .. })));
        assert_eq!(reader.get_part(&key, 0..3 * PIECE).unwrap().unwrap().len() as u64, 3 * PIECE);
        assert_eq!(reader.value_len(&key).unwrap(), Some(5 * PIECE + 77));
    }
}
