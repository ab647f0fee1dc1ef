//! Runs: each run is immutable and sorted, and is a chain of tables with ascending, disjoint ranges
//! of codex keys.
//!
//! During a merge, the new run has all logs before a certain log, and the merged runs count only
//! from that log on (`Run::from`). No log is therefore looked up in both.

pub mod bounds_cache;
pub mod cursor;
pub mod dead_entries;
pub mod table;
pub mod table_cache;
pub mod writer;

use std::sync::Arc;

use brooklet_io::seeded::bug;
use bytes::Bytes;

use crate::error::Error;
use crate::format::manifest::MAX_LEVEL;
use crate::format::manifest::{Chain, Manifest, Merging, RunMeta, TableMeta};
use crate::format::run_entry::{Chunk, Head, chunk_key, filter_hash, head_key, head_piece, split_key};
use crate::model::Piece;
use crate::model::retention_state::State;
use crate::run::table::Table;
use crate::run::table_cache::TableCache;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::ops::ControlFlow;

/// A log that the runs are asked about.
pub(crate) struct Wanted<'k> {
    key: &'k [u8],
    head: Vec<u8>,
    /// A seed of filters, and its hash for those: most have the same.
    hash: Option<(u64, u64)>,
    /// How many filters were asked about it.
    asked: u64,
}

impl<'k> Wanted<'k> {
    pub fn new(key: &'k [u8]) -> Self {
        Self { key, head: head_key(key), hash: None, asked: 0 }
    }

    /// The key of its head in a run.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    fn hash(&mut self, seed: u64) -> u64 {
        match self.hash {
            Some((of, hash)) if of == seed => hash,
            _ => self.hash.insert((seed, filter_hash(seed, self.key))).1,
        }
    }
}

/// An immutable run.
pub(crate) struct Run {
    pub meta: RunMeta,
    /// In the order of their keys.
    pub tables: Vec<Arc<Table>>,
    /// The first log that counts; empty for all.
    pub from: Vec<u8>,
    table_cache: Arc<TableCache>,
    /// Its entries that newer runs are known to have made irrelevant, as the durable manifest has
    /// it.
    dead: AtomicU64,
}

impl Run {
    pub fn new(table_cache: &Arc<TableCache>, meta: RunMeta, tables: Vec<Arc<Table>>, from: &[u8]) -> Self {
        let dead = AtomicU64::new(meta.dead);
        Self { meta, tables, from: from.to_vec(), table_cache: table_cache.clone(), dead }
    }

    /// This run with its first tables left out, counting from a log on.
    pub fn cut(&self, passed: usize, from: &[u8]) -> Self {
        Self::new(&self.table_cache, self.meta(), self.tables[passed..].to_vec(), from)
    }

    /// This run, its tables kept elsewhere. Nothing is merged with it any more: it counts as of the
    /// last level.
    pub fn gone(&self, tables: Vec<Arc<Table>>) -> Self {
        let meta = RunMeta { level: MAX_LEVEL, ..self.meta() };
        Self::new(&self.table_cache, meta, tables, &self.from)
    }

    /// This run as one of the last level: nothing is merged with it.
    pub fn set_aside(&self) -> Self {
        self.gone(self.tables.clone())
    }

    /// Whether damage was met in it.
    pub fn is_damaged(&self) -> bool {
        self.tables.iter().any(|table| table.is_damaged())
    }

    /// Whether its tables are kept elsewhere.
    pub fn is_offloaded(&self) -> bool {
        self.tables.iter().any(|table| table.meta.is_offloaded())
    }

    /// What the manifest says of it.
    pub fn chain(&self, dead: u64) -> Chain {
        let tables = self.tables.iter().map(|table| table.meta.clone()).collect();
        (RunMeta { dead, ..self.meta }, tables)
    }

    /// What is known of it now.
    pub fn meta(&self) -> RunMeta {
        RunMeta { dead: self.dead(), ..self.meta }
    }

    /// Its bytes on the volume; none where it lies elsewhere.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.meta.extent).sum()
    }

    /// The bytes of its largest table on the volume.
    pub fn largest_table(&self) -> u64 {
        self.tables.iter().map(|table| table.meta.extent).max().unwrap_or_default()
    }

    /// The place of the last table that begins at or before a codex key.
    pub fn place_of(&self, key: &[u8]) -> Option<usize> {
        self.tables.partition_point(|table| table.meta.first.as_slice() <= key).checked_sub(1)
    }

    fn table_of(&self, key: &[u8]) -> Option<&Arc<Table>> {
        self.place_of(key).map(|at| &self.tables[at])
    }

    /// Whether a log is to be looked for here.
    pub fn counts_for(&self, key: &[u8]) -> bool {
        self.from.is_empty() || key >= self.from.as_slice()
    }

    /// Its entries that newer runs are known to have made irrelevant; never more than there are.
    pub fn dead(&self) -> u64 {
        self.dead.load(Ordering::Relaxed)
    }

    /// `count` as a number of its dead entries: 0 where that cannot be, since too few cost space,
    /// and too many entries.
    pub fn at_most_all(&self, count: u64) -> u64 {
        if count > self.meta.entries { 0 } else { count }
    }

    /// Only maintenance does this, once the superblock is durable that says so.
    pub fn set_dead(&self, dead: u64) {
        self.dead.store(dead, Ordering::Relaxed);
    }

    /// What the run knows of a log.
    pub fn head(&self, wanted: &mut Wanted<'_>) -> Result<Option<Head>, Error> {
        let value = self.find(wanted)?;
        value.map(|value| Head::decode(&value).ok_or_else(|| self.malformed(wanted.key))).transpose()
    }

    /// The state of a log alone, without its entries.
    pub fn state(&self, wanted: &mut Wanted<'_>) -> Result<Option<State>, Error> {
        let value = self.find(wanted)?;
        let state = |value: Bytes| {
            let (piece, terms) = head_piece(&mut &value[..])?;
            Some(State { bounds: piece.bounds, terms })
        };
        value.map(|value| state(value).ok_or_else(|| self.malformed(wanted.key))).transpose()
    }

    /// Whether the filter of the run lets a log pass; `Some(false)` is certain, `None` where the
    /// filter is damaged: it only saves a look at the index, which says the same.
    pub fn may_know(&self, wanted: &mut Wanted<'_>) -> Result<Option<bool>, Error> {
        self.table_of(&wanted.head).map_or(Ok(Some(false)), |table| self.passes(table, wanted))
    }

    /// The same, of the table that the log would be in.
    fn passes(&self, table: &Table, wanted: &mut Wanted<'_>) -> Result<Option<bool>, Error> {
        let reader = table.reader()?;
        let hash = wanted.hash(reader.filter_seed());
        match reader.may_contain(&wanted.head, hash) {
            Err(error @ brooklet_codex::Error::Damaged { .. }) => {
                tracing::warn!(run = self.meta.id, %error, "the filter of a run is damaged; the store continues without it");
                Ok(None)
            }
            told => told.map(Some).map_err(|error| table.error(error)),
        }
    }

    /// The head of a log, as it is stored.
    fn find(&self, wanted: &mut Wanted<'_>) -> Result<Option<Bytes>, Error> {
        let table = self.table_of(&wanted.head).filter(|_| self.counts_for(wanted.key));
        let Some(table) = table else { return Ok(None) };
        wanted.asked += 1;
        let maybe = self.passes(table, wanted)?;
        if maybe == Some(false) {
            return Ok(None);
        }
        let value = table.reader()?.get(&wanted.head).map_err(|e| table.error(e))?;
        if maybe == Some(true) && value.is_none() {
            self.table_cache.misled();
        }
        Ok(value)
    }

    /// The chunk that holds entry `seq` of a log.
    pub fn chunk(&self, key: &[u8], seq: u64) -> Result<Chunk, Error> {
        let place = chunk_key(key, seq);
        let table = self.table_of(&place).ok_or_else(|| self.malformed(key))?;
        let found = table.reader()?.get_le(&place).map_err(|e| table.error(e))?;
        self.decode_chunk(key, seq, found)
    }

    /// The chunk out of the last entry at or before its key.
    pub fn decode_chunk(
        &self,
        key: &[u8],
        seq: u64,
        found: Option<(Vec<u8>, Bytes)>,
    ) -> Result<Chunk, Error> {
        let chunk = found.and_then(|(found, value)| match split_key(&found)? {
            (k, None) if k == key => Head::decode(&value).map(|head| head.chunk),
            (k, Some(_)) if k == key => Chunk::decode(&value),
            _ => None,
        });
        chunk.filter(|c| c.range().contains(&seq)).ok_or_else(|| self.malformed(key))
    }

    pub fn malformed(&self, key: &[u8]) -> Error {
        self.tables.iter().for_each(|table| table.set_damaged());
        let key = crate::error::KeyText::of(key);
        Error::damaged(format!("run {}", self.meta.id), format!("the piece of log {key} is malformed"))
    }

    /// Reads everything and checks every checksum, and that its keys are less than `end`.
    pub fn verify(
        &self,
        end: Option<&[u8]>,
        progress: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut before = 0;
        for (i, table) in self.tables.iter().enumerate() {
            let next = self.tables.get(i + 1).map(|next| next.meta.first.as_slice()).or(end);
            table.verify(next, &mut |done| progress(before + done))?;
            before += table.meta.len;
        }
        Ok(())
    }

    /// Bytes of its codexes.
    pub fn len(&self) -> u64 {
        self.tables.iter().map(|table| table.meta.len).sum()
    }

    /// Bytes of its blocks before compression.
    pub fn raw_bytes(&self) -> u64 {
        let readers = self.tables.iter().filter_map(|table| table.reader().ok());
        readers.map(|reader| reader.raw_bytes()).fold(0, u64::saturating_add)
    }

    /// Bytes of memory its index and filter take now.
    pub fn memory(&self) -> usize {
        self.tables.iter().filter_map(|table| table.reader().ok()).map(|reader| reader.memory()).sum()
    }
}

/// The runs of a moment, newest first.
#[derive(Default)]
pub(crate) struct RunSet {
    runs: Vec<Arc<Run>>,
    /// The merge that goes on, where some of what it makes is among them.
    merging: Option<Merging>,
    /// Up to where in the log they hold everything.
    lsn: u64,
}

impl RunSet {
    pub fn new(runs: Vec<Arc<Run>>, merging: Option<Merging>, lsn: u64) -> Self {
        Self { runs, merging, lsn }
    }

    /// Opens the runs that a manifest names, which was found to make sense; `open` opens a table of
    /// a run.
    pub fn open(
        table_cache: &Arc<TableCache>,
        manifest: &Manifest,
        lsn: u64,
        mut open: impl FnMut(u64, TableMeta) -> Result<Table, Error>,
    ) -> Result<Self, Error> {
        let merging = manifest.merging.as_ref().filter(|_| !bug("resumed-merge-starts-over"));
        let merged = manifest.merged();
        let runs = manifest.runs.iter().enumerate().map(|(i, (meta, tables))| {
            let from = merging.filter(|_| merged.contains(&i)).map_or(&[][..], |merging| &merging.from);
            let tables = tables.iter().cloned().map(|table| open(meta.id, table).map(Arc::new));
            Ok(Arc::new(Run::new(table_cache, *meta, tables.collect::<Result<_, _>>()?, from)))
        });
        Ok(Self { runs: runs.collect::<Result<_, Error>>()?, merging: merging.cloned(), lsn })
    }

    /// These, and a newer one that holds everything up to somewhere further on.
    pub fn with(&self, newest: Arc<Run>, lsn: u64) -> Self {
        let runs = [newest].into_iter().chain(self.runs.iter().cloned()).collect();
        Self { runs, merging: self.merging.clone(), lsn }
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Those that lie in the store: all others are older, and lie elsewhere.
    pub fn here(&self) -> &[Arc<Run>] {
        let here = self.runs.iter().take_while(|run| !run.is_offloaded()).count();
        &self.runs[..here]
    }

    /// Up to where in the log they hold everything: each log is as all commits before that left it.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Run>> + ExactSizeIterator {
        self.runs.iter()
    }

    pub fn merging(&self) -> Option<&Merging> {
        self.merging.as_ref()
    }

    /// The run that the merge that goes on makes, as far as it is there, and those that are merged,
    /// newest first.
    pub fn merge(&self) -> Option<(&Arc<Run>, &[Arc<Run>])> {
        let merging = self.merging.as_ref()?;
        let at = self.runs.iter().position(|run| run.meta.id == merging.into)?;
        Some((&self.runs[at], self.runs.get(at + 1..=at + merging.inputs)?))
    }

    /// The log's state as of the runs.
    pub fn state(&self, key: &[u8]) -> Result<State, Error> {
        self.asking(key, |wanted| {
            for run in &self.runs {
                if let Some(state) = run.state(wanted)? {
                    return Ok(state);
                }
            }
            Ok(State::default())
        })
    }

    /// Asks about a log, and counts how many filters that took: once for all runs, as others count
    /// in the same place.
    fn asking<T>(&self, key: &[u8], ask: impl FnOnce(&mut Wanted<'_>) -> T) -> T {
        let mut wanted = Wanted::new(key);
        let told = ask(&mut wanted);
        self.runs.iter().take(1).for_each(|run| run.table_cache.asked(wanted.asked));
        told
    }

    /// The log's pieces, newest first, as far as entries from `first` on may be in them; `upper` is
    /// the first number that newer memtables account for.
    pub fn heads(&self, key: &[u8], first: Option<u64>, upper: u64) -> Result<Vec<(Arc<Run>, Head)>, Error> {
        self.asking(key, |wanted| self.heads_of(wanted, first, upper))
    }

    fn heads_of(
        &self,
        wanted: &mut Wanted<'_>,
        mut first: Option<u64>,
        mut upper: u64,
    ) -> Result<Vec<(Arc<Run>, Head)>, Error> {
        let mut heads = Vec::new();
        for run in &self.runs {
            if first.is_some_and(|first| upper <= first) {
                break;
            }
            let Some(head) = run.head(wanted)? else { continue };
            let Piece { bounds, base } = head.piece;
            if first.is_none() {
                first = Some(bounds.map_or(0, |b| b.first));
            }
            upper = upper.min(base);
            heads.push((run.clone(), head));
        }
        Ok(heads)
    }
}
