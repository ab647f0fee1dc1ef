//! What `openraft` storage promises, tested from outside: one binary, a module for each subject.

#[path = "../../examples/kv/main.rs"]
#[expect(dead_code, reason = "an example has a main function")]
mod kv;

mod cut;
mod golden;
mod log;
mod many;
mod raft;
mod suite;

use brooklet::Store;
use brooklet_openraft::LogStore;
use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId};

use kv::machine::{Set, Types};

/// Returns the log id of node 0 in a term.
fn id(term: u64, index: u64) -> LogId<u64> {
    LogId::new(CommittedLeaderId::new(term, 0), index)
}

/// Returns an entry that sets a key, which names the entry.
fn entry(term: u64, index: u64) -> Entry<Types> {
    let set = Set { key: format!("{term}-{index}"), value: "v".into() };
    Entry { log_id: id(term, index), payload: EntryPayload::Normal(set) }
}

/// Opens the group of a test.
fn open(store: &Store) -> LogStore<Types> {
    LogStore::open(store, "g").unwrap()
}
