//! RocksDB.

use std::path::Path;

use rocksdb::{
    BlockBasedOptions, Cache, DB, DBCompressionType, Direction, IteratorMode, Options, WriteBatch,
    WriteOptions,
};

use super::{MEMORY, key, seq_of};
use crate::outcome::Result;
use crate::peer::{Op, Transactions};

pub const SETTING: &str = "write with sync; its own write groups merge waiting threads, the bench's batches callbacks; \
    log files are used again, LZ4, bloom filters, 64 MiB memtables, 128 MiB block cache; a snapshot deletes each entry \
    once (SingleDelete) in the same batch";

pub struct Rocksdb {
    db: DB,
    durable: WriteOptions,
}

impl Rocksdb {
    pub fn open(dir: &Path) -> Result<Self> {
        let mut blocks = BlockBasedOptions::default();
        blocks.set_block_cache(&Cache::new_lru_cache(MEMORY));
        blocks.set_bloom_filter(10.0, false);
        let mut options = Options::default();
        options.create_if_missing(true);
        options.set_block_based_table_factory(&blocks);
        options.set_compression_type(DBCompressionType::Lz4);
        // A log file that is written over needs no new size in its inode with each sync.
        options.set_recycle_log_file_num(4);
        options.increase_parallelism(std::thread::available_parallelism()?.get() as i32);
        let mut durable = WriteOptions::default();
        durable.set_sync(true);
        Ok(Self { db: DB::open(&options, dir)?, durable })
    }
}

impl Transactions for Rocksdb {
    const GROUPS: bool = true;

    fn commit(&self, ops: &[Op]) -> Result<()> {
        let mut batch = WriteBatch::default();
        for op in ops {
            batch.put(key(op.log, op.seq), op.payload);
            (op.first..op.seq).for_each(|seq| batch.single_delete(key(op.log, seq)));
        }
        Ok(self.db.write_opt(batch, &self.durable)?)
    }

    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let (from, to) = (key(log, 0), key(log, u64::MAX));
        let mut options = rocksdb::ReadOptions::default();
        options.set_iterate_upper_bound(to);
        for entry in self.db.iterator_opt(IteratorMode::From(&from, Direction::Forward), options) {
            let (key, value) = entry?;
            visit(seq_of(&key)?, &value);
        }
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        Ok(self.db.flush()?)
    }

    fn compact(&self) -> Result<()> {
        self.settle()?;
        self.db.compact_range::<&[u8], &[u8]>(None, None);
        Ok(())
    }
}
