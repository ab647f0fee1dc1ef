//! Many threads on the same documents.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;

use brooklet::Store;
use brooklet_documents::{Documents, Error, Json, JsonChange, Options, Request};
use serde_json::json;

use crate::common::{set, state};

const THREADS: u64 = 6;
const STEPS: u64 = 60;

/// Each thread appends its numbers to one list, and tries again after a conflict. A small cache and
/// frequent snapshots make documents leave the memory meanwhile.
#[test]
fn concurrent_clients_apply_each_request_once() {
    let store = Store::in_memory(1).unwrap();
    let options = Options::new("docs/").snapshot_updates(5).history(3).cache_budget(6_000).remember(1_000);
    let documents = Documents::open(&store, Json::new(), options).unwrap();
    for name in ["a", "b", "c"] {
        documents.create(name, "c", &state(json!([]))).unwrap();
    }
    // At first, all know the same versions, and two have the same document.
    let (conflicts, ready) = (AtomicU64::new(0), Barrier::new(THREADS as usize));
    thread::scope(|scope| {
        for client in 0..THREADS {
            let (documents, conflicts, ready) = (&documents, &conflicts, &ready);
            scope.spawn(move || {
                for step in 0..STEPS {
                    let name = ["a", "b", "c"][(client + step) as usize % 3];
                    let change = [json!({"op": "add", "path": "/-", "value": client * STEPS + step})];
                    let change = JsonChange::parse_patch(&serde_json::to_vec(&change).unwrap()).unwrap();
                    let request = format!("{client} {step}");
                    let mut expected = documents.get(name).unwrap().unwrap().version;
                    if step == 0 {
                        ready.wait();
                    }
                    let made = loop {
                        match documents.patch(name, expected, request.as_str(), &change) {
                            Ok(answer) => break answer.version,
                            Err(Error::Conflict { head, .. }) => {
                                assert!(head > expected, "the head only grows");
                                conflicts.fetch_add(1, Ordering::Relaxed);
                                expected = head;
                            }
                            Err(error) => panic!("{error}"),
                        }
                    };
                    // What was acknowledged is seen, and the request happens once.
                    assert!(documents.get(name).unwrap().unwrap().version >= made);
                    let again = documents.patch(name, expected, request.as_str(), &change).unwrap();
                    assert_eq!((again.version, again.repeated), (made, true));
                }
            });
        }
    });
    let mut all = Vec::new();
    let mut versions = 0;
    for name in ["a", "b", "c"] {
        let found = documents.get(name).unwrap().unwrap();
        let list: Vec<u64> = found.state.as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
        assert_eq!(found.version, 1 + list.len() as u64);
        versions += list.len() as u64;
        all.extend(list);
    }
    all.sort_unstable();
    assert_eq!(all, (0..THREADS * STEPS).collect::<Vec<_>>());
    assert_eq!(versions, THREADS * STEPS);
    assert!(conflicts.load(Ordering::Relaxed) > 0, "the threads met");
}

/// Threads move coins between two accounts, each by one atomic patch, while others look.
#[test]
fn atomic_patches_in_opposite_orders_do_not_lock_one_another_out() {
    let store = Store::in_memory(1).unwrap();
    let accounts =
        Documents::open(&store, Json::new(), Options::new("accounts/").snapshot_updates(9)).unwrap();
    for name in ["a", "b"] {
        accounts.create(name, "c", &state(json!({"coins": 100}))).unwrap();
    }
    thread::scope(|scope| {
        for client in 0..4_u64 {
            let accounts = &accounts;
            scope.spawn(move || {
                let names = if client % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                let mut step = 0;
                while step < 30 {
                    let found = names.map(|name| accounts.get(name).unwrap().unwrap());
                    let coins = [0, 1].map(|i| found[i].state["coins"].as_i64().unwrap());
                    let change =
                        [0, 1].map(|i| JsonChange::merge(json!({"coins": coins[i] + 2 * i as i64 - 1})));
                    let patches = [0, 1].map(|i| (names[i], found[i].version, &change[i]));
                    match accounts.patch_many(format!("{client} {step}"), &patches) {
                        Ok(_) => step += 1,
                        Err(Error::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let coins = |name: &str| accounts.get(name).unwrap().unwrap().state["coins"].as_i64().unwrap();
    assert_eq!((coins("a"), coins("b")), (100, 100));
    assert_eq!(accounts.version("a").unwrap(), Some(121));
}

/// A task that patches a document, and looks at it, on the thread that wakes it.
struct Patcher {
    documents: Documents<Json>,
    version: u64,
    is_refused: mpsc::Sender<bool>,
}

impl Wake for Patcher {
    fn wake(self: Arc<Self>) {
        let change = set(self.version + 1);
        let made = self.documents.patch("a", self.version, Request::anonymous(), &change);
        _ = self.documents.version("a");
        _ = self.is_refused.send(made.is_err());
    }
}

/// The thread of the store refuses to wait for itself. In an earlier state, a refused wait forgot
/// the write, which went on: the document was at its old version for ever.
#[test]
fn a_wait_that_is_refused_forgets_no_write() {
    let store = Store::in_memory(1).unwrap();
    let documents = Documents::open(&store, Json::new(), Options::new("docs/").background(false)).unwrap();
    let mut version = documents.create("a", "c", &state(json!({"n": 1}))).unwrap().version;
    for _ in 0..1000 {
        let submitted = documents.submit("a", version, Request::anonymous(), &set(version + 1)).unwrap();
        let mut ticket = submitted.ticket().unwrap().clone();
        version += 1;
        let (is_refused, refusals) = mpsc::channel();
        let waker = Waker::from(Arc::new(Patcher { documents: documents.clone(), version, is_refused }));
        if Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_ready() {
            continue;
        }
        let is_refused = refusals.recv().unwrap();
        version += 1;
        store.flush().unwrap();
        assert_eq!(documents.version("a").unwrap(), Some(version));
        if is_refused {
            return;
        }
    }
    panic!("no task was woken by the thread of the store");
}
