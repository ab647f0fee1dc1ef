//! A model that sees the state, and has no undo.

use brooklet_documents::{Bytes, Documents, Error, Model, Refusal, RefusalKind};

use crate::common::{World, options};

/// A sum that takes even numbers only.
struct Sum;

fn number(bytes: &[u8]) -> Result<u64, Refusal> {
    let refusal = || Refusal::new(RefusalKind::Malformed, "pass 8 bytes");
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| refusal())
}

impl Model for Sum {
    type State = u64;
    type Change = u64;

    fn name(&self) -> &str {
        "sum"
    }
    fn version(&self) -> u32 {
        1
    }
    fn snapshot(&self, state: &u64) -> Result<Vec<u8>, Refusal> {
        Ok(state.to_le_bytes().into())
    }
    fn load(&self, _: u32, bytes: &Bytes) -> Result<u64, Refusal> {
        number(bytes)
    }
    fn encode(&self, change: &u64) -> Result<Vec<u8>, Refusal> {
        Ok(change.to_le_bytes().into())
    }
    fn decode(&self, bytes: &Bytes) -> Result<u64, Refusal> {
        number(bytes)
    }
    fn apply(&self, state: &mut u64, change: &u64) -> Result<Option<u64>, Refusal> {
        if change % 2 == 1 {
            return Err(Refusal::new(RefusalKind::Other, "the number is odd"));
        }
        *state += change;
        Ok(None)
    }
    fn size(&self, _: &u64) -> usize {
        8
    }
}

/// The state of version 1 is 0, and each patch adds 2.
fn check(documents: &Documents<Sum>, versions: impl IntoIterator<Item = u64>) {
    for version in versions {
        let found = documents.at("doc", version);
        assert_eq!(found.map(|found| *found.state).map_err(|e| e.to_string()), Ok(2 * (version - 1)));
    }
}

#[test]
fn the_history_stays_as_long_as_it_was_asked_for() {
    let world = World::new(options());
    let open = || Documents::open(&world.store, Sum, options().history(10).snapshot_updates(15)).unwrap();
    let mut documents = open();
    documents.create("doc", "c", &0).unwrap();
    for version in 1..100 {
        documents.patch("doc", version, format!("{version}"), &2).unwrap();
        documents.maintain();
        if version % 7 == 0 {
            documents = open();
        }
        check(&documents, (version + 1).saturating_sub(10).max(1)..=version + 1);
    }
    let bounds = world.store.bounds("docs/ddoc").unwrap();
    assert!(bounds.first > 0 && bounds.len() <= 10 + 3 * 16, "{bounds:?}");
    assert!(matches!(documents.at("doc", 1), Err(Error::HistoryGone { .. })));
    assert!(matches!(documents.rewind("doc", 100, "back", 99), Err(Error::NoUndo { .. })));
}

/// A snapshot without updates before it learns of the undo from the entries.
#[test]
fn a_snapshot_that_only_drops_history_keeps_a_snapshot_to_go_on_from() {
    let world = World::new(options());
    let open = || Documents::open(&world.store, Sum, options().history(2000)).unwrap();
    let documents = open();
    documents.create("doc", "c", &0).unwrap();
    for version in 1..30 {
        documents.patch("doc", version, format!("{version}"), &2).unwrap();
        if version % 10 == 0 {
            documents.snapshot("doc", 1000).unwrap();
        }
    }
    documents.snapshot("doc", 1000).unwrap();
    let documents = open();
    documents.snapshot("doc", 15).unwrap();
    check(&documents, 15..=30);
    // The snapshot of version 11 is the first entry, and there is one more before the end.
    let bounds = world.store.bounds("docs/ddoc").unwrap();
    assert_eq!((bounds.first, bounds.next), (11, 33));
}
