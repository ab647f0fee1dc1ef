//! Stores and documents that the tests open again, on a disk that loses what is not durable.

use std::sync::Arc;

use brooklet::io::{ManualClock, MemVolume};
use brooklet::{Options as StoreOptions, Store};
use brooklet_documents::{Documents, Json, JsonChange, JsonState, Options};
use serde_json::{Value, json};

/// Returns options without a thread, and with a clock that stands still.
pub fn options() -> Options {
    Options::new("docs/").background(false).clock(Arc::new(ManualClock::default()))
}

pub fn store_options() -> StoreOptions {
    let options = StoreOptions::new().ring_size(1 << 20).max_payload(64 << 10).threads(false);
    options.clock(Arc::new(ManualClock::default())).rng_seed(3)
}

/// A store on a disk, and its documents.
pub struct World {
    pub volume: MemVolume,
    pub store: Store,
    pub documents: Documents<Json>,
    options: Options,
}

impl World {
    pub fn new(options: Options) -> Self {
        let volume = MemVolume::new(1);
        let store = store_options().create_on(Arc::new(volume.clone())).unwrap();
        let documents = Documents::open(&store, Json::new(), options.clone()).unwrap();
        Self { volume, store, documents, options }
    }

    /// Kills the process, and opens the store again.
    pub fn kill(&mut self) {
        self.store.clone().abandon();
        self.store = store_options().open_on(Arc::new(self.volume.clone())).unwrap();
        self.documents = Documents::open(&self.store, Json::new(), self.options.clone()).unwrap();
    }

    /// Opens the documents again, on the same store.
    pub fn reopen(&mut self) {
        self.documents = Documents::open(&self.store, Json::new(), self.options.clone()).unwrap();
    }

    pub fn value(&self, name: &str) -> Value {
        self.documents.get(name).unwrap().expect("the document exists").state.value().clone()
    }

    /// Creates a document `{"n": 1}`, and sets `n` to each version up to `last`.
    pub fn count_to(&self, name: &str, last: u64) {
        let first = match self.documents.version(name).unwrap() {
            Some(version) => version,
            None => {
                self.documents.create(name, format!("{name} 1"), &state(json!({"n": 1}))).unwrap().version
            }
        };
        for version in first..last {
            self.documents
                .patch(name, version, format!("{name} {}", version + 1), &set(version + 1))
                .unwrap();
        }
    }
}

pub fn state(value: Value) -> JsonState {
    value.into()
}

/// Returns a change that sets `n`.
pub fn set(n: u64) -> JsonChange {
    JsonChange::merge(json!({"n": n}))
}
