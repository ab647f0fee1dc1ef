//! Selects the next run to *clean* when room is short. Cleaning rewrites a single run without the
//! entries that newer runs have made irrelevant, and without the tombstones that no older run
//! needs. Cleaning takes little room compared to the room that it frees. It frees the most per
//! written byte if the run with the largest share of garbage is cleaned first, wherever that run
//! is. A merge with all newer runs, as is done if there is room, would rewrite the newer runs, too.

use crate::maintenance::policy::{Merge, Policy, Shape};

/// The least garbage that is worth cleaning while a commit waits for room: all bytes divided by
/// this number. A store that is full of live entries is full, and does not rewrite itself for a few
/// bytes.
const WORTH: u64 = 64;

impl Policy {
    /// Returns the run to clean for room. With `any`, a run with little garbage is enough.
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
