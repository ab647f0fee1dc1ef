//! A store at rest: what has become too old goes, though nobody commits.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{Clock, ManualClock, MemVolume};
use brooklet::{Error, Retention, Store};

use crate::retention::limits::{bounds, store};
use crate::retention::random::options;

const HOUR: Duration = Duration::from_secs(3600);

fn fill(store: &Store, logs: u32) {
    for log in 0..logs {
        let key = format!("log/{log}");
        drop(store.set_retention(&key, Retention::new().age(HOUR)).unwrap());
        store.append(&key, [log as u8; 400]).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
}

/// Lets time pass in which nobody commits; the store does what it will.
fn rest(store: &Store, clock: &ManualClock, time: Duration) {
    for _ in 0..10 {
        clock.advance(time / 10);
        while store.step().unwrap() {}
    }
}

fn bytes(store: &Store) -> u64 {
    store.info().unwrap().runs.iter().map(|run| run.bytes).sum()
}

#[test]
fn a_store_at_rest_gives_back_what_is_too_old() {
    let (mut store, clock, volume) = store();
    fill(&store, 600);
    store.set_retention("kept", Retention::new()).unwrap_err();
    store.append("kept", "for ever").unwrap().wait().unwrap();
    rest(&store, &clock, HOUR / 2);
    let before = bytes(&store);
    assert!(before > 10_000);
    rest(&store, &clock, 2 * HOUR);
    let info = store.info().unwrap();
    let held: u64 = info.runs.iter().map(|run| run.entries - run.dead).sum();
    assert_eq!(held, 1, "{:?}", info.runs);
    assert!(bytes(&store) <= before / 2, "{} of {before} bytes", bytes(&store));
    // For good: the clock may say what it likes.
    clock.set_wall(Duration::ZERO);
    for round in 0..2 {
        assert_eq!(store.bounds("log/7").unwrap(), bounds(1, 1), "round {round}");
        assert_eq!(store.bounds("kept").unwrap(), bounds(0, 1));
        store.close().unwrap();
        store = options(&clock, 1).open_on(volume.clone()).unwrap();
    }
    drop(store);
    assert!(brooklet::check_volume(volume, brooklet::Progress::ignore).unwrap().is_sound());
}

/// What little is too old is let lie, and a walk that was done is not done again.
#[test]
fn rest_comes_to_an_end() {
    let (store, clock, _) = store();
    fill(&store, 20);
    clock.advance(HOUR / 2);
    for log in 0..2000 {
        drop(store.append(format!("other/{log}"), [1; 100]).unwrap());
    }
    store.checkpoint().unwrap();
    rest(&store, &clock, 2 * HOUR);
    let records = store.info().unwrap().wal.records;
    rest(&store, &clock, 20 * HOUR);
    let info = store.info().unwrap();
    assert_eq!(info.wal.records, records, "each log was trimmed once");
    assert_eq!(records, 20 * 2 + 2000 + 20);
}

#[test]
fn compacting_drops_what_is_too_old() {
    let (store, clock, _) = store();
    fill(&store, 50);
    clock.advance(2 * HOUR);
    store.compact().unwrap();
    let held: u64 = store.info().unwrap().runs.iter().map(|run| run.entries).sum();
    assert_eq!(held, 0);
    assert_eq!(store.bounds("log/7").unwrap(), bounds(1, 1));
    store.compact().unwrap();
}

/// A walk that commits interrupted held its run, with all its space, until the store was idle
/// again.
#[test]
fn a_walk_that_is_interrupted_holds_nothing() {
    let (store, clock, _) = store();
    fill(&store, 1000);
    clock.advance(2 * HOUR);
    let records = || store.info().unwrap().wal.records;
    let before = records();
    while records() == before {
        assert!(store.step().unwrap());
    }
    assert!(records() < before + 1000, "the walk goes on");
    for log in 0..1000 {
        drop(store.delete(format!("log/{log}")).unwrap());
    }
    for n in 0..3 {
        store.append("other", [n; 100]).unwrap().wait().unwrap();
        store.checkpoint().unwrap();
    }
    // What no reader holds is given back with the next checkpoint.
    let info = store.info().unwrap();
    let used = info.size - info.heap_offset - info.heap_free;
    assert!(used <= bytes(&store) + 4096, "{used} bytes of the heap for {} in runs", bytes(&store));
}

/// Where more is to be trimmed than the ring takes at once, or than waits to be written, the sweep
/// ended as if all was done.
#[test]
fn a_sweep_waits_for_room() {
    for (ring, compacts) in [(256 << 10, true), (256 << 10, false), (8 << 20, true), (8 << 20, false)] {
        let clock = Arc::new(ManualClock::default());
        let options = options(&clock, 1).ring_size(ring).block_size(4 << 10);
        let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
        let pad = "k".repeat(200);
        for log in 0..3000 {
            let key = format!("{log}/{pad}");
            drop(store.set_retention(&key, Retention::new().age(HOUR)).unwrap());
            store.append(&key, [log as u8; 40]).unwrap().wait().unwrap();
        }
        store.checkpoint().unwrap();
        let before = store.info().unwrap();
        if compacts {
            clock.advance(2 * HOUR);
            store.compact().unwrap();
        } else {
            rest(&store, &clock, 2 * HOUR);
        }
        let info = store.info().unwrap();
        let held: u64 = info.runs.iter().map(|run| run.entries - run.dead).sum();
        assert_eq!(held, 0, "ring {ring}, {:?}", info.runs);
        assert_eq!(info.wal.records - before.wal.records, 3000, "each log was trimmed once");
    }
}

/// One look-up that met damage ended the sweep of all logs that were found with its log.
#[test]
fn damage_in_one_log_lets_others_be_swept() {
    let (store, clock, volume) = store();
    fill(&store, 50);
    // The newer run knows but one log, and nothing of an age, so that it is not walked through.
    store.set_retention("log/23", Retention::new().entries(9)).unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    let run = store.info().unwrap().runs[0];
    store.close().unwrap();
    drop(store);
    let image = volume.crash();
    let damaged = |at: u64| {
        let mut image = image.clone();
        image[at as usize] ^= 1;
        let store = options(&clock, 1).open_on(Arc::new(MemVolume::from_image(image, 1))).ok()?;
        matches!(store.bounds("log/23"), Err(Error::Damaged { .. })).then_some(store)
    };
    let store = (run.offset..run.offset + run.bytes).find_map(damaged).unwrap();
    clock.set_wall(2 * HOUR);
    // Merging meets the damage, too.
    store.compact().unwrap_err();
    clock.set_wall(Duration::ZERO);
    for log in (0..50).filter(|log| *log != 23) {
        assert_eq!(store.bounds(format!("log/{log}")).unwrap(), bounds(1, 1), "log {log}");
    }
}

/// A run that cannot be read ended the whole call, although only this run and older ones stay as
/// they are.
#[test]
fn compacting_goes_on_beside_a_damaged_run() {
    let (store, clock, volume) = store();
    for run in 0..4 {
        for log in 0..20u8 {
            let key = format!("{run}/{log}");
            drop(store.set_retention(&key, Retention::new().age(HOUR)).unwrap());
            store.append(&key, [log; 400]).unwrap().wait().unwrap();
        }
        store.checkpoint().unwrap();
    }
    // The oldest run but one.
    let run = store.info().unwrap().runs[2];
    store.close().unwrap();
    drop(store);
    let image = volume.crash();
    let damaged = |at: u64| {
        let mut image = image.clone();
        image[at as usize] ^= 1;
        let store = options(&clock, 1).open_on(Arc::new(MemVolume::from_image(image, 1))).ok()?;
        matches!(store.bounds("1/0"), Err(Error::Damaged { .. })).then_some(store)
    };
    let store = (run.offset..run.offset + run.bytes).find_map(damaged).unwrap();
    clock.set_wall(2 * HOUR);
    let error = store.compact().unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
    let runs = store.info().unwrap().runs;
    let newer = runs.iter().take_while(|run| !run.damaged && !run.merging).count();
    assert!(newer <= 1 && newer < runs.len(), "{runs:?}");
    clock.set_wall(Duration::ZERO);
    // The look-up of a log of the oldest run may meet the damage.
    let swept = (0..20).filter(|log| store.bounds(format!("0/{log}")).is_ok_and(|log| log == bounds(1, 1)));
    assert!(swept.count() > 15);
}

/// A clock by which a minute passes whenever it is asked for the time of day.
#[derive(Debug, Default)]
struct Hasty(ManualClock);

impl Clock for Hasty {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn wall(&self) -> Duration {
        self.0.set_wall(self.0.wall() + HOUR / 60);
        self.0.wall()
    }
}

/// While there was always more that had become too old, compacting did not come to its end.
#[test]
fn compacting_drops_what_is_too_old_when_it_begins() {
    let clock = Arc::new(Hasty::default());
    let options = options(&Arc::default(), 1).clock(clock.clone()).rng_seed(1);
    let store = options.create_on(Arc::new(MemVolume::new(1))).unwrap();
    fill(&store, 200);
    // The first half is too old.
    clock.0.set_wall(HOUR + clock.0.wall() / 2);
    store.compact().unwrap();
    let is_gone = |log: &u32| {
        clock.0.set_wall(Duration::ZERO);
        store.bounds(format!("log/{log}")).unwrap().first == 1
    };
    let gone = (0..200).filter(is_gone).count();
    assert!((90..110).contains(&gone), "{gone} went");
}

/// One log that is kept for long made all others wait, as if entries became too old evenly until
/// then.
#[test]
fn a_log_of_long_age_keeps_no_others() {
    let (store, clock, _) = store();
    drop(store.set_retention("year", Retention::new().age(24 * 365 * HOUR)).unwrap());
    store.append("year", [1; 400]).unwrap().wait().unwrap();
    fill(&store, 40);
    rest(&store, &clock, 3 * HOUR);
    let info = store.info().unwrap();
    let held: u64 = info.runs.iter().map(|run| run.entries - run.dead).sum();
    assert_eq!(held, 1, "{:?}", info.runs);
}
