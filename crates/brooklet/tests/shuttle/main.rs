//! The store, its threads and all, under a scheduler that tries interleavings: readers see a
//! beginning of what was written and their own writes, acks are true at every power cut, and nobody
//! waits for ever.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p brooklet --test shuttle -- --nocapture` runs
//! them; `BROOKLET_SCHEDULES` is the number of schedules for each. A schedule that fails is
//! printed. To replay it, put it into `BROOKLET_REPLAY` and run the one test that failed, built
//! from the same source.

#![cfg(shuttle)]

#[path = "../it/common/mod.rs"]
mod common;
#[path = "../../../wal/tests/shuttle/explore.rs"]
mod explore;
#[path = "../../../wal/tests/shuttle/stage.rs"]
mod stage;
mod world;

mod appended;
mod beside;
mod tails;

use std::time::Duration;

use brooklet::{Durability, Error};

use stage::{block_on, explore, others, rng};
use world::World;

const HOUR: Duration = Duration::from_secs(3600);
const MILLI: Duration = Duration::from_millis(1);

#[test]
fn readers_see_commits_whole_and_their_own_writes() {
    explore("brooklet::readers", 6_000, || {
        let world = World::new(HOUR);
        let writers = world.spawn_all(2, |world, writer| {
            for n in 0..3 {
                let pair = world.commit_pair(writer).unwrap();
                if rng().percent(50) {
                    pair.wait().unwrap();
                    world.commit_pair(writer).unwrap().wait().unwrap();
                }
                let ticket = if n == 1 {
                    let rests = Durability::Deferred(HOUR);
                    world.append(writer, 700, rests).unwrap()
                } else {
                    world.append(writer, 700, Durability::Durable).unwrap()
                };
                ticket.wait().unwrap();
                world.read_back(writer, ticket.seq());
            }
        });
        let reader = world.spawn(|world| (0..3).for_each(|_| world.look()));
        writers.into_iter().chain([reader]).for_each(|thread| thread.join().unwrap());
        world.close_and_check();
    });
}

#[test]
fn checkpoints_and_compactions_change_nothing_that_readers_see() {
    explore("brooklet::keeping", 3_000, || {
        let world = World::new(MILLI);
        // Three runs: the next makes maintenance merge them by itself.
        for writer in [0, 1, 0] {
            world.append(writer, 700, Durability::Durable).unwrap().wait().unwrap();
            world.commit_pair(writer).unwrap().wait().unwrap();
            world.store().checkpoint().unwrap();
        }
        let writers = world.spawn_all(2, |world, writer| {
            for n in 0..3 {
                let held = world.hold(writer);
                let ticket = world.append(writer, 6000, Durability::Durable).unwrap();
                ticket.wait().unwrap();
                if n == 1 {
                    world.store().keep_last(world::key(writer), 2).unwrap().wait().unwrap();
                }
                world.commit_pair(writer).unwrap().wait().unwrap();
                world.read_back(writer, ticket.seq());
                held.check();
            }
        });
        let maintenance = world.spawn(|world| match rng().below(3) {
            0 => world.store().checkpoint().unwrap(),
            1 => world.store().compact().unwrap(),
            _ => {}
        });
        let reader = world.spawn(|world| (0..2).for_each(|_| world.look()));
        writers.into_iter().chain([maintenance, reader]).for_each(|thread| thread.join().unwrap());
        world.close_and_check();
    });
}

/// Each commit that came when the tier was gone and the ring not yet trimmed asked for another one.
#[test]
fn a_checkpoint_that_ends_asks_for_no_other_one() {
    explore("brooklet::once", 3_000, || {
        let world = World::new(MILLI);
        let append = |world: &World, writer, len| {
            world.append(writer, len, Durability::Durable).unwrap().wait().unwrap();
        };
        // More than half of the ring, which the next commit finds.
        (0..5).for_each(|_| append(&world, 0, 6000));
        let writers =
            world.spawn_all(2, move |world, writer| (0..3).for_each(|_| append(world, 1 + writer, 100)));
        writers.into_iter().for_each(|thread| thread.join().unwrap());
        let done =
            || world.store().info().map(|info| (info.maintenance.checkpoints, info.checkpointing)).unwrap();
        while done().0 == 0 {
            others();
        }
        // One that is wanted begins soon.
        (0..30).for_each(|_| others());
        assert_eq!(done(), (1, false));
        world.close_and_check();
    });
}

#[test]
fn the_power_may_go_at_any_time() {
    explore("brooklet::power", 3_000, || {
        let world = World::new(MILLI);
        let writers = world.spawn_all(2, |world, writer| {
            // More than the ring holds.
            for _ in 0..5 {
                world.append(writer, 8000, Durability::Durable).unwrap().wait().unwrap();
                world.acked(writer);
            }
        });
        let maintenance = world.spawn(|world| {
            world.store().checkpoint().unwrap();
            world.store().compact().unwrap();
        });
        (0..rng().below(200)).for_each(|_| others());
        world.check_after_a_crash();
        writers.into_iter().chain([maintenance]).for_each(|thread| thread.join().unwrap());
        world.close_and_check();
    });
}

#[test]
fn a_store_closes_while_others_use_it() {
    explore("brooklet::closing", 6_000, || {
        let world = World::new(HOUR);
        let mut rng = rng();
        let writers = world.spawn_all(2, |world, writer| {
            for n in 0..2 {
                let ticket = match world.append(writer, 700, Durability::Durable) {
                    Ok(ticket) => ticket,
                    Err(Error::Closed) => break,
                    Err(error) => panic!("{error}"),
                };
                // The last handle may go in this callback.
                let store = world.store().clone();
                match (writer + n) % 3 {
                    0 => ticket.wait().unwrap(),
                    1 => block_on(ticket).unwrap(),
                    _ => ticket.on_done(move |result| {
                        result.expect("closing makes durable what was appended");
                        drop(store);
                    }),
                }
            }
            if stage::rng().percent(30) {
                assert!(matches!(world.store().checkpoint(), Ok(()) | Err(Error::Closed)));
            }
        });
        (0..rng.below(30)).for_each(|_| others());
        if rng.percent(50) {
            world.store().close().unwrap();
        }
        world.end_and_check(writers);
    });
}

#[test]
fn a_failing_disk_stops_everyone_and_takes_nothing_back() {
    explore("brooklet::failing", 6_000, || {
        let mut rng = rng();
        let world = World::new(if rng.percent(50) { MILLI } else { HOUR });
        let abandoned = rng.percent(20);
        if !abandoned {
            world.stage.fail_after(rng.below(16));
        }
        let stopped = |error: &Error| matches!(error, Error::Stopped { .. } | Error::Closed);
        let writers = world.spawn_all(2, move |world, writer| {
            for n in 0..3 {
                let Ok(ticket) = world.append(writer, 3000, Durability::Durable) else { return };
                // A callback may look at the store, whichever thread it is called on, and whatever
                // that does.
                world.look_back(&ticket);
                let result = if n == 1 { block_on(ticket) } else { ticket.wait() };
                match result {
                    Ok(()) => world.acked(writer),
                    Err(error) => return assert!(stopped(&error), "{error}"),
                }
                world.look();
            }
        });
        let maintenance = world.spawn(move |world| {
            let ended = |result: Result<(), Error>| result.err().is_none_or(|error| stopped(&error));
            assert!(ended(world.store().checkpoint()));
            assert!(ended(world.store().compact()));
        });
        if abandoned {
            (0..rng.below(60)).for_each(|_| others());
            world.store().clone().abandon();
        }
        writers.into_iter().chain([maintenance]).for_each(|thread| thread.join().unwrap());
        world.look();
        world.check_after_a_crash();
        let _ = world.store().close();
        assert_eq!(world.looking(), 0, "every callback is called, and ends");
    });
}
