//! What to merge next where room is short: a run is *cleaned*, that is, written anew by itself,
//! without what newer runs have made irrelevant in it and without the tombstones that no older run
//! needs. That takes little room beside what it frees, and frees the most for what it writes where
//! the run with the largest share of garbage is taken first, wherever it lies. Merging it with all
//! newer ones, as is done where there is room, would write those, too.

use crate::maintenance::policy::{Merge, Policy, Shape};

/// Garbage that is worth cleaning where somebody waits for room: this part of all bytes. A store
/// that is full of what lives is full; it does not rewrite itself for each few bytes.
const WORTH: u64 = 64;

impl Policy {
    /// What to clean for room. With `any`, however little is garbage.
    pub fn reclaim(&self, runs: &[Shape], any: bool) -> Option<Merge> {
        let bytes = runs.iter().map(|run| run.bytes).fold(0u64, u64::saturating_add);
        let least = if any { 1 } else { (bytes / WORTH).max(1) };
        let share = |run: &Shape| u128::from(run.garbage) * 1000 / u128::from(run.bytes.max(1));
        let goal = runs.iter().enumerate().filter(|(_, run)| run.garbage >= least);
        let (at, run) = goal.max_by_key(|(_, run)| share(run))?;
        Some(Merge { runs: at..at + 1, level: run.level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maintenance::policy::POLICY;

    fn shape(bytes: u64, garbage: u64) -> Shape {
        Shape { level: 0, bytes, garbage }
    }

    #[test]
    fn the_run_with_the_largest_share_of_garbage_is_cleaned() {
        let runs = [shape(100, 10), shape(100, 70), shape(1000, 300)];
        assert_eq!(POLICY.reclaim(&runs, false), Some(Merge { runs: 1..2, level: 0 }));
        let level = Shape { level: 3, ..shape(100, 90) };
        assert_eq!(POLICY.reclaim(&[runs[0], level], false), Some(Merge { runs: 1..2, level: 3 }));
    }

    #[test]
    fn little_garbage_is_cleaned_only_for_what_frees() {
        let runs = [shape(100, 0), shape(100, 18), shape(1000, 0)];
        assert_eq!(POLICY.reclaim(&runs, false), Some(Merge { runs: 1..2, level: 0 }));
        let runs = [shape(100, 0), shape(100, 17), shape(1000, 1)];
        assert_eq!(POLICY.reclaim(&runs, false), None);
        assert_eq!(POLICY.reclaim(&runs, true), Some(Merge { runs: 1..2, level: 0 }));
        assert_eq!(POLICY.reclaim(&[shape(100, 0)], true), None);
        assert_eq!(POLICY.reclaim(&[], true), None);
    }
}
