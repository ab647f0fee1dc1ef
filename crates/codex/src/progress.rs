//! How far a builder is, and how its caller stops it.

use std::ops::ControlFlow;

#[cfg(unix)]
use crate::error::{Error, Result};

/// How far a long call is: of a [`FileBuilder`](crate::FileBuilder), or
/// [`Reader::verify`](crate::Reader::verify). Where the function that gets it returns
/// [`Break`](ControlFlow::Break), the call fails with [`Error::Cancelled`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Entries done by now.
    pub entries: u64,
    /// Bytes of their keys and values; of a check, of the file.
    pub bytes: u64,
    /// Ranges merged, of those that are being merged now, and how many these are; 0 of 0 while
    /// entries are taken in.
    pub merged: u64,
    /// See `merged`.
    pub to_merge: u64,
}

impl Progress {
    /// Goes on, whatever the progress: for callers that do not watch.
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
