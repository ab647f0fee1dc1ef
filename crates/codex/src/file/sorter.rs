//! Sorting without building a file.

use std::mem;
use std::ops::ControlFlow;
use std::path::Path;

use super::FileBuilder;
use crate::error::Result;
use crate::merge::Merge;
use crate::options::FileOptions;
use crate::progress::Progress;

/// A sorter of entries by their keys, in bounded memory, with all cores. Entries may come in any
/// order.
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
    /// Creates a sorter. If the entries exceed the memory, the sorter creates a temporary file in
    /// `folder`; dropping the sorter removes that file. The sorter uses these options: memory,
    /// threads, duplicates, and the packing of the entries in the temporary file.
    pub fn new(folder: impl AsRef<Path>, options: FileOptions) -> Self {
        let mut builder = FileBuilder::of(folder.as_ref().join("sorter"), options);
        // No target file exists into which ordered entries could go directly.
        builder.direct = None;
        Sorter(builder)
    }

    /// Sets `f` as the receiver of the progress, as [`FileBuilder::on_progress`] does.
    pub fn on_progress(&mut self, f: impl FnMut(Progress) -> ControlFlow<()> + Send + 'static) {
        self.0.on_progress(f);
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// The same errors as [`FileBuilder::add`].
    #[inline]
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.0.add(key, value)
    }

    /// Calls `visit` with each entry, in the order of their keys, while threads sort the next
    /// entries.
    ///
    /// # Errors
    /// The same errors as [`FileBuilder::finish`]; [`Error::Cancelled`](crate::Error::Cancelled) if
    /// `visit` returns `Break`.
    pub fn finish(self, visit: impl FnMut(&[u8], &[u8]) -> ControlFlow<()> + Send) -> Result<()> {
        let Sorter(mut builder) = self;
        builder.check()?;
        let rest = mem::take(&mut builder.open);
        builder.progress.entries += rest.entries();
        builder.sort_all(rest)?;
        let FileBuilder { spill, sorted, options, threads, progress, on_progress, .. } = &mut builder;
        let merge = Merge::new(spill.as_ref(), sorted, options, *threads);
        merge.visit(*threads, progress, on_progress, visit)
    }
}
