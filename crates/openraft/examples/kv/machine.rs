//! The state machine: a map of strings, with its snapshots in the store.

#![expect(clippy::result_large_err, reason = "openraft defines the type of the errors")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Cursor;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use brooklet::{Commit, Store};
use openraft::storage::RaftStateMachine;
use openraft::{AnyError, BasicNode, Entry, EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder};
use openraft::{Snapshot, SnapshotMeta, StorageError, StorageIOError, StoredMembership};
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// The types of the program.
    pub Types: D = Set, R = Option<String>, SnapshotData = Cursor<Vec<u8>>
);

/// Sets a key to a value. The response is the earlier value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Set {
    /// The key.
    pub key: String,
    /// The new value.
    pub value: String,
}

/// A state machine. Clones share its content.
#[derive(Clone, Debug)]
pub struct Machine {
    store: Store,
    /// Key of the log whose only entry is the snapshot.
    key: String,
    content: Arc<Mutex<Content>>,
}

/// The content of a state machine, and of its snapshots.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Content {
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, BasicNode>,
    values: BTreeMap<String, String>,
}

impl Machine {
    /// Opens the state machine of a group: reads its snapshot, if there is one. openraft applies
    /// the later entries again.
    pub fn open(store: &Store, group: &str) -> Result<Self, Box<dyn Error>> {
        let key = format!("{group}/snapshot");
        let content = match store.last(&key)? {
            Some(entry) => rmp_serde::from_slice(&entry.payload)?,
            None => Content::default(),
        };
        Ok(Self { store: store.clone(), key, content: Arc::new(Mutex::new(content)) })
    }

    /// Returns all keys and values.
    pub fn values(&self) -> BTreeMap<String, String> {
        self.content().values.clone()
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the snapshot, and waits until it is durable.
    async fn save(&self, bytes: &[u8]) -> Result<(), StorageError<u64>> {
        let mut commit = Commit::new();
        commit.snapshot(&self.key, bytes);
        let saved = self.store.commit_async(commit).await;
        saved.map(drop).map_err(|error| StorageIOError::write_snapshot(None, AnyError::new(&error)).into())
    }
}

/// Returns the error for a snapshot that cannot be read.
fn unreadable(error: &(impl Error + 'static)) -> StorageError<u64> {
    StorageIOError::read_snapshot(None, AnyError::new(error)).into()
}

/// Returns the snapshot that these bytes are.
fn snapshot(bytes: Vec<u8>) -> Result<Snapshot<Types>, StorageError<u64>> {
    let content: Content = rmp_serde::from_slice(&bytes).map_err(|error| unreadable(&error))?;
    let snapshot_id = content.applied.map_or_else(String::new, |id| id.to_string());
    let meta =
        SnapshotMeta { last_log_id: content.applied, last_membership: content.membership, snapshot_id };
    Ok(Snapshot { meta, snapshot: Box::new(Cursor::new(bytes)) })
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Result<Snapshot<Types>, StorageError<u64>> {
        let content = self.content().clone();
        let bytes = rmp_serde::to_vec_named(&content)
            .map_err(|error| StorageIOError::write_snapshot(None, AnyError::new(&error)))?;
        self.save(&bytes).await?;
        snapshot(bytes)
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogId<u64>>, StoredMembership<u64, BasicNode>), StorageError<u64>> {
        let content = self.content();
        Ok((content.applied, content.membership.clone()))
    }

    async fn apply<I>(&mut self, entries: I) -> Result<Vec<Option<String>>, StorageError<u64>>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut content = self.content();
        let apply = |entry: Entry<Types>| {
            content.applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Normal(set) => content.values.insert(set.key, set.value),
                EntryPayload::Membership(membership) => {
                    content.membership = StoredMembership::new(Some(entry.log_id), membership);
                    None
                }
                EntryPayload::Blank => None,
            }
        };
        Ok(entries.into_iter().map(apply).collect())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn begin_receiving_snapshot(&mut self) -> Result<Box<Cursor<Vec<u8>>>, StorageError<u64>> {
        Ok(Box::default())
    }

    async fn install_snapshot(
        &mut self,
        _: &SnapshotMeta<u64, BasicNode>,
        snapshot: Box<Cursor<Vec<u8>>>,
    ) -> Result<(), StorageError<u64>> {
        let bytes = snapshot.into_inner();
        let content = rmp_serde::from_slice(&bytes).map_err(|error| unreadable(&error))?;
        self.save(&bytes).await?;
        *self.content() = content;
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<Snapshot<Types>>, StorageError<u64>> {
        let entry = self.store.last(&self.key).map_err(|error| unreadable(&error))?;
        entry.map(|entry| snapshot(entry.payload.to_vec())).transpose()
    }
}
