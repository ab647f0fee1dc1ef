//! Writes the tables of an import or of a dump. If the store has threads, a thread of its own
//! writes them while the caller makes the pieces.

use std::mem;
use std::sync::Arc;

use brooklet_io::panics::caught;

use crate::engine::Inner;
use crate::error::Error;
use crate::run::table::{Entry, Table, TableBuilder};
use crate::run::writer::BuildError;
use crate::run::writer::RunWriter;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::mpsc::{Receiver, SyncSender, sync_channel};
use crate::sync::thread::{self, JoinHandle};

/// Bytes of entries in a batch for the thread, and the maximum number of waiting batches.
const BATCH: usize = 256 << 10;
const WAITING: usize = 4;

pub(crate) struct Writer {
    inner: Arc<Inner>,
    /// The name of the import or dump in [`Error::Full`].
    what: &'static str,
    way: Way,
    /// Entries that are not yet sent to the thread, and their bytes.
    batch: Vec<Entry>,
    bytes: usize,
}

enum Way {
    Here(Box<RunWriter>),
    Beside(Beside),
    /// Writing has ended.
    Ended,
}

/// A thread that writes.
struct Beside {
    batches: SyncSender<Vec<Entry>>,
    thread: JoinHandle<(RunWriter, Result<(), Error>)>,
    written: Arc<AtomicU64>,
}

impl Writer {
    pub fn new(inner: Arc<Inner>, what: &'static str, tables: RunWriter) -> Result<Self, Error> {
        let way = if inner.options.threads {
            Way::Beside(Beside::start(inner.clone(), what, tables)?)
        } else {
            Way::Here(tables.into())
        };
        Ok(Self { inner, what, way, batch: Vec::new(), bytes: 0 })
    }

    /// Returns the bytes written so far, approximately.
    pub fn written(&self) -> u64 {
        match &self.way {
            Way::Here(tables) => tables.written(),
            Way::Beside(beside) => beside.written.load(Ordering::Relaxed),
            Way::Ended => 0,
        }
    }

    /// Takes the next entry. After an error, the writer must be dropped.
    pub fn put(&mut self, entry: Entry) -> Result<(), Error> {
        self.inner.here()?;
        match &mut self.way {
            Way::Here(tables) => return write(&self.inner, self.what, tables, entry),
            Way::Beside(_) => {}
            Way::Ended => unreachable!("nothing is put after an error"),
        }
        self.bytes += entry.key.len() + entry.value.len();
        self.batch.push(entry);
        if self.bytes >= BATCH { self.hand_over() } else { Ok(()) }
    }

    fn hand_over(&mut self) -> Result<(), Error> {
        let Way::Beside(beside) = &self.way else { return Ok(()) };
        self.bytes = 0;
        if beside.batches.send(mem::take(&mut self.batch)).is_ok() {
            return Ok(());
        }
        // The thread ends early only after an error.
        let (tables, ended) = self.end().expect("it goes on until here");
        give_up(&self.inner, tables);
        ended
    }

    /// Ends writing, and returns the tables.
    pub fn finish(mut self) -> Result<Vec<Arc<Table>>, Error> {
        self.inner.here()?;
        self.hand_over()?;
        let (mut tables, ended) = self.end().expect("it goes on until here");
        match ended.and_then(|()| seal(&self.inner, self.what, &mut tables)) {
            Ok(()) => Ok(tables.into_sealed()),
            Err(error) => {
                give_up(&self.inner, tables);
                Err(error)
            }
        }
    }

    /// Ends the thread, if there is one.
    fn end(&mut self) -> Option<(RunWriter, Result<(), Error>)> {
        match mem::replace(&mut self.way, Way::Ended) {
            Way::Here(tables) => Some((*tables, Ok(()))),
            Way::Beside(Beside { batches, thread, .. }) => {
                drop(batches);
                Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            }
            Way::Ended => None,
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.inner.here().is_err() {
            // The thread and its output belong to the parent process.
            mem::forget(mem::replace(&mut self.way, Way::Ended));
        }
        if let Some((tables, _)) = self.end() {
            give_up(&self.inner, tables);
        }
    }
}

impl Beside {
    fn start(inner: Arc<Inner>, what: &'static str, mut tables: RunWriter) -> Result<Self, Error> {
        let (batches, taken): (_, Receiver<Vec<Entry>>) = sync_channel(WAITING);
        let written = Arc::new(AtomicU64::new(0));
        let told = written.clone();
        let run = move || {
            let write_all = || {
                while let Ok(batch) = taken.recv() {
                    batch.into_iter().try_for_each(|entry| write(&inner, what, &mut tables, entry))?;
                    told.store(tables.written(), Ordering::Relaxed);
                }
                Ok(())
            };
            let ended = caught("the thread that writes a run", write_all);
            // Without a receiver, the sender fails for further batches.
            drop(taken);
            let ended = ended.unwrap_or_else(|panic| Err(inner.stop(panic)));
            (tables, ended)
        };
        let thread = thread::Builder::new().name("brooklet-write".into()).spawn(run);
        Ok(Self { batches, thread: thread.map_err(Error::io("starting a thread"))?, written })
    }
}

/// Writes an entry into the open table, or into a new one.
fn write(inner: &Inner, what: &'static str, tables: &mut RunWriter, entry: Entry) -> Result<(), Error> {
    if tables.is_full_for(&entry) {
        seal(inner, what, tables)?;
    }
    if !tables.is_open() {
        let least = TableBuilder::least(&inner.table_cache, &entry);
        let context = inner.context()?;
        let extent = inner.maintenance().extent_for_import(&context, what, least)?;
        tables.open(&inner.table_cache, extent);
    }
    tables.add(entry).map_err(|build_error| failed(inner, what, build_error))
}

/// Ends the open table.
fn seal(inner: &Inner, what: &'static str, tables: &mut RunWriter) -> Result<(), Error> {
    let mut unused = Vec::new();
    // No other thread waits for this.
    let sealed = tables.seal(&inner.table_cache, |extent| unused.push(extent));
    {
        let mut maintenance = inner.maintenance();
        unused.into_iter().for_each(|extent| maintenance.heap.give(extent));
        maintenance.stats.heap_written_bytes += *sealed.as_ref().unwrap_or(&0);
    }
    sealed.map(drop).map_err(|build_error| failed(inner, what, build_error))
}

fn failed(inner: &Inner, what: &'static str, build_error: BuildError) -> Error {
    let context = match inner.context() {
        Ok(context) => context,
        Err(error) => return error,
    };
    let maintenance = inner.maintenance();
    maintenance.import_failed(&context, what, build_error)
}

fn give_up(inner: &Inner, tables: RunWriter) {
    let mut maintenance = inner.maintenance();
    tables.into_extents().for_each(|extent| maintenance.heap.give(extent));
}
