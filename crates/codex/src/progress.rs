//! How far a builder is, and how its caller stops it.

use std::ops::ControlFlow;

use crate::error::{Error, Result};

/// How far a [`FileBuilder`] is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Entries taken in.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Ranges merged, of those that are being merged now, and how many these are; 0 of 0 while
    /// entries are taken in.
    pub merged: u64,
    /// See `merged`.
    pub to_merge: u64,
}

pub(crate) type OnProgress = Box<dyn FnMut(Progress) -> ControlFlow<()> + Send>;

pub(crate) fn report(on_progress: &mut Option<OnProgress>, progress: &Progress) -> Result<()> {
    match on_progress.as_mut().map(|report| report(*progress)) {
        Some(ControlFlow::Break(())) => Err(Error::Cancelled),
        _ => Ok(()),
    }
}
