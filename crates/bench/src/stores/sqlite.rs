//! SQLite.

use std::path::Path;
use std::sync::{Mutex, MutexGuard};

use rusqlite::{Connection, params};

use super::MEMORY;
use crate::outcome::Result;
use crate::peer::{Op, Transactions};

pub const SETTING: &str = "WAL, synchronous=FULL, exclusive locking, checkpoints every 64 MiB, 128 MiB cache; batches by \
    the bench, since it has one writer at a time; a table without row ids; a snapshot deletes the range in the same \
    transaction";

pub struct Sqlite {
    connection: Mutex<Connection>,
}

impl Sqlite {
    pub fn open(dir: &Path) -> Result<Self> {
        let connection = Connection::open(dir.join("sqlite"))?;
        connection.execute_batch(&format!(
            "PRAGMA locking_mode = EXCLUSIVE;
             PRAGMA journal_mode = WAL;
             PRAGMA synchronous = FULL;
             PRAGMA wal_autocheckpoint = {};
             PRAGMA cache_size = -{};
             CREATE TABLE IF NOT EXISTS entries (
                 log INTEGER NOT NULL, seq INTEGER NOT NULL, payload BLOB NOT NULL, PRIMARY KEY (log, seq)
             ) WITHOUT ROWID;",
            (64 << 20) / 4096,
            MEMORY >> 10
        ))?;
        Ok(Self { connection: Mutex::new(connection) })
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().expect("no panics")
    }
}

impl Transactions for Sqlite {
    fn commit(&self, ops: &[Op]) -> Result<()> {
        let mut connection = self.connection();
        let transaction = connection.transaction()?;
        {
            let mut insert = transaction.prepare_cached("INSERT INTO entries VALUES (?1, ?2, ?3)")?;
            let mut trim = transaction.prepare_cached("DELETE FROM entries WHERE log = ?1 AND seq < ?2")?;
            for op in ops {
                insert.execute(params![op.log as i64, op.seq as i64, op.payload])?;
                if op.is_snapshot() {
                    trim.execute(params![op.log as i64, op.seq as i64])?;
                }
            }
        }
        Ok(transaction.commit()?)
    }

    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let connection = self.connection();
        let mut select =
            connection.prepare_cached("SELECT seq, payload FROM entries WHERE log = ?1 ORDER BY seq")?;
        let mut rows = select.query(params![log as i64])?;
        while let Some(row) = rows.next()? {
            visit(row.get::<_, i64>(0)? as u64, row.get_ref(1)?.as_blob()?);
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.connection().query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?)
    }

    fn close(self) -> Result<()> {
        let connection = self.connection.into_inner().expect("no panics");
        connection.close().map_err(|(_, error)| error.into())
    }
}
