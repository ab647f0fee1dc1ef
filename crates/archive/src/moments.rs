//! Finds a moment in an archive: the backup and the commit before that moment, or a hole.
//!
//! An archive knows *moments*: at a time, by the clock of the store's host, the store was at a
//! place in its log. Each backup is a moment, and so are the commits and the marks behind it.
//! Moments are in the order of the log, which is the order of events; the clock may have been set
//! forward or back in between.
//!
//! A time in a request is the time of a moment, or the clock passed it between two moments: it went
//! from an earlier time to a later one. If the clock was set back, it may have passed the time more
//! than once. Then the pass that starts from the latest time counts, and of equal ones the last. So
//! a clock that was wrong once, by any amount, hides no commit of the time while it was right.
//!
//! Between two moments of one backup nothing was committed. Between the last moment of a backup and
//! the next backup the state is known if the commits behind the backup end with a mark of the next
//! one. Otherwise that time is a hole.

use brooklet::Moment;
use brooklet::io::seeded::bug;

/// The result of a search for a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// The store was at this place in its log, and committed nothing from then until this time.
    Known(Moment),
    /// The archive has no commits of the time between these, in milliseconds since the Unix epoch.
    Hole { from: u64, to: u64 },
}

/// Returns the backups behind which the time `at` may be: their indexes in `taken`, the best first.
/// `taken` holds the times of the backups, in the order of their numbers. `false` in the result
/// means: the time is behind that backup only if its commits confirm that.
pub(crate) fn backups_at(taken: &[u64], at: u64) -> Vec<(usize, bool)> {
    if bug("restore-trusts-dates") {
        let last = taken.partition_point(|taken| *taken <= at).checked_sub(1);
        return last.into_iter().map(|index| (index, true)).collect();
    }
    let mut found: Vec<(usize, bool)> = passings(taken, u64::MAX, at)
        // If the clock was set back, it may have passed `at` before that.
        .chain(
            taken
                .windows(2)
                .enumerate()
                .filter_map(|(index, pair)| (pair[1] <= pair[0] && pair[0] < at).then_some((index, false))),
        )
        .collect();
    found.sort_by_key(|(index, _)| std::cmp::Reverse((taken[*index], *index)));
    found
}

/// Returns the indexes in `times` after which a clock passed `at`. The clock showed `times`, one
/// after the other, and finally `end`.
fn passings(times: &[u64], end: u64, at: u64) -> impl Iterator<Item = (usize, bool)> {
    let nexts = times.iter().skip(1).copied().chain([end]);
    let passes = move |time: u64, next: u64| time == at || (time..next).contains(&at);
    times
        .iter()
        .zip(nexts)
        .enumerate()
        .filter_map(move |(index, (time, next))| passes(*time, next).then_some((index, true)))
}

/// Finds a moment behind a backup; returns `None` if the clock did not pass `at` there, by the
/// known moments. `chain` has the known moments behind the backup, and `next` is the moment of the
/// next backup, if one exists.
pub(crate) fn find(backup: Moment, chain: &[Moment], next: Option<Moment>, at: u64) -> Option<Found> {
    let closed = next.and_then(|next| chain.iter().rposition(|moment| *moment == next));
    let chain = closed.map_or(chain, |last| &chain[..=last]);
    let mut chain: Vec<&Moment> = chain.iter().filter(|moment| moment.lsn >= backup.lsn).collect();
    // The mark of a backup's view comes after commits that the view lacks.
    chain.sort_by_key(|moment| moment.lsn);
    let known: Vec<&Moment> = [&backup].into_iter().chain(chain).collect();
    let times: Vec<u64> = known.iter().map(|moment| moment.time_ms).collect();
    let last = times.len() - 1;
    let end = next.map_or(u64::MAX, |next| next.time_ms);
    let (found, _) = passings(&times, end, at).max_by_key(|(index, _)| (times[*index], *index))?;
    let known = Moment { lsn: known[found].lsn, time_ms: at };
    Some(match next {
        _ if found < last => Found::Known(known),
        // The end of this state's validity is not known.
        None => Found::Known(Moment { time_ms: times[last], ..known }),
        Some(_) if closed.is_some() || times[last] == at || bug("hole-is-not-looked-for") => {
            Found::Known(known)
        }
        Some(next) => Found::Hole { from: times[last], to: next.time_ms },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backup_at(taken: &[u64], at: u64) -> Option<usize> {
        backups_at(taken, at).into_iter().find(|(_, is_sure)| *is_sure).map(|(index, _)| index)
    }

    fn moments(all: &[(u64, u64)]) -> Vec<Moment> {
        all.iter().map(|(lsn, time)| Moment { lsn: *lsn, time_ms: *time }).collect()
    }

    #[test]
    fn a_clock_that_was_wrong_once_hides_no_backup() {
        let days: Vec<u64> = (1000..1030).collect();
        // A year ahead, at its beginning, and neither.
        let [ahead, behind] = [1365, 0].map(|wrong| {
            let mut days = days.clone();
            days.insert(10, wrong);
            days
        });
        for days in [&days, &ahead, &behind] {
            for (index, day) in days.iter().enumerate().filter(|(_, day)| (1000..1030).contains(*day)) {
                assert_eq!(backup_at(days, *day), Some(index), "day {day} of {days:?}");
            }
            assert_eq!(backup_at(days, 2000), Some(days.len() - 1));
        }
        assert_eq!((backup_at(&days, 999), backup_at(&[], 5)), (None, None));
        assert_eq!(backup_at(&behind, 999), Some(10), "then the clock was behind");
        // Before it was set back it may have gone on.
        assert_eq!(backups_at(&[10, 20, 5, 30], 25), [(1, false), (2, true)]);
        assert_eq!(backups_at(&[10, 20, 5, 30], 20), [(1, true), (2, true)]);
    }

    #[test]
    fn of_two_passings_the_nearest_counts() {
        // 30 is passed at once from 20, and after the clock was set back from 25.
        assert_eq!(backup_at(&[10, 20, 40, 25, 50], 30), Some(3));
        assert_eq!(backup_at(&[10, 25, 40, 20, 50], 30), Some(1));
        assert_eq!(backup_at(&[10, 25, 40, 25, 50], 30), Some(3), "of equal ones the last");
    }

    /// Before the clock was set back it had gone on, and what was committed then is known.
    #[test]
    fn commits_before_a_clock_is_set_back_are_found() {
        let (backup, next) = (Moment { lsn: 0, time_ms: 1000 }, Moment { lsn: 30, time_ms: 500 });
        let chain = moments(&[(10, 1010), (20, 1020)]);
        let find = |at| find(backup, &chain, Some(next), at);
        assert_eq!(find(1015), Some(Found::Known(Moment { lsn: 10, time_ms: 1015 })));
        assert_eq!(find(1020), Some(Found::Known(Moment { lsn: 20, time_ms: 1020 })));
        assert_eq!((find(1021), find(999), find(500)), (None, None, None));
    }

    #[test]
    fn a_moment_is_known_or_in_a_hole() {
        let backup = Moment { lsn: 100, time_ms: 1000 };
        let chain = moments(&[(110, 1010), (120, 1020), (120, 1030)]);
        let next = Moment { lsn: 130, time_ms: 1050 };
        let known = |lsn, time| Some(Found::Known(Moment { lsn, time_ms: time }));
        let hole = |from, to| Some(Found::Hole { from, to });
        for (at, lsn) in [(1000, 100), (1009, 100), (1010, 110), (1019, 110), (1020, 120), (1030, 120)] {
            assert_eq!(find(backup, &chain, Some(next), at), known(lsn, at));
        }
        for at in [1031, 1049] {
            assert_eq!(find(backup, &chain, Some(next), at), hole(1030, 1050));
        }
        // Without a next backup it is known up to the last moment.
        assert_eq!(find(backup, &chain, None, 5000), known(120, 1030));
        assert_eq!(find(backup, &[], Some(next), 1000), known(100, 1000));
        assert_eq!(find(backup, &[], Some(next), 1001), hole(1000, 1050));

        // The commits of after the cut came before the mark.
        let closed = [&chain[..], &moments(&[(130, 1040), (140, 1051), (130, 1050), (150, 1060)])].concat();
        for (at, lsn) in [(1030, 120), (1039, 120), (1040, 130), (1049, 130)] {
            assert_eq!(find(backup, &closed, Some(next), at), known(lsn, at));
        }
        // A mark of a backup that did not come to be closes nothing.
        let given_up = [&chain[..], &moments(&[(130, 1040), (130, 1045)])].concat();
        assert_eq!(find(backup, &given_up, Some(next), 1045), known(130, 1045));
        assert_eq!(find(backup, &given_up, Some(next), 1046), hole(1045, 1050));
    }

    /// A backup was given up after it had shipped commits that its view lacks. At the time of the
    /// view, the store did not have them.
    #[test]
    fn a_mark_counts_before_the_commits_behind_its_place() {
        let backup = Moment { lsn: 100, time_ms: 1000 };
        let chain = moments(&[(110, 1010), (120, 1021), (130, 1040), (110, 1020), (140, 1060)]);
        let known = |lsn, time| Some(Found::Known(Moment { lsn, time_ms: time }));
        let all = [(1010, 110), (1020, 110), (1021, 120), (1039, 120), (1040, 130), (1059, 130), (1060, 140)];
        for (at, lsn) in all {
            assert_eq!(find(backup, &chain, None, at), known(lsn, at), "at {at}");
        }
        assert_eq!(find(backup, &chain[..4], None, 5000), known(130, 1040), "the last known moment");
    }

    #[test]
    fn a_clock_that_was_wrong_once_hides_no_commit() {
        let backup = Moment { lsn: 0, time_ms: 1000 };
        let all = |wrong| {
            let mut all: Vec<Moment> = (1..20).map(|n| Moment { lsn: n, time_ms: 1000 + 10 * n }).collect();
            all[9].time_ms = wrong;
            all
        };
        for wrong in [0, 999_999] {
            let chain = all(wrong);
            for (index, moment) in chain.iter().enumerate().filter(|(index, _)| *index != 9) {
                let found = find(backup, &chain, None, moment.time_ms);
                assert_eq!(found, Some(Found::Known(*moment)), "commit {index} with {wrong}");
            }
        }
    }
}
