//! The bytes of format 1. A change of these bytes needs a new version.

use brooklet::Store;
use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
use openraft::{Entry, EntryPayload, Membership, RaftLogReader, Vote};

use crate::kv::machine::Types;
use crate::{entry, id, open};

/// Returns the only entry of a log as printable bytes.
fn only(store: &Store, key: &str) -> String {
    let bounds = store.bounds(key).unwrap();
    assert_eq!(bounds.next - bounds.first, 1, "{key}");
    store.last(key).unwrap().unwrap().payload.escape_ascii().to_string()
}

const ENTRY: &str = r"\x01\x82\xa6log_id\x82\xa9leader_id\x82\xa4term\x02\xa7node_id\x00\xa5index\x07\xa7payload\x81\xa6Normal\x82\xa3key\xa32-7\xa5value\xa1v";

const STATE: &str = r"\x01\x83\xa4vote\x82\xa9leader_id\x82\xa4term\x03\xa7node_id\x05\xa9committed\xc3\xa9committed\x82\xa9leader_id\x82\xa4term\x02\xa7node_id\x00\xa5index\x07\xablast_purged\x82\xa9leader_id\x82\xa4term\x01\xa7node_id\x00\xa5index\x06";

#[tokio::test]
async fn bytes_of_an_entry_and_of_the_state() {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    log.purge(id(1, 6)).await.unwrap();
    log.blocking_append([entry(2, 7)]).await.unwrap();
    log.save_vote(&Vote::new_committed(3, 5)).await.unwrap();
    log.save_committed(Some(id(2, 7))).await.unwrap();
    assert_eq!(only(&store, "g/log"), ENTRY);
    assert_eq!(only(&store, "g/state"), STATE);
}

#[tokio::test]
async fn entries_of_all_kinds_come_back() {
    let store = Store::in_memory(1).unwrap();
    let mut log = open(&store);
    let membership = Membership::new(vec![[1, 2].into(), [2, 3].into()], None);
    let payloads = [EntryPayload::Blank, EntryPayload::Membership(membership)];
    let mut entries: Vec<Entry<Types>> =
        (0..).zip(payloads).map(|(index, payload)| Entry { log_id: id(1, index), payload }).collect();
    entries.push(entry(1, 2));
    log.blocking_append(entries.clone()).await.unwrap();
    assert_eq!(log.try_get_log_entries(..).await.unwrap(), entries);
}
