//! Time limits. This is the only clock of the simulator itself: it decides only how much is tried.

use std::time::{Duration, Instant};

/// A time span that has begun, with or without an end.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    began: Instant,
    allowed: Option<Duration>,
}

impl Budget {
    /// Begins a budget of this many seconds, or one without an end.
    pub fn new(seconds: Option<u64>) -> Self {
        #[expect(clippy::disallowed_methods, reason = "it decides how much is tried, not how a run goes")]
        let began = Instant::now();
        Self { began, allowed: seconds.map(Duration::from_secs) }
    }

    /// Begins a budget that ends after `allowed`.
    pub fn of(allowed: Duration) -> Self {
        Self { allowed: Some(allowed), ..Self::new(None) }
    }

    /// Returns the time since it began.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the time that is left; `None` if it has no end.
    pub fn left(&self) -> Option<Duration> {
        self.allowed.map(|allowed| allowed.saturating_sub(self.elapsed()))
    }

    /// Returns whether no time is left.
    pub fn is_spent(&self) -> bool {
        self.left().is_some_and(|left| left.is_zero())
    }
}
