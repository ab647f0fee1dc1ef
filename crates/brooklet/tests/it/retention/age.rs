//! Age, and clocks that are wrong.

use std::time::Duration;

use brooklet::{Error, Retention};

use crate::retention::limits::{bounds, store};
use crate::retention::random::options;

const SEC: Duration = Duration::from_secs(1);

/// An hour, and the most that entries outlast it.
const HOUR: Duration = Duration::from_secs(3600);
const LATE: Duration = Duration::from_secs(3600 / 64);

#[test]
fn readers_leave_out_what_is_too_old() {
    let (store, clock, _) = store();
    store.set_retention("log", Retention::new().age(HOUR)).unwrap().wait().unwrap();
    for checkpointed in [false, true] {
        let first = store.bounds("log").unwrap().next;
        store.append("log", "old").unwrap().wait().unwrap();
        clock.advance(HOUR / 2);
        store.append("log", "young").unwrap().wait().unwrap();
        if checkpointed {
            store.checkpoint().unwrap();
        }
        clock.advance(HOUR / 2 - SEC);
        assert_eq!(store.bounds("log").unwrap(), bounds(first, first + 2));
        clock.advance(LATE + SEC);
        assert_eq!(store.bounds("log").unwrap(), bounds(first + 1, first + 2));
        assert_eq!(store.read("log", ..).unwrap().count(), 1);
        assert_eq!(store.scan("").unwrap().next().unwrap().unwrap().bounds, bounds(first + 1, first + 2));
        assert!(matches!(store.read("log", first..), Err(Error::OutOfRange { .. })));
        assert!(matches!(store.truncate("log", first), Err(Error::OutOfRange { .. })));
        clock.advance(HOUR);
        assert_eq!(store.bounds("log").unwrap(), bounds(first + 2, first + 2));
    }
}

/// Readers once remembered what a clock had said: one jump ahead and back took entries away for
/// good.
#[test]
fn a_clock_that_jumps_ahead_and_back_takes_nothing_away_by_reads() {
    let (mut store, clock, volume) = store();
    drop(store.set_retention("log", Retention::new().age(HOUR)).unwrap());
    store.append("log", "entry").unwrap().wait().unwrap();
    for round in 0..3 {
        clock.set_wall(9 * HOUR);
        assert_eq!(store.bounds("log").unwrap(), bounds(1, 1));
        assert_eq!(store.read("log", ..).unwrap().count(), 0);
        store.checkpoint().unwrap();
        clock.set_wall(SEC);
        assert_eq!(store.bounds("log").unwrap(), bounds(0, 1), "round {round}");
        assert_eq!(store.read("log", ..).unwrap().count(), 1);
        store.close().unwrap();
        store = options(&clock, round).open_on(volume.clone()).unwrap();
    }
}

#[test]
fn what_a_commit_dropped_stays_away_whatever_the_clock_says() {
    let (store, clock, _) = store();
    drop(store.set_retention("log", Retention::new().age(HOUR)).unwrap());
    store.append("log", "entry").unwrap().wait().unwrap();
    clock.set_wall(2 * HOUR);
    store.append("log", "next").unwrap().wait().unwrap();
    clock.set_wall(SEC);
    assert_eq!(store.bounds("log").unwrap(), bounds(1, 2));
    // Entries never seem older than those before them: what the clock dated ahead stays until then.
    store.append("log", "early").unwrap().wait().unwrap();
    clock.set_wall(3 * HOUR - SEC);
    assert_eq!(store.bounds("log").unwrap(), bounds(1, 3));
    clock.set_wall(3 * HOUR + LATE);
    assert_eq!(store.bounds("log").unwrap(), bounds(3, 3));
}

/// Trims once took what they were asked to and no more: what readers had not seen any more came
/// back with the clock.
#[test]
fn what_a_trim_found_too_old_stays_away() {
    for keep_last in [false, true] {
        let (store, clock, _) = store();
        drop(store.set_retention("log", Retention::new().age(HOUR)).unwrap());
        store.append_many("log", ["x"; 5]).unwrap().wait().unwrap();
        clock.set_wall(3 * HOUR);
        assert_eq!(store.bounds("log").unwrap(), bounds(5, 5));
        let cut = if keep_last { store.keep_last("log", 4) } else { store.trim("log", 1) };
        cut.unwrap().wait().unwrap();
        clock.set_wall(SEC);
        assert_eq!(store.bounds("log").unwrap(), bounds(5, 5), "keep_last {keep_last}");
    }
}

#[test]
fn an_age_that_is_lifted_or_longer_brings_nothing_back() {
    for longer in [Retention::new(), Retention::new().age(100 * HOUR)] {
        let (store, clock, _) = store();
        drop(store.set_retention("log", Retention::new().age(HOUR)).unwrap());
        store.append("log", "entry").unwrap().wait().unwrap();
        clock.advance(HOUR + LATE);
        assert_eq!(store.bounds("log").unwrap(), bounds(1, 1));
        store.set_retention("log", longer).unwrap().wait().unwrap();
        assert_eq!(store.bounds("log").unwrap(), bounds(1, 1));
        store.append("log", "entry").unwrap().wait().unwrap();
        clock.advance(9 * HOUR);
        assert_eq!(store.bounds("log").unwrap(), bounds(1, 2), "and keeps what comes");
    }
}

/// While new terms were on their way to disk, readers looked by the old ones at the time they
/// asked: entries that the new ones keep were gone, and came back.
#[test]
fn nothing_comes_back_while_terms_are_on_their_way() {
    for checkpointed in [false, true] {
        let (store, clock, _) = store();
        drop(store.set_retention("log", Retention::new().age(HOUR)).unwrap());
        store.append("log", "old").unwrap().wait().unwrap();
        clock.advance(HOUR / 2);
        store.append("log", "young").unwrap().wait().unwrap();
        if checkpointed {
            store.checkpoint().unwrap();
        }
        clock.advance(HOUR / 2 + LATE);
        assert_eq!(store.bounds("log").unwrap(), bounds(1, 2));
        // Appended, and nobody drives it.
        let ticket = store.set_retention("log", Retention::new()).unwrap();
        for _ in 0..5 {
            clock.advance(HOUR / 4);
            assert_eq!(store.bounds("log").unwrap(), bounds(1, 2), "as of when the terms were appended");
            assert_eq!(store.scan("").unwrap().next().unwrap().unwrap().bounds, bounds(1, 2));
            assert_eq!(store.read("log", ..).unwrap().count(), 1);
            assert!(!ticket.is_durable());
        }
        ticket.wait().unwrap();
        assert_eq!(store.bounds("log").unwrap(), bounds(1, 2));
    }
}

#[test]
fn a_log_that_was_there_counts_from_when_its_age_is_set() {
    let (store, clock, _) = store();
    store.append("log", "entry").unwrap().wait().unwrap();
    store.checkpoint().unwrap();
    clock.advance(9 * HOUR);
    store.set_retention("log", Retention::new().age(HOUR)).unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(0, 1));
    clock.advance(HOUR + LATE);
    assert_eq!(store.bounds("log").unwrap(), bounds(1, 1));
}

/// The newest group, and what joined it, lasted as the longer age had it.
#[test]
fn an_age_that_is_made_shorter_counts_from_then_on() {
    let (store, clock, _) = store();
    let (long, short) = (Duration::from_secs(64 * 3600), Duration::from_secs(10));
    store.set_retention("log", Retention::new().age(long)).unwrap().wait().unwrap();
    store.append("log", "before").unwrap().wait().unwrap();
    store.set_retention("log", Retention::new().age(short)).unwrap().wait().unwrap();
    clock.advance(Duration::from_secs(5));
    store.append("log", "after").unwrap().wait().unwrap();
    assert_eq!(store.bounds("log").unwrap(), bounds(0, 2));
    clock.advance(Duration::from_secs(5) + short / 64);
    assert_eq!(store.bounds("log").unwrap(), bounds(1, 2));
    clock.advance(Duration::from_secs(5));
    assert_eq!(store.bounds("log").unwrap(), bounds(2, 2));
}
