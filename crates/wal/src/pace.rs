//! The time of the next write, on a volume that is billed by the operation and the byte.
//!
//! Each write delays the next by the least interval, or by the time that its bytes take at the
//! rate, whichever is longer. Unused time is not saved up: a burst after a pause keeps the
//! interval, too.

use std::time::Duration;

/// The allowed speed of writes to a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pace {
    /// The least time from the start of a write to the start of the next. Zero: no limit.
    pub interval: Duration,
    /// Bytes per second. Zero: no limit.
    pub rate: u64,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pacer {
    pace: Pace,
    next: Duration,
}

impl Pacer {
    pub fn new(pace: Pace) -> Self {
        Self { pace, next: Duration::ZERO }
    }

    /// Returns whether writes are delayed at all.
    pub fn is_on(&self) -> bool {
        self.pace != Pace::default()
    }

    /// Returns the earliest time of the next write.
    pub fn next(&self) -> Duration {
        self.next
    }

    /// Counts a write of `len` bytes that starts now.
    pub fn charge(&mut self, len: u64, now: Duration) {
        let Pace { interval, rate } = self.pace;
        let bytes = (u128::from(len) * 1_000_000_000).checked_div(u128::from(rate)).unwrap_or(0);
        let bytes = Duration::from_nanos(u64::try_from(bytes).unwrap_or(u64::MAX));
        self.next = now.max(self.next).saturating_add(interval.max(bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_longer_of_interval_and_bytes_counts() {
        let mut pacer = Pacer::new(Pace { interval: MS, rate: 1_000_000 });
        pacer.charge(100, 10 * MS);
        assert_eq!(pacer.next(), 11 * MS);
        pacer.charge(4000, pacer.next());
        assert_eq!(pacer.next(), 15 * MS);
    }

    #[test]
    fn pauses_are_not_saved_up() {
        let mut pacer = Pacer::new(Pace { interval: MS, rate: 0 });
        pacer.charge(1, MS);
        let mut starts = Vec::new();
        let mut now = 100 * MS;
        for _ in 0..5 {
            now = now.max(pacer.next());
            starts.push(now);
            pacer.charge(1, now);
        }
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] >= MS));
    }

    #[test]
    fn no_pace_holds_nothing_back() {
        let mut pacer = Pacer::new(Pace::default());
        pacer.charge(1 << 40, MS);
        assert!(!pacer.is_on() && pacer.next() <= MS);
    }
}
