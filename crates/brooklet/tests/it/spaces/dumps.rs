//! Dumps of spaces in memory: when they are made, what they keep, and what they take.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{Fault, ManualClock, MemVolume, Rng};
use brooklet::{Class, Error, MemoryConfig, Options, Retention, Space, SpaceConfig};

use super::memory::{in_memory, payloads, state};
use super::{create, open, options};

#[test]
fn a_dump_is_of_one_moment_and_comes_when_it_is_due() {
    let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
    let options = || -> Options { options().clock(clock.clone()).rng_seed(5) };
    let store = options().create_on(Arc::new(volume.clone())).unwrap();
    let every = MemoryConfig::new(1 << 20).dump_every(Duration::from_secs(10));
    let space = store.create_space("s", SpaceConfig::new().class(Class::Memory(every))).unwrap();
    let dumps = |space: &Space| space.info().unwrap().memory.unwrap().dumps;
    space.append("a", "1").unwrap().wait().unwrap();
    while store.step().unwrap() {}
    assert_eq!(dumps(&space), 0);
    clock.advance(Duration::from_secs(10));
    while store.step().unwrap() {}
    assert_eq!(dumps(&space), 1);
    clock.advance(Duration::from_secs(60));
    while store.step().unwrap() {}
    assert_eq!(dumps(&space), 1, "nothing has changed");
    space.append("a", "2").unwrap().wait().unwrap();
    // A view is of the last dump.
    assert_eq!(store.view().unwrap().bounds("s/a").unwrap().next, 1);
    store.abandon();
    let store = options().open_on(Arc::new(volume)).unwrap();
    assert_eq!(payloads(&store.space("s").unwrap(), "a"), ["1"]);
}

/// The table of spaces has the new retention after a kill. In an earlier state, the logs of the
/// last dump lacked it, and no later call set it.
#[test]
fn a_kill_leaves_logs_in_memory_with_the_new_retention_of_their_space() {
    for from in [SpaceConfig::new(), in_memory(1 << 20)] {
        let volume = MemVolume::new(1);
        let store = create(&volume);
        let space = store.create_space("s", from).unwrap();
        space.append_many("log", ["1", "2", "3"]).unwrap().wait().unwrap();
        let retention = Retention::new().entries(1);
        space.configure(in_memory(1 << 20).retention(retention)).unwrap();
        drop(space);
        store.abandon();
        let store = open(&volume).unwrap();
        let space = store.space("s").unwrap();
        assert_eq!(space.info().unwrap().config.retention, retention);
        assert_eq!(payloads(&space, "log"), ["3"]);
        assert_eq!(space.retention("log").unwrap(), retention);
    }
}

/// When the call returns, the earlier commits are durable. In an earlier state, the call succeeded
/// although a write of the dump had failed.
#[test]
fn a_new_retention_of_a_space_in_memory_is_an_error_if_its_dump_fails() {
    let config = in_memory(1 << 20).retention(Retention::new().entries(2));
    for operations in 0.. {
        let volume = MemVolume::new(1);
        let store = create(&volume);
        let space = store.create_space("s", in_memory(1 << 20)).unwrap();
        space.append("log", "1").unwrap().wait().unwrap();
        volume.fail(Fault::ErrorAfter { operations, kind: ErrorKind::Other, sticky: true });
        let configured = space.configure(config.clone());
        volume.heal();
        drop(space);
        store.abandon();
        if configured.is_ok() {
            let store = open(&volume).unwrap();
            assert!(store.exists("s/log").unwrap(), "after {operations} writes");
            assert!(operations > 3, "the commit and the dump take more than {operations} writes");
            return;
        }
    }
}

/// Old dumps leave: a space that is dumped over and over takes no more room than two dumps do.
#[test]
fn dumps_take_the_room_of_those_before() {
    let store = create(&MemVolume::new(1));
    let space = store.create_space("s", in_memory(1 << 20)).unwrap();
    let mut most = 0;
    for round in 0..30 {
        for log in 0..50 {
            space.snapshot(format!("{log}"), [round; 900]).unwrap().wait().unwrap();
        }
        space.dump().unwrap();
        most = most.max(store.info().unwrap().runs.iter().filter(|run| run.logs == 50).count());
    }
    assert_eq!(most, 1);
}

/// A dump that is damaged, in its index or its data: the store opens, and goes on without what
/// cannot be read.
#[test]
fn a_damaged_dump_is_set_aside() {
    for place in 0..3 {
        let volume = MemVolume::new(1);
        let store = create(&volume);
        store.append("other", "kept").unwrap().wait().unwrap();
        store.checkpoint().unwrap();
        let space = store.create_space("s", in_memory(1 << 20)).unwrap();
        let mut rng = Rng::new(3);
        for log in 0..60 {
            let noise: Vec<u8> = (0..2000).map(|_| rng.next() as u8).collect();
            space.append(format!("{log:02}"), noise).unwrap().wait().unwrap();
        }
        store.close().unwrap();
        let before = state(&store);
        assert_eq!(before.len(), 60);
        let dump = store.info().unwrap().runs[0];
        drop((space, store));
        let mut image = volume.image();
        let len = dump.bytes as usize;
        let at = dump.offset as usize + [len / 3, len - 4096, 40][place];
        image[at..at + 4096].iter_mut().for_each(|byte| *byte ^= 0x55);
        let volume = MemVolume::from_image(image, 1);
        let store = open(&volume).unwrap();
        assert_eq!(store.read("other", ..).unwrap().count(), 1, "place {place}");
        let space = store.space("s").unwrap();
        assert!(!space.info().unwrap().memory.unwrap().complete, "place {place}");
        let mut lost = 0;
        for (key, (_, entries)) in &before {
            match store.read(key, ..).and_then(|found| found.collect::<Result<Vec<_>, _>>()) {
                Ok(found) => assert_eq!(found[0].payload, entries[0], "place {place}"),
                Err(Error::Damaged { .. }) => lost += 1,
                Err(error) => panic!("{error}"),
            }
            // Each of them can be gone on with: those that are lost begin anew.
            space.append(&key[2..], "more").unwrap().wait().unwrap();
        }
        assert!(lost > 0, "place {place}");
        space.append("new", "n").unwrap().wait().unwrap();
        space.dump().unwrap();
        assert_eq!(payloads(&space, "new"), ["n"]);
        drop((space, store));
        let store = open(&volume).unwrap();
        assert_eq!(payloads(&store.space("s").unwrap(), "new"), ["n"], "place {place}");
        assert!(brooklet::check_volume(Arc::new(volume.clone()), brooklet::Progress::ignore).is_ok());
    }
}
