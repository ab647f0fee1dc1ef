//! A view in parts, for whoever keeps them elsewhere; and a view of what is kept there.
//!
//! The runs of a view never change, and most of them are those of the view before. So whoever keeps
//! the parts of one view after the other takes over what is new only: about what the store wrote to
//! its heap in between, in as many parts as that has tables, however many logs they hold.
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

use crate::engine::recovery::check_runs;
use crate::error::Error;
use crate::format::manifest::PartName;
use crate::format::manifest::{self, Manifest, TableMeta};
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

/// A part of a view: a [codex](brooklet_codex) file that the view reads from. While it is held, so
/// is its place in the store.
#[derive(Clone)]
pub struct Part(Arc<Table>);

impl Part {
    /// What it is known by.
    pub fn name(&self) -> PartName {
        PartName::of(&self.0.meta)
    }

    /// Whether it is read from elsewhere: see
    /// [`Options::offload_reader`](crate::Options::offload_reader).
    pub fn is_offloaded(&self) -> bool {
        self.0.meta.is_offloaded()
    }

    /// Reads and checks all of it, and reports to `progress`.
    ///
    /// # Errors
    /// [`Error::Damaged`] and [`Error::Io`]; [`Error::Cancelled`] where `progress` returned
    /// `Break`.
    pub fn verify(&self, mut progress: impl FnMut(Progress) -> ControlFlow<()>) -> Result<(), Error> {
        let total = self.0.meta.len;
        let progress = |done: brooklet_codex::Progress| progress(Progress::of_bytes(done.bytes, total));
        self.0.reader()?.verify(progress).map(drop).map_err(|error| self.0.error(error))
    }

    /// Some of its bytes, as they are: whether they are what was written, [`verify`](Self::verify)
    /// tells.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Damaged`] where they pass its end.
    pub fn read(&self, offset: u64, len: usize) -> Result<Bytes, Error> {
        self.0.reader()?.source().read(offset, len).map_err(|error| self.0.error(error.into()))
    }
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Part({})", self.name())
    }
}

impl View {
    /// What it reads from, run after run, the newest first. With the [table](Self::table), that is
    /// all of it.
    pub fn parts(&self) -> Vec<Part> {
        self.runs.iter().flat_map(|run| run.tables.iter().cloned().map(Part)).collect()
    }

    /// How its parts make a view: some hundred bytes for each run, and for each part.
    pub fn table(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.store.to_le_bytes());
        out.extend_from_slice(&self.lsn().to_le_bytes());
        out.extend_from_slice(&self.now.to_le_bytes());
        let mut manifest = self.manifest();
        let tables = manifest.runs.iter_mut().flat_map(|(_, tables)| tables);
        // As if all lay in a store: where they do is no matter.
        tables
            .for_each(|table| (table.offset, table.extent) = (0, table.len.next_multiple_of(SECTOR as u64)));
        out.extend(manifest.encode());
        out
    }

    /// The manifest of its runs.
    pub(crate) fn manifest(&self) -> Manifest {
        let runs = self.runs.iter().map(|run| run.chain(run.dead())).collect();
        Manifest { runs, merging: self.runs.merging().cloned() }
    }

    /// A view of parts that are kept elsewhere: `open` gives the bytes of each. Blocks that
    /// look-ups read are kept in `cache` bytes of memory.
    ///
    /// It is as the view was whose [table](Self::table) this is, also in what is too old by then.
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
    /// A part that `open` reports as damaged, or that cannot be made out, hides nothing else:
    /// [`damage`](Self::damage) names it, and reading a log that may have entries there fails.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the table is not what was written; [`Error::NewerFormat`]; what
    /// `open` fails with.
    pub fn from_parts(
        table: &[u8],
        cache: usize,
        mut open: impl FnMut(PartName) -> Result<Arc<dyn Source>, Error>,
    ) -> Result<Self, Error> {
        let damaged = |what: &str| Error::damaged("a table of parts", what);
        let (head, manifest) = table.split_at_checked(HEAD).ok_or_else(|| damaged("it is cut short"))?;
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
            return Err(damaged("it is cut short"));
        }
        let manifest = Manifest::decode(manifest, manifest::sum_of(manifest)).map_err(damaged)?;
        check_runs(&manifest, u64::MAX)?;
        // What a secret is for is writing, and nothing is written here.
        let table_cache = TableCache::new(Arc::new(MemVolume::new(0)), cache, Some(0), Secret::of_seed(0));
        let open = |run: u64, meta: TableMeta| {
            let opened = open(PartName::of(&meta))
                .and_then(|it| Table::offloaded(&table_cache, run, meta.clone(), it));
            opened.or_else(|error| match error {
                // What can be read of the others is to be; who looks for a log there gets the
                // error.
                Error::Damaged { .. } | Error::NewerFormat { .. } => Ok(Table::broken(run, meta, error)),
                error => Err(error),
            })
        };
        let runs = Arc::new(RunSet::open(&table_cache, &manifest, lsn, open)?);
        let builder = BuilderOptions { filter_seed: store as u64, ..table_cache.builder_options(0) };
        Ok(Self { runs, store, builder, now, process: Process::current(), lost: None })
    }

    /// When it was taken, in milliseconds since the Unix epoch, by the store's clock. The age of
    /// entries is as of then.
    pub fn taken_ms(&self) -> u64 {
        self.now
    }

    /// The id of the store that it is of.
    pub fn store_id(&self) -> u128 {
        self.store
    }
}
