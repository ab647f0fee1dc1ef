//! The options of a store with offloaded parts.

use std::fmt;
use std::sync::Arc;

use brooklet_codex::Source;

use crate::error::Error;
use crate::format::manifest::PartName;
use crate::options::Options;

type Open = dyn Fn(PartName) -> Result<Arc<dyn Source>, Error> + Send + Sync;

/// A function that opens offloaded parts.
#[derive(Clone)]
pub(crate) struct OffloadReader(pub Arc<Open>);

impl fmt::Debug for OffloadReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Elsewhere")
    }
}

impl Options {
    /// Sets the function that opens [offloaded](crate::Store::offload) parts. Opening the store
    /// calls the function for each of these parts. A store with offloaded parts cannot be opened
    /// without this function, not even for reading only.
    pub fn offload_reader(
        mut self,
        open: impl Fn(PartName) -> Result<Arc<dyn Source>, Error> + Send + Sync + 'static,
    ) -> Self {
        self.offload_reader = Some(OffloadReader(Arc::new(open)));
        self
    }

    /// Lets [`copy`](Self::copy) and [`succeed`](Self::succeed) make a store in which the old runs
    /// are [offloaded](crate::Store::offload), so that it serves before it is copied. These are the
    /// oldest runs, as long as the [offload reader](Self::offload_reader) opens all their parts.
    /// Only the first bytes of each part are read and checked. All other bytes are checked as they
    /// are read. A merge that the view found in progress, and the runs newer than it, are copied.
    /// [`Store::recall`](crate::Store::recall) brings the offloaded runs to the volume later.
    ///
    /// The parts must stay where they are for as long as the store names them: the archive of the
    /// store's own backups sees to that, and no other place does. Default: false.
    pub fn leave_offloaded(mut self, leave: bool) -> Self {
        self.leave_offloaded = leave;
        self
    }
}
