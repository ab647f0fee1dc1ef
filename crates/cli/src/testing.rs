//! A store that a test writes while a command reads it.

use std::path::PathBuf;

use brooklet::io::Rng;
use brooklet::{Options, Store};
use tempfile::TempDir;

use crate::store_args::StoreArgs;

/// No other places of data.
pub const ALONE: StoreArgs = StoreArgs { ring: None, archive: None, metrics: None, metrics_mode: None };
/// Bytes of an entry: two runs with a few of them are larger than anything that is read ahead.
const LONG: usize = 50_000;

/// A store, open for writing.
pub struct Place {
    _dir: TempDir,
    pub path: PathBuf,
    pub store: Store,
}

impl Place {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.brooklet");
        let store = Options::new().ring_size(1 << 20).open(&path).unwrap();
        Self { _dir: dir, path, store }
    }

    /// Appends entries that begin with `mark`, and writes them to runs.
    pub fn append(&self, key: &str, entries: u64, mark: u8) {
        let mut rng = Rng::new(1);
        for _ in 0..entries {
            let payload: Vec<u8> = std::iter::once(mark).chain((1..LONG).map(|_| rng.next() as u8)).collect();
            self.store.append(key, payload).unwrap().wait().unwrap();
        }
        self.store.checkpoint().unwrap();
    }

    /// Replaces all runs.
    pub fn merge(&self) {
        self.append("other", 1, 0);
        self.store.compact().unwrap();
        // The space of the runs is free for others now.
        self.append("other", 1, 0);
    }
}
