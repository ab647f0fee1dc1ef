//! Imports: whole logs enter a store past its log, as one run, in one step.
//!
//! Three sources: a view of another store, an export of one, and entries in any order. Each becomes
//! pieces in the order of keys, as they lie in runs; [`NewRun`] checks them and writes them into
//! the heap; `maintenance/ingest.rs` makes them part of the store. Until then nothing of an import
//! is seen, and a crash or an error leaves nothing of it.

pub mod gathered;
pub mod run;
pub mod unsorted;

use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;

use brooklet_codex::{Reader, Source};

use crate::error::Error;
use crate::format::run_entry::{PieceWriter, escape};
use crate::maintenance::merge::Input;
use crate::model::progress::Progress;
use crate::run::writer::Pending;
use crate::run::writer::read_error;
use crate::state::spaces::FIRST;
use crate::store::Store;
use crate::store::view::View;
use crate::transfer::export::{ExportReport, export_error};
use crate::transfer::import::run::NewRun;
use crate::transfer::import::unsorted::Unsorted;

/// What becomes of logs that the store has already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// The import is refused as a whole: [`Error::LogExists`].
    #[default]
    Refuse,
    /// The store's own stay as they are, and those of the import are left out. Where such a log
    /// comes up while the import goes on, it may be refused all the same.
    Skip,
}

/// What was imported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportReport {
    /// Logs.
    pub logs: u64,
    /// Their entries.
    pub entries: u64,
    /// Bytes that they take in the store.
    pub bytes: u64,
    /// Logs that were left out, as the store has them already.
    pub skipped: u64,
}

type OnProgress = Box<dyn FnMut(Progress) -> ControlFlow<()> + Send>;

/// An import that is about to begin; see [`Store::import`].
pub struct Import {
    store: Store,
    existing: Existing,
    memory: usize,
    on_progress: Option<OnProgress>,
}

impl Store {
    /// Brings in whole logs, past the log: several times as fast as appending their entries, as
    /// they are written once, in order. They appear all at once, when they are on stable media, or
    /// not at all; meanwhile the store is used as ever.
    ///
    /// Only logs that the store does not have can come in so; see [`Existing`]. For a moment at the
    /// end, commits that would make logs wait, as they may be the import's own; commits on logs
    /// that are there do not.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (brooklet::Store::in_memory(1)?, brooklet::Store::in_memory(2)?);
    /// here.append_many("doc/1", ["a", "b"])?.wait()?;
    ///
    /// // From another store:
    /// let imported = there.import().view(&here.view()?, "doc/")?;
    /// assert_eq!((imported.logs, imported.entries), (1, 2));
    ///
    /// // From wherever entries come from, in any order:
    /// let dir = tempfile::tempdir()?;
    /// let mut import = there.import().unsorted(dir.path())?;
    /// for (key, payload) in [("song/2", "la"), ("song/1", "do"), ("song/2", "ti")] {
    ///     import.append(key, payload)?;
    /// }
    /// import.finish()?;
    /// assert_eq!(there.bounds("song/2")?.next, 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn import(&self) -> Import {
        Import { store: self.clone(), existing: Existing::default(), memory: 256 << 20, on_progress: None }
    }
}

impl Import {
    /// Sets what becomes of logs that the store has already; [`Existing::Refuse`] by default.
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Sets how many bytes of memory entries that come in any order are sorted in, about; 256 MiB
    /// by default. What is more goes into files at work.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Calls `f` from time to time with the progress. Where that returns `Break`, the import ends
    /// with [`Error::Cancelled`].
    pub fn on_progress(mut self, f: impl FnMut(Progress) -> ControlFlow<()> + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(f));
        self
    }

    /// Imports the logs of another store whose keys start with `prefix`, as they are in a view of
    /// it.
    ///
    /// # Errors
    /// [`Error::LogExists`]; [`Error::Full`] where there is no room; what reading the view fails
    /// with; [`Error::Stopped`]. After any of them nothing was imported; only after
    /// [`Error::Stopped`] it may have been, which the next opening tells.
    pub fn view(self, view: &View, prefix: impl AsRef<[u8]>) -> Result<ImportReport, Error> {
        let prefix = prefix.as_ref();
        self.take(view, prefix, |key| key.starts_with(prefix))
    }

    /// [`view`](Self::view), of one log.
    ///
    /// # Errors
    /// As that, and [`Error::UnknownLog`].
    pub fn log(self, view: &View, key: impl AsRef<[u8]>) -> Result<ImportReport, Error> {
        let key = key.as_ref();
        view.expect_log(key)?;
        self.take(view, key, |other| other == key)
    }

    /// Imports the logs of a view from `from` on, as long as they are wanted.
    fn take(self, view: &View, from: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Result<ImportReport, Error> {
        view.here()?;
        view.expect_whole()?;
        let mut run = self.begin()?;
        let mut input = Input::all(&view.runs, from.max(FIRST))?;
        let mut pieces = PieceWriter::new(Pending::new(0));
        while !input.is_between_logs() || input.next_log().is_some_and(&wanted) {
            input.step(&mut pieces).map_err(read_error)?;
            run.put_all(&mut pieces)?;
        }
        run.finish()
    }

    /// Imports what [`View::export`] wrote, of it the logs whose keys start with `prefix`.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let (here, there) = (brooklet::Store::in_memory(1)?, brooklet::Store::in_memory(2)?);
    /// # let mut file = Vec::new();
    /// # here.append("doc", "a")?.wait()?;
    /// # here.view()?.export("", &mut file)?;
    /// use brooklet::codex::{Bytes, Reader};
    /// let reader = Reader::open(Bytes::from(file), here.view()?.export("", std::io::sink())?.bytes, None)?;
    /// assert_eq!(there.import().export(&reader, "")?.logs, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`view`](Self::view); [`Error::InvalidImport`] where the file is something else, or makes
    /// no sense; [`Error::Damaged`].
    pub fn export<S: Source>(
        self,
        file: &Reader<S>,
        prefix: impl AsRef<[u8]>,
    ) -> Result<ImportReport, Error> {
        if ExportReport::of(file)?.is_none() {
            return Err(Error::InvalidImport("it is a codex file, but no export of a store".into()));
        }
        let mut from = Vec::new();
        escape(prefix.as_ref(), &mut from);
        let mut run = self.begin()?;
        let mut cursor = file.cursor();
        let mut more = cursor.seek(&from).map_err(export_error)?;
        while more && cursor.key().starts_with(&from) {
            run.put(cursor.key().to_vec(), cursor.value().map_err(export_error)?)?;
            more = cursor.next().map_err(export_error)?;
        }
        run.finish()
    }

    /// Imports entries that come in any order; `scratch` is the folder for files at work, which go
    /// with the import.
    ///
    /// # Errors
    /// [`Error::Io`] where there can be no such files; and as [`view`](Self::view).
    pub fn unsorted(self, scratch: impl AsRef<Path>) -> Result<Unsorted, Error> {
        Unsorted::new(self, scratch.as_ref())
    }

    fn begin(self) -> Result<NewRun, Error> {
        NewRun::new(self.store, self.existing, self.on_progress)
    }
}

impl fmt::Debug for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Import")
            .field("existing", &self.existing)
            .field("memory", &self.memory)
            .finish_non_exhaustive()
    }
}
