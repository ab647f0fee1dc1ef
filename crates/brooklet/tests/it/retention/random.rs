//! Random commits on logs with limits, through checkpoints, merges and openings, by a clock that
//! jumps.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{Clock, ManualClock, MemVolume, Rng};
use brooklet::{Error, Options, Store};

use crate::retention::model::{Logs, change, commit};

pub fn options(clock: &Arc<ManualClock>, seed: u64) -> Options {
    let options = Options::new().ring_size(256 << 10).memory_budget(256 << 10).max_payload(16 << 10);
    options.threads(false).clock(clock.clone()).rng_seed(seed)
}

pub fn now(clock: &ManualClock) -> u64 {
    clock.wall().as_millis() as u64
}

/// Lets time pass; now and then the wall clock is set.
pub fn pass(clock: &ManualClock, rng: &mut Rng, jumps: bool) {
    clock.advance(Duration::from_millis([0, 1, 20, 400, 3_000][rng.below(5) as usize]));
    if jumps && rng.percent(2) {
        let wall = clock.wall();
        let by = Duration::from_millis(rng.below(60_000));
        clock.set_wall(if rng.percent(50) { wall + by } else { wall.saturating_sub(by) });
    }
}

fn run(seed: u64, jumps: bool) {
    let rng = &mut Rng::new(seed);
    let clock = Arc::new(ManualClock::default());
    clock.set_wall(Duration::from_secs(1_700_000_000));
    let volume = Arc::new(MemVolume::new(seed));
    let mut store: Store = options(&clock, seed).create_on(volume.clone()).unwrap();
    let mut logs = Logs::default();
    for step in 0..250 {
        pass(&clock, rng, jumps);
        let when = format!("seed {seed}, step {step}");
        match rng.below(60) {
            0..=2 => store.checkpoint().unwrap(),
            3 => store.compact().unwrap(),
            4 => {
                clock.advance(Duration::from_millis(1_100 * rng.below(30)));
                while store.step().unwrap() {}
            }
            5 => {
                store.close().unwrap();
                drop(store);
                store = options(&clock, seed + step).open_on(volume.clone()).unwrap();
            }
            6 => {
                store.flush().unwrap();
                store.abandon();
                store = options(&clock, seed + step).open_on(volume.clone()).unwrap();
            }
            _ => {
                let changes: Vec<_> = (0..1 + rng.below(4)).map(|_| change(rng, &logs)).collect();
                let done = store.commit(&commit(&changes));
                let expected = logs.apply(&changes, now(&clock));
                match done {
                    Ok(_) => assert!(expected, "{when}: {changes:?} should be refused"),
                    Err(Error::UnknownLog { .. } | Error::OutOfRange { .. }) => {
                        assert!(!expected, "{when}: {changes:?} should be accepted");
                    }
                    Err(error) => panic!("{when}: {error}"),
                }
                // Some commits are on their way to disk while others are appended.
                if rng.percent(70) {
                    store.flush().unwrap();
                }
            }
        }
        if rng.percent(30) {
            store.flush().unwrap();
            logs.compare(&store, now(&clock), &when);
        }
    }
    store.flush().unwrap();
    logs.compare(&store, now(&clock), "in the end");
    store.close().unwrap();
    drop(store);
    let report = brooklet::check_volume(volume, brooklet::Progress::ignore).unwrap();
    assert!(report.is_sound(), "seed {seed}: {:?}", report.findings);
}

#[test]
fn logs_keep_what_a_plain_model_keeps() {
    (0..60).for_each(|seed| run(seed, false));
}

#[test]
fn and_so_they_do_where_the_clock_is_set() {
    (1000..1040).for_each(|seed| run(seed, true));
}
