//! How far a long call is.

use std::ops::ControlFlow;

/// How far a long call is. The call hands it to a function of the caller from time to time; where
/// that returns [`Break`](ControlFlow::Break), the call ends early, as its documentation
/// says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes done by now.
    pub bytes: u64,
    /// Bytes to do in all; `None` where the call does not know it in advance.
    pub total_bytes: Option<u64>,
    /// Logs done by now, where the call counts them.
    pub logs: u64,
    /// Entries done by now, where the call counts them.
    pub entries: u64,
}

impl Progress {
    /// Creates the progress of a call that counts bytes.
    pub fn of_bytes(bytes: u64, total_bytes: u64) -> Self {
        Self { bytes, total_bytes: Some(total_bytes), ..Self::default() }
    }

    /// Goes on, whatever the progress: for callers that do not watch.
    pub fn ignore(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
