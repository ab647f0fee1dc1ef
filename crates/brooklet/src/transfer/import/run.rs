//! Writes a run of new logs, and brings it into the store.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use brooklet_io::seeded::bug;
use bytes::Bytes;

use crate::engine::ingest_writer::Writer;
use crate::error::{Error, KeyText};
use crate::format::log_hash::LogHash;
use crate::format::manifest::RunMeta;
use crate::format::run_entry::{Chunk, Head, PieceWriter, head_carried_over, split_key};
use crate::limits::MAX_NEXT;
use crate::maintenance::ingest::{Ingestion, refuse_common};
use crate::model::Bounds;
use crate::model::progress::Progress;
use crate::model::retention_state::Ageing;
use crate::run::table::Entry;
use crate::run::writer::Pending;
use crate::run::writer::RunWriter;
use crate::run::{Run, RunSet};
use crate::store::Store;
use crate::transfer::import::{Existing, ImportReport, OnProgress};

/// Number of logs that are looked up in the same set of runs. The import holds these runs
/// meanwhile, and with them the space that merging would free.
const HELD: u64 = 1024;

/// Bytes that are written between two progress reports.
const TOLD: u64 = 1 << 20;

/// The name of the import in [`Error::Full`].
const IMPORT: &str = "the import in the heap";

/// A run of new logs that is being written into the heap of a store.
pub(super) struct NewRun {
    store: Store,
    existing: Existing,
    on_progress: Option<OnProgress>,
    writer: Writer,
    /// Runs that were already checked: they contain no log of this run.
    known: BTreeSet<u64>,
    runs: Arc<RunSet>,
    /// The current log: its key, its next entry, and the number after its last entry.
    key: Vec<u8>,
    at: u64,
    end: u64,
    /// Whether the current log is skipped.
    skips: bool,
    seen: u64,
    meta: RunMeta,
    ageing: Option<Ageing>,
    imported: ImportReport,
    told: u64,
}

impl NewRun {
    pub fn new(store: Store, existing: Existing, on_progress: Option<OnProgress>) -> Result<Self, Error> {
        store.inner().may_wait()?;
        // The checkpoint moves earlier commits into runs, so that the import finds existing logs at
        // once.
        store.checkpoint()?;
        let inner = store.inner();
        let id = inner.maintenance().new_run();
        let runs = inner.state().runs.clone();
        let known = runs.iter().map(|run| run.meta.id).collect();
        Ok(Self {
            writer: Writer::new(store.shared(), IMPORT, RunWriter::new(id, Some(Vec::new())))?,
            store,
            existing,
            on_progress,
            known,
            runs,
            key: Vec::new(),
            at: 0,
            end: 0,
            skips: false,
            seen: 0,
            meta: RunMeta { id, ..RunMeta::default() },
            ageing: None,
            imported: ImportReport::default(),
            told: 0,
        })
    }

    /// Returns the time of the store's clock.
    pub fn now(&self) -> u64 {
        self.store.inner().now()
    }

    /// Takes the encoded parts of `pieces`.
    pub fn put_all(&mut self, pieces: &mut PieceWriter<Pending>) -> Result<(), Error> {
        while let Some(Entry { key, value, .. }) = pieces.out().pop() {
            self.put(key, value.into())?;
        }
        Ok(())
    }

    /// Takes the next part of a piece: a head, or a chunk that continues the piece.
    pub fn put(&mut self, codex_key: Vec<u8>, mut value: Bytes) -> Result<(), Error> {
        let hash = match split_key(&codex_key) {
            Some((key, None)) => {
                if self.begin(key, &value)? {
                    value = head_carried_over(&value).expect("it was just read").into();
                }
                Some(LogHash::new(self.store.inner().table_cache.filter_seed(), &self.key))
            }
            Some((key, Some(seq))) if key == self.key && seq == self.at => {
                let chunk =
                    Chunk::decode(&value).filter(|chunk| chunk.base == seq && !chunk.range().is_empty());
                self.go_on(&chunk.ok_or_else(|| self.senseless("a part of it is malformed"))?)?;
                None
            }
            _ => return Err(self.senseless("the next part neither continues it nor begins a log")),
        };
        if self.skips {
            return Ok(());
        }
        self.writer.put(Entry { key: codex_key, value: value.into(), hash })?;
        self.tell()
    }

    fn senseless(&self, what: &str) -> Error {
        let place = if self.key.is_empty() {
            "before the first log".into()
        } else {
            format!("at log {}", KeyText::of(&self.key))
        };
        Error::InvalidImport(format!("{place}: {what}"))
    }

    /// Begins a log. Returns `true` if the head counts the log in a space of another store.
    fn begin(&mut self, key: Vec<u8>, value: &Bytes) -> Result<bool, Error> {
        self.end_log()?;
        if key <= self.key {
            return Err(self.senseless("the next log is out of key order"));
        }
        self.key = key;
        if let Some(memory_space) = self.store.inner().memory_spaces.of(&self.key) {
            return Err(Error::InMemory { space: memory_space.name.clone() });
        }
        let head = Head::decode(value).ok_or_else(|| self.senseless("its head is malformed"))?;
        let bounds = head.piece.bounds.filter(|bounds| head.piece.base <= bounds.first);
        let bounds = bounds.ok_or_else(|| self.senseless("it is incomplete"))?;
        if bounds.next > MAX_NEXT {
            return Err(self.senseless("its numbers are greater than those of any log"));
        }
        (self.at, self.end) = (bounds.first, bounds.next);
        self.skips = false;
        if let Some(Bounds { next, .. }) = self.find()? {
            match self.existing {
                Existing::Refuse => return Err(Error::LogExists { key: KeyText::of(&self.key), next }),
                Existing::Skip => self.skips = true,
            }
        }
        if self.skips {
            self.imported.skipped += 1;
        } else {
            self.imported.logs += 1;
            self.meta.empties += u64::from(bounds.is_empty());
            let ageing = head.terms.as_ref().and_then(|terms| terms.ageing(bounds, 0));
            self.ageing = Ageing::sum(self.ageing, ageing);
        }
        self.go_on(&head.chunk)?;
        Ok(head.terms.is_some_and(|terms| terms.space > 0))
    }

    /// Returns the bounds of the current log in the store.
    fn find(&mut self) -> Result<Option<Bounds>, Error> {
        self.seen += 1;
        if self.seen.is_multiple_of(HELD) {
            self.runs = self.store.inner().state().runs.clone();
        }
        if self.runs.is_empty() { Ok(None) } else { Ok(self.runs.state(&self.key)?.bounds) }
    }

    /// Counts and checks more entries of the current log.
    fn go_on(&mut self, chunk: &Chunk) -> Result<(), Error> {
        let (range, limit) = (chunk.range(), self.store.inner().options.largest_payload());
        if range.is_empty() {
            return Ok(());
        }
        if range.end > self.end {
            return Err(self.senseless("it has more entries than its head records"));
        }
        let longest = range.clone().map(|seq| chunk.payload_bytes(seq).len()).max().unwrap_or(0);
        if longest > limit {
            return Err(Error::PayloadTooLarge { len: longest, limit });
        }
        self.at = range.end;
        self.imported.entries += if self.skips { 0 } else { range.end - range.start };
        Ok(())
    }

    fn end_log(&self) -> Result<(), Error> {
        if self.at == self.end { Ok(()) } else { Err(self.senseless("some of its entries are missing")) }
    }

    /// Reports the progress from time to time.
    fn tell(&mut self) -> Result<(), Error> {
        self.imported.bytes = self.writer.written();
        if self.imported.bytes < self.told {
            return Ok(());
        }
        self.told = self.imported.bytes + TOLD;
        let ImportReport { logs, entries, bytes, .. } = self.imported;
        let progress = Progress { logs, entries, bytes, ..Progress::default() };
        match self.on_progress.as_mut().map(|report| report(progress)) {
            Some(ControlFlow::Break(())) => Err(Error::Cancelled { what: "the import" }),
            _ => Ok(()),
        }
    }

    /// Makes the run part of the store.
    pub fn finish(mut self) -> Result<ImportReport, Error> {
        self.end_log()?;
        self.told = 0;
        self.tell()?;
        if self.imported.logs == 0 {
            return Ok(self.imported);
        }
        // Merging can then free these runs.
        self.runs = Arc::default();
        let Self { store, writer, known, meta, ageing, mut imported, .. } = self;
        let sealed = writer.finish()?;
        let meta = RunMeta { logs: imported.logs, entries: imported.entries, ..meta }.with_ageing(ageing);
        let run = Arc::new(Run::new(&store.inner().table_cache, meta, sealed.clone(), &[]));
        imported.bytes = run.bytes();
        let ingestion = Ingestion { run: run.clone(), outcome: Arc::new(OnceLock::new()) };
        let ingested = store.ingest_into_spaces(&run, || ingest(&store, &ingestion, known));
        // After a store has stopped, it is unknown which superblock is on the medium.
        if !matches!(ingested, Ok(_) | Err(Error::Stopped { .. })) {
            store.inner().maintenance().give_up_tables(sealed);
        }
        imported.uncounted = !ingested?;
        Ok(imported)
    }
}

/// Ingests a run through maintenance. The runs in `known` have no log of that run.
fn ingest(store: &Store, ingestion: &Ingestion, mut known: BTreeSet<u64>) -> Result<(), Error> {
    let inner = store.inner();
    // The fewer entries are in memory, the shorter new logs have to wait.
    store.checkpoint()?;
    loop {
        let runs = inner.state().runs.clone();
        let unknown = |run: &&Arc<Run>| !known.contains(&run.meta.id) && !bug("import-is-not-checked-again");
        for run in runs.iter().filter(unknown) {
            refuse_common(run, &ingestion.run, |key| Ok(runs.state(key)?.bounds))?;
        }
        known.extend(runs.iter().map(|run| run.meta.id));
        drop(runs);
        let context = inner.context()?;
        if inner.maintenance().ingest(&context, ingestion, &known)? {
            break;
        }
        drop(context);
        inner.get_on()?;
    }
    loop {
        if let Some(outcome) = ingestion.outcome.get() {
            return outcome.clone();
        }
        if let Err(error) = inner.get_on() {
            let context = inner.context()?;
            inner.maintenance().give_up_ingestion(&context, ingestion, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use brooklet_io::MemVolume;

    use super::*;
    use crate::model::Piece;
    use crate::{Class, Lost, MemoryConfig, Options, SpaceConfig};

    /// A checkpoint carries the import. Meanwhile a dump becomes part of the store, and adds
    /// nothing that subscribers lack.
    #[test]
    fn a_dump_during_an_import_loses_no_subscriber() {
        let store = Options::new().threads(false).create_on(Arc::new(MemVolume::new(1))).unwrap();
        let config = SpaceConfig::new().class(Class::Memory(MemoryConfig::new(1 << 20)));
        let space = store.create_space("memory", config).unwrap();
        let append = |log: &str| store.append(log, "entry").unwrap().wait().unwrap();
        append("memory/log");
        space.dump().unwrap();
        append("memory/log");
        append("log");
        let subscription = store.subscribe(1 << 20).unwrap();
        append("log");

        let inner = store.inner();
        let id = inner.maintenance().new_run();
        let mut writer = Writer::new(store.shared(), IMPORT, RunWriter::new(id, Some(Vec::new()))).unwrap();
        let mut pieces = PieceWriter::new(Pending::new(inner.table_cache.filter_seed()));
        pieces.begin(b"new", Piece { bounds: Some(Bounds { first: 0, next: 1 }), base: 0 }, None);
        let Ok(()) = pieces.entry(b"entry");
        let Ok(()) = pieces.end();
        while let Some(entry) = pieces.out().pop() {
            writer.put(entry).unwrap();
        }
        let sealed = writer.finish().unwrap();
        let meta = RunMeta { id, logs: 1, entries: 1, ..RunMeta::default() };
        let run = Arc::new(Run::new(&inner.table_cache, meta, sealed, &[]));
        let ingestion = Ingestion { run, outcome: Arc::new(OnceLock::new()) };
        let known = inner.state().runs.iter().map(|run| run.meta.id).collect();
        let context = inner.context().unwrap();
        assert!(inner.maintenance().ingest(&context, &ingestion, &known).unwrap());
        drop(context);

        assert!(space.dump().unwrap().logs > 0);
        assert!(ingestion.outcome.get().is_none(), "the import waits");
        assert!(subscription.take().is_ok());
        while ingestion.outcome.get().is_none() {
            inner.get_on().unwrap();
        }
        assert!(matches!(subscription.take(), Err(Lost::Unlogged)));
        assert_eq!(store.bounds("new").unwrap().next, 1);
    }

    /// The head of a forged export may have any numbers.
    #[test]
    fn logs_whose_numbers_could_run_out_are_refused() {
        let store = Store::in_memory(1).unwrap();
        for (first, next) in [MAX_NEXT + 1, u64::MAX].map(|next| (next, next)) {
            let mut run = NewRun::new(store.clone(), Existing::Refuse, None).unwrap();
            let mut pieces = PieceWriter::new(Pending::new(0));
            pieces.begin(b"log", Piece { bounds: Some(Bounds { first, next }), base: 0 }, None);
            let Ok(()) = pieces.end();
            let refused = run.put_all(&mut pieces);
            assert!(
                matches!(&refused, Err(Error::InvalidImport(why)) if why.contains("number")),
                "{refused:?}"
            );
        }
    }
}
