//! Back-pressure: slows writers down gradually when they are faster than the store's own work. If
//! the heap is nearly full, each append waits a little, so that merging frees space in time. During
//! a checkpoint, writers get a ration of memory and of the ring. Decisions depend only on numbers;
//! threads and clocks belong to the caller.

use std::time::Duration;

/// Maximum time that an append waits.
const LONGEST: Duration = Duration::from_millis(5);
/// A shorter time is not worth a sleep.
const SHORTEST: Duration = Duration::from_micros(50);

/// A gauge of how near appends are to finding no room: the bytes left, and the bytes left below
/// which appends are slowed down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauge {
    pub left: u64,
    pub slope: u64,
}

impl Gauge {
    /// Returns how far the bytes left are below `slope`, in percent.
    pub fn percent(self) -> u64 {
        let down = self.slope.saturating_sub(self.left);
        (u128::from(down) * 100 / u128::from(self.slope.max(1))) as u64
    }

    /// Returns how long an append waits: in proportion to the square of [`percent`](Self::percent).
    pub fn delay(self) -> Duration {
        let percent = self.percent() as u32;
        let delay = LONGEST * (percent * percent) / 10_000;
        if delay < SHORTEST { Duration::ZERO } else { delay }
    }
}

/// The share of the rest at the beginning of a checkpoint that writers may use at once, per mille.
const AT_ONCE: u64 = 250;

/// The ration of memory and ring for writers during a checkpoint. Of the rest at the beginning of
/// the checkpoint, writers may use a part at once, and more as the checkpoint proceeds. So writers
/// wait a little for each slice of the checkpoint, and not for its end.
#[derive(Debug, Default)]
pub(crate) struct Ration {
    /// The bytes of memory and of the ring in use when the checkpoint began.
    begun: Option<[u64; 2]>,
}

impl Ration {
    /// Returns the limits of memory and ring, in bytes. `done` is the progress of the running
    /// checkpoint, per mille. `uses` holds the bytes in use and the size of each.
    pub fn limits(&mut self, done: Option<u64>, uses: [(u64, u64); 2]) -> [u64; 2] {
        let Some(done) = done else {
            self.begun = None;
            return [u64::MAX; 2];
        };
        let begun = *self.begun.get_or_insert(uses.map(|(used, _)| used));
        let share = AT_ONCE + (1000 - AT_ONCE) * done.min(1000) / 1000;
        let limit = |i: usize| {
            let left = u128::from(uses[i].1.saturating_sub(begun[i]));
            begun[i] + (left * u128::from(share) / 1000) as u64
        };
        [limit(0), limit(1)]
    }

    /// Returns how much of the granted bytes is in use, in percent: the larger of memory and ring.
    /// `uses` holds the bytes in use and the limit of each.
    pub fn used(&self, uses: [(u64, u64); 2]) -> u64 {
        let Some(begun) = self.begun else { return 0 };
        let percent = |((used, limit), begun): ((u64, u64), u64)| {
            let [used, granted] = [used, limit].map(|bytes| u128::from(bytes.saturating_sub(begun)));
            (used * 100 / granted.max(1)) as u64
        };
        uses.into_iter().zip(begun).map(percent).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ration_grows_as_the_checkpoint_gets_on() {
        let mut ration = Ration::default();
        let free = [u64::MAX; 2];
        assert_eq!(ration.limits(None, [(50, 100), (0, 10)]), free);
        assert_eq!(ration.limits(Some(0), [(50, 90), (100, 500)]), [60, 200]);
        assert_eq!(ration.limits(Some(500), [(80, 90), (400, 500)]), [75, 350], "of what was left at first");
        assert_eq!(ration.limits(Some(1000), [(80, 90), (400, 500)]), [90, 500]);
        assert_eq!(ration.limits(Some(9999), [(0, 90), (0, 500)]), [90, 500]);
        assert_eq!(ration.limits(None, [(0, 90), (0, 500)]), free);
        assert_eq!(
            ration.limits(Some(0), [(95, 90), (0, u64::MAX)]),
            [95, u64::MAX / 4],
            "more than there is"
        );
    }

    #[test]
    fn what_is_used_of_a_ration_is_told_of_what_is_granted() {
        let mut ration = Ration::default();
        assert_eq!(ration.used([(50, 60), (7, 8)]), 0, "there is none");
        ration.limits(Some(0), [(50, 90), (100, 500)]);
        assert_eq!(ration.used([(50, 60), (100, 200)]), 0);
        assert_eq!(ration.used([(52, 60), (150, 200)]), 50, "of the ring");
        assert_eq!(ration.used([(58, 60), (150, 200)]), 80, "of memory");
        assert_eq!(ration.used([(58, 70), (150, 300)]), 40, "it has grown");
        assert_eq!(ration.used([(40, 50), (90, 100)]), 0, "nothing was granted, and nothing used");
    }

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
