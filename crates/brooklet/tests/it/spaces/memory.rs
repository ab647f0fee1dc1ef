//! Spaces in memory: what they hold, and moving in and out of memory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Class, Commit, Error, MemoryConfig, Options, Retention, Space, SpaceConfig, Store, WhenFull};

use super::{create, open, options};

pub(super) fn in_memory(bytes: u64) -> SpaceConfig {
    SpaceConfig::new().class(Class::Memory(MemoryConfig::new(bytes)))
}

pub(super) fn payloads(space: &Space, key: &str) -> Vec<String> {
    let entries = space.read(key, ..).unwrap();
    entries.map(|entry| String::from_utf8(entry.unwrap().payload.to_vec()).unwrap()).collect()
}

/// What the logs of a space are: their first numbers, and payloads.
pub(super) type State = BTreeMap<String, (u64, Vec<Vec<u8>>)>;

pub(super) fn state(store: &Store) -> State {
    let mut state = State::new();
    for log in store.scan("s/").unwrap() {
        let log = log.unwrap();
        let entries = store.read(&log.key, ..).unwrap().map(|entry| entry.unwrap().payload.to_vec());
        let (key, first) = (String::from_utf8(log.key.clone()).unwrap(), log.bounds.first);
        assert_eq!(store.bounds(&log.key).unwrap(), log.bounds);
        state.insert(key, (first, entries.collect()));
    }
    state
}

/// A store with a space in and out of memory, and a twin of what its logs are to be.
struct Twin {
    volume: MemVolume,
    store: Store,
    rng: Rng,
    config: SpaceConfig,
    now: State,
    /// As of the last dump, where the space is in memory.
    dumped: State,
    written: u64,
}

impl Twin {
    fn new(seed: u64) -> Self {
        let volume = MemVolume::new(seed);
        let store = create(&volume);
        let config = SpaceConfig::new();
        store.create_space("s", config.clone()).unwrap();
        let (now, dumped) = Default::default();
        Self { volume, store, rng: Rng::new(seed), config, now, dumped, written: 0 }
    }

    fn is_in_memory(&self) -> bool {
        self.config.class.memory().is_some()
    }

    fn commit(&mut self) {
        let mut after = self.now.clone();
        let picks: Vec<_> =
            (0..1 + self.rng.below(3)).map(|_| (self.rng.below(12), self.rng.below(12))).collect();
        let mut ops = Vec::new();
        for (log, action) in picks {
            let key = format!("s/{log}");
            self.written += 1;
            let payload = vec![self.written as u8; (self.written * 37 % 600) as usize];
            match after.get_mut(&key) {
                Some((first, entries)) if action < 4 => {
                    let next = *first + entries.len() as u64;
                    let at = *first + self.rng.below(next - *first + 1);
                    if action == 0 {
                        entries.drain(..(at - *first) as usize);
                        *first = at;
                    } else if action == 1 {
                        entries.truncate((at - *first) as usize);
                    } else if action == 2 {
                        after.remove(&key);
                    } else {
                        (*first, *entries) = (next, vec![payload.clone()]);
                    }
                    ops.push((key, action, at, payload));
                }
                found => {
                    match found {
                        Some((_, entries)) => entries.push(payload.clone()),
                        None => drop(after.insert(key.clone(), (0, vec![payload.clone()]))),
                    }
                    ops.push((key, 9, 0, payload));
                }
            }
        }
        let mut commit = Commit::new();
        for (key, action, at, payload) in &ops {
            match action {
                0 => commit.trim(key, *at),
                1 => commit.truncate(key, *at),
                2 => commit.delete(key),
                3 => commit.snapshot(key, payload),
                _ => commit.append(key, payload),
            };
        }
        // One that fails at its end leaves nothing.
        if self.rng.percent(10) {
            commit.trim("s/9", u64::MAX);
            self.store.commit(&commit).unwrap_err();
            return;
        }
        drop(self.store.commit(&commit).unwrap());
        self.store.flush().unwrap();
        self.now = after;
    }

    fn step(&mut self) {
        match self.rng.below(40) {
            0 => {
                let dumped = self.store.space("s").unwrap().dump();
                assert_eq!(dumped.is_ok(), self.is_in_memory(), "{dumped:?}");
                self.dumped = self.now.clone();
            }
            1 => {
                // A clean stop.
                self.store.close().unwrap();
                self.store = open(&self.volume).unwrap();
                self.dumped = self.now.clone();
            }
            2 => {
                self.store.flush().unwrap();
                self.store.clone().abandon();
                self.store = open(&self.volume).unwrap();
                if self.is_in_memory() {
                    self.now = self.dumped.clone();
                }
            }
            3 => {
                self.config = if self.is_in_memory() { SpaceConfig::new() } else { in_memory(1 << 20) };
                if self.rng.percent(30) {
                    self.config.max_logs = Some(100);
                }
                self.store.space("s").unwrap().configure(self.config.clone()).unwrap();
                self.dumped = self.now.clone();
            }
            4 => self.store.checkpoint().unwrap(),
            5 => self.store.compact().unwrap(),
            6 => while self.store.step().unwrap() {},
            _ => self.commit(),
        }
    }
}

#[test]
fn logs_are_what_was_committed_whatever_class_they_are_of() {
    for seed in 0..60 {
        let mut twin = Twin::new(seed);
        for step in 0..250 {
            twin.step();
            if step % 5 == 0 {
                assert_eq!(state(&twin.store), twin.now, "seed {seed}, step {step}");
            }
        }
        let info = twin.store.space("s").unwrap().info().unwrap();
        if twin.is_in_memory() || twin.config.max_logs.is_some() {
            let bytes = twin.now.values().flat_map(|(_, entries)| entries).map(Vec::len).sum::<usize>();
            assert_eq!(
                (info.logs, info.bytes),
                (Some(twin.now.len() as u64), Some(bytes as u64)),
                "seed {seed}"
            );
        }
    }
}

/// The power goes at each operation of the volume while a space moves, one way and the other, or is
/// dumped: what was durable is, and nothing is in part.
#[test]
fn cut_anywhere_a_move_or_a_dump_loses_nothing() {
    for way in 0..3 {
        let mut at = 0;
        loop {
            let mut twin = Twin::new(7 + way);
            (0..60).for_each(|_| twin.commit());
            let (from, to) = if way == 0 {
                (SpaceConfig::new(), in_memory(1 << 20))
            } else {
                (in_memory(1 << 20), SpaceConfig::new())
            };
            twin.store.space("s").unwrap().configure(from.clone()).unwrap();
            twin.config = from;
            (0..40).for_each(|_| twin.commit());
            twin.store.flush().unwrap();
            if way > 0 {
                twin.store.space("s").unwrap().dump().unwrap();
            }
            twin.dumped = twin.now.clone();
            (0..5).for_each(|_| twin.commit());
            twin.store.flush().unwrap();
            twin.volume.fail(Fault::PowerOffAfter(at));
            let space = twin.store.space("s").unwrap();
            let done = if way == 2 { space.dump().map(drop) } else { space.configure(to.clone()) };
            twin.store.clone().abandon();
            twin.volume = MemVolume::from_image(twin.volume.crash(), 1);
            twin.store = open(&twin.volume).unwrap();
            let found = state(&twin.store);
            let moved = twin.store.space("s").unwrap().info().unwrap().config == to;
            if done.is_ok() || way == 0 {
                assert_eq!(found, twin.now, "way {way}, operation {at}");
                assert!(done.is_err() || way == 2 || moved);
            } else {
                // Of what was in memory only, all or nothing.
                assert!(found == twin.now || !moved && found == twin.dumped, "way {way}, operation {at}");
            }
            // And it goes on.
            twin.now = found;
            twin.config = twin.store.space("s").unwrap().info().unwrap().config;
            (0..20).for_each(|_| twin.commit());
            assert_eq!(state(&twin.store), twin.now, "way {way}, operation {at}");
            twin.store.space("s").unwrap().configure(to).unwrap();
            assert_eq!(state(&twin.store), twin.now, "way {way}, operation {at}");
            if done.is_ok() {
                break;
            }
            at += 1;
        }
        assert!(at > 4, "way {way}: {at} operations");
    }
}

#[test]
fn what_does_not_fit_into_memory_stays_where_it_is() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    let space = store.create_space("s", SpaceConfig::new()).unwrap();
    for log in 0..40 {
        space.append_many(format!("{log:02}"), [[log; 1000]; 3]).unwrap().wait().unwrap();
    }
    let before = state(&store);
    let error = space.configure(in_memory(64 << 10)).unwrap_err();
    assert!(matches!(error, Error::MemoryFull { .. }), "{error}");
    assert_eq!(space.info().unwrap().config, SpaceConfig::new());
    assert_eq!(state(&store), before);
    space.append("00", "goes on").unwrap().wait_durable().unwrap();

    let oldest = MemoryConfig::new(64 << 10).when_full(WhenFull::DropOldest);
    let error = space.configure(SpaceConfig::new().class(Class::Memory(oldest))).unwrap_err();
    assert!(matches!(error, Error::MemoryFull { .. }), "{error}");
    drop((space, store));
    assert_eq!(state(&open(&volume).unwrap()).len(), 40);
}

#[test]
fn limits_hold_in_memory_as_they_do_elsewhere() {
    let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
    let store = options().clock(clock.clone()).rng_seed(5).create_on(Arc::new(volume.clone())).unwrap();
    let retention = Retention::new().entries(3);
    let space = store.create_space("s", in_memory(1 << 20).retention(retention)).unwrap();
    for n in 0..5 {
        space.append("few", format!("{n}")).unwrap().wait().unwrap();
    }
    assert_eq!(payloads(&space, "few"), ["2", "3", "4"]);
    store.set_retention("s/bytes", Retention::new().bytes(10)).unwrap().wait().unwrap();
    for n in 0..5 {
        space.append("bytes", format!("four{n}")).unwrap().wait().unwrap();
    }
    assert_eq!(payloads(&space, "bytes"), ["four3", "four4"]);
    store.set_retention("s/young", Retention::new().age(Duration::from_secs(64))).unwrap().wait().unwrap();
    space.append("young", "old").unwrap().wait().unwrap();
    clock.advance(Duration::from_secs(40));
    space.append("young", "new").unwrap().wait().unwrap();
    clock.advance(Duration::from_secs(30));
    assert_eq!(payloads(&space, "young"), ["new"]);
    // The same, once they have been elsewhere and back; and through a dump.
    for config in [SpaceConfig::new().retention(retention), in_memory(1 << 20).retention(retention)] {
        space.configure(config).unwrap();
        assert_eq!(payloads(&space, "young"), ["new"]);
        assert_eq!(store.retention("s/bytes").unwrap(), Retention::new().bytes(10));
        space.append("bytes", "more!").unwrap().wait().unwrap();
        assert_eq!(payloads(&space, "bytes").len(), 2);
        assert_eq!(space.bounds("few").unwrap().len(), 3);
    }
    // Another one is given to all.
    space.configure(in_memory(1 << 20).retention(Retention::new().entries(1))).unwrap();
    assert_eq!(payloads(&space, "few"), ["4"]);
    assert_eq!(payloads(&space, "bytes"), ["more!"]);
    let error = space
        .configure(in_memory(1 << 20).max_bytes(12).max_logs(3))
        .map(|()| space.append("new", "n").unwrap_err());
    assert!(matches!(error, Ok(Error::QuotaReached { what: "logs", limit: 3, .. })), "{error:?}");
    assert!(matches!(space.append("few", [7; 9]), Err(Error::QuotaReached { what: "bytes", limit: 12, .. })));
    assert_eq!(payloads(&space, "few"), ["4"]);
}

#[test]
fn imports_do_not_come_into_memory() {
    let (store, other) = (create(&MemVolume::new(1)), create(&MemVolume::new(2)));
    other.append("s/log", "x").unwrap().wait().unwrap();
    store.create_space("s", in_memory(1 << 20)).unwrap();
    let error = store.import().view(&other.view().unwrap(), "").unwrap_err();
    assert!(matches!(&error, Error::InMemory { space } if space == "s"), "{error}");
    assert_eq!(store.scan("").unwrap().count(), 0);
}

#[test]
fn a_space_that_is_removed_leaves_its_logs_durable() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    let space = store.create_space("s", in_memory(1 << 20)).unwrap();
    space.append("log", "x").unwrap().wait().unwrap();
    store.remove_space("s").unwrap();
    store.append("s/log", "y").unwrap().wait_durable().unwrap();
    store.abandon();
    let store = open(&volume).unwrap();
    assert_eq!(store.read("s/log", ..).unwrap().count(), 2);
    assert!(store.space("s").is_err());
}

/// Each write and each flush fails while a space is dumped, or moves: what there was counts, and
/// nothing is lost.
#[test]
fn a_dump_that_fails_leaves_what_there_was() {
    for way in 0..3 {
        let mut at = 0;
        loop {
            let mut twin = Twin::new(3);
            let into = in_memory(1 << 20);
            let (from, to) = if way == 0 { (SpaceConfig::new(), into) } else { (into, SpaceConfig::new()) };
            twin.store.space("s").unwrap().configure(from).unwrap();
            (0..30).for_each(|_| twin.commit());
            let fault =
                Fault::ErrorAfter { operations: at, kind: std::io::ErrorKind::StorageFull, sticky: false };
            twin.volume.fail(fault);
            let space = twin.store.space("s").unwrap();
            let done = if way == 2 { space.dump().map(drop) } else { space.configure(to) };
            assert_eq!(state(&twin.store), twin.now, "way {way}, operation {at}: {done:?}");
            if done.is_ok() {
                break;
            }
            if !matches!(done, Err(Error::Stopped { .. })) {
                (0..10).for_each(|_| twin.commit());
                twin.store.close().unwrap();
                twin.store = open(&twin.volume).unwrap();
                assert_eq!(state(&twin.store), twin.now, "way {way}, operation {at}: {done:?}");
            }
            at += 1;
        }
        assert!(at > 1, "way {way}");
    }
}

/// Writers and readers go on while a space moves to and fro, and is dumped: no entry is lost,
/// doubled or out of order.
#[test]
fn a_space_moves_while_it_is_in_use() {
    const LOGS: usize = 3;
    let options = Options::new().ring_size(1 << 20).memory_budget(256 << 10).max_payload(9 << 10);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    let space = store.create_space("s", SpaceConfig::new()).unwrap();
    let over = AtomicBool::new(false);
    // Writers keep to the rounds, so that what they write fits into memory however long those take.
    let allowed = AtomicU64::new(0);
    let written: Vec<u64> = std::thread::scope(|scope| {
        let write = |log: usize| {
            let mut n = 0;
            while !over.load(Ordering::Relaxed) {
                if n == allowed.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                    continue;
                }
                let ticket = space.append(format!("{log}"), format!("{n}")).unwrap();
                assert_eq!(ticket.seq(), n);
                ticket.wait().unwrap();
                n += 1;
                assert_eq!(space.bounds(format!("{log}")).unwrap().next, n);
            }
            n
        };
        let writers: Vec<_> = (0..LOGS).map(|log| scope.spawn(move || write(log))).collect();
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for log in space.scan("").unwrap() {
                    let log = log.unwrap();
                    for entry in space.read(&log.key, ..).unwrap() {
                        let entry = entry.unwrap();
                        assert_eq!(entry.payload, format!("{}", entry.seq));
                    }
                }
            }
        });
        let acked = || {
            (0..LOGS).map(|log| space.bounds(format!("{log}")).map_or(0, |bounds| bounds.next)).sum::<u64>()
        };
        // Each writer has gone through all of it, and through many moves.
        let mut round = 0;
        while round < 30 || acked() < 300 {
            if writers.iter().any(|writer| writer.is_finished()) {
                break;
            }
            allowed.store((round + 1).min(30) * 500, Ordering::Relaxed);
            let config = if round % 2 == 0 { in_memory(8 << 20) } else { SpaceConfig::new() };
            space.configure(config).unwrap();
            if round % 4 == 0 {
                space.dump().unwrap();
            }
            round += 1;
        }
        over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    for (log, written) in written.iter().enumerate() {
        assert_eq!(space.bounds(format!("{log}")).map_or(0, |bounds| bounds.next), *written);
    }
}

/// The space is too large for the memory that it is to be kept in.
#[test]
pub fn a_space_that_does_not_fit_in_memory_keeps_its_quota() {
    let volume = MemVolume::new(1);
    let store = create(&volume);
    let space = store.create_space("s", SpaceConfig::new().max_logs(3)).unwrap();
    for key in ["a", "b", "c"] {
        (0..4).for_each(|_| space.append(key, [7; 8000]).unwrap().wait().unwrap());
    }
    let refused = space.configure(in_memory(64 << 10));
    assert!(matches!(refused, Err(Error::MemoryFull { .. })), "{refused:?}");
    assert_eq!((space.info().unwrap().config.class, space.info().unwrap().logs), (Class::Durable, Some(3)));
    assert!(matches!(space.append("d", "fourth"), Err(Error::QuotaReached { what: "logs", limit: 3, .. })));
    store.close().unwrap();
    let store = open(&volume).unwrap();
    assert!(matches!(store.append("s/d", "fourth"), Err(Error::QuotaReached { what: "logs", limit: 3, .. })));
}

/// A process is killed while it moves a space into memory, which then does not fit. A log is
/// deleted after that: its last commits in the ring, and the runs, are older than the deletion.
#[test]
fn a_log_that_is_deleted_in_memory_does_not_come_back() {
    let mut met = 0;
    for operations in 0..40 {
        let volume = MemVolume::new(1);
        let store = create(&volume);
        let space = store.create_space("s", SpaceConfig::new()).unwrap();
        space.append("x", [7; 500]).unwrap().wait().unwrap();
        (0..10).for_each(|_| space.append("y", [7; 8000]).unwrap().wait().unwrap());
        volume.fail(Fault::PowerOffAfter(operations));
        let moved = space.configure(in_memory(64 << 10));
        let volume = volume.crashed(operations);
        let store = open(&volume).unwrap();
        let space = store.space("s").unwrap();
        if space.info().unwrap().config.class == Class::Durable {
            continue;
        }
        met += u64::from(moved.is_err());
        space.delete("x").unwrap().wait().unwrap();
        space.dump().unwrap();
        assert_eq!(space.get_bounds("x").unwrap(), None, "after {operations} operations");
        assert!(!space.exists("x").unwrap());
        assert!(matches!(space.read("x", ..), Err(Error::UnknownLog { .. })));
    }
    assert!(met > 0, "no crash was in between");
}
