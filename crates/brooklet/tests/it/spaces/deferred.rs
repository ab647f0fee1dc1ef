//! What is deferred: acknowledged at once, on stable media in time, and only as long as that holds.

use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{Clock, ManualClock, MemVolume};
use brooklet::{Class, Commit, Durability, Options, SpaceConfig, Store};

const BOUND: Duration = Duration::from_millis(40);

fn store(volume: &MemVolume, clock: &Arc<ManualClock>) -> Store {
    let options = Options::new().ring_size(256 << 10).max_payload(9 << 10);
    options.threads(false).clock(clock.clone()).rng_seed(5).create_on(Arc::new(volume.clone())).unwrap()
}

fn deferred() -> SpaceConfig {
    SpaceConfig::new().class(Class::Deferred(BOUND))
}

/// The newest entry that a power cut would leave.
fn left(volume: &MemVolume) -> u64 {
    let image = MemVolume::from_image(volume.image(), 1);
    let store = crate::spaces::open(&image).unwrap();
    store.bounds("games/7").map_or(0, |bounds| bounds.next)
}

/// With a device that takes what it is given at once, nothing is owed for longer than half of the
/// bound.
#[test]
fn what_is_deferred_is_durable_within_the_bound() {
    let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
    let store = store(&volume, &clock);
    let games = store.create_space("games", deferred()).unwrap();
    while store.step().unwrap() {}
    let mut acked = Vec::new();
    for n in 0..500 {
        let ticket = games.append("7", format!("{n}")).unwrap();
        ticket.wait().unwrap();
        acked.push(clock.now());
        assert!(!ticket.is_durable() || n > 0);
        clock.advance(Duration::from_millis(1 + n % 7));
        while store.step().unwrap() {}
        let lost = &acked[left(&volume) as usize..];
        let age = lost.first().map_or(Duration::ZERO, |first| clock.now() - *first);
        assert!(age <= BOUND, "{age:?}");
    }
    assert!(store.info().unwrap().wal.blocks < 150, "they share blocks");
}

/// While the device owes what was acknowledged for longer than the bound, nothing else is
/// acknowledged from memory.
#[test]
fn acknowledgements_wait_for_a_device_that_does_not_keep_up() {
    let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
    let store = store(&volume, &clock);
    let games = store.create_space("games", deferred()).unwrap();
    while store.step().unwrap() {}
    let mut acked = Vec::new();
    // Nobody drives the log: what is appended stays in memory.
    for n in 0..100 {
        let ticket = games.append("7", format!("{n}")).unwrap();
        let is_acked = |ticket: brooklet::Ticket| {
            let (told, tell) = (Arc::new(std::sync::atomic::AtomicBool::new(false)), ());
            let () = tell;
            let told_too = told.clone();
            ticket.on_done(move |_| told_too.store(true, std::sync::atomic::Ordering::Relaxed));
            told.load(std::sync::atomic::Ordering::Relaxed)
        };
        if is_acked(ticket) {
            acked.push(clock.now());
        }
        clock.advance(Duration::from_millis(3));
    }
    let window = *acked.last().unwrap() - acked[0];
    assert!(window <= BOUND && window + Duration::from_millis(3) > BOUND, "{window:?}");
    assert_eq!(left(&volume), 0, "all of them would be lost");
    store.flush().unwrap();
    assert_eq!(left(&volume), 100);
    let ticket = games.append("7", "again").unwrap();
    ticket.wait().unwrap();
    assert!(!ticket.is_durable(), "it keeps up again");
}

#[test]
fn the_strictest_of_the_logs_counts_and_more_may_be_asked_for() {
    let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
    let store = store(&volume, &clock);
    store.create_space("games", deferred()).unwrap();
    store.create_space("bank", SpaceConfig::new()).unwrap();
    while store.step().unwrap() {}
    let waits = |commit: &mut Commit| {
        let ticket = store.commit(commit).unwrap();
        ticket.wait().unwrap();
        ticket.is_durable()
    };
    let later = Durability::Deferred(Duration::from_secs(9));
    assert!(!waits(Commit::new().append("games/7", "x")));
    assert!(waits(Commit::new().append("games/7", "x").append("other", "x")));
    assert!(waits(Commit::new().append("games/7", "x").append("bank/7", "x")));
    assert!(waits(Commit::new().append("games/7", "x").durability(Durability::Durable)));
    assert!(waits(Commit::new().append("bank/7", "x").durability(later)), "less is not to be had");
    assert!(!waits(Commit::new().append("other", "x").durability(later)), "of no space");
    assert!(!waits(Commit::new().append("games/7", "x").durability(later)));
    clock.advance(BOUND / 2);
    while store.step().unwrap() {}
    assert_eq!(left(&volume), 5, "within the bound of the space");
}

#[test]
fn a_space_that_moves_to_durable_is_durable_when_the_call_returns() {
    let (volume, clock) = (MemVolume::new(1), Arc::new(ManualClock::default()));
    let store = store(&volume, &clock);
    let games = store.create_space("games", deferred()).unwrap();
    for n in 1..9 {
        games.append("7", "x").unwrap().wait().unwrap();
        assert_eq!(left(&volume), n - 1);
        games.configure(SpaceConfig::new()).unwrap();
        assert_eq!(left(&volume), n);
        games.configure(deferred()).unwrap();
    }
}
