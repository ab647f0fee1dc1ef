//! Compaction as its users meet it: what it counts, frees, bounds and leaves alone. On one thread,
//! but for the last.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{ManualClock, MemVolume, Rng, Volume};
use brooklet::{ErrorKind, Options, Store};

const SECOND: Duration = Duration::from_secs(1);

struct Place {
    volume: MemVolume,
    clock: Arc<ManualClock>,
}

impl Place {
    fn new() -> Self {
        Self { volume: MemVolume::new(1), clock: Arc::new(ManualClock::default()) }
    }

    fn options(&self) -> Options {
        let options = Options::new().ring_size(1 << 20).max_payload(64 << 10).memory_budget(4 << 20);
        options.threads(false).clock(self.clock.clone()).rng_seed(1)
    }

    fn create(&self) -> Store {
        self.options().create_on(Arc::new(self.volume.clone())).unwrap()
    }

    fn open(&self) -> Store {
        self.options().open_on(Arc::new(self.volume.clone())).unwrap()
    }

    fn written(&self) -> u64 {
        self.volume.counts().written_bytes
    }

    fn check(&self) {
        let report =
            brooklet::check_volume(Arc::new(self.volume.clone()), brooklet::Progress::ignore).unwrap();
        assert!(report.is_sound(), "{:?}", report.findings);
    }
}

/// Lets the store do all that it would do by itself.
fn work(store: &Store) {
    while store.step().unwrap() {}
}

fn checkpoint(store: &Store) {
    store.checkpoint().unwrap();
    work(store);
}

fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next() as u8).collect()
}

/// What each log is to hold: its first number and the next.
type Model = BTreeMap<String, (u64, u64)>;

/// A change to a random log; one in two an append, so that logs grow and shrink.
fn change(store: &Store, model: &mut Model, rng: &mut Rng) {
    let key = format!("log/{}", rng.below(40));
    let known = model.get(&key).copied();
    let (first, next) = known.unwrap_or_default();
    let between = first + rng.below(next - first + 1);
    let ticket = match (rng.below(10), known) {
        (5, Some(_)) => {
            model.insert(key.clone(), (between, next));
            store.trim(&key, between)
        }
        (6, Some(_)) => {
            model.insert(key.clone(), (first, between));
            store.truncate(&key, between)
        }
        (7, Some(_)) => {
            model.remove(&key);
            store.delete(&key)
        }
        (8, _) => {
            model.insert(key.clone(), (next, next + 1));
            store.snapshot(&key, noise(rng, 100))
        }
        _ => {
            model.insert(key.clone(), (first, next + 1));
            store.append(&key, noise(rng, 100))
        }
    };
    drop(ticket.unwrap());
}

/// Of the entries in the runs, those that are not said to be dead live: no more and no fewer,
/// whatever was merged meanwhile, and however often the store was opened anew.
#[test]
fn what_is_dead_is_counted() {
    let place = Place::new();
    let mut store = place.create();
    let (mut model, mut rng) = (Model::new(), Rng::new(7));
    let mut freed = 0;
    for round in 0..300 {
        for _ in 0..1 + rng.below(60) {
            change(&store, &mut model, &mut rng);
        }
        store.checkpoint().unwrap();
        for _ in 0..rng.below(4) {
            store.step().unwrap();
        }
        // What is being merged is told as it was before, beside what was made of it.
        while store.info().unwrap().runs.iter().any(|run| run.merging) {
            store.step().unwrap();
        }
        let info = store.info().unwrap();
        let said: u64 = info.runs.iter().map(|run| run.entries - run.dead).sum();
        assert_eq!(said, model.values().map(|(first, next)| next - first).sum::<u64>(), "round {round}");
        freed += info.maintenance.dead_runs;
        if rng.percent(10) {
            store.close().unwrap();
            drop(store);
            place.check();
            store = place.open();
        }
    }
    assert!(freed > 0, "some runs died by themselves");
    for (key, bounds) in &model {
        let found = store.bounds(key).unwrap();
        assert_eq!((found.first, found.next), *bounds, "{key}");
    }
    assert_eq!(store.scan("").unwrap().count(), model.len());
}

/// A run whose entries are all gone is freed without being merged: damage in the midst of it is
/// never met.
#[test]
fn a_run_in_which_nothing_lives_is_freed_unread() {
    let place = Place::new();
    let store = place.create();
    let mut rng = Rng::new(1);
    // So much lives that garbage alone is no reason to merge.
    for _ in 0..40 {
        drop(store.append("first", noise(&mut rng, 10_000)).unwrap());
    }
    checkpoint(&store);
    for _ in 0..20 {
        drop(store.append("large", noise(&mut rng, 10_000)).unwrap());
    }
    checkpoint(&store);
    let run = store.info().unwrap().runs[0];
    for at in (20_000..200_000).step_by(1000) {
        place.volume.flip(run.offset as usize + at, 1);
    }
    drop(store.trim("large", 19).unwrap());
    checkpoint(&store);
    let info = store.info().unwrap();
    assert_eq!((info.runs.len(), info.maintenance.dead_runs), (3, 0), "one entry lives");
    assert_eq!(info.runs[1].dead, 19);
    drop(store.delete("large").unwrap());
    checkpoint(&store);
    let info = store.info().unwrap();
    assert_eq!((info.maintenance.dead_runs, info.maintenance.compactions), (1, 0));
    assert!(info.runs.iter().all(|r| r.id != run.id), "{:?}", info.runs);
    drop(store.append("large", b"anew").unwrap());
    checkpoint(&store);
    store.close().unwrap();
    place.check();
    let store = place.open();
    assert_eq!(store.read("large", ..).unwrap().next().unwrap().unwrap().payload, "anew");
    assert_eq!(store.bounds("first").unwrap().next, 40);
}

/// What a run only tells - that a log is there, and empty; that it is gone - counts for as long as
/// older runs do not say so.
#[test]
fn a_run_that_only_tells_of_logs_is_kept_while_it_is_needed() {
    let place = Place::new();
    let store = place.create();
    drop(store.append_many("gone", ["a", "b"]).unwrap());
    drop(store.append_many("empty", ["a", "b"]).unwrap());
    drop(store.append_many("stays", [[7; 1000]; 50]).unwrap());
    checkpoint(&store);
    drop(store.delete("gone").unwrap());
    drop(store.trim("empty", 2).unwrap());
    drop(store.append("state", b"1").unwrap());
    checkpoint(&store);
    drop(store.delete("state").unwrap());
    checkpoint(&store);
    let info = store.info().unwrap();
    assert_eq!((info.runs.len(), info.runs[1].dead), (3, 1), "{:?}", info.runs);
    assert!(!store.exists("gone").unwrap() && store.bounds("empty").unwrap().next == 2);
    drop(store.delete("stays").unwrap());
    drop(store.delete("empty").unwrap());
    checkpoint(&store);
    let info = store.info().unwrap();
    assert_eq!((info.runs.len(), store.scan("").unwrap().count()), (0, 0), "{:?}", info.runs);
    store.close().unwrap();
    place.check();
    assert_eq!(place.open().scan("").unwrap().count(), 0);
}

/// No step writes much more than a slice, though there is but one log, and it is large.
#[test]
fn a_slice_ends_inside_a_log() {
    let place = Place::new();
    let store = place.create();
    let mut rng = Rng::new(1);
    for _ in 0..160 {
        drop(store.append("log", noise(&mut rng, 60_000)).unwrap());
    }
    store.checkpoint().unwrap();
    assert!(store.info().unwrap().runs.len() < 13);
    while store.info().unwrap().runs.len() < 13 {
        drop(store.append("log", noise(&mut rng, 100)).unwrap());
        store.checkpoint().unwrap();
    }
    let (mut steps, mut most) = (0, 0);
    loop {
        let before = place.written();
        if !store.step().unwrap() {
            break;
        }
        (steps, most) = (steps + 1, most.max(place.written() - before));
    }
    assert!(store.info().unwrap().maintenance.compactions > 0);
    assert!(steps >= 8 && most <= 3 << 20, "{steps} steps of at most {most} bytes");
    let lens: Vec<usize> = store.read("log", ..).unwrap().map(|entry| entry.unwrap().payload.len()).collect();
    assert!(lens[..160] == [60_000; 160] && lens[160..].iter().all(|&len| len == 100), "{lens:?}");
}

#[test]
fn a_thousand_checkpoints_leave_a_dozen_runs() {
    let place = Place::new();
    let store = place.create();
    let mut most = 0;
    for n in 0..1000u32 {
        drop(store.append("log", n.to_le_bytes()).unwrap());
        checkpoint(&store);
        most = most.max(store.info().unwrap().runs.len());
    }
    assert_eq!(most, 12);
    let entries: Vec<_> = store.read("log", ..).unwrap().map(|entry| entry.unwrap().payload).collect();
    assert!(entries.iter().zip(0u32..).all(|(entry, n)| entry[..] == n.to_le_bytes()));
    assert_eq!(entries.len(), 1000);
    store.close().unwrap();
    place.check();
}

/// Much is checkpointed after a second without commits, little only later, and then the store
/// rests.
#[test]
fn an_idle_store_checkpoints_and_rests() {
    let place = Place::new();
    let store = place.create();
    let runs = || store.info().unwrap().runs.len();
    let mut rng = Rng::new(1);
    store.append("log", noise(&mut rng, 60_000)).unwrap().wait().unwrap();
    work(&store);
    assert_eq!(runs(), 0, "it is busy");
    place.clock.advance(SECOND);
    work(&store);
    assert_eq!((runs(), store.info().unwrap().wal.used), (1, 0));
    store.append("log", b"little").unwrap().wait().unwrap();
    work(&store);
    place.clock.advance(10 * SECOND);
    work(&store);
    assert_eq!(runs(), 1, "little waits");
    place.clock.advance(10 * SECOND);
    work(&store);
    assert_eq!(runs(), 2);
    let written = place.written();
    for _ in 0..10 {
        place.clock.advance(100 * SECOND);
        work(&store);
        let _ = store.read("log", ..).unwrap().count();
    }
    assert_eq!(place.written(), written, "nothing happened, and nothing is written");
}

/// Runs are merged for who reads once nobody has committed for long, not before; then the store
/// rests.
#[test]
fn a_store_at_rest_leaves_few_runs_to_read() {
    let place = Place::new();
    let mut store = place.create();
    let mut rng = Rng::new(1);
    let mut sizes = Vec::new();
    for round in 1..=5 {
        for _ in 0..round {
            (0..100).for_each(|log| drop(store.append(format!("log/{log}"), noise(&mut rng, 100)).unwrap()));
            checkpoint(&store);
        }
        let runs = store.info().unwrap().runs.len();
        place.clock.advance(10 * SECOND);
        work(&store);
        assert_eq!(store.info().unwrap().runs.len(), runs, "it is only idle");
        place.clock.advance(10 * SECOND);
        work(&store);
        sizes.push(store.info().unwrap().runs.iter().map(|run| run.entries / 100).collect::<Vec<_>>());
        let written = place.written();
        place.clock.advance(100 * SECOND);
        work(&store);
        assert_eq!(place.written(), written, "once is enough");
        store.close().unwrap();
        drop(store);
        place.check();
        store = place.open();
    }
    assert_eq!(sizes, [vec![1], vec![3], vec![6], vec![4, 6], vec![15]]);
    (0..100).for_each(|log| assert_eq!(store.read(format!("log/{log}"), ..).unwrap().count(), 15));
}

/// Reads of logs that lie in several runs pay for a merge, although the store is not at rest. Reads
/// of logs in one run pay for nothing, and neither do look-ups of bounds.
#[test]
fn reads_of_many_pieces_merge_the_runs() {
    let place = Place::new();
    let store = place.create();
    let mut rng = Rng::new(1);
    for run in 0..4 {
        for log in 0..100 {
            drop(store.append(format!("log/{log}"), noise(&mut rng, 20)).unwrap());
            drop(store.append(format!("of/{run}/{log}"), noise(&mut rng, 20)).unwrap());
        }
        checkpoint(&store);
    }
    let runs = || store.info().unwrap().runs.len();
    let bytes: u64 = store.info().unwrap().runs.iter().map(|run| run.bytes).sum();
    for log in (0..100).cycle().take(10_000) {
        assert_eq!(store.read(format!("of/{}/{log}", log % 4), ..).unwrap().count(), 1);
        assert_eq!(store.bounds(format!("log/{log}")).unwrap().next, 4);
    }
    work(&store);
    assert_eq!(runs(), 4, "one piece each");
    let mut reads = 0;
    while runs() > 1 {
        // A log that is read again is found whole, and costs no look at the runs.
        assert_eq!(store.read(format!("log/{reads}"), ..).unwrap().count(), 4);
        work(&store);
        reads += 1;
        assert!(reads < 100, "the runs are never merged");
    }
    // Each read looks at three pieces more than one. A look costs 256 to 4,096 bytes.
    assert!((bytes / (3 * 4096)..=bytes / (3 * 256) + 1).contains(&reads), "{reads} reads, {bytes} bytes");
    let written = place.written();
    for log in (0..100).cycle().take(10_000) {
        assert_eq!(store.read(format!("log/{log}"), ..).unwrap().count(), 4);
    }
    work(&store);
    assert_eq!(place.written(), written);
    store.close().unwrap();
    drop(store);
    place.check();
}

#[test]
fn a_store_in_which_nothing_happens_is_not_written_to() {
    let place = Place::new();
    for _ in 0..3 {
        let store = if place.volume.size().unwrap() == 0 { place.create() } else { place.open() };
        // The empty block that tells what is acknowledged is the log's own affair.
        work(&store);
        let written = place.written();
        assert!(store.trim("none", 0).is_err());
        for _ in 0..10 {
            place.clock.advance(100 * SECOND);
            work(&store);
        }
        assert_eq!((place.written(), store.info().unwrap().runs.len()), (written, 0));
    }
}

/// Garbage that is borne while the store is busy goes once it is idle, and the work ends.
#[test]
fn an_idle_store_gives_space_back() {
    let place = Place::new();
    let store = place.create();
    let mut rng = Rng::new(1);
    for log in 0..400 {
        drop(store.append(format!("log/{log}"), noise(&mut rng, 3000)).unwrap());
    }
    store.checkpoint().unwrap();
    for log in (0..400).step_by(2) {
        drop(store.delete(format!("log/{log}")).unwrap());
    }
    store.flush().unwrap();
    work(&store);
    let heap = || store.info().unwrap().runs.iter().map(|run| run.bytes).sum::<u64>();
    assert!(heap() > 1_100_000, "it is busy");
    place.clock.advance(20 * SECOND);
    work(&store);
    assert!(heap() < 200 * 3000 * 13 / 10, "{} bytes for {}", heap(), 200 * 3000);
    let written = place.written();
    place.clock.advance(100 * SECOND);
    work(&store);
    assert_eq!(place.written(), written);
    store.close().unwrap();
    place.check();
}

/// A merge takes room for two segments, however much it merges.
#[test]
fn a_nearly_full_store_is_merged() {
    let place = Place::new();
    let options = || place.options().memory_budget(1 << 20).capacity(6 << 20);
    let store = options().create_on(Arc::new(place.volume.clone())).unwrap();
    let mut rng = Rng::new(1);
    for part in 0..3 {
        for log in 0..400 {
            drop(store.append(format!("log/{part}/{log}"), noise(&mut rng, 3000)).unwrap());
        }
        store.checkpoint().unwrap();
    }
    for log in (0..400).step_by(8) {
        for part in 0..3 {
            drop(store.delete(format!("log/{part}/{log}")).unwrap());
        }
    }
    store.checkpoint().unwrap();
    let before = store.info().unwrap();
    assert!(before.runs.len() > 3);
    let used = before.runs.iter().map(|run| run.bytes).sum::<u64>();
    let room = before.capacity - before.heap_offset - used;
    assert!(used > 3_600_000 && room < 1_600_000, "{used} bytes of runs, and {room} are free");
    let reader = store.read("log/1/7", ..).unwrap();
    store.compact().unwrap();
    let after = store.info().unwrap();
    assert_eq!((after.runs.len(), after.maintenance.compactions - before.maintenance.compactions), (1, 1));
    assert!(after.maintenance.compaction_steps > 3, "{:?}", after.maintenance);
    assert_eq!(store.scan("").unwrap().count(), 1050);
    assert_eq!(reader.map(|entry| entry.unwrap().payload.len()).sum::<usize>(), 3000);
    store.close().unwrap();
    place.check();
    drop(store);
    let store = options().open_on(Arc::new(place.volume.clone())).unwrap();
    assert!(!store.exists("log/0/8").unwrap() && store.exists("log/2/9").unwrap());
}

/// Where there is no room to merge, since a log alone would need more, an idle store says so once,
/// and rests until there is more, or could be.
#[test]
fn an_idle_store_without_room_to_merge_rests() {
    let place = Place::new();
    let options = place.options().capacity(5 << 20);
    let store = options.create_on(Arc::new(place.volume.clone())).unwrap();
    let mut rng = Rng::new(1);
    for _ in 0..3 {
        for _ in 0..400 {
            drop(store.append("log", noise(&mut rng, 2200)).unwrap());
        }
        store.checkpoint().unwrap();
    }
    drop(store.trim("log", 250).unwrap());
    store.checkpoint().unwrap();
    place.clock.advance(20 * SECOND);
    let rests = || (0..100).any(|_| !store.step().unwrap());
    assert!(rests());
    place.clock.advance(100 * SECOND);
    assert!(rests());
    let written = place.written();
    for _ in 0..5 {
        drop(store.append("other", b"little").unwrap());
        store.checkpoint().unwrap();
        place.clock.advance(20 * SECOND);
        assert!(rests(), "there is no more room than before");
    }
    assert!(place.written() - written < 500_000, "{} bytes", place.written() - written);
    assert_eq!(store.compact().unwrap_err().kind(), ErrorKind::Full, "and to whoever asks for it");
    store.close().unwrap();
}

/// The store's own thread does all that by itself, and is woken for it.
#[test]
fn the_maintenance_thread_notices_idleness() {
    let options = Options::new().ring_size(1 << 20).max_payload(64 << 10);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let mut rng = Rng::new(1);
    for round in 1..=2 {
        // The thread sleeps for good by now, since there is nothing to do.
        store.append("log", noise(&mut rng, 60_000)).unwrap().wait().unwrap();
        while store.info().unwrap().maintenance.checkpoints < round {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
}
