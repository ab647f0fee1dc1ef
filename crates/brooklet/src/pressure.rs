//! Back-pressure: how long an append waits though there is room for it, so that room which is being made comes in time, and
//! whoever writes feels a slope and not a wall. Decided from figures; threads and clocks are the caller's.

use std::time::Duration;

/// The longest that an append waits.
const LONGEST: Duration = Duration::from_millis(5);
/// Less than this is not worth a sleep.
const SHORTEST: Duration = Duration::from_micros(50);

/// How full something is: what is left until writers are held back, and from when on they are slowed down, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauge {
    pub left: u64,
    pub slope: u64,
}

impl Gauge {
    /// One of something of which `used` of `size` bytes are in use, and of which the last quarter is the slope.
    pub fn last_quarter(used: u64, size: u64) -> Self {
        Self { left: size.saturating_sub(used), slope: size / 4 }
    }

    /// How far down the slope that is, in percent.
    pub fn percent(self) -> u64 {
        let down = self.slope.saturating_sub(self.left);
        (u128::from(down) * 100 / u128::from(self.slope.max(1))) as u64
    }
}

/// How long an append waits, by what is nearest to its end. It grows with the square of how near that is.
pub(crate) fn delay(gauges: &[Gauge]) -> Duration {
    let percent = gauges.iter().map(|gauge| gauge.percent()).max().unwrap_or_default() as u32;
    let delay = LONGEST * (percent * percent) / 10_000;
    if delay < SHORTEST { Duration::ZERO } else { delay }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_less_is_left_the_longer_an_append_waits() {
        let delays: Vec<_> = (0..=2000).rev().map(|left| delay(&[Gauge { left, slope: 1000 }])).collect();
        assert!(delays.is_sorted());
        assert_eq!((delays[0], delays[1000], delays[2000]), (Duration::ZERO, Duration::ZERO, LONGEST));
        assert!(delays[1500] < LONGEST / 3, "gently at first");
        assert!(delays.windows(2).all(|pair| pair[1] - pair[0] < LONGEST / 50), "no step");
    }

    #[test]
    fn what_is_nearest_to_its_end_counts() {
        let (far, near) = (Gauge { left: 900, slope: 1000 }, Gauge { left: 1, slope: 100 });
        assert_eq!(delay(&[far, near]), delay(&[near]));
        assert_eq!(delay(&[]), Duration::ZERO);
        assert_eq!(delay(&[Gauge::default()]), Duration::ZERO, "nothing is known of it");
        assert_eq!(Gauge::last_quarter(60, 80), Gauge { left: 20, slope: 20 });
        assert_eq!(Gauge { left: 0, slope: u64::MAX }.percent(), 100);
    }
}
