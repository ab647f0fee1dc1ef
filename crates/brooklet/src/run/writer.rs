//! Writes a run to the heap: its entries go into tables, one after another, each in an extent that
//! the caller allocated.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use brooklet_io::seeded::bug;

use crate::error::Error;
use crate::format::log_hash::LogHash;
use crate::format::run_entry::Out;
use crate::run::table::{Entry, Table, TableBuilder};
use crate::run::table_cache::TableCache;
use crate::volume::allocator::Extent;

/// The writer of a run, with the tables written so far.
pub(crate) struct RunWriter {
    pub id: u64,
    /// The last codex key, if known; empty before the first entry.
    last: Option<Vec<u8>>,
    sealed: Vec<Arc<Table>>,
    open: Option<TableBuilder>,
}

impl RunWriter {
    /// Creates a writer of run `id`. `last` is the last codex key before the first table to write;
    /// empty if there is no such table.
    pub fn new(id: u64, last: Option<Vec<u8>>) -> Self {
        Self { id, last, sealed: Vec::new(), open: None }
    }

    /// Returns the last codex key, if known.
    pub fn last(&self) -> Option<&[u8]> {
        self.last.as_deref()
    }

    /// Returns the bytes of the extents of all tables.
    pub fn held(&self) -> u64 {
        self.sealed_bytes() + self.open.as_ref().map_or(0, |open| open.extent.len)
    }

    /// Returns the approximate number of bytes written so far.
    pub fn written(&self) -> u64 {
        self.sealed_bytes() + self.open.as_ref().map_or(0, TableBuilder::written)
    }

    fn sealed_bytes(&self) -> u64 {
        self.sealed.iter().map(|table| table.meta.extent).sum()
    }

    /// Returns whether the open table has no room for an entry. Returns `false` if no table is
    /// open.
    pub fn is_full_for(&self, entry: &Entry) -> bool {
        self.open.as_ref().is_some_and(|open| !open.holds(entry))
    }

    /// Returns whether a table is open.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Begins a table in `extent`, which must have room for the next entry.
    pub fn open(&mut self, table_cache: &TableCache, extent: Extent) {
        self.open = Some(TableBuilder::new(table_cache, extent, self.id, self.last.take()));
    }

    /// Adds an entry to the open table.
    pub fn add(&mut self, entry: Entry) -> Result<(), BuildError> {
        self.open.as_mut().expect("a segment is begun first").add(&entry).map_err(write_error)?;
        self.last = Some(entry.key);
        Ok(())
    }

    /// Completes the open table, if there is one, and passes the unused rest of its extent to
    /// `give`: the whole extent if the table fails. Returns the bytes of the table's extent.
    pub fn seal(
        &mut self,
        table_cache: &Arc<TableCache>,
        mut give: impl FnMut(Extent),
    ) -> Result<u64, BuildError> {
        let Some(open) = self.open.take() else { return Ok(0) };
        let whole = open.extent;
        let sealed = open.finish().map_err(write_error).and_then(|meta| {
            Table::open(table_cache, self.id, meta).map_err(|error| match error {
                // This is not damage to the store: the device did not write what it confirmed.
                Error::Damaged { place, what } => BuildError::Write(io::Error::other(format!(
                    "{place} does not read back as it was just written: {what}"
                ))),
                error => error.into(),
            })
        });
        let table = sealed.inspect_err(|_| give(whole))?;
        let used = table.extent();
        give(Extent { offset: used.end(), len: whole.len - used.len });
        self.sealed.push(Arc::new(table));
        Ok(used.len)
    }

    /// Returns all tables, once the last table is sealed.
    pub fn into_sealed(self) -> Vec<Arc<Table>> {
        debug_assert!(self.open.is_none(), "a segment is not sealed");
        self.sealed
    }

    /// Returns the extents of all tables, to give them up.
    pub fn into_extents(self) -> impl Iterator<Item = Extent> {
        let open = self.open.map(|open| open.extent);
        self.sealed.into_iter().map(|table| table.extent()).chain(open)
    }
}

/// Codex entries that wait for a table with room for them.
pub(crate) struct Pending {
    filter_seed: u64,
    hash: Option<LogHash>,
    entries: VecDeque<Entry>,
}

impl Pending {
    pub fn new(filter_seed: u64) -> Self {
        Self { filter_seed, hash: None, entries: VecDeque::new() }
    }

    pub fn pop(&mut self) -> Option<Entry> {
        self.entries.pop_front()
    }
}

impl Out for Pending {
    type Error = Infallible;

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Infallible> {
        self.entries.push_back(Entry { key: key.to_vec(), value: value.to_vec(), hash: self.hash.take() });
        Ok(())
    }

    fn log(&mut self, key: &[u8]) {
        if !(bug("filter-forgets") && key.len().is_multiple_of(5)) {
            self.hash = Some(LogHash::new(self.filter_seed, key));
        }
    }
}

/// An error in writing a new run.
#[derive(Debug)]
pub(crate) enum BuildError {
    /// A write to the heap failed. Unless the heap was full, the store must stop.
    Write(io::Error),
    /// A flush or a write of the superblock failed, as the error with the volume describes. The
    /// store must stop, for any reason of the failure.
    Fatal(io::Error),
    /// Any other error, such as damage in read data. The store continues without the new run.
    Other(Error),
}

impl From<Error> for BuildError {
    fn from(error: Error) -> Self {
        BuildError::Other(error)
    }
}

/// Converts an error of a builder: an error of the volume below it, or a defect.
pub(crate) fn write_error(error: brooklet_codex::Error) -> BuildError {
    match error {
        brooklet_codex::Error::Io(source) => BuildError::Write(source),
        other => BuildError::Other(Error::damaged("a run being written", other.to_string())),
    }
}

pub(crate) fn read_error(build_error: BuildError) -> Error {
    match build_error {
        BuildError::Other(error) => error,
        BuildError::Write(error) | BuildError::Fatal(error) => Error::io("reading a run")(error),
    }
}
