//! What it costs to look a log up in the runs: reads of the volume, counted, and memory.

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume, Rng, Volume};
use brooklet::{Error, LookupStats, Options, Store};

fn options() -> Options {
    seeded(1)
}

fn seeded(seed: u64) -> Options {
    let clock = Arc::new(ManualClock::default());
    Options::new().ring_size(8 << 20).max_payload(64 << 10).threads(false).clock(clock).rng_seed(seed)
}

/// A payload as long as the middle of what the benchmarks use.
fn payload(rng: &mut Rng) -> Vec<u8> {
    (0..36).flat_map(|_| rng.next().to_le_bytes()).collect()
}

/// Makes logs of one entry each, in `runs` runs at first.
fn fill(store: &Store, runs: u32, logs_of_each: u32, payload: impl Fn(&mut Rng) -> Vec<u8>) {
    let mut rng = Rng::new(7);
    for run in 0..runs {
        for n in 0..logs_of_each {
            drop(store.append(name(run * logs_of_each + n), payload(&mut rng)).unwrap());
        }
        store.checkpoint().unwrap();
    }
}

fn name(n: u32) -> String {
    format!("tenant/{}/document/{n}", n % 17)
}

fn lookups(store: &Store) -> LookupStats {
    store.info().unwrap().lookups
}

/// Looks for a log that is not there; no commit comes of it.
fn absent(store: &Store, n: u32) {
    let error = store.bounds(format!("tenant/{}/absent/{n}", n % 17)).unwrap_err();
    assert!(matches!(error, Error::UnknownLog { .. }), "{error}");
}

#[test]
fn a_new_log_costs_no_read_beyond_what_the_filters_let_pass() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    fill(&store, 3, 20_000, |rng| rng.next().to_le_bytes().to_vec());
    let runs = store.info().unwrap().runs.len() as u64;
    (0..2_000).for_each(|n| absent(&store, n)); // brings the filters in
    let (before, reads) = (lookups(&store), volume.counts().reads);
    for n in 0..5_000 {
        drop(store.append(format!("tenant/{}/new/{n}", n % 17), b"first").unwrap());
    }
    let (after, reads) = (lookups(&store), volume.counts().reads - reads);
    assert_eq!(after.filter_questions - before.filter_questions, 5_000 * runs);
    let misled = after.filter_false_positives - before.filter_false_positives;
    assert!(misled <= 5_000 * runs / 100, "{misled} of {} questions", 5_000 * runs);
    assert!(reads <= 2 * misled, "{reads} reads for {misled} false positives");
    assert_eq!(after.cache_misses - before.cache_misses, reads);
}

#[test]
fn past_the_budget_a_new_log_costs_one_small_read_a_run() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().cache_budget(256 << 10).create_on(volume.clone()).unwrap();
    fill(&store, 2, 150_000, |_| b"x".to_vec());
    let runs = store.info().unwrap().runs.len() as u64;
    (0..500).for_each(|n| absent(&store, n));
    let (before, counts) = (lookups(&store), volume.counts());
    for n in 0..2_000 {
        drop(store.append(format!("tenant/{}/new/{n}", n % 17), b"first").unwrap());
    }
    let (after, counts) = (lookups(&store), volume.counts() - counts);
    let misled = after.filter_false_positives - before.filter_false_positives;
    // A false positive looks at a page of notes. The directories of some ten tables stay beside the
    // few parts for which there is room.
    assert!(counts.reads <= 2_000 * runs + misled, "{counts:?}");
    assert!(counts.reads > 1_000, "the budget was meant to be too small: {counts:?}");
    assert!(counts.read_bytes <= counts.reads * (24 << 10), "{counts:?}");
    let LookupStats { cache_budget, filter_bytes, index_bytes, block_bytes, .. } = after;
    assert!(cache_budget == 256 << 10 && filter_bytes + index_bytes + block_bytes <= cache_budget);
}

/// Whatever is touched of them: at most 2.5 bytes for each log.
#[test]
fn idle_logs_cost_little_memory() {
    const LOGS: u32 = 200_000;
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    fill(&store, 1, LOGS, payload);
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    let store = options().open_on(volume).unwrap();
    let mut rng = Rng::new(3);
    for _ in 0..50_000 {
        let n = rng.below(u64::from(LOGS)) as u32;
        assert_eq!(store.bounds(name(n)).unwrap().next, 1);
    }
    let LookupStats { filter_bytes, index_bytes, .. } = lookups(&store);
    let each = (filter_bytes + index_bytes) as f64 / f64::from(LOGS);
    assert!(filter_bytes > LOGS as usize && each <= 2.5, "{filter_bytes} + {index_bytes}: {each} a log");
}

#[test]
fn a_log_of_many_checkpoints_is_read_at_a_bounded_cost_for_each_run() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    for round in 0..100u32 {
        for n in 0..50 {
            drop(store.append(name(n), round.to_le_bytes()).unwrap());
        }
        store.checkpoint().unwrap();
        while store.step().unwrap() {}
    }
    store.close().unwrap();
    drop(store);
    let store = options().open_on(volume.clone()).unwrap();
    let runs = store.info().unwrap().runs.len() as u64;
    let read = || {
        let reads = volume.counts().reads;
        let entries: Vec<_> = store.read(name(7), ..).unwrap().map(|entry| entry.unwrap().payload).collect();
        assert!(entries.iter().zip(0u32..).all(|(payload, n)| payload[..] == n.to_le_bytes()));
        assert_eq!(entries.len(), 100);
        volume.counts().reads - reads
    };
    // Directory and part of the filter, and one block, which is the root as well.
    let cold = read();
    assert!((runs..=4 * runs).contains(&cold), "{cold} reads for {runs} runs");
    assert_eq!(read(), 0);
}

/// Whoever can name logs, but not read the file, cannot choose names that filters take for others:
/// what misleads the filters of one store does so in another no more than anything else.
#[test]
fn names_that_mislead_one_store_do_not_mislead_another() {
    let stores = [1, 2].map(|seed| {
        let store = seeded(seed).create_on(Arc::new(MemVolume::new(1))).unwrap();
        fill(&store, 1, 10_000, |_| b"x".to_vec());
        store
    });
    let misleads = |store: &Store, n: u32| {
        let before = lookups(store).filter_false_positives;
        absent(store, n);
        lookups(store).filter_false_positives > before
    };
    let chosen: Vec<u32> = (0..60_000).filter(|&n| misleads(&stores[0], n)).take(100).collect();
    assert_eq!(chosen.len(), 100);
    let again = chosen.iter().filter(|&&n| misleads(&stores[1], n)).count();
    assert!(again < 10, "{again} of {} mislead the other store, too", chosen.len());
}

#[test]
fn keys_that_share_long_prefixes_are_found_and_keep_to_the_budget() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().cache_budget(256 << 10).create_on(volume.clone()).unwrap();
    let key = |n: u32| [vec![0; 1_000], n.to_be_bytes().to_vec()].concat();
    for n in 0..20_000 {
        drop(store.append(key(2 * n), n.to_le_bytes()).unwrap());
    }
    store.checkpoint().unwrap();
    let reads = volume.counts().reads;
    let mut rng = Rng::new(3);
    for _ in 0..2_000 {
        let n = rng.below(20_000) as u32;
        let mut entries = store.read(key(2 * n), ..).unwrap();
        assert_eq!(entries.next().unwrap().unwrap().payload[..], n.to_le_bytes());
        assert!(matches!(store.bounds(key(2 * n + 1)), Err(Error::UnknownLog { .. })));
    }
    let reads = volume.counts().reads - reads;
    assert!(reads <= 2_000 * 6, "{reads} reads");
    let LookupStats { cache_budget, filter_bytes, index_bytes, block_bytes, .. } = lookups(&store);
    assert!(filter_bytes + index_bytes + block_bytes <= cache_budget);
}

#[test]
fn an_entry_of_a_very_long_log_is_read_at_a_bounded_cost() {
    const ENTRIES: u64 = 300_000;
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    for n in (0..ENTRIES).step_by(100) {
        drop(store.append_many("long", (n..n + 100).map(u64::to_le_bytes)).unwrap());
    }
    store.checkpoint().unwrap();
    store.append("long", []).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    store.compact().unwrap();
    assert_eq!(store.info().unwrap().runs.len(), 1);
    assert_eq!(lookups(&store).block_bytes, 0, "a merge keeps nothing of what it reads");
    let mut rng = Rng::new(3);
    for _ in 0..500 {
        let n = rng.below(ENTRIES);
        let reads = volume.counts().reads;
        let entry = store.read("long", n..=n).unwrap().next().unwrap().unwrap();
        assert_eq!((entry.seq, &entry.payload[..]), (n, &n.to_le_bytes()[..]));
        let reads = volume.counts().reads - reads;
        assert!(reads <= 6, "{reads} reads for entry {n}");
    }
}

/// A log that was committed to since the store was opened, and rests: the next commit to it looks
/// nothing up, whatever became of the runs meanwhile. One that nobody has committed to is looked
/// up, and takes no memory.
#[test]
fn a_log_that_was_committed_to_is_not_looked_up_again() {
    const LOGS: u32 = 20_000;
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    fill(&store, 3, LOGS / 3, |rng| rng.next().to_le_bytes().to_vec());
    store.compact().unwrap();
    let append = |store: &Store, n: u32| {
        let ticket = store.append(name(n), b"again").unwrap();
        ticket.seq()
    };
    let (before, reads) = (lookups(&store), volume.counts().reads);
    let mut rng = Rng::new(3);
    for _ in 0..5_000 {
        append(&store, rng.below(u64::from(LOGS / 3 * 3)) as u32);
    }
    let after = lookups(&store);
    assert_eq!((after.filter_questions, volume.counts().reads), (before.filter_questions, reads));
    assert!(
        after.bounds_cache > before.bounds_cache + 4_000 && after.bounds_cache_bytes > 16 * LOGS as usize
    );
    store.checkpoint().unwrap();
    store.close().unwrap();
    drop(store);

    let store = options().open_on(volume).unwrap();
    (0..1_000).for_each(|n| assert!(store.exists(name(n)).unwrap()));
    assert_eq!(
        (lookups(&store).bounds_cache, lookups(&store).bounds_cache_bytes),
        (0, 0),
        "looking is not committing"
    );
    let before = lookups(&store).filter_questions;
    let next = append(&store, 7);
    assert!(lookups(&store).filter_questions > before);
    store.checkpoint().unwrap();
    let before = lookups(&store);
    assert_eq!(append(&store, 7), next + 1);
    assert_eq!(store.bounds(name(7)).unwrap().next, next + 1, "what is not durable is not seen");
    let after = lookups(&store);
    assert_eq!(
        (after.filter_questions, after.bounds_cache),
        (before.filter_questions, before.bounds_cache + 2)
    );
}

/// The bounds of a resting log cost a part of the filter and one page of notes, whatever the log
/// holds: no index and no block.
#[test]
fn bounds_of_resting_logs_read_one_page_each() {
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    fill(&store, 1, 20_000, payload);
    store.compact().unwrap();
    store.close().unwrap();
    drop(store);
    let store = options().open_on(volume.clone()).unwrap();
    let counts = volume.counts();
    for n in 0..20_000 {
        assert_eq!(store.bounds(name(n)).unwrap().next, 1);
    }
    let (counts, found) = (volume.counts() - counts, lookups(&store));
    // 20,000 logs have 75 pages or so; each table has a directory, a part, and a page less full.
    assert!(counts.reads < 200 && counts.read_bytes < 1 << 20, "{counts:?}");
    assert_eq!((found.index_bytes, found.filter_false_positives), (0, 0));
}

/// A damaged page of notes is named by the check, and the heads answer in its place.
#[test]
fn logs_whose_page_of_notes_is_damaged_are_read_from_their_heads() {
    let volume = MemVolume::new(1);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    fill(&store, 1, 600, |_| b"x".to_vec());
    store.close().unwrap();
    drop(store);
    let image = volume.image();
    let run = (64 << 10) + (8 << 20)..image.len();
    let mut pages = 0;
    for sector in run.step_by(4096).filter(|&at| image[at..at + 4096].iter().any(|&byte| byte != 0)) {
        let mut damaged = image.clone();
        damaged[sector + 2000] ^= 1;
        let volume = Arc::new(MemVolume::from_image(damaged, 1));
        let report = brooklet::check_volume(volume.clone(), brooklet::Progress::ignore).unwrap();
        if !report.findings.iter().any(|finding| finding.what.contains("page of notes")) {
            continue;
        }
        pages += 1;
        let store = options().open_on(volume).unwrap();
        (0..600).for_each(|n| assert_eq!(store.bounds(name(n)).unwrap().next, 1));
        absent(&store, 1);
    }
    assert!(pages >= 2, "600 notes have three pages, in some sectors");
}

/// Appends an entry to each of the logs `0..logs`, and makes a run of them.
fn append_to_all(store: &Store, logs: u32, payload: &str) {
    for n in 0..logs {
        drop(store.append(name(n), payload).unwrap());
    }
    store.checkpoint().unwrap();
}

fn read(store: &Store, key: &str) -> Vec<String> {
    let entries = store.read(key, ..).unwrap();
    entries.map(|entry| String::from_utf8(entry.unwrap().payload.to_vec()).unwrap()).collect()
}

/// The second read of a log that lies in several runs asks no run, and after a checkpoint only the
/// new run.
#[test]
fn a_log_that_is_read_again_is_found_whole() {
    const LOGS: u32 = 300;
    let volume = Arc::new(MemVolume::new(1));
    let store = options().create_on(volume.clone()).unwrap();
    ["a", "b", "c"].iter().for_each(|payload| append_to_all(&store, LOGS, payload));
    let before = lookups(&store);
    (0..LOGS).for_each(|n| assert_eq!(read(&store, &name(n)), ["a", "b", "c"]));
    let cold = lookups(&store);
    assert_eq!(cold.filter_questions - before.filter_questions, u64::from(3 * LOGS));
    let reads = volume.counts().reads;
    for n in 0..LOGS {
        assert_eq!(read(&store, &name(n)), ["a", "b", "c"]);
        assert_eq!(store.read(name(n), 1..2).unwrap().map(|entry| entry.unwrap().seq).next(), Some(1));
    }
    let warm = lookups(&store);
    assert_eq!((warm.filter_questions, volume.counts().reads), (cold.filter_questions, reads));
    store.append(name(0), "d").unwrap().wait().unwrap();
    assert_eq!(read(&store, &name(0)), ["a", "b", "c", "d"], "one from the memtable");
    store.checkpoint().unwrap();
    let before = lookups(&store);
    (1..LOGS).for_each(|n| assert_eq!(read(&store, &name(n)), ["a", "b", "c"]));
    let after = lookups(&store);
    assert_eq!(after.filter_questions - before.filter_questions, u64::from(LOGS - 1));
    assert_eq!(read(&store, &name(0)), ["a", "b", "c", "d"]);
    store.compact().unwrap();
    (1..LOGS).for_each(|n| assert_eq!(read(&store, &name(n)), ["a", "b", "c"]));
    assert_eq!(read(&store, &name(0)), ["a", "b", "c", "d"]);
}

/// A merge that drops a deleted log leaves nothing in the runs that says so.
#[test]
fn a_log_that_was_read_before_its_deletion_stays_deleted() {
    let store = options().create_on(Arc::new(MemVolume::new(1))).unwrap();
    ["a", "b"].iter().for_each(|payload| append_to_all(&store, 10, payload));
    let view = store.view().unwrap();
    (0..10).for_each(|n| assert_eq!(read(&store, &name(n)), ["a", "b"]));
    (0..10).for_each(|n| store.delete(name(n)).unwrap().wait().unwrap());
    let deleted = |n| matches!(store.read(name(n), ..), Err(Error::UnknownLog { .. }));
    assert!((0..10).all(deleted));
    store.checkpoint().unwrap();
    assert!((0..10).all(deleted));
    store.compact().unwrap();
    assert!((0..10).all(deleted));
    append_to_all(&store, 10, "c");
    (0..10).for_each(|n| assert_eq!(read(&store, &name(n)), ["c"]));
    // The view is older than the logs that were read last.
    (0..10).for_each(|n| assert_eq!(view.read(name(n), ..).unwrap().count(), 2));
    (0..10).for_each(|n| assert_eq!(read(&store, &name(n)), ["c"]));
}
