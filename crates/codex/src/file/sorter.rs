//! Sorting alone.

use std::mem;
use std::ops::ControlFlow;
use std::path::Path;

use super::FileBuilder;
use crate::error::Result;
use crate::merge::Merge;
use crate::options::FileOptions;
use crate::progress::Progress;

/// Brings entries that come in any order into the order of their keys, in bounded memory, with all
/// cores.
///
/// ```
/// use brooklet_codex::{FileOptions, Sorter};
/// use std::ops::ControlFlow;
///
/// let mut sorter = Sorter::new(std::env::temp_dir(), FileOptions::default());
/// for (key, value) in [("oak", "quercus"), ("ash", "fraxinus"), ("elm", "ulmus")] {
///     sorter.add(key.as_bytes(), value.as_bytes())?;
/// }
/// let mut keys = Vec::new();
/// sorter.finish(|key, _| {
///     keys.push(key.to_vec());
///     ControlFlow::Continue(())
/// })?;
/// assert_eq!(keys, [b"ash", b"elm", b"oak"]);
/// # Ok::<(), brooklet_codex::Error>(())
/// ```
pub struct Sorter(FileBuilder);

impl Sorter {
    /// A sorter whose file at work, once there are more entries than fit into memory, is in this
    /// folder, and goes with the sorter. Of the options, memory, threads and duplicates count, and
    /// how what does not fit is packed.
    pub fn new(folder: impl AsRef<Path>, options: FileOptions) -> Self {
        let mut builder = FileBuilder::of(folder.as_ref().join("sorter"), options);
        // No file is asked for that entries which come in order could go into at once.
        builder.direct = None;
        Sorter(builder)
    }

    /// Tells `f` of the progress, as [`FileBuilder::on_progress`] does.
    pub fn on_progress(&mut self, f: impl FnMut(Progress) -> ControlFlow<()> + Send + 'static) {
        self.0.on_progress(f);
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// As [`FileBuilder::add`].
    #[inline]
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.add(key, value)
    }

    /// Gives all entries to `visit`, in the order of their keys, while threads bring the next into
    /// order.
    ///
    /// # Errors
    /// As [`FileBuilder::finish`]; [`Error::Cancelled`](crate::Error::Cancelled) where `visit`
    /// breaks.
    pub fn finish(self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()> + Send) -> Result<()> {
        let Sorter(mut builder) = self;
        builder.check()?;
        let rest = mem::take(&mut builder.open);
        builder.progress.entries += rest.entries();
        builder.sort_all(rest)?;
        let FileBuilder { spill, sorted, options, threads, progress, on_progress, .. } = &mut builder;
        let merge = Merge::new(spill.as_ref(), sorted, &options.blocks, options.duplicates);
        merge.visit(*threads, progress, on_progress, visit)
    }
}
