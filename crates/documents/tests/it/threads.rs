//! Many threads on the same documents.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use brooklet::Store;
use brooklet_documents::{Documents, Error, Json, JsonChange, Options};
use serde_json::json;

use crate::common::state;

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
