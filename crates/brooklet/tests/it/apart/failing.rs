//! One of the two volumes fails, and the other works on: nothing is acknowledged any more that
//! might be lost, what was acknowledged is there, now and after the next opening, and the failure
//! names its volume.

use std::io::ErrorKind;
use std::sync::Arc;

use brooklet::io::{Fault, SystemClock};
use brooklet::{Error, Options, Store};

use crate::apart::{Known, crash, open, options, script};
use crate::common::contents;
use crate::common::twin::{Twin, twins};

const DATA: usize = 0;
const RING: usize = 1;

fn made(options: Options, seed: u64) -> ([Twin; 2], Store) {
    let pair = twins([Vec::new(), Vec::new()], seed);
    let [data, ring] = pair.clone();
    let store = options.create_on_with_ring(Arc::new(data), Arc::new(ring)).unwrap();
    (pair, store)
}

/// With the store's own threads, and several blocks for a few appends.
fn threaded(seed: u64) -> Options {
    options(seed).threads(true).block_size(4 << 10).clock(Arc::new(SystemClock::new())).rng_seed(seed)
}

fn fails_after(operations: u64, kind: ErrorKind, sticky: bool) -> Fault {
    Fault::ErrorAfter { operations, kind, sticky }
}

/// What the disks show to whoever opens them again, the power having stayed on, or not.
fn reopened(pair: &[Twin; 2], seed: u64) -> impl Iterator<Item = Store> {
    let shown = pair.each_ref().map(|twin| twin.disk.image());
    let left = [shown, crash(pair), crash(pair), crash(pair)];
    left.into_iter().map(move |images| open(&twins(images, seed), seed).unwrap())
}

/// Sees a store through the failure of one of its volumes, at each of the operations on it in turn.
fn every_failure_of(failing: usize, says: &[&str]) {
    let (mut failures, mut all_done) = (0, false);
    for after in 0.. {
        for (seed, sticky) in [(0, false), (1, true), (2, false), (3, true)] {
            let (pair, store) = made(options(seed), seed);
            pair[failing].disk.fail(fails_after(after, ErrorKind::Other, sticky));
            let mut known = Known::default();
            let done = script(&store, &mut known);
            all_done = done.is_ok();
            let met = pair[failing].disk.failures();
            assert_eq!(met, u64::from(!all_done), "no failure is let pass, and none is met twice");
            if let Err(error) = done {
                let when = format!("failure {after}, {sticky}, {error}");
                failures += 1;
                assert!(matches!(error, Error::Stopped { .. }), "{when}");
                assert!(says.iter().any(|says| error.to_string().contains(says)), "{when}");
                let later = store.append("log", "x").unwrap_err();
                assert_eq!(later.to_string(), error.to_string(), "the reason stays the same");
                let stopped = store.info().unwrap().stopped.unwrap();
                assert!(says.iter().any(|says| stopped.contains(says)), "{stopped}");
                known.expect(&contents(&store).unwrap(), &format!("{when}: reads go on"));
                store.close().unwrap_err();
            }
            drop(store);
            for store in reopened(&pair, seed) {
                known.expect(&contents(&store).unwrap(), &format!("failure {after}, {sticky}, opened again"));
                store.append("more", "x").unwrap().wait().unwrap();
                store.checkpoint().unwrap();
            }
        }
        if all_done {
            break;
        }
    }
    assert!(failures > 40, "the script is too short: {failures}");
}

#[test]
fn a_ring_that_fails_stops_the_store() {
    every_failure_of(
        RING,
        &["writing the ring failed: a planned fault", "flushing the second disk failed: "],
    );
}

/// The ring alone could take more appends, but no checkpoint could ever free it again.
#[test]
fn data_that_fails_in_a_checkpoint_stops_the_store() {
    every_failure_of(
        DATA,
        &[
            "writing the first disk failed: a planned fault",
            "writing the superblock of the first disk failed: a planned fault",
            "flushing the first disk failed: a planned fault",
        ],
    );
}

/// Data that has no room is no failure: the ring takes appends as long as it has some, and the next
/// checkpoint that finds room goes through.
#[test]
fn data_without_room_holds_up_checkpoints_only() {
    let (pair, store) = made(options(5), 5);
    let append = |n: u8| store.append("log", [n; 300]).and_then(|ticket| ticket.wait());
    append(0).unwrap();
    pair[DATA].disk.fail(fails_after(0, ErrorKind::StorageFull, false));
    let full = store.checkpoint().unwrap_err();
    assert!(matches!(full, Error::Full { .. }), "{full}");
    (1..5).for_each(|n| append(n).unwrap());
    for store in reopened(&pair, 5) {
        assert_eq!(store.bounds("log").unwrap().next, 5);
    }
    store.checkpoint().unwrap();
    append(5).unwrap();
    for store in reopened(&pair, 5) {
        assert_eq!(store.read("log", ..).unwrap().flatten().count(), 6);
    }
}

/// With the store's own threads, and many appends under way when the ring fails.
#[test]
fn appends_in_flight_when_the_ring_fails_are_acknowledged_or_not() {
    let mut torn = 0;
    for after in 0..40 {
        let (pair, store) = made(threaded(after), after);
        pair[RING].disk.fail(fails_after(after % 8, ErrorKind::Other, after % 2 == 0));
        let tickets: Vec<_> = (0..60u8).map_while(|n| store.append("log", [n; 700]).ok()).collect();
        let ends: Vec<_> = tickets.iter().map(|ticket| ticket.wait()).collect();
        let acked = ends.iter().take_while(|end| end.is_ok()).count() as u64;
        assert!(
            ends[acked as usize..].iter().all(|end| matches!(end, Err(Error::Stopped { .. }))),
            "{ends:?}"
        );
        torn += u64::from(acked > 0 && acked < 60);
        store.close().unwrap_err();
        drop(store);
        for store in reopened(&pair, after) {
            let next = store.bounds("log").map_or(0, |bounds| bounds.next);
            assert!((acked..=60).contains(&next), "{acked} were acknowledged, {next} are there");
            let right = |seq: u64| store.read("log", seq..seq + 1).unwrap().next().unwrap().unwrap().payload;
            assert!((0..next).all(|seq| right(seq) == [seq as u8; 700][..]));
        }
    }
    assert!(torn > 3, "hardly any failure came in between: {torn}");
}
