//! Replicas of a document, and stores that the tests open again.

use brooklet::Store;
use brooklet_yrs::Documents;
use yrs::updates::decoder::Decode;
use yrs::{Doc, GetString, Text, TextRef, Transact, Update};

/// A replica of a document with one text.
pub struct Replica {
    pub doc: Doc,
    pub text: TextRef,
}

impl Replica {
    pub fn new(client: u64) -> Self {
        let doc = Doc::with_client_id(client);
        let text = doc.get_or_insert_text("text");
        Self { doc, text }
    }

    /// Loads a document.
    pub fn load(documents: &Documents, name: &str) -> Self {
        let replica = Self::new(1_000_000);
        documents.load_doc(name, &mut replica.doc.transact_mut()).unwrap().expect("the document exists");
        replica
    }

    /// Inserts words, and returns the update.
    pub fn insert(&self, at: u32, words: &str) -> Vec<u8> {
        let mut txn = self.doc.transact_mut();
        self.text.insert(&mut txn, at, words);
        txn.encode_update_v1()
    }

    /// Removes characters, and returns the update.
    pub fn remove(&self, at: u32, len: u32) -> Vec<u8> {
        let mut txn = self.doc.transact_mut();
        self.text.remove_range(&mut txn, at, len);
        txn.encode_update_v1()
    }

    pub fn apply(&self, update: &[u8]) {
        self.doc.transact_mut().apply_update(Update::decode_v1(update).unwrap()).unwrap();
    }

    pub fn string(&self) -> String {
        self.text.get_string(&self.doc.transact())
    }
}

/// Returns a store in memory, and its documents.
pub fn memory() -> (Store, Documents) {
    let store = Store::in_memory(1).unwrap();
    let documents = Documents::new(&store, "docs/");
    (store, documents)
}
