//! Imports: whole logs enter a store as one run, in one step, without passing through its log.
//!
//! An import has three kinds of sources: a view of another store, an export, and entries in any
//! order. Each source becomes pieces in the order of keys, in the layout of runs. [`NewRun`] checks
//! the pieces and writes them into the heap. `maintenance/ingest.rs` makes them part of the store.
//! Before that, readers see nothing of the import, and a crash or an error leaves nothing of it.

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

/// The action of an import on logs that the store already has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Existing {
    /// Refuses the whole import with [`Error::LogExists`].
    #[default]
    Refuse,
    /// Skips these logs of the import and leaves the store's own logs unchanged. If such a log is
    /// created while the import runs, the import may still be refused.
    Skip,
}

/// The result of an import; see [`Store::import`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportReport {
    /// Number of imported logs.
    pub logs: u64,
    /// Number of entries of these logs.
    pub entries: u64,
    /// Bytes that these logs take in the store.
    pub bytes: u64,
    /// Number of logs that were skipped because the store already has them.
    pub skipped: u64,
    /// Whether the spaces of the imported logs do not count these logs, or set no limits on them,
    /// because an error ended this work. The logs are in the store.
    /// [Configure](crate::Space::configure) these spaces again. The call sets only a changed
    /// retention on existing logs: so configure a space with limits twice, first with another
    /// retention.
    pub uncounted: bool,
}

type OnProgress = Box<dyn FnMut(Progress) -> ControlFlow<()> + Send>;

/// The options of an import; see [`Store::import`].
pub struct Import {
    store: Store,
    existing: Existing,
    logs_once: bool,
    memory: usize,
    on_progress: Option<OnProgress>,
}

impl Store {
    /// Imports whole logs without passing through the store's log. An import is several times as
    /// fast as appending the entries, because it writes them once, in order. All logs appear at
    /// once when they are on stable media, or no log appears. The store can be used as usual during
    /// the import.
    ///
    /// An import can add only logs that the store does not have; see [`Existing`]. At the end of
    /// the import, commits that would create logs wait for a moment, because the import may contain
    /// the same logs. Commits on existing logs do not wait.
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
        let (existing, memory) = (Existing::default(), 256 << 20);
        Import { store: self.clone(), existing, logs_once: false, memory, on_progress: None }
    }
}

impl Import {
    /// Sets the action on logs that the store already has; [`Existing::Refuse`] by default.
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }

    /// Refuses an import for which [`Unsorted::log`] is called twice for the same log, with
    /// [`Error::InvalidImport`]. By default, the last call counts.
    pub fn logs_once(mut self) -> Self {
        self.logs_once = true;
        self
    }

    /// Sets the memory for sorting entries in any order, in bytes, approximately; 256 MiB by
    /// default. Entries that do not fit go into temporary files.
    pub fn memory(mut self, bytes: usize) -> Self {
        self.memory = bytes;
        self
    }

    /// Calls `f` from time to time with the progress. If `f` returns `Break`, the import ends with
    /// [`Error::Cancelled`].
    pub fn on_progress(mut self, f: impl FnMut(Progress) -> ControlFlow<()> + Send + 'static) -> Self {
        self.on_progress = Some(Box::new(f));
        self
    }

    /// Imports the logs of a view of another store whose keys start with `prefix`.
    ///
    /// # Errors
    /// [`Error::LogExists`]; [`Error::Full`] if there is no room; the errors of reading the view;
    /// [`Error::Stopped`]. After any of these errors, nothing was imported. The only exception is
    /// [`Error::Stopped`]: the logs may have been imported, and the next opening shows whether they
    /// were.
    pub fn view(self, view: &View, prefix: impl AsRef<[u8]>) -> Result<ImportReport, Error> {
        let prefix = prefix.as_ref();
        self.take(view, prefix, |key| key.starts_with(prefix))
    }

    /// Imports one log of a view, like [`view`](Self::view).
    ///
    /// # Errors
    /// The same errors as [`view`](Self::view), and [`Error::UnknownLog`].
    pub fn log(self, view: &View, key: impl AsRef<[u8]>) -> Result<ImportReport, Error> {
        let key = key.as_ref();
        view.expect_log(key)?;
        self.take(view, key, |other| other == key)
    }

    /// Imports the logs of a view from key `from` on, as long as `wanted` returns `true`.
    fn take(self, view: &View, from: &[u8], wanted: impl Fn(&[u8]) -> bool) -> Result<ImportReport, Error> {
        let _span = tracing::info_span!("import").entered();
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

    /// Imports the logs of a file of [`View::export`] whose keys start with `prefix`.
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
    /// The same errors as [`view`](Self::view); [`Error::InvalidImport`] if the file is not a valid
    /// export; [`Error::Damaged`].
    pub fn export<S: Source>(
        self,
        file: &Reader<S>,
        prefix: impl AsRef<[u8]>,
    ) -> Result<ImportReport, Error> {
        if ExportReport::of(file)?.is_none() {
            return Err(Error::InvalidImport("the file is a codex, but not an export of a store".into()));
        }
        let _span = tracing::info_span!("import").entered();
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

    /// Imports entries in any order. `scratch` is the folder for temporary files, which the import
    /// removes when it ends.
    ///
    /// # Errors
    /// [`Error::Io`] if these files cannot be created; the same errors as [`view`](Self::view).
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
