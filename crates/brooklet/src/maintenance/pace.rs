//! The pace of the store's own work, and the conditions under which the store is idle. Decisions
//! depend only on numbers; threads and clocks belong to the caller.

use std::time::Duration;

/// The store is idle after this long without a commit.
pub(crate) const IDLE: Duration = Duration::from_secs(1);
/// The store is at rest after this long without a commit. Small memtables are checkpointed only
/// then, so that occasional appends do not cost a checkpoint each, and runs are merged for faster
/// reads.
pub(crate) const LONG_IDLE: Duration = Duration::from_secs(20);
/// A memtable is small if less than this part of the ring and of the memory budget is in use.
pub(crate) const LITTLE: u64 = 64;

/// The step in which cached blocks age. Unused blocks of entries are evicted after one or two
/// steps, all other blocks after five to nine steps. To read such a block again costs some 100 µs.
pub(crate) const AGE: Duration = Duration::from_secs(10);

/// At its slowest, work rests this many times as long as it works: it takes a fifth of the time.
const REST: u32 = 4;
/// The urgency from which on work does not rest, in percent.
const FULL_SPEED: u64 = 50;
/// Maximum rest, so that urgent work is noticed soon.
const LONGEST: Duration = Duration::from_millis(100);

/// The load that determines the pace of checkpoints and compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// Whether the store is idle.
    pub idle: bool,
    /// Whether the heap has no room until maintenance makes some.
    pub short_of_room: bool,
    /// How near writers are to waiting for memory or for the ring, in percent.
    pub fill: u64,
    /// How far merging lags behind, in percent.
    pub backlog: u64,
}

/// Returns how long to rest after a slice of work that took `took`: long while callers are busy,
/// and not at all when the store is idle or its freed space is needed soon.
pub(crate) fn rest(took: Duration, load: Load) -> Duration {
    let urgency = load.fill.max(load.backlog);
    if load.idle || load.short_of_room || urgency >= FULL_SPEED {
        return Duration::ZERO;
    }
    let left = (FULL_SPEED - urgency) as u32;
    (took * REST * left / FULL_SPEED as u32).min(LONGEST)
}

/// A measurement of the time since the last commit.
#[derive(Debug)]
pub(crate) struct Quiet {
    commits: u64,
    since: Duration,
}

impl Quiet {
    /// Starts at `now`, without a commit.
    pub fn new(now: Duration) -> Self {
        Self { commits: 0, since: now }
    }

    /// Returns the time without a commit, as of `now`. `commits` is the total number of commits.
    pub fn observe(&mut self, now: Duration, commits: u64) -> Duration {
        if commits != self.commits {
            *self = Self { commits, since: now };
        }
        now.saturating_sub(self.since)
    }
}

/// A timer for the steps in which cached blocks age.
#[derive(Debug)]
pub(crate) struct Ages {
    last: Duration,
}

impl Ages {
    /// Starts the first step at `now`.
    pub fn new(now: Duration) -> Self {
        Self { last: now }
    }

    /// Returns whether a step has passed, as of `now`. Several steps that passed since the last
    /// call count as one.
    pub fn pass(&mut self, now: Duration) -> bool {
        let passed = now.saturating_sub(self.last) >= AGE;
        if passed {
            self.last = now;
        }
        passed
    }

    /// Returns the time until the current step has passed.
    pub fn left(&self, now: Duration) -> Duration {
        AGE.saturating_sub(now.saturating_sub(self.last))
    }
}

/// Returns the time without a commit after which a checkpoint is worthwhile. `uses` holds the bytes
/// in use and the size, in bytes, of the ring and of the memory budget.
pub(crate) fn patience(uses: [(u64, u64); 2]) -> Duration {
    if uses.iter().any(|&(used, size)| used >= size / LITTLE) { IDLE } else { LONG_IDLE }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn work_trickles_while_others_are_busy() {
        let busy = Load::default();
        assert_eq!(rest(MS, busy), 4 * MS);
        assert_eq!(rest(MS, Load { fill: 25, ..busy }), 2 * MS);
        assert_eq!(rest(MS, Load { backlog: 25, fill: 10, ..busy }), 2 * MS);
        assert_eq!(rest(1000 * MS, busy), LONGEST);
    }

    #[test]
    fn work_goes_at_full_speed_when_idle_or_urgent() {
        let busy = Load::default();
        for load in [
            Load { idle: true, ..busy },
            Load { short_of_room: true, ..busy },
            Load { fill: 50, ..busy },
            Load { backlog: 100, ..busy },
            Load { fill: u64::MAX, ..busy },
        ] {
            assert_eq!(rest(1000 * MS, load), Duration::ZERO, "{load:?}");
        }
    }

    #[test]
    fn the_more_urgent_the_less_rest() {
        let rests: Vec<_> = (0..=100).map(|fill| rest(MS, Load { fill, ..Load::default() })).collect();
        assert!(rests.is_sorted_by(|a, b| a >= b), "{rests:?}");
    }

    #[test]
    fn quiet_begins_anew_with_each_commit() {
        let mut quiet = Quiet::new(3 * MS);
        assert_eq!(quiet.observe(4 * MS, 0), MS);
        assert_eq!(quiet.observe(5 * MS, 1), Duration::ZERO);
        assert_eq!(quiet.observe(9 * MS, 1), 4 * MS);
        assert_eq!(quiet.observe(12 * MS, 3), Duration::ZERO);
        assert_eq!(quiet.observe(11 * MS, 3), Duration::ZERO, "a clock that goes back");
    }

    #[test]
    fn ages_pass_one_at_a_time() {
        let mut ages = Ages::new(MS);
        assert!(!ages.pass(AGE) && ages.left(AGE) == MS);
        assert!(ages.pass(AGE + MS) && !ages.pass(AGE + MS));
        assert_eq!(ages.left(AGE + 2 * MS), AGE - MS);
        assert!(ages.pass(9 * AGE) && !ages.pass(9 * AGE), "a sleep");
        assert_eq!(ages.left(MS), AGE, "a clock that goes back");
    }

    #[test]
    fn little_waits_longer_than_much() {
        assert_eq!(patience([(10, 640), (0, 640)]), IDLE);
        assert_eq!(patience([(9, 640), (9, 640)]), LONG_IDLE);
    }
}
