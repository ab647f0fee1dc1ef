//! What to merge where room is short, though not so much is dead that it would be merged by itself.

use super::{Merge, Policy, Shape};

/// Garbage that is worth a merge where somebody waits for room: this part of all bytes. A store that is full of what lives is
/// full; it does not rewrite itself for each few bytes.
const WORTH: u64 = 64;

impl Policy {
    /// What to merge next for room. With `any`, whatever might free something: what is known to be dead may be too little, and
    /// what newer runs tell anew of a log is not known at all.
    pub fn relief(&self, runs: &[Shape], any: bool) -> Option<Merge> {
        if let Some(merge) = self.next(runs, true) {
            return Some(merge);
        }
        let garbage = runs.iter().map(|run| run.garbage).fold(0u64, u64::saturating_add);
        let bytes = runs.iter().map(|run| run.bytes).fold(0u64, u64::saturating_add);
        if runs.len() < 2 || !any && garbage <= bytes / WORTH {
            return None;
        }
        let mut left = garbage;
        let enough = runs.iter().position(|run| {
            left -= run.garbage;
            left <= garbage / 2
        });
        let end = (enough.map_or(0, |at| at + 1)).max(2);
        let level = if end < runs.len() { runs[end - 1].level } else { self.level_of_all(runs) };
        Some(Merge { runs: 0..end, level })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::POLICY;

    fn shape(bytes: u64, garbage: u64) -> Shape {
        Shape { level: 0, bytes, garbage }
    }

    #[test]
    fn little_garbage_is_merged_for_room_and_less_only_for_what_frees() {
        let runs = [shape(100, 0), shape(100, 0), shape(1000, 20)];
        assert_eq!(POLICY.next(&runs, true), None);
        assert_eq!(POLICY.relief(&runs, false).map(|m| m.runs), Some(0..3), "where the garbage is");
        let runs = [shape(100, 0), shape(100, 0), shape(1000, 18)];
        assert_eq!(POLICY.relief(&runs, false), None);
        assert_eq!(POLICY.relief(&runs, true).map(|m| m.runs), Some(0..3));
        assert_eq!(
            POLICY.relief(&[shape(100, 0), shape(100, 0), shape(9, 0)], true).map(|m| m.runs),
            Some(0..2)
        );
        assert_eq!(POLICY.relief(&[shape(100, 100)], true), None, "one run is never merged");
    }

    /// Whatever a merge leaves, there comes an end.
    #[test]
    fn relief_ends() {
        let mut rng = brooklet_io::Rng::new(1);
        for _ in 0..500 {
            let mut runs: Vec<Shape> =
                (0..rng.below(20)).map(|_| shape(1 + rng.below(100), rng.below(2))).collect();
            let mut merges = 0;
            while let Some(merge) = POLICY.relief(&runs, rng.percent(50)) {
                merges += 1;
                let bytes = runs[merge.runs.clone()].iter().map(|run| run.bytes).sum();
                runs.splice(merge.runs, [Shape { level: 0, bytes, garbage: rng.below(2) }]);
            }
            assert!(merges < 20);
        }
    }
}
