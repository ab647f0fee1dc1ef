//! redb: a copy-on-write B-tree in Rust.

use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use super::{MEMORY, key, seq_of};
use crate::outcome::Result;
use crate::peer::{Op, Transactions};

pub const SETTING: &str = "Durability::Immediate, one-phase commit with checksums (its default); batches by the bench, \
    since it has one writer at a time; 128 MiB cache; a snapshot removes each entry in the same transaction";

const ENTRIES: TableDefinition<&[u8; 16], &[u8]> = TableDefinition::new("entries");

pub struct Redb {
    db: Database,
}

impl Redb {
    pub fn open(dir: &Path) -> Result<Self> {
        let db = Database::builder().set_cache_size(MEMORY).create(dir.join("redb"))?;
        Ok(Self { db })
    }
}

impl Transactions for Redb {
    fn commit(&self, ops: &[Op]) -> Result<()> {
        let mut transaction = self.db.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        {
            let mut entries = transaction.open_table(ENTRIES)?;
            for op in ops {
                entries.insert(&key(op.log, op.seq), op.payload)?;
                for seq in op.first..op.seq {
                    entries.remove(&key(op.log, seq))?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let entries = self.db.begin_read()?.open_table(ENTRIES)?;
        for entry in entries.range::<&[u8; 16]>(&key(log, 0)..=&key(log, u64::MAX))? {
            let (key, value) = entry?;
            visit(seq_of(key.value())?, value.value());
        }
        Ok(())
    }
}
