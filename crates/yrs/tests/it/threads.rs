//! Many threads on one document.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use brooklet_yrs::{DocEvent, Documents};
use yrs::{Text, Transact};

use crate::common::{Replica, memory};

const THREADS: u64 = 8;
const PUSHES: u64 = 60;

/// Edits the document by one client, and returns its updates.
fn edit(documents: &Documents, client: u64) -> Vec<Vec<u8>> {
    let replica = Replica::new(client);
    let mut updates = Vec::new();
    for n in 0..PUSHES {
        let at = (n * 7 + client) as u32 % (1 + replica.text.len(&replica.doc.transact()));
        updates.push(match n % 5 {
            4 => replica.remove(at.saturating_sub(3), 2),
            _ => replica.insert(at, &format!("{client}.{n} ")),
        });
        documents.push_update("doc", updates.last().unwrap()).unwrap();
    }
    updates
}

/// Lets threads push, and `beside` run as long as they do. Returns the merge of all updates.
fn push_beside(documents: &Documents, beside: impl Fn() + Sync) -> Replica {
    let all = Replica::new(100);
    let left = AtomicU64::new(THREADS);
    thread::scope(|scope| {
        let edits: Vec<_> = (1..=THREADS)
            .map(|client| {
                let left = &left;
                scope.spawn(move || {
                    let updates = edit(documents, client);
                    left.fetch_sub(1, Ordering::Relaxed);
                    updates
                })
            })
            .collect();
        while left.load(Ordering::Relaxed) > 0 {
            beside();
        }
        for updates in edits {
            updates.join().unwrap().iter().for_each(|update| all.apply(update));
        }
    });
    all
}

#[test]
fn updates_of_eight_threads_are_all_there() {
    let (store, documents) = memory();
    let all = push_beside(&documents, thread::yield_now);
    assert_eq!(store.bounds("docs/ddoc").unwrap().next, THREADS * PUSHES);
    assert_eq!(Replica::load(&documents, "doc").string(), all.string());
}

#[test]
fn flushes_beside_pushes_lose_nothing() {
    let (store, documents) = memory();
    let mut updates = documents.updates("doc", 0).unwrap();
    let all = push_beside(&documents, || {
        thread::scope(|scope| {
            // Two at once.
            scope.spawn(|| documents.flush_doc("doc").unwrap());
            documents.flush_doc("doc").unwrap();
        });
    });
    assert_eq!(Replica::load(&documents, "doc").string(), all.string());
    documents.flush_doc("doc").unwrap();
    assert_eq!(store.bounds("docs/ddoc").unwrap().len(), 1);
    assert_eq!(Replica::load(&documents, "doc").string(), all.string());
    // A follower has all of it, whatever it missed.
    let follower = Replica::new(101);
    while let Some(event) = updates.try_next().unwrap() {
        match event {
            DocEvent::Update { update, .. } => follower.apply(&update),
            DocEvent::State { state, .. } => follower.apply(&state),
            DocEvent::Missed(_) => {}
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(follower.string(), all.string());
}

#[test]
fn pushes_that_flush_lose_nothing() {
    let (store, _) = memory();
    let documents = Documents::new(&store, "docs/").flush_every(7);
    let all = push_beside(&documents, thread::yield_now);
    assert_eq!(Replica::load(&documents, "doc").string(), all.string());
    assert!(store.bounds("docs/ddoc").unwrap().len() < THREADS * PUSHES / 4);
}

/// A flush that began before a clear brings nothing back.
#[test]
fn flushes_beside_clears_bring_nothing_back() {
    let (_store, documents) = memory();
    let old = Replica::new(1);
    old.text.push(&mut old.doc.transact_mut(), "old");
    for round in 0..60 {
        for _ in 0..4 {
            documents.push_update("doc", &old.insert(0, "old ")).unwrap();
        }
        let new = Replica::new(2 + round);
        thread::scope(|scope| {
            scope.spawn(|| documents.flush_doc("doc").unwrap());
            documents.clear_doc("doc").unwrap();
            // As many updates as the flush may have read.
            for _ in 0..4 {
                documents.push_update("doc", &new.insert(0, "new ")).unwrap();
            }
        });
        assert_eq!(Replica::load(&documents, "doc").string(), new.string());
        documents.clear_doc("doc").unwrap();
    }
}
