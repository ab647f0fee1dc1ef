//! The volume of a store that another process has open for writing. Every read is checked: the
//! writer may have freed the space, and filled it with other data.
//!
//! The writer frees the space of a table only after a superblock without that table is on the
//! volume, and writes to freed space only then. So a read of a table is valid if the newest
//! superblock *after* the read still has the table. Data that was read stays valid: tables never
//! change. Reads of other places have checks of their own: blocks of the ring, superblocks.

use std::fmt;
use std::io;
use std::sync::Arc;

use brooklet_io::seeded::bug;
use brooklet_io::{Layer, Volume};

use crate::error::ReplacedData;
use crate::format::manifest::TableMeta;
use crate::sync::{Mutex, held};

/// A table in the heap, with the number of its run.
pub(crate) type Held = (u64, TableMeta);

/// Returns the generation of the newest superblock, and the tables in the heap of its store.
pub(crate) type Look = dyn Fn(&dyn Volume, u64) -> io::Result<Option<(u64, Vec<Held>)>> + Send + Sync;

/// A volume that is read beside its writer.
#[derive(Clone)]
pub(crate) struct Beside {
    below: Arc<dyn Volume>,
    known: Arc<Mutex<Option<Known>>>,
}

/// The tables that the reader knows.
struct Known {
    /// The newest generation that was checked.
    generation: u64,
    /// The tables that the store still has, by offset.
    tables: Vec<Held>,
    /// The tables that it has no more.
    lost: Vec<Held>,
    /// Reads the newest superblock; `None` if its generation is the given one.
    look: Box<Look>,
}

impl Beside {
    pub fn new(below: Arc<dyn Volume>) -> Self {
        Self { below, known: Arc::default() }
    }

    /// Checks all reads from now on: `tables` are the tables of the superblock of this generation.
    pub fn check(&self, generation: u64, mut tables: Vec<Held>, look: Box<Look>) {
        tables.sort_by_key(|(_, table)| table.offset);
        *held(&self.known) = Some(Known { generation, tables, lost: Vec::new(), look });
    }
}

impl Known {
    /// Returns whether the store has lost the table at `offset`.
    fn has_lost(&mut self, volume: &dyn Volume, offset: u64) -> io::Result<bool> {
        if let Some((generation, tables)) = (self.look)(volume, self.generation)? {
            self.generation = generation;
            self.lost.extend(self.tables.extract_if(.., |table| !tables.contains(table)));
            self.lost.sort_by_key(|(_, table)| table.offset);
        }
        let at = self.lost.partition_point(|(_, table)| table.offset <= offset);
        let found = at.checked_sub(1).map(|at| &self.lost[at].1);
        Ok(found.is_some_and(|table| offset < table.offset + table.extent))
    }
}

impl Layer for Beside {
    fn below(&self) -> &dyn Volume {
        &*self.below
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.below.read_at(offset, buf)?;
        let mut known = held(&self.known);
        let Some(known) = known.as_mut().filter(|_| !bug("freed-space-is-read")) else { return Ok(read) };
        if known.has_lost(&*self.below, offset)? { Err(io::Error::other(ReplacedData)) } else { Ok(read) }
    }

    /// The writer flushes its own data.
    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Beside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.below)
    }
}

#[cfg(test)]
mod tests {
    use brooklet_io::{AlignedBuf, MemVolume, SECTOR};

    use super::*;

    /// In the old state, all reads but those of tables were refused, so that a reader of the ring
    /// took it for replaced.
    #[test]
    fn only_reads_of_lost_tables_are_refused() {
        let volume = MemVolume::new(1);
        volume.grow(1 << 20).unwrap();
        let table = |offset, extent| (1, TableMeta { offset, extent, ..TableMeta::default() });
        let (kept, lost) = (table(64 << 10, 8 << 10), table(96 << 10, 8 << 10));
        let beside = Beside::new(Arc::new(volume));
        let left = vec![kept.clone()];
        let look = move |_: &dyn Volume, known| Ok((known < 2).then(|| (2, left.clone())));
        beside.check(1, vec![lost, kept], Box::new(look));
        let mut sector = AlignedBuf::zeroed(SECTOR);
        for (offset, is_refused) in
            [(0, false), (64 << 10, false), (96 << 10, true), (104 << 10, false), (512 << 10, false)]
        {
            let read = Layer::read_at(&beside, offset, &mut sector);
            assert_eq!(read.is_err(), is_refused, "at {offset}");
        }
    }
}
