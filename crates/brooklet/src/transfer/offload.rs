//! Offloading: the store's file drops the oldest runs first. The store then reads these runs from
//! the place where the caller stores their parts.

use std::ops::ControlFlow;
use std::sync::Arc;

use brooklet_codex::Source;

use crate::error::Error;
use crate::format::manifest::PartName;
use crate::model::progress::Progress;
use crate::run::Run;
use crate::run::table::Table;
use crate::store::Store;

/// The result of [`Store::offload`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffloadReport {
    /// Number of runs that were offloaded.
    pub runs: usize,
    /// Number of parts of these runs.
    pub parts: usize,
    /// Size of these parts, in bytes.
    pub bytes: u64,
    /// Size of the runs that the store's volume still holds, in bytes.
    pub left: u64,
}

impl Store {
    /// Removes whole runs from the store's volume, the oldest first, until the remaining runs take
    /// `most` bytes or less. The store then reads new entries from its volume, and old entries from
    /// the place where their [parts](crate::View::parts) are stored.
    ///
    /// `kept` returns the bytes of a part that is stored elsewhere. These bytes must stay readable
    /// as long as the store names the part. If `kept` returns `None`, the call ends. The call reads
    /// and checks each part before it removes the part, and reports to `progress`. If `progress`
    /// returns `Break`, the call ends. After the call, the store must be opened with
    /// [`Options::offload_reader`](crate::Options::offload_reader). While the offloaded parts are
    /// out of reach, look-ups in old entries fail. Commits fail only on a log whose end only the
    /// offloaded parts record.
    ///
    /// The store does not merge offloaded runs, so they keep their trimmed entries.
    /// [`recall`](Self::recall) brings the runs back. The call does not offload a run that is being
    /// merged, nor any newer run.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = brooklet::Store::in_memory(1)?;
    /// use std::collections::HashMap;
    /// use brooklet::Progress;
    /// use std::sync::Arc;
    /// use brooklet::codex::Source;
    ///
    /// store.append_many("doc", ["a", "b"])?.wait()?;
    /// let mut offloaded = HashMap::new();
    /// for part in store.view()?.parts() {
    ///     offloaded.insert(part.name(), part.read(0, part.name().len as usize)?);
    /// }
    ///
    /// let kept = |name| Some(Arc::new(offloaded.get(&name)?.clone()) as Arc<dyn Source>);
    /// let offloaded = store.offload(0, kept, Progress::ignore)?;
    /// assert_eq!((offloaded.runs, offloaded.left), (1, 0));
    /// assert_eq!(store.read("doc", 1..)?.next().unwrap()?.payload, "b");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Damaged`] if a stored part differs from the part of the store, and [`Error::Io`] if
    /// the part cannot be read: the run then stays in the store. [`Error::Full`] if there is no
    /// room for a manifest; [`Error::ReadOnly`]; [`Error::Stopped`].
    pub fn offload<S: Source + ?Sized + 'static>(
        &self,
        most: u64,
        mut kept: impl FnMut(PartName) -> Option<Arc<S>>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<OffloadReport, Error> {
        let inner = self.inner();
        inner.writable()?;
        let (mut offloaded, mut total) = (OffloadReport::default(), None);
        loop {
            let runs = inner.state().runs.clone();
            offloaded.left = runs.here().iter().map(|run| run.bytes()).sum();
            let total = *total.get_or_insert(offloaded.left.saturating_sub(most));
            let next = if offloaded.left > most { inner.maintenance().may_go(&runs) } else { None };
            // Without this drop, `runs` would keep the run in the store.
            drop(runs);
            let Some(run) = next else { return Ok(offloaded) };
            let Some(tables) = self.kept(&run, &mut kept)? else { return Ok(offloaded) };
            let mut before = offloaded.bytes;
            for table in &tables {
                let checked =
                    table.verify(None, &mut |bytes| progress(Progress::of_bytes(before + bytes, total)));
                if matches!(checked, Err(Error::Cancelled { .. })) {
                    return Ok(offloaded);
                }
                checked?;
                before += table.meta.len;
            }
            let context = inner.context()?;
            let parts = tables.len();
            let gone = inner.maintenance().let_go(&context, run, tables)?;
            if gone {
                offloaded.runs += 1;
                offloaded.parts += parts;
                offloaded.bytes = before;
            }
        }
    }

    /// Returns the tables of a run as stored elsewhere, or `None` if `kept` does not return all of
    /// them.
    fn kept<S: Source + ?Sized + 'static>(
        &self,
        run: &Arc<Run>,
        kept: &mut impl FnMut(PartName) -> Option<Arc<S>>,
    ) -> Result<Option<Vec<Arc<Table>>>, Error> {
        let mut tables = Vec::new();
        for table in &run.tables {
            let Some(source) = kept(PartName::of(&table.meta)) else { return Ok(None) };
            let table_cache = &self.inner().table_cache;
            let gone = Table::offloaded(table_cache, run.meta.id, table.meta.gone(), Arc::new(source))?;
            tables.push(Arc::new(gone));
        }
        Ok(Some(tables))
    }
}
