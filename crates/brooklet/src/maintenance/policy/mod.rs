//! Selects the next merge: a pure function of the known facts about the runs.
//!
//! The policy bounds the number of runs and the share of garbage, and leaves few runs at rest. `F`
//! is the size of a checkpoint's run, in bytes (about half the memory budget, or the size that half
//! the ring results in). `n` is the size of all runs divided by `F`. `R` is the maximum number of
//! runs.
//!
//! - **Runs.** Entries in a run of level `d` were written at most `d + 1` times. If there are more
//!   than `R` runs, the newest runs, those of the lowest level, are merged into one run of the next
//!   level. If the lowest level has only one run, the runs of the next level are merged along. A
//!   read therefore touches at most `R` runs, and an entry is written at most `1 + d` times if
//!   `C(R + d, d) >= n`: with 12 runs, 3 times for 91 checkpoints, 4 times for 455, 5 for 1,820,
//!   and so on. (This is the optimum for stacks of runs; Mathieu, Staelin, Young, Yousefi:
//!   "Bigtable merge compaction".)
//!   While a merge runs, the runs that are newer than it are merged in the same way, beside it, so
//!   that at most `R` new runs wait for its end.
//! - **Garbage.** If more than a given share of all bytes is known to be dead, the newest runs are
//!   merged, as many as bring the share down to half of that. With `g` as the share, a byte of
//!   garbage costs at most `2 / g` written bytes. The share is lower while the store is idle or
//!   short of room, because only then is space worth that work.
//! - **Rest.** After a long time without a commit, the newest runs are merged: as many as end with
//!   a run that is no larger than all newer runs together. A few runs are left, each larger than
//!   all newer runs together. With `m` as the size of all runs divided by the size of the smallest
//!   run (which may be much less than `F`), these are at most `log2 m` and one runs, and one run if
//!   the store was filled at once. A store that is only read is therefore read at the speed of few
//!   runs. However often the store rests, these merges write an entry at most `log2 m` times and
//!   once more: after an entry's first such merge, each further one doubles the size of its run.
//! - **Reads.** Each run that has entries of a log costs a read of this log a look. When these
//!   looks have cost as much as a merge (`run/read_cost.rs`), this merge is due: the one of a store
//!   at rest, or else the one of all runs. Reads and merges together then cost at most twice as
//!   much as the better of never merging and merging at the right time.
//!
//! Merging ends: each merge leaves fewer runs than before, and a single run is never merged.
//!
//! `docs/decisions/0009-compaction.md` compares this with other policies.

#[cfg(test)]
mod compare;
pub mod reclaim;

use std::ops::Range;

use brooklet_io::seeded::bug;

use crate::format::manifest::MAX_LEVEL;
use crate::format::manifest::RunMeta;

/// The policy of all stores.
pub(crate) const POLICY: Policy = Policy { most: 12, garbage: 60, idle_garbage: 15 };

/// A policy for merging runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    /// Maximum number of runs; at least 1.
    pub most: usize,
    /// Maximum garbage, in percent of all bytes.
    pub garbage: u64,
    /// The same limit while the store is idle, or short of room.
    pub idle_garbage: u64,
}

/// The facts about a run that a policy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub level: u64,
    pub bytes: u64,
    /// The approximate number of its bytes that a merge with all newer runs drops.
    pub garbage: u64,
}

/// A goal of merging. Each goal includes the goals listed before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompactionGoal {
    /// To keep the bounds.
    Bounds,
    /// To save space: the store is idle, or has no room.
    Space,
    /// For faster reads: there was no commit for a long time.
    Reads,
}

/// Neighbouring runs to be merged into one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Merge {
    /// The positions of the runs, counted from the newest.
    pub runs: Range<usize>,
    /// The level of the merged run.
    pub level: u64,
}

impl Shape {
    /// Returns the shape of a run of `bytes` bytes, of which `dead` entries are known to be dead.
    /// Assumes that each entry, each tombstone and each empty log takes the same number of bytes.
    pub fn of(meta: &RunMeta, bytes: u64, dead: u64) -> Self {
        let items = u128::from(meta.entries) + u128::from(meta.tombstones) + u128::from(meta.empties);
        let garbage = u128::from(dead) + u128::from(meta.tombstones);
        let garbage = u128::from(bytes) * garbage / items.max(1);
        Self { level: meta.level, bytes, garbage: (garbage as u64).min(bytes) }
    }
}

impl Policy {
    /// Returns the next merge of these runs. The runs are sorted from the newest to the oldest, and
    /// their levels never fall from one to the next.
    pub fn next(&self, runs: &[Shape], goal: CompactionGoal) -> Option<Merge> {
        let share = if goal == CompactionGoal::Bounds { self.garbage } else { self.idle_garbage };
        let merge = self.too_many(runs).or_else(|| too_much_garbage(runs, share));
        let merge = merge.or_else(|| no_larger_than_newer(runs).filter(|_| goal == CompactionGoal::Reads))?;
        Some(self.levelled(runs, merge))
    }

    /// Returns the next merge of runs that are newer than a running merge. A large merge runs for
    /// minutes, and checkpoints continue to add runs meanwhile: without these merges, a look-up
    /// would meet dozens of runs. `level` is the lower of two levels: of the newest run that the
    /// running merge replaces, and of the run that it makes. The store keeps levels from falling
    /// towards older runs, also when that merge has ended.
    ///
    /// Takes the newest runs, up to a run that is larger than all newer runs together. The size of
    /// such a run shows what its level may not show: it was made by such a merge.
    pub fn beside(&self, newer: &[Shape], level: u64) -> Option<Merge> {
        if newer.len() <= self.most {
            return None;
        }
        let is_larger = |end: &usize| newer[*end].bytes > bytes_of(&newer[..*end]);
        let end = (2..newer.len()).find(is_larger).unwrap_or(newer.len());
        let level = newer.get(end).map_or(level, |older| older.level.min(level));
        Some(Merge { runs: 0..end, level: (newer[end - 1].level + 1).min(level) })
    }

    /// Returns the merge that makes reads faster, and the bytes of its runs.
    pub fn for_reads(&self, runs: &[Shape]) -> Option<(Merge, u64)> {
        let all = || (runs.len() > 1).then_some(Merge { runs: 0..runs.len(), level: 0 });
        let merge = no_larger_than_newer(runs).or_else(all)?;
        let bytes = bytes_of(&runs[merge.runs.clone()]);
        Some((self.levelled(runs, merge), bytes))
    }

    /// Returns the merge with the level of its run. A run that replaces all runs has the level of
    /// a young store.
    fn levelled(&self, runs: &[Shape], merge: Merge) -> Merge {
        if merge.runs.end < runs.len() { merge } else { Merge { level: self.level_of_all(runs), ..merge } }
    }

    /// Returns a merge of the newest runs if there are too many runs: the runs of the lowest level
    /// that has several.
    fn too_many(&self, runs: &[Shape]) -> Option<Merge> {
        if runs.len() <= self.most {
            return None;
        }
        // A single newest run counts as a run of the next level. The second run is then of the
        // lowest level that has several runs.
        let level = runs[1].level;
        let end = runs.iter().take_while(|run| run.level <= level).count();
        Some(Merge { runs: 0..end, level: (level + 1).min(MAX_LEVEL) })
    }

    /// Returns the level of a run that replaces all runs: the lowest level that holds all live
    /// bytes. Levels therefore depend on the live bytes, and not on the age of the store.
    fn level_of_all(&self, runs: &[Shape]) -> u64 {
        let live: u64 = runs.iter().map(|run| run.bytes - run.garbage).sum();
        let checkpoint = runs.iter().filter(|run| run.level == 0).map(|run| run.bytes).max().unwrap_or(live);
        self.level_for(live, checkpoint)
    }

    /// Returns the lowest level that holds `live` bytes, if a checkpoint's run has `checkpoint`
    /// bytes.
    pub fn level_for(&self, live: u64, checkpoint: u64) -> u64 {
        let checkpoint = checkpoint.max(1);
        let (mut room, mut level) = (checkpoint, 0);
        while room < live && level < MAX_LEVEL {
            level += 1;
            room = binomial(self.most as u64 + level, level).saturating_mul(checkpoint);
        }
        level
    }

    /// Returns how far merging lags behind, in percent: 0 for at most `most` runs, 100 for at least
    /// twice as many.
    pub fn backlog(&self, runs: &[Shape]) -> u64 {
        (runs.len().saturating_sub(self.most) as u64 * 100 / self.most as u64).min(100)
    }
}

/// Returns the bytes of all the runs.
pub(crate) fn bytes_of(runs: &[Shape]) -> u64 {
    runs.iter().map(|run| run.bytes).fold(0, u64::saturating_add)
}

/// Returns `n` over `k`, or `u64::MAX` if the result is larger.
fn binomial(n: u64, k: u64) -> u64 {
    let product = (1..=u128::from(k))
        .try_fold(1u128, |product, i| Some(product.checked_mul(u128::from(n) - u128::from(k) + i)? / i));
    product.and_then(|product| u64::try_from(product).ok()).unwrap_or(u64::MAX)
}

/// Returns a merge of the newest runs if the garbage of all runs is more than `share` percent of
/// their bytes. The merge takes in as many runs as needed, so that the garbage of the older runs is
/// at most half of that limit.
fn too_much_garbage(runs: &[Shape], share: u64) -> Option<Merge> {
    let sum = |of: fn(&Shape) -> u64| runs.iter().map(of).fold(0u64, u64::saturating_add);
    let (bytes, garbage) = (sum(|r| r.bytes), sum(|r| r.garbage));
    let borne = (u128::from(bytes) * u128::from(share) / 100) as u64;
    if runs.len() < 2 || garbage <= borne {
        return None;
    }
    let mut left = garbage;
    let enough = runs.iter().position(|run| {
        left -= run.garbage;
        left <= borne / 2
    });
    let end = (enough.expect("no garbage is older than all runs") + 1).max(2);
    Some(Merge { runs: 0..end, level: runs[end - 1].level })
}

/// Returns a merge of the newest runs: as many as end with a run that is no larger than all newer
/// runs together.
fn no_larger_than_newer(runs: &[Shape]) -> Option<Merge> {
    let mut newer = 0u64;
    let mut ends = 0..0;
    for (i, run) in runs.iter().enumerate() {
        if i > 0 && run.bytes <= newer {
            ends.end = i + 1;
        }
        newer = newer.saturating_add(run.bytes);
    }
    (!ends.is_empty()).then(|| Merge { level: runs[ends.end - 1].level, runs: ends })
}

/// Returns whether nothing in a run is alive, so that the run can be freed without being read. Then
/// all its entries are dead, no log is empty, and the run has no tombstone unless it is the oldest.
/// `dead` never exceeds the actual number of dead entries.
///
/// Copies of earlier versions may have runs whose tombstones and empty logs were not counted.
pub(crate) fn is_dead(meta: &RunMeta, dead: u64, is_oldest: bool) -> bool {
    let counted = [meta.entries, meta.tombstones, meta.empties].into_iter().fold(0, u64::saturating_add);
    let bare = meta.empties > 0 || meta.tombstones > 0 && !is_oldest || meta.logs > counted;
    meta.entries == dead && (!bare || bug("bare-logs-do-not-count"))
}

#[cfg(test)]
mod tests {
    use brooklet_io::Rng;

    use super::*;

    fn runs(levels: &[u64]) -> Vec<Shape> {
        levels.iter().map(|&level| Shape { level, bytes: 100 << (3 * level), garbage: 0 }).collect()
    }

    const THREE: Policy = Policy { most: 3, garbage: 60, idle_garbage: 20 };

    #[test]
    fn the_newest_runs_are_merged_where_there_are_too_many() {
        let next =
            |levels: &[u64]| THREE.next(&runs(levels), CompactionGoal::Bounds).map(|m| (m.runs, m.level));
        assert_eq!(next(&[]), None);
        assert_eq!(next(&[0, 1, 2]), None);
        assert_eq!(next(&[0, 0, 1, 2]), Some((0..2, 1)));
        assert_eq!(next(&[0, 1, 1, 2]), Some((0..3, 2)), "one by itself counts as of the next level");
        assert_eq!(next(&[0, 2, 3, 3]), Some((0..2, 3)));
        assert_eq!(next(&[0, 0, 0, 0, 0, 2]), Some((0..5, 1)), "all of a level that has piled up");
    }

    /// Checkpoints of one size: a run is of level d after C(R + d, d) of them, and no entry was
    /// written more often.
    #[test]
    fn levels_grow_as_told() {
        let mut runs: Vec<Shape> = Vec::new();
        let mut full = Vec::new();
        for n in 1..=1000u64 {
            runs.insert(0, Shape { level: 0, bytes: 100, garbage: 0 });
            while let Some(merge) = THREE.next(&runs, CompactionGoal::Bounds) {
                let bytes = runs[merge.runs.clone()].iter().map(|run| run.bytes).sum();
                runs.splice(merge.runs, [Shape { level: merge.level, bytes, garbage: 0 }]);
            }
            assert!(runs.len() <= 3);
            if runs.len() == 1 {
                full.push((n, runs[0].level));
            }
            let deepest = (0..).find(|&d| binomial(3 + d, d) >= n).unwrap();
            assert!(runs.iter().all(|run| run.level <= deepest), "{n}: {runs:?}");
        }
        assert_eq!(
            full,
            [
                (1, 0),
                (4, 1),
                (10, 2),
                (20, 3),
                (35, 4),
                (56, 5),
                (84, 6),
                (120, 7),
                (165, 8),
                (220, 9),
                (286, 10),
                (364, 11),
                (455, 12),
                (560, 13),
                (680, 14),
                (816, 15),
                (969, 16)
            ]
        );
    }

    /// An old store that holds little data gets the level of a young store.
    #[test]
    fn levels_follow_what_lives() {
        let shape = |level, bytes, garbage| Shape { level, bytes, garbage };
        let next = |runs: &[Shape]| THREE.next(runs, CompactionGoal::Space).map(|m| (m.runs, m.level));
        assert_eq!(next(&[shape(0, 100, 0), shape(9, 400, 300)]), Some((0..2, 1)));
        assert_eq!(next(&[shape(0, 100, 0), shape(9, 100, 100)]), Some((0..2, 0)));
        assert_eq!(next(&[shape(0, 100, 0), shape(9, 1800, 900)]), Some((0..2, 2)));
        assert_eq!(next(&[shape(0, 100, 0), shape(9, u64::MAX / 2, u64::MAX / 4)]), Some((0..2, MAX_LEVEL)));
    }

    #[test]
    fn runs_do_not_pile_up_beside_a_merge() {
        let shape = |bytes| Shape { level: 0, bytes, garbage: 0 };
        let beside = |sizes: &[u64], level| {
            let runs: Vec<Shape> = sizes.iter().copied().map(shape).collect();
            THREE.beside(&runs, level).map(|merge| (merge.runs, merge.level))
        };
        assert_eq!((beside(&[], 2), beside(&[1, 1, 1], 2)), (None, None));
        assert_eq!(beside(&[1, 1, 1, 1], 2), Some((0..4, 1)));
        assert_eq!(beside(&[1, 1, 1, 1], 0), Some((0..4, 0)), "levels never fall towards older runs");
        assert_eq!(beside(&[1, 1, 3, 4], 0), Some((0..2, 0)), "3 is larger than both newer runs");
        assert_eq!(beside(&[1, 9, 9, 9], 0), Some((0..4, 0)), "two runs at least");
        // Levels never fall towards older runs, whatever the runs are.
        let mut rng = Rng::new(5);
        for _ in 0..10_000 {
            let mut levels: Vec<u64> = (0..=rng.below(9)).map(|_| rng.below(4)).collect();
            levels.sort_unstable();
            let level = levels.pop().expect("one at least");
            let run = |&level| Shape { level, bytes: 1 + rng.below(9), garbage: 0 };
            let mut runs: Vec<Shape> = levels.iter().map(run).collect();
            let Some(merge) = THREE.beside(&runs, level) else { continue };
            let merged = Shape { level: merge.level, ..runs[0] };
            runs.splice(merge.runs, [merged]);
            let levels: Vec<u64> = runs.iter().map(|run| run.level).chain([level]).collect();
            assert!(levels.is_sorted(), "{levels:?}");
        }
        // However long the merge runs: few runs wait, and no entry is written often.
        let (mut runs, mut written): (Vec<Shape>, u64) = (Vec::new(), 0);
        for n in 1..=1000 {
            runs.insert(0, shape(1));
            while let Some(merge) = POLICY.beside(&runs, 0) {
                let bytes = bytes_of(&runs[merge.runs.clone()]);
                written += bytes;
                runs.splice(merge.runs, [shape(bytes)]);
            }
            assert!(runs.len() <= 12 && bytes_of(&runs) == n);
        }
        assert!(written <= 4_000, "{written} for 1000");
    }

    #[test]
    fn binomials_do_not_overflow() {
        assert_eq!([binomial(12, 0), binomial(13, 1), binomial(15, 3), binomial(16, 4)], [1, 13, 455, 1820]);
        assert_eq!(binomial(1 << 40, 30), u64::MAX);
    }

    #[test]
    fn garbage_is_merged_once_it_is_too_much() {
        let shape = |bytes, garbage, level| Shape { level, bytes, garbage };
        let next = |runs: &[Shape], goal| THREE.next(runs, goal).map(|m| (m.runs, m.level));
        let some = [shape(10, 0, 0), shape(10, 5, 0), shape(80, 30, 2)];
        assert_eq!(next(&some, CompactionGoal::Bounds), None);
        assert_eq!(
            next(&some, CompactionGoal::Space),
            Some((0..3, 2)),
            "10 bytes a checkpoint, and 65 that live"
        );
        let little = [shape(10, 0, 0), shape(10, 5, 0), shape(80, 15, 2)];
        assert_eq!(next(&little, CompactionGoal::Space), None, "20 percent is borne");
        let newer = [shape(40, 0, 0), shape(40, 30, 1), shape(100, 15, 3)];
        assert_eq!(
            next(&newer, CompactionGoal::Space),
            Some((0..2, 1)),
            "what is left is half of what is borne"
        );
        assert_eq!(next(&[shape(10, 10, 0)], CompactionGoal::Space), None, "one run is never merged");
        assert_eq!(
            next(&[shape(10, 10, 0), shape(1, 0, 0), shape(5, 0, 1)], CompactionGoal::Space),
            Some((0..2, 0))
        );
    }

    #[test]
    fn at_rest_each_run_is_larger_than_all_newer_ones() {
        let shape = |bytes| Shape { level: 0, bytes, garbage: 0 };
        let next = |sizes: &[u64]| {
            let runs: Vec<Shape> = sizes.iter().copied().map(shape).collect();
            assert_eq!(POLICY.next(&runs, CompactionGoal::Space), None);
            POLICY.next(&runs, CompactionGoal::Reads).map(|merge| merge.runs)
        };
        assert_eq!(next(&[]), None);
        assert_eq!(next(&[5]), None);
        assert_eq!(next(&[5, 6, 12, 24]), None);
        assert_eq!(next(&[5, 5, 11]), Some(0..2));
        assert_eq!(next(&[4, 7, 6, 7, 7]), Some(0..5), "as many as can be");
        assert_eq!(next(&[1, 2, 3, 99]), Some(0..3));
    }

    #[test]
    fn reads_pay_for_the_merge_of_a_rest_or_of_all_runs() {
        let shape = |bytes, level| Shape { level, bytes, garbage: 0 };
        let next = |runs: &[Shape]| POLICY.for_reads(runs).map(|(merge, bytes)| (merge.runs, bytes));
        assert_eq!((next(&[]), next(&[shape(9, 0)])), (None, None));
        assert_eq!(next(&[shape(5, 0), shape(5, 0), shape(11, 1)]), Some((0..2, 10)));
        assert_eq!(next(&[shape(5, 0), shape(6, 0), shape(12, 1)]), Some((0..3, 23)));
    }

    /// Checks the bound at the head of this module, for any number of rests and for runs of any
    /// size.
    #[test]
    fn however_often_a_store_rests_it_writes_an_entry_a_few_times() {
        let mut rng = Rng::new(2);
        for most in [1, 30, 1000] {
            let (mut runs, mut written, mut bytes): (Vec<Shape>, u64, u64) = (Vec::new(), 0, 0);
            for _ in 0..1000 {
                let size = 1 + rng.below(most);
                bytes += size;
                runs.insert(0, Shape { level: 0, bytes: size, garbage: 0 });
                while let Some(merge) = POLICY.next(&runs, CompactionGoal::Reads) {
                    let size = runs[merge.runs.clone()].iter().map(|run| run.bytes).sum();
                    written += size;
                    runs.splice(merge.runs, [Shape { level: merge.level, bytes: size, garbage: 0 }]);
                }
                assert!(runs.len() as u32 <= bytes.ilog2() + 1, "{runs:?}");
            }
            assert!(written <= bytes * u64::from(bytes.ilog2() + 1), "{written} of {bytes}");
        }
    }

    /// Merging ends, however much garbage the merges leave.
    #[test]
    fn merging_ends() {
        let mut rng = Rng::new(1);
        let goal = [CompactionGoal::Bounds, CompactionGoal::Space, CompactionGoal::Reads];
        for _ in 0..2000 {
            let mut runs: Vec<Shape> = (0..rng.below(40))
                .map(|_| {
                    let bytes = 1 + rng.below(1000);
                    Shape { level: rng.below(4), bytes, garbage: rng.below(bytes + 1) }
                })
                .collect();
            runs.sort_by_key(|run| run.level);
            while let Some(merge) = THREE.next(&runs, goal[rng.below(3) as usize]) {
                assert!(merge.runs.len() > 1);
                let merged = &runs[merge.runs.clone()];
                let bytes = merged.iter().map(|r| r.bytes).sum();
                let merged = Shape { level: merge.level, bytes, garbage: rng.below(bytes + 1) };
                runs.splice(merge.runs, [merged]);
                assert!(runs.is_sorted_by_key(|run| run.level), "{runs:?}");
            }
            assert!(THREE.backlog(&runs) == 0 && runs.len() <= 3);
        }
    }

    #[test]
    fn a_backlog_is_counted_in_runs() {
        assert_eq!(THREE.backlog(&runs(&[0, 0, 1])), 0);
        assert_eq!(THREE.backlog(&runs(&[0, 0, 0, 1])), 33);
        assert_eq!(THREE.backlog(&runs(&[0, 1, 1, 1, 1, 1, 1, 1])), 100);
    }

    #[test]
    fn a_run_is_dead_when_nobody_needs_it() {
        let meta = RunMeta { entries: 5, logs: 5, ..RunMeta::default() };
        assert!(is_dead(&meta, 5, false) && !is_dead(&meta, 4, true));
        let tombstones = RunMeta { tombstones: 1, ..meta };
        assert!(is_dead(&tombstones, 5, true) && !is_dead(&tombstones, 5, false));
        assert!(!is_dead(&RunMeta { empties: 1, ..meta }, 5, true), "a log that is empty exists");
        let uncounted = RunMeta { logs: 2, ..RunMeta::default() };
        assert!(!is_dead(&uncounted, 0, true), "copies of earlier versions have such runs");
    }
}
