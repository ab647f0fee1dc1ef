//! Tries that follow one another while a bucket does not answer.

use std::time::{Duration, Instant};

use brooklet_replica::Error;

/// Time between two reports.
const REMIND: Duration = Duration::from_secs(60);

/// The reports on tries that fail, of which there is one each second.
#[derive(Default)]
pub(super) struct Tries {
    reported: Option<Instant>,
}

impl Tries {
    /// Reports an error, unless there was a report a short time ago.
    pub fn report(&mut self, error: &Error, what: &str) {
        if self.reported.is_none_or(|at| at.elapsed() >= REMIND) {
            self.reported = Some(Instant::now());
            tracing::warn!(%error, "{what}: the next try follows");
        }
    }
}
