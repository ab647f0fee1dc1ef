//! Splits a view into parts that can be stored outside the store, and builds a view from such
//! parts.
//!
//! The runs of a view never change, and two successive views share most of their runs. A caller
//! that stores the parts of successive views therefore copies only the new parts. Their size is
//! about the number of bytes that the store wrote to its heap between the two views. Their number
//! is the number of new tables, however many logs the tables hold.
//!
//! ```text
//! table of parts (little endian)
//!    0  8  "BRKPARTS"
//!    8  4  version, 1
//!   12 16  id of the store
//!   28  8  up to where in its log each log is as commits left it
//!   36  8  when the view was taken, in milliseconds since the Unix epoch
//!   44  …  a manifest (`format/manifest.rs`), whose tables are the parts; their offsets are 0
//! ```

use std::fmt;
use std::sync::Arc;

use brooklet_codex::{BuilderOptions, Source};
use brooklet_io::{MemVolume, Process, SECTOR};
use bytes::Bytes;

use crate::error::Error;
use crate::format::manifest::PartName;
use crate::format::manifest::{self, Manifest, TableMeta};
use crate::format::manifest_check::check_runs;
use crate::model::keyed_hash::Secret;
use crate::model::progress::Progress;
use crate::run::RunSet;
use crate::run::table::Table;
use crate::run::table_cache::TableCache;
use crate::store::view::View;
use std::ops::ControlFlow;

const MAGIC: &[u8; 8] = b"BRKPARTS";
const VERSION: u32 = 1;
/// Bytes before the manifest.
const HEAD: usize = 44;

/// A part of a view: a [codex](brooklet_codex) file that the view reads from. The store does not
/// reuse the space of the part while a `Part` refers to it.
#[derive(Clone)]
pub struct Part(Arc<Table>);

impl Part {
    /// Returns the name that identifies the part.
    pub fn name(&self) -> PartName {
        PartName::of(&self.0.meta)
    }

    /// Returns whether the part was offloaded; see
    /// [`Options::offload_reader`](crate::Options::offload_reader).
    pub fn is_offloaded(&self) -> bool {
        self.0.meta.is_offloaded()
    }

    /// Reads and checks the whole part, and reports to `progress`.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Io`]; [`Error::Cancelled`] if `progress` returned `Break`.
    pub fn verify(&self, mut progress: impl FnMut(Progress) -> ControlFlow<()>) -> Result<(), Error> {
        let total = self.0.meta.len;
        let progress = |done: brooklet_codex::Progress| progress(Progress::of_bytes(done.bytes, total));
        self.0.reader()?.verify(progress).map(drop).map_err(|error| self.0.error(error))
    }

    /// Reads `len` bytes of the part from `offset` on, without checking them.
    /// [`verify`](Self::verify) checks the part.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] if the range ends past the end of the part.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        self.0.read(offset, len)
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({})", self.name())
    }
}

impl View {
    /// Returns the parts that the view reads from, run after run, the newest run first. The parts
    /// and the [table](Self::table) together are the whole view.
    pub fn parts(&self) -> Vec<Part> {
        self.runs.iter().flat_map(|run| run.tables.iter().cloned().map(Part)).collect()
    }

    /// Returns the table that [`from_parts`](Self::from_parts) needs to build this view from its
    /// parts. The table takes some hundred bytes for each run and for each part.
    pub fn table(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&self.lsn().to_le_bytes());
        out.extend_from_slice(&self.now.to_le_bytes());
        let mut manifest = self.manifest();
        let tables = manifest.runs.iter_mut().flat_map(|(_, tables)| tables);
        // The table encodes all parts as if they were in a store: their real place does not matter.
        tables
            .for_each(|table| (table.offset, table.extent) = (0, table.len.next_multiple_of(SECTOR as u64)));
        out.extend(manifest.encode());
        out
    }

    /// Returns the manifest of the view's runs.
    pub(crate) fn manifest(&self) -> Manifest {
        let runs = self.runs.counted().map(|(run, dead)| run.chain(dead)).collect();
        Manifest { runs, merging: self.runs.merging().cloned() }
    }

    /// Builds a view from parts that are stored elsewhere. `open` returns the bytes of each part.
    /// The view caches the blocks that look-ups read, in at most `cache` bytes of memory.
    ///
    /// The new view is equal to the view whose [table](Self::table) is passed. The age of entries
    /// is also as of the time of that view.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// use std::collections::HashMap;
    /// use std::sync::Arc;
    /// use brooklet::{Progress, View};
    ///
    /// store.append_many("doc", ["a", "b"])?.wait()?;
    /// let view = store.view()?;
    /// let (table, mut kept) = (view.table(), HashMap::new());
    /// for part in view.parts() {
    ///     part.verify(Progress::ignore)?;
    ///     kept.insert(part.name(), part.read(0, part.name().len as usize)?);
    /// }
    ///
    /// let offloaded = View::from_parts(&table, 1 << 20, |name| Ok(Arc::new(kept[&name].clone())))?;
    /// assert_eq!(offloaded.bounds("doc")?.next, 2);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If `open` reports a part as damaged, or if a part cannot be decoded, all other parts stay
    /// readable. [`damage`](Self::damage) names the damaged part. Reading a log that may have
    /// entries in that part fails.
    ///
    /// # Errors
    /// [`Error::Damaged`] if the table is not as written; [`Error::NewerFormat`]; any error of
    /// `open`.
    pub fn from_parts(
        table: &[u8],
        cache: usize,
        mut open: impl FnMut(PartName) -> Result<Arc<dyn Source>, Error>,
    ) -> Result<Self, Error> {
        let damaged = |what: &str| Error::damaged("a table of parts", what);
        let (head, manifest) = table.split_at_checked(HEAD).ok_or_else(|| damaged("it is truncated"))?;
        if head[..8] != *MAGIC {
            return Err(damaged("the magic bytes are missing"));
        }
        let bytes = |at: usize| head[at..at + 8].try_into().expect("eight bytes");
        let version = u32::from_le_bytes(head[8..12].try_into().expect("four bytes"));
        if version != VERSION {
            let name = "a table of parts".into();
            return Err(Error::NewerFormat { name, found: version, known: VERSION });
        }
        let (lsn, now) = (u64::from_le_bytes(bytes(28)), u64::from_le_bytes(bytes(36)));
        let store = u128::from_le_bytes(head[12..28].try_into().expect("sixteen bytes"));
        if manifest.len() < 8 {
            return Err(damaged("it is truncated"));
        }
        let manifest = Manifest::decode(manifest, manifest::sum_of(manifest)).map_err(damaged)?;
        check_runs(&manifest, u64::MAX)?;
        // The secret is used only for writing, and this view writes nothing.
        let table_cache =
            TableCache::new(Arc::new(MemVolume::new(0)), Some(cache), Some(0), Secret::of_seed(0));
        let open = |run: u64, meta: TableMeta| {
            let opened = open(PartName::of(&meta))
                .and_then(|it| Table::offloaded(&table_cache, run, meta.clone(), it));
            opened.or_else(|error| match error {
                // The other parts stay readable. A look-up that needs this part returns the error.
                Error::Damaged { .. } | Error::NewerFormat { .. } => Ok(Table::broken(run, meta, error)),
                error => Err(error),
            })
        };
        let runs = Arc::new(RunSet::open(&table_cache, &manifest, lsn, open)?);
        let builder = BuilderOptions { filter_seed: store as u64, ..table_cache.builder_options(0) };
        Ok(Self { runs, store, builder, now, process: Process::current(), lost: None, threads: false })
    }

    /// Returns the time at which the view was taken, in milliseconds since the Unix epoch, by the
    /// store's clock. The age of entries is as of that time.
    pub fn taken_ms(&self) -> u64 {
        self.now
    }

    /// Returns the id of the store from which the view was taken.
    pub fn store_id(&self) -> u128 {
        self.store
    }
}
