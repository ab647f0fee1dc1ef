use std::cell::Cell;
use std::collections::BTreeMap;

use brooklet_io::Rng;

use super::*;
use crate::model::commit::{Action, Op};
use crate::model::space_config::Class;

type Entries = BTreeMap<Vec<u8>, Vec<Vec<u8>>>;

fn memory_space() -> MemorySpace {
    let config = MemoryConfig::new(64 << 20);
    let space = SpaceConfig::new().class(Class::Memory(config));
    let memory_space = MemorySpace::new("s", space, config, Phase::Open, 7);
    memory_space.logs().complete = true;
    memory_space
}

/// Commits on some of a few thousand logs, and applies the same commit to the twin.
fn commit(memory_space: &MemorySpace, twin: &mut Entries, rng: &mut Rng) {
    let keys: Vec<Vec<u8>> =
        (0..1 + rng.below(4)).map(|_| format!("s/{}", rng.below(3000)).into_bytes()).collect();
    let payload = vec![rng.next() as u8; rng.below(60) as usize];
    let deletes = rng.percent(30);
    let mut ops = Vec::new();
    for key in &keys {
        let is_known = twin.contains_key(key);
        let action = match deletes && is_known {
            true => Action::Delete,
            false if rng.percent(20) => Action::Snapshot(&payload),
            false => Action::Append(&payload),
        };
        match action {
            Action::Delete => drop(twin.remove(key)),
            Action::Snapshot(_) => drop(twin.insert(key.clone(), vec![payload.clone()])),
            _ => twin.entry(key.clone()).or_default().push(payload.clone()),
        }
        ops.push(Op { key, action });
    }
    assert!(memory_space.logs().commit(&ops, &|| 0).is_ok());
}

/// Commits happen between all steps of a dump. The dump has each log with its state at the begin,
/// and each deleted log.
#[test]
fn a_dump_is_of_one_moment_whatever_comes_meanwhile() {
    for seed in 0..20 {
        let (memory_space, mut rng, mut twin) = (memory_space(), Rng::new(seed), Entries::new());
        let mut dumped = Entries::new();
        for round in 0..4 {
            (0..4000).for_each(|_| commit(&memory_space, &mut twin, &mut rng));
            let expected = twin.clone();
            memory_space.logs().begin_dump();
            let (mut keys, mut from) = (Vec::new(), Some(0));
            while let Some(slot) = from {
                (0..300).for_each(|_| commit(&memory_space, &mut twin, &mut rng));
                from = memory_space.logs().collect(slot, &mut keys, &|| 0);
            }
            let mut rest = memory_space.logs().rest(keys);
            rest.sort();
            let (mut found, mut gone, mut last) = (Entries::new(), Vec::new(), Vec::new());
            while !rest.is_empty() {
                (0..300).for_each(|_| commit(&memory_space, &mut twin, &mut rng));
                let some = memory_space.logs().next(&mut rest);
                for (key, frozen) in some {
                    assert!(last < key);
                    last = key.clone();
                    let Some(frozen) = frozen else {
                        gone.push(key);
                        continue;
                    };
                    let Bounds { first, next } = frozen.bounds;
                    found.insert(key, frozen.payloads(first..next).map(<[u8]>::to_vec).collect());
                }
            }
            assert!(found == expected, "seed {seed}, round {round}");
            // Each log of the last dump is in this dump, or is recorded as deleted.
            let told = |key: &&Vec<u8>| found.contains_key(*key) || gone.contains(key);
            assert!(dumped.keys().all(|key| told(&key)), "seed {seed}, round {round}");
            assert!(gone.iter().all(|key| !expected.contains_key(key)));
            let succeeded = rng.percent(60);
            memory_space.logs().end_dump(succeeded);
            if succeeded {
                dumped = found;
            }
        }
        let mut logs = memory_space.logs();
        for (key, entries) in &twin {
            let read = logs.read::<()>(key, 0, |Bounds { first, next }| Ok(first..next));
            let Ok(Lookup::Here((frozen, range))) = read else { panic!("{key:?}") };
            assert!(frozen.payloads(range).eq(entries.iter().map(|entry| &entry[..])));
        }
        assert_eq!(logs.len(), twin.len());
    }
}

/// The memory that was counted for a log is released with the log.
#[test]
fn memory_is_counted_to_the_byte() {
    let (memory_space, mut rng, mut twin) = (memory_space(), Rng::new(1), Entries::new());
    for _ in 0..3 {
        (0..3000).for_each(|_| commit(&memory_space, &mut twin, &mut rng));
        memory_space.logs().begin_dump();
        (0..3000).for_each(|_| commit(&memory_space, &mut twin, &mut rng));
        memory_space.logs().end_dump(rng.percent(50));
        // A commit that does not fit is undone.
        let payload = [7; 100];
        let ops = [b"s/1", b"s/2"].map(|key| Op { key, action: Action::Append(&payload) });
        let bad = Op { key: b"s/none", action: Action::Delete };
        let bytes = memory_space.logs().bytes();
        assert!(memory_space.logs().commit(&[ops[0], ops[1], bad], &|| 0).is_err());
        assert_eq!(memory_space.logs().bytes(), bytes);
    }
    let counted = twin.values().flatten().map(|entry| entry.len() as u64).sum::<u64>();
    assert_eq!(memory_space.logs().bytes(), counted);
    let keys: Vec<_> = twin.into_keys().collect();
    for key in &keys {
        assert!(memory_space.logs().commit(&[Op { key, action: Action::Delete }], &|| 0).is_ok());
    }
    memory_space.logs().begin_dump();
    memory_space.logs().end_dump(true);
    let logs = memory_space.logs();
    assert_eq!((logs.memory(), logs.bytes(), logs.len()), (0, 0, 0));
}

/// A log in memory ends at the last number, as one in the ring does. Only a store that somebody
/// forged has such logs.
#[test]
fn the_last_number_is_the_end() {
    let (memory_space, payload) = (memory_space(), [7; 10]);
    let mut logs = memory_space.logs();
    logs.complete = false;
    assert!(logs.bring(b"s/log", Some(LoadedLog::new(u64::MAX - 1, None)), 1));
    let append = |logs: &mut Logs, action| logs.commit(&[Op { key: b"s/log", action }], &|| 0);
    let Ok(seqs) = append(&mut logs, Action::Append(&payload)) else { panic!("one number is left") };
    assert_eq!(seqs.as_slice(), [u64::MAX - 1]);
    for action in [Action::Append(&payload), Action::Snapshot(&payload)] {
        let refused = append(&mut logs, action);
        assert!(matches!(refused, Err(Rejected::Error(Error::OutOfRange { asked: u64::MAX, .. }))));
    }
    let bounds = logs.bounds(b"s/log").unwrap();
    assert_eq!((bounds.first, bounds.next), (u64::MAX - 1, u64::MAX));
}

/// The age of an entry passes while a truncation is applied.
#[test]
fn a_commit_has_one_time() {
    let memory_space = memory_space();
    let mut logs = memory_space.logs();
    let retention = Retention::new().age(Duration::from_secs(1));
    for action in [Action::Retain(retention), Action::Append(&[1; 10]), Action::Append(&[2; 10])] {
        assert!(logs.commit(&[Op { key: b"s/log", action }], &|| 0).is_ok());
    }
    // The entries are too old at the second look at the clock.
    let clock = Cell::new(1_000);
    let now = || clock.replace(clock.get() + 1_000);
    assert!(logs.commit(&[Op { key: b"s/log", action: Action::Truncate(1) }], &now).is_ok());
    let Bounds { first, next } = logs.bounds(b"s/log").unwrap();
    assert_eq!((first, next, logs.bytes()), (0, 1, 10));
}

/// As the server's `MSET` makes it. In the old state this took minutes: each operation searched all
/// logs before it.
#[test]
fn a_long_commit_is_undone_as_a_whole() {
    let memory_space = memory_space();
    let mut logs = memory_space.logs();
    let keys: Vec<Vec<u8>> = (0..200_000).map(|n| format!("s/{n}").into_bytes()).collect();
    let mut ops: Vec<Op<'_>> =
        keys.iter().map(|key| Op { key, action: Action::Append(b"payload") }).collect();
    ops.push(Op { key: b"s/none", action: Action::Delete });
    assert!(logs.commit(&ops, &|| 0).is_err());
    assert_eq!((logs.len(), logs.bytes(), logs.memory()), (0, 0, 0));
    ops.pop();
    assert!(logs.commit(&ops, &|| 0).is_ok());
    assert_eq!((logs.len(), logs.bytes()), (200_000, 1_400_000));
}

/// A full space stays within its memory, however many commits it refuses.
#[test]
fn a_refused_commit_takes_no_memory() {
    let (memory_space, mut rng) = (memory_space(), Rng::new(1));
    let mut logs = memory_space.logs();
    let keys: Vec<Vec<u8>> = (0..200).map(|n| format!("s/{n}").into_bytes()).collect();
    for key in &keys {
        for _ in 0..rng.below(40) {
            let payload = vec![7u8; rng.below(2000) as usize];
            assert!(logs.commit(&[Op { key, action: Action::Append(&payload) }], &|| 0).is_ok());
        }
    }
    for key in keys.iter().chain(&keys) {
        let before = logs.memory();
        let append = Op { key, action: Action::Append(b"more") };
        assert!(logs.commit(&[append, Op { key: b"s/none", action: Action::Delete }], &|| 0).is_err());
        assert!(logs.memory() <= before, "{} after {before}", logs.memory());
    }
    // The runs have these logs now, so a deletion adds a tombstone.
    logs.begin_dump();
    logs.end_dump(true);
    for key in keys.iter().chain(&keys) {
        let (before, bounds) = (logs.memory(), logs.bounds(key));
        let delete = Op { key, action: Action::Delete };
        assert!(logs.commit(&[delete, Op { key: b"s/none", action: Action::Delete }], &|| 0).is_err());
        assert!(logs.memory() <= before, "{} after {before}", logs.memory());
        assert_eq!(logs.bounds(key), bounds);
    }
}

/// Some logs of a space may be in runs only, so that a commit on a new log looks it up there first.
/// Nothing dumps the space meanwhile.
#[test]
fn a_look_up_in_vain_takes_no_memory_after_its_commit() {
    let memory_space = memory_space();
    let mut logs = memory_space.logs();
    logs.complete = false;
    let mut commit = |key: &[u8], action| {
        let ops = [Op { key, action }];
        let mut done = logs.commit(&ops, &|| 0);
        if let Err(Rejected::Below(_, generation)) = done {
            assert!(logs.bring(key, None, generation));
            done = logs.commit(&ops, &|| 0);
        }
        done.is_ok()
    };
    for n in 0..1000 {
        let key = format!("s/{n}").into_bytes();
        assert!(!commit(&key, Action::Trim(0)), "there is no such log");
        assert!(commit(&key, Action::Append(b"entry")));
        assert!(commit(&key, Action::Delete));
    }
    assert_eq!((logs.memory(), logs.len()), (0, 0));
}

/// Another commit deletes the log, and a dump has the deletion, before the commit comes that looked
/// the log up.
#[test]
fn the_bounds_of_a_log_in_runs_are_outdated_after_a_dump() {
    let memory_space = memory_space();
    let mut logs = memory_space.logs();
    logs.complete = false;
    let (key, bounds) = (b"s/log", Some(Bounds { first: 0, next: 1 }));
    let delete = [Op { key, action: Action::Delete }];
    let Err(Rejected::Below(_, generation)) = logs.commit(&delete, &|| 0) else { panic!("it is in runs") };
    logs.note_below(key, bounds, generation);
    logs.begin_dump();
    logs.end_dump(true);
    assert!(matches!(logs.commit(&delete, &|| 0), Err(Rejected::Below(..))));
    logs.note_below(key, bounds, generation);
    assert!(matches!(logs.commit(&delete, &|| 0), Err(Rejected::Below(..))), "it was looked up before");
    logs.note_below(key, bounds, generation + 1);
    // A refused commit leaves the log, and no memory.
    let ops = [delete[0], Op { key, action: Action::Append(b"again") }, delete[0], delete[0]];
    assert!(matches!(logs.commit(&ops, &|| 0), Err(Rejected::Error(Error::UnknownLog { .. }))));
    assert!(matches!(logs.state(key), Lookup::Below));
    assert_eq!((logs.memory(), logs.len()), (0, 0));
    logs.note_below(key, bounds, generation + 1);
    assert!(logs.commit(&delete, &|| 0).is_ok());
    assert!(matches!(logs.state(key), Lookup::Gone));
    assert!(logs.below.is_empty() && logs.absent.is_empty());
}

/// The next entry of each log begins a chunk.
#[test]
fn a_commit_on_long_logs_stays_within_the_memory() {
    let memory_space = memory_space();
    let mut logs = memory_space.logs();
    let keys: Vec<Vec<u8>> = (0..8).map(|n| format!("s/{n}").into_bytes()).collect();
    // An entry takes a kilobyte with its length, and a chunk has 16 of them.
    let payload = [7; 1022];
    for key in keys.iter().cycle().take(8 * 16 * 9) {
        assert!(logs.commit(&[Op { key, action: Action::Append(&payload) }], &|| 0).is_ok());
    }
    let before = logs.memory();
    logs.config.bytes = before as u64 + (20 << 10);
    let ops: Vec<Op<'_>> = keys.iter().map(|key| Op { key, action: Action::Append(b"x") }).collect();
    let refused = logs.commit(&ops, &|| 0);
    assert!(matches!(refused, Err(Rejected::Error(Error::MemoryFull { .. }))), "{}", logs.memory());
    assert!(logs.memory() <= before);
    assert!(logs.commit(&ops[..1], &|| 0).is_ok());
    assert!(logs.memory() as u64 <= logs.config.bytes);
}

/// The next entry begins a chunk, for which the list of the log's chunks doubles.
#[test]
fn a_commit_that_doubles_a_list_stays_within_the_memory() {
    let memory_space = memory_space();
    let mut logs = memory_space.logs();
    // An entry takes a kilobyte with its length, and a chunk has 16 of them.
    let payload = [7; 1022];
    let append = [Op { key: b"s/log", action: Action::Append(&payload) }];
    for _ in 0..513 * 16 {
        assert!(logs.commit(&append, &|| 0).is_ok());
    }
    let before = logs.memory();
    logs.config.bytes = before as u64 + (20 << 10);
    let refused = logs.commit(&append, &|| 0);
    assert!(matches!(refused, Err(Rejected::Error(Error::MemoryFull { .. }))), "{}", logs.memory());
    assert!(logs.memory() <= before);
}

/// A full space that refuses drops entries that are too old: of no more logs than it must.
#[test]
fn a_commit_drops_no_more_old_entries_than_it_must() {
    let memory_space = memory_space();
    let mut logs = memory_space.logs();
    let (retention, payload) = (Retention::new().age(Duration::from_secs(1)), [7; 20 << 10]);
    let keys: Vec<Vec<u8>> = (0..10).map(|n| format!("s/{n}").into_bytes()).collect();
    for key in &keys {
        for action in [Action::Retain(retention), Action::Append(&payload)] {
            assert!(logs.commit(&[Op { key, action }], &|| 0).is_ok());
        }
    }
    logs.config.bytes = logs.memory() as u64;
    let append = Op { key: b"s/new", action: Action::Append(&payload[..10 << 10]) };
    assert!(logs.commit(&[append], &|| 10_000).is_ok());
    assert!(logs.memory() as u64 <= logs.config.bytes);
    let left = keys.iter().filter(|key| !logs.bounds(key).unwrap().is_empty()).count();
    assert_eq!(left, 9);
}

/// The log with old entries is before the one at which an earlier commit had room.
#[test]
fn a_commit_finds_old_entries_wherever_the_last_one_ended() {
    let memory_space = memory_space();
    let mut logs = memory_space.logs();
    let (retention, payload) = (Retention::new().age(Duration::from_secs(1)), [7; 20 << 10]);
    for (key, time) in [(b"s/old", 0), (b"s/new", 10_000)] {
        for action in [Action::Retain(retention), Action::Append(&payload)] {
            assert!(logs.commit(&[Op { key, action }], &|| time).is_ok());
        }
    }
    logs.config.bytes = logs.memory() as u64;
    logs.to_expire = 1;
    let append = Op { key: b"s/more", action: Action::Append(&payload[..10 << 10]) };
    assert!(logs.commit(&[append], &|| 10_000).is_ok());
    let len = |key: &[u8]| logs.bounds(key).map(|bounds| bounds.len());
    assert_eq!([len(b"s/old"), len(b"s/new")], [Some(0), Some(1)]);
}

/// Commits and reads go on while a space gets another retention.
#[test]
fn a_retention_is_set_on_some_logs_at_a_time() {
    let memory_space = memory_space();
    let keys: Vec<Vec<u8>> = (0..5000).map(|n| format!("s/{n}").into_bytes()).collect();
    for key in keys.iter().chain(&keys) {
        let append = Op { key, action: Action::Append(b"entry") };
        assert!(memory_space.logs().commit(&[append], &|| 0).is_ok());
    }
    let config = memory_space.logs().config;
    let space = memory_space.logs().space.clone().retention(Retention::new().entries(1));
    memory_space.configure(space, config);
    let trimmed = || keys.iter().filter(|key| memory_space.logs().bounds(key).unwrap().len() == 1).count();
    assert_eq!(memory_space.logs().retain_some(0, &|| 0), Some(SLOTS));
    assert_eq!(trimmed(), SLOTS as usize);
    memory_space.retain_all(&|| 0);
    assert_eq!(trimmed(), keys.len());
}

/// A refused commit puts the last log back into a slot whose log would have the retention by now.
#[test]
fn a_retention_is_set_on_a_log_that_moves_meanwhile() {
    let memory_space = memory_space();
    let mut logs = memory_space.logs();
    let keys: Vec<Vec<u8>> = (0..5000).map(|n| format!("s/{n}").into_bytes()).collect();
    for key in keys.iter().chain(&keys) {
        assert!(logs.commit(&[Op { key, action: Action::Append(b"entry") }], &|| 0).is_ok());
    }
    assert!(logs.commit(&[Op { key: b"s/3", action: Action::Delete }], &|| 0).is_ok());
    logs.space = logs.space.clone().retention(Retention::new().entries(1));
    logs.moved = Some(BTreeSet::new());
    let next = logs.retain_some(0, &|| 0);
    let delete = Op { key: b"s/4999", action: Action::Delete };
    assert!(logs.commit(&[delete, Op { key: b"s/none", action: Action::Delete }], &|| 0).is_err());
    assert_eq!(logs.places.find(b"s/4999"), Some(3));
    assert_eq!(logs.retain_some(next.unwrap(), &|| 0), None);
    logs.retain_moved(&|| 0);
    assert_eq!(logs.bounds(b"s/4999").unwrap().len(), 1);
}

/// A trim or a truncation frees the memory of the entries that it drops.
#[test]
fn what_is_dropped_leaves_memory() {
    let (memory_space, large) = (memory_space(), vec![7u8; 1 << 20]);
    let mut logs = memory_space.logs();
    let drops = [Action::Trim(2), Action::Truncate(0), Action::KeepLast(0), Action::Begin(9)];
    for (n, drops) in drops.into_iter().enumerate() {
        let key = format!("s/{n}").into_bytes();
        for action in [Action::Append(b"small"), Action::Append(&large), drops] {
            assert!(logs.commit(&[Op { key: &key, action }], &|| 0).is_ok());
        }
        assert_eq!(logs.bytes(), 0);
        assert!(logs.memory() < 4 << 10, "{} after {drops:?}", logs.memory());
    }
    // All but the small entry goes.
    for action in [Action::Append(b"small"), Action::Append(&large), Action::Truncate(1)] {
        assert!(logs.commit(&[Op { key: b"s/log", action }], &|| 0).is_ok());
    }
    assert!(logs.memory() < 4 << 10, "{}", logs.memory());
}
