//! The calls of a space: it has each call of its store on logs, and each reaches its own logs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use brooklet::io::MemVolume;
use brooklet::{Bounds, Class, Commit, Durability, Error, Retention, SpaceConfig, Ticket};

use crate::spaces::create;

/// Adds the public calls that the sources below a folder implement for a type: the whole signature
/// of each, by its name.
fn add_calls(dir: &Path, of: &str, calls: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_calls(&path, of, calls);
            continue;
        }
        let source = fs::read_to_string(&path).unwrap();
        for block in source.split(&format!("\nimpl {of} {{\n")).skip(1) {
            let block = block.split("\n}\n").next().unwrap();
            for call in block.split("\n    pub fn ").skip(1) {
                let signature = call.split(" {\n").next().unwrap();
                let signature = signature.split_whitespace().collect::<Vec<_>>().join(" ");
                let name = signature.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                calls.insert(name.into(), signature);
            }
        }
    }
}

fn calls(of: &str) -> BTreeMap<String, String> {
    let mut calls = BTreeMap::new();
    add_calls(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), of, &mut calls);
    calls
}

/// Each call of a store that takes keys is a call of a space, with the same arguments.
#[test]
fn a_space_has_the_calls_of_its_store() {
    let (store, space) = (calls("Store"), calls("Space"));
    let arguments = ["key: ", "keys: ", "prefix: ", "commit: "];
    let on_logs = store.iter().filter(|(_, call)| arguments.iter().any(|argument| call.contains(argument)));
    let on_logs: Vec<_> = on_logs.collect();
    assert!(on_logs.len() > 30, "the test does not find the calls: {on_logs:?}");
    let differs = |(name, call): &&(&String, &String)| space.get(*name) != Some(*call);
    let missing: Vec<_> = on_logs.iter().filter(differs).map(|(_, call)| call).collect();
    assert!(missing.is_empty(), "spaces lack, or have with other arguments: {missing:#?}");
}

#[test]
fn calls_of_a_space_reach_its_logs() {
    let store = create(&MemVolume::new(1));
    let space = store.create_space("space", SpaceConfig::new()).unwrap();
    let mut commit = Commit::new();
    commit.expect_absent("log").append("log", "a").append("log", "b").snapshot("other", "whole");
    commit.set_retention("log", Retention::new().entries(9));
    assert_eq!(space.commit(&commit).unwrap().seqs(), [0, 1, 0]);
    assert!(matches!(space.commit(&commit), Err(Error::Conflict { .. })));
    let mut next = Commit::new();
    next.expect_next("log", 2).append("log", "c");
    space.try_commit(&next).unwrap().wait().unwrap();
    assert_eq!(store.bounds("space/log").unwrap(), Bounds { first: 0, next: 3 });
    assert_eq!(space.retention("log").unwrap().entries, Some(9));
    space.truncate("log", 2).unwrap().wait().unwrap();
    space.set_retention("log", Retention::new()).unwrap().wait().unwrap();
    assert!(!store.retention("space/log").unwrap().is_limited());
    space.keep_last("log", 1).unwrap().wait().unwrap();
    assert_eq!(space.get_bounds("log").unwrap(), Some(Bounds { first: 1, next: 2 }));
    assert_eq!(space.first("log").unwrap(), space.last("log").unwrap());
    assert_eq!(space.read_available("log", ..9).unwrap().count(), 1);
    assert_eq!(space.bounds_many(["none", "other"]).unwrap(), [None, Some(Bounds { first: 0, next: 1 })]);
    let lens: Vec<_> = space.read_many(["other", "none"]).unwrap().into_iter().map(Iterator::count).collect();
    assert_eq!(
        (lens, space.exists("none").unwrap(), space.exists("log").unwrap()),
        (vec![1, 0], false, true)
    );
}

/// The store or the space promises a durability, and the call another: the stronger one counts.
#[test]
fn a_call_with_a_durability_promises_no_less_than_the_space() {
    let store = create(&MemVolume::new(1));
    let later = Durability::Deferred(Duration::from_secs(60));
    let deferred = SpaceConfig::new().class(Class::Deferred(Duration::from_secs(60)));
    let deferred = store.create_space("deferred", deferred).unwrap();
    let durable = store.create_space("durable", SpaceConfig::new()).unwrap();
    // Acknowledged at once, and not safe; or acknowledged once it is safe.
    let check = |ticket: Ticket, at_once: bool| {
        assert_eq!((ticket.is_done(), ticket.is_durable()), (at_once, false));
        ticket.wait().unwrap();
        assert_eq!(ticket.is_durable(), !at_once);
        ticket.wait_durable().unwrap();
    };
    for (durability, at_once) in [(later, true), (Durability::Durable, false)] {
        check(store.append_with("log", "a", durability).unwrap(), at_once);
        check(store.snapshot_with("log", "b", durability).unwrap(), at_once);
        check(deferred.append_with("log", "a", durability).unwrap(), at_once);
        check(deferred.snapshot_with("log", "b", durability).unwrap(), at_once);
        check(durable.append_with("log", "a", durability).unwrap(), false);
        check(durable.snapshot_with("log", "b", durability).unwrap(), false);
    }
    let last = Bounds { first: 3, next: 4 };
    let keys = ["log", "deferred/log", "durable/log"];
    assert_eq!(store.bounds_many(keys).unwrap(), [Some(last); 3], "a snapshot drops all before it");
    for key in keys {
        assert_eq!(store.last(key).unwrap().unwrap().payload, "b");
    }
}
