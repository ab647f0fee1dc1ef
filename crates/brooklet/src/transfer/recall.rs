//! Recall: offloaded runs return to the store's file, the newest first.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;

use brooklet_io::{AlignedBuf, Persist, SECTOR, write_all_at};

use crate::engine::Inner;
use crate::error::Error;
use crate::format::manifest::TableMeta;
use crate::model::progress::Progress;
use crate::run::table::Table;
use crate::run::writer::BuildError;
use crate::run::{Run, RunSet};
use crate::store::Store;
use crate::volume::allocator::Extent;

/// Bytes that are copied at once.
const AT_ONCE: usize = 1 << 20;
/// Bytes that are written before a flush. A checkpoint flushes the volume, too, and commits may
/// wait for it: so it must not find more than this.
const FLUSH: usize = 32 << 20;
const WHAT: &str = "the recall of offloaded runs";

/// The result of [`Store::recall`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecallReport {
    /// Number of runs that returned.
    pub runs: usize,
    /// Number of parts of these runs.
    pub parts: usize,
    /// Size of these parts, in bytes.
    pub bytes: u64,
    /// Size of the runs that are still offloaded, in bytes. If it is 0, the store opens without
    /// [`Options::offload_reader`](crate::Options::offload_reader).
    pub left: u64,
}

impl Store {
    /// Brings [offloaded](Self::offload) runs back to the store's volume, whole runs, the newest
    /// first, as long as the runs on the volume take at most `most` bytes. Afterwards, the store
    /// merges them as any other run.
    ///
    /// The store stays in use meanwhile. The call reads each part by
    /// [`Options::offload_reader`](crate::Options::offload_reader), writes it, and reads it back to
    /// check it. It reports to `progress`. If `progress` returns `Break`, the call ends; the runs
    /// that returned before stay. A process that is killed continues with the next run at the next
    /// call.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// # use std::collections::HashMap;
    /// # use std::sync::Arc;
    /// use brooklet::Progress;
    /// # use brooklet::codex::Source;
    /// # store.append_many("doc", ["a", "b"])?.wait()?;
    /// # let mut offloaded = HashMap::new();
    /// # for part in store.view()?.parts() {
    /// #     offloaded.insert(part.name(), part.read(0, part.name().len as usize)?);
    /// # }
    /// # let kept = |name| Some(Arc::new(offloaded.get(&name)?.clone()) as Arc<dyn Source>);
    /// # store.offload(0, kept, Progress::ignore)?;
    ///
    /// // All runs of the store are offloaded.
    /// let recalled = store.recall(u64::MAX, Progress::ignore)?;
    /// assert_eq!((recalled.runs, recalled.left), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Damaged`] if a part is not as the store wrote it, and [`Error::Io`] if it cannot be
    /// read: the run then stays offloaded. [`Error::Full`] if the volume has no room for the run;
    /// [`Error::ReadOnly`]; [`Error::Stopped`].
    pub fn recall(
        &self,
        most: u64,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<RecallReport, Error> {
        let inner = self.inner();
        inner.writable()?;
        let (mut recalled, mut total) = (RecallReport::default(), None);
        loop {
            let runs = inner.state().runs.clone();
            let here: u64 = runs.here().iter().map(|run| run.bytes()).sum();
            let (left, fits) = offloaded(&runs, most.saturating_sub(here));
            recalled.left = left;
            let total = *total.get_or_insert(fits);
            let next =
                runs.iter().nth(runs.here().len()).filter(|run| room_of(run) <= most.saturating_sub(here));
            let Some(run) = next.cloned() else { return Ok(recalled) };
            drop(runs);
            let mut written = Recalled::new(inner);
            for table in &run.tables {
                let before = recalled.bytes + written.bytes;
                let told = &mut |bytes| progress(Progress::of_bytes(before + bytes, total));
                match written.write(&run, table, told) {
                    Err(Error::Cancelled { .. }) => return Ok(recalled),
                    wrote => wrote?,
                }
            }
            let (parts, bytes) = (run.tables.len(), written.bytes);
            let context = inner.context()?;
            let tables = mem::take(&mut written.tables);
            let checkpoint = inner.options.memory_budget as u64 / 2;
            if inner.maintenance().take_back(&context, &run, tables, checkpoint)? {
                recalled.runs += 1;
                recalled.parts += parts;
                recalled.bytes += bytes;
            }
        }
    }
}

/// Returns the bytes of all offloaded runs, and of the newest of them that `room` bytes hold.
fn offloaded(runs: &RunSet, room: u64) -> (u64, u64) {
    let (mut room, mut fits, mut whole) = (room, 0, true);
    let left = runs.iter().skip(runs.here().len()).map(|run| {
        whole &= room_of(run) <= room;
        if whole {
            room -= room_of(run);
            fits += run.len();
        }
        run.len()
    });
    (left.sum(), fits)
}

/// Returns the bytes that the run will take in the heap.
fn room_of(run: &Run) -> u64 {
    run.tables.iter().map(|table| table.meta.len.next_multiple_of(SECTOR as u64)).sum()
}

/// The tables of a run that are written to the heap. Their extents are freed, unless the tables
/// were taken.
struct Recalled<'a> {
    inner: &'a Inner,
    tables: Vec<Arc<Table>>,
    bytes: u64,
    unflushed: usize,
}

impl<'a> Recalled<'a> {
    fn new(inner: &'a Inner) -> Self {
        Self { inner, tables: Vec::new(), bytes: 0, unflushed: 0 }
    }

    /// Copies one table of the run to the heap, and checks the copy.
    fn write(
        &mut self,
        run: &Run,
        table: &Table,
        told: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let inner = self.inner;
        let len = table.meta.len.next_multiple_of(SECTOR as u64);
        let context = inner.context()?;
        let extent = inner.maintenance().extent_of(&context, WHAT, len)?;
        let written = self.copy(table, extent, told).and_then(|()| {
            let meta = TableMeta { offset: extent.offset, extent: extent.len, ..table.meta.clone() };
            let written = Table::open(&inner.table_cache, run.meta.id, meta)?;
            written.verify(None, &mut |_| ControlFlow::Continue(()))?;
            Ok(written)
        });
        let mut maintenance = inner.maintenance();
        match written {
            Ok(written) => {
                maintenance.stats.heap_written_bytes += extent.len;
                self.bytes += table.meta.len;
                self.tables.push(Arc::new(written));
                Ok(())
            }
            Err(error) => {
                maintenance.heap.give(extent);
                Err(error)
            }
        }
    }

    fn copy(
        &mut self,
        table: &Table,
        extent: Extent,
        told: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let (volume, mut at) = (&self.inner.volumes.data, 0);
        let mut buf = AlignedBuf::new(AT_ONCE);
        while at < table.meta.len {
            self.inner.here()?;
            let len = (table.meta.len - at).min(AT_ONCE as u64);
            let data = table.read(at, len as usize)?;
            buf.clear();
            buf.extend(&data);
            buf.pad();
            write_all_at(&**volume, extent.offset + at, &buf, Persist::Cached)
                .map_err(|error| self.failed(BuildError::Write(error)))?;
            at += len;
            self.unflushed += buf.len();
            if self.unflushed >= FLUSH {
                self.unflushed = 0;
                volume.flush().map_err(|error| self.failed(BuildError::Fatal(error)))?;
            }
            if told(at).is_break() {
                return Err(Error::Cancelled { what: WHAT });
            }
        }
        Ok(())
    }

    /// Returns the error of the call. Stops the store if necessary.
    fn failed(&self, build_error: BuildError) -> Error {
        match self.inner.context() {
            Ok(context) => self.inner.maintenance().import_failed(&context, WHAT, build_error),
            Err(error) => error,
        }
    }
}

impl Drop for Recalled<'_> {
    fn drop(&mut self) {
        if !self.tables.is_empty() && self.inner.here().is_ok() {
            self.inner.maintenance().give_up_tables(mem::take(&mut self.tables));
        }
    }
}
