//! Runs: each run is immutable and sorted, and is a chain of tables with ascending, disjoint ranges
//! of codex keys.
//!
//! During a merge, the new run has all logs before a certain log, and the merged runs count only
//! from that log on (`Run::from`). No log is therefore looked up in both.

pub mod ahead;
pub mod bounds_cache;
pub mod cursor;
pub mod dead_entries;
pub mod notes_check;
pub mod read_cost;
pub mod table;
pub mod table_cache;
pub mod whole_logs;
pub mod writer;

use std::sync::Arc;

use brooklet_codex::Noted;
use brooklet_io::seeded::bug;
use bytes::Bytes;

use crate::error::Error;
use crate::format::bounds_note;
use crate::format::log_hash::{filter_hash, note_hash};
use crate::format::manifest::MAX_LEVEL;
use crate::format::manifest::{Chain, Manifest, Merging, RunMeta, TableMeta};
use crate::format::run_entry::{Chunk, Head, chunk_key, head_key, head_piece, split_key};
use crate::model::Piece;
use crate::model::retention_state::State;
use crate::run::table::Table;
use crate::run::table_cache::TableCache;
use crate::run::whole_logs::Age;
use std::ops::ControlFlow;

/// A log that is looked up in the runs.
pub(crate) struct Wanted<'k> {
    key: &'k [u8],
    head: Vec<u8>,
    /// A filter seed, and the key's hash with this seed. Most filters have the same seed.
    hash: Option<(u64, u64)>,
    /// Number of filters that were asked for the log.
    asked: u64,
    /// Number of blocks of entries that were read for the log.
    read: u64,
    /// Whether the cache keeps the pieces of the log.
    keep: bool,
}

impl<'k> Wanted<'k> {
    pub fn new(key: &'k [u8]) -> Self {
        Self { key, head: head_key(key), hash: None, asked: 0, read: 0, keep: true }
    }

    /// Returns the codex key of the log's head in a run.
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

/// A run with the number of its entries that newer runs made irrelevant. This number belongs to the
/// set of runs: in another set, such as that of an earlier view, the same run has another one.
pub(crate) type Counted = (Arc<Run>, u64);

/// An immutable run.
pub(crate) struct Run {
    /// Its record. The number of dead entries in it is as of the run's making.
    pub meta: RunMeta,
    /// Tables in key order.
    pub tables: Vec<Arc<Table>>,
    /// The first log that counts; empty if all logs count.
    pub from: Vec<u8>,
    table_cache: Arc<TableCache>,
}

impl Run {
    pub fn new(table_cache: &Arc<TableCache>, meta: RunMeta, tables: Vec<Arc<Table>>, from: &[u8]) -> Self {
        Self { meta, tables, from: from.to_vec(), table_cache: table_cache.clone() }
    }

    /// Returns this run without its first `passed` tables. Logs from `from` on count.
    pub fn cut(&self, passed: usize, from: &[u8]) -> Self {
        Self::new(&self.table_cache, self.meta, self.tables[passed..].to_vec(), from)
    }

    /// Returns this run with its tables stored elsewhere. The run is on the last level, so no merge
    /// includes it.
    pub fn gone(&self, tables: Vec<Arc<Table>>) -> Self {
        let meta = RunMeta { level: MAX_LEVEL, ..self.meta };
        Self::new(&self.table_cache, meta, tables, &self.from)
    }

    /// Returns this run with `tables`, its tables in the heap, on this level.
    pub fn back(&self, tables: Vec<Arc<Table>>, level: u64) -> Self {
        Self::new(&self.table_cache, RunMeta { level, ..self.meta }, tables, &self.from)
    }

    /// Returns this run on the last level, so that no merge includes it.
    pub fn set_aside(&self) -> Self {
        self.gone(self.tables.clone())
    }

    /// Returns whether damage was found in the run.
    pub fn is_damaged(&self) -> bool {
        self.tables.iter().any(|table| table.is_damaged())
    }

    /// Returns whether the run's tables are read from a source of the user.
    pub fn is_of_parts(&self) -> bool {
        self.tables.iter().any(|table| table.is_of_parts())
    }

    /// Returns whether the run's tables are stored elsewhere.
    pub fn is_offloaded(&self) -> bool {
        self.tables.iter().any(|table| table.meta.is_offloaded())
    }

    /// Returns the manifest's record of the run.
    pub fn chain(&self, dead: u64) -> Chain {
        let tables = self.tables.iter().map(|table| table.meta.clone()).collect();
        (RunMeta { dead, ..self.meta }, tables)
    }

    /// Returns the run's bytes on the volume; 0 if the run is stored elsewhere.
    pub fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.meta.extent).sum()
    }

    /// Returns the bytes of the run's largest table on the volume.
    pub fn largest_table(&self) -> u64 {
        self.tables.iter().map(|table| table.meta.extent).max().unwrap_or_default()
    }

    /// Returns the index of the last table that begins at or before a codex key.
    pub fn place_of(&self, key: &[u8]) -> Option<usize> {
        self.tables.partition_point(|table| table.meta.first.as_slice() <= key).checked_sub(1)
    }

    fn table_of(&self, key: &[u8]) -> Option<&Arc<Table>> {
        self.place_of(key).map(|at| &self.tables[at])
    }

    /// Returns whether a log must be looked up in this run.
    pub fn counts_for(&self, key: &[u8]) -> bool {
        self.from.is_empty() || key >= self.from.as_slice()
    }

    /// Returns `count` as a valid number of dead entries: 0 if `count` exceeds the number of
    /// entries. Too small a number costs space; too large a number would cost entries.
    pub fn at_most_all(&self, count: u64) -> u64 {
        if count > self.meta.entries { 0 } else { count }
    }

    /// Returns a log's head in this run.
    pub fn head(&self, wanted: &mut Wanted<'_>) -> Result<Option<Head>, Error> {
        let value = self.find(wanted)?;
        value.map(|value| Head::decode(&value).ok_or_else(|| self.malformed(wanted.key))).transpose()
    }

    /// Returns a log's state in this run, without its entries.
    pub fn state(&self, wanted: &mut Wanted<'_>) -> Result<Option<State>, Error> {
        match self.note(wanted)? {
            Noted::Absent { .. } => return Ok(None),
            Noted::Note(note) => {
                if let Ok(bounds) = bounds_note::decode(note) {
                    return Ok(Some(State { bounds, terms: None }));
                }
            }
            Noted::Unknown => {}
        }
        let value = self.find(wanted)?;
        let state = |value: Bytes| {
            let (piece, terms) = head_piece(&mut &value[..])?;
            Some(State { bounds: piece.bounds, terms })
        };
        value.map(|value| state(value).ok_or_else(|| self.malformed(wanted.key))).transpose()
    }

    /// Returns the same as [`state`](Self::state) without a read of the volume: `None` if the
    /// answer needs a read.
    pub fn state_in_memory(&self, wanted: &mut Wanted<'_>) -> Option<Option<State>> {
        let table = self.table_of(&wanted.head).filter(|_| self.counts_for(wanted.key));
        let Some(table) = table else { return Some(None) };
        let reader = table.reader().ok()?;
        let (seed, key) = (reader.filter_seed(), wanted.key);
        let item = wanted.hash(seed);
        let note = reader.note_in_memory(&wanted.head, item, || note_hash(seed, key))?;
        wanted.asked += 1;
        match note {
            Noted::Absent { misled } => {
                if misled {
                    self.table_cache.misled();
                }
                Some(None)
            }
            Noted::Note(note) => {
                let bounds = bounds_note::decode(note).ok()?;
                Some(Some(State { bounds, terms: None }))
            }
            Noted::Unknown => None,
        }
    }

    /// Returns the log's note in this run. If the page of the note is damaged, the head answers
    /// instead.
    fn note(&self, wanted: &mut Wanted<'_>) -> Result<Noted, Error> {
        let table = self.table_of(&wanted.head).filter(|_| self.counts_for(wanted.key));
        let Some(table) = table else { return Ok(Noted::Absent { misled: false }) };
        let reader = table.reader()?;
        let (seed, key) = (reader.filter_seed(), wanted.key);
        let item = wanted.hash(seed);
        match reader.note(&wanted.head, item, || note_hash(seed, key)) {
            Err(error @ brooklet_codex::Error::Damaged { .. }) => {
                tracing::warn!(run = self.meta.id, %error, "notes of a run are damaged; reading heads instead");
                Ok(Noted::Unknown)
            }
            answer => {
                let answer = answer.map_err(|error| table.error(error))?;
                wanted.asked += u64::from(answer != Noted::Unknown);
                if answer == (Noted::Absent { misled: true }) {
                    self.table_cache.misled();
                }
                Ok(answer)
            }
        }
    }

    /// Returns the answer of the run's filter for a log. `Some(false)`: the run certainly does not
    /// have the log. `None`: the filter is damaged. A damaged filter costs only a look at the
    /// index, which has the same information.
    pub fn may_know(&self, wanted: &mut Wanted<'_>) -> Result<Option<bool>, Error> {
        self.table_of(&wanted.head).map_or(Ok(Some(false)), |table| self.passes(table, wanted))
    }

    /// Returns the answer of the filter of the table that would hold the log.
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

    /// Returns the stored bytes of a log's head.
    fn find(&self, wanted: &mut Wanted<'_>) -> Result<Option<Bytes>, Error> {
        let table = self.table_of(&wanted.head).filter(|_| self.counts_for(wanted.key));
        let Some(table) = table else { return Ok(None) };
        wanted.asked += 1;
        let maybe = self.passes(table, wanted)?;
        if maybe == Some(false) {
            return Ok(None);
        }
        let Wanted { head, read, keep, .. } = wanted;
        let value = table.reader()?.get_counted(head, read, *keep).map_err(|e| table.error(e))?;
        if maybe == Some(true) && value.is_none() {
            self.table_cache.misled();
        }
        Ok(value)
    }

    /// Returns the chunk that holds entry `seq` of a log.
    pub fn chunk(&self, key: &[u8], seq: u64) -> Result<Chunk, Error> {
        let place = chunk_key(key, seq);
        let table = self.table_of(&place).ok_or_else(|| self.malformed(key))?;
        let found = table.reader()?.get_le(&place).map_err(|e| table.error(e))?;
        self.decode_chunk(key, seq, found)
    }

    /// Decodes the chunk that holds entry `seq` from the last codex entry at or before the chunk's
    /// key.
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

    /// Reads the whole run, checks every checksum, and checks that all keys are less than `end`.
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

    /// Returns the bytes of the run's codexes.
    pub fn len(&self) -> u64 {
        self.tables.iter().map(|table| table.meta.len).sum()
    }

    /// Returns the bytes of the run's blocks before compression.
    pub fn raw_bytes(&self) -> u64 {
        let readers = self.tables.iter().filter_map(|table| table.reader().ok());
        readers.map(|reader| reader.raw_bytes()).fold(0, u64::saturating_add)
    }

    /// Returns the memory of the run's indexes and filters now, in bytes.
    pub fn memory(&self) -> usize {
        self.tables.iter().filter_map(|table| table.reader().ok()).map(|reader| reader.memory()).sum()
    }
}

/// The set of runs at one moment, newest first.
#[derive(Default)]
pub(crate) struct RunSet {
    runs: Vec<Arc<Run>>,
    /// The number of each run's entries that newer runs are known to have made irrelevant: at most
    /// the real number of such entries.
    dead: Vec<u64>,
    /// The merge in progress, if the set contains a part of its result.
    merging: Option<Merging>,
    /// The runs hold all commits before this place of the ring.
    lsn: u64,
    age: Age,
    /// Number of times that the runs got other states of logs, since the store was opened. Logs in
    /// memory count once they leave memory.
    changes: u64,
}

impl RunSet {
    /// Returns all tables in the heap, with the numbers of their runs.
    pub fn tables_in_heap(&self) -> Vec<(u64, TableMeta)> {
        let tables =
            self.runs.iter().flat_map(|run| run.tables.iter().map(|table| (run.meta.id, &table.meta)));
        let in_heap = tables.filter(|(_, table)| !table.is_offloaded());
        in_heap.map(|(run, table)| (run, table.clone())).collect()
    }

    /// Returns the set of `runs`, which replaces this set. `changes`: the runs have other states of
    /// logs than the runs of this set.
    pub fn next(&self, runs: Vec<Counted>, merging: Option<Merging>, lsn: u64, changes: bool) -> Self {
        let (runs, dead): (Vec<Arc<Run>>, Vec<u64>) = runs.into_iter().unzip();
        let added = runs.len().checked_sub(self.runs.len());
        let added =
            added.filter(|added| runs[*added..].iter().zip(&self.runs).all(|(a, b)| Arc::ptr_eq(a, b)));
        let changes = self.changes + u64::from(changes);
        Self { runs, dead, merging, lsn, age: self.age.next(added), changes }
    }

    /// Returns the same runs, whose dump of logs in memory counts from now on.
    pub fn with_logs_of_memory(&self) -> Self {
        self.next(self.counted().collect(), self.merging.clone(), self.lsn, true)
    }

    /// Returns whether a state of a log that was looked up in `other` is that of this set, too. A
    /// merge changes no state.
    pub fn has_states_of(&self, other: &Self) -> bool {
        self.changes == other.changes
    }

    /// Opens the runs of a checked manifest. `open` opens one table of a run.
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
        let runs = runs.collect::<Result<_, Error>>()?;
        let dead = manifest.runs.iter().map(|(meta, _)| meta.dead).collect();
        Ok(Self { runs, dead, merging: merging.cloned(), lsn, age: Age::default(), changes: 0 })
    }

    /// Returns these runs and a newer one, which hold all commits up to `lsn`.
    pub fn with(&self, newest: Arc<Run>, lsn: u64) -> Self {
        let runs = [(newest, 0)].into_iter().chain(self.counted()).collect();
        self.next(runs, self.merging.clone(), lsn, true)
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the number of logs of the run that has the most. Each log takes more than a byte of
    /// its run: the manifest of an untrusted store may count more logs.
    pub fn most_logs(&self) -> u64 {
        let bytes = |run: &Run| run.tables.iter().fold(0, |sum: u64, it| sum.saturating_add(it.meta.len));
        self.runs.iter().map(|run| run.meta.logs.min(bytes(run))).max().unwrap_or(0)
    }

    /// Returns the runs, newest first, with the numbers of their dead entries.
    pub fn counted(&self) -> impl Iterator<Item = Counted> {
        self.runs.iter().cloned().zip(self.dead.iter().copied())
    }

    /// Returns the number of dead entries of a run of this set.
    pub fn dead(&self, run: &Run) -> u64 {
        let at = self.runs.iter().position(|other| other.meta.id == run.meta.id);
        at.map_or(0, |at| self.dead[at])
    }

    /// Returns the runs in the store. All other runs are older and stored elsewhere.
    pub fn here(&self) -> &[Arc<Run>] {
        let here = self.runs.iter().take_while(|run| !run.is_offloaded()).count();
        &self.runs[..here]
    }

    /// Returns the place of the ring up to which the runs hold all commits. Each log has its state
    /// after all commits before that place.
    pub fn lsn(&self) -> u64 {
        self.lsn
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Arc<Run>> + ExactSizeIterator {
        self.runs.iter()
    }

    pub fn merging(&self) -> Option<&Merging> {
        self.merging.as_ref()
    }

    /// Returns the new run of the merge in progress, as far as it is written, and the runs that are
    /// merged, newest first.
    pub fn merge(&self) -> Option<(&Arc<Run>, &[Arc<Run>])> {
        let merging = self.merging.as_ref()?;
        let at = self.runs.iter().position(|run| run.meta.id == merging.into)?;
        Some((&self.runs[at], self.runs.get(at + 1..=at + merging.inputs)?))
    }

    /// Returns the log's state in the runs.
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

    /// Returns the log's state in the runs without a read of the volume: `None` if the answer needs
    /// a read.
    pub fn state_in_memory(&self, key: &[u8]) -> Option<State> {
        self.asking(key, |wanted| {
            for run in &self.runs {
                if let Some(state) = run.state_in_memory(wanted)? {
                    return Some(state);
                }
            }
            Some(State::default())
        })
    }

    /// Runs a look-up of a log, and counts the filters that it asked. The count is added once for
    /// all runs, because all threads share the counter.
    fn asking<T>(&self, key: &[u8], ask: impl FnOnce(&mut Wanted<'_>) -> T) -> T {
        let mut wanted = Wanted::new(key);
        let told = ask(&mut wanted);
        self.runs.iter().take(1).for_each(|run| run.table_cache.asked(wanted.asked));
        told
    }

    /// Returns the log's pieces, newest first, that may hold entries from `first` on. `upper` is
    /// the first number that newer memtables account for. If the whole log was read lately, returns
    /// it as one piece of the newest run.
    pub fn log(&self, key: &[u8], first: Option<u64>, upper: u64) -> Result<Vec<(Arc<Run>, Head)>, Error> {
        // Memory has the whole log.
        if first.is_some_and(|first| upper <= first) {
            return Ok(Vec::new());
        }
        let Some(newest) = self.runs.first() else { return Ok(Vec::new()) };
        let whole_logs = &newest.table_cache.whole_logs;
        self.asking(key, |wanted| {
            let kept = whole_logs.get(key);
            // If runs come and go under a log that is read again and again, its pieces are kept,
            // too: most of them are in runs that stay.
            wanted.keep = first.is_some() || kept.is_some();
            if let Some((age, head)) = kept
                && self.is_current(age, wanted)?
            {
                return Ok(vec![(newest.clone(), head)]);
            }
            let heads = self.heads_of(wanted, first, upper)?;
            whole_logs.put(key, self.age, heads.iter().map(|(_, head)| head));
            Ok(heads)
        })
    }

    /// Returns whether a log that was read in a set of age `before` is the same in this set.
    fn is_current(&self, before: Age, wanted: &mut Wanted<'_>) -> Result<bool, Error> {
        let Some(newer) = self.age.newer_than(before) else { return Ok(false) };
        for run in &self.runs[..newer] {
            wanted.asked += 1;
            if run.may_know(wanted)? != Some(false) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the log's pieces in each run, newest first, that may hold entries from `first` on.
    /// `upper` is the first number that newer memtables account for.
    pub fn heads(&self, key: &[u8], first: Option<u64>, upper: u64) -> Result<Vec<(Arc<Run>, Head)>, Error> {
        self.asking(key, |wanted| self.heads_of(wanted, first, upper))
    }

    /// Looks for the log's pieces in each run, and counts the cost.
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
        if let [(newest, _), _, ..] = &heads[..] {
            let here = heads.iter().filter(|(run, _)| !run.is_offloaded()).count();
            newest.table_cache.read(here, wanted.read);
        }
        Ok(heads)
    }
}
