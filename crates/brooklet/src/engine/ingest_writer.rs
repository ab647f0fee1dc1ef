//! Writing the segments of an import, or of a dump: beside whoever makes its pieces, where the store has threads.

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

/// Bytes of entries that are handed over at once, and how many such batches wait at most.
const BATCH: usize = 256 << 10;
const WAITING: usize = 4;

pub(crate) struct Writer {
    inner: Arc<Inner>,
    /// What is written, for who finds no room for it.
    what: &'static str,
    way: Way,
    /// Entries that are not handed over yet, and their bytes.
    batch: Vec<Entry>,
    bytes: usize,
}

enum Way {
    Here(Box<RunWriter>),
    Beside(Beside),
    /// It is over.
    Ended,
}

/// A thread that writes.
struct Beside {
    batches: SyncSender<Vec<Entry>>,
    thread: JoinHandle<(RunWriter, Result<(), Error>)>,
    written: Arc<AtomicU64>,
}

impl Writer {
    pub fn new(inner: Arc<Inner>, what: &'static str, segments: RunWriter) -> Result<Self, Error> {
        let way = if inner.options.threads {
            Way::Beside(Beside::start(inner.clone(), what, segments)?)
        } else {
            Way::Here(segments.into())
        };
        Ok(Self { inner, what, way, batch: Vec::new(), bytes: 0 })
    }

    /// Bytes written so far, roughly.
    pub fn written(&self) -> u64 {
        match &self.way {
            Way::Here(segments) => segments.written(),
            Way::Beside(beside) => beside.written.load(Ordering::Relaxed),
            Way::Ended => 0,
        }
    }

    /// Takes the next entry. After an error all that is left is to drop it.
    pub fn put(&mut self, entry: Entry) -> Result<(), Error> {
        self.inner.here()?;
        match &mut self.way {
            Way::Here(segments) => return write(&self.inner, self.what, segments, entry),
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
        // It has ended, which it does only by an error.
        let (segments, ended) = self.end().expect("it goes on until here");
        give_up(&self.inner, segments);
        ended
    }

    /// Ends what is written; gives its segments.
    pub fn finish(mut self) -> Result<Vec<Arc<Table>>, Error> {
        self.inner.here()?;
        self.hand_over()?;
        let (mut segments, ended) = self.end().expect("it goes on until here");
        match ended.and_then(|()| seal(&self.inner, self.what, &mut segments)) {
            Ok(()) => Ok(segments.into_sealed()),
            Err(error) => {
                give_up(&self.inner, segments);
                Err(error)
            }
        }
    }

    /// Ends the thread, if there is one.
    fn end(&mut self) -> Option<(RunWriter, Result<(), Error>)> {
        match mem::replace(&mut self.way, Way::Ended) {
            Way::Here(segments) => Some((*segments, Ok(()))),
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
            // The thread is the parent's, and so is what it writes.
            mem::forget(mem::replace(&mut self.way, Way::Ended));
        }
        if let Some((segments, _)) = self.end() {
            give_up(&self.inner, segments);
        }
    }
}

impl Beside {
    fn start(inner: Arc<Inner>, what: &'static str, mut segments: RunWriter) -> Result<Self, Error> {
        let (batches, taken): (_, Receiver<Vec<Entry>>) = sync_channel(WAITING);
        let written = Arc::new(AtomicU64::new(0));
        let told = written.clone();
        let run = move || {
            let write_all = || {
                while let Ok(batch) = taken.recv() {
                    batch.into_iter().try_for_each(|entry| write(&inner, what, &mut segments, entry))?;
                    told.store(segments.written(), Ordering::Relaxed);
                }
                Ok(())
            };
            let ended = caught("the thread that writes a run", write_all);
            // Whoever hands over more is refused.
            drop(taken);
            let ended = ended.unwrap_or_else(|panic| Err(inner.stop(panic)));
            (segments, ended)
        };
        let thread = thread::Builder::new().name("brooklet-write".into()).spawn(run);
        Ok(Self { batches, thread: thread.map_err(Error::io("starting a thread"))?, written })
    }
}

/// Writes an entry into the segment that is open, or the next.
fn write(inner: &Inner, what: &'static str, segments: &mut RunWriter, entry: Entry) -> Result<(), Error> {
    if segments.is_full_for(&entry) {
        seal(inner, what, segments)?;
    }
    if !segments.is_open() {
        let least = TableBuilder::least(&inner.shelf, &entry);
        let context = inner.context()?;
        let extent = inner.keeper().extent_for_import(&context, what, least)?;
        segments.open(&inner.shelf, extent);
    }
    segments.add(entry).map_err(|trouble| failed(inner, what, trouble))
}

/// Ends the segment that is open.
fn seal(inner: &Inner, what: &'static str, segments: &mut RunWriter) -> Result<(), Error> {
    let mut unused = Vec::new();
    // Nobody else waits for that.
    let sealed = segments.seal(&inner.shelf, |extent| unused.push(extent));
    {
        let mut keeper = inner.keeper();
        unused.into_iter().for_each(|extent| keeper.heap.give(extent));
        keeper.stats.heap_written_bytes += *sealed.as_ref().unwrap_or(&0);
    }
    sealed.map(drop).map_err(|trouble| failed(inner, what, trouble))
}

fn failed(inner: &Inner, what: &'static str, trouble: BuildError) -> Error {
    let context = match inner.context() {
        Ok(context) => context,
        Err(error) => return error,
    };
    let keeper = inner.keeper();
    keeper.import_failed(&context, what, trouble)
}

fn give_up(inner: &Inner, segments: RunWriter) {
    let mut keeper = inner.keeper();
    segments.into_extents().for_each(|extent| keeper.heap.give(extent));
}
