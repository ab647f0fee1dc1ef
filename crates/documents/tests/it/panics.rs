//! A model that panics fails its document. Others go on.

use std::sync::{Arc, Mutex};

use brooklet_documents::{Bytes, Documents, ErrorKind, Model, Refusal};

use crate::common::{World, options};

/// A list of bytes, which panics where it is told to.
#[derive(Clone, Default)]
struct Fragile {
    at: Arc<Mutex<&'static str>>,
}

impl Fragile {
    fn maybe(&self, at: &str) {
        let told = *self.at.lock().unwrap();
        assert!(told != at, "panics at {at}");
    }
}

impl Model for Fragile {
    type State = Vec<u8>;
    type Change = u8;

    fn name(&self) -> &str {
        "fragile"
    }
    fn version(&self) -> u32 {
        1
    }
    fn snapshot(&self, state: &Vec<u8>) -> Result<Vec<u8>, Refusal> {
        self.maybe("snapshot");
        Ok(state.clone())
    }
    fn load(&self, _: u32, bytes: &Bytes) -> Result<Vec<u8>, Refusal> {
        self.maybe("load");
        Ok(bytes.to_vec())
    }
    fn encode(&self, change: &u8) -> Result<Vec<u8>, Refusal> {
        self.maybe("encode");
        Ok(vec![*change])
    }
    fn decode(&self, bytes: &Bytes) -> Result<u8, Refusal> {
        self.maybe("decode");
        Ok(bytes[0])
    }
    fn apply(&self, state: &mut Vec<u8>, change: &u8) -> Result<Option<u8>, Refusal> {
        state.push(*change);
        self.maybe("apply");
        if *change == 0 {
            state.truncate(state.len() - 2);
        }
        Ok(Some(0))
    }
    fn size(&self, state: &Vec<u8>) -> usize {
        self.maybe("size");
        state.len()
    }
}

#[test]
fn a_model_that_panics_fails_that_document_only() {
    let world = World::new(options().snapshot_updates(3));
    let model = Fragile::default();
    let documents = Documents::open(&world.store, model.clone(), options().snapshot_updates(3)).unwrap();
    for name in ["a", "b"] {
        documents.create(name, "c", &vec![1]).unwrap();
        documents.patch(name, 1, "p2", &2).unwrap();
    }
    let panics_at = |at: &'static str| *model.at.lock().unwrap() = at;
    for at in ["apply", "encode"] {
        panics_at(at);
        assert_eq!(documents.patch("a", 2, at, &7).unwrap_err().kind(), ErrorKind::ModelPanicked, "{at}");
        assert_eq!(
            documents.patch_many(at, &[("b", 2, &7), ("a", 2, &7)]).unwrap_err().kind(),
            ErrorKind::ModelPanicked
        );
        panics_at("");
        assert_eq!(*documents.get("a").unwrap().unwrap().state, [1, 2]);
        assert_eq!(*documents.get("b").unwrap().unwrap().state, [1, 2]);
    }
    panics_at("snapshot");
    assert_eq!(documents.create("x", "c", &vec![1]).unwrap_err().kind(), ErrorKind::ModelPanicked);
    assert_eq!(documents.snapshot("a", 0).unwrap_err().kind(), ErrorKind::ModelPanicked);
    // A snapshot that is due fails as well, and the document goes on without.
    documents.patch("a", 2, "p3", &3).unwrap();
    documents.patch("a", 3, "p4", &4).unwrap();
    assert_eq!(documents.maintain(), 1);
    documents.patch("a", 4, "p5", &5).unwrap();
    assert_eq!(documents.maintain(), 0);
    let again = Documents::open(&world.store, model.clone(), options()).unwrap();
    for at in ["load", "decode"] {
        panics_at(at);
        assert_eq!(again.get("a").unwrap_err().kind(), ErrorKind::ModelPanicked);
        assert_eq!(again.at("a", 2).unwrap_err().kind(), ErrorKind::ModelPanicked);
        assert_eq!(documents.changes("a", 2).map(drop).is_err(), at == "decode");
    }
    panics_at("size");
    assert_eq!(documents.patch("b", 2, "size", &3).unwrap().version, 3);
    panics_at("");
    assert_eq!(*again.get("a").unwrap().unwrap().state, [1, 2, 3, 4, 5]);
    assert_eq!(documents.snapshot("a", 0).unwrap(), 5);
    world.store.append("elsewhere", "entry").unwrap().wait().unwrap();
}
