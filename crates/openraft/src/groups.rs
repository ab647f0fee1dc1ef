//! All groups of a store.

use std::collections::BTreeSet;

use brooklet::{Commit, Error, Store};
use openraft::{RaftTypeConfig, StorageError};

use crate::group::{Group, LOG, STATE};
use crate::log_store::LogStore;

/// The Raft groups below a prefix of the keys of a store. Clones are cheap.
///
/// ```
/// use brooklet_openraft::Groups;
/// # openraft::declare_raft_types!(Types: D = String, R = (), SnapshotData = std::io::Cursor<Vec<u8>>);
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let store = brooklet::Store::in_memory(1)?;
/// use openraft::storage::RaftLogStorage;
///
/// let groups = Groups::new(&store, "raft/");
/// let mut shard = groups.open::<Types>("shard-7")?;     // pass it to Raft::new
/// shard.save_vote(&openraft::Vote::new(1, 3)).await?;   // durable by now
///
/// assert_eq!(groups.list()?, [b"shard-7"]);
/// drop(shard);
/// groups.remove("shard-7").await?;
/// assert!(groups.list()?.is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Groups {
    store: Store,
    prefix: Vec<u8>,
}

impl Groups {
    /// Returns the groups of a store whose keys begin with `prefix`. The prefix usually ends with a
    /// separator, such as `raft/`.
    pub fn new(store: &Store, prefix: impl AsRef<[u8]>) -> Self {
        Self { store: store.clone(), prefix: prefix.as_ref().to_vec() }
    }

    /// Opens the group of this name; see [`LogStore::open`].
    ///
    /// # Errors
    /// Same errors as [`LogStore::open`].
    pub fn open<C: RaftTypeConfig>(
        &self,
        group: impl AsRef<[u8]>,
    ) -> Result<LogStore<C>, StorageError<C::NodeId>> {
        LogStore::open(&self.store, self.whole(group.as_ref()))
    }

    /// Lists the names of the groups that exist, in their order. A host opens these groups when it
    /// starts.
    ///
    /// # Errors
    /// The errors of [`Store::scan`].
    pub fn list(&self) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = BTreeSet::new();
        for log in self.store.scan(&self.prefix)? {
            let key = log?.key;
            let name = key.strip_suffix(LOG).or_else(|| key.strip_suffix(STATE));
            names.extend(name.and_then(|name| name.strip_prefix(&self.prefix[..])).map(<[u8]>::to_vec));
        }
        Ok(names.into_iter().collect())
    }

    /// Removes a group: its entries, its vote and its other state, in one commit. The removal is
    /// durable when the call returns. A group that does not exist stays absent.
    ///
    /// Shut the group's [`Raft`](openraft::Raft) down before. A node without its vote may vote
    /// twice: let this host join the group again only as a new node.
    ///
    /// # Errors
    /// The errors of [`Store::commit`].
    pub async fn remove(&self, group: impl AsRef<[u8]>) -> Result<(), Error> {
        let group = Group::new(&self.store, &self.whole(group.as_ref()));
        let mut commit = Commit::new();
        for key in [&group.log, &group.state] {
            if self.store.bounds_appended(key)?.is_some() {
                commit.delete(key);
            }
        }
        if commit.is_empty() {
            return Ok(());
        }
        commit.durability(brooklet::Durability::Durable);
        self.store.commit_async(commit).await.map(drop)
    }

    fn whole(&self, group: &[u8]) -> Vec<u8> {
        [&self.prefix[..], group].concat()
    }
}
