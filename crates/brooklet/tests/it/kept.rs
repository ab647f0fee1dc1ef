//! What a user keeps of a store: tickets, iterators, views and payloads, after it was closed.

use std::sync::Arc;

use brooklet::io::{MemVolume, Rng};
use brooklet::{Error, Options};

use crate::common::small;

fn options() -> Options {
    Options::new().ring_size(2 << 20).max_payload(64 << 10).cache_budget(256 << 10)
}

pub fn a_closed_store_keeps_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = options().open(&path).unwrap();
    let mut noise = Rng::new(1);
    for _ in 0..40 {
        store.append("log", small::noise(&mut noise, 60_000)).unwrap().wait().unwrap();
    }
    store.checkpoint().unwrap();
    let ticket = store.append("other", "entry").unwrap();
    ticket.wait().unwrap();
    let view = store.view().unwrap();
    let (recent, mut old) = (store.read("other", ..).unwrap(), store.read("log", ..).unwrap());
    let first = old.next().unwrap().unwrap();
    store.close().unwrap();
    assert_eq!(store.read("log", ..).unwrap().count(), 40, "a handle reads on");
    drop(store);
    // The file is another's from here on.
    let again = options().open(&path).unwrap();
    assert_eq!(again.bounds("log").unwrap().next, 40);
    ticket.wait().unwrap();
    assert!(ticket.is_durable());
    assert_eq!((first.seq, recent.count()), (0, 1), "what is in memory is given all the same");
    let rest: Vec<_> = old.collect();
    assert!(matches!(rest.last(), Some(Err(Error::Closed))), "{:?}", rest.last());
    assert!(rest.len() < 39);
    let seen = view.read("log", ..).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    assert!(matches!(seen, Err(Error::Closed)), "{seen:?}");
}

#[test]
fn whatever_is_kept_a_closed_store_can_be_opened_again() {
    a_closed_store_keeps_no_file();
}

/// A store that was not closed is read to the end by who began to.
#[test]
fn an_iterator_outlives_the_handle_that_made_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = options().open(&path).unwrap();
    for n in 0..40_u8 {
        drop(store.append("log", [n; 60_000]).unwrap());
    }
    store.checkpoint().unwrap();
    let entries = store.read("log", ..).unwrap();
    drop(store);
    assert_eq!(entries.map(|entry| entry.unwrap().payload[0]).collect::<Vec<_>>(), Vec::from_iter(0..40));
    options().open(&path).unwrap();
}

pub fn a_small_payload_has_memory_of_its_own() {
    let store = options().threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let tickets = [store.append("log", "small"), store.append("log", [7; 20_000])];
    tickets.into_iter().for_each(|ticket| ticket.unwrap().wait().unwrap());
    let alone = || {
        let entries = store.read("log", ..).unwrap().map(|entry| entry.unwrap().payload.is_unique());
        entries.collect::<Vec<_>>()
    };
    assert_eq!(alone(), [true, false], "what is long is shared with the block it came in");
    store.checkpoint().unwrap();
    assert!(alone()[0]);
    let walked = store.view().unwrap().walk("").unwrap().filter_map(|walked| match walked.unwrap() {
        brooklet::WalkItem::Log(_) => None,
        brooklet::WalkItem::Entry(entry) => Some(entry.payload.is_unique()),
    });
    assert!(walked.take(1).all(|alone| alone));
}

#[test]
fn whoever_keeps_a_small_payload_keeps_no_block() {
    a_small_payload_has_memory_of_its_own();
}
