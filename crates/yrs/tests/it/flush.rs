//! Flushes: nothing is lost, and logs stay short.

use brooklet_yrs::Documents;
use yrs::{Options, ReadTxn, StateVector, Text, Transact};

use crate::common::{Replica, memory};

#[test]
fn a_flush_leaves_one_entry_with_the_same_content() {
    let (store, documents) = memory();
    let client = Replica::new(1);
    for n in 0..40 {
        let update = if n % 4 == 3 { client.remove(n / 4, 2) } else { client.insert(n / 4, "abc") };
        documents.push_update("doc", &update).unwrap();
    }
    let merged = documents.flush_doc("doc").unwrap().unwrap();
    assert_eq!(merged.transact().state_vector(), client.doc.transact().state_vector());
    let bounds = store.bounds("docs/ddoc").unwrap();
    assert_eq!((bounds.first, bounds.next), (40, 41));
    assert_eq!(Replica::load(&documents, "doc").string(), client.string());
    // There is nothing more to merge.
    documents.flush_doc("doc").unwrap();
    assert_eq!(store.bounds("docs/ddoc").unwrap(), bounds);
    assert!(documents.flush_doc("none").unwrap().is_none());
}

#[test]
fn deleted_content_stays_if_the_options_say_so() {
    let (store, documents) = memory();
    let mut size = [0, 0];
    for (skip_gc, size) in [true, false].into_iter().zip(&mut size) {
        let client = Replica::new(1);
        let name = format!("{skip_gc}");
        documents.push_update(&name, &client.insert(0, &"secret".repeat(100))).unwrap();
        documents.push_update(&name, &client.remove(0, 600)).unwrap();
        documents.flush_doc_with(&name, Options { skip_gc, ..Options::default() }).unwrap();
        assert_eq!(Replica::load(&documents, &name).string(), "");
        *size = store.last(format!("docs/d{name}")).unwrap().unwrap().payload.len();
    }
    assert!(size[0] > 600 && size[1] < 100, "{size:?}");
}

/// Returns the updates of two clients that build on one another.
fn chain() -> (Vec<Vec<u8>>, String) {
    let (one, two) = (Replica::new(1), Replica::new(2));
    let mut updates = vec![one.insert(0, "hello ")];
    two.apply(&updates[0]);
    updates.push(two.insert(6, "world"));
    one.apply(&updates[1]);
    updates.push(one.remove(2, 6));
    updates.push(one.insert(3, "!?"));
    two.apply(&updates[2]);
    two.apply(&updates[3]);
    updates.push(two.insert(1, "again"));
    assert!(!two.doc.transact().has_missing_updates());
    (updates, two.string())
}

#[test]
fn updates_may_come_in_any_order_with_flushes_between() {
    let (updates, text) = chain();
    let (_store, documents) = memory();
    let mut order: Vec<usize> = (0..updates.len()).collect();
    let mut orders = 0;
    permute(&mut order, 0, &mut |order| {
        for (flushed, name) in [(0, "none"), (1, "all"), (2, "some")] {
            for (n, at) in order.iter().enumerate() {
                documents.push_update(name, &updates[*at]).unwrap();
                if flushed == 1 || flushed == 2 && n % 2 == 1 {
                    documents.flush_doc(name).unwrap();
                }
            }
            let loaded = Replica::load(&documents, name);
            assert_eq!(loaded.string(), text, "{order:?}, {name}");
            assert!(!loaded.doc.transact().has_missing_updates(), "{order:?}, {name}");
            documents.clear_doc(name).unwrap();
        }
        orders += 1;
    });
    assert_eq!(orders, 120);
}

fn permute(order: &mut Vec<usize>, from: usize, see: &mut impl FnMut(&[usize])) {
    if from == order.len() {
        return see(order);
    }
    for at in from..order.len() {
        order.swap(from, at);
        permute(order, from + 1, see);
        order.swap(from, at);
    }
}

#[test]
fn updates_that_wait_survive_flushes() {
    let (store, documents) = memory();
    let client = Replica::new(1);
    let first = client.insert(0, "first ");
    for _ in 0..10 {
        documents.push_update("doc", &client.insert(0, "later ")).unwrap();
    }
    let later = client.remove(0, 3);
    documents.push_update("doc", &later).unwrap();
    let other = Replica::new(2);
    for round in 0..3 {
        let merged = documents.flush_doc("doc").unwrap().unwrap();
        assert!(merged.transact().has_missing_updates());
        let loaded = Replica::load(&documents, "doc");
        assert!(loaded.doc.transact().has_missing_updates());
        assert_eq!(loaded.string(), other.string());
        // The updates that wait, and a state if there is one.
        assert_eq!(store.bounds("docs/ddoc").unwrap().len(), 11 + u64::from(round > 0));
        // For the next flush.
        documents.push_update("doc", &other.insert(0, "x")).unwrap();
        documents.push_update("doc", &later).unwrap();
    }
    // A replica gets what does not wait.
    let replica = Replica::new(9);
    replica.apply(&documents.get_diff("doc", &StateVector::default()).unwrap().unwrap());
    assert_eq!(replica.string(), other.string());
    assert!(!replica.doc.transact().has_missing_updates());
    documents.push_update("doc", &first).unwrap();
    documents.flush_doc("doc").unwrap();
    let loaded = Replica::load(&documents, "doc");
    assert!(!loaded.doc.transact().has_missing_updates());
    let known = replica.doc.transact().state_vector();
    replica.apply(&documents.get_diff("doc", &known).unwrap().unwrap());
    assert_eq!(loaded.string(), replica.string());
    assert_eq!(loaded.string().len(), client.string().len() + other.string().len());
    assert_eq!(store.bounds("docs/ddoc").unwrap().len(), 1);
}

#[test]
fn every_nth_push_flushes() {
    let (store, _) = memory();
    let documents = Documents::new(&store, "docs/").flush_every(10);
    let client = Replica::new(1);
    for n in 0..200 {
        let text = &client.text;
        let mut txn = client.doc.transact_mut();
        text.push(&mut txn, "x");
        documents.push_update("doc", &txn.encode_update_v1()).unwrap();
        assert!(store.bounds("docs/ddoc").unwrap().len() <= 10, "push {n}");
    }
    assert_eq!(Replica::load(&documents, "doc").string(), client.string());
}

#[test]
fn a_flush_that_fails_fails_no_push() {
    let (store, _) = memory();
    let documents = Documents::new(&store, "docs/").flush_every(2);
    let client = Replica::new(1);
    // The merged state is over the limit of 512 KiB.
    for n in 0..4 {
        let update = client.insert(0, &"long ".repeat(40_000));
        assert_eq!(documents.push_update("doc", &update).unwrap(), n + u64::from(n >= 2));
    }
    assert!(documents.flush_doc("doc").is_err());
    assert_eq!(Replica::load(&documents, "doc").string(), client.string());
}

/// yrs alone may encode updates that wait for missing ones with wrong ids.
#[test]
fn a_diff_of_a_document_with_gaps_has_the_right_ids() {
    let (_store, documents) = memory();
    let client = Replica::new(3);
    let words = ["abcdef", "ghijkl", "mnopq", "rstuvw", "x", "y", "z"];
    let at = [0, 2, 2, 0, 0, 9, 4];
    let updates: Vec<_> = at.into_iter().zip(words).map(|(at, word)| client.insert(at, word)).collect();
    let replica = Replica::new(1);
    for (n, at) in [0, 2, 3, 5, 6, 1, 4].into_iter().enumerate() {
        documents.push_update("doc", &updates[at]).unwrap();
        if n % 2 == 0 {
            documents.flush_doc("doc").unwrap();
        }
        let known = replica.doc.transact().state_vector();
        replica.apply(&documents.get_diff("doc", &known).unwrap().unwrap());
    }
    assert_eq!(replica.string(), client.string());
    assert_eq!(Replica::load(&documents, "doc").string(), client.string());
}
