//! Pushes, loads, diffs, lists and clears.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use brooklet::io::{MemVolume, Rng};
use brooklet::{Class, Commit, ErrorKind, MemoryConfig, Options, SpaceConfig, Store};
use brooklet_yrs::{DocEvent, Documents};
use yrs::{Doc, Map, ReadTxn, StateVector, Transact};

use crate::common::{Replica, memory};

#[test]
fn documents_with_concurrent_clients_come_back() {
    let (_store, documents) = memory();
    let names = ["one", "two", "three"];
    let clients: Vec<_> = (1..=3).map(Replica::new).collect();
    for (n, name) in names.into_iter().enumerate() {
        for (client, at) in clients.iter().zip([0, 1, 2]) {
            let update = client.insert(0, &format!("{name} by client {at}; "));
            // Each document has the updates of one more client.
            if at <= n {
                documents.push_update(name, &update).unwrap();
            }
        }
    }
    let known =
        |name: &str, by: usize| Replica::load(&documents, name).string().contains(&format!("client {by}"));
    assert_eq!([known("one", 0), known("one", 1)], [true, false]);
    // The updates of client 1 build on an update that document "two" never got.
    assert!(Replica::load(&documents, "two").doc.transact().has_missing_updates() || known("two", 1));
    let listed: Vec<_> = documents.iter_docs().unwrap().map(Result::unwrap).collect();
    assert_eq!(listed, [&b"one"[..], b"three", b"two"]);
}

#[test]
fn numbers_are_those_of_the_log() {
    let (store, documents) = memory();
    let client = Replica::new(1);
    for n in 0..3 {
        assert_eq!(documents.push_update("doc", &client.insert(0, "a")).unwrap(), n);
    }
    let loaded = Doc::new();
    assert_eq!(documents.load_doc("doc", &mut loaded.transact_mut()).unwrap(), Some(3));
    assert_eq!(documents.load_doc("none", &mut loaded.transact_mut()).unwrap(), None);
    let ticket = documents.submit_update("doc", &client.insert(0, "b")).unwrap();
    assert_eq!(ticket.seq(), 3);
    ticket.wait().unwrap();
    assert_eq!(documents.insert_doc("doc", &client.doc.transact()).unwrap(), 4);
    assert_eq!(store.bounds("docs/ddoc").unwrap().len(), 5);
    assert_eq!(Replica::load(&documents, "doc").string(), "baaa");
}

#[test]
fn a_store_that_is_opened_again_has_all_documents() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("documents.brooklet");
    let open = || {
        let store = Options::new().ring_size(1 << 20).max_payload(1 << 16).open(&path).unwrap();
        let documents = Documents::new(&store, "docs/");
        (store, documents)
    };
    let client = Replica::new(7);
    for round in 0..6 {
        let (store, documents) = open();
        if round > 0 {
            assert_eq!(Replica::load(&documents, "doc").string(), client.string());
        }
        for _ in 0..20 {
            documents.push_update("doc", &client.insert(0, "word ")).unwrap();
        }
        if round % 2 == 1 {
            documents.flush_doc("doc").unwrap();
        }
        // A kill, or a close.
        if round % 3 == 0 { store.abandon() } else { store.close().unwrap() }
    }
    let (_store, documents) = open();
    assert_eq!(Replica::load(&documents, "doc").string(), client.string());
}

#[test]
fn a_diff_brings_an_old_replica_up_to_date() {
    let (_store, documents) = memory();
    let (client, old) = (Replica::new(1), Replica::new(2));
    let mut known = StateVector::default();
    for n in 0..30 {
        let update = if n % 5 == 4 { client.remove(2, 3) } else { client.insert(n % 3, "word ") };
        documents.push_update("doc", &update).unwrap();
        if n == 11 {
            old.apply(&documents.get_diff("doc", &known).unwrap().unwrap());
            known = old.doc.transact().state_vector();
        }
        if n % 10 == 7 {
            documents.flush_doc("doc").unwrap();
        }
    }
    let all = documents.get_diff("doc", &StateVector::default()).unwrap().unwrap();
    let diff = documents.get_diff("doc", &known).unwrap().unwrap();
    assert!(diff.len() < all.len());
    old.apply(&diff);
    assert_eq!(old.string(), client.string());
    let vector = client.doc.transact().state_vector();
    assert_eq!(documents.get_state_vector("doc").unwrap(), Some(vector));
    assert!(documents.get_diff("none", &known).unwrap().is_none());
    assert!(documents.get_state_vector("none").unwrap().is_none());
}

#[test]
fn inserting_a_document_merges() {
    let (_store, documents) = memory();
    let (one, two) = (Replica::new(1), Replica::new(2));
    one.insert(0, "one");
    two.insert(0, "two");
    documents.insert_doc("doc", &one.doc.transact()).unwrap();
    documents.insert_doc("doc", &two.doc.transact()).unwrap();
    let text = Replica::load(&documents, "doc").string();
    assert!(text == "onetwo" || text == "twoone", "{text}");
}

#[test]
fn a_cleared_document_is_gone() {
    let (_store, documents) = memory();
    let client = Replica::new(1);
    for name in ["a", "ab"] {
        documents.push_update(name, &client.insert(0, "x")).unwrap();
        documents.insert_meta(name, "k", b"v").unwrap();
        documents.insert_meta(name, "l", b"w").unwrap();
    }
    documents.clear_doc("a").unwrap();
    documents.clear_doc("none").unwrap();
    assert!(documents.flush_doc("a").unwrap().is_none());
    assert_eq!(documents.iter_meta("a").unwrap().count(), 0);
    assert_eq!(documents.iter_meta("ab").unwrap().count(), 2);
    let listed: Vec<_> = documents.iter_docs().unwrap().map(Result::unwrap).collect();
    assert_eq!(listed, [b"ab"]);
    // The numbers of the new document are behind those of the old one.
    let next = documents.push_update("a", &client.insert(0, "y")).unwrap();
    assert!(next > 0 && next.is_multiple_of(1 << 24), "{next}");
    assert_eq!(documents.push_update("a", &client.insert(0, "z")).unwrap(), next + 1);
}

/// In an earlier state, a clear added entries before it deleted, and a full store refused it.
#[test]
fn a_full_store_takes_clears() {
    let options = Options::new().ring_size(256 << 10).memory_budget(256 << 10).max_payload(32 << 10);
    let store = options.capacity(3 << 20).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let documents = Documents::new(&store, "docs/");
    let client = Replica::new(1);
    let fill = |name: &str| {
        documents.push_update(name, &client.insert(0, "x")).unwrap();
        documents.insert_meta(name, "k", b"v").unwrap();
    };
    // The clears of one of the two are counted already.
    fill("a");
    documents.clear_doc("a").unwrap();
    fill("a");
    fill("b");
    let mut rng = Rng::new(3);
    let mut noise = || (0..8 << 10).map(|_| rng.next() as u8).collect::<Vec<_>>();
    while store.append("log", noise()).is_ok() {}
    let refused = (0..20_000).find_map(|n| store.begin_at(format!("new/{n:05}"), 5).err());
    assert_eq!(refused.map(|error| error.kind()), Some(ErrorKind::Full));
    documents.clear_doc("none").unwrap();
    for name in ["a", "b"] {
        let mut updates = documents.updates(name, 0).unwrap();
        documents.clear_doc(name).unwrap();
        assert_eq!(documents.get_meta(name, "k").unwrap(), None);
        assert_eq!(updates.try_next().unwrap(), Some(DocEvent::Cleared));
    }
    assert_eq!(documents.iter_docs().unwrap().count(), 0);
}

/// In an earlier state, such a document could not be cleared.
#[test]
fn a_clear_takes_more_values_than_one_commit() {
    let options = Options::new().ring_size(256 << 10).memory_budget(256 << 10).max_payload(32 << 10);
    let store = options.capacity(64 << 20).create_on(Arc::new(MemVolume::new(1))).unwrap();
    let documents = Documents::new(&store, "docs/");
    documents.push_update("a", &Replica::new(1).insert(0, "x")).unwrap();
    for n in 0..600 {
        documents.insert_meta("a", format!("{n:0900}"), b"v").unwrap();
    }
    let mut all = Commit::new();
    for log in store.scan("docs/m").unwrap() {
        all.delete(log.unwrap().key);
    }
    assert!(matches!(store.commit(&all), Err(brooklet::Error::CommitTooLarge { .. })));
    documents.clear_doc("a").unwrap();
    assert_eq!(documents.iter_meta("a").unwrap().count(), 0);
    assert_eq!(documents.iter_docs().unwrap().count(), 0);
}

#[test]
fn names_do_not_collide() {
    let (store, documents) = memory();
    let others = Documents::new(&store, "others/");
    let long = "n".repeat(1018);
    let names = ["", "\0", "\0\0", "a", "a\0", "a\0b", "aa", "c", "d", "m", "m\0\u{1}a", "docs/", "ä", &long];
    for (n, name) in names.into_iter().enumerate() {
        let client = Replica::new(1 + n as u64);
        documents.push_update(name, &client.insert(0, &format!("{n}"))).unwrap();
    }
    others.push_update("a", &Replica::new(50).insert(0, "other")).unwrap();
    // Names and keys with the same bytes together.
    for (name, key) in [("", "ab"), ("a", "b"), ("ab", ""), ("\0", "\0a"), ("\0\0", "a")] {
        documents.insert_meta(name, key, format!("{name}|{key}").as_bytes()).unwrap();
    }
    for (n, name) in names.into_iter().enumerate() {
        assert_eq!(Replica::load(&documents, name).string(), format!("{n}"), "{name:?}");
        documents.flush_doc(name).unwrap();
    }
    for (name, key) in [("", "ab"), ("a", "b"), ("ab", ""), ("\0", "\0a"), ("\0\0", "a")] {
        let all: Vec<_> = documents.iter_meta(name).unwrap().map(Result::unwrap).collect();
        assert_eq!(all, [(key.as_bytes().to_vec(), format!("{name}|{key}").into())]);
    }
    let listed: Vec<_> = documents.iter_docs().unwrap().map(Result::unwrap).collect();
    let mut sorted: Vec<_> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    sorted.sort();
    assert_eq!(listed, sorted);
    documents.clear_doc("").unwrap();
    assert_eq!(documents.iter_docs().unwrap().count(), names.len() - 1);
    assert_eq!(Replica::load(&others, "a").string(), "other");
}

#[test]
fn documents_may_be_in_a_space() {
    let store = Store::in_memory(1).unwrap();
    let memory = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
    for config in [SpaceConfig::new().max_logs(3), memory] {
        let space = store.create_space(&format!("s{}", store.spaces().len()), config).unwrap();
        let documents = Documents::new(&store, space.key("")).flush_every(2);
        let client = Replica::new(1);
        for _ in 0..5 {
            documents.push_update("doc", &client.insert(0, "word ")).unwrap();
        }
        documents.insert_meta("doc", "k", b"v").unwrap();
        assert_eq!(Replica::load(&documents, "doc").string(), client.string());
        documents.clear_doc("doc").unwrap();
        assert_eq!(documents.iter_docs().unwrap().count(), 0);
    }
}

#[test]
fn a_document_holds_all_types() {
    let (_store, documents) = memory();
    let doc = Doc::with_client_id(3);
    let map = doc.get_or_insert_map("map");
    for n in 0..10 {
        let mut txn = doc.transact_mut();
        map.insert(&mut txn, format!("key {}", n % 4), n);
        documents.push_update("doc", &txn.encode_update_v1()).unwrap();
    }
    let merged = documents.flush_doc("doc").unwrap().unwrap();
    let map = merged.get_or_insert_map("map");
    let value: i64 = map.get(&merged.transact(), "key 1").unwrap().cast().unwrap();
    assert_eq!(value, 9);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut context, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_task_awaits_its_push() {
    let (_store, documents) = memory();
    let client = Replica::new(1);
    let mut updates = documents.updates("doc", 0).unwrap();
    let pushing = documents.push_update_async("doc", &client.insert(0, "a"));
    assert_eq!(block_on(pushing).unwrap(), 0);
    assert!(block_on(updates.next_async()).is_ok());
    assert!(block_on(documents.push_update_async("doc", b"junk")).is_err());
    assert_eq!(Replica::load(&documents, "doc").string(), "a");
}
