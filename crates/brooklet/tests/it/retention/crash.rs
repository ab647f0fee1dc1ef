//! Power cuts: what is left is a prefix of the commits, and nothing that was seen to be gone
//! returns.

use std::collections::BTreeMap;
use std::sync::Arc;

use brooklet::io::{Fault, ManualClock, MemVolume, Rng};

use crate::common;
use crate::retention::model::{Logs, change, commit};
use crate::retention::random::{now, options, pass};

/// Runs a story until the power goes after so many operations on the disk. `false` where it came to
/// its end first.
fn cut(seed: u64, operations: u64) -> bool {
    let rng = &mut Rng::new(seed);
    let clock = Arc::new(ManualClock::default());
    let volume = MemVolume::new(seed);
    let store = options(&clock, seed).create_on(Arc::new(volume.clone())).unwrap();
    volume.fail(Fault::PowerOffAfter(operations));
    // The states after each commit that was appended, and how many of them were acknowledged.
    let (mut states, mut acked) = (vec![Logs::default()], 0);
    let mut gone: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut dead = false;
    for _ in 0..60 {
        pass(&clock, rng, false);
        let mut state = states.last().unwrap().clone();
        let (changes, other) = (vec![change(rng, &state)], rng.below(30));
        if state.clone().apply(&changes, now(&clock)) {
            if store.commit(&commit(&changes)).is_err() {
                dead = true;
                break;
            }
            state.apply(&changes, now(&clock));
            states.push(state);
        }
        let done = match other {
            0 => store.checkpoint(),
            1 => store.compact(),
            2..=20 => store.flush(),
            _ => continue,
        };
        if done.is_err() {
            dead = true;
            break;
        }
        acked = states.len() - 1;
        gone = states[acked].shown(now(&clock)).into_iter().map(|(key, log)| (key, log.first)).collect();
    }
    store.abandon();
    let image = MemVolume::from_image(volume.crash(), seed);
    let store = options(&clock, seed).open_on(Arc::new(image.clone())).unwrap();
    let found = common::contents(&store).unwrap();
    let retained = |log: &brooklet::LogInfo, state: &Logs| log.retention == state.0[&log.key].retention;
    let fits = |state: &Logs| {
        let mut listed = store.scan("").unwrap();
        state.shown(now(&clock)) == found && listed.all(|log| retained(&log.unwrap(), state))
    };
    let at = states[acked..].iter().position(fits);
    let at = at.unwrap_or_else(|| {
        panic!("seed {seed}, cut after {operations}: no prefix of at least {acked} commits")
    });
    // Nothing that was truncated or deleted since tells anything.
    for (key, first) in &gone {
        let (before, log) = (&states[acked].0[key], found.get(key));
        if let Some(log) = log.filter(|log| at == 0 || log.next() > before.next()) {
            assert!(
                log.first >= *first || log.next() < *first,
                "seed {seed}: {first} of {} returns",
                key.escape_ascii()
            );
        }
    }
    states[acked + at].compare(&store, now(&clock), "after the cut");
    // It goes on as any: what is counted is right after recovery, too.
    let mut logs = states.swap_remove(acked + at);
    for _ in 0..30 {
        let changes = [change(rng, &logs)];
        let done = store.commit(&commit(&changes)).is_ok();
        assert_eq!(done, logs.apply(&changes, now(&clock)), "seed {seed}: {changes:?}");
    }
    store.flush().unwrap();
    logs.compare(&store, now(&clock), "going on");
    dead
}

#[test]
fn a_power_cut_leaves_a_prefix_and_nothing_returns() {
    for seed in 0..12 {
        let mut operations = seed;
        while cut(seed, operations) {
            operations += 1 + operations / 8;
        }
    }
}
