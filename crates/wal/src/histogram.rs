//! Histograms of times: they show why a log is slow.

// The counts order no other memory accesses, so shuttle's scheduler need not know these atomics.
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Binary logarithm of the first bound in nanoseconds: the bound is 256 ns.
const FIRST: u32 = 8;
/// Number of bounds: two for each power of two, up to half a minute.
const BOUNDS: usize = 2 * 27 + 1;

/// A histogram of times. Its classes are narrow enough to report a median or a 99th percentile to
/// about a quarter.
///
/// Counts only grow: the [difference](Self::since) of two histograms covers the time between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// One count for the times up to each bound and beyond the bound before, and one for all longer
    /// times.
    counts: [u64; BOUNDS + 1],
    sum: Duration,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BOUNDS + 1], sum: Duration::ZERO }
    }
}

/// Returns the bound of a class in nanoseconds: 256, 384, 512, 768, …
fn bound(class: usize) -> u64 {
    let power = 1 << (FIRST + class as u32 / 2);
    if class.is_multiple_of(2) { power } else { power + power / 2 }
}

/// Returns the first class whose bound is not less than `time`.
fn class(time: Duration) -> usize {
    let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1);
    let power = (u64::BITS - (nanos - 1).leading_zeros()).saturating_sub(FIRST) as usize;
    let class = (2 * power).min(BOUNDS);
    // A power of two has two classes; the narrower class may be wide enough.
    if class > 0 && nanos <= bound(class - 1) { class - 1 } else { class }
}

impl Histogram {
    /// Adds a time.
    pub fn record(&mut self, time: Duration) {
        self.counts[class(time)] += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// Returns the number of times added.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all times.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns each bound with the number of times that do not exceed it.
    pub fn cumulative(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.counts[..BOUNDS].iter().enumerate().scan(0, |sum, (class, count)| {
            *sum += count;
            Some((Duration::from_nanos(bound(class)), *sum))
        })
    }

    /// Returns a time that a share `part`, from 0 to 1, of all times do not exceed; zero for an
    /// empty histogram. Assumes that times are spread evenly within a class.
    pub fn quantile(&self, part: f64) -> Duration {
        let rank = (self.count() as f64 * part).max(1.0);
        let (mut before, mut floor) = (0, Duration::ZERO);
        for (bound, sum) in self.cumulative() {
            if sum as f64 >= rank {
                let share = (rank - before as f64) / (sum - before) as f64;
                return floor + (bound - floor).mul_f64(share);
            }
            (before, floor) = (sum, bound);
        }
        if self.count() == 0 { Duration::ZERO } else { floor }
    }

    /// Returns the times added since `earlier`, an earlier copy of the same histogram.
    pub fn since(&self, earlier: &Self) -> Self {
        let counts = std::array::from_fn(|i| self.counts[i].saturating_sub(earlier.counts[i]));
        Self { counts, sum: self.sum.saturating_sub(earlier.sum) }
    }
}

/// A histogram to which many threads add.
#[derive(Debug)]
pub struct SharedHistogram {
    counts: [AtomicU64; BOUNDS + 1],
    nanos: AtomicU64,
}

impl Default for SharedHistogram {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BOUNDS + 1], nanos: AtomicU64::new(0) }
    }
}

impl SharedHistogram {
    /// Adds a time.
    pub fn record(&self, time: Duration) {
        self.counts[class(time)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Returns a copy of the current counts.
    pub fn get(&self) -> Histogram {
        let counts = std::array::from_fn(|class| self.counts[class].load(Ordering::Relaxed));
        Histogram { counts, sum: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(n: u64) -> Duration {
        Duration::from_nanos(n)
    }

    #[test]
    fn a_time_is_in_the_first_class_whose_bound_it_does_not_exceed() {
        for class in 0..BOUNDS {
            for time in [bound(class) - 1, bound(class)] {
                let mut one = Histogram::default();
                one.record(nanos(time));
                assert_eq!(one.counts[class], 1, "{time}");
            }
        }
        let mut ends = Histogram::default();
        [0, 1, 256, 257, u64::MAX].into_iter().for_each(|n| ends.record(nanos(n)));
        ends.record(Duration::MAX / 2);
        assert_eq!((ends.counts[0], ends.counts[1], ends.counts[BOUNDS]), (3, 1, 2));
        assert!((0..BOUNDS - 1).all(|class| bound(class) < bound(class + 1)));
        assert_eq!(bound(BOUNDS - 1), 1 << 35);
    }

    #[test]
    fn quantiles_are_near_those_of_the_times() {
        let mut all = Histogram::default();
        assert_eq!(all.quantile(0.5), Duration::ZERO);
        (1..=10_000).for_each(|n| all.record(nanos(n * 1000)));
        for part in [0.01, 0.1, 0.5, 0.9, 0.99] {
            let (told, is) = (all.quantile(part).as_nanos() as f64, part * 1e7);
            assert!((told / is - 1.0).abs() < 0.25, "{part}: {told} for {is}");
        }
        assert_eq!((all.count(), all.sum()), (10_000, nanos(50_005_000_000)));
        let earlier = all.clone();
        all.record(nanos(300));
        let one = all.since(&earlier);
        assert_eq!((one.count(), one.sum()), (1, nanos(300)));
        assert!((nanos(257)..=nanos(384)).contains(&one.quantile(1.0)));
        assert!(all.quantile(1.0) < Duration::from_millis(13));
        let shared = SharedHistogram::default();
        (1..=10_000).for_each(|n| shared.record(nanos(n * 1000)));
        assert_eq!(shared.get(), earlier);
    }
}
