//! Offloading: runs that somebody keeps elsewhere leave the store's file, the oldest first, and are
//! read from there.

use std::ops::ControlFlow;
use std::sync::Arc;

use brooklet_codex::Source;

use crate::error::Error;
use crate::format::manifest::PartName;
use crate::model::progress::Progress;
use crate::run::Run;
use crate::run::table::Table;
use crate::store::Store;

/// What was offloaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OffloadReport {
    /// Runs.
    pub runs: usize,
    /// Parts that they consist of.
    pub parts: usize,
    /// Bytes of those.
    pub bytes: u64,
    /// Bytes of runs that the store's volume still holds.
    pub left: u64,
}

impl Store {
    /// Lets runs go from the store's volume until those that it holds take `most` bytes or less:
    /// the oldest first, and as a whole. What is new is at hand, and what is old is read from
    /// wherever [parts](crate::View::parts) of it are kept.
    ///
    /// `kept` gives the bytes of a part that is kept elsewhere, for as long as the store names it;
    /// `None` ends it. Each part is read back and checked before it goes, and reported to
    /// `progress`: where that returns `Break`, the call ends. From then on the store is opened with
    /// [`Options::offload_reader`](crate::Options::offload_reader), and a look-up in what is old
    /// fails while that is out of reach; commits do not, but those on a log of which only that
    /// knows where it ends.
    ///
    /// What was offloaded is not merged any more, and so keeps what was trimmed of it. All of it
    /// comes back by a [copy](crate::Options::copy) of a view. A run that is being merged does not
    /// go, nor do those that are newer.
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
    /// [`Error::Damaged`] and [`Error::Io`] where what is kept is not what it should be, or cannot
    /// be read: that run stays as it is. [`Error::Full`] where there is no room for a manifest;
    /// [`Error::ReadOnly`]; [`Error::Stopped`].
    pub fn offload<S: Source + ?Sized + 'static>(
        &self,
        most: u64,
        mut kept: impl FnMut(PartName) -> Option<Arc<S>>,
        mut progress: impl FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<OffloadReport, Error> {
        let inner = self.inner();
        inner.wal()?;
        let (mut offloaded, mut total) = (OffloadReport::default(), None);
        loop {
            let runs = inner.state().runs.clone();
            offloaded.left = runs.here().iter().map(|run| run.bytes()).sum();
            let total = *total.get_or_insert(offloaded.left.saturating_sub(most));
            let next = if offloaded.left > most { inner.maintenance().may_go(&runs) } else { None };
            // What may go is not to be kept from going.
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

    /// A run's tables as they are kept elsewhere, if all of them are.
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
