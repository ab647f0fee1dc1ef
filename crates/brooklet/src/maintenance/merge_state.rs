//! The state of merging that outlives one compaction.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::Error;

/// The state of merging, in addition to the running compaction.
#[derive(Default)]
pub(super) struct MergeState {
    /// The run that a merge makes, and the last key that the run has by now; `None` after opening.
    pub merged_to: Option<(u64, Vec<u8>)>,
    /// Runs that are left out of merging, and the error of reading each of them.
    pub left_out: BTreeMap<u64, Error>,
    /// Runs that were cleaned and whose tombstones were still needed by other runs.
    pub cleaned: BTreeSet<u64>,
    /// Whether the current slice works on a compaction, for the case that the slice fails.
    pub compacting: bool,
    /// The error of a merge that failed, and the room that the next merge needs: a quarter of a
    /// table more than there was. After an error for another reason, no merge runs until the store
    /// is opened again.
    pub failed: Option<(Error, u64)>,
    /// Whether the current slice works on a merge beside a running merge.
    pub beside: bool,
    /// The room that a merge beside a running merge needs, after such a merge found too little: the
    /// running merge continues, because it frees room sooner.
    pub beside_needs: u64,
    /// Whether a caller waits for all runs to be merged: compaction then runs first.
    pub full_requested: bool,
    /// Whether a compaction step was published: a wanted checkpoint then runs next in any case.
    pub checkpoint_next: bool,
}
