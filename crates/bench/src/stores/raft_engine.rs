//! raft-engine: a log for each raft group, all in shared files, with an index of every entry in
//! memory.

use std::path::Path;

use protobuf::well_known_types::BytesValue;
use raft_engine::{Command, Config, Engine, LogBatch, MessageExt, ReadableSize};

use crate::outcome::Result;
use crate::peer::{Op, Transactions};

pub const SETTING: &str = "write with sync; its own write groups merge waiting threads, the bench's batches \
    callbacks; log files are written with zeros beforehand; a snapshot compacts the log in the same batch; batches over \
    8 KiB are compressed (LZ4)";

/// Entries of a batch at most: reading one of them decompresses all.
const BATCH: usize = 256;

pub struct RaftEngine {
    engine: Engine,
}

/// Entries as raft-engine takes them: a protobuf message that knows its index, here as its first
/// eight bytes.
struct Entries;

impl MessageExt for Entries {
    type Entry = BytesValue;

    fn index(entry: &BytesValue) -> u64 {
        u64::from_be_bytes(entry.value[..8].try_into().expect("eight bytes"))
    }
}

impl RaftEngine {
    pub fn open(dir: &Path) -> Result<Self> {
        let dir = dir.to_str().ok_or("raft-engine wants a path in UTF-8")?.to_owned();
        // A file that was written before takes no change of its extents with each sync. Only for a
        // new store: making more of them would be no part of opening one.
        let prefill_for_recycle = std::fs::read_dir(&dir)?.next().is_none();
        let prefill_limit = Some(ReadableSize::mb(256));
        Ok(Self {
            engine: Engine::open(Config { dir, prefill_for_recycle, prefill_limit, ..Config::default() })?,
        })
    }
}

impl Transactions for RaftEngine {
    const GROUPS: bool = true;

    fn commit(&self, ops: &[Op]) -> Result<()> {
        let mut batches = ops.chunks(BATCH).peekable();
        while let Some(ops) = batches.next() {
            let mut batch = LogBatch::with_capacity(ops.len());
            for op in ops {
                let mut entry = BytesValue::new();
                entry.value = [&op.seq.to_be_bytes(), op.payload].concat();
                batch.add_entries::<Entries>(op.log, &[entry])?;
                if op.is_snapshot() {
                    batch.add_command(op.log, Command::Compact { index: op.seq });
                }
            }
            // The sync after the last keeps what came before.
            self.engine.write(&mut batch, batches.peek().is_none())?;
        }
        Ok(())
    }

    fn read(&self, log: u64, visit: &mut dyn FnMut(u64, &[u8])) -> Result<()> {
        let bounds = self.engine.first_index(log).zip(self.engine.last_index(log));
        let Some((first, last)) = bounds else { return Ok(()) };
        let mut entries = Vec::new();
        self.engine.fetch_entries_to::<Entries>(log, first, last + 1, None, &mut entries)?;
        entries.iter().for_each(|entry| visit(Entries::index(entry), &entry.value[8..]));
        Ok(())
    }

    fn settle(&self) -> Result<()> {
        self.engine.purge_expired_files()?;
        Ok(())
    }
}
