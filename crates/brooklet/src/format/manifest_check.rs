//! The rules that the runs of a manifest follow: each opening refuses a manifest that breaks one,
//! and no store writes such a manifest.

use std::collections::BTreeSet;
use std::mem::replace;

use crate::error::Error;
use crate::format::manifest::{MAX_LEVEL, Manifest, Merging, RunMeta, TableMeta};
use crate::format::run_entry::head_key;
use crate::limits::MAX_KEY;

/// Refuses runs that compaction could not have made. Compaction finds runs by number, and finds
/// newer runs by level.
pub(crate) fn check_runs(manifest: &Manifest, next_run: u64) -> Result<(), Error> {
    let damaged = |what: String| Err(Error::damaged("the manifest", what));
    let merged = manifest.merged();
    if let Some(merging) = &manifest.merging {
        let Merging { into, bottom, from, .. } = merging;
        if merged.is_empty() || merged.end > manifest.runs.len() {
            return damaged(format!("run {into} is merged from runs that do not exist"));
        }
        if *bottom && merged.end < manifest.runs.len() {
            return damaged(format!("run {into} is merged as the oldest run, and is not the oldest"));
        }
        let last = manifest.runs[merged.start - 1].1.last();
        if from.is_empty() || from.len() > MAX_KEY || last.is_some_and(|last| last.first >= head_key(from)) {
            return damaged(format!("run {into} is merged up to an invalid key"));
        }
    }
    let mut seen = BTreeSet::new();
    // The unfinished run of a merge will take the place of its inputs among the levels.
    let is_made = |at: usize| !merged.is_empty() && at + 1 == merged.start;
    let (mut without_it, mut with_it) = (0, 0);
    let (mut items, mut all_here) = (0u64, true);
    for (at, (run, tables)) in manifest.runs.iter().enumerate() {
        let falls = run.level < without_it && !is_made(at) || run.level < with_it && !merged.contains(&at);
        let here = |table: &TableMeta| !table.is_offloaded();
        let is_here = tables.iter().all(here);
        let was_here = replace(&mut all_here, is_here);
        let wrong = if tables.iter().any(|table| here(table) && table.len > table.extent) {
            "is longer than its extent"
        } else if !is_here && (tables.iter().any(|it| here(it) || it.offset > 0) || run.level < MAX_LEVEL) {
            "is offloaded, but not as a whole"
        } else if is_here && !was_here {
            "is older than an offloaded run"
        } else if !is_here && (merged.contains(&at) || at + 1 == merged.start) {
            "is offloaded, and is being merged"
        } else if run.id >= next_run {
            "has a number that the superblock never assigned"
        } else if !seen.insert(run.id) {
            "is listed twice"
        } else if falls {
            "has a lower level than a newer run"
        } else if run.level > MAX_LEVEL {
            "has a level over the maximum"
        } else if run.dead > run.entries || run.tombstones.saturating_add(run.empties) > run.logs {
            "has counts that contradict each other"
        } else if !adds_up(&mut items, run) {
            "has counts over the maximum of a store"
        } else if !tables.is_sorted_by(|a, b| a.first < b.first) {
            "has segments out of order"
        } else {
            without_it = if is_made(at) { without_it } else { run.level };
            with_it = if merged.contains(&at) { with_it } else { run.level };
            continue;
        };
        return damaged(format!("run {} {wrong}", run.id));
    }
    Ok(())
}

/// Adds a run's counts to the counts of all runs before it; returns `false` on overflow.
fn adds_up(items: &mut u64, run: &RunMeta) -> bool {
    let sum = items.checked_add(run.logs).and_then(|sum| sum.checked_add(run.entries));
    *items = sum.unwrap_or(*items);
    sum.is_some()
}

#[cfg(test)]
mod tests {
    use crate::format::manifest::Chain;

    use super::*;

    fn chain(id: u64, level: u64, firsts: &[&[u8]]) -> Chain {
        let table = |first: &&[u8]| {
            let first = if first.is_empty() { Vec::new() } else { head_key(first) };
            TableMeta { len: 200, extent: 4096, first, ..TableMeta::default() }
        };
        (RunMeta { id, level, logs: 1, entries: 1, ..RunMeta::default() }, firsts.iter().map(table).collect())
    }

    #[track_caller]
    fn refused(runs: Vec<Chain>, merging: Option<Merging>, because: &str) {
        let error = check_runs(&Manifest { runs, merging }, 10).expect_err(because).to_string();
        assert!(error.contains(because), "{error}");
    }

    /// A manifest with sound checksums could make compaction merge the wrong runs, continue
    /// forever, or overflow.
    #[test]
    fn runs_that_no_compaction_leaves_are_refused() {
        let run = |id, level| chain(id, level, &[b""]);
        let sound = vec![run(9, 0), run(7, 0), chain(8, 1, &[b"a", b"b", b"ba"])];
        assert!(check_runs(&Manifest { runs: sound, merging: None }, 10).is_ok());
        let mut long = run(1, 0);
        long.1[0].len = 5000;
        let apart = |id, level| {
            let (meta, tables) = chain(id, level, &[b"", b"b"]);
            (meta, tables.iter().map(TableMeta::gone).collect::<Vec<_>>())
        };
        let sound = vec![run(9, 0), run(7, 3), apart(8, MAX_LEVEL), apart(2, MAX_LEVEL)];
        assert!(check_runs(&Manifest { runs: sound, merging: None }, 10).is_ok());
        let mut partly = apart(1, MAX_LEVEL);
        partly.1[0] = run(1, 0).1.remove(0);
        let mut placed = apart(1, MAX_LEVEL);
        placed.1[1].offset = 4096;
        let many = |id, entries| (RunMeta { id, logs: 2, entries, ..RunMeta::default() }, run(id, 0).1);
        let with = |meta: RunMeta| vec![(RunMeta { id: 1, logs: 1, entries: 1, ..meta }, run(1, 0).1)];
        for (runs, because) in [
            (vec![long], "longer than its extent"),
            (vec![apart(1, 3)], "is offloaded, but not as a whole"),
            (vec![partly], "is offloaded, but not as a whole"),
            (vec![placed], "is offloaded, but not as a whole"),
            (vec![apart(2, MAX_LEVEL), run(1, MAX_LEVEL)], "older than an offloaded run"),
            (vec![run(10, 0)], "a number that the superblock never assigned"),
            (vec![run(1, 0), run(1, 1)], "listed twice"),
            (vec![run(2, 1), run(1, 0)], "lower level than a newer run"),
            (vec![run(1, u64::MAX)], "a level over the maximum"),
            (with(RunMeta { dead: 2, ..RunMeta::default() }), "counts that contradict each other"),
            (
                with(RunMeta { tombstones: 1, empties: u64::MAX, ..RunMeta::default() }),
                "counts that contradict each other",
            ),
            (vec![many(1, 1), many(2, u64::MAX - 3)], "counts over the maximum of a store"),
            (vec![chain(1, 0, &[b"b", b"a"])], "segments out of order"),
            (vec![chain(1, 0, &[b"a", b"a"])], "segments out of order"),
        ] {
            refused(runs, None, because);
        }
    }

    /// The same for a running merge.
    #[test]
    fn a_merge_that_cannot_be_is_refused() {
        let merging =
            |into, inputs, from: &[u8]| Some(Merging { into, inputs, bottom: false, from: from.to_vec() });
        let runs = |made, newer, first: &[u8], older| {
            vec![
                chain(9, newer, &[b"x"]),
                chain(8, made, &[first]),
                chain(1, 0, &[b"m"]),
                chain(2, older, &[]),
            ]
        };
        let sound = Manifest { runs: runs(1, 0, b"a", 0), merging: merging(8, 2, b"c") };
        assert!(check_runs(&sound, 10).is_ok());
        let lower = Manifest { runs: runs(0, 0, b"a", 3), merging: merging(8, 2, b"c") };
        assert!(check_runs(&lower, 10).is_ok(), "the oldest run may fall in level");
        refused(runs(1, 0, b"a", 0), merging(7, 2, b"c"), "run 7 is merged from runs that do not exist");
        refused(runs(1, 0, b"a", 0), merging(8, 3, b"c"), "that do not exist");
        refused(runs(1, 0, b"a", 0), merging(8, usize::MAX, b"c"), "that do not exist");
        refused(runs(1, 0, b"a", 0), merging(8, 2, b""), "up to an invalid key");
        refused(runs(1, 0, b"a", 0), merging(8, 2, &[1; MAX_KEY + 1]), "up to an invalid key");
        refused(runs(1, 0, b"c", 0), merging(8, 2, b"c"), "up to an invalid key");
        let bottom = |inputs| Some(Merging { into: 8, inputs, bottom: true, from: b"c".to_vec() });
        let sound = Manifest { runs: runs(1, 0, b"a", 0), merging: bottom(2) };
        assert!(check_runs(&sound, 10).is_ok());
        refused(runs(1, 0, b"a", 0), bottom(1), "merged as the oldest run, and is not the oldest");
        refused(runs(0, 1, b"a", 1), merging(8, 2, b"c"), "lower level");
        refused(runs(2, 0, b"a", 0), None, "lower level");
        let mut apart = runs(1, 0, b"a", MAX_LEVEL);
        apart[3] = chain(2, MAX_LEVEL, &[b"m"]);
        apart[3].1[0] = apart[3].1[0].gone();
        refused(apart, merging(8, 2, b"c"), "is offloaded, and is being merged");
    }
}
