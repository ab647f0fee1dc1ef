//! The current time, by two clocks.

/// A moment. Keys expire by the wall clock, as Redis has it; waiting and idleness are measured by
/// one that is never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub wall: u64,
    /// Milliseconds since some moment, by a clock that only goes forward.
    pub steady: u64,
}
