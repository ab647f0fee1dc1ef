//! The stores that are compared, behind one trait: a file each.
//!
//! A log's entry is a pair of key and value wherever the store has no logs of its own: the key is
//! the log's number and the entry's number, big-endian, so that a log's entries are neighbours; the
//! value is the payload.

mod brooklet;
mod device;
mod fjall;
mod lmdb;
mod plain;
mod raft_engine;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sqlite;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::batch::Batched;
use crate::outcome::Result;
use crate::peer::Peer;

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Brooklet,
    RaftEngine,
    #[cfg(feature = "rocksdb")]
    Rocksdb,
    Fjall,
    Redb,
    Lmdb,
    Sqlite,
    /// The plainest group commit, over a file that was written before.
    Plain,
    /// The device itself.
    Device,
}

/// Memory for caches and recent entries, where a store lets one say.
const MEMORY: usize = 128 << 20;

impl Kind {
    /// Its name in the table and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brooklet => "brooklet",
            Self::RaftEngine => "raft-engine",
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => "rocksdb",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
            Self::Lmdb => "lmdb",
            Self::Sqlite => "sqlite",
            Self::Plain => "plain",
            Self::Device => "device",
        }
    }

    /// How it is used, and why that is its best with durable acknowledgements.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Brooklet => brooklet::SETTING,
            Self::RaftEngine => raft_engine::SETTING,
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => rocksdb::SETTING,
            Self::Fjall => fjall::SETTING,
            Self::Redb => redb::SETTING,
            Self::Lmdb => lmdb::SETTING,
            Self::Sqlite => sqlite::SETTING,
            Self::Plain => plain::SETTING,
            Self::Device => device::SETTING,
        }
    }

    /// Whether it is another store: not Brooklet, and not a yardstick.
    pub fn is_peer(self) -> bool {
        !matches!(self, Self::Brooklet | Self::Plain | Self::Device)
    }

    /// Opens the store in a directory; makes it where it is not there.
    pub fn open(self, dir: &Path) -> Result<Box<dyn Peer>> {
        Ok(match self {
            Self::Brooklet => Box::new(brooklet::Brooklet::open(dir)?),
            Self::RaftEngine => Box::new(Batched::new(raft_engine::RaftEngine::open(dir)?)),
            #[cfg(feature = "rocksdb")]
            Self::Rocksdb => Box::new(Batched::new(rocksdb::Rocksdb::open(dir)?)),
            Self::Fjall => Box::new(Batched::new(fjall::Fjall::open(dir)?)),
            Self::Redb => Box::new(Batched::new(redb::Redb::open(dir)?)),
            Self::Lmdb => Box::new(Batched::new(lmdb::Lmdb::open(dir)?)),
            Self::Sqlite => Box::new(Batched::new(sqlite::Sqlite::open(dir)?)),
            Self::Plain => Box::new(plain::Plain::open(dir)?),
            Self::Device => Box::new(device::Device::open(dir)?),
        })
    }
}

/// The key of an entry.
fn key(log: u64, seq: u64) -> [u8; 16] {
    ((u128::from(log) << 64) | u128::from(seq)).to_be_bytes()
}

/// The number of the entry that has this key.
fn seq_of(key: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(key.get(8..16).ok_or("a key is too short")?.try_into()?))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::peer::Op;

    #[test]
    fn keys_keep_a_log_together_and_its_entries_in_order() {
        assert!(key(1, u64::MAX) < key(2, 0) && key(2, 1) < key(2, 256));
        assert_eq!(seq_of(&key(7, 9)).unwrap(), 9);
    }

    #[test]
    fn every_store_keeps_what_it_takes() {
        let stores = Kind::value_variants().iter().copied();
        for kind in stores.filter(|kind| kind.is_peer() || *kind == Kind::Brooklet) {
            let dir = tempfile::tempdir().unwrap();
            let append = |log, seq| Op { log, seq, first: seq, payload: b"delta" };
            let store = kind.open(dir.path()).unwrap();
            store.all(&[append(1, 0), append(2, 0), append(1, 1)]).unwrap();
            store.wait(append(1, 2)).unwrap();
            store.wait(Op { first: 0, payload: b"snapshot", ..append(1, 3) }).unwrap();
            let (tell, told) = std::sync::mpsc::channel();
            store.submit(append(1, 4), Box::new(move |outcome| tell.send(outcome).unwrap())).unwrap();
            told.recv().unwrap().unwrap();
            for bring in
                [|_: &dyn Peer| Ok(()), |store: &dyn Peer| store.settle(), |store: &dyn Peer| store.compact()]
            {
                bring(&*store).unwrap();
                assert_eq!(
                    entries(&*store, 1),
                    [(3, b"snapshot".to_vec()), (4, b"delta".to_vec())],
                    "{kind:?}"
                );
            }
            store.close().unwrap();
            let store = kind.open(dir.path()).unwrap();
            assert_eq!(entries(&*store, 1), [(3, b"snapshot".to_vec()), (4, b"delta".to_vec())], "{kind:?}");
            assert_eq!(entries(&*store, 2), [(0, b"delta".to_vec())], "{kind:?}");
            store.close().unwrap();
        }
    }

    fn entries(store: &dyn Peer, log: u64) -> Vec<(u64, Vec<u8>)> {
        let mut entries = Vec::new();
        store.read(log, &mut |seq, payload| entries.push((seq, payload.to_vec()))).unwrap();
        entries
    }
}
