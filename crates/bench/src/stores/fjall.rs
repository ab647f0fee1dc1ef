//! fjall: an LSM tree in Rust.

use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{MEMORY, key, seq_of};
use crate::outcome::Result;
use crate::peer::{Op, Transactions};

pub const SETTING: &str = "each batch persisted with SyncData (fdatasync, which also keeps a file's new size; SyncAll is \
    slower and keeps no more); batches by the bench, since it syncs under its journal's lock; LZ4, 128 MiB cache; a \
    snapshot removes each entry in the same batch";

pub struct Fjall {
    db: Database,
    entries: Keyspace,
}

impl Fjall {
    pub fn open(dir: &Path) -> Result<Self> {
        let db = Database::builder(dir.join("fjall")).cache_size(MEMORY as u64).open()?;
        let entries = db.keyspace("entries", KeyspaceCreateOptions::default)?;
        Ok(Self { db, entries })
    }
}

impl Transactions for Fjall {
    fn commit(&self, ops: &[Op]) -> Result<()> {
        let mut batch = self.db.batch().durability(Some(PersistMode::SyncData));
        for op in ops {
            batch.insert(&self.entries, key(op.log, op.seq), op.payload);
            (op.first..op.seq).for_each(|seq| batch.remove(&self.entries, key(op.log, seq)));
        }
        Ok(batch.commit()?)
    }

    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        for entry in self.entries.range(key(log, 0)..=key(log, u64::MAX)) {
            let (key, value) = entry.into_inner()?;
            visit(seq_of(&key)?, &value);
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.entries.rotate_memtable_and_wait()?)
    }

    fn compact(&self) -> Result<()> {
        self.settle()?;
        Ok(self.entries.major_compact()?)
    }
}
