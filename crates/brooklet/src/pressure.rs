//! Back-pressure: how long an append waits though there is room for it in the heap, so that what merging frees comes in time,
//! and whoever writes to a store that is nearly full feels a slope and not a wall. Decided from figures; threads and clocks
//! are the caller's.

use std::time::Duration;

/// The longest that an append waits.
const LONGEST: Duration = Duration::from_millis(5);
/// Less than this is not worth a sleep.
const SHORTEST: Duration = Duration::from_micros(50);

/// How near appends are to finding no room: what is left, and from when on they are slowed down, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauge {
    pub left: u64,
    pub slope: u64,
}

impl Gauge {
    /// How far down the slope that is, in percent.
    pub fn percent(self) -> u64 {
        let down = self.slope.saturating_sub(self.left);
        (u128::from(down) * 100 / u128::from(self.slope.max(1))) as u64
    }

    /// How long an append waits: by the square of how near the end is.
    pub fn delay(self) -> Duration {
        let percent = self.percent() as u32;
        let delay = LONGEST * (percent * percent) / 10_000;
        if delay < SHORTEST { Duration::ZERO } else { delay }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_is_left_the_longer_an_append_waits() {
        let delays: Vec<_> = (0..=2000).rev().map(|left| Gauge { left, slope: 1000 }.delay()).collect();
        assert!(delays.is_sorted());
        assert_eq!((delays[0], delays[1000], delays[2000]), (Duration::ZERO, Duration::ZERO, LONGEST));
        assert!(delays[1500] < LONGEST / 3, "gently at first");
        assert!(delays.windows(2).all(|pair| pair[1] - pair[0] < LONGEST / 50), "no step");
        assert_eq!(Gauge::default().delay(), Duration::ZERO, "nothing is known of it");
        assert_eq!(Gauge { left: 0, slope: u64::MAX }.percent(), 100);
    }
}
