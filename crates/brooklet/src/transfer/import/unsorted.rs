//! Imports of entries that arrive in any order.
//!
//! The entries are sorted by their log, and within a log by their order of arrival:
//!
//! ```text
//! key    = as that of a chunk (`format/run_entry.rs`): the log, and when it came: 0 for what was said of the log itself, else 1 and up
//! value  = the payload
//!        | of 0: the log's first number, most entries, bytes and milliseconds, each plus 1, or 0 for no limit (varints)
//! ```
//!
//! A piece begins with its number of entries. The entries of a log are therefore collected before
//! the piece is written: in memory, or in a temporary file if the log is long.

use std::fmt;
use std::mem;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use brooklet_codex::{BuilderOptions, Duplicates, FileOptions, Sorter};
use brooklet_io::Process;
use brooklet_wal::{put_varint, take_varint};

use crate::error::{Error, KeyText};
use crate::format::run_entry::{PieceWriter, put_chunk_key, split_key};
use crate::limits::MAX_NEXT;
use crate::model::commit::{Action, Op};
use crate::model::retention::Retention;
use crate::model::retention_state::RetentionState;
use crate::model::{Bounds, Piece};
use crate::run::writer::Pending;
use crate::transfer::import::gathered::Gathered;
use crate::transfer::import::run::NewRun;
use crate::transfer::import::{Import, ImportReport};

/// An import of entries in any order; see [`Store::import`](crate::Store::import). Dropping it
/// before [`finish`](Self::finish) imports nothing and removes its files.
pub struct Unsorted {
    import: Import,
    sorter: Sorting,
    scratch: PathBuf,
    key: Vec<u8>,
    came: u64,
}

/// The sorter. A forked child does not touch it, because its files belong to the parent.
struct Sorting(Option<Sorter>, Process);

impl Drop for Sorting {
    fn drop(&mut self) {
        if !self.1.is_here() {
            mem::forget(self.0.take());
        }
    }
}

impl Unsorted {
    pub(super) fn new(import: Import, scratch: &Path) -> Result<Self, Error> {
        import.store.inner().writable()?;
        let options = FileOptions {
            blocks: BuilderOptions { bits_per_item: 0, ..BuilderOptions::default() },
            memory: import.memory,
            duplicates: if import.logs_once { Duplicates::Refuse } else { Duplicates::Last },
            ..FileOptions::default()
        };
        let sorter = Sorting(Some(Sorter::new(scratch, options)), Process::current());
        let scratch = scratch.to_path_buf();
        Ok(Self { import, sorter, scratch, key: Vec::new(), came: 0 })
    }

    /// Appends an entry to a log of the import.
    ///
    /// # Errors
    /// [`Error::InvalidKey`] and [`Error::PayloadTooLarge`], which leave the import unchanged;
    /// [`Error::Io`], which ends the import, and so does [`Error::InvalidImport`] of
    /// [`Import::logs_once`].
    pub fn append(&mut self, key: impl AsRef<[u8]>, payload: impl AsRef<[u8]>) -> Result<(), Error> {
        let (key, payload) = (key.as_ref(), payload.as_ref());
        self.import.store.inner().check(&Op { key, action: Action::Append(payload) })?;
        self.came += 1;
        self.put(key, self.came, payload)
    }

    /// Sets the number of a log's first entry to `first`, and sets its retention. Without this
    /// call, the log begins with number 0 and keeps all entries. The log need not have any entry.
    /// The last call for a log counts, unless [`Import::logs_once`] was called.
    ///
    /// The import applies a limit of entries at once. The next commit on the log applies a limit of
    /// bytes. The age of entries counts from the import.
    ///
    /// # Errors
    /// [`Error::InvalidKey`], [`Error::InvalidRetention`] and [`Error::InvalidImport`], which leave
    /// the import unchanged; [`Error::Io`], which ends the import.
    pub fn log(&mut self, key: impl AsRef<[u8]>, first: u64, retention: Retention) -> Result<(), Error> {
        let key = key.as_ref();
        self.import.store.inner().check(&Op { key, action: Action::Retain(retention) })?;
        if first > MAX_NEXT {
            let what = format!("log {} begins with entry {first}: no log has such numbers", KeyText::of(key));
            return Err(Error::InvalidImport(what));
        }
        self.put(key, 0, &encode(first, retention))
    }

    fn put(&mut self, key: &[u8], number: u64, value: &[u8]) -> Result<(), Error> {
        self.import.store.inner().here()?;
        self.key.clear();
        put_chunk_key(key, number, &mut self.key);
        let sorter = self.sorter.0.as_mut().expect("it is there until the end");
        sorter.add(&self.key, value).map_err(sorter_error)
    }

    /// Makes the logs part of the store.
    ///
    /// # Errors
    /// The same errors as [`Import::view`], and [`Error::InvalidImport`].
    pub fn finish(self) -> Result<ImportReport, Error> {
        let _span = tracing::info_span!("import").entered();
        let Self { import, mut sorter, scratch, .. } = self;
        let mut logs = Logs::new(import.begin()?, &scratch);
        let mut failed = None;
        let sorter = sorter.0.take().expect("it is there until the end");
        let sorted = sorter.finish(|key, value| match logs.take(key, value) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                failed = Some(error);
                ControlFlow::Break(())
            }
        });
        failed.map_or_else(|| sorted.map_err(sorter_error), Err)?;
        logs.end()?;
        logs.run.finish()
    }
}

impl fmt::Debug for Unsorted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Unsorted({} entries)", self.came)
    }
}

/// Makes pieces from entries that arrive log after log.
struct Logs {
    run: NewRun,
    pieces: PieceWriter<Pending>,
    now: u64,
    /// The prefix of the current log's sort keys; empty before the first log.
    prefix: Vec<u8>,
    first: u64,
    retention: Retention,
    gathered: Gathered,
}

impl Logs {
    fn new(run: NewRun, scratch: &Path) -> Self {
        let (now, pieces) = (run.now(), PieceWriter::new(Pending::new(0)));
        let (first, retention) = (0, Retention::default());
        Self { run, pieces, now, prefix: Vec::new(), first, retention, gathered: Gathered::new(scratch) }
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), Error> {
        let (prefix, number) = key.split_last_chunk().expect("a number ends each key");
        if prefix != self.prefix {
            self.end()?;
            self.prefix.extend_from_slice(prefix);
        }
        if u64::from_be_bytes(*number) > 0 {
            return self.gathered.add(value);
        }
        (self.first, self.retention) = decode(value).expect("it was put there");
        Ok(())
    }

    /// Writes the current log, if there is one.
    fn end(&mut self) -> Result<(), Error> {
        if self.prefix.is_empty() {
            return Ok(());
        }
        let (key, _) = split_key(&chunk_key_of(&self.prefix)).expect("it was put there");
        let count = self.gathered.count();
        let drops = self.retention.entries.map_or(0, |most| count.saturating_sub(most));
        // A first number leaves more numbers than there are entries; the run checks the end.
        let bounds = Bounds { first: self.first + drops, next: self.first + count };
        let terms = RetentionState::of(self.retention, bounds, self.kept_bytes(drops)?, self.now);
        self.pieces.begin(&key, Piece { bounds: Some(bounds), base: 0 }, terms);
        let (pieces, run) = (&mut self.pieces, &mut self.run);
        let mut nth = 0;
        self.gathered.each(|payload| {
            nth += 1;
            if nth > drops {
                let Ok(()) = pieces.entry(payload);
                run.put_all(pieces)?;
            }
            Ok(())
        })?;
        let Ok(()) = pieces.end();
        run.put_all(pieces)?;
        self.gathered.clear();
        self.prefix.clear();
        (self.first, self.retention) = (0, Retention::default());
        Ok(())
    }
}

impl Logs {
    /// Returns the bytes of the payloads after the first `drops`. The result is exact only if the
    /// log has a limit of bytes.
    fn kept_bytes(&mut self, drops: u64) -> Result<u64, Error> {
        let mut kept = self.gathered.bytes();
        if drops > 0 && self.retention.bytes.is_some() {
            let mut nth = 0;
            self.gathered.each(|payload| {
                nth += 1;
                kept -= if nth <= drops { payload.len() as u64 } else { 0 };
                Ok(())
            })?;
        }
        Ok(kept)
    }
}

/// Returns a chunk key with this prefix.
fn chunk_key_of(prefix: &[u8]) -> Vec<u8> {
    [prefix, &[0; size_of::<u64>()]].concat()
}

/// Encodes the first number and the retention of a log.
fn encode(first: u64, retention: Retention) -> Vec<u8> {
    let limit = |limit: Option<u64>| limit.map_or(0, |limit| limit + 1);
    let age = retention.age.map(|age| age.as_millis() as u64);
    let mut out = Vec::new();
    for number in [first, limit(retention.entries), limit(retention.bytes), limit(age)] {
        put_varint(&mut |bytes| out.extend_from_slice(bytes), number);
    }
    out
}

fn decode(mut said: &[u8]) -> Option<(u64, Retention)> {
    let first = take_varint(&mut said)?;
    let mut limit = || Some(take_varint(&mut said)?.checked_sub(1));
    let (entries, bytes) = (limit()?, limit()?);
    let age = limit()?.map(Duration::from_millis);
    Some((first, Retention { entries, bytes, age }))
}

fn sorter_error(error: brooklet_codex::Error) -> Error {
    match error {
        brooklet_codex::Error::Io(source) => Error::io("sorting entries in a temporary file")(source),
        // Entries have numbers of their own: twice is the beginning of a log.
        brooklet_codex::Error::Duplicate { key } => {
            let (log, _) = split_key(&key).expect("it was put there");
            Error::InvalidImport(format!("log {} begins twice", KeyText::of(&log)))
        }
        other => Error::damaged("a temporary file", other.to_string()),
    }
}
