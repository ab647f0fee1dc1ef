//! Followers of documents.

use std::time::Duration;

use brooklet_yrs::DocEvent;

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
    assert!(matches!(early.try_next().unwrap(), Some(DocEvent::Update { seq: 0, .. })));
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
