//! A view of a whole store: all logs as they are at one moment, whatever becomes of them.
//!
//! Runs never change, and a checkpoint writes what the store was at its cut, whatever is committed
//! meanwhile. So the runs that a checkpoint leaves behind hold each log as all commits up to the
//! cut made it, and no later one: a view is these, pinned. Writers go on. Merging goes on, too;
//! extents of runs that a view holds are used again once it is gone.
//!
//! A store that is open for reading only takes no checkpoint. What recovery brought is then made a
//! run in memory.

use std::iter::FusedIterator;
use std::ops::RangeBounds;
use std::sync::Arc;

use brooklet_codex::{Builder, BuilderOptions};
use brooklet_io::{MemVolume, Process, SECTOR};
use bytes::Bytes;

use crate::engine::Inner;
use crate::error::{Error, KeyText};
use crate::format::manifest::{RunMeta, TableMeta};
use crate::format::run_entry::{Chunk, Head, PieceWriter, split_key};
use crate::maintenance::merge::{Input, matters};
use crate::memtable::sort::IncrementalSort;
use crate::memtable::{LogState, Memtable};
use crate::model::Bounds;
use crate::model::key::check_key;
use crate::model::keyed_hash::Secret;
use crate::model::retention_state::{retention, shown};
use crate::read::scan::{Listed, LogInfo, Logs};
use crate::read::{Entries, Entry, ReadView, given_of};
use crate::run::dead_entries::DeadEntries;
use crate::run::table::Table;
use crate::run::table_cache::TableCache;
use crate::run::writer::Pending;
use crate::run::writer::read_error;
use crate::run::{Run, RunSet};
use crate::state::lost::{self, Lost, is_proven};
use crate::state::spaces::FIRST;
use crate::store::Store;

/// Memory for look-ups in a run that is made in memory, in bytes.
const LOOK_UPS: usize = 8 << 20;

/// All logs of a store as they are at one moment; see [`Store::view`].
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
    /// How what is exported is built.
    pub(crate) builder: BuilderOptions,
    /// When the age of entries is looked at.
    pub(crate) now: u64,
    /// What damage in the ring took of it, and what ends whatever lists or reads many logs.
    pub(crate) lost: Option<Arc<Lost>>,
    /// The process that took it.
    pub(crate) process: Process,
}

impl Store {
    /// All logs as they are at one moment: everything acknowledged before the call is in it, and of
    /// later commits either all or nothing, up to one [place](View::lsn) in the log. What happens
    /// to the store later changes nothing in it.
    ///
    /// Takes a [checkpoint](Self::checkpoint), beside which commits go on. While a view is held,
    /// the space of the runs it reads from is not used again.
    ///
    /// # Errors
    /// As a checkpoint: [`Error::Full`] where there is no room for it, [`Error::Stopped`] where the
    /// store does not write any more.
    pub fn view(&self) -> Result<View, Error> {
        let inner = self.inner();
        let (runs, now, lost) = match &inner.wal {
            Some(_) => {
                let witness = inner.sound_state()?.subscribers.witness(inner.options.clock.clone());
                self.checkpoint()?;
                // What became durable up to now has come to the state, and is known to the witness.
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
        // The seed of the store's own filters is nobody else's business; with this one, the same
        // logs are the same file.
        let builder = BuilderOptions { filter_seed: store as u64, ..inner.table_cache.builder_options(0) };
        Ok(View { runs, store, builder, now, process: inner.process, lost })
    }
}

impl View {
    /// Refuses a process that did not take it.
    pub(crate) fn here(&self) -> Result<(), Error> {
        if self.process.is_here() { Ok(()) } else { Err(Error::Forked) }
    }

    /// Up to where in the log, in bytes that were ever committed to it, each log is as commits left
    /// it.
    pub fn lsn(&self) -> u64 {
        self.runs.lsn()
    }

    /// The logs whose keys start with `prefix`, in the order of their keys.
    ///
    /// # Errors
    /// [`Error::Damaged`] or [`Error::Io`] where runs cannot be read; so for the others.
    pub fn scan(&self, prefix: impl AsRef<[u8]>) -> Result<Logs, Error> {
        self.scan_from(prefix.as_ref(), b"")
    }

    /// The same, of keys from `from` on.
    pub(crate) fn scan_from(&self, prefix: &[u8], from: &[u8]) -> Result<Logs, Error> {
        self.here()?;
        let logs = Logs::of_runs(&self.runs, Listed::new(prefix, from), self.now)?;
        Ok(logs.ending(self.lost.as_ref().map(|lost| lost.error())))
    }

    /// Reads entries of a log, as [`Store::read`] does.
    ///
    /// # Errors
    /// Same errors as [`Store::read`].
    pub fn read(&self, key: impl AsRef<[u8]>, range: impl RangeBounds<u64>) -> Result<Entries, Error> {
        self.here()?;
        let key = key.as_ref();
        check_key(key)?;
        ReadView::of_runs_around(self.runs.clone(), self.lost.as_ref(), key, self.now).entries(key, &range)
    }

    /// The log's first and next numbers.
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

    /// Everything in the logs whose keys start with `prefix`, log after log in the order of their
    /// keys. Reads the runs from front to back, which is many times as fast as reading log by log,
    /// and keeps nothing of it in memory.
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
    /// As [`scan`](Self::scan).
    pub fn walk(&self, prefix: impl AsRef<[u8]>) -> Result<Walk, Error> {
        self.here()?;
        let prefix = prefix.as_ref().to_vec();
        let input = Input::all(&self.runs, prefix.as_slice().max(FIRST))?;
        let out = PieceWriter::new(Pending::new(0));
        let end = self.lost.as_ref().map(|lost| lost.error());
        let (process, now) = (self.process, self.now);
        Ok(Walk { process, input, out, prefix, now, chunk: None, end, through: false, over: false })
    }

    /// Fails where [damage in the ring](crate::Options::read_only) hides something: nothing should
    /// be made of the view then that others would take for whole, as by copies, imports, backups
    /// and exports nothing is.
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

/// What a [`Walk`] comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkItem {
    /// A log; what follows, up to the next one, are its entries.
    Log(LogInfo),
    /// The next entry of the log.
    Entry(Entry),
}

/// Everything in some logs, as [`View::walk`] gives it. An error ends it: see [`View::salvage`].
pub struct Walk {
    process: Process,
    input: Input,
    out: PieceWriter<Pending>,
    prefix: Vec<u8>,
    now: u64,
    /// Entries that were read already, and the next of them.
    chunk: Option<(Chunk, u64)>,
    /// What ends it, where damage may hide more.
    end: Option<Error>,
    through: bool,
    over: bool,
}

impl Walk {
    fn step(&mut self) -> Result<Option<WalkItem>, Error> {
        loop {
            if let Some((chunk, seq)) = self.chunk.as_mut().filter(|(chunk, seq)| *seq < chunk.range().end) {
                let entry = Entry { seq: *seq, payload: given_of(chunk, *seq) };
                *seq += 1;
                return Ok(Some(WalkItem::Entry(entry)));
            }
            while let Some(entry) = self.out.out().pop() {
                if let Some(log) = self.take(&entry.key, &entry.value.into())? {
                    return Ok(Some(WalkItem::Log(log)));
                }
                if self.chunk.is_some() {
                    break;
                }
            }
            if self.chunk.as_ref().is_some_and(|(chunk, seq)| *seq < chunk.range().end) {
                continue;
            }
            let goes_on = |key: &[u8]| key.starts_with(&self.prefix);
            if self.input.is_between_logs() && !self.input.next_log().is_some_and(goes_on) {
                return Ok(None);
            }
            self.input.step(&mut self.out).map_err(read_error)?;
        }
    }

    /// Takes a head, or more of the log's entries.
    fn take(&mut self, codex_key: &[u8], value: &Bytes) -> Result<Option<LogInfo>, Error> {
        let made = "a piece that was just made is whole";
        let (key, chunk) = split_key(codex_key).expect(made);
        if chunk.is_some() {
            let chunk = Chunk::decode(value).expect(made);
            // Entries that are too old are left out from the state.
            let seq = self.chunk.as_ref().map_or(0, |(_, seq)| *seq).max(chunk.base);
            self.chunk = Some((chunk, seq));
            return Ok(None);
        }
        let head = Head::decode(value).expect(made);
        let bounds = head.piece.bounds.expect("the oldest run is among them, so that every log is there");
        let terms = head.terms.as_deref();
        let bounds = shown(bounds, terms, self.now);
        self.chunk = Some((head.chunk, bounds.first));
        Ok(Some(LogInfo { key, bounds, retention: retention(terms) }))
    }
}

impl Walk {
    /// Whether all was read, and what it ended with tells of what is not in the runs.
    pub(crate) fn is_through(&self) -> bool {
        self.through
    }
}

impl Iterator for Walk {
    type Item = Result<WalkItem, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.over {
            return None;
        }
        let here = if self.process.is_here() { Ok(()) } else { Err(Error::Forked) };
        let step = here.and_then(|()| self.step()).and_then(|walked| match walked {
            None => {
                self.through = true;
                self.end.take().map_or(Ok(None), Err)
            }
            walked => Ok(walked),
        });
        let step = step.transpose();
        self.over = !matches!(step, Some(Ok(_)));
        step
    }
}

impl FusedIterator for Walk {}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Walk(\"{}…\")", self.prefix.escape_ascii())
    }
}

/// Everything in a store that is open for reading only, and what damage took of that.
fn unchanging(inner: &Inner) -> Result<(Arc<RunSet>, Option<Arc<Lost>>), Error> {
    let mut state = inner.state();
    if state.frozen.is_none() {
        // Nobody writes, so that it matters to nobody which of the two it is.
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

/// Makes a run of a memtable in memory.
pub(crate) fn run_of(memtable: Arc<Memtable>, id: u64, builder: &BuilderOptions) -> Result<Run, Error> {
    run_of_some(memtable, id, builder, |_| true)
}

/// The same, of those logs of the memtable that are wanted.
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
            entry.hash.into_iter().for_each(|hash| codex.add_filter(hash));
            codex.add(&entry.key, &entry.value).map_err(defect)?;
            first.get_or_insert(entry.key);
        }
    }
    let (summary, mut image) = codex.finish().map_err(defect)?;
    // Extents are whole sectors, and are read so.
    image.resize(image.len().next_multiple_of(SECTOR), 0);
    let extent = image.len() as u64;
    // Nothing is written, or remembered, by way of this table cache: what chance is for.
    let volume = Arc::new(MemVolume::from_image(image, id));
    let table_cache = TableCache::new(volume, LOOK_UPS, Some(0), Secret::of_seed(id));
    let meta = TableMeta {
        offset: 0,
        len: summary.len,
        extent,
        footer_sum: summary.footer_sum,
        first: first.unwrap_or_default(),
    };
    let (logs, entries) = (out.logs, out.entries);
    let table = Table::open(&table_cache, id, meta)?;
    Ok(Run::new(
        &table_cache,
        RunMeta { id, logs, entries, ..RunMeta::default() },
        vec![Arc::new(table)],
        &[],
    ))
}
