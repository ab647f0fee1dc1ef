//! The progress of long calls.

use std::ops::ControlFlow;

/// The progress of a long call. From time to time, the call passes its progress to a function of
/// the caller. If this function returns [`Break`](ControlFlow::Break), the call ends early, as its
/// documentation says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes done so far.
    pub bytes: u64,
    /// Total bytes to do; `None` if the call does not know them in advance.
    pub total_bytes: Option<u64>,
    /// Number of logs done so far, if the call counts them.
    pub logs: u64,
    /// Number of entries done so far, if the call counts them.
    pub entries: u64,
}

impl Progress {
    /// Creates the progress of a call that counts bytes.
    pub fn of_bytes(bytes: u64, total_bytes: u64) -> Self {
        Self { bytes, total_bytes: Some(total_bytes), ..Self::default() }
    }

    /// Continues the call, whatever the progress: for callers that do not watch.
    pub fn ignore(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
