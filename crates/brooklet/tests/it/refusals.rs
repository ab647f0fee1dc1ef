//! What a refusal says of a log survives a power cut, as what a read shows does; and what an
//! acknowledgement of a deferred commit promises is kept, or nobody is told that all is well.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use brooklet::error::{Expected, Found};
use brooklet::io::{Clock, Fault, ManualClock, MemVolume, Rng};
use brooklet::{Commit, Durability, Error, Options, SpaceConfig, Store};

const MILLI: Duration = Duration::from_millis(1);

fn options() -> Options {
    Options::new().ring_size(256 << 10).max_payload(16 << 10).threads(false)
}

fn with_clock(options: Options, clock: &Arc<ManualClock>) -> Options {
    options.clock(clock.clone()).rng_seed(7)
}

fn made(options: Options) -> (MemVolume, Store, Arc<ManualClock>) {
    let (disk, clock) = (MemVolume::new(7), Arc::new(ManualClock::default()));
    let store = with_clock(options, &clock).create_on(Arc::new(disk.clone())).unwrap();
    (disk, store, clock)
}

/// Where a log would go on after a power cut now; `None` where it would not be there.
fn after_a_cut(disk: &MemVolume, log: &str) -> Option<u64> {
    let image = MemVolume::from_image(disk.crash(), 1);
    let store = options().read_only(true).open_on(Arc::new(image)).unwrap();
    store.bounds(log).ok().map(|bounds| bounds.next)
}

/// Any of the writes that can be refused, on logs whose last commits nobody waits for.
#[test]
pub fn what_a_refusal_says_survives_a_power_cut() {
    let (mut conflicts, mut unknown, mut outside) = (0, 0, 0);
    for seed in 0..300 {
        let rng = &mut Rng::new(seed);
        let (disk, store, _) = made(options());
        let mut next = [None::<u64>; 3];
        for _ in 0..40 {
            let at = rng.below(3) as usize;
            let log = format!("log/{at}");
            let expected = rng.below(3);
            let mut commit = Commit::new();
            commit.expect_next(&log, expected).append(&log, b"entry");
            let longer = next[at].map_or(Some(1), |next| Some(next + 1));
            let (refused, then) = match rng.below(7) {
                0 | 1 => (store.commit(&commit).err(), longer),
                2 => (store.append(&log, "entry").err(), longer),
                3 => (store.trim(&log, next[at].unwrap_or(0) + rng.below(2)).err(), next[at]),
                4 | 5 => (store.delete(&log).err(), None),
                _ => (store.checkpoint().err(), next[at]),
            };
            let left = || after_a_cut(&disk, &log);
            match refused {
                Some(Error::Conflict { expected: Expected::Next(asked), found, .. }) => {
                    assert_eq!(asked, expected);
                    let found = if let Found::Next(next) = found { Some(next) } else { None };
                    assert_eq!((found, left()), (next[at], next[at]), "seed {seed}");
                    conflicts += 1;
                }
                Some(Error::UnknownLog { .. }) => {
                    assert_eq!((left(), next[at]), (None, None), "seed {seed}");
                    unknown += 1;
                }
                Some(Error::OutOfRange { next: told, .. }) => {
                    assert_eq!((Some(told), left()), (next[at], next[at]), "seed {seed}");
                    outside += 1;
                }
                Some(error) => panic!("seed {seed}: {error}"),
                None => next[at] = then,
            }
        }
    }
    assert!(conflicts > 100 && unknown > 100 && outside > 100, "{conflicts}, {unknown}, {outside}");
}

/// A caller who may not wait is asked to come again.
#[test]
fn who_may_not_wait_is_not_told_what_is_not_durable() {
    let (disk, store, _) = made(options());
    let mut first = Commit::new();
    first.expect_next("log", 0).append("log", b"entry");
    let ticket = store.commit(&first).unwrap();
    let error = store.try_commit(&first).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    ticket.wait().unwrap();
    assert!(matches!(store.try_commit(&first), Err(Error::Conflict { .. })));
    assert_eq!(after_a_cut(&disk, "log"), Some(1));
}

#[test]
fn a_quota_that_is_reached_is_reached_after_a_power_cut() {
    let (disk, store, _) = made(options());
    store.create_space("few", SpaceConfig::new().max_logs(2)).unwrap();
    for log in ["few/a", "few/b"] {
        let _ticket = store.append(log, "entry").unwrap();
    }
    assert!(matches!(store.append("few/c", "entry"), Err(Error::QuotaReached { .. })));
    assert_eq!(["few/a", "few/b"].map(|log| after_a_cut(&disk, log)), [Some(1); 2]);
}

/// A refusal that rests on a commit which the device did not take is none: the store has stopped.
#[test]
fn a_refusal_that_cannot_be_made_durable_is_a_stop() {
    let (disk, store, _) = made(options());
    let _ticket = store.append("log", "entry").unwrap();
    disk.fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: true });
    let mut commit = Commit::new();
    commit.expect_absent("log").append("log", b"entry");
    let error = store.commit(&commit).unwrap_err();
    assert!(matches!(error, Error::Stopped { .. }), "{error}");
}

/// A wait that ends by its timeout leaves the write as it is; it may be waited for again.
#[test]
fn a_wait_for_a_ticket_may_have_a_limit() {
    let (disk, store, _) = made(options());
    let ticket = store.append("log", "entry").unwrap();
    assert!(!ticket.wait_timeout(Duration::from_millis(5)).unwrap(), "no thread writes");
    assert!(!ticket.is_done() && after_a_cut(&disk, "log").is_none());
    ticket.wait().unwrap();
    assert!(ticket.wait_timeout(Duration::ZERO).unwrap());
    assert_eq!(after_a_cut(&disk, "log"), Some(1));
    let ticket = store.append("log", "entry").unwrap();
    disk.fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: true });
    assert!(store.flush().is_err());
    assert!(matches!(ticket.wait_timeout(Duration::from_secs(60)), Err(Error::Stopped { .. })));
}

/// Where writes wait for a pace that is slower than a commit's bound, the commit is acknowledged
/// when it is durable.
#[test]
pub fn a_deferred_commit_is_not_acknowledged_before_a_pace_that_breaks_its_bound() {
    let (interval, bound) = (2000 * MILLI, 20 * MILLI);
    let clock = Arc::new(ManualClock::default());
    let options = Options::new().ring_size(1 << 20).max_payload(64 << 10).block_size(4 << 10).threads(false);
    let options = options.write_interval(interval).clock(clock.clone()).rng_seed(7);
    let store = options.create_on(Arc::new(MemVolume::new(7))).unwrap();
    let deferred = || store.append_with("log", [7; 3000], Durability::Deferred(bound)).unwrap();
    store.append("warm", "up").unwrap().wait().unwrap();
    let begun = clock.now();
    let ticket = deferred();
    assert!(!ticket.is_done());
    ticket.wait().unwrap();
    assert!(clock.now() >= begun + interval - MILLI, "who waits keeps the pace, where no thread does");

    // The pace lets the next write go at once, and the one behind it only an interval later.
    clock.advance(10 * interval);
    let (at_once, behind) = (deferred(), deferred());
    assert!(at_once.is_done() && !behind.is_done());
    clock.advance(bound / 2);
    while store.step().unwrap() {}
    assert!(at_once.is_durable() && !behind.is_durable());
    behind.wait().unwrap();
}

/// What was acknowledged and cannot be made durable any more is not passed over: a read of its log
/// says that the store has stopped. Other logs are read as before.
#[test]
fn a_read_never_passes_over_a_deferred_commit() {
    let (disk, store, _) = made(options());
    for log in ["log", "other"] {
        store.append(log, "entry").unwrap().wait().unwrap();
    }
    store.append_with("log", "deferred", Durability::Deferred(1000 * MILLI)).unwrap().wait().unwrap();
    disk.fail(Fault::ErrorAfter { operations: 0, kind: ErrorKind::Other, sticky: true });
    for _ in 0..2 {
        assert!(matches!(store.read("log", ..).map(drop), Err(Error::Stopped { .. })));
        assert!(matches!(store.bounds("log"), Err(Error::Stopped { .. })));
        assert_eq!(store.read("other", ..).unwrap().count(), 1);
    }
}
