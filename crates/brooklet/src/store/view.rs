//! A view of a whole store: all logs as they are at one moment, regardless of later commits.
//!
//! Runs never change. A checkpoint writes the store as it was at the cut of the checkpoint,
//! regardless of later commits. So the runs after a checkpoint hold each log with all commits up to
//! the cut and no later one. A view pins these runs. Commits and merging continue. The store
//! reuses the extents of the runs of a view once the view is dropped.
//!
//! A store that is open for reading only takes no checkpoint. The view then turns the recovered
//! memtable into a run in memory.

use std::ops::RangeBounds;
use std::sync::Arc;

use brooklet_codex::{Builder, BuilderOptions};
use brooklet_io::{MemVolume, Process, SECTOR};

use crate::engine::Inner;
use crate::error::{Error, KeyText};
use crate::format::manifest::TableMeta;
use crate::format::run_entry::PieceWriter;
use crate::maintenance::merge::{Input, matters};
use crate::memtable::sort::IncrementalSort;
use crate::memtable::{LogState, Memtable};
use crate::model::Bounds;
use crate::model::key::check_key;
use crate::model::keyed_hash::Secret;
use crate::read::asked::Asked;
use crate::read::scan::{Listed, Logs};
use crate::read::{Entries, ReadView};
use crate::run::dead_entries::DeadEntries;
use crate::run::table::Table;
use crate::run::table_cache::TableCache;
use crate::run::writer::Pending;
use crate::run::writer::read_error;
use crate::run::{Run, RunSet};
use crate::state::lost::{self, Lost, is_proven};
use crate::store::Store;
use crate::store::walk::Walk;

/// Bytes of memory for look-ups in a run that is in memory.
const LOOK_UPS: usize = 8 << 20;

/// A view of all logs of a store as they are at one moment; see [`Store::view`].
///
/// ```
/// # fn main() -> Result<(), brooklet::Error> {
/// # let store = brooklet::Store::in_memory(1)?;
/// store.append_many("doc", ["a", "b"])?.wait()?;
/// let view = store.view()?;
/// store.delete("doc")?.wait()?;
/// store.compact()?;
/// assert_eq!(view.bounds("doc")?.next, 2);
/// assert_eq!(view.read("doc", ..)?.map(|entry| entry.unwrap().payload).collect::<Vec<_>>(), ["a", "b"]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct View {
    pub(crate) runs: Arc<RunSet>,
    /// The store's id.
    pub(crate) store: u128,
    /// The options of the exported tables.
    pub(crate) builder: BuilderOptions,
    /// The time at which the age of entries is judged.
    pub(crate) now: u64,
    /// The effect of damage in the ring on the view, which ends listings and walks.
    pub(crate) lost: Option<Arc<Lost>>,
    /// The process that took the view.
    pub(crate) process: Process,
    /// Whether walks may start a thread.
    pub(crate) threads: bool,
}

impl Store {
    /// Takes a view of all logs as they are at one moment. The view contains all writes that were
    /// acknowledged before the call. The view contains later commits up to one [place](View::lsn)
    /// in the log, and each commit whole or not at all. Later changes of the store do not change
    /// the view.
    ///
    /// The call takes a [checkpoint](Self::checkpoint); commits continue meanwhile. While a view
    /// exists, the store does not reuse the space of its runs.
    ///
    /// # Errors
    /// The same errors as [`checkpoint`](Self::checkpoint): [`Error::Full`] if no room is left,
    /// [`Error::Stopped`] if the store has stopped writing.
    pub fn view(&self) -> Result<View, Error> {
        let _span = tracing::debug_span!("view").entered();
        let inner = self.inner();
        let (runs, now, lost) = match &inner.wal {
            Some(_) => {
                let witness = inner.sound_state()?.subscribers.witness(inner.options.clock.clone());
                self.checkpoint()?;
                // All blocks that are durable by now have reached the state, and the witness knows
                // them.
                let state = inner.state();
                let (runs, now) = (state.runs.clone(), inner.now());
                drop(state);
                let now = witness.last_at(runs.lsn(), now);
                (runs, now, None)
            }
            None => {
                let (runs, lost) = unchanging(inner)?;
                (runs, inner.now(), lost)
            }
        };
        let store = inner.maintenance().superblock.id;
        // The seed of the store's own filters stays private. With this seed, the same logs make the
        // same file.
        let builder = BuilderOptions { filter_seed: store as u64, ..inner.table_cache.builder_options(0) };
        let (process, threads) = (inner.process, inner.options.threads);
        Ok(View { runs, store, builder, now, process, lost, threads })
    }
}

impl View {
    /// Returns [`Error::Forked`] in a process that did not take the view.
    pub(crate) fn here(&self) -> Result<(), Error> {
        if self.process.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Returns the place in the log up to which the view contains all commits, in bytes that were
    /// ever committed to the log.
    pub fn lsn(&self) -> u64 {
        self.runs.lsn()
    }

    /// Lists the logs whose keys start with `prefix`, in key order.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Io`] if runs cannot be read. The other calls return the same
    /// errors.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Result<Logs, Error> {
        self.scan_from(prefix.as_ref(), b"")
    }

    /// Lists the same logs, with keys from `from` on.
    pub(crate) fn scan_from(&self, prefix: &[u8], from: &[u8]) -> Result<Logs, Error> {
        self.here()?;
        let logs = Logs::of_runs(&self.runs, Listed::new(prefix, from), self.now)?;
        Ok(logs.ending(self.lost.as_ref().map(|lost| lost.error())))
    }

    /// Reads entries of a log, like [`Store::read`].
    ///
    /// # Errors
    /// The same errors as [`Store::read`].
    pub fn read(&self, key: impl AsRef<[u8]>, range: impl RangeBounds<u64>) -> Result<Entries, Error> {
        self.here()?;
        let key = key.as_ref();
        check_key(key)?;
        ReadView::of_runs_around(self.runs.clone(), self.lost.as_ref(), key, self.now)
            .entries(key, &Asked::exactly(&range))
    }

    /// Returns the log's first and next numbers.
    ///
    /// # Errors
    /// [`Error::UnknownLog`].
    pub fn bounds(&self, key: impl AsRef<[u8]>) -> Result<Bounds, Error> {
        let key = key.as_ref();
        check_key(key)?;
        self.here()?;
        let state = self.runs.state(key)?;
        if let Some(doubt) = self.lost.as_ref().and_then(|lost| lost.doubt(key)) {
            return Err(doubt.error(key, state.bounds.map(|bounds| bounds.next)));
        }
        let shown = state.shown(self.now);
        shown.ok_or_else(|| Error::UnknownLog { key: KeyText::of(key) })
    }

    /// Reads all entries of the logs whose keys start with `prefix`, log after log in key order.
    /// The walk reads the runs from front to back, which is many times as fast as reading log by
    /// log. It reads at most some 400 KiB of each run ahead. After the first MiB, a thread of its
    /// own reads ahead, unless the store has [no threads](crate::Options::threads).
    ///
    /// ```
    /// # fn main() -> Result<(), brooklet::Error> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// use brooklet::WalkItem;
    ///
    /// store.append_many("doc/1", ["a", "b"])?.wait()?;
    /// store.append("doc/2", "c")?.wait()?;
    /// for walked in store.view()?.walk("doc/")? {
    ///     match walked? {
    ///         WalkItem::Log(log) => println!("{:?} from {} on", log.key, log.bounds.first),
    ///         WalkItem::Entry(entry) => println!("  {}: {:?}", entry.seq, entry.payload),
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The same errors as [`scan`](Self::scan).
    pub fn walk(&self, prefix: impl AsRef<[u8]>) -> Result<Walk, Error> {
        self.here()?;
        Walk::new(self, prefix.as_ref())
    }

    /// Returns an error if [damage in the ring](crate::Options::read_only) hides a part of the
    /// view. Call it before you make something of the view that others take for complete. Copies,
    /// imports, backups and exports do so too.
    ///
    /// # Errors
    /// [`Error::Damaged`].
    pub fn expect_whole(&self) -> Result<(), Error> {
        self.lost.as_ref().map_or(Ok(()), |lost| Err(lost.error()))
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View(up to {})", self.lsn())
    }
}

/// Returns all runs of a store that is open for reading only, and the effect of damage on them.
fn unchanging(inner: &Inner) -> Result<(Arc<RunSet>, Option<Arc<Lost>>), Error> {
    let mut state = inner.state();
    if state.frozen.is_none() {
        // Without writers, the active and the frozen memtable serve equally.
        state.freeze_for_good(inner.options.seed);
    }
    let (memtable, runs) = (state.frozen.clone().expect("it was just put there"), state.runs.clone());
    let lost = lost::of(&state.lost).cloned();
    drop(state);
    let mut id = runs.iter().map(|run| run.meta.id).max().unwrap_or(0);
    let mut all = runs;
    let behind = lost.as_ref().map(|lost| lost.behind.clone());
    for (memtable, wanted) in [(Some(memtable), None), (behind, Some(is_proven as fn(&LogState) -> bool))] {
        let wanted = |log: &LogState| wanted.is_none_or(|wanted| wanted(log));
        let Some(memtable) = memtable.filter(|memtable| memtable.logs.iter().any(wanted)) else { continue };
        id += 1;
        let run = run_of_some(memtable, id, &inner.table_cache.builder_options(id), wanted)?;
        all = Arc::new(all.with(Arc::new(run), inner.recovery.next.lsn));
    }
    Ok((all, lost))
}

/// Makes a run in memory from a memtable.
pub(crate) fn run_of(memtable: Arc<Memtable>, id: u64, builder: &BuilderOptions) -> Result<Run, Error> {
    run_of_some(memtable, id, builder, |_| true)
}

/// Makes a run in memory from the `wanted` logs of a memtable.
fn run_of_some(
    memtable: Arc<Memtable>,
    id: u64,
    builder: &BuilderOptions,
    wanted: impl Fn(&LogState) -> bool,
) -> Result<Run, Error> {
    let mut order = IncrementalSort::default();
    while order.step(&memtable, |log| matters(log, false) && wanted(log)) {}
    let mut input = Input::memtable(memtable, order, DeadEntries::new(&RunSet::default()));
    let mut codex = Builder::new(Vec::new(), BuilderOptions { id, ..builder.clone() });
    let mut out = PieceWriter::new(Pending::new(builder.filter_seed));
    let mut first = None;
    let defect = |error: brooklet_codex::Error| Error::damaged("the recent tier", error.to_string());
    while input.step(&mut out).map_err(read_error)?.is_some() {
        while let Some(entry) = out.out().pop() {
            entry.hash.into_iter().for_each(|hash| codex.add_filter(hash.filter));
            codex.add(&entry.key, &entry.value).map_err(defect)?;
            first.get_or_insert(entry.key);
        }
    }
    let (summary, mut image) = codex.finish().map_err(defect)?;
    // Extents consist of whole sectors, and are read in whole sectors.
    image.resize(image.len().next_multiple_of(SECTOR), 0);
    let extent = image.len() as u64;
    // This table cache neither writes nor remembers data, so its random choices do not matter.
    let volume = Arc::new(MemVolume::from_image(image, id));
    let table_cache = TableCache::new(volume, Some(LOOK_UPS), Some(0), Secret::of_seed(id));
    let meta = TableMeta {
        offset: 0,
        len: summary.len,
        extent,
        footer_sum: summary.footer_sum,
        first: first.unwrap_or_default(),
    };
    let table = Table::open(&table_cache, id, meta)?;
    Ok(Run::new(&table_cache, out.meta(id, 0), vec![Arc::new(table)], &[]))
}
