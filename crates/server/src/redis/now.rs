//! The current time, by two clocks.

/// A moment. Keys expire by the wall clock, as in Redis; waits and idle times use a clock that is
/// never set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Milliseconds since the Unix epoch.
    pub wall: u64,
    /// Milliseconds since a fixed moment, by a clock that only moves forward.
    pub steady: u64,
}
