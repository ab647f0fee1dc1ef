//! What goes on beside commits: memory spaces and their dumps, moves from one class to another,
//! imports, offloading, followers, callbacks, and panics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use brooklet::codex::{Bytes, Source};
use brooklet::io::{ManualClock, MemVolume};
use brooklet::{Class, Durability, Error, MemoryConfig, Options, SpaceConfig, Store};

use crate::stage::{explore, others, rng};
use crate::world::World;

const HOUR: Duration = Duration::from_secs(3600);
const MILLI: Duration = Duration::from_millis(1);

fn memory() -> SpaceConfig {
    SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)))
}

/// Appends to a log of a space, which nobody else does, and reads that back.
fn append(store: &Store, writer: u64, n: u64) {
    let key = format!("space/{writer}");
    let ticket = store.append(&key, n.to_le_bytes()).unwrap();
    assert_eq!(ticket.seq(), n);
    ticket.wait().unwrap();
    let newest = store.read(&key, ..).unwrap().next_back().unwrap().unwrap();
    assert_eq!((newest.seq, &newest.payload[..]), (n, &n.to_le_bytes()[..]), "one reads what one wrote");
}

/// All that the writers appended is there after closing, each in order.
fn ends_with(world: World, writers: u64, each: u64) {
    world.store().close().unwrap();
    let image = world.stage.disk.image();
    let store = world.options().threads(false).open_on(Arc::new(MemVolume::from_image(image, 1))).unwrap();
    for writer in 0..writers {
        let entries = store.read(format!("space/{writer}"), ..).unwrap().map(|entry| entry.unwrap().payload);
        assert!(entries.eq((0..each).map(|n| n.to_le_bytes().to_vec())), "log {writer}");
    }
    store.abandon();
}

#[test]
fn dumps_keep_what_was_there_as_they_began() {
    explore("brooklet::dumps", 1_500, || {
        let world = World::new(MILLI);
        let space = world.store().create_space("space", memory()).unwrap();
        let writers =
            world.spawn_all(2, |world, writer| (0..3).for_each(|n| append(world.store(), writer, n)));
        let dumper = world.spawn(move |_| {
            for _ in 0..2 {
                others();
                space.dump().unwrap();
            }
        });
        writers.into_iter().chain([dumper]).for_each(|thread| thread.join().unwrap());
        ends_with(world, 2, 3);
    });
}

#[test]
fn a_space_moves_beside_those_who_use_it() {
    explore("brooklet::moves", 1_500, || {
        let world = World::new(MILLI);
        let space = world.store().create_space("space", SpaceConfig::new()).unwrap();
        let writers =
            world.spawn_all(2, |world, writer| (0..3).for_each(|n| append(world.store(), writer, n)));
        let mover = world.spawn(move |_| {
            space.configure(memory()).unwrap();
            others();
            if rng().percent(50) {
                space.configure(SpaceConfig::new()).unwrap();
            }
        });
        writers.into_iter().chain([mover]).for_each(|thread| thread.join().unwrap());
        ends_with(world, 2, 3);
    });
}

/// A store that was made beside all others.
fn other(logs: u64) -> Store {
    let options = Options::new().threads(false).ring_size(64 << 10).memory_budget(64 << 10);
    let options =
        options.block_size(8 << 10).max_payload(9 << 10).clock(Arc::new(ManualClock::default())).rng_seed(2);
    let store = options.create_on(Arc::new(MemVolume::new(2))).unwrap();
    for n in 0..logs {
        store.append(format!("space/{n}"), 0_u64.to_le_bytes()).unwrap().wait().unwrap();
    }
    store
}

#[test]
fn an_import_comes_in_whole_beside_commits() {
    explore("brooklet::imports", 1_500, || {
        let world = World::new(MILLI);
        let view = other(3).view().unwrap();
        let writer = world.spawn(|world| {
            for _ in 0..3 {
                world.append(0, 3000, Durability::Durable).unwrap().wait().unwrap();
                let seen = world.store().scan("space/").unwrap().count();
                assert!(seen == 0 || seen == 3, "{seen} of 3 logs are seen");
            }
        });
        let import = world.spawn(move |world| {
            let imported = world.store().import().view(&view, "").unwrap();
            assert_eq!(imported.logs, 3);
            append(world.store(), 1, 1);
        });
        [writer, import].into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(world.store().bounds("space/1").unwrap().next, 2);
        world.close_and_check();
    });
}

#[test]
fn readers_notice_nothing_of_runs_that_leave() {
    explore("brooklet::offload", 1_500, || {
        let world = World::new(MILLI);
        (0..2).for_each(|_| world.append(0, 3000, Durability::Durable).unwrap().wait().unwrap());
        let view = world.store().view().unwrap();
        let read = |part: &brooklet::Part| part.read(0, part.name().len as usize).unwrap();
        let kept: BTreeMap<_, Bytes> = view.parts().iter().map(|part| (part.name(), read(part))).collect();
        drop(view);
        let reader = world.spawn(|world| (0..2).for_each(|_| world.look()));
        let writer = world.spawn(|world| {
            world.append(1, 3000, Durability::Durable).unwrap().wait().unwrap();
        });
        let offload = world.spawn(move |world| {
            let kept = |name| kept.get(&name).map(|bytes| Arc::new(bytes.clone()) as Arc<dyn Source>);
            world.store().offload(0, kept, brooklet::Progress::ignore).unwrap();
        });
        [reader, writer, offload].into_iter().for_each(|thread| thread.join().unwrap());
        world.look();
        world.store().close().unwrap();
    });
}

#[test]
fn a_follower_gets_every_commit_once() {
    explore("brooklet::followers", 1_500, || {
        let world = World::new(MILLI);
        let subscription = world.store().subscribe(1 << 20).unwrap();
        let view = world.store().view().unwrap();
        let writers = world.spawn_all(2, |world, writer| {
            (0..3).for_each(|_| world.append(writer, 700, Durability::Durable).unwrap().wait().unwrap());
        });
        let mut taken = subscription.take().unwrap();
        for _ in 0..rng().below(20) {
            others();
            taken.extend(subscription.take().unwrap());
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        taken.extend(subscription.take().unwrap());
        let later = view.with_commits([taken.encode()], None).unwrap();
        let next = |writer| later.bounds(crate::world::key(writer)).unwrap().next;
        assert_eq!((next(0), next(1)), (3, 3));
        world.close_and_check();
    });
}

/// Appends, and again as that is durable, however full it is; then closes.
fn chain(store: Store, left: u64) {
    let again = store.clone();
    let ticket = store.append(format!("space/{left}"), [7; 7000]).unwrap();
    drop(store);
    ticket.on_done(move |result| {
        result.unwrap();
        match left {
            0 => assert!(matches!(again.close(), Ok(()))),
            left => chain(again, left - 1),
        }
    });
}

#[test]
fn callbacks_append_and_close_the_store() {
    explore("brooklet::chains", 1_500, || {
        let world = World::new(MILLI);
        chain(world.store().clone(), 5);
        let writer = world.spawn(|world| {
            for _ in 0..2 {
                match world.append(0, 6000, Durability::Durable) {
                    Ok(ticket) => ticket.wait().unwrap(),
                    Err(Error::Closed) => return,
                    Err(error) => panic!("{error}"),
                }
            }
        });
        writer.join().unwrap();
        world.end_and_check(Vec::new());
    });
}

#[test]
fn a_panic_stops_everyone_and_takes_nothing_back() {
    explore("brooklet::panics", 1_500, || {
        let mut rng = rng();
        let world = World::new(if rng.percent(50) { MILLI } else { HOUR });
        world.stage.panic_after(rng.below(16));
        let stopped = |error: &Error| matches!(error, Error::Stopped { .. } | Error::Closed);
        let writers = world.spawn_all(2, move |world, writer| {
            for _ in 0..3 {
                let Ok(ticket) = world.append(writer, 3000, Durability::Durable) else { return };
                match ticket.wait() {
                    Ok(()) => world.acked(writer),
                    Err(error) => return assert!(stopped(&error), "{error}"),
                }
            }
        });
        let maintenance = world.spawn(move |world| {
            let ended = |result: Result<(), Error>| result.err().is_none_or(|error| stopped(&error));
            assert!(ended(world.store().checkpoint()));
            assert!(ended(world.store().compact()));
        });
        writers.into_iter().chain([maintenance]).for_each(|thread| thread.join().unwrap());
        world.look();
        world.check_after_a_crash();
        let _ = world.store().close();
    });
}
