//! The bytes of all logs. Where this test fails, stores of users have other bytes: raise the
//! version, do not change the file.

use std::fmt::Write;

use crate::common::{Replica, memory};

#[test]
fn keys_and_entries_are_as_they_were() {
    let (store, documents) = memory();
    let client = Replica::new(1);
    documents.push_update("flushed", &client.insert(0, "hello")).unwrap();
    documents.push_update("flushed", &client.remove(1, 2)).unwrap();
    documents.flush_doc("flushed").unwrap();
    documents.push_update("flushed", &client.insert(0, "!")).unwrap();
    documents.push_update("name\0", &Replica::new(2).insert(0, "other")).unwrap();
    documents.insert_meta("flushed", "owner", b"Ada").unwrap();
    documents.push_update("cleared", &Replica::new(3).insert(0, "gone")).unwrap();
    documents.clear_doc("cleared").unwrap();

    let mut dump = String::new();
    for log in store.scan("").unwrap() {
        let key = log.unwrap().key;
        for entry in store.read(&key, ..).unwrap() {
            let entry = entry.unwrap();
            let payload: String = entry.payload.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(dump, "{} {}: {payload}", key.escape_ascii(), entry.seq).unwrap();
        }
    }
    assert_eq!(dump, include_str!("../golden/v1.txt"), "the logs are now:\n{dump}");
}
