//! Counts the entries of older runs that a checkpoint makes irrelevant by a trim, a truncation or a
//! deletion.
//!
//! Only logs that lost entries are looked up, in key order, so that a run's block is read once for
//! all of them. Unreadable entries are not counted. Offloaded runs are not asked, because a
//! checkpoint must not wait for a run that may be out of reach. The count is therefore never too
//! large.

use brooklet_io::seeded::bug;

use crate::error::Error;
use crate::format::run_entry::Head;
use crate::model::{Bounds, Piece, resolve};
use crate::run::cursor::RunCursor;
use crate::run::{Run, RunSet, Wanted};

/// A count of the entries that one checkpoint makes irrelevant in the runs.
pub(crate) struct DeadEntries {
    /// The runs, newest first.
    runs: Vec<RunCursor>,
    /// For each run, its number and its number of lost entries.
    known: Vec<(u64, u64)>,
}

impl DeadEntries {
    pub fn new(runs: &RunSet) -> Self {
        Self {
            runs: runs.here().iter().cloned().map(RunCursor::new).collect(),
            known: runs.here().iter().map(|run| (run.meta.id, 0)).collect(),
        }
    }

    /// Counts the entries of a log that the runs lose to `piece`, which is newer than all runs.
    /// `origin` are the log's bounds in the runs. Returns `false` if no look-up was needed.
    pub fn count(&mut self, key: &[u8], origin: Option<Bounds>, piece: Piece) -> bool {
        let lost = |origin: Bounds| {
            !origin.is_empty()
                && (piece.base < origin.next || piece.bounds.is_none_or(|b| b.first > origin.first))
        };
        if self.runs.is_empty() || !origin.is_some_and(lost) {
            return false;
        }
        match self.pieces(key) {
            Ok(found) => self.take_down(&found, piece),
            Err(error) => {
                tracing::warn!(%error, "the store could not count the entries of a run that a checkpoint made dead; a merge counts them");
            }
        }
        true
    }

    /// Returns the log's relevant pieces, newest first, each with the index of its run.
    fn pieces(&mut self, key: &[u8]) -> Result<Vec<(usize, Piece)>, Error> {
        pieces_in(&mut self.runs, key)
    }

    fn take_down(&mut self, found: &[(usize, Piece)], newer: Piece) {
        let pieces = || found.iter().map(|(_, piece)| *piece);
        for (i, part) in resolve(pieces()).parts {
            if bug("losses-count-twice") {
                self.known[found[i].0].1 += part.end - part.start;
            }
            self.known[found[i].0].1 += part.end - part.start;
        }
        for (i, part) in resolve(std::iter::once(newer).chain(pieces())).parts {
            if let Some(older) = i.checked_sub(1) {
                let lost = &mut self.known[found[older].0].1;
                *lost = lost.saturating_sub(part.end - part.start);
            }
        }
    }

    /// Returns each run's number and its number of lost entries.
    pub fn known(&self) -> &[(u64, u64)] {
        &self.known
    }
}

/// Returns a log's relevant pieces in some runs, newest first, each with the index of its run.
/// Callers pass logs in key order, so that each block is read once.
pub(crate) fn pieces_in(runs: &mut [RunCursor], key: &[u8]) -> Result<Vec<(usize, Piece)>, Error> {
    let mut wanted = Wanted::new(key);
    let mut found: Vec<(usize, Piece)> = Vec::new();
    for (i, cursor) in runs.iter_mut().enumerate() {
        let run: &Run = cursor.run();
        let absent = !run.counts_for(key) || run.may_know(&mut wanted)? == Some(false);
        if absent || !cursor.seek(wanted.head())? || cursor.key() != wanted.head() {
            continue;
        }
        let head = Head::decode(&cursor.value()?).ok_or_else(|| cursor.run().malformed(key))?;
        found.push((i, head.piece));
        let so_far = resolve(found.iter().map(|(_, piece)| *piece));
        if so_far.bounds.is_none_or(|b| so_far.upper == b.first) {
            break;
        }
    }
    Ok(found)
}
