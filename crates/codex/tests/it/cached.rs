//! A source with a cache of its own, such as the system's page cache: what is asked for singly goes
//! through it, and whatever it gives, the file has the last word.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brooklet_codex::{Builder, BuilderOptions, Bytes, Cache, Error, Reader, Source};

const KEYS: u32 = 3_000;

/// What the cache does, in turn.
const STATES: u64 = 4;

#[derive(Default)]
struct Cached {
    file: Vec<u8>,
    /// What the cache believes the file to be.
    cached: Vec<u8>,
    /// Whether it fails now and then, or gives too little.
    moody: bool,
    reads: AtomicU64,
    cached_reads: AtomicU64,
}

impl Source for Cached {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let at = offset as usize;
        Ok(Bytes::copy_from_slice(&self.file[at..at + len]))
    }

    fn read_cached(&self, offset: u64, len: usize) -> Option<Bytes> {
        let nth = self.cached_reads.fetch_add(1, Ordering::Relaxed);
        let at = offset as usize;
        let data = || Bytes::copy_from_slice(&self.cached[at..at + len]);
        match nth % STATES {
            0 if self.moody => None,
            1 if self.moody => Some(data().slice(..len - 1)),
            2 if self.moody => Some(Bytes::new()),
            _ => Some(data()),
        }
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("key-{n:08}").into_bytes()
}

fn file() -> Vec<u8> {
    let options = BuilderOptions { block_size: 512, ..BuilderOptions::default() };
    let mut builder = Builder::new(Vec::new(), options);
    for n in 0..KEYS {
        builder.add_filter(u64::from(n));
        builder.add(&key(n), &n.to_le_bytes()).unwrap();
    }
    builder.finish().unwrap().1
}

fn open(source: Cached) -> Reader<Arc<Cached>> {
    let len = source.file.len() as u64;
    Reader::open_with(Arc::new(source), len, None, Arc::new(Cache::new(0))).unwrap()
}

/// Asks for everything, singly; gives the direct reads that it took.
fn ask(reader: &Reader<Arc<Cached>>) -> u64 {
    let before = reader.source().reads.load(Ordering::Relaxed);
    for n in 0..KEYS {
        assert!(reader.may_contain(&key(n), n.into()).unwrap());
        assert_eq!(reader.get(&key(n)).unwrap().unwrap()[..], n.to_le_bytes());
        assert_eq!(reader.get_le(&key(n)).unwrap().unwrap().1[..], n.to_le_bytes());
    }
    reader.source().reads.load(Ordering::Relaxed) - before
}

#[test]
fn what_is_asked_for_singly_goes_through_the_cache_and_all_else_does_not() {
    let reader = open(Cached { file: file(), cached: file(), ..Cached::default() });
    assert_eq!(ask(&reader), 0);
    let before = reader.source().cached_reads.load(Ordering::Relaxed);
    assert!(before > u64::from(KEYS));
    reader.verify(brooklet_codex::Progress::ignore).unwrap();
    assert_eq!(reader.source().cached_reads.load(Ordering::Relaxed), before, "a check asks the file");
    assert!(reader.source().reads.load(Ordering::Relaxed) > 10);
}

/// A page of what lay there before, a bit that is wrong, a cache that fails: none is damage, and
/// none is believed.
#[test]
fn a_cache_that_is_wrong_or_fails_costs_a_read_and_nothing_else() {
    let stale = |file: &[u8]| file.iter().map(|byte| byte.wrapping_add(1)).collect::<Vec<u8>>();
    let flipped = |file: &[u8]| {
        let mut file = file.to_vec();
        file.iter_mut().step_by(300).for_each(|byte| *byte ^= 4);
        file
    };
    for cached in [stale(&file()), flipped(&file()), vec![0; file().len()], file()] {
        let right = cached == file();
        let reader = open(Cached { file: file(), cached, moody: right, ..Cached::default() });
        assert!(ask(&reader) > u64::from(KEYS), "the file was asked");
    }
}

/// Damage of the file is told.
#[test]
fn damage_of_the_file_is_told_where_the_cache_has_nothing_better() {
    let mut damaged = file();
    damaged.iter_mut().take(100).for_each(|byte| *byte ^= 1);
    let reader = open(Cached { cached: damaged.clone(), file: damaged, ..Cached::default() });
    assert!(matches!(reader.get(&key(0)), Err(Error::Damaged { .. })));
    assert!(reader.verify(brooklet_codex::Progress::ignore).is_err());
}
