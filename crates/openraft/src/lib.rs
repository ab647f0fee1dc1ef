//! Log storage for [openraft] 0.9 on [Brooklet](brooklet), a store of millions of small
//! logs: thousands of Raft groups in one store.
//!
//! All groups of a host share one write-ahead log. One write to the device makes the appends of
//! many groups durable, and one store holds the logs of all groups.
//!
//! ```
//! use brooklet_openraft::LogStore;
//! use openraft::storage::{RaftLogStorage, RaftLogStorageExt};
//! use openraft::{CommittedLeaderId, Entry, EntryPayload, LogId, Vote};
//! use std::io::Cursor;
//!
//! openraft::declare_raft_types!(pub Types: D = String, R = (), SnapshotData = Cursor<Vec<u8>>);
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = brooklet::Store::in_memory(1)?;
//! let mut log = LogStore::<Types>::open(&store, "shard-7")?;   // pass it to Raft::new
//!
//! log.save_vote(&Vote::new(1, 3)).await?;                      // durable by now
//! let log_id = LogId::new(CommittedLeaderId::new(1, 3), 0);
//! log.blocking_append([Entry { log_id, payload: EntryPayload::Normal("x = 1".into()) }]).await?;
//! log.purge(log_id).await?;                                    // a snapshot has the entry
//!
//! drop(log);
//! let mut log = LogStore::<Types>::open(&store, "shard-7")?;
//! assert_eq!(log.read_vote().await?, Some(Vote::new(1, 3)));
//! assert_eq!(log.get_log_state().await?.last_purged_log_id, Some(log_id));
//! # Ok(())
//! # }
//! ```
//!
//! The crate stores logs. State machines and snapshots are the application's.
//!
//! # How it works
//!
//! Each group has two logs in the store. `<group>/log` holds the Raft entries; the number of an
//! entry is its Raft index. `<group>/state` has one entry, which holds the vote, the committed id
//! and the last purged id. A purge changes both logs in one commit. A log may begin at any index,
//! so a node that installs a snapshot continues behind the snapshot.
//!
//! Each write states the next numbers that it expects. So a second handle to a group cannot write
//! beside the first one. Opening a group checks that its two logs agree; each read checks that an
//! entry has the Raft index of its place.
//!
//! # The modules
//!
//! `format` (the bytes of entries and state), `group` (the two logs of a group), `reader`,
//! `log_store` (the storage of one group), `groups` (all groups of a store).

#![forbid(unsafe_code)]
#![expect(clippy::result_large_err, reason = "openraft defines the type of the errors")]

mod error;
mod format;
mod group;
mod groups;
mod log_store;
mod reader;

pub use groups::Groups;
pub use log_store::LogStore;
pub use reader::LogReader;
