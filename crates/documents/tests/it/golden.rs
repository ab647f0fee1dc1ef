//! The bytes of all logs. Where this test fails, stores of users have other bytes: raise the
//! format, do not change the file.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::ManualClock;
use brooklet_documents::{Bytes, Documents, JsonChange, Opaque, Request};
use serde_json::json;

use crate::common::{World, options, set, state};

#[test]
fn keys_and_entries_are_as_they_were() {
    let clock = Arc::new(ManualClock::default());
    clock.set_wall(Duration::from_millis(1_700_000_000_123));
    let world = World::new(options().clock(clock.clone()));
    let documents = &world.documents;
    documents
        .create("doc", Request::new("r1").author("Ada"), &state(json!({"n": 1.5, "l": [null, "é"]})))
        .unwrap();
    documents.patch("doc", 1, Request::new("r2").author("Bob"), &set(2)).unwrap();
    documents.snapshot("doc", 9).unwrap();
    let patch = br#"[{"op":"add","path":"/l/-","value":true},{"op":"move","from":"/n","path":"/m"}]"#;
    documents.patch("doc", 2, Request::anonymous(), &JsonChange::parse_patch(patch).unwrap()).unwrap();
    clock.set_wall(Duration::from_millis(1_700_000_001_000));
    documents.rewind("doc", 3, "r4", 1).unwrap();
    documents.snapshot("doc", 9).unwrap();
    documents.create("name\0", "r1", &state(json!(null))).unwrap();
    documents.create("gone", "r1", &state(json!(null))).unwrap();
    documents.delete("gone", 1).unwrap();
    documents.create("gone", "r1", &state(json!(null))).unwrap();
    let opaque =
        Documents::open(&world.store, Opaque::new("bytes", 7, |_, _| Ok(Vec::new())), options()).unwrap();
    opaque.create("opaque", "r1", &Opaque::state(vec![1, 2, 3])).unwrap();
    opaque.patch("opaque", 1, "r2", &Bytes::from_static(&[4, 5])).unwrap();
    world.store.flush().unwrap();

    let mut dump = String::new();
    for log in world.store.scan("").unwrap() {
        let log = log.unwrap();
        let name = log.key.escape_ascii();
        writeln!(dump, "{name} from {} to {}", log.bounds.first, log.bounds.next).unwrap();
        for entry in world.store.read(&log.key, ..).unwrap() {
            let entry = entry.unwrap();
            let payload: String = entry.payload.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(dump, "  {}: {payload}", entry.seq).unwrap();
        }
    }
    assert_eq!(dump, include_str!("../golden/v1.txt"), "the logs are now:\n{dump}");
}
