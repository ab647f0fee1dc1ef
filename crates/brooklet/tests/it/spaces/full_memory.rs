//! Spaces in memory whose memory is full: what they refuse and drop, logs that are not in memory
//! yet, and logs without entries.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

use brooklet::io::{Layer, ManualClock, MemVolume, Rng, Volume};
use brooklet::{Class, Commit, Error, MemoryConfig, Options, Retention, Space, SpaceConfig, Store, WhenFull};

use super::memory::in_memory;
use super::{create, open, options};

fn dropping(bytes: u64) -> SpaceConfig {
    let memory = MemoryConfig::new(bytes).when_full(WhenFull::DropOldest);
    SpaceConfig::new().class(Class::Memory(memory))
}

/// A space whose logs take twice the memory that the space has by now: the second half of the logs
/// stays in the runs.
fn reopened(config: SpaceConfig) -> (MemVolume, Space) {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    let space = store.create_space("s", dropping(256 << 10)).unwrap();
    for log in 0..200 {
        space.append(format!("{log:03}"), [7; 1000]).unwrap().wait().unwrap();
    }
    space.dump().unwrap();
    space.configure(config).unwrap();
    store.close().unwrap();
    drop((space, store));
    let space = open(&volume).unwrap().space("s").unwrap();
    let memory = space.info().unwrap().memory.unwrap();
    assert!(!memory.complete && memory.used <= 128 << 10, "{memory:?}");
    assert_eq!(space.scan("").unwrap().count(), 200, "no log is dropped before its room is needed");
    (volume, space)
}

#[test]
fn a_full_space_makes_room_for_a_log_that_is_not_in_memory() {
    let (_volume, space) = reopened(dropping(128 << 10));
    let newest = space.info().unwrap().logs.unwrap() - 1;
    for log in (150..200).rev() {
        space.append(format!("{log:03}"), "x").unwrap().wait().unwrap();
        assert_eq!(space.bounds(format!("{log:03}")).unwrap().next, 2);
    }
    let info = space.info().unwrap();
    let memory = info.memory.unwrap();
    assert!(memory.dropped > 20 && memory.used <= 128 << 10 && info.refused == 0, "{info:?}");
    // The oldest are gone, for good: those that no commit touched.
    assert!(space.bounds("000").is_err() && space.bounds(format!("{newest:03}")).is_ok());
    space.dump().unwrap();
    assert!(space.bounds("000").is_err());
}

/// The logs of one commit, of which some are in memory, stay together.
#[test]
fn a_commit_keeps_its_own_logs() {
    let (_volume, space) = reopened(dropping(128 << 10));
    let mut commit = Commit::new();
    for log in ["000", "001", "150", "151", "152", "153", "154", "155", "156", "157", "158", "159"] {
        commit.expect_next(log, 1).append(log, [7; 2000]);
    }
    space.commit(&commit).unwrap().wait().unwrap();
    assert_eq!((space.bounds("000").unwrap().next, space.bounds("159").unwrap().next), (2, 2));
    assert!(space.bounds("002").is_err());
}

/// A deletion needs no entry of its log, and an expectation needs none. In an earlier state, a full
/// space loaded the log for them: it refused the commit, or dropped other logs.
#[test]
fn a_full_space_loads_no_log_to_delete_it() {
    for config in [dropping(128 << 10), in_memory(128 << 10)] {
        let (volume, space) = reopened(config);
        let mut expecting = Commit::new();
        expecting.expect_next("198", 1).trim("000", 1);
        space.commit(&expecting).unwrap().wait().unwrap();
        let mut unlawful = Commit::new();
        unlawful.delete("199").append("199", "again").trim("unknown", 1);
        let error = space.commit(&unlawful).unwrap_err();
        assert!(matches!(error, Error::UnknownLog { .. }), "{error}");
        let mut conflict = Commit::new();
        conflict.expect_next("199", 7).delete("199");
        let error = space.commit(&conflict).unwrap_err();
        assert!(matches!(error, Error::Conflict { .. }), "{error}");
        for log in 150..200 {
            let key = format!("{log:03}");
            assert_eq!(space.bounds(&key).unwrap().next, 1);
            let mut deletion = Commit::new();
            deletion.expect_next(&key, 1).delete(&key);
            space.commit(&deletion).unwrap().wait().unwrap();
            assert!(space.bounds(&key).is_err() && space.delete(&key).is_err());
        }
        let dropped = space.info().unwrap().memory.unwrap().dropped;
        assert_eq!((dropped, space.scan("").unwrap().count()), (0, 150));
        drop(space);
        // The dump at the end has the deletions.
        let space = open(&volume).unwrap().space("s").unwrap();
        assert_eq!(space.scan("").unwrap().count(), 150);
    }
}

#[test]
fn a_space_that_refuses_counts_the_logs_that_do_not_fit() {
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(128 << 10)));
    let (_volume, space) = reopened(memory);
    let error = space.append("199", "x").unwrap_err();
    assert!(matches!(error, Error::MemoryFull { limit: 131_072, .. }), "{error}");
    let info = space.info().unwrap();
    assert_eq!((info.refused, info.memory.unwrap().dropped), (1, 0));
}

/// A limited retention creates its log.
#[test]
fn logs_without_entries_need_memory() {
    let store = create(&MemVolume::new(1));
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(64 << 10)));
    let space = store.create_space("s", memory).unwrap();
    let set = |log: u32| space.set_retention(format!("{log}"), Retention::new().entries(1));
    let error = (0..5000).find_map(|log| set(log).err()).expect("no log is refused");
    assert!(matches!(error, Error::MemoryFull { .. }), "{error}");
    assert!(space.info().unwrap().memory.unwrap().used <= 64 << 10);
    // A log that exists needs no more for another limit, and none for no limit.
    space.set_retention("0", Retention::new().entries(2)).unwrap().wait().unwrap();
    space.set_retention("0", Retention::new()).unwrap().wait().unwrap();
}

/// Nothing dumps the space, and no commit comes to the logs whose entries are too old.
#[test]
fn entries_that_are_too_old_make_room() {
    let clock = Arc::new(ManualClock::default());
    let store = options().clock(clock.clone()).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let memory = Class::Memory(MemoryConfig::new(256 << 10));
    let config = SpaceConfig::new().class(memory).retention(Retention::new().age(Duration::from_secs(60)));
    let space = store.create_space("s", config).unwrap();
    let fill = |name: &str| {
        let full = (0..).find_map(|n: u64| Some((n, space.append(format!("{name}/{n}"), [7; 2000]).err()?)));
        let (n, error) = full.expect("memory ends");
        assert!(matches!(error, Error::MemoryFull { .. }), "{error}");
        n
    };
    assert!(fill("old") > 80);
    clock.advance(Duration::from_secs(120));
    let logs = fill("new");
    assert!(logs > 40, "{logs}");
    assert_eq!(space.bounds("old/0").unwrap().len(), 0);
    assert_eq!(space.bounds("new/0").unwrap().len(), 1);
}

/// Nothing dumps the space, no commit comes to its logs, and its memory is not full.
#[test]
fn a_compaction_drops_entries_in_memory_that_are_too_old() {
    let clock = Arc::new(ManualClock::default());
    let store = options().clock(clock.clone()).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let config = in_memory(1 << 20).retention(Retention::new().age(Duration::from_secs(60)));
    let space = store.create_space("s", config).unwrap();
    for n in 0..50 {
        space.append(format!("{n}"), [7; 2000]).unwrap().wait().unwrap();
    }
    store.compact().unwrap();
    let used = || space.info().unwrap().memory.unwrap().used;
    let before = used();
    clock.advance(Duration::from_secs(120));
    store.compact().unwrap();
    assert!(used() < before / 2, "{} of {before} bytes", used());
    assert_eq!((space.info().unwrap().logs, space.info().unwrap().bytes), (Some(50), Some(0)));
}

/// Returns a space in memory whose logs are larger than the heap.
fn larger_than_the_heap(store: &Store) -> Space {
    let mut rng = Rng::new(1);
    let memory = Class::Memory(MemoryConfig::new(16 << 20));
    let space = store.create_space("s", SpaceConfig::new().class(memory)).unwrap();
    for log in 0..500 {
        let noise: Vec<u8> = (0..8000).map(|_| rng.next() as u8).collect();
        space.append(format!("{log}"), noise).unwrap().wait().unwrap();
    }
    space
}

#[test]
fn a_store_without_room_for_a_dump_stays_open() {
    let volume = MemVolume::new(1);
    let store = options().capacity(4 << 20).create_on(Arc::new(volume.clone())).unwrap();
    let space = larger_than_the_heap(&store);
    for _ in 0..2 {
        let error = store.close().unwrap_err();
        assert!(matches!(error, Error::Full { .. }), "{error}");
        assert_eq!(space.bounds("7").unwrap().next, 1);
    }
    (10..500).for_each(|log| drop(space.delete(format!("{log}")).unwrap()));
    store.append("durable", "entry").unwrap().wait().unwrap();
    store.close().unwrap();
    drop((space, store));
    let store = open(&volume).unwrap();
    assert_eq!(store.scan("s/").unwrap().count(), 10);
    assert_eq!(store.bounds("s/7").unwrap().next, 1);
    assert_eq!(store.bounds("durable").unwrap().next, 1);
}

/// A view holds the file of the store, until a closed store releases the file.
#[test]
fn a_store_without_room_for_a_dump_keeps_no_file_after_its_last_handle() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = options().capacity(4 << 20).open(&path).unwrap();
    let space = larger_than_the_heap(&store);
    store.append("durable", "entry").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    let view = store.view().unwrap();
    let error = store.close().unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    drop((space, store));
    let again = options().open(&path).unwrap();
    assert_eq!(again.bounds("durable").unwrap().next, 1);
    drop(view);
}

#[test]
fn memory_that_is_full_refuses_or_drops_the_oldest_logs() {
    let store = create(&MemVolume::new(1));
    let space = store.create_space("s", in_memory(64 << 10)).unwrap();
    let mut logs = 0;
    let error = loop {
        match space.append(format!("{logs:04}"), [7; 100]) {
            Ok(_) => logs += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::MemoryFull { limit: 65536, .. }) && logs > 150, "{logs}: {error}");
    let info = space.info().unwrap();
    assert!(
        info.memory.unwrap().used <= 64 << 10 && info.refused == 1 && info.logs == Some(logs),
        "{info:?}"
    );
    // The space takes deletions, and they make room.
    (0..9).for_each(|log| drop(space.delete(format!("{log:04}")).unwrap()));
    space.append("new", [7; 100]).unwrap().wait().unwrap();

    let oldest = MemoryConfig::new(64 << 10).when_full(WhenFull::DropOldest);
    space.configure(SpaceConfig::new().class(Class::Memory(oldest))).unwrap();
    space.append("0009", "kept, since it is written to").unwrap().wait().unwrap();
    for log in 0..50 {
        space.append(format!("more {log}"), [7; 100]).unwrap().wait().unwrap();
    }
    let dropped = space.info().unwrap().memory.unwrap().dropped;
    assert!((20..60).contains(&dropped), "{dropped}");
    assert!(space.bounds("0010").is_err() && space.bounds("0009").is_ok() && space.bounds("new").is_ok());
    let left: Vec<_> = space.scan("").unwrap().map(|log| log.unwrap().key).collect();
    // An entry that is larger than all of it is refused all the same.
    let large: Vec<_> = (0..9).map(|_| vec![7; 9000]).collect();
    assert!(matches!(space.append_many("0010", large), Err(Error::MemoryFull { .. })));
    assert!(space.scan("").unwrap().map(|log| log.unwrap().key).eq(left));
}

#[test]
fn a_commit_that_is_refused_drops_no_other_log() {
    let store = create(&MemVolume::new(1));
    let oldest = MemoryConfig::new(64 << 10).when_full(WhenFull::DropOldest);
    let config = SpaceConfig::new().class(Class::Memory(oldest));
    let space = store.create_space("s", config.clone()).unwrap();
    for log in 0..100 {
        space.append(format!("{log:04}"), [7; 100]).unwrap().wait().unwrap();
    }
    space.append_many("large", vec![vec![7; 9000]; 4]).unwrap().wait().unwrap();
    let logs = || -> Vec<_> { space.scan("").unwrap().map(|log| log.unwrap()).collect() };
    let before = logs();
    assert!(before.len() > 80, "{}", before.len());
    // The log alone would be larger than all memory.
    let error = space.append_many("large", vec![vec![7; 9000]; 4]).unwrap_err();
    assert!(matches!(error, Error::MemoryFull { .. }), "{error}");
    assert_eq!(logs(), before);
    // Commits that would fit, and are refused for another reason.
    let mut unknown = Commit::new();
    (0..3).for_each(|_| _ = unknown.append("new", vec![7; 9000]));
    unknown.trim("unknown", 1);
    let error = space.commit(&unknown).unwrap_err();
    assert!(matches!(error, Error::UnknownLog { .. }), "{error}");
    assert_eq!(logs(), before);
    space.configure(config.max_logs(before.len() as u64)).unwrap();
    let error = space.append_many("new", vec![vec![7; 9000]; 3]).unwrap_err();
    assert!(matches!(error, Error::QuotaReached { .. }), "{error}");
    assert_eq!(logs(), before);
    assert_eq!(space.info().unwrap().memory.unwrap().dropped, 0);
    // One that fits drops as many as it must.
    space.append("0099", vec![7; 9000]).unwrap().wait().unwrap();
    let after = logs();
    assert!(after.len() < before.len() && after.iter().any(|log| log.key == *b"large"), "{}", after.len());
}

/// A volume that counts the bytes that are read.
#[derive(Clone, Debug)]
struct Counting(MemVolume, Arc<AtomicU64>);

impl Layer for Counting {
    fn below(&self) -> &dyn Volume {
        &self.0
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.1.fetch_add(buf.len() as u64, Ordering::Relaxed);
        self.0.read_at(offset, buf)
    }

    fn read_cached(&self, _: u64, _: &mut [u8]) -> bool {
        false
    }
}

/// The log takes eight megabytes, and the space has a fraction of that. In an earlier state, the
/// store loaded the whole log before it noticed.
#[test]
fn a_log_larger_than_all_memory_is_not_loaded() {
    let volume = Counting(MemVolume::new(1), Arc::default());
    let read = || volume.1.swap(0, Ordering::Relaxed);
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let space = store.create_space("s", SpaceConfig::new()).unwrap();
    let mut rng = Rng::new(1);
    for _ in 0..1000 {
        let noise: Vec<u8> = (0..8000).map(|_| rng.next() as u8).collect();
        space.append("large", noise).unwrap().wait().unwrap();
    }
    store.compact().unwrap();
    read();
    let refused = space.configure(in_memory(64 << 10));
    assert!(matches!(refused, Err(Error::MemoryFull { .. })), "{refused:?}");
    let moved = read();
    assert!(moved < 4 << 20, "{moved} bytes were read");
    // It leaves memory for the runs, and does not come back.
    space.configure(in_memory(16 << 20)).unwrap();
    space.configure(in_memory(64 << 10)).unwrap();
    space.dump().unwrap();
    store.close().unwrap();
    drop((space, store));
    read();
    let store = options().open_on(Arc::new(volume.clone())).unwrap();
    let space = store.space("s").unwrap();
    assert!(!space.info().unwrap().memory.unwrap().complete);
    let opened = read();
    let refused = space.append("large", "one more").map(drop);
    assert!(matches!(refused, Err(Error::MemoryFull { .. })), "{refused:?}");
    let looked = read();
    assert!(opened < 4 << 20 && looked < 4 << 20, "{opened} and {looked} bytes were read");
    assert_eq!(space.info().unwrap().refused, 1);
}

/// A volume whose reads on the thread of the test wait for the next dump, until there are none.
#[derive(Clone, Debug)]
struct Overtaken {
    volume: MemVolume,
    test: ThreadId,
    /// Number of dumps so far, or `None` before the first one and after the last one.
    dumps: Arc<(Mutex<Option<u32>>, Condvar)>,
}

impl Overtaken {
    fn set_dumps(&self, dumps: Option<u32>) {
        *self.dumps.0.lock().unwrap() = dumps;
        self.dumps.1.notify_all();
    }

    /// Dumps the space over and over, until a read or the test ends that. Returns `false` if none
    /// did.
    fn dump_often(&self, space: &Space) -> bool {
        for nth in 1..1000 {
            space.append("hot", "x").unwrap().wait().unwrap();
            space.dump().unwrap();
            let mut dumps = self.dumps.0.lock().unwrap();
            if dumps.is_none() {
                return true;
            }
            *dumps = Some(nth);
            self.dumps.1.notify_all();
        }
        self.set_dumps(None);
        false
    }
}

impl Layer for Overtaken {
    fn below(&self) -> &dyn Volume {
        &self.volume
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if thread::current().id() == self.test {
            let dumps = self.dumps.0.lock().unwrap();
            let before = *dumps;
            let waits = |dumps: &mut Option<u32>| dumps.is_some() && *dumps == before;
            let patience = Duration::from_secs(1);
            let (mut dumps, waited) = self.dumps.1.wait_timeout_while(dumps, patience, waits).unwrap();
            if waited.timed_out() {
                *dumps = None;
            }
        }
        self.volume.read_at(offset, buf)
    }
}

/// Each dump makes the look-ups void that began before it. In an earlier state, the commit loaded
/// the log again and again, for as long as others wrote to the space.
#[test]
fn a_log_that_loads_longer_than_the_time_between_dumps_comes_to_memory() {
    let volume = Overtaken { volume: MemVolume::new(1), test: thread::current().id(), dumps: Arc::default() };
    let options = || {
        // The cache is smaller than the log, which is read again each time.
        Options::new()
            .ring_size(256 << 10)
            .memory_budget(64 << 10)
            .max_payload(9 << 10)
            .cache_budget(256 << 10)
    };
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let space = store.create_space("s", dropping(4 << 20)).unwrap();
    let mut rng = Rng::new(1);
    for log in ["0", "1"] {
        for _ in 0..40 {
            let noise: Vec<u8> = (0..8000).map(|_| rng.next() as u8).collect();
            space.append(log, noise).unwrap().wait().unwrap();
        }
    }
    // Memory has room for one of them.
    space.configure(dropping(560 << 10)).unwrap();
    store.close().unwrap();
    drop((space, store));
    let store = options().open_on(Arc::new(volume.clone())).unwrap();
    let space = store.space("s").unwrap();
    assert!(!space.info().unwrap().memory.unwrap().complete);
    volume.set_dumps(Some(0));
    let came = thread::scope(|scope| {
        let dumper = scope.spawn(|| volume.dump_often(&space));
        assert_eq!(space.append("1", "more").unwrap().seq(), 40);
        volume.set_dumps(None);
        dumper.join().unwrap()
    });
    assert!(came, "the log came to memory only after the last dump");
}
