//! Options: where documents are, when snapshots are taken, and what stays.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use brooklet::io::{Clock, SystemClock};

use crate::error::{Error, Result};

/// How [`Documents`](crate::Documents) are opened.
///
/// ```
/// use std::time::Duration;
/// use brooklet_documents::{Documents, Json, Options};
///
/// # fn main() -> Result<(), brooklet_documents::Error> {
/// # let store = brooklet::Store::in_memory(1)?;
/// let options = Options::new("docs/")
///     .snapshot_updates(500)                          // whichever limit is reached first
///     .snapshot_bytes(1 << 20)
///     .snapshot_load_time(Duration::from_millis(20))
///     .history(1_000)                                 // versions that stay for undo and `at`
///     .cache_budget(256 << 20);
/// let documents = Documents::open(&store, Json::new(), options)?;
/// # assert_eq!(documents.cache().documents, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) prefix: Vec<u8>,
    pub(crate) snapshot_updates: u64,
    pub(crate) snapshot_bytes: u64,
    pub(crate) snapshot_load_time: Duration,
    pub(crate) history: u64,
    pub(crate) remember: u64,
    pub(crate) cache_budget: usize,
    pub(crate) background: bool,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Options {
    /// Returns the defaults, for the documents below a prefix of the store. End the prefix with a
    /// slash, so that no other prefix in use begins with it. For the documents of a
    /// [space](brooklet::Space), pass `space.key("")`.
    pub fn new(prefix: impl AsRef<[u8]>) -> Self {
        Self {
            prefix: prefix.as_ref().into(),
            snapshot_updates: 100,
            snapshot_bytes: 256 << 10,
            snapshot_load_time: Duration::from_millis(50),
            history: 100,
            remember: 64,
            cache_budget: 64 << 20,
            background: true,
            clock: Arc::new(SystemClock::new()),
        }
    }

    /// Sets the number of updates after which a document gets a snapshot. Default: 100. A snapshot
    /// writes the whole state: for large states, a larger number writes less.
    pub fn snapshot_updates(mut self, updates: u64) -> Self {
        self.snapshot_updates = updates;
        self
    }

    /// Sets the bytes of updates after which a document gets a snapshot. Default: 256 KiB.
    pub fn snapshot_bytes(mut self, bytes: u64) -> Self {
        self.snapshot_bytes = bytes;
        self
    }

    /// Sets the time of a load after which a document gets a snapshot, if updates were part of the
    /// load. Default: 50 milliseconds.
    pub fn snapshot_load_time(mut self, time: Duration) -> Self {
        self.snapshot_load_time = time;
        self
    }

    /// Sets the number of versions before a snapshot that stay, for [`at`](crate::Documents::at),
    /// [`changes`](crate::Documents::changes), [`rewind`](crate::Documents::rewind) and
    /// [`history`](crate::Documents::history). Default: 100. A snapshot drops older updates.
    pub fn history(mut self, versions: u64) -> Self {
        self.history = versions;
        self
    }

    /// Sets the number of versions for which a document remembers a request id. Default: 64. Each
    /// snapshot of the document carries the remembered ids.
    pub fn remember(mut self, versions: u64) -> Self {
        self.remember = versions;
        self
    }

    /// Sets the bytes of memory that documents may take while no call uses them, about. Default:
    /// 64 MiB. The documents that were used last stay.
    pub fn cache_budget(mut self, bytes: usize) -> Self {
        self.cache_budget = bytes;
        self
    }

    /// Sets whether a thread takes the snapshots that are due. Default: yes. Without it, call
    /// [`maintain`](crate::Documents::maintain).
    pub fn background(mut self, on: bool) -> Self {
        self.background = on;
        self
    }

    /// Sets the clock, for simulations. Default: the clock of the machine.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        let least = [
            ("snapshot_updates", self.snapshot_updates),
            ("snapshot_bytes", self.snapshot_bytes),
            ("remember", self.remember),
        ];
        match least.into_iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(Error::Invalid(format!("`{name}` is 0: set it to 1 or more"))),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("prefix", &self.prefix.escape_ascii().to_string())
            .field("snapshot_updates", &self.snapshot_updates)
            .field("snapshot_bytes", &self.snapshot_bytes)
            .field("snapshot_load_time", &self.snapshot_load_time)
            .field("history", &self.history)
            .field("remember", &self.remember)
            .field("cache_budget", &self.cache_budget)
            .field("background", &self.background)
            .finish_non_exhaustive()
    }
}
