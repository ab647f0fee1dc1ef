//! What a look-up costs: reads, bytes and memory, counted by a source that is asked for each of
//! them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brooklet_codex::{Builder, BuilderOptions, Bytes, Cache, Reader, Source};

const KEYS: u32 = 60_000;
/// What a frame adds to its block, and a filter part's head to its lines.
const HEADS: u64 = 32;

/// Counts the reads, and the longest of them.
struct Counting {
    file: Bytes,
    reads: AtomicU64,
    longest: AtomicU64,
}

impl Source for Counting {
    fn read(&self, offset: u64, len: usize) -> io::Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.longest.fetch_max(len as u64, Ordering::Relaxed);
        self.file.read(offset, len)
    }
}

impl Counting {
    /// The reads and the longest of them that `work` takes.
    fn count(&self, work: impl FnOnce()) -> (u64, u64) {
        self.longest.store(0, Ordering::Relaxed);
        let before = self.reads.load(Ordering::Relaxed);
        work();
        (self.reads.load(Ordering::Relaxed) - before, self.longest.load(Ordering::Relaxed))
    }
}

fn key(n: u32) -> Vec<u8> {
    format!("key-{n:08}").into_bytes()
}

/// Even numbers are there, odd ones are not. Three levels of index above blocks of 512 bytes.
fn open(cache: &Arc<Cache>) -> Reader<Arc<Counting>> {
    let options = BuilderOptions { block_size: 512, ..BuilderOptions::default() };
    let mut builder = Builder::new(Vec::new(), options);
    for n in 0..KEYS {
        builder.add_filter(u64::from(2 * n));
        builder.add(&key(2 * n), &n.to_le_bytes()).unwrap();
    }
    let (summary, file) = builder.finish().unwrap();
    let source = Counting { file: file.into(), reads: AtomicU64::new(0), longest: AtomicU64::new(0) };
    Reader::open_with(Arc::new(source), summary.len, Some(summary.footer_sum), cache.clone()).unwrap()
}

/// Numbers in no order.
fn scattered() -> impl Iterator<Item = u32> {
    (0..2_000u32).map(|n| n.wrapping_mul(2_654_435_761) % KEYS * 2)
}

#[test]
fn without_memory_a_look_up_takes_one_small_read_a_level() {
    let reader = open(&Arc::new(Cache::new(0)));
    let source = reader.source().clone();
    for n in scattered() {
        let (reads, longest) = source.count(|| assert!(reader.get(&key(n)).unwrap().is_some()));
        assert!(
            (2..=5).contains(&reads) && longest <= 512 + HEADS,
            "{reads} reads, of up to {longest} bytes"
        );
        // The directory, and one part of several.
        let (reads, longest) = source.count(|| assert!(reader.may_contain(&key(n), n.into()).unwrap()));
        assert!(reads == 2 && longest <= (16 << 10) + HEADS, "{reads} reads, of up to {longest} bytes");
    }
    assert_eq!(reader.memory(), 0);
}

#[test]
fn with_memory_enough_nothing_is_read_twice() {
    let cache = Arc::new(Cache::new(64 << 20));
    let reader = open(&cache);
    let source = reader.source().clone();
    let all = || {
        scattered().for_each(|n| assert!(reader.may_contain(&key(n), n.into()).unwrap()));
        scattered().for_each(|n| assert!(reader.get(&key(n)).unwrap().is_some()));
    };
    let (reads, _) = source.count(all);
    assert!(reads > 500);
    let before = cache.stats();
    assert_eq!(source.count(all).0, 0);
    let stats = cache.stats();
    assert_eq!((stats.misses, stats.read_bytes), (before.misses, before.read_bytes));
    assert_eq!((before.misses, before.read_bytes < source.file.len() as u64), (reads, true));
    assert!(stats.hits >= before.hits + 3 * 2_000);
    assert_eq!(reader.memory(), stats.filter_bytes + stats.index_bytes);
    // 10 bits of filter an item, and what holds the parts.
    assert!((KEYS as usize * 10 / 8..KEYS as usize * 11 / 8).contains(&stats.filter_bytes), "{stats:?}");
}

/// Look-ups of what is not there are answered by the filter, which stays while blocks come and go.
#[test]
fn filters_stay_where_data_does_not_fit() {
    let cache = Arc::new(Cache::new(500_000));
    let reader = open(&cache);
    let source = reader.source().clone();
    let absent =
        || scattered().filter(|n| reader.may_contain(&key(n + 1), u64::from(n + 1)).unwrap()).count();
    let wrong = absent();
    assert!(wrong < 60, "{wrong} of 2000 pass");
    for _ in 0..3 {
        scattered().take(1_000).for_each(|n| assert!(reader.get(&key(n)).unwrap().is_some()));
        assert_eq!(source.count(|| assert!(absent() == wrong)).0, 0);
    }
    assert!(cache.stats().bytes() <= 500_000 && cache.stats().bytes() > 400_000);
}

#[test]
fn many_readers_keep_to_one_budget_and_leave_nothing_behind() {
    let cache = Arc::new(Cache::new(300_000));
    let readers: Vec<_> = (0..5).map(|_| open(&cache)).collect();
    for n in scattered() {
        for reader in &readers {
            assert_eq!(reader.get(&key(n)).unwrap().unwrap(), (n / 2).to_le_bytes()[..]);
            assert!(reader.may_contain(&key(n), n.into()).unwrap());
        }
        assert!(cache.stats().bytes() <= 300_000);
    }
    let held: usize = readers.iter().map(Reader::memory).sum();
    assert_eq!(held, cache.stats().filter_bytes + cache.stats().index_bytes);
    drop(readers);
    assert_eq!(cache.stats().bytes(), 0);
}

/// What is asked for again and lies scattered takes its own memory, not that of the blocks it lies
/// in.
#[test]
fn scattered_values_are_kept_where_their_blocks_do_not_fit() {
    let cache = Arc::new(Cache::new(500_000));
    let reader = open(&cache);
    let source = reader.source().clone();
    let some = || (0..700u32).map(|n| n.wrapping_mul(2_654_435_761) % KEYS * 2);
    let all =
        || some().for_each(|n| assert_eq!(reader.get(&key(n)).unwrap().unwrap(), (n / 2).to_le_bytes()[..]));
    assert!(source.count(all).0 > 400);
    (0..2).for_each(|_| all());
    // Other blocks pass through.
    for n in (0..KEYS).step_by(100) {
        reader.get(&key(2 * n + 1)).unwrap();
    }
    let (reads, _) = source.count(all);
    assert!(reads < 50, "{reads} reads for what was asked for often");
}

/// A walk over everything keeps no more than the index.
#[test]
fn a_walk_keeps_no_data_blocks() {
    let cache = Arc::new(Cache::new(64 << 20));
    let reader = open(&cache);
    let mut cursor = reader.cursor();
    let mut count = 0;
    while cursor.next().unwrap() {
        count += 1;
    }
    let stats = cache.stats();
    assert_eq!((count, stats.data_bytes, stats.filter_bytes), (KEYS, 0, 0));
    assert!((10_000..200_000).contains(&stats.index_bytes), "{stats:?}");
}
