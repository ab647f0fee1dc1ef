//! Followers of documents.

use std::time::Duration;

use brooklet_yrs::DocEvent;
use yrs::Transact;

use crate::common::{Replica, memory};

#[test]
fn a_follower_sees_updates_flushes_and_clears() {
    let (store, documents) = memory();
    let client = Replica::new(1);
    let mut early = documents.updates("doc", 0).unwrap();
    assert_eq!(early.try_next().unwrap(), None);
    let updates: Vec<_> = (0..4).map(|_| client.insert(0, "a")).collect();
    for (seq, update) in (0..).zip(&updates) {
        documents.push_update("doc", update).unwrap();
        let event = early.try_next().unwrap();
        assert_eq!(event, Some(DocEvent::Update { seq, update: update.clone().into() }));
    }
    let mut late = documents.updates("doc", 1).unwrap();
    documents.flush_doc("doc").unwrap();
    documents.push_update("doc", &client.insert(0, "b")).unwrap();

    assert!(matches!(early.try_next().unwrap(), Some(DocEvent::State { seq: 4, .. })));
    assert!(matches!(early.try_next().unwrap(), Some(DocEvent::Update { seq: 5, .. })));
    assert_eq!(early.next_timeout(Duration::from_millis(1)).unwrap(), None);
    assert_eq!(early.position(), 6);

    // The state has all that the late one missed.
    assert_eq!(late.try_next().unwrap(), Some(DocEvent::Missed(1..4)));
    let replica = Replica::new(2);
    while let Some(event) = late.try_next().unwrap() {
        match event {
            DocEvent::Update { update, .. } => replica.apply(&update),
            DocEvent::State { state, .. } => replica.apply(&state),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(replica.string(), client.string());

    documents.clear_doc("doc").unwrap();
    documents.push_update("doc", &updates[0]).unwrap();
    assert_eq!(early.try_next().unwrap(), Some(DocEvent::Cleared));
    // The first number after one clear.
    let event = early.try_next().unwrap();
    assert!(matches!(event, Some(DocEvent::Update { seq, .. }) if seq == 1 << 24), "{event:?}");
    // A number behind the end.
    assert_eq!(documents.updates("doc", 9).unwrap().try_next().unwrap(), Some(DocEvent::Cleared));

    store.close().unwrap();
    assert!(early.next().is_some_and(|event| event.is_err()));
    assert!(early.next().is_none());
}

#[test]
fn a_follower_of_a_flushed_document_may_start_at_0() {
    let (_store, documents) = memory();
    let client = Replica::new(1);
    for _ in 0..3 {
        documents.push_update("doc", &client.insert(0, "a")).unwrap();
    }
    documents.flush_doc("doc").unwrap();
    let events: Vec<_> = documents.updates("doc", 0).unwrap().take(2).map(Result::unwrap).collect();
    assert!(matches!(&events[..], [DocEvent::Missed(_), DocEvent::State { seq: 3, .. }]), "{events:?}");
}

/// In an earlier state, numbers began again at 0 behind a clear: the updates of the new document
/// were the next ones for a follower from a number of the old document.
#[test]
fn a_follower_from_a_number_of_before_a_clear_sees_the_clear() {
    let (_store, documents) = memory();
    let old = Replica::new(1);
    for _ in 0..3 {
        documents.push_update("doc", &old.insert(0, "old ")).unwrap();
    }
    let from = documents.load_doc("doc", &mut Replica::new(2).doc.transact_mut()).unwrap().unwrap();
    for round in 0..2 {
        let new = Replica::new(3 + round);
        documents.clear_doc("doc").unwrap();
        assert_eq!(documents.updates("doc", from).unwrap().try_next().unwrap(), Some(DocEvent::Cleared));
        // As many updates as before the clear, and one more.
        let pushed: Vec<_> = (0..4).map(|_| new.insert(0, "new ")).collect();
        for update in &pushed {
            documents.push_update("doc", update).unwrap();
        }
        let mut updates = documents.updates("doc", from).unwrap();
        assert_eq!(updates.try_next().unwrap(), Some(DocEvent::Cleared), "round {round}");
        for pushed in &pushed {
            match updates.try_next().unwrap() {
                Some(DocEvent::Update { update, .. }) => assert_eq!(update, &pushed[..]),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(updates.try_next().unwrap(), None);
        // One that begins at 0 knows no document, and so misses nothing.
        let mut all = documents.updates("doc", 0).unwrap();
        assert!(matches!(all.try_next().unwrap(), Some(DocEvent::Update { .. })));
        documents.flush_doc("doc").unwrap();
        let mut late = documents.updates("doc", 0).unwrap();
        let missed = late.try_next().unwrap();
        assert!(matches!(&missed, Some(DocEvent::Missed(gap)) if gap.end == gap.start + 4), "{missed:?}");
        assert!(matches!(late.try_next().unwrap(), Some(DocEvent::State { .. })));
    }
}

/// JavaScript represents whole numbers below 2^53. In an earlier state, numbers were above it after
/// two million clears of a part of the documents.
#[test]
fn numbers_stay_small_after_many_clears() {
    let (store, documents) = memory();
    documents.clear_doc("doc").unwrap();
    let count = store.scan("docs/c").unwrap().next().unwrap().unwrap().key;
    store.begin_at(&count, (1 << 29) - 2).unwrap().wait().unwrap();
    documents.clear_doc("doc").unwrap();
    let seq = documents.push_update("doc", &Replica::new(1).insert(0, "a")).unwrap();
    assert!(seq > 1 << 52 && seq < 1 << 53, "{seq}");
}

/// An earlier version began each document at the count of clears times 2^32.
#[test]
fn no_document_begins_at_the_number_of_an_earlier_version() {
    let (store, documents) = memory();
    documents.clear_doc("doc").unwrap();
    let count = store.scan("docs/c").unwrap().next().unwrap().unwrap().key;
    store.begin_at(&count, 255).unwrap().wait().unwrap();
    documents.clear_doc("doc").unwrap();
    for clears in 257..260 {
        let seq = documents.push_update("doc", &Replica::new(1).insert(0, "a")).unwrap();
        assert_eq!(seq, clears << 24);
        documents.clear_doc("doc").unwrap();
    }
}

/// A document may have more updates than there are numbers between two clears, and documents of
/// earlier versions have larger numbers.
#[test]
fn a_clear_passes_the_numbers_of_its_document() {
    let (store, documents) = memory();
    for (name, number) in [("large", (3 << 24) - 2), ("old", 7 << 32)] {
        let key = format!("docs/d{name}");
        store.begin_at(&key, number).unwrap().wait().unwrap();
        let client = Replica::new(1);
        for _ in 0..4 {
            documents.push_update(name, &client.insert(0, "a")).unwrap();
        }
        let from = documents.load_doc(name, &mut Replica::new(2).doc.transact_mut()).unwrap().unwrap();
        assert_eq!(from, number + 4);
        documents.clear_doc(name).unwrap();
        let first = documents.push_update(name, &client.insert(0, "a")).unwrap();
        assert!(first > from, "{name}: {first} after {from}");
        let event = documents.updates(name, from).unwrap().try_next().unwrap();
        assert_eq!(event, Some(DocEvent::Cleared), "{name}");
    }
}
