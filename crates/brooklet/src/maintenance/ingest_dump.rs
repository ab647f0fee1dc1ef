//! Makes a dump of a memory space part of the store.

use std::sync::Arc;

use crate::error::Error;
use crate::maintenance::install::Brings;
use crate::maintenance::{Context, Maintenance};
use crate::run::{Counted, Run};

/// The name of a dump in [`Error::Full`].
pub(crate) const DUMP: &str = "the dump in the heap";

impl Maintenance {
    /// Makes a dump the newest run. No memtable has any entry of its logs, so the dump may be newer
    /// than a running checkpoint. The runs that it `supersedes` no longer count.
    pub fn ingest_dump(
        &mut self,
        context: &Context<'_>,
        dump: &Arc<Run>,
        supersedes: &[u64],
    ) -> Result<(), Error> {
        self.merges.compacting = false;
        let old = context.state().runs.clone();
        let still = |(run, dead): Counted| {
            let dead = if supersedes.contains(&run.meta.id) { run.meta.entries } else { dead };
            (run, dead)
        };
        let runs = std::iter::once((dump.clone(), 0)).chain(old.counted().map(still)).collect();
        let merging = old.merging().cloned();
        drop(old);
        self.replace(context, runs, merging, Brings::Nothing).map_err(|build_error| {
            let error = self.import_failed(context, DUMP, build_error);
            // After a store has stopped, it is unknown which superblock is on the medium.
            if !matches!(error, Error::Stopped { .. }) {
                self.give_up_tables(dump.tables.clone());
            }
            error
        })
    }
}
