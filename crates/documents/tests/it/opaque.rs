//! Opaque bytes: updates of yrs, folded by yrs.

use brooklet_documents::{Bytes, Documents, ErrorKind, Opaque};
use yrs::updates::decoder::Decode;
use yrs::{Doc, GetString, ReadTxn, StateVector, Text, Transact, Update};

use crate::common::{World, options};

fn merged(updates: &[&[u8]]) -> Result<Vec<u8>, String> {
    yrs::merge_updates_v1(updates.iter().copied()).map_err(|error| error.to_string())
}

/// Returns the model: a state is one merged update.
fn model() -> Opaque {
    let fold = |state: &[u8], updates: &[Bytes]| {
        let states = Some(state).filter(|state| !state.is_empty());
        merged(&states.into_iter().chain(updates.iter().map(|update| &update[..])).collect::<Vec<_>>())
    };
    let check = |update: &[u8]| Update::decode_v1(update).map(drop).map_err(|error| error.to_string());
    let merge = |updates: &[Bytes]| merged(&updates.iter().map(|update| &update[..]).collect::<Vec<_>>());
    Opaque::new("yrs", 1, fold).check(check).merge(merge)
}

fn text_of(update: &[u8]) -> String {
    let doc = Doc::new();
    let text = doc.get_or_insert_text("text");
    doc.transact_mut().apply_update(Update::decode_v1(update).unwrap()).unwrap();
    let txn = doc.transact();
    text.get_string(&txn)
}

#[test]
fn updates_of_yrs_are_folded_into_snapshots() {
    let mut world = World::new(options());
    let open = |world: &World| {
        Documents::open(&world.store, model(), options().snapshot_updates(20).history(25)).unwrap()
    };
    let mut documents = open(&world);
    documents.create("doc", "c", &Opaque::state(Bytes::new())).unwrap();
    let doc = Doc::with_client_id(1);
    let text = doc.get_or_insert_text("text");
    let mut texts = vec![String::new()];
    for version in 1..100_u64 {
        let mut txn = doc.transact_mut();
        let len = text.len(&txn);
        match version % 3 {
            0 if len > 0 => text.remove_range(&mut txn, len / 2, 1),
            _ => text.insert(&mut txn, len / 2, &format!("{version} ")),
        }
        let update = Bytes::from(txn.encode_update_v1());
        drop(txn);
        documents.patch("doc", version, format!("{version}"), &update).unwrap();
        texts.push(text.get_string(&doc.transact()));
        documents.maintain();
        if version % 30 == 0 {
            world.kill();
            documents = open(&world);
            assert!(documents.patch("doc", version, format!("{version}"), &update).unwrap().repeated);
        }
    }
    let found = documents.get("doc").unwrap().unwrap();
    assert_eq!(found.version, 100);
    assert!(found.state.changes().len() <= 20);
    assert_eq!(text_of(&documents.model().fold(&found.state).unwrap()), texts[99]);
    // Without undo, earlier versions are reached from a snapshot before them.
    let bounds = world.store.bounds("docs/ddoc").unwrap();
    assert!(bounds.first > 0 && bounds.len() <= 25 + 2 * 21, "{bounds:?}");
    for version in 75..=100 {
        let state = documents.at("doc", version).unwrap().state;
        assert_eq!(
            text_of(&documents.model().fold(&state).unwrap()),
            texts[version as usize - 1],
            "{version}"
        );
    }
    // A replica at version 90 gets one update that brings it up to date.
    let merged = documents.changes("doc", 90).unwrap().merged.unwrap();
    let replica = Doc::new();
    let at = documents.at("doc", 90).unwrap().state;
    let replica_text = replica.get_or_insert_text("text");
    for update in [documents.model().fold(&at).unwrap(), merged.to_vec()] {
        replica.transact_mut().apply_update(Update::decode_v1(&update).unwrap()).unwrap();
    }
    let txn = replica.transact();
    assert_eq!(replica_text.get_string(&txn), texts[99]);
    assert_eq!(txn.state_vector(), doc.transact().state_vector());
    assert_ne!(txn.state_vector(), StateVector::default());

    assert_eq!(
        documents.patch("doc", 100, "x", &Bytes::from_static(b"no update")).unwrap_err().kind(),
        ErrorKind::Refused
    );
    assert_eq!(documents.rewind("doc", 100, "x", 99).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_snapshot_leaves_documents_as_they_were_in_memory() {
    let world = World::new(options());
    let documents = Documents::open(&world.store, model(), options()).unwrap();
    documents.create("doc", "c", &Opaque::state(Bytes::new())).unwrap();
    let doc = Doc::with_client_id(1);
    let text = doc.get_or_insert_text("text");
    let mut patch = |version: u64| {
        let mut txn = doc.transact_mut();
        text.push(&mut txn, "a");
        let update = Bytes::from(txn.encode_update_v1());
        documents.patch("doc", version, format!("{version}"), &update).unwrap();
    };
    (1..10).for_each(&mut patch);
    documents.snapshot("doc", 0).unwrap();
    assert_eq!(documents.cache().states, 0);
    assert!(documents.get("doc").unwrap().unwrap().state.changes().is_empty());
    patch(10);
    assert_eq!(documents.get("doc").unwrap().unwrap().state.changes().len(), 1);
    documents.snapshot("doc", 0).unwrap();
    assert_eq!(documents.cache().states, 1);
    let found = documents.get("doc").unwrap().unwrap();
    assert!(found.state.changes().is_empty());
    assert_eq!(text_of(found.state.base()), "a".repeat(10));
}
