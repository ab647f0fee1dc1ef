//! The log under a scheduler that tries interleavings: who waits is told once, in order, and only
//! of what is safe; and nobody waits for ever.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test --release -p brooklet-wal --test shuttle -- --nocapture`
//! runs them; `BROOKLET_SCHEDULES` is the number of schedules for each. A schedule that fails is
//! printed. To replay it, put it into `BROOKLET_REPLAY` and run the one test that failed, built
//! from the same source.

#![cfg(shuttle)]

mod explore;
mod stage;
mod world;

use std::time::Duration;

use brooklet_wal::WalError;
use shuttle::thread;

use stage::{block_on, explore, others, rng};
use world::World;

/// So long that nothing becomes durable because its time has come.
const HOUR: Duration = Duration::from_secs(3600);
const MILLI: Duration = Duration::from_millis(1);

#[test]
fn writers_that_wait_drive_each_other() {
    explore("wal::writers", 12_000, || {
        let world = World::new(HOUR);
        let writers = world.spawn_all(3, |world, writer| {
            for n in 0..3 {
                let append = world.append(writer, n, 100).expect("nothing failed");
                world.wait(&append).expect("nothing failed");
            }
        });
        world.end_and_check(writers, None);
    });
}

#[test]
fn what_nobody_waits_for_becomes_durable_in_its_time() {
    explore("wal::committer", 6_000, || {
        let world = World::new(MILLI);
        let committer = world.spawn_committer();
        let writers = world.spawn_all(2, |world, writer| {
            for round in 0..2 {
                let two = [2 * round, 2 * round + 1];
                let appends = two.map(|n| world.append(writer, n, 2500).unwrap());
                while !appends.iter().all(|append| append.ack.is_done()) {
                    thread::yield_now();
                }
                appends.iter().for_each(|append| world.told(append, Ok(())));
                // Long enough, at times, for the committer to go to sleep for good.
                (0..rng().below(400)).for_each(|_| thread::yield_now());
            }
        });
        world.end_and_check(writers, Some(committer));
    });
}

#[test]
fn tasks_and_callbacks_are_woken() {
    explore("wal::tasks", 9_000, || {
        let world = World::new(HOUR);
        let committer = world.spawn_committer();
        let writers = world.spawn_all(3, |world, writer| {
            for n in 0..2 {
                let append = world.append(writer, n, 100).unwrap();
                match rng().below(4) {
                    0 => world.call_back(&append, true),
                    // Two wakers for one block, of which one is replaced on each poll.
                    1 => {
                        let (one, two) = (append.ack.clone(), append.ack.clone());
                        let both = block_on(async { (one.await, two.await) });
                        world.told(&append, both.0.and(both.1));
                    }
                    2 => world.told(&append, block_on(append.ack.clone())),
                    _ => world.wait(&append).unwrap(),
                }
            }
        });
        world.end_and_check(writers, Some(committer));
    });
}

/// Without a committer, whoever waits must drive what others only listen to: the driver before may
/// have looked for one who waits right before that.
#[test]
fn whoever_waits_beside_callbacks_drives_them() {
    explore("wal::beside", 9_000, || {
        let world = World::new(HOUR);
        let writers = world.spawn_all(2, |world, writer| {
            for n in 0..3 {
                let append = world.append(writer, n, 100).unwrap();
                world.call_back(&append, false);
                world.wal.flush().unwrap();
            }
        });
        world.end_and_check(writers, None);
    });
}

/// Nobody but the committer drives; it must hear of everyone who waits.
#[test]
fn paced_writers_are_driven_by_the_committer() {
    explore("wal::paced", 6_000, || {
        let world = World::paced(HOUR, MILLI);
        let committer = world.spawn_committer();
        let writers = world.spawn_all(3, |world, writer| {
            for n in 0..2 {
                let append = world.append(writer, n, 100).unwrap();
                match writer {
                    0 => world.call_back(&append, true),
                    1 => world.told(&append, block_on(append.ack.clone())),
                    _ => world.wait(&append).unwrap(),
                }
                (0..rng().below(100)).for_each(|_| thread::yield_now());
            }
        });
        world.end_and_check(writers, Some(committer));
    });
}

/// Without a committer, the threads that wait keep the pace, and wake each other. Each record needs
/// a block of its own, and there are more threads than slots.
#[test]
fn paced_writers_drive_each_other() {
    explore("wal::paced_alone", 6_000, || {
        let world = World::paced(HOUR, MILLI / 20);
        // The ring has room for all of them: nobody trims it.
        let writers = world.spawn_all(3, |world, writer| {
            let append = world.append(writer, 0, 5000).expect("nothing failed");
            world.wait(&append).expect("nothing failed");
        });
        world.end_and_check(writers, None);
    });
}

#[test]
fn a_full_ring_goes_on_when_it_is_trimmed() {
    explore("wal::room", 6_000, || {
        let world = World::new(MILLI);
        let committer = rng().percent(50).then(|| world.spawn_committer());
        let writers = world.spawn_all(2, |world, writer| {
            for n in 0..4 {
                let append = world.append(writer, n, 9000).unwrap();
                if n % 2 == 0 {
                    world.wait(&append).unwrap();
                } else {
                    world.call_back(&append, false);
                }
            }
        });
        let trimmer = world.spawn(move |world| {
            while world.appends() < 8 {
                let cut = world.wal.cut();
                world.wal.flush().unwrap();
                world.trim(world.wal.cut_cursor(cut).expect("what is durable was placed"));
                thread::yield_now();
            }
        });
        world.end_and_check(writers.into_iter().chain([trimmer]), committer);
    });
}

#[test]
fn closing_keeps_all_that_it_did_not_refuse() {
    explore("wal::closing", 9_000, || {
        let world = World::new(HOUR);
        let committer = rng().percent(50).then(|| world.spawn_committer());
        let writers = world.spawn_all(3, |world, writer| {
            for n in 0..2 {
                let append = match world.append(writer, n, 100) {
                    Ok(append) => append,
                    Err(WalError::Closed) => return,
                    Err(error) => panic!("{error}"),
                };
                // Whatever was appended is made durable by closing, if by nobody else.
                match writer {
                    0 => world.wait(&append).unwrap(),
                    1 => world.call_back(&append, false),
                    _ => world.told(&append, block_on(append.ack.clone())),
                }
            }
        });
        // At once, or when the committer may be about to tell what is acknowledged, before it goes
        // to sleep for good.
        (0..rng().below(300)).for_each(|_| thread::yield_now());
        let end = world.wal.close().expect("nothing failed");
        writers.into_iter().chain(committer).for_each(|thread| thread.join().unwrap());
        world.check(end);
    });
}

#[test]
fn a_failure_reaches_everyone_once() {
    explore("wal::failing", 9_000, || {
        let mut rng = rng();
        let world = World::new(if rng.percent(50) { MILLI } else { HOUR });
        let how = rng.below(3);
        if how == 0 {
            world.stage.fail_after(rng.below(6));
        }
        let committer = world.spawn_committer();
        let writers = world.spawn_all(3, |world, writer| {
            for n in 0..3 {
                let stopped = world.wal.failure().is_some();
                let Ok(append) = world.append(writer, n, 1500 * (1 + n as usize)) else { return };
                assert!(!stopped, "a log that has stopped takes nothing");
                match (writer + n) % 3 {
                    0 => drop(world.wait(&append)),
                    1 => world.call_back(&append, false),
                    _ => world.told(&append, block_on(append.ack.clone())),
                }
            }
        });
        others();
        match how {
            0 => {}
            1 => drop(world.wal.fail(std::io::Error::other("the store around it failed"))),
            _ => world.wal.abandon(),
        }
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        // Without a failure someone has to make the last ones durable; after one this finds all
        // told.
        if world.wal.flush().is_ok() {
            world.wal.abandon();
        }
        committer.join().unwrap();
        world.wal.join_callbacks();
        world.check_after_a_crash();
    });
}

/// What it waits for nobody but the committer may free.
#[test]
fn callbacks_append_and_wait_for_room() {
    explore("wal::chains", 6_000, || {
        let world = World::new(HOUR);
        let committer = world.spawn_committer();
        let writers = world.spawn_all(3, |world, writer| world.chain(writer, 3, 3900));
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        while world.appends() < 9 {
            // Whoever waits drives, too.
            world.wal.flush().unwrap();
            thread::yield_now();
        }
        world.end_and_check([], Some(committer));
    });
}

#[test]
fn a_callback_closes_the_log() {
    explore("wal::closing_within", 6_000, || {
        let world = World::new(if rng().percent(50) { MILLI } else { HOUR });
        let committer = world.spawn_committer();
        let writers = world.spawn_all(2, |world, writer| {
            for n in 0..2 {
                let append = match world.append(writer, n, 100) {
                    Ok(append) => append,
                    Err(WalError::Closed) => return,
                    Err(error) => panic!("{error}"),
                };
                world.call_back(&append, false);
                let wal = world.wal.clone();
                append.ack.on_done(move |_| assert!(matches!(wal.close(), Ok(_) | Err(WalError::Closed))));
            }
            match world.wal.flush() {
                Ok(()) | Err(WalError::Closed) => {}
                Err(error) => panic!("{error}"),
            }
        });
        writers.into_iter().chain([committer]).for_each(|thread| thread.join().unwrap());
        assert!(matches!(world.wal.close(), Err(WalError::Closed)));
        world.check_after_a_crash();
    });
}

/// The volume panics, on whichever thread that is.
#[test]
fn a_panic_reaches_everyone_once() {
    explore("wal::panics", 6_000, || {
        let mut rng = rng();
        let world = World::new(if rng.percent(50) { MILLI } else { HOUR });
        world.stage.panic_after(rng.below(6));
        let committer = world.spawn_committer();
        let writers = world.spawn_all(3, |world, writer| {
            for n in 0..3 {
                let Ok(append) = world.append(writer, n, 1500 * (1 + n as usize)) else { return };
                match (writer + n) % 3 {
                    0 => drop(world.wait(&append)),
                    1 => world.call_back(&append, false),
                    _ => world.told(&append, block_on(append.ack.clone())),
                }
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        if world.wal.flush().is_ok() {
            world.wal.abandon();
        }
        assert!(world.wal.close().is_err());
        committer.join().unwrap();
        world.check_after_a_crash();
    });
}
