//! The progress of a builder, and its cancellation.

use std::ops::ControlFlow;

#[cfg(unix)]
use crate::error::{Error, Result};

/// The progress of a long call of a [`FileBuilder`](crate::FileBuilder), or of
/// [`Reader::verify`](crate::Reader::verify). If the function that receives it returns
/// [`Break`](ControlFlow::Break), the call fails with [`Error::Cancelled`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Number of entries done so far.
    pub entries: u64,
    /// Bytes of the keys and values done so far; during a check, bytes of the file.
    pub bytes: u64,
    /// Number of ranges merged so far in the current merge; 0 while the builder takes entries.
    pub merged: u64,
    /// Number of ranges in the current merge; 0 while the builder takes entries.
    pub to_merge: u64,
}

impl Progress {
    /// Returns `Continue`: for callers that do not watch the progress.
    pub fn ignore(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

#[cfg(unix)]
pub(crate) type OnProgress = Box<dyn FnMut(Progress) -> ControlFlow<()> + Send>;

#[cfg(unix)]
pub(crate) fn report(on_progress: &mut Option<OnProgress>, progress: &Progress) -> Result<()> {
    match on_progress.as_mut().map(|report| report(*progress)) {
        Some(ControlFlow::Break(())) => Err(Error::Cancelled),
        _ => Ok(()),
    }
}
