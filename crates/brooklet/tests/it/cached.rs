//! Look-ups by way of a page cache: one that is wrong or fails is no damage, and none passes a
//! direct write by.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use brooklet::io::{AlignedBuf, Layer, ManualClock, MemVolume, Rng, SECTOR, Volume, read_exact_at};
use brooklet::{Options, Store};

fn options() -> Options {
    let clock = Arc::new(ManualClock::default());
    // A cache so small that blocks are read again and again.
    let options = Options::new().ring_size(1 << 20).max_payload(64 << 10).cache_budget(256 << 10);
    options.threads(false).clock(clock).rng_seed(1)
}

/// What the page cache does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Right,
    /// It fails: no page could be had, or reading one gave an error.
    Fails,
    /// It has pages of what was there when the store was made.
    Stale,
    /// In turn.
    Mixed,
}

/// A volume with a page cache.
#[derive(Clone, Debug)]
struct Paged {
    within: MemVolume,
    mood: Mood,
    before: Arc<Vec<u8>>,
    cached: Arc<AtomicU64>,
    direct: Arc<AtomicU64>,
}

impl Layer for Paged {
    fn below(&self) -> &dyn Volume {
        &self.within
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.direct.fetch_add(1, Ordering::Relaxed);
        self.below().read_at(offset, buf)
    }

    fn read_cached(&self, offset: u64, buf: &mut [u8]) -> bool {
        let nth = self.cached.fetch_add(1, Ordering::Relaxed);
        let mood = match self.mood {
            Mood::Mixed => [Mood::Right, Mood::Fails, Mood::Stale][nth as usize % 3],
            mood => mood,
        };
        let sector = SECTOR as u64;
        let start = offset / sector * sector;
        let skip = (offset - start) as usize;
        let mut sectors = AlignedBuf::zeroed((skip + buf.len()).next_multiple_of(SECTOR));
        read_exact_at(&self.within, start, &mut sectors).unwrap();
        buf.copy_from_slice(&sectors[skip..skip + buf.len()]);
        if mood == Mood::Stale {
            let at = offset as usize;
            for (byte, at) in buf.iter_mut().zip(at..) {
                *byte = self.before.get(at).copied().unwrap_or_default();
            }
        }
        mood != Mood::Fails
    }
}

fn name(n: u64) -> String {
    format!("log/{n:05}")
}

const LOGS: u64 = 3_000;

fn payload(n: u64, round: u64) -> Vec<u8> {
    let mut rng = Rng::new(n << 8 | round);
    (0..20).flat_map(|_| rng.next().to_le_bytes()).collect()
}

/// Fills a store, by ever new entries and the merging of old ones, so that extents are used again,
/// and reads after each.
fn live(store: &Store, rounds: Range<u64>) {
    for round in rounds {
        for n in 0..LOGS {
            drop(store.snapshot(name(n), payload(n, round)).unwrap());
        }
        store.checkpoint().unwrap();
        if round % 2 == 1 {
            store.compact().unwrap();
        }
        let mut rng = Rng::new(round);
        for _ in 0..LOGS {
            let n = rng.below(LOGS);
            let entry = store.read(name(n), ..).unwrap().next().unwrap().unwrap();
            assert_eq!((entry.seq, &entry.payload[..]), (round, &payload(n, round)[..]), "log {n}");
        }
    }
}

#[test]
fn a_page_cache_that_is_wrong_or_fails_is_no_damage() {
    for mood in [Mood::Right, Mood::Fails, Mood::Stale, Mood::Mixed] {
        let within = MemVolume::new(3);
        let paged = |before: Vec<u8>| Paged {
            within: within.clone(),
            mood,
            before: Arc::new(before),
            cached: Arc::default(),
            direct: Arc::default(),
        };
        let store = options().create_on(Arc::new(paged(Vec::new()))).unwrap();
        live(&store, 0..2);
        store.close().unwrap();
        drop(store);
        let volume = paged(within.image());
        let store = options().open_on(Arc::new(volume.clone())).unwrap();
        live(&store, 2..6);
        let (cached, direct) = (volume.cached.load(Ordering::Relaxed), volume.direct.load(Ordering::Relaxed));
        assert!(cached > 1_000, "{cached}");
        assert_eq!(
            direct < cached / 2,
            mood == Mood::Right,
            "{mood:?}: {cached} by way of the cache, {direct} not"
        );
        store.close().unwrap();
        drop(store);
        let report = brooklet::check_volume(Arc::new(within), brooklet::Progress::ignore).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
    }
}

/// On a file, with the system's own page cache: extents are read, freed, and written again by
/// direct writes.
#[test]
fn extents_of_a_file_that_are_used_again_are_read_as_they_are_now() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = options().open(&path).unwrap();
    live(&store, 0..8);
    let size = std::fs::metadata(&path).unwrap().len();
    live(&store, 8..10);
    let grown = std::fs::metadata(&path).unwrap().len();
    assert!(grown <= 2 * size, "extents were to be used again: {size}, then {grown} bytes");
    store.close().unwrap();
    drop(store);
    for read_only in [true, false] {
        let store = options().read_only(read_only).open(&path).unwrap();
        for n in (0..LOGS).rev() {
            let entry = store.read(name(n), ..).unwrap().next().unwrap().unwrap();
            assert_eq!(entry.payload[..], payload(n, 9)[..]);
        }
        let lookups = store.info().unwrap().lookups;
        assert!(lookups.cache_misses > 10, "{lookups:?}");
    }
}
