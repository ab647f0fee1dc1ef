//! openraft's own suite of tests for log stores.

use brooklet::{Options, Store};
use brooklet_openraft::LogStore;
use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};

use crate::kv::machine::{Machine, Types};

/// Builds each test's log and state machine in a store of their own in memory.
struct InMemory;

impl StoreBuilder<Types, LogStore<Types>, Machine> for InMemory {
    async fn build(&self) -> Result<((), LogStore<Types>, Machine), StorageError<u64>> {
        let store = Store::in_memory(1).unwrap();
        Ok(((), LogStore::open(&store, "g")?, Machine::open(&store, "g").unwrap()))
    }
}

/// The same in a file.
struct OnDisk;

impl StoreBuilder<Types, LogStore<Types>, Machine, tempfile::TempDir> for OnDisk {
    async fn build(&self) -> Result<(tempfile::TempDir, LogStore<Types>, Machine), StorageError<u64>> {
        let dir = tempfile::tempdir().unwrap();
        let options = Options::new().ring_size(1 << 20).max_payload(1 << 16);
        let store = options.open(dir.path().join("raft.brooklet")).unwrap();
        Ok((dir, LogStore::open(&store, "g")?, Machine::open(&store, "g").unwrap()))
    }
}

#[test]
fn suite_of_openraft_in_memory() {
    Suite::test_all(InMemory).unwrap();
}

#[test]
fn suite_of_openraft_on_disk() {
    Suite::test_all(OnDisk).unwrap();
}
