//! LMDB, by heed: a copy-on-write B-tree in a memory map.

use std::ops::Bound::Included;
use std::path::Path;

use heed::types::Bytes;
use heed::{CommitOrAbort, Database, Env, EnvOpenOptions};

use super::{key, seq_of};
use crate::outcome::Result;
use crate::peer::{Op, Transactions};

pub const SETTING: &str = "a sync with each commit (its default); batches by the bench, since it has one writer at a \
    time; its cache is the system's; a snapshot deletes each entry in the same transaction";

/// More than any workload needs; what is not used takes address space only.
const MAP: usize = 64 << 30;

pub struct Lmdb {
    env: Env,
    entries: Database<'static, Bytes, Bytes>,
}

impl Lmdb {
    pub fn open(dir: &Path) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP);
        // SAFETY: the directory is the benchmark's own, and nothing else changes the map's file
        // meanwhile.
        let env = unsafe { options.open(dir)? };
        let create = env.create_databases_and_commit(env.write_txn()?, |opener, transaction| {
            opener.create_database(transaction, None).map(CommitOrAbort::<_, ()>::Commit)
        });
        let entries = create?.unwrap_commit();
        Ok(Self { env, entries })
    }
}

impl Transactions for Lmdb {
    fn commit(&self, ops: &[Op]) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        for op in ops {
            self.entries.put(&mut transaction, &key(op.log, op.seq), op.payload)?;
            for seq in op.first..op.seq {
                self.entries.delete(&mut transaction, &key(op.log, seq))?;
            }
        }
        Ok(transaction.commit()?)
    }

    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let transaction = self.env.read_txn()?;
        let (from, to) = (key(log, 0), key(log, u64::MAX));
        for entry in self.entries.range(&transaction, &(Included(&from[..]), Included(&to[..])))? {
            let (key, value) = entry?;
            visit(seq_of(key)?, value);
        }
        Ok(())
    }

    fn close(self) -> Result<()> {
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
